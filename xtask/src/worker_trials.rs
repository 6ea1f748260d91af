//! `cargo xtask kill-worker`, `fleet`, `poison`, `scan-trial`, `soak` and `terminal`: campaigns
//! with workers and their children.
//!
//! The tests of `gossip-trials` run short forms of the same programs. These print the figures of
//! `docs/reliability.md`, and `--save` writes them there. They are debug builds, so that assertions
//! are checked too.

use std::path::Path;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Block, Made};
use crate::setup;
use crate::workspace::Workspace;

/// A program and its numeric arguments, in order.
struct Trial {
    /// The name of the command, and of the program of `gossip-trials`.
    command: &'static str,
    /// Words before the numbers.
    words: &'static [&'static str],
    /// Name and default value. The documented figures use the default seeds.
    numbers: &'static [(&'static str, &'static str)],
    /// Values of the last number to try, if it is not given.
    each: &'static [&'static str],
    /// The head of its table; its output ends with a row of it.
    table: &'static str,
    block: Block,
    usage: &'static str,
}

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Order<'a> {
    /// The numbers of each run, in the order of the program's arguments.
    runs: Vec<Vec<&'a str>>,
    saves: bool,
}

/// The number of kills that the specification requires.
const KILL_WORKER: Trial = Trial {
    command: "kill-worker",
    words: &[],
    numbers: &[("--kills", "1000"), ("--seed", "20261115")],
    each: &[],
    table: "| kills | jobs completed | keys redone | most of one grant of a shard | time |\n\
            |---:|---:|---:|---:|---:|\n",
    block: saved::KILL_WORKER,
    usage: "[--kills N] [--seed N] [--save]",
};

const FLEET: Trial = Trial {
    command: "fleet",
    words: &["trial"],
    numbers: &[("--keys", "50000")],
    each: &[],
    table: "| keys | shards asked back | redone after kills, sleep, leases that ran out | most \
            of one grant | shards continued after the drain | late writes refused | time |\n\
            |---:|---:|---|---:|---:|---:|---:|\n",
    block: saved::FLEET,
    usage: "[--keys N] [--save]",
};

/// With the number of keys that the specification requires, with one thread and with several, which
/// share their crashes.
const POISON: Trial = Trial {
    command: "poison",
    words: &[],
    numbers: &[("--keys", "100000"), ("--killers", "8"), ("--seed", "20261115"), ("--jobs", "1")],
    each: &["1", "4"],
    table: "| keys | killers | threads | crashes | allowed, k · (log₂ n + 8) | keys parked | \
            keys done | time |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    block: saved::POISON,
    usage: "[--keys N] [--killers N] [--seed N] [--jobs N] [--save]",
};

/// The numbers that the specification requires.
const SCAN: Trial = Trial {
    command: "scan-trial",
    words: &[],
    numbers: &[
        ("--files", "100000"),
        ("--secrets", "1000"),
        ("--kills", "20"),
        ("--seed", "20261118"),
    ],
    each: &[],
    table: "| files | secrets planted | result | findings | kills | scans with kills, all with the \
            same report | time |\n|---:|---:|---|---:|---:|---:|---:|\n",
    block: saved::SCAN_TRIAL,
    usage: "[--files N] [--secrets N] [--kills N] [--seed N] [--save]",
};

/// The time and the number of tenants that we require.
const SOAK: Trial = Trial {
    command: "soak",
    words: &[],
    numbers: &[("--seconds", "7200"), ("--tenants", "1000")],
    each: &[],
    table: "| time | work | highest values of the first and of the last third |\n|---|---|---|\n",
    block: saved::SOAK,
    usage: "[--seconds N] [--tenants N] [--save]",
};

pub(crate) fn kill_worker(arguments: &[String]) -> Result<ExitCode, Failure> {
    run(&KILL_WORKER, arguments)
}

pub(crate) fn fleet(arguments: &[String]) -> Result<ExitCode, Failure> {
    run(&FLEET, arguments)
}

pub(crate) fn poison(arguments: &[String]) -> Result<ExitCode, Failure> {
    run(&POISON, arguments)
}

pub(crate) fn scan(arguments: &[String]) -> Result<ExitCode, Failure> {
    run(&SCAN, arguments)
}

pub(crate) fn soak(arguments: &[String]) -> Result<ExitCode, Failure> {
    run(&SOAK, arguments)
}

fn run(trial: &Trial, arguments: &[String]) -> Result<ExitCode, Failure> {
    let order = trial.parse(arguments)?;
    let made = Made::now(trial.command, arguments)?.remarking("Unoptimised build.");
    let workspace = Workspace::load()?;
    setup::packages_for(trial.command, &workspace)?;
    let directory = workspace.target.join(format!("{}-trial", trial.command));
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--package", "gossip-cli", "--bin", "gossip"]);
    process::run(&mut build, "fix the errors that rustc printed above")?;
    let mut rows = String::new();
    for numbers in &order.runs {
        rows.push_str(&trial.once(numbers, &directory)?);
    }
    if order.saves {
        trial.block.save(&grouped_in(&format!("{}{rows}", trial.table)), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Trial {
    /// Runs the program, shows its output, and returns its row of the table.
    fn once(&self, numbers: &[&str], directory: &Path) -> Result<String, Failure> {
        let mut program = process::cargo();
        program.args(["run", "--quiet", "--package", "gossip-trials", "--bin", self.command]);
        program.arg("--").args(self.words).args(numbers).arg(directory);
        let next = format!("inspect {}, then run the same command again", directory.display());
        let output = process::show(&mut program, &next)?;
        let row = output.lines().rfind(|line| line.starts_with('|')).unwrap_or_default();
        Ok(format!("{row}\n"))
    }

    fn parse<'a>(&self, arguments: &'a [String]) -> Result<Order<'a>, Failure> {
        let mut numbers: Vec<&str> = self.numbers.iter().map(|(_, number)| *number).collect();
        let (mut saves, mut is_given, mut words) = (false, false, arguments.iter());
        while let Some(word) = words.next() {
            let place = self.numbers.iter().position(|(known, _)| word == known);
            match place.zip(words.clone().next().filter(|number| is_number(number))) {
                Some((place, number)) => {
                    numbers[place] = number;
                    is_given |= place + 1 == numbers.len();
                    words.next();
                }
                None if word == "--save" => saves = true,
                None => {
                    let why = format!("`{word}` is not a valid argument");
                    return Err(Failure::usage(self.command, why, self.usage));
                }
            }
        }
        let mut runs = vec![numbers.clone()];
        if let (false, Some((_, rest))) = (is_given || self.each.is_empty(), numbers.split_last()) {
            runs = self.each.iter().map(|last| [rest, &[*last]].concat()).collect();
        }
        Ok(Order { runs, saves })
    }
}

/// Spawns, Ctrl-C and Ctrl-Z of `terminal`, as many as are required.
const TERMINAL: [&str; 3] = ["8000", "300", "200"];

/// Presses the keys of a terminal while children are started. It has no table.
pub(crate) fn terminal(arguments: &[String]) -> Result<ExitCode, Failure> {
    let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let numbers = match given.len() {
        0 => &TERMINAL[..],
        3 if given.iter().all(|word| is_number(word)) => &given,
        _ => return Err(Failure::usage("terminal", "it takes three numbers", TERMINAL_USAGE)),
    };
    let mut program = process::cargo();
    program.args(["run", "--quiet", "--package", "gossip-trials", "--bin", "terminal", "--"]);
    process::run(program.args(numbers), "run the same command again, and read its output")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) const TERMINAL_USAGE: &str = "[SPAWNS INTERRUPTS STOPS]";

/// Not zero: a campaign without kills or keys shows nothing.
fn is_number(word: &str) -> bool {
    word.parse::<u64>().is_ok_and(|number| number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(trial: &Trial, words: &[&str]) -> Option<(String, bool)> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let order = trial.parse(&words).ok()?;
        let runs: Vec<_> = order.runs.iter().map(|numbers| numbers.join(" ")).collect();
        Some((runs.join(", "), order.saves))
    }

    #[test]
    fn arguments_are_checked() {
        let expected = |runs: &str, saves: bool| Some((runs.to_owned(), saves));
        assert_eq!(parsed(&KILL_WORKER, &[]), expected("1000 20261115", false));
        let turned = ["--seed", "7", "--kills", "5"];
        assert_eq!(parsed(&KILL_WORKER, &turned), expected("5 7", false));
        let bad = [&["--kills"][..], &["--kills", "many"], &["5"], &["--seed", "0"], &["--x", "1"]];
        for bad in bad {
            assert_eq!(parsed(&KILL_WORKER, bad), None, "{bad:?}");
        }
        assert_eq!(parsed(&KILL_WORKER, &["--save"]), expected("1000 20261115", true));
        assert_eq!(parsed(&FLEET, &["--save", "--keys", "9"]), expected("9", true));
    }

    #[test]
    fn poison_is_tried_with_one_thread_and_with_several() {
        let both = "100000 8 20261115 1, 100000 8 20261115 4";
        assert_eq!(parsed(&POISON, &[]).unwrap().0, both);
        assert_eq!(parsed(&POISON, &["--jobs", "4", "--keys", "9"]).unwrap().0, "9 8 20261115 4");
    }
}
