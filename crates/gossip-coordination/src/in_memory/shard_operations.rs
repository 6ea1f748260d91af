//! The operations on shards, each one a command handed to the protocol.

use gossip_contracts::coordination::{
    CursorUpdate, MAX_SPLIT_CHILDREN, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId, WorkerId};

use super::InMemoryCoordinator;
use super::table::{Place, Slot};
use crate::error::{
    AcquireError, CheckpointError, CompleteError, ParkError, RenewError, SplitReplaceError,
    SplitResidualError,
};
use crate::handoff::HandoffId;
use crate::lease::{Lease, PlaceHint};
use crate::move_errors::{AcceptError, OfferError, ReleaseError, WithdrawError};
use crate::outcome::{CheckpointResult, IdempotentOutcome, RenewResult};
use crate::protocol::{
    Accept, Acquire, Checkpoint, Complete, Grant, OfferShard, OfferTerms, OwnerEvidence, Park,
    Release, ReleaseMode, Renew, ShardInputs, ShardTransition, SplitReplace, SplitResidual,
    Verdict, Withdraw,
};
use crate::record::ParkReason;
use crate::scratch::{AcquireResultView, AcquireScratch};
use crate::shard_limits::ShardQuota;
use crate::split_execution::{SplitReplaceResult, SplitResidualResult};
use crate::traits::CoordinationBackend;

impl CoordinationBackend for InMemoryCoordinator {
    fn acquire_and_restore_into<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError> {
        let acquire = Acquire { tenant, key, worker, token: self.fresh_grant() };
        let found = self.find(tenant, key);
        self.prefetch_snapshot(found);
        self.prefetch_standing(found);
        let Some(place) = found else {
            return self.acquire_at_length(now, &acquire, None, scratch);
        };
        // What `run_at` does, by the parts of the decision: as a whole it is large, and building it
        // would cost as much as deciding.
        self.assert_collector_serves(tenant);
        let (shard, run) = (self.view(place.slot), self.run(place).record.head());
        let seen = ShardInputs {
            shard: Some(shard),
            run: Some(run),
            quota: ShardQuota::UNLIMITED,
            owner: OwnerEvidence::Gone,
            split_hash_of: &|_| None,
        };
        if acquire.check(now, &seen)? == Verdict::GiveUp {
            return self.acquire_at_length(now, &acquire, found, scratch);
        }
        let grant = acquire.grant(now, shard.record(), &run);
        let committed = self.commit::<Acquire>(now, place, tenant, grant.change(None));
        committed.map_err(Acquire::exhausted)?;
        Ok(self.restore(now, grant, place, scratch))
    }

    fn renew(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
    ) -> Result<RenewResult, RenewError> {
        let found = self.find_leased(tenant, lease);
        self.prefetch_standing(found);
        let renewed = self.run_at(now, &Renew { tenant, lease }, found)?.into_inner();
        Ok(RenewResult {
            new_deadline: renewed.new_deadline,
            capacity: self.capacity(now, found.expect(GRANTED)),
            offer: renewed.offer,
            request: renewed.request,
            run_paused: renewed.run_paused,
        })
    }

    fn checkpoint(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError> {
        self.run_leased(now, lease, &Checkpoint { tenant, lease, cursor, op_id })
    }

    fn complete(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, CompleteError> {
        self.run_leased(now, lease, &Complete { tenant, lease, cursor, op_id })
    }

    fn park_shard(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        reason: ParkReason,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ParkError> {
        self.run_leased(now, lease, &Park { tenant, lease, reason, op_id })
    }

    fn split_replace(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitReplacePlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitReplaceResult>, SplitReplaceError> {
        let children_max = MAX_SPLIT_CHILDREN;
        let split = SplitReplace { tenant, lease, plan, children_max, op_id };
        self.run_leased(now, lease, &split)
    }

    fn split_residual(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitResidualPlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitResidualError> {
        self.run_leased(now, lease, &SplitResidual { tenant, lease, plan, op_id })
    }

    fn release(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        mode: ReleaseMode,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ReleaseError> {
        self.run_leased(now, lease, &Release { tenant, lease, mode, op_id })
    }

    fn offer(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        terms: OfferTerms,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, OfferError> {
        self.run_leased(now, lease, &OfferShard { tenant, lease, terms, cursor, op_id })
    }

    fn accept<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcceptError> {
        let accept = Accept { tenant, key, worker, handoff, token: self.fresh_grant() };
        let found = self.find_far(tenant, key);
        let grant = self.run_at(now, &accept, found)?.into_inner();
        Ok(self.restore(now, grant, found.expect(GRANTED), scratch))
    }

    fn withdraw(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        handoff: HandoffId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, WithdrawError> {
        self.run_leased(now, lease, &Withdraw { tenant, lease, handoff, op_id })
    }
}

/// What an operation that succeeded shows.
const GRANTED: &str = "an operation on a missing shard is refused";

impl InMemoryCoordinator {
    /// Runs an operation of a lease's holder.
    fn run_leased<T: ShardTransition>(
        &mut self,
        now: LogicalTime,
        lease: &Lease,
        operation: &T,
    ) -> Result<IdempotentOutcome<T::Output>, T::Error> {
        let (tenant, _) = operation.subject();
        self.records.prefetch_bytes(Slot(lease.place.shard), &self.pool);
        let found = self.find_leased(tenant, lease);
        self.prefetch_progress(found);
        self.run_at(now, operation, found)
    }

    /// An acquire that finds no shard, or parks it.
    #[cold]
    fn acquire_at_length<'a>(
        &mut self,
        now: LogicalTime,
        acquire: &Acquire,
        found: Option<Place>,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError> {
        let grant = self.run_at(now, acquire, found)?.into_inner();
        Ok(self.restore(now, grant, found.expect(GRANTED), scratch))
    }

    /// Copies the granted shard into `scratch` and shows it with its lease.
    #[inline(always)]
    fn restore<'a>(
        &self,
        now: LogicalTime,
        grant: Grant,
        place: Place,
        scratch: &'a mut AcquireScratch,
    ) -> AcquireResultView<'a> {
        let mut lease = grant.lease;
        lease.place = PlaceHint { shard: place.slot.0, run: place.run.0 };
        AcquireResultView {
            lease,
            snapshot: scratch.write_shard(self.view(place.slot)),
            capacity: self.capacity(now, place),
            attempts: grant.attempts,
        }
    }
}
