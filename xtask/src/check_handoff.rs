//! `cargo xtask check-handoff`: the exhaustive search of planned moves, optimized.
//!
//! `--save` writes its tables into `docs/reliability.md`; they are of every world, so it goes with
//! nothing else.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};

const USAGE: &str = "[FAULTS CRASHES] | --save";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = arguments == ["--save"];
    if !saves && arguments.iter().any(|word| word == "--save") {
        return Err(Failure::usage("check-handoff", "only whole tables are saved", USAGE));
    }
    let made = Made::now("check-handoff", arguments)?;
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-sim-handoff"]);
    command.args(["--bin", "check-handoff", "--"]);
    command.args(arguments.iter().filter(|_| !saves));
    let told = process::show(&mut command, "the row that is BROKEN tells the shortest way to it")?;
    if saves {
        let section = |title| saved::section(&told, title).map(grouped_in);
        saved::CHECK_HANDOFF.save(&section("States")?, &made)?;
        saved::CHECK_HANDOFF_BUGS.save(&section("Mutants")?, &made)?;
    }
    Ok(ExitCode::SUCCESS)
}
