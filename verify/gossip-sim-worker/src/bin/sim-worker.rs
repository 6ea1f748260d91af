//! Runs worlds of the worker, for `cargo xtask sim-worker`.
//!
//! ```text
//! cargo run --release -p gossip-sim-worker --bin sim-worker -- \
//!     [--seeds N] [--from SEED] | --seed SEED
//! ```
//! A campaign prints a table of totals and each violation with the command that reproduces it.
//! `--seed` prints the events of one world.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that prints figures")]
#![expect(clippy::disallowed_methods, reason = "a program that takes arguments, and measures")]

use std::process::ExitCode;
use std::time::Instant;

use gossip_sim_worker::sim::{Plan, Totals, run};

/// Default number of worlds of a campaign.
const WORLDS: u64 = 20_000;

/// Maximum number of printed violations.
const TOLD_MAX: u64 = 20;

const USAGE: &str = "usage: sim-worker [--seeds N] [--from SEED] | --seed SEED";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let code = match words[..] {
        [] => Some(campaign(0, WORLDS)),
        ["--seeds", count] => number(count).map(|count| campaign(0, count)),
        ["--seeds", count, "--from", from] => {
            number(count).zip(number(from)).map(|(count, from)| campaign(from, count))
        }
        ["--seed", seed] => number(seed).map(|seed| trace(Plan::of_seed(seed))),
        _ => None,
    };
    code.unwrap_or_else(|| {
        println!("{USAGE}");
        ExitCode::from(2)
    })
}

/// Runs one world and prints its events.
fn trace(plan: Plan) -> ExitCode {
    let outcome = run(Plan { is_traced: true, ..plan });
    outcome.events.iter().for_each(|line| println!("{line}"));
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
        let outcome = run(plan);
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
