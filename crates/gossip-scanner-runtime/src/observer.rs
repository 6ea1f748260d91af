//! What a worker tells of its work while it goes on.
//!
//! Observing never changes what happens: no answer is taken, and nothing waits for an observer
//! longer than its call takes. Keys are shown to the observer, which belongs to the user, and to
//! nobody else.

use std::fmt;

use gossip_contracts::connector::OpenError;
use gossip_contracts::identity::{ShardId, ShardKey};
use gossip_coordination::ParkReason;

use crate::run_plan::OpenedRun;
use crate::task::TaskOutcome;

/// Something that happened.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A run was found or created.
    RunOpened {
        /// Which, and its state.
        opened: OpenedRun,
    },
    /// Abandoned runs were garbage-collected.
    RunsCollected {
        /// How many.
        runs: usize,
    },
    /// Garbage collection failed; the next start tries again.
    CollectionFailed {
        /// What the store returned.
        error: &'a dyn std::error::Error,
    },
    /// A shard was claimed.
    Claimed {
        /// Which.
        shard: ShardKey,
        /// Grants since its last progress, this one included.
        attempts: u32,
    },
    /// A shard has arrived from another worker.
    Arrived {
        /// Which.
        shard: ShardKey,
    },
    /// A shard that was offered to another worker stays here: nobody took it in time, or the move
    /// was taken back.
    Kept {
        /// Which.
        shard: ShardKey,
    },
    /// Items were finished, and the cursor may move past them.
    Covered {
        /// How many.
        items: u64,
        /// Their sizes together, as far as they were known when they were listed.
        bytes: u64,
    },
    /// An item was passed over because it could not be read.
    Unread {
        /// Its key.
        key: &'a [u8],
        /// Why.
        error: OpenError,
    },
    /// Processing an item failed.
    Failed {
        /// Its key.
        key: &'a [u8],
        /// What the processor said.
        message: &'a str,
        /// Whether it is tried again.
        again: bool,
    },
    /// Progress was recorded.
    Checkpointed {
        /// The shard.
        shard: ShardKey,
    },
    /// A part of a shard was given away.
    Split {
        /// The shard.
        shard: ShardKey,
        /// The new one.
        residual: ShardId,
    },
    /// A source could not be listed; it is tried again unless the shard is parked next.
    ListingFailed {
        /// The shard.
        shard: ShardKey,
        /// What the connector said; numbers only.
        error: &'a dyn std::error::Error,
    },
    /// The coordinator refuses what only a mistake of ours can have asked: the shard is parked.
    Refused {
        /// The shard.
        shard: ShardKey,
        /// What it said; numbers only.
        error: &'a str,
    },
    /// A shard is parked; `key` is the item at fault, if it was one.
    Parking {
        /// The shard.
        shard: ShardKey,
        /// Why.
        reason: ParkReason,
        /// The item at fault.
        key: Option<&'a [u8]>,
    },
    /// A worker is done with a shard.
    Ended {
        /// The shard.
        shard: ShardKey,
        /// How.
        outcome: &'a TaskOutcome,
    },
    /// Nothing can be claimed because the run is paused.
    Paused,
    /// The store failed; it is tried again.
    StoreFailed {
        /// What it said.
        error: &'a dyn std::error::Error,
    },
}

// The kind only: keys must not reach a log by way of a debug print.
impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunOpened { .. } => "RunOpened",
            Self::RunsCollected { .. } => "RunsCollected",
            Self::CollectionFailed { .. } => "CollectionFailed",
            Self::Claimed { .. } => "Claimed",
            Self::Arrived { .. } => "Arrived",
            Self::Kept { .. } => "Kept",
            Self::Covered { .. } => "Covered",
            Self::Unread { .. } => "Unread",
            Self::Failed { .. } => "Failed",
            Self::Checkpointed { .. } => "Checkpointed",
            Self::Split { .. } => "Split",
            Self::ListingFailed { .. } => "ListingFailed",
            Self::Refused { .. } => "Refused",
            Self::Parking { .. } => "Parking",
            Self::Ended { .. } => "Ended",
            Self::Paused => "Paused",
            Self::StoreFailed { .. } => "StoreFailed",
        })
    }
}

/// Is told what happens, from any thread of a worker.
pub trait Observer: Sync {
    /// Something happened.
    fn observe(&self, event: Event<'_>);
}

/// Looks away.
impl Observer for () {
    fn observe(&self, _event: Event<'_>) {}
}
