//! One line of a list against a few lines of Rust, in both directions.

use std::path::PathBuf;

use super::*;

/// What the check says about a crate with one list and one source file.
fn complaints(list: &str, path: &str, source: &str) -> Vec<String> {
    let package = Package {
        name: "a".to_owned(),
        directory: "crates/a".to_owned(),
        dependencies: Vec::new(),
        targets: Vec::new(),
    };
    let root = PathBuf::new();
    let workspace = Workspace { target: root.clone(), root, packages: vec![package] };
    let files = [File::new("names/a.txt", list), File::new(format!("crates/a/{path}"), source)];
    check(&workspace, &files, "names").into_iter().map(|finding| finding.what).collect()
}

#[track_caller]
fn accepts(line: &str, source: &str) {
    assert_eq!(complaints(line, "src/x.rs", source), Vec::<String>::new());
}

#[track_caller]
fn refuses(line: &str, source: &str) {
    assert_eq!(complaints(line, "src/x.rs", source).len(), 1, "{line} in {source:?}");
}

#[test]
fn a_type_must_be_declared_public_or_exported() {
    accepts("type A", "pub struct A;");
    accepts("type A", "id!(A); pub use ids::{A, B};");
    refuses("type A", "struct A;");
    refuses("type A", "// pub struct A;");
    refuses("type A", "pub struct Ab;");
    refuses("type A", "pub fn A() {}");
    refuses("type A", "#[cfg(test)] mod t { pub struct A; }");
}

#[test]
fn a_function_must_be_public_and_under_its_owner() {
    accepts("fn a", "pub const fn a() {}");
    accepts("fn a", "pub trait T { fn a(); }");
    accepts("fn T::a", "impl<X> T<X> { pub fn a() {} }");
    refuses("fn a", "fn a() {}");
    refuses("fn T::a", "impl T { fn a() {} }");
    refuses("fn T::a", "impl U { pub fn a() {} }");
    refuses("fn T::a", "pub fn a() {}");
}

#[test]
fn a_method_may_be_a_row_of_a_list_that_its_trait_invokes() {
    let list = "macro_rules! for_each_x { ($c:ident) => { $c! { /// A.
        fn a(x: u8) -> u8 = read(); } }; }";
    let invoked = "pub trait T { for_each_x! { declare } } pub trait U { fn b(); }";
    accepts("fn T::a", &format!("{list} {invoked}"));
    refuses("fn U::a", &format!("{list} {invoked}"));
    refuses("fn T::c", &format!("{list} {invoked}"));
    refuses("fn T::a", invoked);
    refuses("fn T::a", &format!("{list} pub trait T {{ fn b(); }}"));
    refuses("fn T::a", &format!("{list} pub fn t() {{ for_each_x! {{ declare }} }}"));
}

#[test]
fn a_constant_must_be_public() {
    accepts("const A", "pub const A: u8 = 0;");
    accepts("const T::A", "impl T { pub const A: u8 = 0; }");
    refuses("const A", "pub(crate) const A: u8 = 0;");
    refuses("const A", "pub fn f() { A }");
}

#[test]
fn a_variant_must_stand_in_its_enum() {
    accepts("variant E::A", "pub enum E { A(u8) }");
    refuses("variant E::A", "pub enum F { A }");
    refuses("variant E::A", "pub enum E { B { A: u8 } }");
}

#[test]
fn modules_and_files_must_exist() {
    accepts("module a", "pub mod a;");
    refuses("module a", "use a;");
    accepts("file src/x.rs", "");
    refuses("file src/y.rs", "");
}

#[test]
fn a_text_must_stand_outside_of_tests() {
    let list = "text A_V1 = \"a/v1\"";
    accepts(list, "registry! { A_V1 = \"a/v1\"; }");
    refuses(list, "registry! { A_V1 = \"a/v2\"; }");
    assert_eq!(complaints(list, "src/x_tests.rs", "A_V1 = \"a/v1\"").len(), 1);
}

#[test]
fn a_test_must_be_a_test_in_its_file() {
    let list = "test a in x_tests.rs";
    let check = |path, source| complaints(list, path, source).len();
    assert_eq!(check("src/x_tests.rs", "#[test] fn a() {}"), 0);
    assert_eq!(check("src/x_tests.rs", "proptest! { #[test] fn a(x in 0..1) {} }"), 0);
    assert_eq!(check("src/y_tests.rs", "#[test] fn a() {}"), 1);
    assert_eq!(check("src/x_tests.rs", "fn a() {}"), 1);
    assert_eq!(check("src/x_tests.rs", "#[test] fn a_too() {}"), 1);
}

#[test]
fn a_parameterized_test_needs_its_cases() {
    let list = "test a in x.rs cases 2";
    accepts(list, "#[rstest] #[case(1)] #[case(2)] fn a(#[case] x: u8) {}");
    refuses(list, "#[rstest] #[case(1)] fn a(#[case] x: u8) {}");
}

#[test]
fn a_list_must_be_well_formed() {
    accepts("# a comment\n\ntype A # and another", "pub struct A;");
    refuses("typ A", "pub struct A;");
    refuses("variant A", "pub enum E { A }");
    refuses("test a in x.rs cases many", "#[test] fn a() {}");
    refuses("type A\ntype A", "pub struct A;");
}

#[test]
fn a_crate_must_have_a_list_and_a_list_may_wait_for_its_crate() {
    let package = Package {
        name: "a".to_owned(),
        directory: "crates/a".to_owned(),
        dependencies: Vec::new(),
        targets: Vec::new(),
    };
    let root = PathBuf::new();
    let workspace = Workspace { target: root.clone(), root, packages: vec![package] };
    let files = [File::new("names/b.txt", "type NotYet")];
    assert_eq!(check(&workspace, &files, "names").len(), 1);
}
