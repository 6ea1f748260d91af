//! `park_shard`: the lease holder parks its shard because of an error.

use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, check_fence_floor, check_no_offer,
    stored_time,
};
use crate::error::ParkError;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::park_context::ParkContext;
use crate::record::ParkReason;
use crate::split_execution::hash_park;
use crate::validation::{check_lease, check_sequence, find_replay};

/// Parks a shard under its lease.
#[derive(Clone, Copy, Debug)]
pub struct Park<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
    /// The park reason.
    pub reason: ParkReason,
    /// The text for people. Not part of the payload hash: it has no effect on the protocol, and a
    /// worker that retries may describe the error in other words.
    pub context: ParkContext<'a>,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for Park<'_> {
    type Output = ();
    type Error = ParkError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), ParkError>, ParkError> {
        let shard = seen.shard(self.lease.key())?;
        let payload_hash = hash_park(self.reason);
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(()));
        }
        check_lease(now, self.tenant, self.lease, shard.record())?;
        check_fence_floor(seen, self.lease)?;
        check_sequence(shard.op_log(), self.lease, self.op_id)?;
        check_no_offer(shard.record())?;

        // The run status is not checked: parking starts no work, so it is allowed while the run is
        // paused or terminal.
        let is_owner = shard.record().lease_owner() == Some(self.lease.owner());
        assert!(is_owner, "the caller is the lease holder");
        assert!(shard.record().is_leased_at(now), "only a live lease can park a shard");
        let at = stored_time(shard, now);
        let entry = OpLogEntry::new(self.op_id, OpKind::Park, payload_hash, at);
        let (reason, context, sequence) = (self.reason, self.context, self.lease.sequence());
        let change = ShardChange::Park { reason, context, sequence, entry: Some(entry) };
        Ok(Decision::commit(change, ()))
    }
}
