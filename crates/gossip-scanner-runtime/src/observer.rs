//! Events of a running worker: those of the coordinator, and those that only the runtime knows.
//!
//! A change of a run or a shard is reported once, by the event that the kernel emits with it
//! ([`Event::Kernel`]; [`Observed`](crate::Observed) passes it on). The other variants are about
//! items, sources, the store and the worker itself.
//!
//! An observer never influences the worker: it returns nothing, and the worker waits for it only
//! during the call. Keys are passed to the observer, which belongs to the user, and are logged
//! nowhere else.

use std::fmt;
use std::time::Duration;

use gossip_contracts::connector::OpenError;
use gossip_contracts::identity::{ShardKey, WorkerId};
use gossip_coordination::{InfraError, StateTransitionEvent, WorkerProcess};

use crate::processor::ItemFailure;
use crate::run_plan::OpenedRun;
use crate::task::TaskOutcome;

/// An event of a worker.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An operation of this worker changed a run or a shard.
    ///
    /// One per committed change, in commit order, after the operation returned. An operation whose
    /// reply was lost and that is found to be applied when it is repeated has none.
    Kernel(&'a StateTransitionEvent),
    /// A run was found or created.
    RunOpened {
        /// Which, and its state.
        opened: OpenedRun,
    },
    /// A run was created and its initial shards were registered.
    ShardsRegistered {
        /// Their number.
        shards: usize,
        /// The number asked for; a source with few keys gets fewer.
        requested: usize,
    },
    /// Abandoned runs were garbage-collected.
    RunsCollected {
        /// How many.
        runs: usize,
    },
    /// Garbage collection failed; the next start retries it.
    CollectionFailed {
        /// What the store returned.
        error: &'a dyn std::error::Error,
    },
    /// A shard was accepted from another worker. The kernel's event of the grant does not show
    /// that it was a handoff.
    Arrived {
        /// Which.
        shard: ShardKey,
    },
    /// A shard that was offered to another worker stays here: no worker accepted it in time, or the
    /// offer was withdrawn.
    Kept {
        /// Which.
        shard: ShardKey,
    },
    /// Items were finished, and the cursor may move past them.
    Covered {
        /// How many.
        items: u64,
        /// The sum of their sizes, as far as the listing has them.
        bytes: u64,
    },
    /// An item was skipped because it could not be read.
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
        /// Why, as the processor reported it.
        failure: &'a ItemFailure,
        /// Whether it is retried.
        again: bool,
    },
    /// The handler has had an item for long, and has not replied since.
    NoReply {
        /// The key of the item.
        key: &'a [u8],
        /// For how long.
        lasted: Duration,
        /// Whether it has never replied.
        is_first: bool,
    },
    /// A source could not be listed; it is retried unless the shard is parked next.
    ListingFailed {
        /// The shard.
        shard: ShardKey,
        /// The connector's error; it contains no keys.
        error: &'a dyn std::error::Error,
        /// The place that cannot be listed, such as a directory; `None` if it is unknown.
        at: Option<&'a [u8]>,
    },
    /// The coordinator refused an operation that only a bug of the runtime can have produced; the
    /// shard is parked.
    Refused {
        /// The shard.
        shard: ShardKey,
        /// The coordinator's error; it contains no keys.
        error: &'a str,
    },
    /// The record of a shard is damaged. The shard is skipped until it is repaired
    /// (`gossip shard repair`); the others are processed. One event per shard and worker.
    Damaged {
        /// The shard.
        shard: ShardKey,
    },
    /// A worker has finished with a shard.
    Ended {
        /// The shard.
        shard: ShardKey,
        /// The outcome.
        outcome: &'a TaskOutcome,
    },
    /// Nothing can be claimed because the run is paused.
    Paused,
    /// Nothing can be claimed until the lease of another worker ends, which the worker does not
    /// renew. Repeated while the wait lasts.
    Waiting {
        /// The lease holder.
        worker: WorkerId,
        /// Its process; unknown if it was never registered, or not with its process.
        process: Option<WorkerProcess>,
        /// Until its lease ends, at the latest.
        left: Duration,
        /// Since its last heartbeat; unknown if it was never registered.
        last_seen: Option<Duration>,
        /// Whether its process is gone and commands of it are still being ended.
        ending: bool,
    },
    /// The store has been unusable for a second. The worker starts no item and retries its
    /// operations with a backoff. Once per outage.
    StoreUnusable {
        /// The store's last error.
        error: &'a InfraError,
        /// How long the worker still waits before it stops.
        patience: Duration,
    },
    /// The store is usable again after an outage that was reported; the worker continues.
    StoreUsable {
        /// How long the outage lasted.
        after: Duration,
    },
}

// The kind only: keys must not reach a log through a debug print.
impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel(_) => "Kernel",
            Self::RunOpened { .. } => "RunOpened",
            Self::ShardsRegistered { .. } => "ShardsRegistered",
            Self::RunsCollected { .. } => "RunsCollected",
            Self::CollectionFailed { .. } => "CollectionFailed",
            Self::Arrived { .. } => "Arrived",
            Self::Kept { .. } => "Kept",
            Self::Covered { .. } => "Covered",
            Self::Unread { .. } => "Unread",
            Self::Failed { .. } => "Failed",
            Self::NoReply { .. } => "NoReply",
            Self::ListingFailed { .. } => "ListingFailed",
            Self::Refused { .. } => "Refused",
            Self::Damaged { .. } => "Damaged",
            Self::Ended { .. } => "Ended",
            Self::Paused => "Paused",
            Self::Waiting { .. } => "Waiting",
            Self::StoreUnusable { .. } => "StoreUnusable",
            Self::StoreUsable { .. } => "StoreUsable",
        })
    }
}

/// Receives events, from any thread of a worker.
pub trait Observer: Sync {
    /// Receives one event.
    fn observe(&self, event: Event<'_>);

    /// Returns whether events of the kernel are to be collected for this observer. Without it they
    /// are not created.
    fn wants_kernel_events(&self) -> bool {
        true
    }
}

/// Ignores all events.
impl Observer for () {
    fn observe(&self, _event: Event<'_>) {}

    fn wants_kernel_events(&self) -> bool {
        false
    }
}
