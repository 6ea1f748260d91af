//! `cargo xtask sim`: many simulated worlds, with everything that goes wrong in them.
//!
//! The simulator is a program of gossip-sim, in the fastest build there is.
//! `--campaign` plays very many worlds and can be stopped and started again at will; one that is
//! complete only sums up what it came to. `--same` plays some worlds in a debug build and in the
//! fast one, and compares their traces. `--pairs` plays worlds with a second tenant and without,
//! and compares what the first was answered. `--save` writes what any of them came to into
//! `docs/reliability-simulation.md`. The tables of faults and outcomes are of the last run that was
//! saved, so the campaign is saved last.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::process;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

/// Worlds whose traces are compared.
const SAME: [&str; 4] = ["--seeds", "40", "--ops", "2000"];

/// What to do about a bad end.
const NEXT: &str = "read the trace above: its last line broke the rule";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let is_save = |word: &String| word == "--save";
    let saves = arguments.iter().any(is_save);
    let words: Vec<String> = arguments.iter().filter(|word| !is_save(word)).cloned().collect();
    match words.split_first() {
        Some((first, [])) if first == "--same" => compare(arguments, saves)?,
        Some((first, rest)) if first == "--campaign" => campaign(arguments, rest, saves)?,
        Some((first, rest)) if first == "--pairs" => pairs(arguments, rest, saves)?,
        Some(_) | None if saves && !is_ordinary(&words) => {
            let why = "one world, some faults or mutants are no figures to keep";
            return Err(Failure::usage("sim", why, "[--seeds N] [--ops N] --save"));
        }
        Some(_) | None => {
            let made = Made::now("sim", arguments)?.remarking("Time is that of one processor.");
            let told = process::show(simulate("campaign").args(&words), NEXT)?;
            if saves {
                saved::SIM_RATE.save(saved::section(&told, "Figures")?, &made)?;
                save_tables(&told, &made)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether worlds as they usually are were asked for, however many.
fn is_ordinary(words: &[String]) -> bool {
    words.chunks(2).all(|pair| matches!(pair[0].as_str(), "--seeds" | "--ops"))
}

fn simulate(profile: &str) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--profile", profile, "--package", "gossip-sim"]);
    command.args(["--bin", "simulate", "--"]);
    command
}

fn save_tables(told: &str, made: &Made) -> Result<(), Failure> {
    saved::SIM_FAULTS.save(saved::section(told, "Faults")?, made)?;
    saved::SIM_OUTCOMES.save(saved::section(told, "Outcomes")?, made)
}

/// Plays pairs of worlds. Pairs from another seed on are for whoever looks at one again.
fn pairs(arguments: &[String], words: &[String], saves: bool) -> Result<(), Failure> {
    if saves && words.iter().any(|word| word == "--seed") {
        let why = "pairs of another seed are no figures to keep";
        return Err(Failure::usage("sim", why, "--pairs N [--threads N] --save"));
    }
    let made = Made::now("sim", arguments)?;
    let told = process::show(simulate("campaign").arg("--pairs").args(words), NEXT)?;
    if saves { saved::SIM_PAIRS.save(saved::section(&told, "Pairs")?, &made) } else { Ok(()) }
}

/// Plays what a campaign lacks. Its progress is kept beside what was built, so that nothing of it
/// is committed, and its figures are of the commit and the day that the progress file tells.
fn campaign(arguments: &[String], words: &[String], saves: bool) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let named = words.iter().skip_while(|word| *word != "--progress").nth(1);
    let usual = || workspace.target.join("sim-campaign.progress");
    let file = named.map_or_else(usual, PathBuf::from).display().to_string();
    let mut command = simulate("campaign");
    command.args(["--campaign", "--commit", &saved::commit()?, "--progress", &file]).args(words);
    let told = process::show(&mut command, NEXT)?;
    if saves {
        let commit = played_commit(&fs::read_to_string(&file).unwrap_or_default())?;
        let made = Made::when_written(&file, &commit, "sim", arguments)?;
        let made = made.remarking("Time is that of one processor.");
        saved::SIM_CAMPAIGN.save(saved::section(&told, "Figures")?, &made)?;
        save_tables(&told, &made)?;
    }
    Ok(())
}

/// The commit that a progress file begins with.
fn played_commit(progress: &str) -> Result<String, Failure> {
    let mut words = progress.split_whitespace().skip_while(|word| *word != "commit").skip(1);
    words.next().map(str::to_owned).ok_or_else(|| {
        let why = "the progress file does not say which commit it is of";
        Failure::new("nothing was saved", why, "look at the progress file")
    })
}

/// The same seeds give the same traces, however the simulator was built.
fn compare(arguments: &[String], saves: bool) -> Result<(), Failure> {
    let made = Made::now("sim", arguments)?;
    let [debug, release] = ["dev", "campaign"].map(|profile| {
        let mut command = simulate(profile);
        command.args(SAME);
        process::capture(&mut command, "run the command by hand and read its trace")
    });
    let (debug, release) = (trace_hash(&debug?), trace_hash(&release?));
    let table = format!(
        "| worlds | build | trace hash |\n|---|---|---|\n\
         | `{words}` | debug | `{debug}` |\n| `{words}` | optimized | `{release}` |\n",
        words = SAME.join(" ")
    );
    println!("{table}");
    if debug != release || debug.is_empty() {
        let why = "something in a world depends on how it was built";
        return Err(Failure::new("the traces differ", why, "compare single seeds with `--trace`"));
    }
    if saves { saved::SIM_SAME.save(&table, &made) } else { Ok(()) }
}

/// What the report says.
fn trace_hash(report: &str) -> String {
    let line = report.lines().find(|line| line.starts_with("| trace hash |"));
    line.and_then(|line| line.split('|').nth(2)).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_is_of_the_commit_that_its_progress_tells() {
        let first = "commit 0123456789ab-changed build 01 seeds 1..9 operations 5 chunk 3\n0 1 2\n";
        assert_eq!(played_commit(first).unwrap(), "0123456789ab-changed");
        assert!(played_commit("").is_err());
    }

    #[test]
    fn only_ordinary_worlds_are_saved() {
        let saved = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            is_ordinary(&words)
        };
        assert!(saved("") && saved("--seeds 300") && saved("--seeds 300 --ops 5"));
        assert!(!saved("--seed 3") && !saved("--bugs") && !saved("--seeds 3 --faults none"));
    }

    #[test]
    fn the_trace_hash_is_found_in_a_report() {
        assert_eq!(trace_hash("| worlds | 3 |\n| trace hash | 0123abcd |\n"), "0123abcd");
        assert_eq!(trace_hash("nothing"), "");
    }
}
