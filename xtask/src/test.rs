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
use crate::process;
use crate::tally::Tally;
use crate::test_programs::{self, Beside};
use crate::workspace::Workspace;
use crate::{deny, setup, tidy, tla};

/// The one crate whose debug builds behave differently: they overwrite freed bytes, which hides
/// what release builds leave behind. Its tests hold in both.
const RELEASE_TESTED: &str = "gossip-stdx";

/// The test of another crate that must hold in both: the same seed gives the same world. One file,
/// because compiling everything once more takes minutes.
const DETERMINISM: [&str; 4] = ["--package", "gossip-sim", "--test", "determinism"];

/// The crates that a simulated world runs.
const SIMULATED: [&str; 5] =
    ["gossip-stdx", "gossip-contracts", "gossip-coordination", "gossip-conformance", "gossip-sim"];

/// Crates whose unit tests start no server and take seconds.
const QUICK: [&str; 9] = [
    "gossip-stdx",
    "gossip-contracts",
    "gossip-frontier",
    "gossip-coordination",
    "gossip-handoff",
    "gossip-scan",
    "gossip-engine",
    "gossip-cli",
    "gossip-mutants",
];

/// One stage of the run.
struct Stage {
    name: &'static str,
    run: fn(&mut Tally) -> Result<(), Failure>,
}

const STAGES: [Stage; 6] = [
    Stage { name: "setup", run: |_| setup::packages_for("test", &Workspace::load()?) },
    Stage { name: "format", run: |_| format() },
    Stage { name: "tidy", run: |_| tidy::check() },
    Stage { name: "licences and sources", run: deny::stage },
    Stage { name: "tests", run: tests },
    Stage { name: "specification", run: tla::check_short },
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

/// Unit and integration tests, and beside them everything else that compiles the workspace. The
/// tests of `gossip-trials` run the `gossip` binary. Cargo builds it for the integration tests of
/// `gossip-cli`, and builds everything before the first test runs.
fn tests(tally: &mut Tally) -> Result<(), Failure> {
    // Without a list of targets cargo builds the examples too, which a test runs as programs. A
    // build of them alone would compile every dependency with another set of features.
    test_programs::run(&["--workspace", "--all-features"], beside(), tally)
}

/// What runs beside the tests: they wait for servers, clocks and disks half of their time.
fn beside() -> Vec<Beside> {
    let cargo = |name, words: &[&str]| {
        let mut command = process::cargo();
        command.args(words);
        Beside { name, command }
    };
    let clippy =
        ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    let mut documentation =
        cargo("documentation", &["doc", "--workspace", "--no-deps", "--all-features"]);
    documentation.command.env("RUSTDOCFLAGS", "-D warnings");
    let of_documentation = ["test", "--all-features", "--no-fail-fast", "--workspace", "--doc"];
    let [stdx, determinism] = release_tests();
    vec![
        cargo("clippy", &clippy),
        Beside { name: "tests in release: gossip-stdx", command: stdx },
        Beside { name: "tests in release: determinism", command: determinism },
        cargo("mutants", &["xtask", "mutants", "--short"]),
        documentation,
        cargo("documentation tests", &of_documentation),
    ]
}

/// Unit tests of the crates in [`QUICK`].
fn quick_tests(tally: &mut Tally) -> Result<(), Failure> {
    let mut arguments = vec!["--lib", "--bins"];
    arguments.extend(QUICK.iter().flat_map(|package| ["--package", package]));
    test_programs::run(&arguments, Vec::new(), tally)
}

/// The tests of [`RELEASE_TESTED`] once more, as it is used, and [`DETERMINISM`]. Only the crates
/// in question are built without debug assertions. The others are those of the tests above: a
/// profile of its own would compile all dependencies again, which took half of this stage.
fn release_tests() -> [Command; 2] {
    let mut stdx = cargo_test();
    stdx.args(["--package", RELEASE_TESTED, "--lib", "--tests"]);
    stdx.args(profile(RELEASE_TESTED, "debug-assertions=false"));
    let mut determinism = cargo_test();
    determinism.args(DETERMINISM);
    for package in SIMULATED {
        determinism.args(profile(package, "debug-assertions=false"));
        // Another level than in the tests above, so that two builds are compared; and the fastest
        // to compile, because the worlds take less than a second.
        determinism.args(profile(package, "opt-level=0"));
    }
    [stdx, determinism]
}

/// Returns the arguments of cargo that change one setting of a package in the profile of the tests.
fn profile(package: &str, setting: &str) -> [String; 2] {
    ["--config".to_owned(), format!("profile.dev.package.{package}.{setting}")]
}

fn cargo_test() -> Command {
    let mut command = process::cargo();
    command.args(["test", "--all-features", "--no-fail-fast"]);
    command
}
