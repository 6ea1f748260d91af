//! What happened, as plain data.
//!
//! Events come out of the kernel with the change they describe, in the order of the commits, and
//! only when a collector is passed: nobody who does not look pays for them. A replayed operation
//! emits none, because nothing happened.
//!
//! The coordinator never acts on an event. Metrics, notifications and dashboards are the caller's.

use std::fmt;

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, Redacted, RunId, ShardId, TenantId, WorkerId,
};

use crate::handoff::HandoffId;
use crate::record::ParkReason;

/// What happened to a shard or a run.
///
/// Not serialisable on purpose: keys and owners are hidden by `Debug` only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// A worker got the shard.
    ShardAcquired {
        /// The shard.
        shard: ShardId,
        /// The worker.
        worker: Redacted<WorkerId>,
        /// Its fence.
        fence_epoch: FenceEpoch,
    },
    /// The cursor moved.
    ShardCheckpointed {
        /// The shard.
        shard: ShardId,
        /// How far.
        last_key: RedactedKey,
    },
    /// The shard shrank and a residual was born.
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
    /// The lease lasts longer.
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
    /// The shard was set aside.
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
    /// A run was made.
    RunCreated,
    /// A run got its shards.
    RunActivated {
        /// How many.
        shard_count: usize,
    },
    /// A run is done.
    RunCompleted,
    /// A run was given up.
    RunFailed,
    /// A run was stopped.
    RunCancelled,
    /// Added: the owner gave the shard back.
    ShardReleased {
        /// The shard.
        shard: ShardId,
    },
    /// Added: the owner offered the shard to another worker.
    ShardOffered {
        /// The shard.
        shard: ShardId,
        /// The planned move.
        handoff: HandoffId,
    },
    /// Added: the owner took its offer back, or made sure that none is on its way.
    ShardOfferWithdrawn {
        /// The shard.
        shard: ShardId,
        /// The planned move.
        handoff: HandoffId,
    },
    /// Added: an administrator asked something of the owner.
    ShardActionRequested {
        /// The shard.
        shard: ShardId,
        /// What was asked.
        action: &'static str,
    },
    /// Added: an administrator took the lease away.
    ShardLeaseRevoked {
        /// The shard.
        shard: ShardId,
        /// Its new fence.
        new_fence_epoch: FenceEpoch,
    },
    /// Added: starting shards is suspended.
    RunPaused,
    /// Added: shards may be started again.
    RunResumed,
    /// Added: the run and its shards are gone.
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

    /// Keeps `event`; answers `false` if it was dropped because the collector is full.
    ///
    /// # Panics
    ///
    /// If the event belongs to another tenant than those before it: a collector that mixes tenants
    /// would carry one tenant's keys into another's logs.
    pub fn emit(&mut self, event: StateTransitionEvent) -> bool {
        let tenant = *self.tenant.get_or_insert(event.tenant);
        assert!(tenant == event.tenant, "a collector serves one tenant");
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

    /// Whether events of `tenant` may come here: any tenant's may, until the first has come.
    #[must_use]
    pub fn serves(&self, tenant: TenantId) -> bool {
        self.tenant.is_none_or(|served| served == tenant)
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
