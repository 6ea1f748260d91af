//! `cargo xtask check-model`: exhaustive search of small configurations of the kernel.
//!
//! The search is an example of gossip-sim; an optimized build makes it twenty times faster.
//! `--save` writes its three tables into `docs/reliability-model.md`; they are of every world, so
//! it goes with nothing else.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Block, Made};

const USAGE: &str = "[--config NAME] [--max-states N] [--short] | --save";

/// The titles of the printed tables, and their blocks.
const TABLES: [(&str, Block); 3] = [
    ("States", saved::MODEL_STATES),
    ("Outcomes", saved::MODEL_PAIRS),
    ("Outcomes that cannot be met", saved::MODEL_UNREACHABLE),
];

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = arguments == ["--save"];
    if !saves && arguments.iter().any(|word| word == "--save") {
        return Err(Failure::usage("check-model", "only complete tables are saved", USAGE));
    }
    let made = Made::now("check-model", arguments)?;
    let mut command = process::cargo();
    command.args(["run", "--release", "--package", "gossip-sim"]);
    command.args(["--example", "check_model", "--"]);
    command.args(arguments.iter().filter(|_| !saves));
    let output = process::show(&mut command, "read the trace above: its last line broke the rule")?;
    for (title, block) in TABLES.iter().filter(|_| saves) {
        block.save(&grouped_in(saved::section(&output, title)?), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}
