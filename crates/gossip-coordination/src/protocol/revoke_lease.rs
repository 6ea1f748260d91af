//! `revoke_lease`: frees a shard whose lease holder is gone before its deadline.
//!
//! The fence increases, so a lease holder that is still alive is fenced out. An administrator
//! revokes whatever lease there is. A worker that has seen the end of the lease holder's process
//! names the fence of that lease, so that it cannot revoke the lease of a later holder.

use gossip_contracts::identity::{FenceEpoch, LogicalTime, OpId, ShardKey, TenantId};

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
    /// The fence of the lease to revoke; any lease if absent.
    pub expected_fence: Option<FenceEpoch>,
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
        let payload_hash = hash_revoke_lease(self.key, self.expected_fence);
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(()));
        }
        if record.status().is_terminal() {
            return Err(RevokeLeaseError::ShardTerminal { status: record.status() });
        }
        // Before the lease, as in the lease checks: the shard that the caller saw has been granted
        // again, whether or not it is leased now.
        let current = record.fence_epoch();
        if let Some(presented) = self.expected_fence.filter(|expected| *expected != current) {
            return Err(RevokeLeaseError::StaleFence { presented, current });
        }
        // Expiry is not checked: the caller revokes because the deadline is wrong or too far away.
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
