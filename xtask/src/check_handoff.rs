//! `cargo xtask check-handoff`: the exhaustive search of handoffs, optimized.
//!
//! `--save` writes its tables into `docs/reliability.md`; they cover every configuration, so it
//! allows no other argument.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};

const USAGE: &str = "[FAULTS CRASHES] | --save";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = arguments == ["--save"];
    if !saves && arguments.iter().any(|word| word == "--save") {
        return Err(Failure::usage("check-handoff", "only complete tables are saved", USAGE));
    }
    let made = Made::now("check-handoff", arguments)?;
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-sim-handoff"]);
    command.args(["--bin", "check-handoff", "--"]);
    command.args(arguments.iter().filter(|_| !saves));
    let output = process::show(&mut command, "see the shortest trace in the row that is BROKEN")?;
    if saves {
        let section = |title| saved::section(&output, title).map(grouped_in);
        saved::CHECK_HANDOFF.save(&section("States")?, &made)?;
        saved::CHECK_HANDOFF_BUGS.save(&section("Mutants")?, &made)?;
    }
    Ok(ExitCode::SUCCESS)
}
