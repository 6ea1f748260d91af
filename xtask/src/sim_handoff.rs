//! `cargo xtask sim-handoff`: random schedules of planned moves, optimized.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-handoff"]);
    command.args(["--features", "sim", "--example", "sim_handoff", "--"]).args(arguments);
    process::run(&mut command, "a line that is BROKEN tells how to play its schedule again")?;
    Ok(ExitCode::SUCCESS)
}
