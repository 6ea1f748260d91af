//! `cargo xtask sim-worker`: worlds of the worker's own loop with faults, optimized.
//!
//! A campaign prints what happened; `--save` writes that between two marks in
//! `docs/reliability.md`. `--bugs` compiles the switches of planted bugs in, which builds
//! everything anew, and looks for each of them.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};

const USAGE: &str = "[--seeds N] [--save] | --seed SEED [--bug NAME] | --bugs [--save]";
/// The switches are compiled in by this, and by nothing else.
const SWITCHES: &str = "--cfg planted_bugs";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = arguments.last().is_some_and(|word| word == "--save");
    let words = &arguments[..arguments.len() - usize::from(saves)];
    let block = match words.first().map(String::as_str) {
        None | Some("--seeds") => saved::SIM_WORKER,
        Some("--bugs") => saved::SIM_WORKER_BUGS,
        // Of which nothing is saved.
        Some("--seed") if !saves => saved::SIM_WORKER,
        Some(_) => return Err(Failure::usage("sim-worker", "it is not understood", USAGE)),
    };
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-sim-worker"]);
    command.args(["--bin", "sim-worker", "--"]).args(words);
    if words.iter().any(|word| word.starts_with("--bug")) {
        command.env("RUSTFLAGS", SWITCHES);
    }
    let made = Made::now("sim-worker", arguments)?;
    let table = process::show(&mut command, "a line that is BROKEN tells how to play it again")?;
    if saves {
        block.save(&grouped_in(&table), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}
