//! `cargo xtask makespan` and `cargo xtask bench runtime`: how evenly work is spread, and its cost.
//!
//! Both run a program in a release build and write what it prints between marks of
//! `docs/scheduling.md`. The makespan table is in virtual time and the same on every machine; the
//! costs are measured, so run them on an idle one.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

/// Leaves of the certificate whose verification is timed.
const LEAVES: &str = "1000000";

const USAGE: &str = "[--save]";

/// `cargo xtask makespan [--save]`.
pub(crate) fn makespan(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = parse(arguments)?;
    let made = Made::now("makespan", arguments)?;
    let table = released(&["gossip-sim-worker", "--bin", "makespan"], &[])?;
    println!("{table}");
    if saves {
        saved::MAKESPAN.save(&grouped_in(&table), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `cargo xtask bench runtime [--save]`.
pub(crate) fn costs(saves: bool) -> Result<ExitCode, Failure> {
    let made = Made::now("bench runtime", &["--save".to_owned()])?;
    let directory = Workspace::load()?.target.join("runtime-figures");
    let directory = directory.display().to_string();
    let mut output = released(&["gossip-trials", "--bin", "runtime-figures"], &[&directory])?;
    let rate = ["gossip-scanner-runtime", "--example", "certificate_rate"];
    let certificate = released(&rate, &[LEAVES])?;
    output.push_str(&format!("\n```text\n{certificate}```\n"));
    println!("{output}");
    if saves {
        saved::COSTS.save(&grouped_in(&output), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &[String]) -> Result<bool, Failure> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Ok(false),
        ["--save"] => Ok(true),
        _ => Err(Failure::usage("makespan", "it takes nothing but --save", USAGE)),
    }
}

/// Builds a program of a package for release, runs it, and returns what it prints.
fn released(program: &[&str], words: &[&str]) -> Result<String, Failure> {
    let mut command = process::cargo();
    command.args(["run", "--release", "--quiet", "--package"]).args(program);
    command.arg("--").args(words);
    process::capture(&mut command, "read the output above")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_save_is_accepted() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(matches!(parse(&words(&[])), Ok(false)));
        assert!(matches!(parse(&words(&["--save"])), Ok(true)));
        assert!(parse(&words(&["5"])).is_err());
    }
}
