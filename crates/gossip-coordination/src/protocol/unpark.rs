//! `unpark_shard`: an administrator makes a parked shard active again.
//!
//! The fence increases, so a lease holder from before the park is fenced out.

use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, assert_clock, check_run_not_over,
    stored_time,
};
use crate::lease::{OpKind, OpLogEntry};
use crate::record::ShardStatus;
use crate::run_errors::UnparkError;
use crate::split_execution::hash_unpark;
use crate::validation::find_replay;

/// Unparks a shard.
#[derive(Clone, Copy, Debug)]
pub struct Unpark {
    /// The tenant.
    pub tenant: TenantId,
    /// The shard.
    pub key: ShardKey,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for Unpark {
    type Output = ();
    type Error = UnparkError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.key)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), UnparkError>, UnparkError> {
        assert_clock(now);
        let (shard, run) = seen.shard_and_run(self.key).map_err(|_| UnparkError::ShardNotFound)?;
        let record = shard.record();
        if record.tenant() != self.tenant {
            return Err(UnparkError::TenantMismatch { expected: self.tenant });
        }
        let payload_hash = hash_unpark(self.key);
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(()));
        }
        // An unparked shard would be claimable work of a terminal run.
        check_run_not_over(&run)?;
        if record.status() != ShardStatus::Parked {
            return Err(UnparkError::NotParked { status: record.status() });
        }

        assert!(record.lease().is_none(), "a parked shard has no lease");
        let at = stored_time(shard, now);
        let entry = OpLogEntry::new(self.op_id, OpKind::Unpark, payload_hash, at);
        // The worker that parked the shard may still use its lease if the park's reply was lost.
        let fence = record.fence_epoch().increment();
        assert!(fence > record.fence_epoch(), "an unpark increases the fence");
        Ok(Decision::commit(ShardChange::Unpark { fence, entry }, ()))
    }
}
