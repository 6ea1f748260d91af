//! Small pieces of Rust and their expected items.

use super::*;
use crate::source::mask;

fn find(text: &str, name: &str) -> Item {
    let found: Vec<Item> =
        items(&mask(text)).into_iter().filter(|item| item.name == name).collect();
    assert_eq!(found.len(), 1, "{name} in {text:?}: {found:?}");
    found.into_iter().next().unwrap()
}

fn names(text: &str, kind: Kind) -> Vec<String> {
    let items = items(&mask(text)).into_iter();
    items.filter(|item| item.kind == kind).map(|item| item.name).collect()
}

#[test]
fn kinds_are_distinguished() {
    let text = "pub struct A; enum B {} trait C {} type D = u8; union E {} static F: u8 = 0;
        pub const G: u8 = 0; const fn h() {} mod i; mod j {}";
    assert_eq!(names(text, Kind::Type), ["A", "B", "C", "D", "E"]);
    assert_eq!(names(text, Kind::Constant), ["F", "G"]);
    assert_eq!(names(text, Kind::Function), ["h"]);
    assert_eq!(names(text, Kind::Module), ["i", "j"]);
}

#[test]
fn only_plain_pub_is_public() {
    assert!(find("pub struct A;", "A").is_public);
    assert!(find("pub const fn a() {}", "a").is_public);
    assert!(!find("struct A;", "A").is_public);
    assert!(!find("pub(crate) struct A;", "A").is_public);
    assert!(!find("pub struct A; struct B;", "B").is_public);
}

#[test]
fn methods_have_their_owner() {
    let method = |text| find(text, "m").owner;
    assert_eq!(method("impl A { fn m() {} }").as_deref(), Some("A"));
    assert_eq!(method("impl<'a, T: Fn() -> u8> A<'a, T> { fn m() {} }").as_deref(), Some("A"));
    assert_eq!(method("impl<T> fmt::B for c::A<T> where T: X { fn m() {} }").as_deref(), Some("A"));
    assert_eq!(method("trait A: Sized { fn m(); }").as_deref(), Some("A"));
    assert_eq!(method("impl A {} fn m() {}"), None);
    assert_eq!(method("fn m(f: impl Fn() -> u8) {}"), None);
}

#[test]
fn members_of_traits_are_public() {
    assert!(find("pub trait A { fn m(); }", "m").is_public);
    assert!(find("impl A for B { fn m() {} }", "m").is_public);
    assert!(!find("impl B { fn m() {} }", "m").is_public);
}

#[test]
fn variants_are_found_under_their_enum() {
    let text = "pub enum E { #[error(\"{x}, }\")] A, B { a: u8, b: u8 }, C(u8, Vec<u8>), D = 3, }
        struct After;";
    assert_eq!(names(text, Kind::Variant), ["A", "B", "C", "D"]);
    assert_eq!(find(text, "B").owner.as_deref(), Some("E"));
    assert_eq!(find(text, "After").kind, Kind::Type);
}

#[test]
fn exports_are_the_ends_of_paths() {
    let text = "pub use a::{B, c::D as E}; use f::G; pub(crate) use h::I;";
    assert_eq!(names(text, Kind::Export), ["B", "E"]);
}

#[test]
fn tests_are_known_by_attribute_or_by_proptest() {
    assert!(find("#[test] #[should_panic(expected = \"x\")] fn a() {}", "a").is_test);
    assert!(find("#[tokio::test] async fn a() {}", "a").is_test);
    assert!(!find("#[tokio::main] async fn a() {}", "a").is_test);
    assert!(find("#[rstest] #[case(1)] #[case::two(2)] fn a(#[case] x: u8) {}", "a").is_test);
    assert!(find("proptest! { #![c] fn a(x in 0..9) {} }", "a").is_test);
    assert!(!find("fn a() {}", "a").is_test);
    assert!(!find("#[test] fn b() {} fn a() {}", "a").is_test);
    assert!(!find("// #[test]\nfn a() {}", "a").is_test);
}

#[test]
fn cases_are_counted_per_function() {
    let text = "#[rstest] #[case(1)] #[case::two(2)] fn a(#[case] x: u8) {} #[test] fn b() {}";
    assert_eq!(find(text, "a").cases, 2);
    assert_eq!(find(text, "b").cases, 0);
}

#[test]
fn functions_are_measured_with_their_body() {
    let text = "fn a(\n    x: [u8; 2],\n) {\n    let c = || { 1 };\n}\n\nfn b();\nfn c() {}\n";
    assert_eq!(find(text, "a").line_count(), 5);
    assert_eq!(find(text, "b").line_count(), 1);
}

#[test]
fn test_modules_are_distinguished_from_others() {
    assert!(find("#[cfg(test)] mod t { mod u { fn a() {} } }", "a").in_tests);
    assert!(!find("#[cfg(test)] mod t { } fn a() {}", "a").in_tests);
    assert!(!find("#[cfg(feature = \"x\")] mod t { fn a() {} }", "a").in_tests);
    assert!(!find("#[cfg(test)] mod t; mod u { fn a() {} }", "a").in_tests);
}

#[test]
fn broken_text_never_panics() {
    for text in
        ["", "fn", "enum", "enum E {", "impl", "#[", "#", "pub", "pub(", "use", "}", "trait"]
    {
        items(&mask(text));
        items(&mask(&format!("fn a() {{ }} {text}")));
    }
}
