//! Reports as lines of text, so that an interrupted campaign can be resumed.
//!
//! A line contains all of a [`Report`] except the hashes of single tenants, which have no meaning
//! for several simulations. The format has no version: a line is read only by the build that wrote
//! it, which a progress file identifies by [`fingerprint`].

use std::fmt::Write as _;

use super::faults::{FaultKind, FaultTally};
use super::op::{Label, Verb};
use super::oracle::{StaleTally, TrueTimeTally, UnjudgedTally};
use super::pairs::Turns;
use super::report::{Coverage, Report};
use super::{Plan, Simulator};

/// Seed of the simulation whose trace hash identifies a build.
const FINGERPRINT_SEED: u64 = 1;

/// Number of its operations: enough for every kind of message, and fast in a debug build.
const FINGERPRINT_OPERATIONS: u64 = 2_000;

/// The value of [`fingerprint`] in debug and in optimized builds. A change of the workload, of a
/// fault or of the trace changes it and must update this constant; other changes must not.
pub const FINGERPRINT: u64 = 0xA966_6685_D0DE_E2BD;

/// Returns the trace hash of one small simulation, the same for all builds with the same behaviour.
///
/// # Errors
///
/// Returns the rule that the simulation breaks.
pub fn fingerprint(simulator: &Simulator) -> Result<u64, super::Failure> {
    let plan = Plan::of_seed(FINGERPRINT_SEED, FINGERPRINT_OPERATIONS, None);
    simulator.run(&plan).map(|report| report.trace_hash)
}

impl Report {
    /// Returns everything except the hashes of tenants in one line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let mut line = String::new();
        for number in self.numbers() {
            // Writing to a string cannot fail.
            let _ = write!(line, "{number} ");
        }
        line.push_str("faults");
        for kind in FaultKind::ALL {
            let _ = write!(line, " {}", self.faults.of(*kind));
        }
        line.push_str(" outcomes");
        for verb in Verb::ALL {
            for (name, count) in self.coverage.of(verb) {
                let _ = write!(line, " {} {name} {count}", verb as usize);
            }
        }
        line
    }

    /// Parses the text of [`Report::to_line`]; `None` for any other text.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut numbers = [0; NUMBERS];
        for number in &mut numbers {
            *number = words.next()?.parse().ok()?;
        }
        let mut report = Self::of_numbers(numbers);
        (words.next()? == "faults").then_some(())?;
        let mut counts = Vec::with_capacity(FaultKind::ALL.len());
        for _ in FaultKind::ALL {
            counts.push(words.next()?.parse().ok()?);
        }
        report.faults = FaultTally::of_counts(counts);
        (words.next()? == "outcomes").then_some(())?;
        while let Some(verb) = words.next() {
            let verb = *Verb::ALL.get(verb.parse::<usize>().ok()?)?;
            let (name, count) = (words.next()?, words.next()?.parse().ok()?);
            report.coverage.add(verb, Label::named(name), count);
        }
        Some(report)
    }

    const fn numbers(&self) -> [u64; NUMBERS] {
        let stale = &self.stale;
        [
            self.worlds,
            self.operations,
            self.operations_excused,
            self.commits,
            self.ticks,
            self.damaged_reads,
            self.corruption_reported,
            self.older_reported,
            self.runs_finished,
            self.calm_ticks_max,
            self.trace_hash,
            stale.operations,
            stale.operations_unjudged,
            stale.operations_accepted,
            stale.operations_excused,
            stale.keys,
            stale.keys_accepted,
            stale.keys_early,
            self.unjudged.misled,
            self.unjudged.refusals,
            self.unjudged.queries,
            self.true_time.early_grants,
            self.true_time.earliest,
            self.true_time.late_effects,
            self.true_time.void_grants,
        ]
    }

    fn of_numbers(numbers: [u64; NUMBERS]) -> Self {
        let [worlds, operations, operations_excused, commits, ticks, rest @ ..] = numbers;
        let [damaged_reads, corruption_reported, older_reported, rest @ ..] = rest;
        let [runs_finished, calm_ticks_max, trace_hash, stale @ ..] = rest;
        let [sent, unjudged, accepted, excused, keys, keys_accepted, keys_early, rest @ ..] = stale;
        let [misled, refusals, queries, early_grants, earliest, late_effects, void_grants] = rest;
        Self {
            worlds,
            operations,
            operations_excused,
            commits,
            ticks,
            damaged_reads,
            corruption_reported,
            older_reported,
            runs_finished,
            calm_ticks_max,
            trace_hash,
            stale: StaleTally {
                operations: sent,
                operations_unjudged: unjudged,
                operations_accepted: accepted,
                operations_excused: excused,
                keys,
                keys_accepted,
                keys_early,
            },
            unjudged: UnjudgedTally { misled, refusals, queries },
            true_time: TrueTimeTally { early_grants, void_grants, earliest, late_effects },
            faults: FaultTally::default(),
            coverage: Coverage::default(),
            tenant_hashes: Vec::new(),
            turns: Turns::default(),
        }
    }
}

/// Count of numbers before the faults.
const NUMBERS: usize = 25;
