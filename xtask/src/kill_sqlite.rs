//! `cargo xtask kill-sqlite`: the long form of the campaigns against the SQLite store.
//!
//! The tests of the crate run the same program for a few cycles. This runs it on the disk that
//! holds the target directory, and prints the figures of `docs/reliability.md`. It is the debug
//! build, whose assertions look as well; SQLite is optimized in it.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// As many as the specification asks for.
const CYCLES: &str = "2000";
/// A campaign without `--seed` is the one whose figures are written down.
const SEED: &str = "20261115";
/// Processes of a race, and leases that each of their threads asks for.
const RACE: [&str; 2] = ["8", "500"];

const USAGE: &str = "[--cycles N] [--seed N]";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let (cycles, seed) = parse(arguments)?;
    let directory = Workspace::load()?.target.join("sqlite-campaign");
    campaign("kill", &directory.join("kill"), &[cycles, seed], seed)?;
    let [processes, operations] = RACE;
    campaign("race", &directory.join("race"), &[processes, operations, seed], seed)?;
    Ok(ExitCode::SUCCESS)
}

/// Cycles and seed.
fn parse(arguments: &[String]) -> Result<(&str, &str), Failure> {
    let (mut cycles, mut seed) = (CYCLES, SEED);
    for pair in arguments.chunks(2) {
        match pair {
            [name, number] if name == "--cycles" && is_number(number) => cycles = number,
            [name, number] if name == "--seed" && is_number(number) => seed = number,
            _ => {
                let why = format!("`{}` is not understood", pair.join(" "));
                return Err(Failure::usage("kill-sqlite", why, USAGE));
            }
        }
    }
    Ok((cycles, seed))
}

fn is_number(word: &str) -> bool {
    word.parse::<u64>().is_ok()
}

/// Runs one campaign in a directory of its own. What a failed one left is there to look at.
fn campaign(name: &str, directory: &Path, rest: &[&str], seed: &str) -> Result<(), Failure> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(|error| {
            let what = format!("{} was not removed", directory.display());
            Failure::new(what, error.to_string(), "remove it by hand")
        })?;
    }
    let next = format!("look at {}, then --seed {seed} again", directory.display());
    process::run(command(name, directory).args(rest), &next)
}

fn command(name: &str, directory: &Path) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", "gossip-coordination-sqlite"]);
    command.args(["--features", "campaign", "--bin", "sqlite-campaign", "--", name]);
    command.arg(directory);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse(&words).map(|(cycles, seed)| format!("{cycles} {seed}")).ok()
        };
        assert_eq!(parsed(&[]), Some(format!("{CYCLES} {SEED}")));
        assert_eq!(parsed(&["--seed", "7", "--cycles", "5"]), Some("5 7".to_owned()));
        for bad in [&["--cycles"][..], &["--cycles", "many"], &["5"], &["--seed", "-1"]] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }
}
