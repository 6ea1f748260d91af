//! The worker's own loop on a bad day, and the same again from the same seed.
//!
//! ```text
//!  seed ─► world: who acts next, when ─► slots, renewers and porters of the worker
//!            │                                │ production coordinator and records of moves
//!            │       rough disk: faults ◄─────┘
//!            └─► desk: a result under a fence ─► oracle: was that allowed?
//! ```
//!
//! A world has one to eight slots in one to eight processes, a source of up to 160 keys, and an
//! administrator. The processes are those of the product: slots, renewer and porter are stepped by
//! a queue of times instead of threads, and everything beneath them, down to the bytes on the disk,
//! is what runs in production. The disk is the simulator's
//! ([`FaultyDisk`](gossip_sim::FaultyDisk)), with its faults; processing is waiting,
//! and some keys fail, fail once, or kill the process.
//!
//! After a while faults stop. Then the run must settle within [`CALM_TICKS_MAX`], exactly the bad
//! keys must be set aside, and the certificate must verify against the source.
//!
//! # Limits
//! - A step of a process is not interrupted by another process; what comes between its read and its
//!   commit is a late message. `cargo xtask sim` plays flights that overlap.
//! - A process that stops does so before a step, with the time that it had read, or after one.

mod admin;
mod oracle;
mod plan;
mod report;
mod settle;
mod source;
mod stage;
mod world;

use gossip_sim::FaultTally;

pub use self::oracle::{Rule, Seen, Violation};
pub use self::report::Totals;
pub use self::world::CALM_TICKS_MAX;

#[cfg(test)]
mod sim_tests;

/// One world to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "everything that decides about a world")]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// Whether what happens is written down.
    pub tells: bool,
}

impl Plan {
    /// The world of a seed, with nothing written down.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        Self { seed, tells: false }
    }

    /// The command that plays this world again.
    #[must_use]
    pub fn command(&self) -> String {
        format!("cargo xtask sim-worker --seed {}", self.seed)
    }
}

/// What a world came to.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "figures of a report")]
pub struct Outcome {
    /// Of the world.
    pub seed: u64,
    /// What was broken first, if anything.
    pub broken: Option<Violation>,
    /// Of everything that happened. Two worlds with the same were the same.
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
    /// Processes that were told to drain.
    pub drains: u64,
    /// What administrators asked for.
    pub requests: u64,
    /// Whether every key was done: none was bad.
    pub is_complete: bool,
    /// What the oracle saw.
    pub seen: Seen,
    /// What went wrong.
    pub faults: FaultTally,
    /// What happened, if it was written down.
    pub story: Vec<String>,
}

/// Plays a world to its end.
#[must_use]
pub fn play(plan: Plan) -> Outcome {
    world::play(plan)
}

/// Plays the worlds of the first `worlds` seeds until a rule is broken. Returns the seed and the
/// violation.
#[must_use]
pub fn first_violation(worlds: u64) -> Option<(u64, Violation)> {
    (0..worlds).find_map(|seed| Some((seed, play(Plan::of_seed(seed)).broken?)))
}
