//! `accept`: the named destination takes an offered shard over.
//!
//! It needs no expired lease, because the owner froze itself when it offered. **The bump of the
//! fence in this commit is the commit point of the move**: before it the source owns the shard,
//! after it the destination, and at no instant both or neither.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, ShardKey, TenantId, WorkerId};

use super::acquire::grant;
use super::{
    Decision, Grant, ShardChange, ShardInputs, ShardTransition, assert_clock, check_run_not_over,
    check_run_not_paused,
};
use crate::handoff::HandoffId;
use crate::lease::GrantToken;
use crate::move_errors::AcceptError;

/// A worker accepts a shard that was offered to it.
#[derive(Clone, Copy)]
pub struct Accept {
    /// Whose shard.
    pub tenant: TenantId,
    /// Which shard.
    pub key: ShardKey,
    /// Who accepts.
    pub worker: WorkerId,
    /// Which planned move.
    pub handoff: HandoffId,
    /// A fresh number, by which a lost reply is recognised.
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

    const CONSULTS_RUN: bool = true;

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
        // The tenant first: whoever asks for another's shard learns nothing else about it.
        if record.tenant() != self.tenant {
            return Err(AcceptError::TenantMismatch { expected: self.tenant });
        }
        check_run_not_over(&run)?;
        check_run_not_paused(&run)?;
        if record.status().is_terminal() {
            let status = record.status();
            return Err(AcceptError::ShardTerminal { shard: self.key, status });
        }
        // An offer of another move is no offer: a late accept of a withdrawn move must not take
        // over what was offered since to somebody else.
        let offer = record.offer().filter(|offer| offer.handoff == self.handoff);
        let offer = offer.ok_or(AcceptError::NoOffer)?;
        if offer.destination != self.worker {
            return Err(AcceptError::NotDestination);
        }
        // The source's lease is not asked. It may have run out while the offer stood: the source
        // froze itself when it offered, so nobody has worked since.
        if now >= offer.deadline {
            return Err(AcceptError::OfferExpired { deadline: offer.deadline, now });
        }
        // A planned move is no new attempt at the work.
        let lease = grant(now, self.tenant, record, &run, self.worker, self.token);
        assert!(lease.owner() == offer.destination, "only the named destination accepts");
        assert!(record.lease().is_some(), "an offer stands on a held shard");
        let grant = Grant { lease, attempts: record.attempts() };
        Ok(Decision::commit(grant.change(Some(self.handoff)), grant))
    }
}
