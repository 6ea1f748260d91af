//! `cargo xtask deny`: checks licences, bans and sources of every dependency by the rules in
//! deny.toml.
//!
//! Advisories are not checked: their database is downloaded at every run, and a check whose result
//! depends on the day is not a test of this tree.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;
use crate::setup;

const TOOL: &str = "cargo-deny";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    if !arguments.is_empty() {
        return Err(Failure::usage("deny", "no arguments are allowed", ""));
    }
    setup::cargo_tool(TOOL)?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the stage of `cargo xtask test`, which never installs a tool that takes minutes to build.
pub(crate) fn check_if_installed() -> Result<(), Failure> {
    if process::is_installed(TOOL) {
        return check();
    }
    eprintln!("skipped: {TOOL} is not installed; `cargo xtask deny` installs and runs it");
    Ok(())
}

fn check() -> Result<(), Failure> {
    let mut command = process::cargo();
    command.args(["deny", "check", "licenses", "bans", "sources"]);
    process::run(
        &mut command,
        "remove the dependency named above, or allow it in deny.toml with a reason",
    )
}
