//! `cargo xtask test`: everything that must hold before a change is finished.
//!
//! Stages run in order, cheap ones first, and the first that fails ends the run. However it ends,
//! the last line on stdout is `N passed, M failed, K skipped`, alone.
//!
//! `--quick` runs formatting, tidy and the unit tests of the crates in [`QUICK`]: under 90 seconds
//! on two cores when they are built. It does not replace the whole run before a change is finished.

use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::failure::Failure;
use crate::process::{self, Pipe};
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{deny, mutants, setup, test_programs, tidy, tla};

/// The one crate whose debug builds behave differently: they overwrite freed bytes, which hides
/// what release builds leave behind. Its tests hold in both.
const RELEASE_TESTED: &str = "gossip-stdx";

/// A profile with the assertions of a release build and little optimization: the tests that use it
/// run for seconds, so most of their time is compilation.
const RELEASE_PROFILE: [&str; 2] = ["--profile", "release-test"];

/// The test of another crate that must hold in both: the same seed gives the same world. One file,
/// because release builds of everything take minutes.
const DETERMINISM: [&str; 4] = ["--package", "gossip-sim", "--test", "determinism"];

/// Documentation tests have a stage of their own, and benchmarks are only compiled, by clippy: so
/// the targets are named.
const TEST_TARGETS: [&str; 3] = ["--lib", "--bins", "--tests"];

/// Crates whose unit tests start no server and take seconds.
const QUICK: [&str; 8] = [
    "gossip-stdx",
    "gossip-contracts",
    "gossip-frontier",
    "gossip-coordination",
    "gossip-handoff",
    "gossip-engine",
    "gossip-cli",
    "gossip-mutants",
];

/// One stage of the run.
struct Stage {
    name: &'static str,
    run: fn(&mut Tally) -> Result<(), Failure>,
}

const STAGES: [Stage; 11] = [
    Stage { name: "setup", run: |_| setup::packages_for("test", &Workspace::load()?) },
    Stage { name: "format", run: |_| format() },
    Stage { name: "tidy", run: |_| tidy::check() },
    Stage { name: "clippy", run: |_| clippy() },
    Stage { name: "tests", run: tests },
    Stage { name: "tests in release", run: release_tests },
    Stage { name: "mutants", run: |_| mutants::check_short() },
    Stage { name: "documentation tests", run: documentation_tests },
    Stage { name: "documentation", run: |_| documentation() },
    Stage { name: "specification", run: tla::check_short },
    Stage { name: "licences, bans, sources", run: |_| deny::check_if_installed() },
];

/// The stages of `--quick`.
const QUICK_STAGES: [Stage; 3] = [
    Stage { name: "format", run: |_| format() },
    Stage { name: "tidy", run: |_| tidy::check() },
    Stage { name: "unit tests", run: quick_tests },
];

/// Runs every stage and closes with the number of tests.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let stages: &[Stage] = match arguments {
        [] => &STAGES,
        [quick] if quick == "--quick" => &QUICK_STAGES,
        _ => {
            let why = "its only argument is --quick; for one test use `cargo test -p CRATE NAME`";
            return Err(Failure::usage("test", why, "[--quick]"));
        }
    };
    let mut tally = Tally::default();
    let result = run_stages(stages, &mut tally);
    println!("{tally}");
    Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A stage that fails is reported here, so that nothing is printed after the tally.
fn run_stages(stages: &[Stage], tally: &mut Tally) -> Result<(), Failure> {
    for stage in stages {
        eprintln!("== {}", stage.name);
        let started = Instant::now();
        (stage.run)(tally).inspect_err(|failure| {
            tally.add_failed_stage();
            eprintln!("{failure}");
            eprintln!("== stopped: the stage `{}` failed", stage.name);
        })?;
        eprintln!("== {} took {:.0} s", stage.name, started.elapsed().as_secs_f64());
    }
    Ok(())
}

/// The product, and the fuzz targets, which are a workspace of their own.
fn format() -> Result<(), Failure> {
    let root = Workspace::load()?.root;
    for manifest in ["Cargo.toml", "verify/fuzz/Cargo.toml"] {
        let mut command = process::cargo();
        command.current_dir(&root);
        command.args(["fmt", "--all", "--check", "--manifest-path", manifest]);
        let next = format!("cargo fmt --all --manifest-path {manifest}");
        process::run(&mut command, &next)?;
    }
    Ok(())
}

fn clippy() -> Result<(), Failure> {
    let mut command = process::cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--all-features"]);
    command.args(["--", "-D", "warnings"]);
    process::run(&mut command, "fix the warnings that clippy reported above")
}

/// Unit and integration tests. The tests of `gossip-trials` run the `gossip` binary. Cargo builds
/// it for the integration tests of `gossip-cli`, and builds everything before the first test runs.
fn tests(tally: &mut Tally) -> Result<(), Failure> {
    // A test runs the examples for users as programs.
    let mut examples = process::cargo();
    examples.args(["build", "--package", "gossip-engine", "--examples"]);
    process::run(&mut examples, "fix the errors that rustc reported above")?;
    let mut arguments = vec!["--workspace", "--all-features"];
    arguments.extend(TEST_TARGETS);
    test_programs::run(&arguments, tally)
}

/// Unit tests of the crates in [`QUICK`].
fn quick_tests(tally: &mut Tally) -> Result<(), Failure> {
    let mut arguments = vec!["--lib", "--bins"];
    arguments.extend(QUICK.iter().flat_map(|package| ["--package", package]));
    test_programs::run(&arguments, tally)
}

/// The tests of [`RELEASE_TESTED`] once more, as it is used, and [`DETERMINISM`].
fn release_tests(tally: &mut Tally) -> Result<(), Failure> {
    let mut command = cargo_test();
    command.args(RELEASE_PROFILE).args(["--package", RELEASE_TESTED]);
    counted(command.args(TEST_TARGETS), tally)?;
    counted(cargo_test().args(RELEASE_PROFILE).args(DETERMINISM), tally)
}

fn documentation_tests(tally: &mut Tally) -> Result<(), Failure> {
    counted(cargo_test().args(["--workspace", "--doc"]), tally)
}

fn cargo_test() -> Command {
    let mut command = process::cargo();
    command.args(["test", "--all-features", "--no-fail-fast"]);
    command
}

fn counted(command: &mut Command, tally: &mut Tally) -> Result<(), Failure> {
    let status = process::stream(command, Pipe::Stdout, &mut |line| tally.add_line(line))?;
    process::expect_success(command, status, "cargo test -p CRATE NAME, for a test named above")
}

fn documentation() -> Result<(), Failure> {
    let mut command = process::cargo();
    command.args(["doc", "--workspace", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    process::run(&mut command, "fix the warnings that rustdoc reported above")
}
