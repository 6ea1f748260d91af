//! `cargo xtask sim`: runs many simulated worlds with faults.
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

/// The next step after a failure.
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
            let output = process::show(simulate("campaign").args(&words), NEXT)?;
            if saves {
                saved::SIM_RATE.save(saved::section(&output, "Figures")?, &made)?;
                save_tables(&output, &made)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether the arguments select default worlds, in any number.
fn is_ordinary(words: &[String]) -> bool {
    words.chunks(2).all(|pair| matches!(pair[0].as_str(), "--seeds" | "--ops"))
}

fn simulate(profile: &str) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--profile", profile, "--package", "gossip-sim"]);
    command.args(["--bin", "simulate", "--"]);
    command
}

fn save_tables(output: &str, made: &Made) -> Result<(), Failure> {
    saved::SIM_FAULTS.save(saved::section(output, "Faults")?, made)?;
    saved::SIM_OUTCOMES.save(saved::section(output, "Outcomes")?, made)
}

/// Runs pairs of worlds. `--seed` selects another first pair, to repeat one.
fn pairs(arguments: &[String], words: &[String], saves: bool) -> Result<(), Failure> {
    if saves && words.iter().any(|word| word == "--seed") {
        let why = "figures of pairs with another seed are not saved";
        return Err(Failure::usage("sim", why, "--pairs N [--threads N] --save"));
    }
    let made = Made::now("sim", arguments)?;
    let output = process::show(simulate("campaign").arg("--pairs").args(words), NEXT)?;
    if saves { saved::SIM_PAIRS.save(saved::section(&output, "Pairs")?, &made) } else { Ok(()) }
}

/// Runs the remaining worlds of a campaign. Its progress file is in the target directory, so that
/// it is not committed; the figures belong to the commit in the file and to the day of its last
/// change.
fn campaign(arguments: &[String], words: &[String], saves: bool) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let named = words.iter().skip_while(|word| *word != "--progress").nth(1);
    let usual = || workspace.target.join("sim-campaign.progress");
    let file = named.map_or_else(usual, PathBuf::from).display().to_string();
    let mut command = simulate("campaign");
    command.args(["--campaign", "--commit", &saved::commit()?, "--progress", &file]).args(words);
    let output = process::show(&mut command, NEXT)?;
    if saves {
        let commit = commit_of_progress(&fs::read_to_string(&file).unwrap_or_default())?;
        let made = Made::when_written(&file, &commit, "sim", arguments)?;
        let made = made.remarking("Time is that of one processor.");
        saved::SIM_CAMPAIGN.save(saved::section(&output, "Figures")?, &made)?;
        save_tables(&output, &made)?;
    }
    Ok(())
}

/// Returns the commit at the start of a progress file.
fn commit_of_progress(progress: &str) -> Result<String, Failure> {
    let mut words = progress.split_whitespace().skip_while(|word| *word != "commit").skip(1);
    words.next().map(str::to_owned).ok_or_else(|| {
        let why = "the progress file does not name its commit";
        Failure::new("nothing was saved", why, "check the progress file")
    })
}

/// Checks that the same seeds produce the same traces in every build profile.
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
        let why = "a simulated world depends on the build profile";
        return Err(Failure::new("the traces differ", why, "compare single seeds with `--trace`"));
    }
    if saves { saved::SIM_SAME.save(&table, &made) } else { Ok(()) }
}

/// Returns the trace hash in the report.
fn trace_hash(report: &str) -> String {
    let line = report.lines().find(|line| line.starts_with("| trace hash |"));
    line.and_then(|line| line.split('|').nth(2)).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_belongs_to_the_commit_in_its_progress_file() {
        let first = "commit 0123456789ab-changed build 01 seeds 1..9 operations 5 chunk 3\n0 1 2\n";
        assert_eq!(commit_of_progress(first).unwrap(), "0123456789ab-changed");
        assert!(commit_of_progress("").is_err());
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
