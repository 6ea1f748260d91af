//! `split_residual`: the parent keeps the left part of its range, a new shard takes the right.
//!
//! The parent stays active and keeps its lease, so its log may drop the entry of the split while
//! the worker still retries it. Its list of spawned shards is never truncated, so a replay is
//! found there ([`find_replayed_residual`]).

use gossip_contracts::coordination::{
    CursorUpdate, SplitResidualPlan, SplitValidationError, validate_residual_parent_cursor,
    validate_residual_split,
};
use gossip_contracts::identity::{LogicalTime, OpId, ShardId, ShardKey, TenantId};
use gossip_stdx::SlabFull;

use super::split_replace::{check_ids_free, check_spawn_cap};
use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, check_fence_floor, check_no_offer,
    check_run_not_over, inherited_attempts, stored_time,
};
use crate::error::SplitResidualError;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::record::{Lineage, NewShard, ShardRecord, ShardView};
use crate::refusal::OpIdReused;
use crate::request::{PendingRequest, ShardAction};
use crate::run::RunHead;
use crate::split_execution::{
    DerivedShardKind, SplitResidualResult, derive_split_shard_id, find_replayed_residual,
    hash_split_residual,
};
use crate::validation::{check_lease, check_sequence, find_replay};

/// Splits off the right part of a shard.
#[derive(Clone, Copy, Debug)]
pub struct SplitResidual<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
    /// The split plan.
    pub plan: &'a SplitResidualPlan<'a>,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for SplitResidual<'_> {
    type Output = SplitResidualResult;
    type Error = SplitResidualError;

    const MAKES_SHARDS: bool = true;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<
        Decision<ShardChange<'_>, SplitResidualResult, SplitResidualError>,
        SplitResidualError,
    > {
        let (shard, run) = seen.shard_and_run(self.lease.key())?;
        let record = shard.record();
        let payload_hash = hash_split_residual(self.plan);
        if let Some(result) = self.replayed(shard, payload_hash, seen)? {
            return Ok(Decision::Replay(result));
        }
        check_lease(now, self.tenant, self.lease, record)?;
        check_fence_floor(seen, self.lease)?;
        check_sequence(shard.op_log(), self.lease, self.op_id)?;
        check_run_not_over(&run)?;
        check_no_offer(record)?;
        // After the offer check: a frozen source must not change the range that it offers.
        self.check_cut(shard)?;
        check_spawn_cap(record.spawned_count(), 1)?;
        seen.quota.check(1).map_err(SplitValidationError::from)?;
        let residual = self.residual_id(record.spawned_count());
        // Last, because the lookup may need a store read; the cheap checks refuse first.
        check_ids_free(&[residual], seen)?;
        assert!(residual.is_derived(), "a residual has a derived id");
        assert!(residual != self.lease.key().shard(), "a residual differs from its parent");
        let (left, right) = (self.plan.new_parent(), self.plan.residual());
        assert!(left.start == shard.spec().start, "the parent keeps its first key");
        assert!(left.end == right.start, "no key lies between the parent and the residual");
        assert!(right.end == shard.spec().end, "the residual ends where its parent ended");

        let at = stored_time(shard, now);
        let change = ShardChange::Shrink {
            spec: self.plan.new_parent(),
            residual: self.residual(residual, record, &run, payload_hash),
            drop_request: fulfils_request(record, self.plan.new_parent().end),
            sequence: self.lease.sequence(),
            entry: OpLogEntry::new(self.op_id, OpKind::SplitResidual, payload_hash, at),
        };
        Ok(Decision::commit(change, SplitResidualResult { residual }))
    }

    fn exhausted(full: SlabFull) -> SplitResidualError {
        full.into()
    }
}

impl SplitResidual<'_> {
    /// Returns the earlier result of this operation, if any. The spawned list holds the residual
    /// even after the log has dropped the entry; the child's split hash then shows whether the
    /// parameters were the same.
    fn replayed(
        &self,
        shard: ShardView<'_>,
        payload_hash: u64,
        seen: &ShardInputs<'_>,
    ) -> Result<Option<SplitResidualResult>, OpIdReused> {
        // Only for the conflict check: the result itself comes from the spawned list.
        find_replay(shard.op_log(), self.op_id, payload_hash)?;
        let Some(residual) = find_replayed_residual(shard, self.op_id) else {
            return Ok(None);
        };
        assert!(residual.is_derived(), "spawned shards have derived ids");
        // Without the child's record the hash is unknown; the parent's list then decides.
        let expected_hash = (seen.split_hash_of)(residual).unwrap_or(payload_hash);
        if expected_hash != payload_hash {
            let op_id = self.op_id;
            return Err(OpIdReused { op_id, expected_hash, actual_hash: payload_hash });
        }
        Ok(Some(SplitResidualResult { residual }))
    }

    /// Checks that the parts tile the old range and that the cursor stays in the parent's part.
    fn check_cut(&self, shard: ShardView<'_>) -> Result<(), SplitValidationError> {
        let (new_parent, residual) = (self.plan.new_parent(), self.plan.residual());
        // The parent keeps its cursor, so a cut at or before it would move items that are done into
        // the residual.
        validate_residual_split(shard.spec(), new_parent, residual)?;
        validate_residual_parent_cursor(shard.cursor().last_key(), new_parent)
    }

    fn residual_id(&self, spawned_count: usize) -> ShardId {
        let key = self.lease.key();
        let index = u32::try_from(spawned_count).expect("spawned is bounded");
        let kind = DerivedShardKind::Residual;
        derive_split_shard_id(key.run(), key.shard(), self.op_id, kind, index)
    }

    /// Returns the residual. Its cursor is initial: the parent's progress lies to the left of it.
    fn residual(
        &self,
        shard: ShardId,
        parent: &ShardRecord,
        run: &RunHead,
        split_hash: u64,
    ) -> NewShard<'_> {
        NewShard {
            shard,
            spec: self.plan.residual(),
            cursor: CursorUpdate::initial(),
            fence: parent.fence_epoch(),
            attempts: inherited_attempts(parent, run),
            cursor_semantics: parent.cursor_semantics(),
            lineage: Some(Lineage { parent: parent.key().shard(), split_hash }),
        }
    }
}

/// Returns whether a split at `cut` fulfils the pending request: any key, or exactly this one.
fn fulfils_request(record: &ShardRecord, cut: &[u8]) -> bool {
    match record.request().map(PendingRequest::action) {
        Some(ShardAction::Split(wanted)) => wanted.as_ref().is_none_or(|key| key.as_bytes() == cut),
        Some(ShardAction::Release | ShardAction::HandOff(_) | ShardAction::Withdraw) | None => {
            false
        }
    }
}
