//! `cargo xtask kill-worker`, `fleet` and `poison`: the long forms of tests of the command line.
//!
//! The tests of `gossip-cli` run the same programs, its examples, for a short while. These print
//! the figures of `docs/reliability.md`. They are debug builds, whose assertions look as well.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::{process, setup};

/// A program, and the numbers that it takes, in their order.
struct Trial {
    command: &'static str,
    example: &'static str,
    /// Words before the numbers.
    words: &'static [&'static str],
    /// Name and value, if it is not given. The seeds are those whose figures are written down.
    numbers: &'static [(&'static str, &'static str)],
    usage: &'static str,
}

/// As many kills as the specification asks for.
const KILL_WORKER: Trial = Trial {
    command: "kill-worker",
    example: "kill_worker",
    words: &[],
    numbers: &[("--kills", "1000"), ("--seed", "20261115")],
    usage: "[--kills N] [--seed N]",
};

const FLEET: Trial = Trial {
    command: "fleet",
    example: "fleet",
    words: &["trial"],
    numbers: &[("--keys", "50000")],
    usage: "[--keys N]",
};

/// Among as many keys as the specification asks for.
const POISON: Trial = Trial {
    command: "poison",
    example: "poison",
    words: &[],
    numbers: &[("--keys", "100000"), ("--killers", "8"), ("--seed", "20261115")],
    usage: "[--keys N] [--killers N] [--seed N]",
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
    let numbers = trial.parse(arguments)?;
    let workspace = Workspace::load()?;
    setup::packages_for(trial.command, &workspace)?;
    let directory = workspace.target.join(format!("{}-trial", trial.command));
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--package", "gossip-cli", "--bins", "--examples"]);
    process::run(&mut build, "mend the build")?;
    let mut program = process::cargo();
    program.args(["run", "--quiet", "--package", "gossip-cli", "--example", trial.example, "--"]);
    program.args(trial.words).args(&numbers).arg(&directory);
    let next = format!("look at {}, then the same again", directory.display());
    process::run(&mut program, &next)?;
    Ok(ExitCode::SUCCESS)
}

impl Trial {
    /// The numbers, in the order in which the program takes them.
    fn parse<'a>(&self, arguments: &'a [String]) -> Result<Vec<&'a str>, Failure> {
        let mut numbers: Vec<&str> = self.numbers.iter().map(|(_, number)| *number).collect();
        for pair in arguments.chunks(2) {
            let place = |name: &String| self.numbers.iter().position(|(known, _)| name == known);
            match pair {
                [name, number] if is_number(number) && place(name).is_some() => {
                    let place = place(name).expect("it was just found");
                    numbers[place] = number;
                }
                _ => {
                    let why = format!("`{}` is not understood", pair.join(" "));
                    return Err(Failure::usage(self.command, why, self.usage));
                }
            }
        }
        Ok(numbers)
    }
}

/// Not zero: dice would stand still.
fn is_number(word: &str) -> bool {
    word.parse::<u64>().is_ok_and(|number| number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            KILL_WORKER.parse(&words).map(|numbers| numbers.join(" ")).ok()
        };
        assert_eq!(parsed(&[]), Some("1000 20261115".to_owned()));
        assert_eq!(parsed(&["--seed", "7", "--kills", "5"]), Some("5 7".to_owned()));
        for bad in [&["--kills"][..], &["--kills", "many"], &["5"], &["--seed", "0"], &["--x", "1"]]
        {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }
}
