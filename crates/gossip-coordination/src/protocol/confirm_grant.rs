//! The second step of an acquire whose reply can be lost: counts the attempt once the caller has
//! received the grant.
//!
//! A grant is stored before its reply is sent. If the reply is lost, no worker has the lease, and
//! the grant must not use up an attempt of the shard ([`Acquire`](super::Acquire) says which
//! grants are confirmed). The coordinator confirms before it returns the lease, so a key that kills
//! its worker at once is still counted.

use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId};

use super::{Decision, ShardChange, ShardInputs, ShardTransition, check_fence_floor};
use crate::error::RenewError;
use crate::lease::Lease;
use crate::validation::check_lease;

/// Counts the attempt of a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfirmGrant<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The granted lease.
    pub lease: &'a Lease,
    /// The attempts of the shard with this grant. Absolute, so that a repetition counts once.
    pub(crate) attempts: u32,
}

impl ShardTransition for ConfirmGrant<'_> {
    type Output = ();
    type Error = RenewError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), RenewError>, RenewError> {
        let (shard, _) = seen.shard_and_run(self.lease.key())?;
        let record = shard.record();
        check_lease(now, self.tenant, self.lease, record)?;
        check_fence_floor(seen, self.lease)?;
        if record.attempts() == self.attempts {
            return Ok(Decision::Replay(()));
        }
        assert!(record.attempts() < self.attempts, "nothing else counts attempts under a lease");
        Ok(Decision::commit(ShardChange::Confirm { attempts: self.attempts }, ()))
    }
}
