//! A small registry of the workers of a tenant: who is there, and who has nothing to do.
//!
//! It is advice. An idle worker makes busy ones split; nothing safe depends on it. Entries expire,
//! so a worker that died is forgotten without anybody's help.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, Redacted, WorkerId};
use thiserror::Error;

use crate::error::InfraError;

/// How long an entry lasts without a heartbeat, in ticks: two default leases, so that one lost
/// heartbeat makes nobody disappear.
pub const WORKER_ENTRY_TTL: u64 = 30_000;

/// The most workers that a tenant may register; a fleet of this size registers within bounds, and
/// a runaway loop of fresh names does not fill the memory.
pub const MAX_WORKERS_PER_TENANT: usize = 10_000;

/// What a worker is doing. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum WorkerState {
    /// It has shards.
    Working = 0,
    /// It found nothing to claim.
    Idle = 1,
    /// It gives its shards away and takes no more.
    Draining = 2,
}

impl WorkerState {
    /// Every state, in the order of its number.
    pub const ALL: [Self; 3] = [Self::Working, Self::Idle, Self::Draining];

    /// The state stored under `number`, if there is one.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

const _: () = {
    assert!(WorkerState::Working as u8 == 0 && WorkerState::Idle as u8 == 1);
    assert!(WorkerState::Draining as u8 == 2);
};

/// A registered worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WorkerEntry {
    /// Which worker.
    pub worker: WorkerId,
    /// What it is doing.
    pub state: WorkerState,
    /// The first instant at which it is forgotten unless it is heard of again.
    pub expires_at: LogicalTime,
}

impl WorkerEntry {
    /// What is known of a worker heard of at `now`.
    #[must_use]
    pub const fn heard_of(worker: WorkerId, state: WorkerState, now: LogicalTime) -> Self {
        Self { worker, state, expires_at: now.saturating_add(WORKER_ENTRY_TTL) }
    }

    /// The same of a worker that may be known: a clock that lags never makes it forgotten sooner.
    #[must_use]
    pub fn heard_of_again(
        known: Option<Self>,
        worker: WorkerId,
        state: WorkerState,
        now: LogicalTime,
    ) -> Self {
        let fresh = Self::heard_of(worker, state, now);
        let known_until = known.map_or(LogicalTime::ZERO, |known| known.expires_at);
        Self { expires_at: fresh.expires_at.max(known_until), ..fresh }
    }

    /// Whether the entry still counts.
    #[must_use]
    pub fn is_live_at(&self, now: LogicalTime) -> bool {
        now < self.expires_at
    }
}

impl fmt::Debug for WorkerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerEntry")
            .field("worker", &Redacted::new(self.worker))
            .field("state", &self.state)
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// Why a worker could not be registered or heard.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The worker is not registered, or was forgotten: register again.
    #[error("the worker is not registered")]
    NotRegistered,
    /// Too many workers.
    #[error("a tenant may register at most {max} workers")]
    TooManyWorkers {
        /// The limit.
        max: usize,
    },
    /// The store failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] InfraError),
}
