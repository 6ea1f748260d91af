//! `cargo xtask sim-handoff`: random schedules of handoffs, optimized.
//!
//! `--save` writes the tables of a campaign, or of mutants alone, into `docs/reliability.md`.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let words: Vec<&String> = arguments.iter().filter(|word| *word != "--save").collect();
    let made = Made::now("sim-handoff", arguments)?;
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-sim-handoff"]);
    command.args(["--bin", "sim-handoff", "--"]).args(&words);
    let next = "reproduce a BROKEN schedule with the command on its line";
    let output = process::show(&mut command, next)?;
    if words.len() < arguments.len() {
        let section = |title| saved::section(&output, title).map(grouped_in);
        if !words.iter().any(|word| *word == "--bugs") {
            saved::SIM_HANDOFF.save(&section("Schedules")?, &made)?;
        }
        saved::SIM_HANDOFF_BUGS.save(&section("Mutants")?, &made)?;
    }
    Ok(ExitCode::SUCCESS)
}
