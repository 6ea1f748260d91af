//! A campaign over a tiny workspace: a tool that finds nothing, or that counts everything as
//! caught, fails here.

#![expect(clippy::unwrap_used, reason = "all of it is test code")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gossip_mutation::Places;
use gossip_mutation::area::{AREAS, Area, Program};
use gossip_mutation::campaign::{Options, list, run};

const MANIFEST: &str = "[workspace]\nresolver = \"3\"\nmembers = [\"tiny\"]\n\n\
                        [workspace.package]\nversion = \"0.1.0\"\n";

const PACKAGE: &str = "[package]\nname = \"tiny\"\nversion.workspace = true\nedition = \"2024\"\n";

const SOURCE: &str = r#"
pub fn is_small(number: u32) -> bool {
    number < 10
}

pub fn next(number: u32) -> u32 {
    number + 1
}

pub struct Handle(pub u32);

pub fn open(number: u32) -> Result<Handle, u32> {
    if let Some(rest) = number.checked_sub(5) && rest > 0 {
        return Err(rest);
    }
    Ok(Handle(number))
}

const fn limit(number: u32) -> u32 {
    number + 7
}

pub const LIMIT: u32 = limit(1);

const fn half(number: u32) -> u32 {
    number / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_is_small_and_ten_is_not() {
        assert!(is_small(9) && !is_small(10));
        assert_eq!(LIMIT, 8);
        assert_eq!(half(8), 4);
    }

    #[test]
    fn next_returns_a_number() {
        let _ = next(1);
    }

    #[test]
    fn handles_are_opened_up_to_five() {
        assert!(open(5).is_ok_and(|handle| handle.0 == 5));
        assert_eq!(open(6).err(), Some(1));
    }
}
"#;

const AREA: Area = Area {
    name: "tiny",
    files: &["tiny/src/"],
    except: &[],
    programs: &[Program { package: "tiny", test: None, words: &[] }],
    sample: None,
    goal: 100,
};

/// Mutants that no test of [`SOURCE`] can notice.
const MISSED: [&str; 3] = [
    "tiny/src/lib.rs: next: `number + 1`: `+` becomes `-`",
    "tiny/src/lib.rs: next: the body becomes `0`",
    "tiny/src/lib.rs: next: the body becomes `1`",
];

struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("root/tiny/src")).unwrap();
        for (file, text) in
            [("Cargo.toml", MANIFEST), ("tiny/Cargo.toml", PACKAGE), ("tiny/src/lib.rs", SOURCE)]
        {
            fs::write(root.join("root").join(file), text).unwrap();
        }
        let mut git = Command::new("git");
        assert!(git.args(["init", "--quiet"]).arg(root.join("root")).status().unwrap().success());
        Self(root)
    }

    fn places(&self) -> Places {
        let copy = self.0.join("mutation/workspace");
        Places { root: self.0.join("root"), copy, target: self.0.join("target") }
    }

    fn results(&self) -> usize {
        let progress = fs::read_to_string(self.0.join("mutation/progress")).unwrap();
        progress.lines().filter(|line| line.starts_with("result ")).count()
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn tested_mutants_are_caught_and_untested_ones_are_missed() {
    let workspace = Workspace::new("tiny-workspace");
    let places = workspace.places();
    let run = |equivalent: &str| run(&places, &[AREA], equivalent, &Options::default()).unwrap();
    let report = run("");
    let mut missed: Vec<&str> = report.missed().collect();
    missed.sort_unstable();
    assert_eq!(missed, MISSED);
    assert_eq!(report.caught(), 10, "{report}");
    // `Handle` has no default, and a constant needs `limit`.
    assert!(
        report.to_string().contains("| `tiny` | 14 | 1 | 3 | 13 | 10 | 0 | 0 | 3 |"),
        "{report}"
    );
    assert!(report.complaints()[0].starts_with("tiny: 76.9 % caught"), "{report}");

    // The second campaign continues the first, and counts equivalent mutants apart.
    let results = workspace.results();
    let list: String = MISSED.iter().map(|it| format!("mutant {it}\nreason None.\n")).collect();
    let report = run(&list);
    assert_eq!(report.missed().count(), 0);
    assert!(report.complaints().is_empty(), "{report}");
    assert_eq!(workspace.results(), results, "no mutant runs twice");

    // A list that is wrong fails.
    let caught = "tiny/src/lib.rs: is_small: the body becomes `true`";
    let list = format!("mutant {caught}\nreason None.\nmutant gone\nreason None.\n");
    let complaints = run(&list).complaints().join("\n");
    assert!(complaints.contains(&format!("but caught: {caught}")), "{complaints}");
    assert!(complaints.contains("but no mutant: gone"), "{complaints}");
}

#[test]
fn every_mutant_listed_as_equivalent_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mutants = list(&root, AREAS).unwrap();
    let known: BTreeSet<&str> =
        mutants.lines().filter_map(|line| line.split_once(' ')).map(|(_, name)| name).collect();
    let listed = include_str!("../equivalent.txt").lines();
    let gone: Vec<&str> = listed
        .filter_map(|line| line.strip_prefix("mutant "))
        .filter(|name| !known.contains(name))
        .collect();
    assert!(gone.is_empty(), "remove them from equivalent.txt: {gone:#?}");
}
