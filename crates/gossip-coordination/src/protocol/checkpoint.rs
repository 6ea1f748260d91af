//! `checkpoint`: the owner records how far it has come.

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};
use gossip_stdx::SlabFull;

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, attempts_after_advance, check_no_offer,
    request_expired, shown_request, stored_time,
};
use crate::error::CheckpointError;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::outcome::CheckpointResult;
use crate::split_execution::hash_checkpoint;
use crate::validation::{check_cursor, check_key_present, check_lease, find_replay};

/// An owner records progress.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint<'a> {
    /// The caller.
    pub tenant: TenantId,
    /// Its lease.
    pub lease: &'a Lease,
    /// How far it has come.
    pub cursor: CursorUpdate<'a>,
    /// Its idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for Checkpoint<'_> {
    type Output = CheckpointResult;
    type Error = CheckpointError;

    const CONSULTS_RUN: bool = false;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    // Into its caller: what it returns is large, and copying it would cost as much as deciding.
    #[inline(always)]
    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, CheckpointResult, CheckpointError>, CheckpointError> {
        let shard = seen.shard(self.lease.key())?;
        let record = shard.record();
        let payload_hash = hash_checkpoint(self.cursor);
        // Before the lease is looked at: the reply to a checkpoint may be lost, and the retry come
        // when the lease is gone. What happened has happened, and the caller must hear so.
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(CheckpointResult::default()));
        }
        check_lease(now, self.tenant, self.lease, record)?;
        check_no_offer(record)?;
        check_key_present(self.cursor)?;
        check_cursor(self.cursor, shard.cursor(), shard.spec())?;

        let is_owner = record.lease_owner() == Some(self.lease.owner());
        debug_assert!(is_owner, "the owner is the caller");
        let at = stored_time(shard, now);
        let change = ShardChange::Advance {
            cursor: self.cursor,
            attempts: attempts_after_advance(shard, self.cursor),
            drop_request: request_expired(record, now),
            entry: OpLogEntry::new(self.op_id, OpKind::Checkpoint, payload_hash, at),
        };
        // Busy owners checkpoint more often than they renew, so they hear of requests here too.
        let request = shown_request(record, now);
        Ok(Decision::commit(change, CheckpointResult { request }))
    }

    fn exhausted(full: SlabFull) -> CheckpointError {
        full.into()
    }
}
