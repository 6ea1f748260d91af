//! `cargo xtask sim`: many simulated worlds, with everything that goes wrong in them.
//!
//! The simulator is a program of gossip-coordination; an optimized build plays far more worlds.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let mut command = process::cargo();
    command.args(["run", "--release", "--package", "gossip-coordination"]);
    command.args(["--features", "sim", "--example", "simulate", "--"]);
    command.args(arguments);
    process::run(&mut command, "read the trace above: its last line broke the rule")?;
    Ok(ExitCode::SUCCESS)
}
