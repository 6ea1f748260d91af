//! `offer`: the lease holder names the worker that shall take over its shard.
//!
//! The source freezes itself when it sends the offer: it checkpoints no further progress, so a
//! handoff processes no key twice. It may renew and withdraw.

use std::fmt;

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId, WorkerId};
use gossip_stdx::SlabFull;

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, attempts_after_advance, check_fence_floor,
    check_run_not_over, stored_time,
};
use crate::error::OfferError;
use crate::handoff::{HandoffId, Offer};
use crate::lease::{Lease, OpKind, OpLogEntry};
use crate::record::{ShardRecord, ShardView};
use crate::refusal::OfferStands;
use crate::request::{PendingRequest, ShardAction};
use crate::run::RunHead;
use crate::split_execution::{hash_offer, hash_withdraw};
use crate::validation::{check_cursor, check_lease, check_sequence, find_replay};

/// Maximum duration of an offer, in leases. The shard is frozen meanwhile, and a destination that
/// has not accepted by then is assumed to be gone.
pub const OFFER_LEASES_MAX: u64 = 4;

/// The terms of an offer.
#[derive(Clone, Copy)]
pub struct OfferTerms {
    /// The handoff.
    pub handoff: HandoffId,
    /// The only worker that may accept.
    pub destination: WorkerId,
    /// The first instant at which the offer can no longer be accepted.
    pub deadline: LogicalTime,
}

impl fmt::Debug for OfferTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfferTerms")
            .field("handoff", &self.handoff)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Offers a shard to another worker.
#[derive(Clone, Copy, Debug)]
pub struct OfferShard<'a> {
    /// The caller's tenant.
    pub tenant: TenantId,
    /// The caller's lease.
    pub lease: &'a Lease,
    /// The handoff, its destination and its deadline.
    pub terms: OfferTerms,
    /// The final cursor; an initial cursor keeps the stored one.
    pub cursor: CursorUpdate<'a>,
    /// The idempotency key.
    pub op_id: OpId,
}

impl ShardTransition for OfferShard<'_> {
    type Output = ();
    type Error = OfferError;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.lease.key())
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, (), OfferError>, OfferError> {
        let (shard, run) = seen.shard_and_run(self.lease.key())?;
        let record = shard.record();
        let payload_hash = hash_offer(self.terms, self.cursor);
        // Before the lease checks: a retry may arrive after the offer was accepted.
        if find_replay(shard.op_log(), self.op_id, payload_hash)?.is_some() {
            return Ok(Decision::Replay(()));
        }
        check_lease(now, self.tenant, self.lease, record)?;
        check_fence_floor(seen, self.lease)?;
        check_sequence(shard.op_log(), self.lease, self.op_id)?;
        check_run_not_over(&run)?;
        // One offer at a time: with two, both destinations could accept.
        if let Some(pending) = record.offer() {
            return self.answer_pending(pending, payload_hash);
        }
        // The sender of a withdrawn offer has resumed work, so an accept would redo keys.
        if self.was_withdrawn(shard) {
            return Err(OfferError::Withdrawn { handoff: self.terms.handoff });
        }
        if self.terms.destination == self.lease.owner() {
            return Err(OfferError::InvalidDestination);
        }
        self.check_deadline(now, &run)?;
        // The offer carries the final cursor, so that a handoff costs one commit instead of two.
        if !self.cursor.is_initial() {
            check_cursor(self.cursor, shard.cursor(), shard.spec())?;
        }

        assert!(self.terms.deadline > now, "an offer's deadline is in the future");
        assert!(record.offer().is_none(), "a shard has one offer at a time");
        assert!(record.lease_owner() == Some(self.lease.owner()), "the caller is the lease holder");
        let at = stored_time(shard, now);
        let change = ShardChange::Offer {
            offer: Offer {
                handoff: self.terms.handoff,
                destination: self.terms.destination,
                deadline: self.terms.deadline,
                payload_hash,
            },
            // An initial cursor keeps the stored one; storing it would lose progress.
            cursor: (!self.cursor.is_initial()).then_some(self.cursor),
            attempts: attempts_after_advance(shard, self.cursor),
            drop_request: fulfils_request(record, self.terms.destination),
            sequence: self.lease.sequence(),
            entry: OpLogEntry::new(self.op_id, OpKind::Offer, payload_hash, at),
        };
        Ok(Decision::commit(change, ()))
    }

    fn exhausted(full: SlabFull) -> OfferError {
        full.into()
    }
}

impl OfferShard<'_> {
    /// Replays an identical offer under another operation id; refuses any other offer.
    fn answer_pending<'c>(
        &self,
        pending: &Offer,
        payload_hash: u64,
    ) -> Result<Decision<ShardChange<'c>, (), OfferError>, OfferError> {
        if pending.handoff == self.terms.handoff && pending.payload_hash == payload_hash {
            return Ok(Decision::Replay(()));
        }
        Err(OfferStands(pending.notice()).into())
    }

    /// Returns whether the handoff was withdrawn. A delayed offer must be rejected even if it is
    /// decided only now, because its sender has resumed work. The log keeps the withdrawal as long
    /// as any retry.
    fn was_withdrawn(&self, shard: ShardView<'_>) -> bool {
        let withdrawal = hash_withdraw(self.terms.handoff);
        let mut log = shard.op_log().iter();
        log.any(|e| e.kind() == OpKind::Withdraw && e.payload_hash() == withdrawal)
    }

    const fn latest_deadline(now: LogicalTime, run: &RunHead) -> LogicalTime {
        now.saturating_add(run.config.lease_duration().saturating_mul(OFFER_LEASES_MAX))
    }

    fn check_deadline(&self, now: LogicalTime, run: &RunHead) -> Result<(), OfferError> {
        let latest = Self::latest_deadline(now, run);
        // Bounded above, because the source cannot work while its offer is pending.
        if self.terms.deadline <= now || self.terms.deadline > latest {
            return Err(OfferError::InvalidOfferDeadline {
                deadline: self.terms.deadline,
                now,
                latest,
            });
        }
        Ok(())
    }
}

/// Returns whether the offer fulfils the pending request: to any worker, or to exactly this one.
fn fulfils_request(record: &ShardRecord, destination: WorkerId) -> bool {
    match record.request().map(PendingRequest::action) {
        Some(ShardAction::HandOff(wanted)) => wanted.is_none_or(|wanted| wanted == destination),
        Some(ShardAction::Split(_) | ShardAction::Release | ShardAction::Withdraw) | None => false,
    }
}
