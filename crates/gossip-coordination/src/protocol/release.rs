//! `release`: the lease holder releases its shard before the shard is complete.

use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, check_fence_floor, check_no_offer,
    stored_time,
};
use crate::error::ReleaseError;
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::split_execution::hash_release;
use crate::validation::{check_lease, check_sequence, find_replay};

/// How a release counts. The discriminants are part of the payload hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(clippy::exhaustive_enums, reason = "an attempt counts against the shard or it does not")]
pub enum ReleaseMode {
    /// Voluntary: the grant does not count as an attempt.
    Clean = 0,
    /// After a failure: the grant counts as an attempt.
    Failed = 1,
}

const _: () = {
    assert!(ReleaseMode::Clean as u8 == 0);
    assert!(ReleaseMode::Failed as u8 == 1);
};

/// Releases a shard under its lease.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
    /// Whether the attempt counts.
    pub mode: ReleaseMode,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for Release<'_> {
    type Output = ();
    type Error = ReleaseError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), ReleaseError>, ReleaseError> {
        let shard = seen.shard(self.lease.key())?;
        let record = shard.record();
        let payload_hash = hash_release(self.mode);
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(()));
        }
        check_lease(now, self.tenant, self.lease, record)?;
        check_fence_floor(seen, self.lease)?;
        check_sequence(shard.op_log(), self.lease, self.op_id)?;
        // The destination may be accepting concurrently; the source must withdraw first.
        check_no_offer(record)?;

        // The grant counted an attempt in advance; a clean release undoes that. Saturating, because
        // a checkpoint may have reset the count to zero since.
        let attempts = match self.mode {
            ReleaseMode::Clean => record.attempts().saturating_sub(1),
            ReleaseMode::Failed => record.attempts(),
        };
        assert!(attempts <= record.attempts(), "a release does not count as an attempt");
        let at = stored_time(shard, now);
        let entry = OpLogEntry::new(self.op_id, OpKind::Release, payload_hash, at);
        let sequence = self.lease.sequence();
        Ok(Decision::commit(ShardChange::Release { attempts, sequence, entry }, ()))
    }
}
