//! `revoke_lease`: an administrator frees a shard whose dead lease holder has a distant deadline.
//!
//! The fence increases, so a lease holder that is still alive is fenced out.

use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};

use super::{Decision, ShardChange, ShardInputs, ShardTransition, assert_clock, stored_time};
use crate::lease::{OpKind, OpLogEntry};
use crate::run_errors::RevokeLeaseError;
use crate::split_execution::hash_revoke_lease;
use crate::validation::find_replay;

/// Revokes a lease.
#[derive(Clone, Copy, Debug)]
pub struct RevokeLease {
    /// The tenant.
    pub tenant: TenantId,
    /// The shard.
    pub key: ShardKey,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for RevokeLease {
    type Output = ();
    type Error = RevokeLeaseError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.key)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), RevokeLeaseError>, RevokeLeaseError> {
        assert_clock(now);
        let (shard, _) =
            seen.shard_and_run(self.key).map_err(|_| RevokeLeaseError::ShardNotFound)?;
        let record = shard.record();
        if record.tenant() != self.tenant {
            return Err(RevokeLeaseError::TenantMismatch { expected: self.tenant });
        }
        let payload_hash = hash_revoke_lease(self.key);
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(()));
        }
        if record.status().is_terminal() {
            return Err(RevokeLeaseError::ShardTerminal { status: record.status() });
        }
        // Expiry is not checked: the administrator revokes because the deadline is wrong or too far
        // away.
        if record.lease().is_none() {
            return Err(RevokeLeaseError::NotLeased);
        }

        let at = stored_time(shard, now);
        let entry = OpLogEntry::new(self.op_id, OpKind::RevokeLease, payload_hash, at);
        let fence = record.fence_epoch().increment();
        assert!(fence > record.fence_epoch(), "a revocation increases the fence");
        Ok(Decision::commit(ShardChange::Revoke { fence, entry }, ()))
    }
}
