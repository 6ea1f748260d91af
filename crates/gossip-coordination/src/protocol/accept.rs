//! `accept`: the named destination takes over an offered shard.
//!
//! It needs no expired lease, because the source froze itself with the offer. **The fence increment
//! in this commit is the commit point of the handoff**: before it the source holds the shard, after
//! it the destination does, and at no instant both or neither.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId, WorkerId};

use super::acquire::grant;
use super::{
    Decision, Grant, ShardChange, ShardInputs, ShardTransition, assert_clock, check_run_not_over,
    check_run_not_paused,
};
use crate::error::AcceptError;
use crate::handoff::HandoffId;
use crate::lease::GrantToken;

/// Accepts an offered shard.
#[derive(Clone, Copy)]
pub struct Accept {
    /// The tenant.
    pub tenant: TenantId,
    /// The shard.
    pub key: ShardKey,
    /// The accepting worker.
    pub worker: WorkerId,
    /// The handoff.
    pub handoff: HandoffId,
    /// A fresh random number that identifies the grant if its reply is lost.
    pub token: GrantToken,
}

impl fmt::Debug for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accept")
            .field("key", &self.key)
            .field("handoff", &self.handoff)
            .finish_non_exhaustive()
    }
}

impl ShardTransition for Accept {
    type Output = Grant;
    type Error = AcceptError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.key)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, Grant, AcceptError>, AcceptError> {
        assert_clock(now);
        let (shard, run) = seen.shard_and_run(self.key)?;
        let record = shard.record();
        // The tenant first, so that a caller from another tenant learns nothing about the shard.
        if record.tenant() != self.tenant {
            return Err(AcceptError::TenantMismatch { expected: self.tenant });
        }
        check_run_not_over(&run)?;
        check_run_not_paused(&run)?;
        if record.status().is_terminal() {
            let status = record.status();
            return Err(AcceptError::ShardTerminal { shard: self.key, status });
        }
        // Match the handoff: a late accept of a withdrawn handoff must not take over a shard that
        // has since been offered to another worker.
        let offer = record.offer().filter(|offer| offer.handoff == self.handoff);
        let offer = offer.ok_or(AcceptError::NoOffer)?;
        if offer.destination != self.worker {
            return Err(AcceptError::NotDestination);
        }
        // The source's lease may have expired since the offer. That is harmless: the source froze
        // itself with the offer, so no work was done since.
        if now >= offer.deadline {
            return Err(AcceptError::OfferExpired { deadline: offer.deadline, now });
        }
        // A handoff is not a new attempt, so the count is kept.
        let lease = grant(now, self.tenant, record, &run, self.worker, self.token);
        assert!(lease.owner() == offer.destination, "only the named destination can accept");
        assert!(record.lease().is_some(), "an offered shard has a lease");
        let attempts = record.attempts();
        let grant = Grant { lease, attempts, needs_confirmation: false };
        Ok(Decision::commit(grant.change(Some(self.handoff)), grant))
    }
}
