//! Deterministic simulation of the worker's loop under faults.
//!
//! ```text
//!  seed ─► world: event queue ─► slots, renewers and handoff threads of the worker
//!            │                                │ production coordinator and handoff records
//!            │      faulty disk: faults ◄─────┘
//!            └─► processing: a result under a fence ─► oracle: checks the rules
//! ```
//!
//! A world has one to eight slots in one to eight processes, a source of up to 160 keys, and an
//! administrator. The processes run production code: slots, renewer and handoff thread are stepped
//! by an event queue instead of threads, and the layers below them are those of production, down to
//! the bytes on the disk. The disk is the simulator's
//! ([`FaultyDisk`](gossip_sim::FaultyDisk)), with its faults; processing is waiting,
//! and some keys fail, fail once, or kill the process.
//!
//! After a while faults stop. Then the run must settle within [`CALM_TICKS_MAX`], exactly the bad
//! keys must be failed or parked, and the certificate must verify against the source.
//!
//! # Limits
//! - A step of a process is not interrupted by another process; only a late message can arrive
//!   between its read and its commit. `cargo xtask sim` covers overlapping flights.
//! - A process stops only before a step, with the time that it had read, or after a step.

mod admin;
mod oracle;
mod plan;
mod report;
mod settle;
mod shared_state;
mod sink;
mod source;
mod world;

use gossip_sim::FaultTally;

pub use self::oracle::{Rule, Seen, Violation};
pub use self::report::Totals;
pub use self::world::CALM_TICKS_MAX;

#[cfg(test)]
mod sim_tests;

/// Parameters of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the parameters of a world")]
pub struct Plan {
    /// Determines the world.
    pub seed: u64,
    /// Whether to record events.
    pub is_traced: bool,
}

impl Plan {
    /// Returns the world of a seed, without a record of events.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        Self { seed, is_traced: false }
    }

    /// Returns the command that reproduces this world.
    #[must_use]
    pub fn command(&self) -> String {
        format!("cargo xtask sim-worker --seed {}", self.seed)
    }
}

/// Result of a world.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "figures of a report")]
pub struct Outcome {
    /// Of the world.
    pub seed: u64,
    /// The first violation, if any.
    pub broken: Option<Violation>,
    /// Hash of all events. Equal hashes mean equal worlds.
    pub trace: u64,
    /// Steps of slots, renewers and porters.
    pub steps: u64,
    /// Ticks until the run settled.
    pub ticks: u64,
    /// Of them after the last fault.
    pub calm_ticks: u64,
    /// Processes that were started, and those of them that died.
    pub started: u64,
    /// Processes that died.
    pub deaths: u64,
    /// Processes that were requested to drain.
    pub drains: u64,
    /// Requests of the administrator.
    pub requests: u64,
    /// How often the operator unparked shards and started workers again.
    pub retries: u64,
    /// Workers that ended with an error, and were started again.
    pub failures: u64,
    /// Whether every key was processed: none was bad.
    pub is_complete: bool,
    /// Counters of the oracle.
    pub seen: Seen,
    /// Injected faults.
    pub faults: FaultTally,
    /// The events, if they were recorded.
    pub events: Vec<String>,
}

/// Runs a world to its end.
#[must_use]
pub fn run(plan: Plan) -> Outcome {
    world::run(plan)
}

/// Runs the worlds of the first `worlds` seeds until a rule is violated. Returns the seed and the
/// violation.
#[must_use]
pub fn first_violation(worlds: u64) -> Option<(u64, Violation)> {
    (0..worlds).find_map(|seed| Some((seed, run(Plan::of_seed(seed)).broken?)))
}
