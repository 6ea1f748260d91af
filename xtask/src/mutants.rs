//! `cargo xtask mutants`: looks for every mutant in a copy of the workspace.
//!
//! It writes the copy with the edits of `verify/gossip-mutants`, builds it, builds the unit tests
//! that the hunt runs as a layer, and runs `gossip-mutants-hunt` in the copy. `--save` writes the
//! table into `docs/reliability.md`. `--short` is part of `cargo xtask test`: an unoptimized
//! build, and for each mutant its cheapest layer.
//!
//! The copy uses the target directory of the workspace, so that other crates are built once. Its
//! packages have a version of their own, so that cargo does not mistake them for the product's.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

const USAGE: &str = "[--short] [--mutant NAME] [--save]";

/// Where the copy is, below the target directory.
const COPY: &str = "mutants/workspace";

/// The program that runs in the copy.
const HUNT: &str = "gossip-mutants-hunt";

/// The packages whose unit tests are a layer.
const TESTED: [&str; 4] =
    ["gossip-coordination", "gossip-coordination-etcd", "gossip-scanner-runtime", "gossip-sim"];

/// Those of them that are the cheapest layer of a mutant.
const TESTED_SHORT: [&str; 3] =
    ["gossip-coordination", "gossip-coordination-etcd", "gossip-scanner-runtime"];

/// A package without a library, so that nothing more is built. With it selected, the dependencies
/// have the features of the test build, and those which it compiled are used.
const SAME_FEATURES: &str = "gossip-cli";

/// What to do about a mutant that was not found.
const NEXT: &str = "see the mutants named above; `cargo xtask mutants --mutant NAME` hunts one";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let (mut is_short, mut saves, mut only) = (false, false, None);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--short" => is_short = true,
            "--save" => saves = true,
            "--mutant" => only = words.next(),
            _ => return Err(Failure::usage("mutants", "it is not understood", USAGE)),
        }
    }
    if saves && (is_short || only.is_some()) {
        return Err(Failure::usage("mutants", "only a complete hunt is saved", USAGE));
    }
    let made = Made::now("mutants", arguments)?;
    let table = hunt(is_short, only)?;
    if saves {
        saved::MUTANTS.save(&grouped_in(&table), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the copy and hunts in it; the table.
fn hunt(is_short: bool, only: Option<&str>) -> Result<String, Failure> {
    let workspace = Workspace::load()?;
    let copy = workspace.target.join(COPY);
    make_copy(&workspace.root, &copy)?;
    let tested: &[&str] = if is_short { &TESTED_SHORT } else { &TESTED };
    let programs = build_tests(&workspace, &copy, tested)?;
    let mut command = cargo_in(&copy, &workspace);
    command.args(["run", "--quiet", "--package", HUNT]);
    if !is_short {
        command.arg("--release");
    }
    command.arg("--");
    if is_short {
        command.arg("--short");
    }
    command.args(only.iter().flat_map(|name| ["--mutant", name]));
    for program in programs {
        command.arg("--tests").arg(program.package);
        command.args([program.path, program.directory]);
    }
    process::show(&mut command, NEXT)
}

fn make_copy(root: &Path, copy: &Path) -> Result<(), Failure> {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", "gossip-mutants", "--"]).args([root, copy]);
    let next = "adapt the edits named above in verify/gossip-mutants/mutants to the new source";
    process::run(&mut command, next)
}

/// The unit tests of one package of the copy.
struct TestProgram {
    package: String,
    path: PathBuf,
    /// Where cargo would run them.
    directory: PathBuf,
}

/// Builds the unit tests of `packages`, unoptimized.
fn build_tests(
    workspace: &Workspace,
    copy: &Path,
    packages: &[&str],
) -> Result<Vec<TestProgram>, Failure> {
    let mut command = cargo_in(copy, workspace);
    command.args(["test", "--quiet", "--no-run", "--lib", "--message-format", "json"]);
    command.args(["--all-features", "--package", SAME_FEATURES]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    let output = process::capture(&mut command, "fix the compile errors above")?;
    let programs: Vec<TestProgram> = output.lines().filter_map(test_program).collect();
    if programs.len() == packages.len() {
        return Ok(programs);
    }
    let why = format!("cargo named {} programs for {} packages", programs.len(), packages.len());
    Err(Failure::new("the tests of the copy were not built", why, "compare xtask/src/mutants.rs"))
}

/// Reads a line of cargo's JSON; absent if it is not about a program of tests.
fn test_program(line: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let path = message["executable"].as_str().filter(|_| is_test)?;
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = directory.file_name()?.to_str()?;
    Some(TestProgram {
        package: package.to_owned(),
        path: path.into(),
        directory: directory.to_owned(),
    })
}

fn cargo_in(copy: &Path, workspace: &Workspace) -> Command {
    let mut command = process::cargo();
    command.current_dir(copy).env("CARGO_TARGET_DIR", &workspace.target);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_tests_is_read() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/c/crates/a/Cargo.toml",
            "profile":{"test":true},"executable":"/t/a-1"}"#;
        let program = test_program(line).unwrap();
        assert_eq!(program.package, "a");
        assert_eq!(program.directory, Path::new("/c/crates/a"));
        assert!(test_program(&line.replace("true", "false")).is_none());
        assert!(test_program("no json").is_none());
    }

    #[test]
    fn only_a_complete_hunt_is_saved() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(run(&words("--short --save")).is_err());
        assert!(run(&words("--mutant A --save")).is_err());
        assert!(run(&words("--broken")).is_err());
    }
}
