//! `cargo xtask kill-worker`, `fleet` and `poison`: the long forms of tests of the command line.
//!
//! The tests of `gossip-cli` run the same programs, its examples, for a short while. These print
//! the figures of `docs/reliability.md`; with `--save` those of a fleet and of poison are written
//! there. They are debug builds, whose assertions look as well.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process::{self, Pipe};
use crate::workspace::Workspace;
use crate::{saved, setup};

/// A program, and the numbers that it takes, in their order.
struct Trial {
    command: &'static str,
    example: &'static str,
    /// Words before the numbers.
    words: &'static [&'static str],
    /// Name and value, if it is not given. The seeds are those whose figures are written down.
    numbers: &'static [(&'static str, &'static str)],
    /// The last number is tried with each of these, if it is not given.
    each: &'static [&'static str],
    /// The head of its table, if it ends with a row of one.
    table: Option<&'static str>,
    usage: &'static str,
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Order<'a> {
    /// The numbers of each run, in the order in which the program takes them.
    runs: Vec<Vec<&'a str>>,
    saves: bool,
}

/// As many kills as the specification asks for.
const KILL_WORKER: Trial = Trial {
    command: "kill-worker",
    example: "kill_worker",
    words: &[],
    numbers: &[("--kills", "1000"), ("--seed", "20261115")],
    each: &[],
    table: None,
    usage: "[--kills N] [--seed N]",
};

const FLEET: Trial = Trial {
    command: "fleet",
    example: "fleet",
    words: &["trial"],
    numbers: &[("--keys", "50000")],
    each: &[],
    table: Some(
        "| keys | killed, stopped, drained | shards asked back | keys lost | redone after kills, \
         sleep, leases that ran out | most of one grant | redone under a live lease | shards that \
         went on after the drain | late writes | certificate | time |\n\
         |---:|---|---:|---:|---|---:|---:|---:|---|---|---:|\n",
    ),
    usage: "[--keys N] [--save]",
};

/// Among as many keys as the specification asks for, with one thread and with several, which share
/// their crashes.
const POISON: Trial = Trial {
    command: "poison",
    example: "poison",
    words: &[],
    numbers: &[("--keys", "100000"), ("--killers", "8"), ("--seed", "20261115"), ("--jobs", "1")],
    each: &["1", "4"],
    table: Some(
        "| keys | killers | threads | crashes | allowed, k · (log₂ n + 8) | set aside | \
         everything else | time |\n|---:|---:|---:|---:|---:|---|---|---:|\n",
    ),
    usage: "[--keys N] [--killers N] [--seed N] [--jobs N] [--save]",
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

fn run(trial: &Trial, arguments: &[String]) -> Result<ExitCode, Failure> {
    let order = trial.parse(arguments)?;
    let workspace = Workspace::load()?;
    setup::packages_for(trial.command, &workspace)?;
    let directory = workspace.target.join(format!("{}-trial", trial.command));
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--package", "gossip-cli", "--bins", "--examples"]);
    process::run(&mut build, "mend the build")?;
    let mut rows = String::new();
    for numbers in &order.runs {
        rows.push_str(&trial.once(numbers, &directory)?);
    }
    if let Some(head) = trial.table.filter(|_| order.saves) {
        saved::save(trial.command, &format!("{head}{rows}\n{}", made()?))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// When and from what figures were made.
fn made() -> Result<String, Failure> {
    let told = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        let told = process::capture(command.args(words), "look at it");
        told.map(|told| told.trim().to_owned())
    };
    let date = told("date", &["-u", "+%Y-%m-%d"])?;
    let commit = told("git", &["rev-parse", "--short", "HEAD"])?;
    Ok(format!("{date}, commit {commit}, unoptimised build, on two cores."))
}

impl Trial {
    /// Runs it, and shows what it says; its row of the table, if it has one.
    fn once(&self, numbers: &[&str], directory: &Path) -> Result<String, Failure> {
        let mut program = process::cargo();
        program.args(["run", "--quiet", "--package", "gossip-cli", "--example", self.example]);
        program.arg("--").args(self.words).args(numbers).arg(directory);
        let mut row = String::new();
        let status = process::stream(&mut program, Pipe::Stdout, &mut |line| {
            println!("{line}");
            if line.starts_with('|') {
                row = format!("{line}\n");
            }
        })?;
        let next = format!("look at {}, then the same again", directory.display());
        process::expect_success(&program, status, &next)?;
        Ok(row)
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
                None if word == "--save" && self.table.is_some() => saves = true,
                None => {
                    let why = format!("`{word}` is not understood");
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

/// Not zero: dice would stand still.
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
        let told = |runs: &str, saves: bool| Some((runs.to_owned(), saves));
        assert_eq!(parsed(&KILL_WORKER, &[]), told("1000 20261115", false));
        let turned = ["--seed", "7", "--kills", "5"];
        assert_eq!(parsed(&KILL_WORKER, &turned), told("5 7", false));
        let bad = [
            &["--kills"][..],
            &["--kills", "many"],
            &["5"],
            &["--seed", "0"],
            &["--x", "1"],
            &["--save"],
        ];
        for bad in bad {
            assert_eq!(parsed(&KILL_WORKER, bad), None, "{bad:?}");
        }
        assert_eq!(parsed(&FLEET, &["--save", "--keys", "9"]), told("9", true));
    }

    #[test]
    fn poison_is_tried_with_one_thread_and_with_several() {
        let both = "100000 8 20261115 1, 100000 8 20261115 4";
        assert_eq!(parsed(&POISON, &[]).unwrap().0, both);
        assert_eq!(parsed(&POISON, &["--jobs", "4", "--keys", "9"]).unwrap().0, "9 8 20261115 4");
    }
}
