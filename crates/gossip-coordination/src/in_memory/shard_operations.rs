//! The operations on shards, each one a command handed to the protocol.

use gossip_contracts::coordination::{
    CursorUpdate, MAX_SPLIT_CHILDREN, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId, WorkerId};

use super::InMemoryCoordinator;
use super::table::Slot;
use crate::error::{
    AcquireError, CheckpointError, CompleteError, ParkError, RenewError, SplitReplaceError,
    SplitResidualError,
};
use crate::handoff::HandoffId;
use crate::lease::Lease;
use crate::move_errors::{AcceptError, OfferError, ReleaseError, WithdrawError};
use crate::outcome::{CheckpointResult, IdempotentOutcome, RenewResult};
use crate::protocol::{
    Accept, Acquire, Checkpoint, Complete, Grant, OfferShard, OfferTerms, Park, Release,
    ReleaseMode, Renew, SplitReplace, SplitResidual, Withdraw,
};
use crate::record::ParkReason;
use crate::scratch::{AcquireResultView, AcquireScratch};
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
        let (grant, slot) = self.run_on_shard(now, &acquire)?;
        Ok(self.restore(now, grant.into_inner(), slot, scratch))
    }

    fn renew(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
    ) -> Result<RenewResult, RenewError> {
        let (renewed, slot) = self.run_on_shard(now, &Renew { tenant, lease })?;
        let renewed = renewed.into_inner();
        Ok(RenewResult {
            new_deadline: renewed.new_deadline,
            capacity: self.capacity(now, slot),
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
        let checkpoint = Checkpoint { tenant, lease, cursor, op_id };
        Ok(self.run_on_shard(now, &checkpoint)?.0)
    }

    fn complete(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, CompleteError> {
        Ok(self.run_on_shard(now, &Complete { tenant, lease, cursor, op_id })?.0)
    }

    fn park_shard(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        reason: ParkReason,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ParkError> {
        Ok(self.run_on_shard(now, &Park { tenant, lease, reason, op_id })?.0)
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
        Ok(self.run_on_shard(now, &split)?.0)
    }

    fn split_residual(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitResidualPlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitResidualError> {
        Ok(self.run_on_shard(now, &SplitResidual { tenant, lease, plan, op_id })?.0)
    }

    fn release(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        mode: ReleaseMode,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ReleaseError> {
        Ok(self.run_on_shard(now, &Release { tenant, lease, mode, op_id })?.0)
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
        Ok(self.run_on_shard(now, &OfferShard { tenant, lease, terms, cursor, op_id })?.0)
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
        let (grant, slot) = self.run_on_shard(now, &accept)?;
        Ok(self.restore(now, grant.into_inner(), slot, scratch))
    }

    fn withdraw(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        handoff: HandoffId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, WithdrawError> {
        Ok(self.run_on_shard(now, &Withdraw { tenant, lease, handoff, op_id })?.0)
    }
}

impl InMemoryCoordinator {
    /// Copies the granted shard into `scratch` and shows it with its lease.
    fn restore<'a>(
        &self,
        now: LogicalTime,
        grant: Grant,
        slot: Slot,
        scratch: &'a mut AcquireScratch,
    ) -> AcquireResultView<'a> {
        AcquireResultView {
            lease: grant.lease,
            snapshot: scratch.write_shard(self.view(slot)),
            capacity: self.capacity(now, slot),
            attempts: grant.attempts,
        }
    }
}
