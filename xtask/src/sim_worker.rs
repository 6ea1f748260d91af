//! `cargo xtask sim-worker`: simulations of the worker loop with faults, optimized.
//!
//! A campaign prints what happened; `--save` writes that between two marks in
//! `docs/reliability.md`.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};

const USAGE: &str = "[--seeds N] [--save] | --seed SEED";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = arguments.last().is_some_and(|word| word == "--save");
    let words = &arguments[..arguments.len() - usize::from(saves)];
    let is_known = match words.first().map(String::as_str) {
        None | Some("--seeds") => true,
        // One world has no figures to save.
        Some("--seed") => !saves,
        Some(_) => false,
    };
    if !is_known {
        return Err(Failure::usage("sim-worker", "it is not understood", USAGE));
    }
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-sim-worker"]);
    command.args(["--bin", "sim-worker", "--"]).args(words);
    let made = Made::now("sim-worker", arguments)?;
    let table =
        process::show(&mut command, "repeat a run with the command in the line that is BROKEN")?;
    if saves {
        saved::SIM_WORKER.save(&grouped_in(&table), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}
