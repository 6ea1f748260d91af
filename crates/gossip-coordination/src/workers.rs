//! The registry of a tenant's workers and their states.
//!
//! The registry is advisory. An idle worker makes busy ones split; no safety property depends on
//! it. Entries expire, so a dead worker's entry needs no removal.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, Redacted, WorkerId};
use thiserror::Error;

use crate::error::InfraError;
use crate::short_text::ShortText;

/// Lifetime of an entry without a heartbeat, in ticks: two default leases, so that one lost
/// heartbeat does not remove a worker.
pub const WORKER_ENTRY_TTL: u64 = 30_000;

/// Maximum number of registered workers per tenant; it suffices for a large fleet, and bounds the
/// memory that a loop of fresh worker ids can use.
pub(crate) const MAX_WORKERS_PER_TENANT: usize = 10_000;

/// What a worker is doing. The numbers are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum WorkerState {
    /// It has shards.
    Working = 0,
    /// It found nothing to claim.
    Idle = 1,
    /// It hands off or releases its shards and claims no more.
    Draining = 2,
}

impl WorkerState {
    /// Every state, in the order of its number.
    pub const ALL: [Self; 3] = [Self::Working, Self::Idle, Self::Draining];

    /// The state stored under `number`, if there is one.
    #[must_use]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

const _: () = {
    assert!(WorkerState::Working as u8 == 0 && WorkerState::Idle as u8 == 1);
    assert!(WorkerState::Draining as u8 == 2);
};

/// A process, by its number and its start, which distinguishes it from a later process with the
/// same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// Its number in its pid namespace; not zero.
    pub pid: u32,
    /// When it was started, in clock ticks since the start of its host.
    pub started: u64,
}

/// The process of a worker. Only a process of the same host and the same pid namespace can look it
/// up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerProcess {
    /// The boot id of the host: a host that was restarted is another one.
    pub boot: [u8; 16],
    /// The pid namespace.
    pub pid_namespace: u64,
    /// The process.
    pub process: ProcessId,
    /// The process that ends the worker's commands after the worker, if it runs commands.
    pub watcher: Option<ProcessId>,
    /// What people call it, if it said so.
    pub label: Option<WorkerLabel>,
}

/// Maximum length of a host name in a label; longer ones are cut. Linux has no longer ones.
pub(crate) const WORKER_HOST_MAX: usize = 64;

/// Maximum length of a version: `1.2.3-rc.1 (0123456789ab)` and some room.
pub(crate) const VERSION_MAX: usize = 32;

/// What people call the process of a worker. No decision depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerLabel {
    /// The name of its host.
    pub host: ShortText<WORKER_HOST_MAX>,
    /// The version of its program.
    pub version: ShortText<VERSION_MAX>,
    /// How many items it processes at a time.
    pub jobs: u16,
}

/// A registered worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WorkerEntry {
    /// Which worker.
    pub worker: WorkerId,
    /// What it is doing.
    pub state: WorkerState,
    /// The first instant at which the entry is expired, without another heartbeat.
    pub expires_at: LogicalTime,
    /// Its process, if it named one when it registered.
    pub process: Option<WorkerProcess>,
}

impl WorkerEntry {
    /// Creates the entry of a worker whose heartbeat arrived at `now`.
    #[must_use]
    pub const fn heard_of(worker: WorkerId, state: WorkerState, now: LogicalTime) -> Self {
        let expires_at = now.saturating_add(WORKER_ENTRY_TTL);
        Self { worker, state, expires_at, process: None }
    }

    /// Returns the time of the last heartbeat.
    #[must_use]
    pub const fn last_seen(&self) -> LogicalTime {
        LogicalTime::from_raw(self.expires_at.as_raw().saturating_sub(WORKER_ENTRY_TTL))
    }

    /// Updates a known entry and keeps its process. A heartbeat that is older than the known one,
    /// because it was delayed or its clock lags, neither shortens the lifetime nor changes the
    /// state. Beyond a lifetime it is no older one: the worker's clock was ahead and was set back.
    #[must_use]
    pub(crate) fn heard_of_again(
        known: Option<Self>,
        worker: WorkerId,
        state: WorkerState,
        now: LogicalTime,
    ) -> Self {
        let fresh = Self::heard_of(worker, state, now);
        match known {
            Some(known) if known.is_newer_than(&fresh) && !known.is_ahead_of(&fresh) => known,
            // A heartbeat does not name the process, which does not change during a registration.
            Some(known) => Self { process: known.process, ..fresh },
            None => fresh,
        }
    }

    /// Whether a heartbeat made this entry after the one that makes `other`. Of two at the same
    /// instant the one that says that the worker drains is the newer, because a drain is final.
    fn is_newer_than(&self, other: &Self) -> bool {
        let drains = |entry: &Self| entry.state == WorkerState::Draining;
        self.expires_at > other.expires_at
            || (self.expires_at == other.expires_at && drains(self) && !drains(other))
    }

    /// Whether a clock that was ahead made this entry, and not one that makes `other` late.
    fn is_ahead_of(&self, other: &Self) -> bool {
        self.expires_at > other.expires_at.saturating_add(WORKER_ENTRY_TTL)
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

/// Why a registration or a heartbeat failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The worker is not registered, or its entry expired: register again.
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
