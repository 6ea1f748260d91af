//! `withdraw`: the owner takes its offer back and may go on working.
//!
//! With no offer standing it still commits. An owner that does not know whether its offer arrived
//! withdraws it, and the commit shuts out an offer that is still on its way.

use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};

use super::{Decision, ShardChange, ShardInputs, ShardTransition, stored_time};
use crate::handoff::HandoffId;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::move_errors::WithdrawError;
use crate::request::ShardAction;
use crate::split_execution::hash_withdraw;
use crate::validation::{check_lease, find_replay};

/// An owner takes its offer back.
#[derive(Clone, Copy, Debug)]
pub struct Withdraw<'a> {
    /// The caller.
    pub tenant: TenantId,
    /// Its lease.
    pub lease: &'a Lease,
    /// Which planned move.
    pub handoff: HandoffId,
    /// Its idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for Withdraw<'_> {
    type Output = ();
    type Error = WithdrawError;

    const CONSULTS_RUN: bool = false;

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
        // Another move's offer stays: its destination may be accepting it this moment.
        if record.offer().is_some_and(|offer| offer.handoff != self.handoff) {
            return Err(WithdrawError::NoOffer);
        }

        let asked = record.request().map(|request| request.action());
        let at = stored_time(shard, now);
        assert!(at >= now, "stored times never fall");
        let change = ShardChange::Withdraw {
            handoff: self.handoff,
            drop_request: asked == Some(&ShardAction::Withdraw),
            entry: OpLogEntry::new(self.op_id, OpKind::Withdraw, payload_hash, at),
        };
        Ok(Decision::commit(change, ()))
    }
}
