//! `cargo xtask check-model`: everything that can happen in small worlds, tried on the kernel.
//!
//! The search is a program of gossip-coordination; an optimized build makes it twenty times faster.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let mut command = process::cargo();
    command.args(["run", "--release", "--package", "gossip-coordination"]);
    command.args(["--features", "model", "--example", "check_model", "--"]);
    command.args(arguments);
    process::run(&mut command, "read the trace above: its last line broke the rule")?;
    Ok(ExitCode::SUCCESS)
}
