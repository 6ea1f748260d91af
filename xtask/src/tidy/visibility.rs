//! Public items of product crates become fewer, crate by crate.
//!
//! Counted is every `pub` of a product crate: of items, fields, methods and `pub use`, also of
//! items that only another crate of this workspace can reach. `pub(crate)`, `pub(super)` and
//! `pub(in …)` do not count. Files of tests and everything behind `#[cfg(test)]` do not count
//! either. Variants and the methods of a trait have no `pub` of their own. Macro expansion is
//! ignored: a `pub` in a macro's body counts once.
//!
//! The list `xtask/public_items.txt` is a ratchet. A change that needs a new public item raises the
//! entry by hand, in a commit that says why.

use std::collections::BTreeMap;

use super::Finding;
use super::ratchet::Ratchet;
use crate::source::{Token, tokens};
use crate::workspace::File;

/// The ratchet's entries.
pub(super) const LIST: &str = "xtask/public_items.txt";

/// Crates below this directory belong to the product.
const PRODUCT: &str = "crates";

/// Compares the count of every product crate with its entry.
pub(super) fn check(files: &[File], list: &str) -> Vec<Finding> {
    let ratchet = Ratchet {
        list: LIST,
        counted: "`pub`",
        advice: "make them `pub(crate)`, or raise the entry and give the reason in the commit",
    };
    ratchet.check(counts(files), list)
}

/// The number of `pub` by product crate.
pub(super) fn counts(files: &[File]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust() && !file.is_test()) {
        let parts: Vec<&str> = file.path.split('/').collect();
        if let [PRODUCT, name, "src", ..] = parts[..] {
            *counts.entry(format!("{PRODUCT}/{name}")).or_insert(0) += publics(&file.code);
        }
    }
    counts
}

/// The number of `pub` without a restriction in masked source text, outside of tests.
fn publics(masked: &str) -> usize {
    let tokens = tokens(masked);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let (mut at, mut count) = (0, 0);
    while at < tokens.len() {
        if is_test_attribute(&tokens[at..]) {
            at = end_of_item(&tokens, at + TEST_ATTRIBUTE.len());
        } else if text(at) == "pub" && !is_restricted(text(at + 1), text(at + 2)) {
            count += 1;
        }
        at += 1;
    }
    count
}

/// The tokens of `#[cfg(test)]`.
const TEST_ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

fn is_test_attribute(tokens: &[Token<'_>]) -> bool {
    let start = tokens.iter().take(TEST_ATTRIBUTE.len()).map(|token| token.text);
    start.eq(TEST_ATTRIBUTE)
}

/// Whether the tokens after `pub` restrict it; a field's type may begin with a bracket, too.
fn is_restricted(first: &str, second: &str) -> bool {
    first == "(" && matches!(second, "crate" | "super" | "self" | "in")
}

/// The index of the last token of the item, field or variant that begins at a token.
fn end_of_item(tokens: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && token.text == "}" {
                    return at;
                }
            }
            ";" | "," if depth == 0 => return at,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        publics(&File::new("a.rs", text).code)
    }

    #[test]
    fn items_fields_and_exports_count() {
        assert_eq!(count("pub struct A { pub a: u8, b: u8 }\npub use b::{C, D};"), 3);
        assert_eq!(count("impl A { pub const fn f() {} }\npub struct B(pub (u8, u8));"), 3);
    }

    #[test]
    fn restricted_items_and_words_in_comments_do_not_count() {
        assert_eq!(count("pub(crate) fn f() {}\npub(super) mod m;\npub(in a::b) fn g() {}"), 0);
        assert_eq!(count("// pub fn f()\nfn publish() { g(\"pub fn\") }"), 0);
    }

    #[test]
    fn items_behind_a_test_attribute_do_not_count_and_those_after_do() {
        assert_eq!(count("#[cfg(test)]\nmod tests { pub fn f() {} mod n {} }\npub fn g() {}"), 1);
        assert_eq!(count("#[cfg(test)]\npub mod tests;\npub mod m;"), 1);
        assert_eq!(count("struct A { #[cfg(test)] pub a: u8, pub b: u8 }"), 1);
    }

    #[test]
    fn only_sources_of_product_crates_count_and_tests_do_not() {
        let files = [
            File::new("crates/a/src/x.rs", "pub fn f() {}"),
            File::new("crates/a/src/x_tests.rs", "pub fn f() {}"),
            File::new("crates/a/benches/x.rs", "pub fn f() {}"),
            File::new("verify/b/src/x.rs", "pub fn f() {}"),
        ];
        assert_eq!(counts(&files), BTreeMap::from([("crates/a".to_owned(), 1)]));
    }

    #[test]
    fn a_new_public_item_is_found() {
        let files = [File::new("crates/a/src/x.rs", "pub fn f() {}\npub fn g() {}")];
        assert_eq!(check(&files, "crates/a 2\n"), []);
        let found = check(&files, "crates/a 1\n");
        assert!(found[0].what.contains("has 2 `pub`, 1 allowed"), "{found:?}");
    }
}
