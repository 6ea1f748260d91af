//! `cargo xtask kill-sqlite`: the long form of the campaigns against the SQLite store.
//!
//! The tests of `gossip-trials` run the same program for a few cycles. This runs it on the disk
//! that holds the target directory, and prints the figures of `docs/reliability.md`; `--save`
//! writes them there. It is a debug build, so that assertions are checked; SQLite is optimized.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::numbers::{grouped_in, is_number};
use crate::process;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

/// The number that the specification requires.
const CYCLES: &str = "2000";
/// The default seed; the documented figures use it.
const SEED: &str = "20261115";
/// Processes of a race, and leases that each of their threads requests.
const RACE: [&str; 2] = ["8", "500"];

const USAGE: &str = "[--cycles N] [--seed N] [--save]";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let saves = arguments.last().is_some_and(|word| word == "--save");
    let words = &arguments[..arguments.len() - usize::from(saves)];
    let (cycles, seed) = OPTIONS.parse(words)?;
    let made = Made::now("kill-sqlite", arguments)?;
    let directory = Workspace::load()?.target.join("sqlite-campaign");
    let killed = campaign("kill", &directory.join("kill"), &[cycles, seed], seed)?;
    let [processes, operations] = RACE;
    let rest = [processes, operations, seed];
    let raced = campaign("race", &directory.join("race"), &rest, seed)?;
    if saves {
        saved::KILL_SQLITE.save(&table(seed, &killed, &raced), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The options of a campaign: how much of it, and its seed.
pub(crate) struct CampaignOptions {
    pub(crate) command: &'static str,
    pub(crate) usage: &'static str,
    /// The option that says how much, and its default.
    pub(crate) amount: (&'static str, &'static str),
    /// The default seed.
    pub(crate) seed: &'static str,
}

const OPTIONS: CampaignOptions = CampaignOptions {
    command: "kill-sqlite",
    usage: USAGE,
    amount: ("--cycles", CYCLES),
    seed: SEED,
};

impl CampaignOptions {
    /// Returns the amount and the seed.
    pub(crate) fn parse<'a>(&self, arguments: &'a [String]) -> Result<(&'a str, &'a str), Failure> {
        let (mut amount, mut seed) = (self.amount.1, self.seed);
        for pair in arguments.chunks(2) {
            match pair {
                [name, number] if name == self.amount.0 && is_number(number) => amount = number,
                [name, number] if name == "--seed" && is_number(number) => seed = number,
                _ => {
                    let why = format!("`{}` is not a valid argument", pair.join(" "));
                    return Err(Failure::usage(self.command, why, self.usage));
                }
            }
        }
        Ok((amount, seed))
    }
}

/// Returns the table from the summary lines of the two programs.
fn table(seed: &str, killed: &str, raced: &str) -> String {
    let (killed, raced) = (killed.trim(), raced.trim());
    let rows = format!("| killed | {killed} |\n| raced | {raced} |");
    grouped_in(&format!("Seed {seed}.\n\n| processes are | figures |\n|---|---|\n{rows}"))
}

/// Runs one campaign in its own directory and returns its summary. The files of a failed one are
/// kept for inspection.
pub(crate) fn campaign(
    name: &str,
    directory: &Path,
    rest: &[&str],
    seed: &str,
) -> Result<String, Failure> {
    if directory.exists() {
        std::fs::remove_dir_all(directory).map_err(|error| {
            let what = format!("{} was not removed", directory.display());
            Failure::new(what, error.to_string(), "remove it by hand")
        })?;
    }
    let next = format!("inspect {}, then repeat with --seed {seed}", directory.display());
    process::show(command(name, directory).args(rest), &next)
}

fn command(name: &str, directory: &Path) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", "gossip-trials"]);
    command.args(["--bin", "sqlite-campaign", "--", name]).arg(directory);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            OPTIONS.parse(&words).map(|(cycles, seed)| format!("{cycles} {seed}")).ok()
        };
        assert_eq!(parsed(&[]), Some(format!("{CYCLES} {SEED}")));
        assert_eq!(parsed(&["--seed", "7", "--cycles", "5"]), Some("5 7".to_owned()));
        for bad in [&["--cycles"][..], &["--cycles", "many"], &["5"], &["--seed", "-1"]] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_summary_becomes_a_row_with_commas() {
        let table = table("20261115", "2000 cycles: 6120 killed\n", "8 processes, 11676 asked\n");
        let expected = "Seed 20261115.\n\n| processes are | figures |\n|---|---|\n\
                        | killed | 2,000 cycles: 6,120 killed |\n\
                        | raced | 8 processes, 11,676 asked |\n";
        assert_eq!(table, expected);
    }
}
