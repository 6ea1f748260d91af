//! Checks the README of the specification against its files and the code.
//!
//! - Every law that a configuration checks is a rule of the oracle in Rust, and has a row in the
//!   map of laws; every row is such a law.
//! - Every `` `file.rs::name` `` of the map is an item of that file.
//! - The results were made from the specification as it is, by `cargo xtask tla --save`, and tell
//!   of every configuration and every mutation.
//!
//! TLC is not run here: that is `cargo xtask tla`.

use super::Finding;
use crate::items::items;
use crate::tla::spec::Specification;
use crate::tla::{README, Section, seal};
use crate::workspace::File;

/// The oracle whose rules have the names of the laws.
const ORACLE: &str = "verify/gossip-sim/src/model/oracle.rs";
/// The head of the map of laws.
const MAP: &str = "| law |";

/// Checks the page against the specification and the code.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let Some(readme) = files.iter().find(|file| file.path == README) else {
        return vec![Finding::new(README, "does not exist")];
    };
    let specification = match Specification::parse(files) {
        Ok(specification) => specification,
        Err(why) => return vec![Finding::new(README, why)],
    };
    let mut findings = check_laws(&specification, readme, files);
    findings.extend(check_references(readme, files));
    findings.extend(check_results(&specification, readme));
    findings
}

/// Laws, rows of the map and rules of the oracle have the same names.
fn check_laws(specification: &Specification, readme: &File, files: &[File]) -> Vec<Finding> {
    let laws = specification.laws();
    let rows = first_column(&readme.text, MAP);
    let rules = rules(files);
    let mut findings = Vec::new();
    let mut find = |what: String| findings.push(Finding::new(README, what));
    for law in &laws {
        if !rows.contains(law) {
            find(format!("the law {law} is not in the map"));
        }
        if !rules.iter().any(|rule| rule == law) {
            find(format!("{law} is no rule of {ORACLE}"));
        }
    }
    for row in rows.iter().filter(|row| !laws.contains(row)) {
        find(format!("the map has {row}, which no configuration checks"));
    }
    findings
}

/// The variants of the oracle's `Rule`.
fn rules(files: &[File]) -> Vec<String> {
    let oracle = files.iter().find(|file| file.path == ORACLE);
    let declared = oracle.map_or_else(Vec::new, |file| items(&file.code));
    let of_rule = declared.into_iter().filter(|item| item.owner.as_deref() == Some("Rule"));
    of_rule.map(|item| item.name).collect()
}

/// Every reference to an item leads somewhere.
fn check_references(readme: &File, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, number) in readme.text.lines().zip(1..) {
        for (path, name) in references(line) {
            let file = files.iter().find(|file| file.path == path);
            let exists =
                file.is_some_and(|file| items(&file.code).iter().any(|it| it.name == name));
            if !exists {
                findings.push(Finding::at(README, number, format!("{path} has no `{name}`")));
            }
        }
    }
    findings
}

/// The `` `file.rs::name` `` of a line.
fn references(line: &str) -> Vec<(&str, &str)> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|text| text.split_once("::"))
        .filter(|(path, _)| path.ends_with(".rs"))
        .collect()
}

/// The results are of this specification, and complete.
fn check_results(specification: &Specification, readme: &File) -> Vec<Finding> {
    let of_section = |section: &Section| {
        let what = result_problem(specification, *section, &readme.text)?;
        let what = format!("{what}; `cargo xtask tla --save` writes the results anew");
        Some(Finding::new(README, what))
    };
    Section::ALL.iter().filter_map(of_section).collect()
}

fn result_problem(specification: &Specification, section: Section, page: &str) -> Option<String> {
    let Some(results) = section.find(page) else {
        return Some(format!("the marks of {section:?} are missing"));
    };
    if !results.contains(&seal(specification)) {
        return Some(format!("{section:?} are those of another specification"));
    }
    let names: Vec<&String> = match section {
        Section::Configurations => specification.configurations.iter().map(|it| &it.name).collect(),
        Section::Mutations => specification.mutations.iter().map(|it| &it.name).collect(),
    };
    let missing = names.into_iter().find(|name| !results.contains(&format!("| {name} |")));
    missing.map(|name| format!("{section:?} lack {name}"))
}

/// The first cells of the table whose head begins with `head`.
fn first_column<'a>(text: &'a str, head: &str) -> Vec<&'a str> {
    let rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_among_other_words() {
        let line = "| `Decide` | `a/b.rs::check`, `c.rs::Rule` and `c.rs` |";
        assert_eq!(references(line), [("a/b.rs", "check"), ("c.rs", "Rule")]);
    }

    #[test]
    fn a_reference_that_leads_nowhere_is_found() {
        let readme = File::new(README, "`a.rs::kept` `a.rs::gone` `b.rs::kept`\n");
        let code = File::new("a.rs", "fn kept() {}\n");
        let found: Vec<String> =
            check_references(&readme, &[code]).iter().map(ToString::to_string).collect();
        let at = |what: &str| format!("{README}:1: {what}");
        assert_eq!(found, [at("a.rs has no `gone`"), at("b.rs has no `kept`")]);
    }

    #[test]
    fn the_map_is_read_by_its_first_column() {
        let text = "| other | x |\n|---|---|\n| no | x |\n\n| law | x |\n|---|---|\n| One | x |\n| Two | x |\n\nend";
        assert_eq!(first_column(text, MAP), ["One", "Two"]);
    }
}
