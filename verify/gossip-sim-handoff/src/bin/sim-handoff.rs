//! Random schedules of handoffs, for `cargo xtask sim-handoff`.
//!
//! ```text
//! cargo run --release -p gossip-sim-handoff --bin sim-handoff -- \
//!     [--schedules N] [--from SEED] [--threads N] | --seed SEED | --bugs
//! ```
//! A campaign prints the number of races of each kind with a handoff and the required minimum, and
//! each violation with the command that reproduces it. `--seed` prints the events of one schedule.
//! Every campaign ends with a search for the mutants.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that prints figures")]
#![expect(clippy::disallowed_methods, reason = "a program that takes arguments, and measures")]

use std::process::ExitCode;
use std::time::Instant;

use gossip_sim_handoff::sim::{Broken, Bug, Faults, Plan, Races, Simulator};

/// Default number of schedules of a campaign.
const SCHEDULES: u64 = 1_000_000;
/// Schedules in which a mutant must be found.
const HUNT_MAX: u64 = 20_000;
/// Maximum number of printed violations.
const TOLD_MAX: usize = 10;
/// Minimum number of schedules for which the floors apply.
const FLOOR_FROM: u64 = 1_000;

const USAGE: &str =
    "usage: sim-handoff [--schedules N] [--from SEED] [--threads N] | --seed SEED | --bugs";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(order) = Order::of(&words) else {
        println!("{USAGE}");
        return ExitCode::from(2);
    };
    let is_sound = match order {
        Order::Trace(seed) => trace(seed),
        Order::Mutants => hunt_all(),
        Order::Campaign { schedules, from, threads } => {
            let is_sound = campaign(schedules, from, threads);
            hunt_all() && is_sound
        }
    };
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The parsed arguments.
enum Order {
    Campaign { schedules: u64, from: u64, threads: u64 },
    Trace(u64),
    Mutants,
}

impl Order {
    fn of(words: &[String]) -> Option<Self> {
        let (mut schedules, mut from, mut threads) = (SCHEDULES, 0, 1);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--bugs" {
                return Some(Self::Mutants);
            }
            let number = words.next()?.parse().ok()?;
            match word.as_str() {
                "--schedules" => schedules = number,
                "--from" => from = number,
                "--threads" if number > 0 => threads = number,
                "--seed" => return Some(Self::Trace(number)),
                _ => return None,
            }
        }
        Some(Self::Campaign { schedules, from, threads })
    }
}

/// Totals of several schedules.
#[derive(Default)]
struct Sum {
    steps: u64,
    rounds: u64,
    races: Races,
    faults: Faults,
    broken: Vec<(u64, Broken)>,
}

fn run(seeds: impl Iterator<Item = u64>) -> Sum {
    let (simulator, mut sum) = (Simulator::new(), Sum::default());
    for seed in seeds {
        let outcome = simulator.run(Plan { seed, bug: None, is_traced: false });
        sum.steps += outcome.steps;
        sum.rounds += outcome.rounds;
        sum.races += outcome.races;
        sum.faults += outcome.faults;
        sum.broken.extend(outcome.broken.map(|broken| (seed, broken)));
    }
    sum
}

fn campaign(schedules: u64, from: u64, threads: u64) -> bool {
    let begun = Instant::now();
    let part = |nth: u64| move || run((from + nth..from + schedules).step_by(threads as usize));
    let parts: Vec<_> = (0..threads).map(|nth| std::thread::spawn(part(nth))).collect();
    let mut sum = Sum::default();
    for part in parts {
        let part = part.join().expect("a schedule does not panic");
        sum.steps += part.steps;
        sum.rounds += part.rounds;
        sum.races += part.races;
        sum.faults += part.faults;
        sum.broken.extend(part.broken);
    }
    print_sum(&sum, schedules, begun.elapsed().as_secs_f64());
    sum.broken.sort_unstable();
    for (seed, broken) in sum.broken.iter().take(TOLD_MAX) {
        println!("BROKEN: {broken:?}; cargo xtask sim-handoff --seed {seed}");
    }
    table(&sum.races, schedules) && sum.broken.is_empty()
}

/// Prints the totals and the injected faults of a campaign.
fn print_sum(sum: &Sum, schedules: u64, seconds: f64) {
    let (faults, races) = (sum.faults, sum.races);
    let rows = [
        ("schedules", schedules),
        ("… broken", sum.broken.len() as u64),
        ("… a second, on all threads together", (schedules as f64 / seconds).round() as u64),
        ("steps", sum.steps),
        ("offers", races.offers),
        ("moves", races.moves),
        ("requests lost", faults.lost_requests),
        ("replies lost", faults.lost_replies),
        ("delayed requests", faults.delayed),
        ("duplicated requests", faults.doubled),
        ("operations without a reply", faults.silences),
        ("processes that crashed", faults.crashes),
        ("jumps of the clock by a lease", faults.jumps),
        ("worlds whose clocks differed", faults.skewed),
        ("steps of others in the middle of an operation", faults.meanwhile),
    ];
    println!("## Schedules\n\n| what | how many |\n|---|---:|");
    for (what, count) in rows {
        println!("| {what} | {count} |");
    }
    println!();
}

/// Prints the races of a campaign; returns whether there were enough of each.
fn table(races: &Races, schedules: u64) -> bool {
    let mut are_enough = true;
    println!("| a handoff races with | times | at least | |\n|---|---:|---:|---|");
    for (name, times, per_thousand) in races.kinds() {
        let floor = schedules * per_thousand / 1_000;
        let is_enough = times >= floor || schedules < FLOOR_FROM;
        are_enough &= is_enough;
        println!("| {name} | {times} | {floor} | {} |", if is_enough { "" } else { "TOO FEW" });
    }
    are_enough
}

fn trace(seed: u64) -> bool {
    let outcome = Simulator::new().run(Plan { seed, bug: None, is_traced: true });
    for event in &outcome.events {
        println!("{event:?}");
    }
    let (steps, rounds, trace) = (outcome.steps, outcome.rounds, outcome.trace);
    println!("{steps} steps, {rounds} rounds until rest, trace {trace:016x}");
    match outcome.broken {
        Some(broken) => println!("BROKEN: {broken:?}"),
        None => println!("nothing broken"),
    }
    outcome.broken.is_none()
}

/// Searches for every mutant; returns whether all were found.
fn hunt_all() -> bool {
    let simulator = Simulator::new();
    let mut are_found = true;
    println!("\n## Mutants\n");
    println!("| bug | description | found as | in schedule |\n|---|---|---|---:|");
    for bug in Bug::ALL {
        let outcome_of = |seed| simulator.run(Plan { seed, bug: Some(bug), is_traced: false });
        let found = (0..HUNT_MAX).find_map(|seed| Some((seed, outcome_of(seed).broken?)));
        are_found &= found.is_some();
        let what = bug.what();
        match found {
            Some((seed, broken)) => println!("| {bug:?} | {what} | {broken:?} | {} |", seed + 1),
            None => println!("| {bug:?} | {what} | NOT FOUND | {HUNT_MAX} |"),
        }
    }
    are_found
}
