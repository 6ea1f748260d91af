//! `cargo xtask sim`: many simulated worlds, with everything that goes wrong in them.
//!
//! The simulator is a program of gossip-coordination, in the fastest build there is.
//! `--same` plays some worlds in a debug build and in that one, and compares their traces.

use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process;

/// Worlds whose traces are compared.
const SAME: [&str; 4] = ["--seeds", "40", "--ops", "2000"];

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    if arguments == ["--same"] {
        return compare();
    }
    let mut command = simulate("campaign");
    command.args(arguments);
    process::run(&mut command, "read the trace above: its last line broke the rule")?;
    Ok(ExitCode::SUCCESS)
}

fn simulate(profile: &str) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--profile", profile, "--package", "gossip-coordination"]);
    command.args(["--features", "sim", "--example", "simulate", "--"]);
    command
}

/// The same seeds give the same traces, however the simulator was built.
fn compare() -> Result<ExitCode, Failure> {
    let [debug, release] = ["dev", "campaign"].map(|profile| {
        let mut command = simulate(profile);
        command.args(SAME);
        process::capture(&mut command, "run the command by hand and read its trace")
    });
    let (debug, release) = (trace_hash(&debug?), trace_hash(&release?));
    println!("trace hash: {debug} (debug), {release} (optimized)");
    if debug == release && !debug.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let why = "something in a world depends on how it was built";
    Err(Failure::new("the traces differ", why, "compare single seeds with `--trace`"))
}

/// What the report says.
fn trace_hash(report: &str) -> String {
    let line = report.lines().find(|line| line.starts_with("| trace hash |"));
    line.and_then(|line| line.split('|').nth(2)).unwrap_or_default().trim().to_owned()
}
