//! `cargo xtask handoff`: handoffs between real processes, the long form.
//!
//! The tests of `gossip-trials` run the same program for a few moves. This runs it on the
//! disk that holds the target directory and on an etcd that it starts, and writes the figures
//! between two marks in `docs/reliability.md`. It is an optimized build: eight workers and their
//! threads share the cores of one machine, and the duration of a handoff is measured.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::numbers::grouped_in;
use crate::process;
use crate::saved::{self, Made};
use crate::workspace::Workspace;

/// Default number of handoffs of each campaign.
const MOVES: &str = "2000";
/// Handoffs per killed process, in the campaign with kills.
const MOVES_PER_KILL: u64 = 20;
/// Workers of the rolling restart, as the specification requires; restarts of each worker, enough
/// gaps for a percentile; and keys of each shard, enough for the whole trial.
const RESTART: [&str; 3] = ["8", "4", "16000"];
/// The default seed; the documented figures use it.
const SEED: &str = "20261115";
/// The supported stores.
const STORES: [&str; 2] = ["sqlite", "etcd"];
/// The head of the table; a trial ends with a row of it, without the store.
const HEAD: &str = "| store | trial | keys redone by a move, lost | keys redone after takeovers | \
    gap, p50 and p99 | in median commits | takeover, p50 and p99 | \
    one synced commit, p50 and p99 | 20 synced commits in a row, p50 and p99 |\n\
    |---|---|---|---:|---|---|---|---|---|\n";

const USAGE: &str = "[--moves N] [--store sqlite|etcd] [--save]";

pub(crate) fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let order = parse(arguments)?;
    let made = Made::now("handoff", arguments)?.remarking("Optimized build.");
    let workspace = Workspace::load()?;
    let directory = workspace.target.join("handoff-trials");
    let kills = (order.moves.parse::<u64>().unwrap_or(0) / MOVES_PER_KILL).to_string();
    let mut table = String::from(HEAD);
    for store in STORES.iter().filter(|store| order.store.is_none_or(|only| only == **store)) {
        let [workers, rounds, keys] = RESTART;
        let trials: [(&str, Vec<&str>); 3] = [
            ("moves", vec!["moves", order.moves, "0", SEED]),
            ("moves and kills", vec!["moves", order.moves, &kills, SEED]),
            ("rolling restart", vec!["restart", workers, rounds, keys, SEED]),
        ];
        for (name, words) in trials {
            let output = trial(store, &directory.join(store).join(name.replace(' ', "-")), &words)?;
            println!("{store}, {name}:\n{output}");
            let row = output.trim().lines().next_back().unwrap_or_default();
            table.push_str(&format!("| {store} {row}\n"));
        }
    }
    if order.saves {
        saved::HANDOFF.save(&grouped_in(&table), &made)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The parsed command line.
struct Order<'a> {
    moves: &'a str,
    store: Option<&'a str>,
    saves: bool,
}

fn parse(arguments: &[String]) -> Result<Order<'_>, Failure> {
    let mut order = Order { moves: MOVES, store: None, saves: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = || words.clone().next().map(String::as_str);
        match (word.as_str(), value()) {
            ("--save", _) => order.saves = true,
            ("--moves", Some(number)) if number.parse::<u64>().is_ok() => {
                order.moves = number;
                words.next();
            }
            ("--store", Some(store)) if STORES.contains(&store) => {
                order.store = Some(store);
                words.next();
            }
            _ => {
                let why = format!("`{word}` is not a valid argument");
                return Err(Failure::usage("handoff", why, USAGE));
            }
        }
    }
    Ok(order)
}

/// Runs one trial in its own directory. The files of a failed one are kept for inspection.
fn trial(store: &str, directory: &Path, words: &[&str]) -> Result<String, Failure> {
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(|error| {
            let what = format!("{} was not removed", directory.display());
            Failure::new(what, error.to_string(), "remove it by hand")
        })?;
    }
    fs::create_dir_all(directory).map_err(|error| {
        let what = format!("{} was not created", directory.display());
        Failure::new(what, error.to_string(), "check the disk")
    })?;
    let (name, rest) = (words[0], &words[1..]);
    let mut command = command();
    match store {
        "etcd" => command.args(["etcd", name]),
        _ => command.arg(name).arg(format!("sqlite:{}", directory.join("trial.db").display())),
    };
    command.arg(directory.join("journals")).args(rest);
    process::capture(&mut command, &format!("inspect {}", directory.display()))
}

fn command() -> Command {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "--package", "gossip-trials"]);
    command.args(["--bin", "handoff-trials", "--"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let order = parse(&words).ok()?;
            Some(format!("{} {:?} {}", order.moves, order.store, order.saves))
        };
        assert_eq!(parsed(&[]), Some(format!("{MOVES} None false")));
        let all = ["--store", "etcd", "--save", "--moves", "5"];
        assert_eq!(parsed(&all), Some("5 Some(\"etcd\") true".to_owned()));
        for bad in [&["--moves"][..], &["--moves", "many"], &["--store", "disk"], &["5"]] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }
}
