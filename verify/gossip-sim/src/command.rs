//! The simulator as a command: options and output.
//!
//! `cargo xtask sim` builds and runs the program `simulate`, which calls this module. This module
//! reads no argument, clock or terminal: options are passed in parsed or as words, time as a
//! function, and text goes to a writer.

use std::io::{self, Write};
use std::time::Duration;

use super::bugs::Bug;
use super::faults::FaultSet;
use super::plan::{OPERATIONS_DEFAULT, Plan};
use super::report::{Figures, Report, fault_table, grouped, outcome_table};
use super::{FINGERPRINT, Failure, Simulator, shrink};

/// Default number of simulations.
pub const SEEDS_DEFAULT: u64 = 1_000;

/// Number of checked operations from which on every kind of fault must reach its floor.
const FLOOR_FROM: u64 = 10_000_000;

/// Maximum number of simulations per mutant.
const BUG_SEEDS_MAX: u64 = 200;

/// Maximum number of trace lines that are printed: the last ones matter.
const TRACE_LINES_MAX: usize = 200;

/// Usage text of the arguments that [`Options::parse`] reads.
pub const USAGE: &str = "[--seed N] [--seeds N] [--ops N] [--faults LIST] [--bugs]\n\
    LIST is `all`, `usual`, `none`, or names of faults with commas between them\n\
    to reproduce a failure: [--tenants N] [--workers N] [--roughness N] [--binds true|false]\n\
    [--only LIST] [--bug NAME] [--trace]";

/// The parsed options. Absent values depend on the seed.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "a caller with its own parser fills it in")]
pub struct Options {
    /// The first seed; 1 if absent.
    pub seed: Option<u64>,
    /// Number of seeds; one if there is a first seed, [`SEEDS_DEFAULT`] otherwise.
    pub seeds: Option<u64>,
    /// Operations of each simulation.
    pub operations: Option<u64>,
    /// Kinds of faults that may be injected.
    pub faults: Option<FaultSet>,
    /// Tenants of each simulation.
    pub tenants: Option<u32>,
    /// Workers of each tenant.
    pub workers: Option<u32>,
    /// Multiplier of the fault rates.
    pub roughness: Option<u64>,
    /// Whether the store binds owner keys to the lifetime of a process.
    pub binds: Option<bool>,
    /// Numbers of the only faults to inject.
    pub only: Option<Vec<u64>>,
    /// The mutant to simulate.
    pub bug: Option<Bug>,
    /// Search for every mutant instead.
    pub bugs: bool,
    /// Print the trace of a failure without shrinking it.
    pub trace: bool,
}

/// The overall result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each has an exit code")]
pub enum Verdict {
    /// Every rule held.
    Held,
    /// A rule was broken, a mutant was not found, or a kind of fault was too rare.
    Broken,
}

impl Options {
    /// Parses the arguments of `simulate`; `None` if one is invalid.
    #[must_use]
    pub fn parse(words: &[String]) -> Option<Self> {
        let mut options = Self::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            options.take(word, &mut rest)?;
        }
        Some(options)
    }

    /// Parses one option and its value from `rest`.
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

    /// Returns the range of seeds.
    #[must_use]
    pub fn seeds(&self) -> std::ops::Range<u64> {
        let first = self.seed.unwrap_or(1);
        let usual = || if self.seed.is_some() { 1 } else { SEEDS_DEFAULT };
        first..first.saturating_add(self.seeds.unwrap_or_else(usual))
    }

    /// Returns the plan of a seed with these options.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        let operations = self.operations.unwrap_or(OPERATIONS_DEFAULT);
        let usual = Plan::of_seed(seed, operations, self.faults);
        Plan {
            // A simulation without tenants or workers never finishes.
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

/// Share of answers from which on a run fails because no rule checked them: one per cent.
const UNJUDGED_MILLIONTHS_MAX: u64 = 10_000;

/// Maximum number of tenants: a tenant id repeats one byte.
const TENANTS_MAX: u32 = 200;

/// Maximum number of workers per tenant: the ids of restarted workers begin a thousand later.
const WORKERS_MAX: u32 = 200;

/// Up to this roughness the sum of all fault rates fits in a die.
const ROUGHNESS_MAX: u64 = 16;

/// Runs the simulations of `options` and writes a Markdown report. `elapsed` returns the time so
/// far, of the kind that the caller wants rates in.
///
/// # Errors
///
/// Returns an error of the writer.
pub fn run(
    options: &Options,
    elapsed: &dyn Fn() -> Duration,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    run_simulator(&Simulator::new(), options, elapsed, out)
}

/// Like [`run`], with the command of `simulator` ([`Simulator::with_command`]).
///
/// # Errors
///
/// Returns an error of the writer.
pub fn run_simulator(
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

/// Like [`run`], with the workers of `simulator` and without a search for mutants.
///
/// # Errors
///
/// Returns an error of the writer.
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
                write_failure(simulator, options.plan(seed), &failure, out)?;
                return Ok(Verdict::Broken);
            }
        }
    }
    write_report(&sum, elapsed().saturating_sub(started), out)?;
    // Small numbers of simulations need not reach everything, and a fault list is a deliberate
    // choice.
    let enough = sum.below_floor(sum.floor()).is_empty();
    let excused = sum.judged() < FLOOR_FROM || options.faults.is_some();
    // User workers, or a chosen number of workers, change which outcomes are reachable.
    let chosen = options.tenants.is_some() || options.workers.is_some();
    let chosen = excused || chosen || options.roughness.is_some() || simulator.has_user_workers();
    let met = chosen || write_missing(&sum, out)?;
    Ok(if (enough || excused) && met { Verdict::Held } else { Verdict::Broken })
}

/// Writes the tables of a report, each below its heading.
///
/// # Errors
///
/// Returns an error of the writer.
pub fn write_report(sum: &Report, time: Duration, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "## Figures\n\n{}", Figures { report: sum, time })?;
    writeln!(out, "## Faults\n\n{}", fault_table(&sum.faults))?;
    let below: Vec<&str> = sum.below_floor(sum.floor()).iter().map(|kind| kind.name()).collect();
    let below = if below.is_empty() { "none".to_owned() } else { below.join(", ") };
    writeln!(out, "Floor: {} of each kind; below it: {below}.\n", grouped(sum.floor()))?;
    writeln!(out, "## Outcomes\n\n{}", outcome_table(&sum.coverage))?;
    writeln!(out, "{} pairs of operation and outcome.", sum.coverage.pair_count())
}

/// Writes the pairs of operation and outcome that should have occurred and did not, and whether too
/// many answers were checked by no rule. Returns whether there is nothing to write.
///
/// # Errors
///
/// Returns an error of the writer.
pub fn write_missing(sum: &Report, out: &mut dyn Write) -> io::Result<bool> {
    let missing = sum.missing();
    for (verb, name) in &missing {
        writeln!(out, "not met: {verb:?} {name}")?;
    }
    let judged = sum.unjudged_millionths() < UNJUDGED_MILLIONTHS_MAX;
    if !judged {
        writeln!(out, "not met: too many answers were checked by no rule")?;
    }
    Ok(missing.is_empty() && judged)
}

/// Shrinks a failing simulation and writes its trace; the last line is the command that reproduces
/// it.
///
/// # Errors
///
/// Returns an error of the writer.
pub fn write_failure(
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
    // Only a build with the same fingerprint reproduces the simulation.
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "gossip-coordination {version}, fingerprint {FINGERPRINT:016x}:")?;
    writeln!(out, "{}", simulator.replay(&traced))
}

/// Searches for every mutant.
fn hunt(
    options: &Options,
    elapsed: &dyn Fn() -> Duration,
    out: &mut dyn Write,
) -> io::Result<Verdict> {
    writeln!(out, "| mutant | found by rule | simulations | operations | time |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    let (simulator, mut verdict) = (Simulator::new(), Verdict::Held);
    for bug in Bug::ALL {
        let (started, mut operations) = (elapsed(), 0);
        let found = (1..=BUG_SEEDS_MAX).find_map(|seed| {
            let plan = bug.in_plan(options.plan(seed));
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
