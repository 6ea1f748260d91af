//! `cargo xtask mutation`: change the code in many small ways and see whether a test notices.
//!
//! Arguments are passed on: `-p CRATE` and `-f FILE` keep it to what one is working on.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;
use crate::setup;
use crate::workspace::Workspace;

/// Mutants tested at a time. Each of them compiles on all cores, so more gain little.
const JOBS: &str = "2";

/// Seconds after which a mutant counts as an endless loop, and so as noticed.
const TIMEOUT_SECONDS: &str = "20";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    setup::packages_for("mutation", &Workspace::load()?)?;
    setup::cargo_tool("cargo-mutants")?;
    let mut command = process::cargo();
    // Tidy asks git for the list of files, so the copies that are mutated need their `.git`.
    command.args(["mutants", "--copy-vcs", "true"]);
    command.args(["--jobs", JOBS, "--timeout", TIMEOUT_SECONDS]).args(arguments);
    process::run(&mut command, "write a test for each mutant listed as MISSED above")?;
    Ok(ExitCode::SUCCESS)
}
