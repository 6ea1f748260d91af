//! A worker: one process that goes through shards of one run until there is nothing left to do.
//!
//! ```text
//!   runner 0 ─┐  each: own coordinator handle, own processor
//!   runner 1 ─┼─ claim ─► ShardTask, stepped ─► next claim
//!   runner n ─┘
//!   renewer ── all leases at a third of their time, heartbeats, requests ─► slots
//! ```
//!
//! A worker ends when the run is settled, when it is told to drain, or when it cannot go on. It
//! always gives its shards back with their progress, except when the store does not answer: then
//! the leases run out.
//!
//! Threads share the death of their process, so a shard on its last chance is worked on while the
//! others rest (`quarantine.rs`).
//!
//! # Never
//! - takes a lost shard for an error: somebody else goes on with it;
//! - lets a panic out of a shard: the shard is parked, and the others go on;
//! - reads a clock or draws a random number of its own: both are arguments.

mod claiming;
mod handoff_thread;
mod lease_slot;
mod notify;
mod quarantine;
mod records;
mod renewer;
mod shard_runner;
mod sharing;
mod sync;
mod worker_shared;

#[cfg(test)]
mod again_tests;
#[cfg(test)]
mod moves_tests;
#[cfg(test)]
mod poison_tests;
#[cfg(test)]
mod quarantine_tests;
#[cfg(test)]
mod shuttle_tests;
#[cfg(test)]
mod stopped_clock;
#[cfg(test)]
mod worker_tests;

use gossip_contracts::identity::{RunId, TenantId, WorkerId};
use gossip_coordination::{InfraError, RunStatus};
use thiserror::Error;

pub use self::handoff_thread::{HANDOFF_WAIT_MAX, HandoffThread, worker_of};
pub use self::renewer::Renewer;
pub use self::shard_runner::{RUNNER_WAIT_MAX, Rest, ShardRunner};
pub use self::worker_shared::{Drain, Parts, WorkerShared, work};
use crate::processor::Broken;
use crate::task::TaskConfig;
use crate::throttle::Limits;

/// The most threads of one worker: each may hold a page and a handler.
pub const MAX_THREADS: usize = 256;

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Whose run.
    pub tenant: TenantId,
    /// Which run.
    pub run: RunId,
    /// The worker's name; no two processes share one.
    pub worker: WorkerId,
    /// How long a lease of this run lasts, in ticks.
    pub lease_ticks: u64,
    /// Shards at once; at least one, at most [`MAX_THREADS`].
    pub threads: usize,
    /// How each shard is worked on.
    pub task: TaskConfig,
    /// How fast items may be started.
    pub limits: Limits,
    /// Stop when this worker has set more shards aside: something is wrong with more than keys.
    pub max_parked: usize,
    /// Whether this worker asks busy ones, itself included, to share when it has nothing to do.
    pub auto_split: bool,
    /// What the jitter is drawn from.
    pub seed: u64,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each has an exit code of its own")]
pub enum Finish {
    /// Every shard is done, and so is the run.
    Complete,
    /// Every shard is done or set aside.
    Incomplete {
        /// How many are set aside.
        parked: u64,
    },
    /// The run was ended by somebody.
    RunOver(RunStatus),
    /// The worker was told to stop; progress is recorded.
    Drained,
}

impl Finish {
    /// How a run with this status has ended.
    #[must_use]
    pub const fn of_run(status: RunStatus) -> Self {
        match status {
            RunStatus::Done => Self::Complete,
            RunStatus::Initializing
            | RunStatus::Active
            | RunStatus::Failed
            | RunStatus::Cancelled => Self::RunOver(status),
        }
    }
}

/// Why a worker could not go on. What was finished is recorded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunWorkerError {
    /// The tenant has no such run.
    #[error("no such run")]
    RunNotFound,
    /// The store does not answer, or says no.
    #[error("the store failed: {0}")]
    Store(InfraError),
    /// The processor cannot work.
    #[error("{0}")]
    Broken(Broken),
    /// Too much was set aside.
    #[error("{parked} shards parked, more than the {max} allowed")]
    TooManyParked {
        /// How many.
        parked: usize,
        /// How many are allowed.
        max: usize,
    },
}
