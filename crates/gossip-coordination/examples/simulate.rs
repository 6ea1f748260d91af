//! Plays many worlds and prints what they came to, as Markdown.
//!
//! `cargo xtask sim` builds and runs it. The exit code is 1 if a rule was broken; then the world is
//! shrunk, and the last line is the command that plays it again.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program: its output is its use")]

use std::process::ExitCode;
use std::time::Duration;

use gossip_coordination::sim::{
    Bug, FaultSet, OPERATIONS_DEFAULT, Plan, Report, Simulator, Verb, fault_table, shrink,
};

const USAGE: &str = "usage: simulate [--seed N] [--seeds N] [--ops N] [--faults LIST] [--bugs]\n\
    LIST is `all`, `usual`, `none`, or names of faults with commas between them\n\
    to play one world again: [--tenants N] [--workers N] [--roughness N] [--binds true|false]\n\
    [--only LIST] [--bug NAME] [--trace]";

/// Worlds, unless somebody asks for another number.
const SEEDS_DEFAULT: u64 = 1_000;

/// Operations from which on every kind of fault must have reached its floor.
const FLOOR_FROM: u64 = 10_000_000;

/// Worlds in which a planted bug is looked for.
const BUG_SEEDS_MAX: u64 = 200;

/// Lines of a trace that are printed: the end is what matters.
const TRACE_LINES_MAX: usize = 200;

/// What was asked for.
#[derive(Default)]
struct Wanted {
    seed: Option<u64>,
    seeds: Option<u64>,
    operations: Option<u64>,
    faults: Option<FaultSet>,
    tenants: Option<u32>,
    workers: Option<u32>,
    roughness: Option<u64>,
    binds: Option<bool>,
    only: Option<Vec<u64>>,
    bug: Option<Bug>,
    bugs: bool,
    trace: bool,
}

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a program reads its own arguments")]
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(wanted) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let good = if wanted.bugs { hunt(&wanted) } else { play(&wanted) };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(arguments: &[String]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seed" => wanted.seed = Some(rest.next()?.parse().ok()?),
            "--seeds" => wanted.seeds = Some(rest.next()?.parse().ok()?),
            "--ops" => wanted.operations = Some(rest.next()?.parse().ok()?),
            "--faults" => wanted.faults = Some(FaultSet::parse(rest.next()?)?),
            "--tenants" => wanted.tenants = Some(rest.next()?.parse().ok()?),
            "--workers" => wanted.workers = Some(rest.next()?.parse().ok()?),
            "--roughness" => wanted.roughness = Some(rest.next()?.parse().ok()?),
            "--binds" => wanted.binds = Some(rest.next()?.parse().ok()?),
            "--only" => wanted.only = Some(numbers(rest.next()?)?),
            "--bug" => wanted.bug = Some(bug(rest.next()?)?),
            "--bugs" => wanted.bugs = true,
            "--trace" => wanted.trace = true,
            _ => return None,
        }
    }
    Some(wanted)
}

fn numbers(list: &str) -> Option<Vec<u64>> {
    if list == "-" {
        return Some(Vec::new());
    }
    list.split(',').map(|number| u64::from_str_radix(number, 16).ok()).collect()
}

fn bug(name: &str) -> Option<Bug> {
    Bug::ALL.iter().copied().find(|bug| format!("{bug:?}") == name)
}

/// The plan of a seed, with what was asked for.
fn plan(wanted: &Wanted, seed: u64) -> Plan {
    let operations = wanted.operations.unwrap_or(OPERATIONS_DEFAULT);
    let usual = Plan::of_seed(seed, operations, wanted.faults);
    Plan {
        tenants: wanted.tenants.unwrap_or(usual.tenants),
        workers: wanted.workers.unwrap_or(usual.workers),
        roughness: wanted.roughness.unwrap_or(usual.roughness),
        binds: wanted.binds.unwrap_or(usual.binds),
        only: wanted.only.clone(),
        bug: wanted.bug,
        trace: wanted.trace,
        ..usual
    }
}

/// Plays every world that was asked for; whether all rules hold.
fn play(wanted: &Wanted) -> bool {
    let first = wanted.seed.unwrap_or(1);
    let count =
        wanted.seeds.unwrap_or_else(|| if wanted.seed.is_some() { 1 } else { SEEDS_DEFAULT });
    let simulator = Simulator::new();
    let mut sum = Report::default();
    let started = Started::now();
    for seed in first..first.saturating_add(count) {
        let plan = plan(wanted, seed);
        match simulator.play(&plan) {
            Ok(report) => sum.add(&report),
            Err(failure) => {
                eprintln!("seed {seed}: {:?}: {}", failure.violation.rule, failure.violation.why);
                tell_failure(&simulator, plan);
                return false;
            }
        }
    }
    print_report(&sum, started.elapsed());
    let (floor, below) = (sum.floor(), sum.below_floor(sum.floor()));
    println!("\nFloor: {floor} of each kind; below it: {below:?}.");
    // A few worlds need not have everything, and a list of faults is somebody's choice.
    below.is_empty() || sum.operations < FLOOR_FROM || wanted.faults.is_some()
}

/// Shrinks a world that broke a rule and prints what happens in it.
fn tell_failure(simulator: &Simulator, plan: Plan) {
    let small = if plan.trace { plan } else { shrink(simulator, plan) };
    let traced = Plan { trace: true, ..small };
    if let Err(failure) = simulator.play(&traced) {
        let from = failure.trace.len().saturating_sub(TRACE_LINES_MAX);
        failure.trace[from..].iter().for_each(|line| println!("{line}"));
        println!("{:?}: {}", failure.violation.rule, failure.violation.why);
    }
    println!("{}", traced.command());
}

fn print_report(sum: &Report, time: Duration) {
    let Report { worlds, operations, commits, ticks, stale, .. } = sum;
    let rate = *operations as f64 / time.as_secs_f64();
    println!("| what | figure |\n|---|---|");
    println!("| worlds (seeds) | {worlds} |");
    println!("| operations | {operations} |");
    println!("| of these after a fault had suspended some rule | {} |", sum.operations_excused);
    println!("| operations per second | {rate:.0} |");
    println!("| transactions applied | {commits} |");
    println!("| simulated ticks | {ticks} |");
    println!("| runs finished | {} |", sum.runs_finished);
    println!("| most ticks from the last fault to the end | {} |", sum.calm_ticks_max);
    println!(
        "| stale operations sent, accepted | {}, {} |",
        stale.operations, stale.operations_accepted
    );
    println!(
        "| stale operations sent after the rule was suspended | {} |",
        stale.operations_unjudged
    );
    println!("| stale operations that a store which forgot took | {} |", stale.operations_excused);
    println!(
        "| keys sent to the simulated sink by older grants, accepted by it | {}, {} |",
        stale.keys, stale.keys_accepted
    );
    println!("| keys of lost leases that came before anybody else's | {} |", stale.keys_early);
    println!(
        "| damaged reads shown, operations ended as corruption | {}, {} |",
        sum.damaged_reads, sum.corruption_told
    );
    println!("| trace hash | {:016x} |", sum.trace_hash);
    println!("| violations | 0 |\n");
    println!("{}", fault_table(&sum.faults));
    println!("{} pairs of operation and outcome:\n", sum.coverage.pair_count());
    println!("| operation | outcomes |\n|---|---|");
    for verb in Verb::ALL {
        let outcomes = sum.coverage.of(verb);
        let list: Vec<String> =
            outcomes.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("| {verb:?} | {} |", list.join(", "));
    }
}

/// Looks for every planted bug; whether all were found.
fn hunt(wanted: &Wanted) -> bool {
    println!("| planted bug | by the rule | worlds | operations | time |\n|---|---|---|---|---|");
    let simulator = Simulator::new();
    let mut all = true;
    for bug in Bug::ALL {
        let started = Started::now();
        let mut operations = 0;
        let found = (1..=BUG_SEEDS_MAX).find_map(|seed| {
            let plan = Plan { bug: Some(bug), ..plan(wanted, seed) };
            match simulator.play(&plan) {
                Ok(report) => {
                    operations += report.operations;
                    None
                }
                Err(failure) => Some((seed, failure)),
            }
        });
        all &= found.is_some();
        let ms = started.elapsed().as_secs_f64() * 1e3;
        match found {
            Some((seed, failure)) => {
                let rule = failure.violation.rule;
                let before = operations + failure.operations;
                println!("| {bug:?} | {rule:?} | {seed} | {before} | {ms:.0} ms |");
            }
            None => println!("| {bug:?} | **not found** | {BUG_SEEDS_MAX} | {operations} | |"),
        }
    }
    all
}

struct Started(std::time::Instant);

impl Started {
    #[expect(clippy::disallowed_methods, reason = "a world takes no time, its reader does")]
    fn now() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
