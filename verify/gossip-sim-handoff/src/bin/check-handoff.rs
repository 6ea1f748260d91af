//! The exhaustive search of a handoff, for `cargo xtask check-handoff`.
//!
//! ```text
//! cargo run --release -p gossip-sim-handoff --bin check-handoff -- [FAULTS CRASHES]
//! ```
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that prints figures")]
#![expect(clippy::disallowed_methods, reason = "a program that takes arguments")]

use std::process::ExitCode;

use gossip_sim_handoff::search::{Budget, Bug, explore};

/// More states than the largest of the worlds below; a search that reaches it reports that.
const STATES_MAX: u64 = 20_000_000;

/// Faults, crashes and renewals of each searched world, small worlds first.
const WORLDS: [(u8, u8, u8); 6] =
    [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 2, 0), (1, 1, 0), (2, 0, 0)];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u8> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let chosen = match numbers[..] {
        [faults, crashes] => vec![(faults, crashes, 0)],
        [] if words.is_empty() => WORLDS.to_vec(),
        _ => {
            println!("usage: check-handoff [FAULTS CRASHES]");
            return ExitCode::from(2);
        }
    };
    let mut is_sound = true;
    println!("## States\n");
    println!(
        "| faults | crashes | renewals | states | of those with a live destination | steps | ends \
         | longest way | result |\n|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    );
    for (faults, crashes, renewals) in chosen {
        is_sound &= search(faults, crashes, renewals);
    }
    println!("\n## Mutants\n\n| bug | description | found as | after |\n|---|---|---|---|");
    for bug in Bug::ALL {
        is_sound &= hunt(bug);
    }
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Searches one world and prints a row.
fn search(faults: u8, crashes: u8, renewals: u8) -> bool {
    let budget = Budget { faults, crashes, renewals, takeovers: 1, ticks: 5 };
    let report = explore(budget, None, STATES_MAX);
    let result = match &report.finding {
        Some(found) => format!("BROKEN: {found:?}"),
        None if report.is_complete => "all states, nothing broken".to_owned(),
        None => "STOPPED: too many states".to_owned(),
    };
    println!(
        "| {faults} | {crashes} | {renewals} | {} | {} | {} | {} | {} | {result} |",
        report.states, report.live, report.steps, report.ends, report.depth
    );
    report.finding.is_none() && report.is_complete
}

/// Searches with a mutant and prints a row; it must be found.
fn hunt(bug: Bug) -> bool {
    let budget = Budget { faults: 0, crashes: 1, renewals: 0, takeovers: 1, ticks: 5 };
    let report = explore(budget, Some(bug), STATES_MAX);
    let (states, what) = (report.states, bug.what());
    match &report.finding {
        Some(found) => {
            let (broken, steps) = (&found.broken, found.way.len());
            println!("| {bug:?} | {what} | {broken:?} | {states} states, {steps} steps |");
        }
        None => println!("| {bug:?} | {what} | NOT FOUND | {states} states |"),
    }
    report.finding.is_some()
}
