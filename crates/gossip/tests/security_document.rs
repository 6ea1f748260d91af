//! Every test that docs/security.md names exists.
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENT: &str = include_str!("../../../docs/security.md");

/// Returns the names of all functions with a test attribute below a directory.
fn tests_below(directory: PathBuf) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![directory]);
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            add_tests(&fs::read_to_string(&path).unwrap(), &mut found);
        }
    }
    found
}

fn add_tests(text: &str, found: &mut BTreeSet<String>) {
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if ["#[test]", "#[tokio::test]", "#[rstest]"].contains(&line) {
            is_test = true;
        } else if let Some(name) = name {
            let end = name.find(['(', '<']).unwrap_or(name.len());
            if std::mem::take(&mut is_test) {
                found.insert(name[..end].to_owned());
            }
        }
    }
}

/// Returns the cells of a table, without its head.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = DOCUMENT.split(&format!("## {heading}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut known = tests_below(root.join("crates"));
    known.extend(tests_below(root.join("verify")));
    let promises = rows("Promised");
    assert!(promises.len() > 10);
    for row in promises {
        let [_, promise, tests] = row[..] else { panic!("{row:?}") };
        let named: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test: {promise}");
        for name in named {
            assert!(known.contains(name), "no such test: {name}");
        }
    }
}

#[test]
fn everything_that_is_not_promised_has_a_reason() {
    let rows = rows("Not promised");
    assert!(rows.len() > 10);
    for row in rows {
        let [actor, what, why] = row[..] else { panic!("{row:?}") };
        assert!(!actor.is_empty() && !what.is_empty() && !why.is_empty(), "{row:?}");
    }
}
