//! The simulator as a command: what may be asked for, and what is written about it.
//!
//! `cargo xtask sim` builds and runs the program `simulate`, which calls this module. Nothing here
//! reads an argument, a clock or a terminal: options come parsed or as words, time as a function,
//! and text goes to a writer.

use std::io::{self, Write};
use std::time::Duration;

use super::bugs::Bug;
use super::faults::FaultSet;
use super::plan::{OPERATIONS_DEFAULT, Plan};
use super::report::{Figures, Report, fault_table, grouped, outcome_table};
use super::{FINGERPRINT, Failure, Simulator, shrink};

/// Worlds, unless somebody asks for another number.
pub const SEEDS_DEFAULT: u64 = 1_000;

/// Judged operations from which on every kind of fault must have reached its floor.
const FLOOR_FROM: u64 = 10_000_000;

/// Worlds in which a mutant is looked for.
const BUG_SEEDS_MAX: u64 = 200;

/// Lines of a trace that are written: the end is what matters.
const TRACE_LINES_MAX: usize = 200;

/// What the words are that [`Options::parse`] reads.
pub const USAGE: &str = "[--seed N] [--seeds N] [--ops N] [--faults LIST] [--bugs]\n\
    LIST is `all`, `usual`, `none`, or names of faults with commas between them\n\
    to run one world again: [--tenants N] [--workers N] [--roughness N] [--binds true|false]\n\
    [--only LIST] [--bug NAME] [--trace]";

/// What was asked for. What is absent is as the seed says.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "who parses words of its own fills it in")]
pub struct Options {
    /// The first seed; 1 if absent.
    pub seed: Option<u64>,
    /// How many seeds; one if there is a first seed, [`SEEDS_DEFAULT`] otherwise.
    pub seeds: Option<u64>,
    /// Operations of each world.
    pub operations: Option<u64>,
    /// What may go wrong.
    pub faults: Option<FaultSet>,
    /// Tenants of each world.
    pub tenants: Option<u32>,
    /// Workers of each tenant.
    pub workers: Option<u32>,
    /// How often things go wrong, in multiples of the usual.
    pub roughness: Option<u64>,
    /// Whether the store ties keys to the life of a process.
    pub binds: Option<bool>,
    /// The only faults that are injected, by their numbers.
    pub only: Option<Vec<u64>>,
    /// What is wrong with the code under test.
    pub bug: Option<Bug>,
    /// Look for every mutant instead.
    pub bugs: bool,
    /// Do not shrink what breaks a rule.
    pub trace: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an exit code has to be found for each")]
pub enum Verdict {
    /// Every rule held.
    Held,
    /// A rule was broken, a mutant was not found, or a kind of fault was too rare.
    Broken,
}

impl Options {
    /// Reads words as the command line of `simulate` has them; `None` if one is not understood.
    #[must_use]
    pub fn parse(words: &[String]) -> Option<Self> {
        let mut options = Self::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            options.take(word, &mut rest)?;
        }
        Some(options)
    }

    /// Takes one word, and its value from `rest`.
    fn take<'w>(&mut self, word: &str, rest: &mut impl Iterator<Item = &'w String>) -> Option<()> {
        match word {
            "--seed" => self.seed = Some(rest.next()?.parse().ok()?),
            "--seeds" => self.seeds = Some(rest.next()?.parse().ok()?),
            "--ops" => self.operations = Some(rest.next()?.parse().ok()?),
            "--faults" => self.faults = Some(FaultSet::parse(rest.next()?)?),
            "--tenants" => self.tenants = Some(rest.next()?.parse().ok()?),
            "--workers" => self.workers = Some(rest.next()?.parse().ok()?),
            "--roughness" => self.roughness = Some(rest.next()?.parse().ok()?),
            "--binds" => self.binds = Some(rest.next()?.parse().ok()?),
            "--only" => self.only = Some(numbers(rest.next()?)?),
            "--bug" => self.bug = Some(bug(rest.next()?)?),
            "--bugs" => self.bugs = true,
            "--trace" => self.trace = true,
            _ => return None,
        }
        Some(())
    }

    /// The seeds, from the first to the one behind the last.
    #[must_use]
    pub fn seeds(&self) -> std::ops::Range<u64> {
        let first = self.seed.unwrap_or(1);
        let usual = || if self.seed.is_some() { 1 } else { SEEDS_DEFAULT };
        first..first.saturating_add(self.seeds.unwrap_or_else(usual))
    }

    /// The plan of a seed, with what was asked for.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        let operations = self.operations.unwrap_or(OPERATIONS_DEFAULT);
        let usual = Plan::of_seed(seed, operations, self.faults);
        Plan {
            // A world without tenants or workers has nobody to wait for.
            tenants: self.tenants.unwrap_or(usual.tenants).clamp(1, TENANTS_MAX),
            workers: self.workers.unwrap_or(usual.workers).clamp(1, WORKERS_MAX),
            roughness: self.roughness.unwrap_or(usual.roughness).min(ROUGHNESS_MAX),
            binds: self.binds.unwrap_or(usual.binds),
            only: self.only.clone(),
            bug: self.bug,
            trace: self.trace,
            ..usual
        }
    }
}

/// Tenants of a world, at most: their ids are one byte over and over.
const TENANTS_MAX: u32 = 200;

/// Workers of a tenant, at most: names of restarted ones begin a thousand later.
const WORKERS_MAX: u32 = 200;

/// The rates of all faults together stay below the chances of a die up to this.
const ROUGHNESS_MAX: u64 = 16;

/// Plays what `options` ask for and writes what came of it as Markdown. `elapsed` tells the time
/// that it took so far, of whatever kind its caller wants rates in.
///
/// # Errors
///
/// Of the writer.
pub fn run(
    options: &Options,
    elapsed: &dyn Fn() -> Duration,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    run_behind(&Simulator::new(), options, elapsed, out)
}

/// As [`run`] behind the door of `simulator` ([`Simulator::behind`]).
///
/// # Errors
///
/// Of the writer.
pub fn run_behind(
    simulator: &Simulator,
    options: &Options,
    elapsed: &dyn Fn() -> Duration,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    match options.bugs {
        true => hunt(options, elapsed, out),
        false => run_with(simulator, options, elapsed, out),
    }
}

/// As [`run`] with the workers of `simulator`; mutants are not looked for.
///
/// # Errors
///
/// Of the writer.
pub fn run_with(
    simulator: &Simulator,
    options: &Options,
    elapsed: &dyn Fn() -> Duration,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    let (mut sum, started) = (Report::default(), elapsed());
    for seed in options.seeds() {
        match simulator.run(&options.plan(seed)) {
            Ok(report) => sum.add(&report),
            Err(failure) => {
                tell_failure(simulator, options.plan(seed), &failure, out)?;
                return Ok(Verdict::Broken);
            }
        }
    }
    write_report(&sum, elapsed().saturating_sub(started), out)?;
    // A few worlds need not have everything, and a list of faults is somebody's choice.
    let enough = sum.below_floor(sum.floor()).is_empty();
    let excused = sum.judged() < FLOOR_FROM || options.faults.is_some();
    // Whoever brings workers, or chooses how many there are, chooses what they do.
    let chosen = options.tenants.is_some() || options.workers.is_some();
    let chosen = excused || chosen || options.roughness.is_some() || simulator.has_user_workers();
    let met = chosen || tell_missing(&sum, out)?;
    Ok(if (enough || excused) && met { Verdict::Held } else { Verdict::Broken })
}

/// Writes the tables of a report, each below a heading of its own.
///
/// # Errors
///
/// Of the writer.
pub fn write_report(sum: &Report, time: Duration, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## Figures\n\n{}", Figures { report: sum, time })?;
    writeln!(out, "## Faults\n\n{}", fault_table(&sum.faults))?;
    let below: Vec<&str> = sum.below_floor(sum.floor()).iter().map(|kind| kind.name()).collect();
    let below = if below.is_empty() { "none".to_owned() } else { below.join(", ") };
    writeln!(out, "Floor: {} of each kind; below it: {below}.\n", grouped(sum.floor()))?;
    writeln!(out, "## Outcomes\n\n{}", outcome_table(&sum.coverage))?;
    writeln!(out, "{} pairs of operation and outcome.", sum.coverage.pair_count())
}

/// Writes which pairs of operation and outcome so many worlds must have met and did not; whether
/// there are none.
///
/// # Errors
///
/// Of the writer.
pub fn tell_missing(sum: &Report, out: &mut dyn Write) -> io::Result<bool> {
    let missing = sum.missing();
    for (verb, name) in &missing {
        writeln!(out, "not met: {verb:?} {name}")?;
    }
    Ok(missing.is_empty())
}

/// Shrinks a world that broke a rule and writes what happens in it; the last line is the command
/// that plays it again.
///
/// # Errors
///
/// Of the writer.
pub fn tell_failure(
    simulator: &Simulator,
    plan: Plan,
    failure: &Failure,
    out: &mut dyn Write,
) -> io::Result<()> {
    let violation = &failure.violation;
    writeln!(out, "seed {}: {:?}: {}", plan.seed, violation.rule, violation.why)?;
    let small = if plan.trace { plan } else { shrink(simulator, plan) };
    let traced = Plan { trace: true, ..small };
    if let Err(failure) = simulator.run(&traced) {
        let from = failure.trace.len().saturating_sub(TRACE_LINES_MAX);
        for line in &failure.trace[from..] {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "{:?}: {}", failure.violation.rule, failure.violation.why)?;
    }
    // Only a build that plays worlds alike plays this one again.
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "gossip-coordination {version}, golden world {FINGERPRINT:016x}:")?;
    writeln!(out, "{}", simulator.replay(&traced))
}

/// Looks for every mutant.
fn hunt(
    options: &Options,
    elapsed: &dyn Fn() -> Duration,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    writeln!(out, "| mutant | by the rule | worlds | operations | time |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    let (simulator, mut verdict) = (Simulator::new(), Verdict::Held);
    for bug in Bug::ALL {
        let (started, mut operations) = (elapsed(), 0);
        let found = (1..=BUG_SEEDS_MAX).find_map(|seed| {
            let plan = Plan { bug: Some(bug), ..options.plan(seed) };
            match simulator.run(&plan) {
                Ok(report) => {
                    operations += report.operations;
                    None
                }
                Err(failure) => Some((seed, failure)),
            }
        });
        let ms = elapsed().saturating_sub(started).as_secs_f64() * 1e3;
        match found {
            Some((seed, failure)) => {
                let rule = failure.violation.rule;
                let before = operations + failure.operations;
                writeln!(out, "| {bug:?} | {rule:?} | {seed} | {before} | {ms:.0} ms |")?;
            }
            None => {
                writeln!(out, "| {bug:?} | **not found** | {BUG_SEEDS_MAX} | {operations} | |")?;
                verdict = Verdict::Broken;
            }
        }
    }
    Ok(verdict)
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
