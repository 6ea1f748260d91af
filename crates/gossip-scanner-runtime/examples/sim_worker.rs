//! Plays worlds of the worker, for `cargo xtask sim-worker`.
//!
//! ```text
//! cargo run --release -p gossip-scanner-runtime --features sim --example sim_worker -- \
//!     [--seeds N] [--from SEED] | --seed SEED
//! ```
//! A campaign prints a table of what happened and each world that was broken, with the command that
//! plays it again. `--seed` tells one world event by event.
#![expect(clippy::print_stdout, reason = "a program that prints figures")]
#![expect(clippy::disallowed_methods, reason = "a program that takes arguments, and measures")]

use std::process::ExitCode;
use std::time::Instant;

use gossip_scanner_runtime::sim::{Plan, Totals, play};

/// Worlds of a campaign, unless it is told otherwise.
const WORLDS: u64 = 20_000;

/// How many broken worlds are told; more say no more.
const TOLD_MAX: u64 = 20;

const USAGE: &str = "usage: sim_worker [--seeds N] [--from SEED] | --seed SEED";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let order = match words[..] {
        [] => Some((0, WORLDS)),
        ["--seeds", count] => number(count).map(|count| (0, count)),
        ["--seeds", count, "--from", from] => number(count).zip(number(from)).map(|(n, m)| (m, n)),
        ["--seed", seed] => {
            return number(seed).map_or_else(refuse, tell);
        }
        _ => None,
    };
    order.map_or_else(refuse, |(from, count)| campaign(from, count))
}

fn refuse() -> ExitCode {
    println!("{USAGE}");
    ExitCode::from(2)
}

/// Plays one world and tells what happened in it.
fn tell(seed: u64) -> ExitCode {
    let plan = Plan { tells: true, ..Plan::of_seed(seed) };
    let outcome = play(plan);
    outcome.story.iter().for_each(|line| println!("{line}"));
    println!("trace {:016x}, {} steps, {} ticks", outcome.trace, outcome.steps, outcome.ticks);
    match outcome.broken {
        Some(violation) => {
            println!("BROKEN {:?}: {}", violation.rule, violation.why);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn campaign(from: u64, count: u64) -> ExitCode {
    let (begun, mut totals, mut broken) = (Instant::now(), Totals::default(), 0);
    for seed in from..from + count {
        let plan = Plan::of_seed(seed);
        let outcome = play(plan);
        if let Some(violation) = &outcome.broken {
            broken += 1;
            if broken <= TOLD_MAX {
                println!("BROKEN {:?}: {}", violation.rule, violation.why);
                println!("       {}", plan.command());
            }
        }
        totals.add(&outcome);
    }
    println!("{}", totals.table(begun.elapsed()));
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
