//! Lifecycle events, as plain data.
//!
//! The kernel produces an event with the change it describes, in commit order, and only when a
//! collector is passed, so other callers pay nothing. A replayed operation emits none, because
//! nothing changed.
//!
//! The coordinator never acts on an event. Metrics, notifications and dashboards are the caller's.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, Redacted, RunId, ShardId, TenantId, WorkerId,
};

use crate::handoff::HandoffId;
use crate::record::ParkReason;

/// An event of a shard or a run.
///
/// Not serialisable on purpose: keys and owners are hidden by `Debug` only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// The shard was granted to a worker.
    ShardAcquired {
        /// The shard.
        shard: ShardId,
        /// The worker.
        worker: Redacted<WorkerId>,
        /// Its fence.
        fence_epoch: FenceEpoch,
    },
    /// The cursor advanced.
    ShardCheckpointed {
        /// The shard.
        shard: ShardId,
        /// How far.
        last_key: RedactedKey,
    },
    /// The shard shrank and a residual was created.
    ShardResidualCreated {
        /// The shard that shrank.
        parent: ShardId,
        /// The new shard.
        residual: ShardId,
    },
    /// A parked shard is active again.
    ShardUnparked {
        /// The shard.
        shard: ShardId,
        /// Its new fence.
        new_fence_epoch: FenceEpoch,
    },
    /// The lease was renewed.
    ShardLeaseRenewed {
        /// The shard.
        shard: ShardId,
        /// Until when.
        new_deadline: LogicalTime,
    },
    /// The shard is done.
    ShardCompleted {
        /// The shard.
        shard: ShardId,
    },
    /// The shard was parked.
    ShardParked {
        /// The shard.
        shard: ShardId,
        /// Why.
        reason: ParkReason,
    },
    /// The shard was replaced by its children.
    ShardSplit {
        /// The shard that ended.
        parent: ShardId,
        /// The new shards, in the order of their ranges.
        children: Vec<ShardId>,
    },
    /// A run was created.
    RunCreated,
    /// The shards of a run were registered.
    RunActivated {
        /// How many.
        shard_count: usize,
    },
    /// A run is done.
    RunCompleted,
    /// A run failed.
    RunFailed,
    /// A run was cancelled.
    RunCancelled,
    /// The lease holder released the shard.
    ShardReleased {
        /// The shard.
        shard: ShardId,
    },
    /// The lease holder offered the shard to another worker.
    ShardOffered {
        /// The shard.
        shard: ShardId,
        /// The handoff.
        handoff: HandoffId,
    },
    /// The lease holder withdrew its offer, pending or delayed.
    ShardOfferWithdrawn {
        /// The shard.
        shard: ShardId,
        /// The handoff.
        handoff: HandoffId,
    },
    /// An administrator requested an action of the lease holder.
    ShardActionRequested {
        /// The shard.
        shard: ShardId,
        /// The requested action.
        action: &'static str,
    },
    /// An administrator revoked the lease.
    ShardLeaseRevoked {
        /// The shard.
        shard: ShardId,
        /// Its new fence.
        new_fence_epoch: FenceEpoch,
    },
    /// The run was paused.
    RunPaused,
    /// The run was resumed.
    RunResumed,
    /// The run and its shards were deleted.
    RunDeleted,
}

impl EventKind {
    /// Whether it is about a shard.
    #[must_use]
    pub const fn is_shard_event(&self) -> bool {
        match self {
            Self::ShardAcquired { .. }
            | Self::ShardCheckpointed { .. }
            | Self::ShardResidualCreated { .. }
            | Self::ShardUnparked { .. }
            | Self::ShardLeaseRenewed { .. }
            | Self::ShardCompleted { .. }
            | Self::ShardParked { .. }
            | Self::ShardSplit { .. }
            | Self::ShardReleased { .. }
            | Self::ShardOffered { .. }
            | Self::ShardOfferWithdrawn { .. }
            | Self::ShardActionRequested { .. }
            | Self::ShardLeaseRevoked { .. } => true,
            Self::RunCreated
            | Self::RunActivated { .. }
            | Self::RunCompleted
            | Self::RunFailed
            | Self::RunCancelled
            | Self::RunPaused
            | Self::RunResumed
            | Self::RunDeleted => false,
        }
    }

    /// Whether it is about a run.
    #[must_use]
    pub const fn is_run_event(&self) -> bool {
        !self.is_shard_event()
    }

    /// Whether a shard or a run ended with it.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        match self {
            Self::ShardCompleted { .. }
            | Self::ShardParked { .. }
            | Self::ShardSplit { .. }
            | Self::RunCompleted
            | Self::RunFailed
            | Self::RunCancelled
            | Self::RunDeleted => true,
            Self::ShardAcquired { .. }
            | Self::ShardCheckpointed { .. }
            | Self::ShardResidualCreated { .. }
            | Self::ShardUnparked { .. }
            | Self::ShardLeaseRenewed { .. }
            | Self::ShardReleased { .. }
            | Self::ShardOffered { .. }
            | Self::ShardOfferWithdrawn { .. }
            | Self::ShardActionRequested { .. }
            | Self::ShardLeaseRevoked { .. }
            | Self::RunCreated
            | Self::RunActivated { .. }
            | Self::RunPaused
            | Self::RunResumed => false,
        }
    }
}

/// A key that logs show only by its length.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedKey(Option<Box<[u8]>>);

impl RedactedKey {
    /// Copies `key`.
    #[must_use]
    pub fn new(key: Option<&[u8]>) -> Self {
        Self(key.map(Into::into))
    }

    /// The key itself.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

impl fmt::Debug for RedactedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(key) => write!(f, "Some(<{} bytes>)", key.len()),
            None => f.write_str("None"),
        }
    }
}

/// An event with its address: whose, which run, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTransitionEvent {
    /// Whose.
    pub tenant: TenantId,
    /// Which run.
    pub run: RunId,
    /// When.
    pub at: LogicalTime,
    /// What.
    pub kind: EventKind,
}

/// Collects the events of operations of one tenant.
#[derive(Debug, Default)]
pub struct EventCollector {
    events: Vec<StateTransitionEvent>,
    /// At most this many are kept; `None` for no ceiling.
    max: Option<usize>,
    /// The tenant of the first event; every other must have the same.
    tenant: Option<TenantId>,
}

impl EventCollector {
    /// An empty collector that allocates when the first event comes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty collector with room for `capacity` events.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { events: Vec::with_capacity(capacity), max: None, tenant: None }
    }

    /// An empty collector that keeps at most `max` events and drops the rest.
    #[must_use]
    pub fn with_max_capacity(max: usize) -> Self {
        Self { events: Vec::new(), max: Some(max), tenant: None }
    }

    /// Stores `event`; returns `false` if it was dropped because the collector is full.
    ///
    /// # Panics
    ///
    /// If the event belongs to another tenant than those before it: a collector that mixes tenants
    /// would carry one tenant's keys into another's logs.
    pub fn emit(&mut self, event: StateTransitionEvent) -> bool {
        self.assert_serves(event.tenant);
        // Also for an event that is dropped below: the tenant is that of the operations.
        self.tenant = Some(event.tenant);
        if self.max.is_some_and(|max| self.events.len() >= max) {
            return false;
        }
        self.events.push(event);
        true
    }

    /// Takes everything out; the collector starts anew without its allocation.
    pub fn drain(&mut self) -> Vec<StateTransitionEvent> {
        std::mem::take(&mut self.events)
    }

    /// Hands every event to `visit` and keeps the allocation.
    pub fn drain_with(&mut self, visit: impl FnMut(StateTransitionEvent)) {
        self.events.drain(..).for_each(visit);
    }

    /// Panics if events of `tenant` must not be stored here.
    ///
    /// A coordinator calls it before an operation commits anything: [`Self::emit`] would panic
    /// afterwards, and the caller would take an applied operation for a failed one.
    ///
    /// # Panics
    ///
    /// If the collector has stored an event of another tenant.
    pub(crate) fn assert_serves(&self, tenant: TenantId) {
        assert!(self.tenant.is_none_or(|served| served == tenant), "a collector serves one tenant");
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The events, in the order of their commits.
    pub fn iter(&self) -> impl Iterator<Item = &StateTransitionEvent> {
        self.events.iter()
    }
}

/// A coordinator that emits events.
///
/// The operation traits do not require it, so that a backend without events needs no collector.
pub trait CollectEvents {
    /// Replaces the active collector; `None` stops collecting. Returns the previous one.
    ///
    /// Without an active collector no event is created.
    fn collect_events(&mut self, events: Option<EventCollector>) -> Option<EventCollector>;

    /// Runs `call` and collects the events of its operations.
    ///
    /// Calls may nest: an event is stored in the innermost collector, and the outer collector is
    /// active again afterwards.
    ///
    /// # Panics
    ///
    /// Panics if an operation of another tenant than the collector's is called, before the
    /// operation commits anything; and if `call` panics. In both cases `events` holds the events
    /// up to that point, and the outer collector is active again.
    fn with_events<R>(
        &mut self,
        events: &mut EventCollector,
        call: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let outer = self.collect_events(Some(std::mem::take(events)));
        // Caught only to restore the collectors: a caller may continue after a panic.
        let result = catch_unwind(AssertUnwindSafe(|| call(self)));
        *events = self.collect_events(outer).unwrap_or_default();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
