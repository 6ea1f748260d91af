//! `cargo xtask coverage`: shows the lines that no test reaches, with cargo-llvm-cov.
//!
//! Prints a table by default; `--html` and any other arguments of cargo-llvm-cov are passed on.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::process;
use crate::setup;
use crate::workspace::Workspace;

const TOOLCHAIN: &str = "stable";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    setup::packages_for("coverage", &Workspace::load()?)?;
    setup::component(TOOLCHAIN, "llvm-tools")?;
    setup::cargo_tool("cargo-llvm-cov")?;
    let mut command = process::cargo_of(TOOLCHAIN);
    command.args(["llvm-cov", "--workspace", "--all-features"]).args(arguments);
    process::run(&mut command, "make `cargo xtask test` pass first")?;
    Ok(ExitCode::SUCCESS)
}
