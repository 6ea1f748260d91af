//! Figures in the documentation say where they come from.
//!
//! Every block of figures in a page is written by a command, and names the command, the date and
//! the commit, or says that it was not run yet. Every block that a command writes occurs exactly
//! once in its page. Outside of blocks there are no dates: a figure with one was put there by hand.

use super::Finding;
use crate::saved::{BLOCKS, found, is_date};
use crate::workspace::File;

/// Pages that may have dates: decisions and versions have them.
const DATED: [&str; 2] = ["docs/adr/", "CHANGELOG.md"];

/// Checks every page.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for block in found(&file.text) {
            let name = block.name;
            let mut find = |what: String| {
                findings.push(Finding::at(&file.path, block.line, what));
            };
            let known = BLOCKS.iter().find(|it| it.page == file.path && it.name == name);
            match known {
                None => find(format!("no command writes the block `{name}`")),
                Some(known) if seen.contains(&known) => find(format!("`{name}` is there twice")),
                Some(known) => seen.push(known),
            }
            if let Some(problem) = block.problem {
                find(format!("the block `{name}` {problem}"));
            }
        }
        let is_dated = DATED.iter().any(|prefix| file.path.starts_with(prefix));
        findings.extend(dates(file).filter(|_| !is_dated));
    }
    let missing = BLOCKS.iter().filter(|block| !seen.contains(block));
    findings.extend(
        missing.map(|block| {
            Finding::new(block.page, format!("the block `{}` is missing", block.name))
        }),
    );
    findings
}

/// Returns a finding for each line outside of blocks that has a date.
fn dates(file: &File) -> impl Iterator<Item = Finding> {
    let mut is_inside = false;
    file.text.lines().zip(1..).filter_map(move |(line, number)| {
        let is_mark = |end: &str| line.starts_with("<!-- ") && line.ends_with(end);
        is_inside = (is_inside || is_mark(": begin -->")) && !is_mark(": end -->");
        let mut words = line.split(|it: char| !it.is_ascii_digit() && it != '-');
        let what = "a date outside of a block: figures are dated by the command that saves them";
        (!is_inside && words.any(is_date)).then(|| Finding::at(&file.path, number, what))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages with every block, each with `body`.
    fn pages(body: &str) -> Vec<File> {
        let mut files: Vec<File> = Vec::new();
        for block in BLOCKS {
            let name = block.name;
            let text = format!("<!-- {name}: begin -->\n{body}\n<!-- {name}: end -->\n");
            match files.iter_mut().find(|file| file.path == block.page) {
                Some(file) => file.text.push_str(&text),
                None => files.push(File::new(block.page, text)),
            }
        }
        files
    }

    fn findings_of(files: &[File]) -> Vec<String> {
        check(files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pages_that_say_where_figures_come_from_are_tidy() {
        assert_eq!(findings_of(&pages("Not run yet.")), [""; 0]);
        let made = "| 1 |\n\nMade by `cargo xtask x`, 2026-11-15, commit 0123456789ab.";
        assert_eq!(findings_of(&pages(made)), [""; 0]);
    }

    #[test]
    fn a_date_outside_of_a_block_is_found() {
        let found = |path: &str, text: &str| {
            let mut files = pages("Made by `x`, 2026-11-15, commit 0123456789ab.");
            files.push(File::new(path, text));
            findings_of(&files)
        };
        let expected = "docs/x.md:2: a date outside of a block: figures are dated by the command \
                        that saves them";
        assert_eq!(found("docs/x.md", "a\nIt took 5 s (2026-11-15).\n"), [expected]);
        assert_eq!(found("docs/adr/0001-x.md", "2026-11-15\n"), [""; 0]);
        assert_eq!(found("docs/x.md", "seed 20261115, 1-2, 2026-11\n"), [""; 0]);
    }

    #[test]
    fn every_block_without_date_or_commit_is_found() {
        assert_eq!(findings_of(&pages("| 1 |")).len(), BLOCKS.len());
        let no_commit = "| 1 |\n\nMade by `cargo xtask x`, 2026-11-15.";
        assert_eq!(findings_of(&pages(no_commit)).len(), BLOCKS.len());
    }

    #[test]
    fn a_block_that_is_missing_unknown_or_there_twice_is_found() {
        let mut files = pages("Not run yet.");
        let lost = files.pop().unwrap();
        let of_page = BLOCKS.iter().filter(|block| block.page == lost.path).count();
        assert_eq!(findings_of(&files).len(), of_page);
        assert!(findings_of(&files)[0].ends_with("is missing"), "{:?}", findings_of(&files));
        let stray =
            File::new("docs/x.md", "<!-- mutants: begin -->\nNot run yet\n<!-- mutants: end -->\n");
        let text = lost.text.repeat(2);
        files.extend([stray, File::new(lost.path, text)]);
        let findings = findings_of(&files);
        assert_eq!(findings[0], "docs/x.md:1: no command writes the block `mutants`");
        assert_eq!(findings.len(), 1 + of_page);
        assert!(findings[1].ends_with("is there twice"), "{findings:?}");
    }
}
