//! Documents name files and decisions that exist.
//!
//! In every Markdown file:
//! - a code span such as `` `crates/gossip/src/lib.rs` `` is a tracked file or directory;
//! - the target of a relative link is one, too;
//! - `ADR 27` is the number of a file in `docs/adr`.

use super::Finding;
use crate::workspace::{FUZZ_INPUTS, File};

/// Code spans that begin so are paths from the root.
const ROOTS: [&str; 5] = ["crates/", "docs/", "specs/", "verify/", "xtask/"];

/// The directory of the decisions; their files begin with four digits.
const DECISIONS: &str = "docs/adr/";

/// Checks every document.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, number) in file.text.lines().zip(1..) {
            let mut find = |what: String| findings.push(Finding::at(&file.path, number, what));
            for path in paths(line).filter(|path| !exists(path, files)) {
                find(format!("there is no `{path}`"));
            }
            for target in links(line) {
                let path = resolved(&file.path, target);
                if !exists(&path, files) {
                    find(format!("there is no `{path}`, to which a link leads"));
                }
            }
            for decision in decisions(line).filter(|it| !is_decided(it, files)) {
                find(format!("there is no decision {decision} in {DECISIONS}"));
            }
        }
    }
    findings
}

/// The code spans of a line that are paths. One with a space or a pattern is a command.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_path_character = |it: char| it.is_ascii_alphanumeric() || "/._-".contains(it);
    line.split('`')
        .skip(1)
        .step_by(2)
        .filter(move |span| ROOTS.iter().any(|root| span.starts_with(root)))
        .filter(move |span| span.chars().all(is_path_character))
}

/// The relative targets of a line's links, without the heading they lead to.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter_map(|target| target.split('#').next());
    files.filter(|target| !target.is_empty() && !target.contains("://"))
}

/// The path from the root of a link in the document at `from`.
fn resolved(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    // The last part is the document itself.
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The numbers behind "ADR" in a line.
fn decisions(line: &str) -> impl Iterator<Item = &str> {
    let behind = line.split("ADR ").skip(1);
    let numbers = behind.map(|rest| {
        rest.split_once(|it: char| !it.is_ascii_digit()).map_or(rest, |(number, _)| number)
    });
    numbers.filter(|number| !number.is_empty())
}

fn exists(path: &str, files: &[File]) -> bool {
    let path = path.trim_end_matches('/');
    // Their bytes are no text, so they are not among the files.
    if path == FUZZ_INPUTS.trim_end_matches('/') {
        return true;
    }
    files.iter().any(|file| match file.path.strip_prefix(path) {
        // A directory exists if a file lies below it.
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    })
}

fn is_decided(number: &str, files: &[File]) -> bool {
    let start = format!("{DECISIONS}{number:0>4}-");
    files.iter().any(|file| file.path.starts_with(&start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let files = [
            File::new(path, text),
            File::new("docs/adr/0003-one-list.md", ""),
            File::new("crates/gossip/src/lib.rs", ""),
        ];
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_path_that_exists_is_accepted_and_another_is_found() {
        assert_eq!(complaints("a.md", "`crates/gossip/src/lib.rs`, `crates/gossip`"), [""; 0]);
        assert_eq!(complaints("a.md", "`crates/goss`"), ["a.md:1: there is no `crates/goss`"]);
        assert_eq!(complaints("a.rs", "`crates/goss`"), [""; 0]);
    }

    #[test]
    fn spans_that_are_no_paths_are_ignored() {
        assert_eq!(complaints("a.md", "`lib.rs`, `cargo xtask`, `crates/*/src`"), [""; 0]);
        assert_eq!(complaints("a.md", "crates/goss without a span"), [""; 0]);
    }

    #[test]
    fn a_link_is_relative_to_its_document() {
        let link = "[three](../docs/adr/0003-one-list.md#context)";
        assert_eq!(complaints("docs/a.md", link), [""; 0]);
        assert_eq!(complaints("docs/a.md", "[three](adr)"), [""; 0]);
        assert_eq!(complaints("a.md", "[three](adr)").len(), 1);
        assert_eq!(complaints("a.md", "[web](https://example.org/adr), [up](#top)"), [""; 0]);
    }

    #[test]
    fn a_decision_that_is_not_recorded_is_found() {
        assert_eq!(complaints("a.md", "ADR 3, and ADR 3."), [""; 0]);
        let found = complaints("a.md", "one\nsee ADR 30");
        assert_eq!(found, ["a.md:2: there is no decision 30 in docs/adr/"]);
    }
}
