//! The totals of many worlds as a table.

use std::fmt::Write as _;
use std::time::Duration;

use gossip_sim::{FaultKind, FaultTally, FaultyDisk};

use super::oracle::Seen;
use super::{CALM_TICKS_MAX, Outcome};

/// Sums over worlds.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    worlds: u64,
    broken: u64,
    complete: u64,
    steps: u64,
    ticks: u64,
    /// The longest settling time after the last fault, with its seed.
    slowest: (u64, u64),
    started: u64,
    deaths: u64,
    drains: u64,
    requests: u64,
    retries: u64,
    failures: u64,
    seen: Seen,
    faults: FaultTally,
    /// Trace hash of all worlds, in their order.
    trace: u64,
}

impl Totals {
    /// Adds a world.
    pub fn add(&mut self, outcome: &Outcome) {
        self.worlds += 1;
        self.broken += u64::from(outcome.broken.is_some());
        self.complete += u64::from(outcome.is_complete);
        self.steps += outcome.steps;
        self.ticks += outcome.ticks;
        self.slowest = self.slowest.max((outcome.calm_ticks, outcome.seed));
        self.started += outcome.started;
        self.deaths += outcome.deaths;
        self.drains += outcome.drains;
        self.requests += outcome.requests;
        self.retries += outcome.retries;
        self.failures += outcome.failures;
        self.seen.add(&outcome.seen);
        self.faults.add(&outcome.faults);
        self.trace = gossip_sim::mix(self.trace ^ outcome.trace);
    }

    /// Returns the sums of the counters of all worlds.
    #[must_use]
    pub const fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Returns the number of occurrences of a fault.
    #[must_use]
    pub fn faults(&self, kind: FaultKind) -> u64 {
        self.faults.of(kind)
    }

    /// Returns the table of a campaign with its duration.
    #[must_use]
    pub fn table(&self, took: Duration) -> String {
        let seen = &self.seen;
        let rate = self.worlds as f64 / took.as_secs_f64();
        let rows = [
            ("worlds", self.worlds.to_string()),
            ("worlds with a broken rule", self.broken.to_string()),
            ("worlds a second", format!("{rate:.0}")),
            ("hours of virtual time", format!("{:.1}", self.ticks as f64 / 3_600_000.0)),
            ("steps of slots, renewers and handoff threads", self.steps.to_string()),
            ("transactions", seen.commits.to_string()),
            ("processes started", self.started.to_string()),
            ("… killed", self.deaths.to_string()),
            ("… requested to drain", self.drains.to_string()),
            ("requests of administrators", self.requests.to_string()),
            ("… ended with an error, started again", self.failures.to_string()),
            ("runs that an operator retried", self.retries.to_string()),
            ("grants of shards", seen.grants.to_string()),
            ("… by handoffs", seen.moves.to_string()),
            ("releases", seen.releases.to_string()),
            ("splits", seen.splits.to_string()),
            ("… shards replaced", seen.replaced.to_string()),
            ("… before the true end of a lease", seen.granted_early.to_string()),
            ("… before a deadline that was void", seen.granted_void.to_string()),
            ("parked shards", seen.parks.to_string()),
            ("… by the count of attempts", seen.parked_by_count.to_string()),
            ("keys begun after the true end of their lease", seen.begun_late.to_string()),
            ("results taken", seen.accepted.to_string()),
            ("… of keys that had one", seen.redone.to_string()),
            ("results refused by their fence", seen.refused.to_string()),
            ("runs without a bad key, certificate complete", self.complete.to_string()),
            (
                "longest settling after the last fault, in seconds",
                format!(
                    "{:.1} of {:.0} allowed (seed {})",
                    self.slowest.0 as f64 / 1_000.0,
                    CALM_TICKS_MAX as f64 / 1_000.0,
                    self.slowest.1
                ),
            ),
            ("trace of all worlds", format!("`{:016x}`", self.trace)),
        ];
        let mut table = String::from("| what | how many |\n|---|---|\n");
        for (what, count) in rows {
            // Writing to a string does not fail.
            let _ = writeln!(table, "| {what} | {count} |");
        }
        table.push_str("\n| fault | what it is | class | how often |\n|---|---|---|---|\n");
        for kind in FaultyDisk::KINDS {
            let (name, what, count) = (kind.name(), kind.what(), self.faults.of(*kind));
            let class = kind.class().name();
            let _ = writeln!(table, "| {name} | {what} | {class} | {count} |");
        }
        table
    }
}
