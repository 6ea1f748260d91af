//! `cargo xtask check-handoff`: the exhaustive search of planned moves, optimized.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-handoff"]);
    command.args(["--features", "model", "--example", "check_handoff", "--"]).args(arguments);
    process::run(&mut command, "the row that is BROKEN tells the shortest way to it")?;
    Ok(ExitCode::SUCCESS)
}
