//! Marker words of LANGUAGE section 2 become fewer, crate by crate.
//!
//! The words show prose that avoids the usual technical term: "nobody", "told", "goes on". They are
//! counted in comments, string literals and documents, never in identifiers. The list
//! `xtask/marker_words.txt` is a ratchet.

use std::collections::BTreeMap;

use super::Finding;
use super::ratchet::Ratchet;
use crate::workspace::File;

/// The words, in lower case. A phrase matches across one space.
const MARKERS: [&str; 20] = [
    "by itself",
    "glance",
    "glances",
    "go on",
    "goes on",
    "in vain",
    "mend",
    "mended",
    "mending",
    "mends",
    "nobody",
    "set aside",
    "somebody",
    "stands",
    "tells",
    "told",
    "troubled",
    "what is",
    "what was",
    "whoever",
];

/// This page and its list name the words; the commands in `xtask/names` are the specification's.
const EXEMPT: [&str; 3] = [LIST, "xtask/src/tidy/language.rs", "Cargo.lock"];

/// The ratchet's entries.
pub(super) const LIST: &str = "xtask/marker_words.txt";

/// Compares the count of every area with its entry.
pub(super) fn check(files: &[File], list: &str) -> Vec<Finding> {
    let ratchet = Ratchet {
        list: LIST,
        counted: "marker words",
        advice: "use the technical term (LANGUAGE section 2)",
    };
    ratchet.check(counts(files), list)
}

/// Marker words by area.
pub(super) fn counts(files: &[File]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        *counts.entry(area(&file.path)).or_insert(0) += markers(&prose(file));
    }
    counts
}

/// A crate is an area; so is each other directory at the root, and each file there.
fn area(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let depth = if matches!(parts[0], "crates" | "verify") { 2 } else { 1 };
    parts[..depth.min(parts.len())].join("/")
}

/// The text that a reader reads as sentences. In Rust that is comments and literals: everything
/// that masking blanks.
fn prose(file: &File) -> String {
    if !file.is_rust() {
        return file.text.to_lowercase();
    }
    let blanked = file.text.chars().zip(file.code.chars());
    let kept = blanked.map(|(text, code)| if text == code && text != '\n' { ' ' } else { text });
    kept.collect::<String>().to_lowercase()
}

/// How many markers a text holds.
fn markers(prose: &str) -> usize {
    let words: Vec<&str> = prose
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|it| !it.is_empty())
        .collect();
    let at = |start: usize| {
        MARKERS.iter().any(|marker| {
            marker.split(' ').eq(words[start..].iter().copied().take(marker.split(' ').count()))
        })
    };
    (0..words.len()).filter(|start| at(*start)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str, list: &str) -> Vec<String> {
        check(&[File::new(path, text)], list).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn words_in_comments_and_literals_count() {
        let found = complaints("crates/a/src/x.rs", "/// Nobody.\nfn f() { g(\"told\") }", "");
        assert_eq!(
            found,
            ["crates/a: 2 marker words; use the technical term (LANGUAGE section 2)"]
        );
    }

    #[test]
    fn identifiers_do_not_count() {
        let code = "fn told() { let nobody = whoever(); }";
        assert_eq!(complaints("crates/a/src/x.rs", code, ""), Vec::<String>::new());
    }

    #[test]
    fn phrases_count_across_line_breaks_and_parts_of_words_do_not() {
        assert_eq!(complaints("docs/a.md", "It goes\non.", "docs 1"), Vec::<String>::new());
        assert_eq!(complaints("docs/a.md", "amend, behold", ""), Vec::<String>::new());
    }

    #[test]
    fn a_count_above_its_entry_fails() {
        let found = complaints("crates/a/b.md", "nobody, whoever", "crates/a 1");
        assert!(found[0].contains("2 marker words, 1 allowed"), "{found:?}");
    }
}
