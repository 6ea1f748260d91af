//! `complete`: the lease holder marks its shard as done.
//!
//! An empty shard completes at its start key, which is within bounds. No other operation may set
//! the cursor to that key without processing it, because that would skip the item there (DESIGN
//! Q2).

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};
use gossip_stdx::SlabFull;

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, check_fence_floor, check_no_offer,
    stored_time,
};
use crate::error::CompleteError;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::split_execution::hash_complete;
use crate::validation::{
    check_cursor, check_key_present, check_lease, check_sequence, find_replay,
};

/// Completes a shard under its lease.
#[derive(Clone, Copy, Debug)]
pub struct Complete<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
    /// The final cursor.
    pub cursor: CursorUpdate<'a>,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for Complete<'_> {
    type Output = ();
    type Error = CompleteError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    // Inlined: the result is large, and copying it would cost as much as the decision.
    #[inline(always)]
    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), CompleteError>, CompleteError> {
        let shard = seen.shard(self.lease.key())?;
        let payload_hash = hash_complete(self.cursor);
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(()));
        }
        check_lease(now, self.tenant, self.lease, shard.record())?;
        check_fence_floor(seen, self.lease)?;
        check_sequence(shard.op_log(), self.lease, self.op_id)?;
        check_no_offer(shard.record())?;
        // The coverage certificate reports the final key of each shard, so one is required.
        check_key_present(self.cursor)?;
        check_cursor(self.cursor, shard.cursor(), shard.spec())?;

        let is_owner = shard.record().lease_owner() == Some(self.lease.owner());
        assert!(is_owner, "the caller is the lease holder");
        assert!(shard.record().is_leased_at(now), "only a live lease can complete a shard");
        let at = stored_time(shard, now);
        let entry = OpLogEntry::new(self.op_id, OpKind::Complete, payload_hash, at);
        let (cursor, sequence) = (self.cursor, self.lease.sequence());
        Ok(Decision::commit(ShardChange::Complete { cursor, sequence, entry }, ()))
    }

    fn exhausted(full: SlabFull) -> CompleteError {
        full.into()
    }
}
