//! Stored lifecycle events: a ring for each writing process, in the store of the run.
//!
//! A lifecycle event is put, without a compare, in the commit that it describes. A writing process
//! numbers its own events of a run, so writers never conflict, and keeps the last
//! [`EVENTS_PER_WRITER`] of them. Checkpoints, renewals and confirmations of grants have none.
//!
//! # Numbers
//!
//! A number is taken for each try of a commit, so a number may never be stored: its try lost a
//! race. A gap between numbers therefore says nothing. What a reader may conclude is in
//! [`StoredEvent::earlier`]: so many events of the writer were known to be stored when this one was
//! written, and those that are not there have been overwritten.
//!
//! # Never
//! - holds a byte of a key, a token or a text of a user: ids, numbers and reasons only.

use gossip_contracts::identity::{LogicalTime, Redacted, ShardId, WorkerId};

use crate::events::EventKind;
use crate::protocol::{RunChange, ShardChange};

/// Events of one run that a writing process keeps: the last few hundred grants, splits and ends,
/// which is the whole history of a process that works on a hundred shards. Their records are about
/// 200 bytes long with their keys, so a thousand processes take 100 MB, a twentieth of the default
/// quota of etcd; and all of a writer's fit one page of a scan, so they are read in one snapshot.
pub const EVENTS_PER_WRITER: u16 = 512;

/// A process, as a writer of events of one run: a random number, of no meaning elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventWriter(u64);

impl EventWriter {
    /// The writer of this number.
    #[must_use]
    pub const fn from_raw(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }
}

/// A lifecycle event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the fields of a stored record")]
pub struct StoredEvent {
    /// The process that wrote it.
    pub writer: EventWriter,
    /// Its number among those of the writer. Not every number was used.
    pub sequence: u64,
    /// How many other events of the writer were certainly stored when this one was written: those
    /// whose commits were acknowledged. At least so many minus those that a reader has seen are
    /// lost to it.
    pub earlier: u64,
    /// When, by the clock of the writer.
    pub at: LogicalTime,
    /// The worker that got the lease, or that held it before the change; `None` for events of a
    /// run, and of a shard without a lease.
    pub worker: Option<Redacted<WorkerId>>,
    /// The worker whose lease a grant replaced: it had run out, or the shard was handed over.
    pub previous: Option<Redacted<WorkerId>>,
    /// What happened: no checkpoint, no renewal, and no deletion of the run.
    pub kind: EventKind,
}

impl StoredEvent {
    /// Returns the slot of the writer's ring in which the event of this number is stored.
    #[must_use]
    pub const fn slot_of(sequence: u64) -> u16 {
        // Below the length of the ring, which is a `u16`.
        (sequence % EVENTS_PER_WRITER as u64) as u16
    }
}

/// A lifecycle event before it has a number.
#[derive(Clone, Debug)]
pub(crate) struct Lifecycle {
    pub(crate) worker: Option<Redacted<WorkerId>>,
    pub(crate) previous: Option<Redacted<WorkerId>>,
    pub(crate) kind: EventKind,
}

impl Lifecycle {
    /// Returns the lifecycle event of `change`, made while `holder` held the shard.
    pub(crate) fn of_shard(
        change: &ShardChange<'_>,
        shard: ShardId,
        holder: Option<WorkerId>,
    ) -> Option<Self> {
        let kind = change.is_lifecycle().then(|| change.event(shard)).flatten()?;
        let (worker, previous) = match change {
            ShardChange::Grant { holder: granted, .. } => (Some(granted.owner()), holder),
            ShardChange::Confirm { .. }
            | ShardChange::Advance { .. }
            | ShardChange::Renew { .. }
            | ShardChange::Complete { .. }
            | ShardChange::Park { .. }
            | ShardChange::Replace { .. }
            | ShardChange::Shrink { .. }
            | ShardChange::Unpark { .. }
            | ShardChange::Release { .. }
            | ShardChange::Offer { .. }
            | ShardChange::Withdraw { .. }
            | ShardChange::Request { .. }
            | ShardChange::Revoke { .. } => (holder, None),
        };
        let (worker, previous) = (worker.map(Redacted::new), previous.map(Redacted::new));

        Some(Self { worker, previous, kind })
    }

    /// Returns the lifecycle event of `change`.
    pub(crate) fn of_run(change: &RunChange<'_>) -> Option<Self> {
        // A deletion removes the events of the run, so its own would be without a reader.
        let is_kept = !matches!(change, RunChange::Delete(_));
        let kind = change.event().filter(|_| is_kept)?;
        Some(Self { worker: None, previous: None, kind })
    }

    /// Returns the event with its number and time.
    pub(crate) fn numbered(self, number: EventNumber, at: LogicalTime) -> StoredEvent {
        let EventNumber { writer, sequence, earlier } = number;
        let Self { worker, previous, kind } = self;
        StoredEvent { writer, sequence, earlier, at, worker, previous, kind }
    }
}

/// A number for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventNumber {
    pub(crate) writer: EventWriter,
    pub(crate) sequence: u64,
    pub(crate) earlier: u64,
}
