//! A worker: one process that works on shards of one run until the run is settled.
//!
//! ```text
//!   runner 0 ─┐  each: own coordinator handle, own processor
//!   runner 1 ─┼─ claim ─► ShardTask, stepped ─► next claim
//!   runner n ─┘
//!   renewer ── every lease at a third of its duration, heartbeats, requests ─► lease slots
//! ```
//!
//! A worker ends when the run is settled, when it has drained, or when it cannot continue. It
//! always releases its shards with their progress, except when the store is unusable: then their
//! leases expire. An unusable store (unreachable, or without space) is waited for: no item is
//! started meanwhile, and the worker ends when its patience is used up (`store_health.rs`).
//!
//! All threads of a process die together. Therefore a shard on its last attempt is processed while
//! the other threads pause (`quarantine.rs`).
//!
//! # Never
//! - treats a lost lease as an error: the new lease holder continues the shard;
//! - lets a panic escape: a panic in the task of a shard parks the shard and the other threads
//!   continue, and a panic in any other part of a thread drains the worker;
//! - stops because the record of a shard is damaged: the shard is reported and skipped;
//! - reads a clock or draws a random number: both are arguments.

mod damaged;
mod handoff_thread;
mod lease_slot;
mod notify;
mod orphans;
mod parked_retry;
mod quarantine;
mod records;
mod renewer;
mod shard_runner;
mod sharing;
mod store_health;
mod sync;
mod worker_shared;

#[cfg(test)]
mod again_tests;
#[cfg(test)]
mod clock_step_tests;
#[cfg(test)]
mod damaged_tests;
#[cfg(test)]
mod moves_tests;
#[cfg(test)]
mod orphans_tests;
#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod panic_tests;
#[cfg(test)]
mod parked_retry_tests;
#[cfg(test)]
mod poison_tests;
#[cfg(test)]
mod quarantine_tests;
#[cfg(test)]
mod renewer_tests;
#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
mod shuttle_tests;
#[cfg(test)]
mod stopped_clock;
#[cfg(test)]
mod store_health_tests;
#[cfg(test)]
mod worker_tests;

use std::time::Duration;

use gossip_contracts::identity::{RunId, TenantId, WorkerId};
use gossip_coordination::{InfraError, RunStatus};
use thiserror::Error;

pub use self::handoff_thread::{HANDOFF_WAIT_MAX, HandoffThread, worker_of};
pub use self::orphans::revoke_orphan;
pub use self::renewer::Renewer;
pub use self::shard_runner::{RUNNER_WAIT_MAX, Rest, ShardRunner};
pub use self::worker_shared::{Drain, Parts, WorkerShared, work};
use crate::processor::Broken;
use crate::task::TaskConfig;
use crate::throttle::Limits;

/// Maximum number of threads of one worker: each may hold a page and a handler.
pub const MAX_THREADS: usize = 256;

/// Default of [`WorkerConfig::store_patience`], ten minutes: enough for an operator to make room on
/// a disk or to restart a cluster.
pub const STORE_PATIENCE: Duration = Duration::from_mins(10);

/// The settings of a worker.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The tenant of the run.
    pub tenant: TenantId,
    /// The run to work on.
    pub run: RunId,
    /// The worker's id; no two processes share one.
    pub worker: WorkerId,
    /// The lease duration of this run, in ticks.
    pub lease_ticks: u64,
    /// How many shards are processed concurrently; at least one, at most [`MAX_THREADS`].
    pub threads: usize,
    /// The settings of each shard's task.
    pub task: TaskConfig,
    /// The rate limit of item starts.
    pub limits: Limits,
    /// Stop when this worker has parked more shards than this: the cause is then more than a few
    /// bad keys.
    pub max_parked: usize,
    /// Whether an idle runner requests splits of busy shards, including those of this worker.
    pub auto_split: bool,
    /// How long the worker waits for an unusable store before it stops, in ticks. Zero: it stops
    /// at the first failure. Leases expire meanwhile; the worker claims its shards again.
    pub store_patience: u64,
    /// The seed of all jitter.
    pub seed: u64,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each has an exit code of its own")]
pub enum Finish {
    /// Every shard is done, and the run is complete.
    Complete,
    /// Every shard is done, parked or damaged.
    Incomplete {
        /// How many are parked.
        parked: u64,
        /// How many have a damaged record.
        damaged: u64,
    },
    /// The run ended with this status while the worker was running.
    RunOver(RunStatus),
    /// The worker drained; its progress is checkpointed.
    Drained,
    /// The worker drained while the store was unusable. If it held shards, they are not released:
    /// items since their last checkpoints are processed again when their leases have expired.
    DrainedUnsaved,
}

impl Finish {
    /// Returns the finish that belongs to a run with this status.
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

/// Why a worker stopped. Progress up to that point is checkpointed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunWorkerError {
    /// The tenant has no such run.
    #[error("no such run")]
    RunNotFound,
    /// The store refused an operation for a reason that does not pass.
    #[error("the store failed: {0}")]
    Store(InfraError),
    /// The store was unusable for longer than the worker waits.
    #[error("the store was unusable for {} s: {error}", waited.as_secs())]
    StoreUnusable {
        /// The store's last error.
        error: InfraError,
        /// How long it was unusable.
        waited: Duration,
    },
    /// The processor is unusable.
    #[error("{0}")]
    Broken(Broken),
    /// The worker parked more shards than its settings allow.
    #[error("shards parked: {parked}, more than the {max} allowed")]
    TooManyParked {
        /// How many.
        parked: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A thread of the worker panicked outside of any shard's task: a bug. The other threads have
    /// drained.
    #[error("a bug: the {thread} panicked")]
    Panicked {
        /// Which thread.
        thread: &'static str,
    },
}
