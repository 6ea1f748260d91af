//! `withdraw`: the lease holder withdraws its offer and may resume work.
//!
//! It commits even without a pending offer. A lease holder whose offer has an unknown outcome
//! withdraws it, and the logged withdrawal rejects the offer if it arrives later.

use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};

use super::{Decision, ShardChange, ShardInputs, ShardTransition, check_fence_floor, stored_time};
use crate::error::WithdrawError;
use crate::handoff::HandoffId;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::request::ShardAction;
use crate::split_execution::hash_withdraw;
use crate::validation::{check_lease, check_sequence, find_replay};

/// Withdraws an offer.
#[derive(Clone, Copy, Debug)]
pub struct Withdraw<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
    /// The handoff.
    pub handoff: HandoffId,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for Withdraw<'_> {
    type Output = ();
    type Error = WithdrawError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), WithdrawError>, WithdrawError> {
        let shard = seen.shard(self.lease.key())?;
        let record = shard.record();
        let payload_hash = hash_withdraw(self.handoff);
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(()));
        }
        check_lease(now, self.tenant, self.lease, record)?;
        check_fence_floor(seen, self.lease)?;
        check_sequence(shard.op_log(), self.lease, self.op_id)?;
        // Another handoff's offer stays: its destination may be accepting it concurrently.
        if record.offer().is_some_and(|offer| offer.handoff != self.handoff) {
            return Err(WithdrawError::NoOffer);
        }

        let requested = record.request().map(|request| request.action());
        // Logged even without a pending offer: the entry rejects an offer that is still in flight.
        let at = stored_time(shard, now);
        assert!(at >= now, "a stored time is at or after now");
        let change = ShardChange::Withdraw {
            handoff: self.handoff,
            drop_request: requested == Some(&ShardAction::Withdraw),
            sequence: self.lease.sequence(),
            entry: OpLogEntry::new(self.op_id, OpKind::Withdraw, payload_hash, at),
        };
        Ok(Decision::commit(change, ()))
    }
}
