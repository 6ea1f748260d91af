//! The state of a session without its backend.

use gossip_contracts::coordination::{
    RestoredShardState, ShardSpec, ShardSpecRef, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, ShardId, TenantId};

use crate::lease::Lease;
use crate::outcome::{CapacityHint, RenewResult};
use crate::record::ShardStatus;
use crate::scratch::{AcquireResultView, ShardSnapshotView};
#[cfg(doc)]
use crate::{AsyncWorkerSession, WorkerSession};

/// A session while it borrows no backend: [`WorkerSession::detach`] returns it, and
/// [`WorkerSession::attach`] or [`AsyncWorkerSession::attach`] continues it.
///
/// It cannot be cloned, and an operation that ends a session consumes it, so a lease never has two
/// sessions and none after its end.
///
/// The restored state is owned and exactly as large as the shard's bytes. Keeping the scratch
/// instead would save a few small allocations for each grant and cost 52 KiB for each leased shard,
/// and a worker that claimed with its own scratch could not reuse it.
#[derive(Debug)]
pub struct SessionState {
    /// Its deadline only grows.
    lease: Lease,
    /// The range only narrows; the cursor stays as it was acquired.
    restored: RestoredShardState,
    /// In the order in which the session received them.
    spawned: Vec<ShardId>,
    status: ShardStatus,
    parent: Option<ShardId>,
    capacity: CapacityHint,
    attempts: u32,
}

impl SessionState {
    /// Copies a shard that was acquired, claimed or accepted. The scratch can be reused.
    #[must_use]
    pub fn new(acquired: AcquireResultView<'_>) -> Self {
        let snapshot = acquired.snapshot;
        let restored = RestoredShardState::new(
            owned(snapshot.spec()),
            snapshot.cursor().into(),
            snapshot.cursor_semantics(),
        );
        Self {
            lease: acquired.lease,
            restored,
            spawned: snapshot.spawned().to_vec(),
            status: snapshot.status(),
            parent: snapshot.parent(),
            capacity: acquired.capacity,
            attempts: acquired.attempts,
        }
    }

    /// Returns the lease. Every renewal advances its deadline.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the range, narrowed by residual splits, the cursor with which the shard was
    /// acquired, and the cursor semantics.
    #[must_use]
    pub const fn restored(&self) -> &RestoredShardState {
        &self.restored
    }

    /// Returns the number of grants without progress when the shard was acquired.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Applies a renewal of this lease that was made through another handle. A reply that arrives
    /// after a later one does not shorten the lease.
    pub fn extend_to(&mut self, deadline: LogicalTime) {
        self.lease.set_deadline(self.lease.deadline().max(deadline));
    }

    pub(crate) const fn tenant(&self) -> TenantId {
        self.lease.tenant()
    }

    pub(crate) const fn capacity(&self) -> CapacityHint {
        self.capacity
    }

    pub(crate) fn snapshot(&self) -> ShardSnapshotView<'_> {
        ShardSnapshotView::new(
            self.status,
            self.restored.spec.as_spec_ref(),
            self.restored.cursor.as_update(),
            self.restored.cursor_semantics,
            self.parent,
            &self.spawned,
        )
    }

    pub(crate) fn renewed(&mut self, renewed: &RenewResult) {
        self.extend_to(renewed.new_deadline);
        self.capacity = renewed.capacity;
    }

    /// A replayed split may be older than the session's last one, so the range is only ever
    /// narrowed.
    pub(crate) fn narrowed(&mut self, plan: &SplitResidualPlan<'_>, residual: ShardId) {
        let (old_end, new_end) = (self.restored.spec.end(), plan.new_parent().end);
        if old_end.is_empty() || new_end < old_end {
            self.restored.spec = owned(plan.new_parent());
        }
        if !self.spawned.contains(&residual) {
            self.spawned.push(residual);
        }
    }
}

fn owned(spec: ShardSpecRef<'_>) -> ShardSpec {
    ShardSpec::try_from(spec).expect("a spec that a backend holds was checked on its way in")
}
