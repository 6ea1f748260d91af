//! The state of a session without its backend.

use gossip_contracts::coordination::{
    RestoredShardState, ShardSpec, ShardSpecRef, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, ShardId, TenantId};
use gossip_stdx::InlineVec;

#[cfg(doc)]
use crate::WorkerSession;
use crate::error::{
    CheckpointError, CompleteError, OfferError, ParkError, ReleaseError, SplitError, WithdrawError,
};
use crate::lease::{Lease, OP_LOG_CAP, OpSequence};
use crate::outcome::{CapacityHint, RenewResult};
use crate::record::ShardStatus;
use crate::scratch::{AcquireResultView, ShardSnapshotView};

/// A session while it borrows no backend: [`WorkerSession::detach`] returns it, and
/// [`WorkerSession::attach`] continues it.
///
/// It cannot be cloned, and an operation that ends a session consumes it, so a lease never has two
/// sessions and none after its end.
///
/// The restored state is owned and exactly as large as the shard's bytes. Keeping the scratch
/// instead would save a few small allocations for each grant and cost 52 KiB for each leased shard,
/// and a worker that claimed with its own scratch could not reuse it.
#[derive(Debug)]
pub struct SessionState {
    /// Its deadline only grows. It has no sequence: a call gets a copy that does.
    lease: Lease,
    issued: IssuedOps,
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
            issued: IssuedOps::default(),
            restored,
            spawned: snapshot.spawned().to_vec(),
            status: snapshot.status(),
            parent: snapshot.parent(),
            capacity: acquired.capacity,
            attempts: acquired.attempts,
        }
    }

    /// Returns the lease, without a sequence. Every renewal advances its deadline.
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
        // The maximum: replies of renewals may arrive in another order than they were sent.
        self.lease.set_deadline(self.lease.deadline().max(deadline));
    }

    pub(crate) const fn tenant(&self) -> TenantId {
        self.lease.tenant()
    }

    /// Returns the lease to present with operation `op_id`.
    pub(crate) fn issue(&mut self, op_id: OpId) -> Lease {
        let mut lease = self.lease.clone();
        lease.set_sequence(self.issued.issue(op_id));
        lease
    }

    /// Returns the answer of operation `op_id`, and forgets the id if the answer settles it.
    pub(crate) fn settle<T, E: MaybeExecuted>(
        &mut self,
        op_id: OpId,
        answer: Result<T, E>,
    ) -> Result<T, E> {
        // An operation that may have been executed keeps its sequence for the retry that settles
        // it.
        if !answer.as_ref().is_err_and(E::is_maybe_executed) {
            self.issued.settle(op_id);
        }
        answer
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
        // An empty end is no bound, so every end narrows it.
        if old_end.is_empty() || new_end < old_end {
            self.restored.spec = owned(plan.new_parent());
        }
        // A replayed split returns a residual that the session knows.
        if !self.spawned.contains(&residual) {
            self.spawned.push(residual);
        }
    }
}

/// Operations of a session that may be issued again under the same id, at most. As many as the
/// record's log holds; a caller has one unless it leaves failed operations unresolved.
const UNSETTLED_OPS_MAX: usize = OP_LOG_CAP;

/// The sequence of a session's operations.
#[derive(Debug, Default)]
struct IssuedOps {
    last: OpSequence,
    /// Operations that may have been executed, with their sequences.
    unsettled: InlineVec<(OpId, OpSequence), UNSETTLED_OPS_MAX>,
}

impl IssuedOps {
    /// Returns the sequence of `op_id`: its first one if it is not settled, the next one otherwise.
    fn issue(&mut self, op_id: OpId) -> OpSequence {
        if let Some((_, sequence)) = self.unsettled.iter().find(|(id, _)| *id == op_id) {
            return *sequence;
        }
        // An id that is not in the list could be retried under a second sequence and executed
        // twice. So further operations share one sequence, of which the record executes one.
        if self.unsettled.len() == UNSETTLED_OPS_MAX {
            return self.last;
        }
        self.last = self.last.next();
        self.unsettled.push((op_id, self.last));
        self.last
    }

    fn settle(&mut self, op_id: OpId) {
        if let Some(at) = self.unsettled.iter().position(|(id, _)| *id == op_id) {
            let newest = self.unsettled.len() - 1;
            self.unsettled.swap(at, newest);
            self.unsettled.pop();
        }
    }
}

/// Errors after which the operation may have been executed.
pub(crate) trait MaybeExecuted {
    fn is_maybe_executed(&self) -> bool;
}

macro_rules! maybe_executed {
    ($($error:ident),+) => {$(
        impl MaybeExecuted for $error {
            fn is_maybe_executed(&self) -> bool {
                // A store that failed may have committed. An operation that is too old may have
                // been executed and dropped from the log.
                matches!(self, Self::BackendError(_) | Self::OperationTooOld { .. })
            }
        }
    )+};
}

maybe_executed!(
    CheckpointError,
    CompleteError,
    ParkError,
    SplitError,
    ReleaseError,
    OfferError,
    WithdrawError
);

fn owned(spec: ShardSpecRef<'_>) -> ShardSpec {
    ShardSpec::try_from(spec).expect("a spec that a backend holds was checked on its way in")
}
