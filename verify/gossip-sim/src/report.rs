//! The report of one or many simulations.

use std::fmt;
use std::time::Duration;

use super::faults::{FaultClass, FaultKind, FaultTally};
use super::op::{Label, Verb};
use super::oracle::{StaleTally, TrueTimeTally, UnjudgedTally};
use super::pairs::Turns;
use crate::model::Violation;

/// Number of times each operation had each outcome.
#[derive(Clone, Debug)]
pub struct Coverage(Vec<Vec<(Label, u64)>>);

impl Default for Coverage {
    fn default() -> Self {
        Self(vec![Vec::new(); Verb::COUNT])
    }
}

impl Coverage {
    pub(super) fn count(&mut self, verb: Verb, label: Label) {
        self.add(verb, label, 1);
    }

    pub(super) fn add(&mut self, verb: Verb, label: Label, count: u64) {
        let outcomes = &mut self.0[verb as usize];
        match outcomes.iter_mut().find(|(other, _)| *other == label) {
            Some((_, sum)) => *sum += count,
            None => outcomes.push((label, count)),
        }
    }

    fn merge(&mut self, other: &Self) {
        for (verb, outcomes) in Verb::ALL.iter().zip(&other.0) {
            for (label, count) in outcomes {
                self.add(*verb, *label, *count);
            }
        }
    }

    /// Returns the outcomes of an operation, sorted by name.
    #[must_use]
    pub fn of(&self, verb: Verb) -> Vec<(&str, u64)> {
        let mut outcomes: Vec<_> =
            self.0[verb as usize].iter().map(|(label, count)| (label.as_str(), *count)).collect();
        outcomes.sort_unstable();
        outcomes
    }

    /// Returns the number of pairs of operation and outcome that occurred.
    #[must_use]
    pub fn pair_count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

/// Maximum number of operations per fault of each kind: a hundred thousand of each in a campaign of
/// a thousand million operations.
const OPERATIONS_PER_FAULT: u64 = 10_000;

/// Totals of one or many simulations.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Simulations.
    pub worlds: u64,
    /// Finished operations.
    pub operations: u64,
    /// Of those, the number that finished after a fault had suspended some rule. They prove little
    /// and are counted separately: see [`Report::judged`].
    pub operations_excused: u64,
    /// Applied transactions.
    pub commits: u64,
    /// Elapsed ticks.
    pub ticks: u64,
    /// Injected faults.
    pub faults: FaultTally,
    /// Writes under stale fences.
    pub stale: StaleTally,
    /// Answers that no rule checked.
    pub unjudged: UnjudgedTally,
    /// Grants and effects beyond the true end of a lease.
    pub true_time: TrueTimeTally,
    /// Operations and outcomes.
    pub coverage: Coverage,
    /// Damaged values that were returned to a process.
    pub damaged_reads: u64,
    /// Operations that returned a corruption error.
    pub corruption_reported: u64,
    /// Of those, the number that detected a lower revision than the handle had seen.
    pub older_reported: u64,
    /// Finished runs.
    pub runs_finished: u64,
    /// Maximum ticks that a simulation took to finish after the last fault.
    pub calm_ticks_max: u64,
    /// Hash over every event of every simulation, in order.
    pub trace_hash: u64,
    /// Hashes over the results of each tenant of the simulation.
    pub tenant_hashes: Vec<u64>,
    /// How the tenants were interleaved, in a simulation of a pair.
    pub turns: Turns,
}

impl Report {
    /// Adds another report.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.operations += other.operations;
        self.operations_excused += other.operations_excused;
        self.commits += other.commits;
        self.ticks += other.ticks;
        self.faults.add(&other.faults);
        self.stale.add(&other.stale);
        self.unjudged.add(&other.unjudged);
        self.true_time.add(&other.true_time);
        self.coverage.merge(&other.coverage);
        self.damaged_reads += other.damaged_reads;
        self.corruption_reported += other.corruption_reported;
        self.older_reported += other.older_reported;
        self.runs_finished += other.runs_finished;
        self.calm_ticks_max = self.calm_ticks_max.max(other.calm_ticks_max);
        self.trace_hash = super::random::mix(self.trace_hash ^ other.trace_hash);
    }

    /// Returns the number of operations that were checked against every rule. Goals, rates and
    /// floors refer to these.
    #[must_use]
    pub const fn judged(&self) -> u64 {
        self.operations - self.operations_excused
    }

    /// Returns the share of answers that no rule checked, in millionths.
    #[must_use]
    pub const fn unjudged_millionths(&self) -> u64 {
        if self.operations == 0 {
            return 0;
        }
        self.unjudged.all() * 1_000_000 / self.operations
    }

    /// Returns the minimum number of faults of each kind: one in ten thousand checked operations.
    #[must_use]
    pub const fn floor(&self) -> u64 {
        self.judged() / OPERATIONS_PER_FAULT
    }

    /// Returns the kinds that were injected fewer than `floor` times.
    #[must_use]
    pub fn below_floor(&self, floor: u64) -> Vec<FaultKind> {
        FaultKind::ALL.iter().copied().filter(|kind| self.faults.of(*kind) < floor).collect()
    }
}

/// A simulation in which a rule was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The rule, and how it was broken.
    pub violation: Violation,
    /// The trace, if one was recorded.
    pub trace: Vec<String>,
    /// Operations that had finished by then.
    pub operations: u64,
    /// Numbers of the faults that had been injected.
    pub injected: Vec<u64>,
}

/// Returns a Markdown table of the faults, their consequences and counts.
#[must_use]
pub fn fault_table(tally: &FaultTally) -> String {
    let mut table =
        String::from("| fault | description | class | detected by | suspends | injected |\n");
    table.push_str("|---|---|---|---|---|---|\n");
    for kind in FaultKind::ALL {
        let by = match kind.class() {
            FaultClass::Tolerated => "",
            FaultClass::Detected(by) => by,
        };
        let class = kind.class().name();
        let mut rules: Vec<String> =
            kind.suspends().iter().map(|rule| format!("{rule:?}")).collect();
        if kind.misleads() {
            rules.push("every rule about the result of that one operation".to_owned());
        }
        let (name, what, rules) = (kind.name(), kind.what(), rules.join(", "));
        let count = grouped(tally.of(*kind));
        table.push_str(&format!("| {name} | {what} | {class} | {by} | {rules} | {count} |\n"));
    }
    table
}

/// The figures of a report with its rate, as Markdown.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'r> {
    /// The report.
    pub report: &'r Report,
    /// The elapsed time.
    pub time: Duration,
}

impl fmt::Display for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (report, stale) = (self.report, &self.report.stale);
        let (judged, seconds) = (report.judged(), self.time.as_secs_f64());
        let rate = if seconds > 0.0 { judged as f64 / seconds } else { 0.0 };
        let rate = grouped(rate.round() as u64);
        let [worlds, operations, excused] =
            [report.worlds, report.operations, report.operations_excused].map(grouped);
        let [commits, ticks, runs] =
            [report.commits, report.ticks, report.runs_finished].map(grouped);
        let pair = |one: u64, other: u64| format!("{}, {}", grouped(one), grouped(other));
        writeln!(f, "| what | figure |\n|---|---|")?;
        // A simulation that breaks a rule ends the program, so it is never counted here.
        writeln!(f, "| simulations (seeds) without a violation | {worlds} |")?;
        writeln!(f, "| operations checked against every rule | {} |", grouped(judged))?;
        writeln!(f, "| including those after a fault had suspended some rule | {operations} |")?;
        writeln!(f, "| only those after a fault had suspended some rule | {excused} |")?;
        let UnjudgedTally { misled, refusals, queries } = report.unjudged;
        let share = report.unjudged_millionths();
        let [misled, refusals, queries] = [misled, refusals, queries].map(grouped);
        writeln!(
            f,
            "| share of answers that no rule checked | {}.{:04} % |",
            share / 10_000,
            share % 10_000
        )?;
        writeln!(
            f,
            "| … after an old version was read, refusals, queries | {misled}, {refusals}, {queries} |"
        )?;
        let tenths = (seconds * 10.0).round() as u64;
        writeln!(f, "| time | {}.{} s |", grouped(tenths / 10), tenths % 10)?;
        writeln!(f, "| checked operations per second | {rate} |")?;
        writeln!(f, "| transactions applied | {commits} |")?;
        writeln!(f, "| simulated ticks | {ticks} |")?;
        writeln!(f, "| runs finished | {runs} |")?;
        let calm = grouped(report.calm_ticks_max);
        writeln!(f, "| maximum ticks from the last fault to the end | {calm} |")?;
        let sent = pair(stale.operations, stale.operations_accepted);
        writeln!(f, "| stale operations sent, accepted | {sent} |")?;
        let sent = pair(stale.operations_unjudged, stale.operations_excused);
        writeln!(f, "| stale operations sent while the rule was suspended, accepted | {sent} |")?;
        let sent = pair(stale.keys, stale.keys_accepted);
        writeln!(f, "| keys of older grants at the simulated sink, accepted | {sent} |")?;
        let early = grouped(stale.keys_early);
        writeln!(f, "| keys of lost leases written before a later grant | {early} |")?;
        let TrueTimeTally { early_grants, void_grants, earliest, late_effects } = report.true_time;
        let early = pair(early_grants, earliest);
        writeln!(f, "| grants before the true end of a lease, most ticks early | {early} |")?;
        writeln!(f, "| grants of a shard whose deadline was void | {} |", grouped(void_grants))?;
        let late = grouped(late_effects);
        writeln!(f, "| effects of the last grant after the true end of its lease | {late} |")?;
        let shown = pair(report.damaged_reads, report.corruption_reported);
        writeln!(f, "| damaged reads, operations that returned corruption | {shown} |")?;
        let older = grouped(report.older_reported);
        writeln!(f, "| of those, by a decreased revision | {older} |")?;
        writeln!(f, "| trace hash | {:016x} |", report.trace_hash)
    }
}

/// Returns a Markdown table of the outcomes of each operation.
#[must_use]
pub fn outcome_table(coverage: &Coverage) -> String {
    let mut table = String::from("| operation | outcomes with counts |\n|---|---|\n");
    for verb in Verb::ALL {
        let outcomes = coverage.of(verb);
        let list: Vec<String> =
            outcomes.iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
        table.push_str(&format!("| {verb:?} | {} |\n", list.join(" · ")));
    }
    table
}

/// Formats a number with commas between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
