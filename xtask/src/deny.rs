//! `cargo xtask deny`: licences, bans and sources of every dependency, by the rules in deny.toml.
//!
//! Advisories are left out: their database is fetched from the network at every run, and a check
//! that depends on the day is no test of this tree.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;
use crate::setup;

const TOOL: &str = "cargo-deny";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    if !arguments.is_empty() {
        return Err(Failure::usage("deny", "it takes no arguments", ""));
    }
    setup::cargo_tool(TOOL)?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// The stage of `cargo xtask test`: it never installs a tool that takes minutes to build.
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
    process::run(&mut command, "drop the dependency named above, or argue for it in deny.toml")
}
