//! Figures in the documentation say where they come from.
//!
//! Every block of figures in a page is written by a command, and names the command, the date and
//! the commit, or says that it was not run yet. Every block that a command writes occurs exactly
//! once in its page.

use super::Finding;
use crate::saved::{BLOCKS, found};
use crate::workspace::File;

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
    }
    let missing = BLOCKS.iter().filter(|block| !seen.contains(block));
    findings.extend(
        missing.map(|block| {
            Finding::new(block.page, format!("the block `{}` is missing", block.name))
        }),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages with every block, each with `body`.
    fn pages(body: &str) -> Vec<File> {
        let mut files: Vec<File> = Vec::new();
        for block in &BLOCKS {
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
