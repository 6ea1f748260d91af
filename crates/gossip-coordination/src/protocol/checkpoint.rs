//! `checkpoint`: the lease holder durably advances the cursor.

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};
use gossip_stdx::SlabFull;

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, attempts_after_advance, check_fence_floor,
    check_no_offer, request_expired, shown_request, stored_time,
};
use crate::error::CheckpointError;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::outcome::CheckpointResult;
use crate::split_execution::hash_checkpoint;
use crate::validation::{
    check_cursor, check_key_present, check_lease, check_sequence, find_replay,
};

/// Advances the cursor under a lease.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
    /// The new cursor.
    pub cursor: CursorUpdate<'a>,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for Checkpoint<'_> {
    type Output = CheckpointResult;
    type Error = CheckpointError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    // Inlined: the result is large, and copying it would cost as much as the decision.
    #[inline(always)]
    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, CheckpointResult, CheckpointError>, CheckpointError> {
        let shard = seen.shard(self.lease.key())?;
        let record = shard.record();
        let payload_hash = hash_checkpoint(self.cursor);
        // Before the lease checks: if the reply to a checkpoint is lost, its retry may arrive after
        // the lease has expired. The checkpoint was applied, and the retry must return that.
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(CheckpointResult::default()));
        }
        check_lease(now, self.tenant, self.lease, record)?;
        check_fence_floor(seen, self.lease)?;
        check_sequence(shard.op_log(), self.lease, self.op_id)?;
        check_no_offer(record)?;
        check_key_present(self.cursor)?;
        check_cursor(self.cursor, shard.cursor(), shard.spec())?;

        let is_owner = record.lease_owner() == Some(self.lease.owner());
        assert!(is_owner, "the caller is the lease holder");
        let at = stored_time(shard, now);
        let change = ShardChange::Advance {
            cursor: self.cursor,
            attempts: attempts_after_advance(shard, self.cursor),
            drop_request: request_expired(record, now),
            sequence: self.lease.sequence(),
            entry: OpLogEntry::new(self.op_id, OpKind::Checkpoint, payload_hash, at),
        };
        // Busy workers checkpoint more often than they renew, so requests are delivered here too.
        let request = shown_request(record, now);
        Ok(Decision::commit(change, CheckpointResult { request }))
    }

    fn exhausted(full: SlabFull) -> CheckpointError {
        full.into()
    }
}
