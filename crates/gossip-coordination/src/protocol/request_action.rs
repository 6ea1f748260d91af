//! `request_action`: an administrator, who holds no lease, stores a request to the lease holder.

use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, assert_clock, check_run_not_over,
    live_request,
};
use crate::record::ShardRecord;
use crate::refusal::OpIdReused;
use crate::request::ShardAction;
use crate::run_errors::RequestActionError;
use crate::split_execution::hash_request_action;

/// Requests an action of a shard's lease holder.
#[derive(Clone, Debug)]
pub struct RequestAction {
    /// The tenant.
    pub tenant: TenantId,
    /// The shard.
    pub key: ShardKey,
    /// The requested action.
    pub action: ShardAction,
    /// The first instant at which the request is expired.
    pub expires_at: LogicalTime,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for RequestAction {
    type Output = ();
    type Error = RequestActionError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.key)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), RequestActionError>, RequestActionError> {
        assert_clock(now);
        let (shard, run) =
            seen.shard_and_run(self.key).map_err(|_| RequestActionError::ShardNotFound)?;
        let record = shard.record();
        if record.tenant() != self.tenant {
            return Err(RequestActionError::TenantMismatch { expected: self.tenant });
        }
        let payload_hash = hash_request_action(self.key, &self.action, self.expires_at);
        if self.is_the_stored_one(record, payload_hash)? {
            return Ok(Decision::Replay(()));
        }
        check_run_not_over(&run)?;
        if record.status().is_terminal() {
            return Err(RequestActionError::ShardTerminal { status: record.status() });
        }
        // A request addresses the current lease holder. On a free shard it would reach the next
        // one, to which it does not apply.
        if !record.is_leased_at(now) {
            return Err(RequestActionError::NotLeased);
        }
        // One request at a time; an expired one is overwritten.
        if live_request(record, now).is_some() {
            return Err(RequestActionError::RequestPending);
        }

        assert!(payload_hash != 0, "a payload hash is never zero");
        assert!(record.lease().is_some(), "a request requires a lease holder");
        let (op_id, action, expires_at) = (self.op_id, &self.action, self.expires_at);
        let change = ShardChange::Request { op_id, payload_hash, action, expires_at };
        Ok(Decision::commit(change, ()))
    }
}

impl RequestAction {
    /// Returns whether this request is already stored. Requests are not logged, so idempotency is
    /// checked against the stored request.
    fn is_the_stored_one(
        &self,
        record: &ShardRecord,
        payload_hash: u64,
    ) -> Result<bool, OpIdReused> {
        let Some(stored) = record.request().filter(|stored| stored.op_id == self.op_id) else {
            return Ok(false);
        };
        let expected_hash = stored.payload_hash;
        if expected_hash != payload_hash {
            let op_id = self.op_id;
            return Err(OpIdReused { op_id, expected_hash, actual_hash: payload_hash });
        }
        Ok(true)
    }
}
