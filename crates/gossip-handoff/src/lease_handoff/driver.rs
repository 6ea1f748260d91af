//! Executes the requests of a source or a destination on a backend and a repository.
//!
//! One call executes one operation. The state machines make all decisions.

use gossip_contracts::identity::{LogicalTime, TenantId};
use gossip_coordination::{
    AcceptError, AcquireResultView, AcquireScratch, CoordinationBackend, IdempotentOutcome, Lease,
    OfferError, RunManagement, ShardFilter, ShardSummary, WithdrawError,
};

use super::destination::{
    DestinationEnd, DestinationReply, DestinationRequest, HandoffDestination,
};
use super::source::{HandoffSource, SourceEnd, SourceReply, SourceRequest};
use super::terms::MoveTerms;
use crate::repository::Repository;

/// The backend and the records of one tenant.
#[derive(Debug)]
pub struct Driver<'m, B, R> {
    /// The tenant.
    pub tenant: TenantId,
    /// The coordinator of its shards.
    pub backend: &'m mut B,
    /// The records of its moves.
    pub records: &'m mut R,
}

/// The result of one step of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
pub enum SourceNext {
    /// Step again at once.
    Again,
    /// The caller must stop working on the shard and pass its cursor to
    /// [`HandoffSource::freeze`].
    Freeze,
    /// Step again at this time.
    Wait(LogicalTime),
    /// The move has ended. The record has too, or is left to recovery.
    Done(SourceEnd),
}

/// The result of one step of a destination.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
#[expect(clippy::large_enum_variant, reason = "it is matched once and never stored")]
pub enum DestinationNext<'s> {
    /// Step again at once.
    Again,
    /// The destination owns the shard. It may start working before the record is updated.
    Live(AcquireResultView<'s>),
    /// Step again at this time.
    Wait(LogicalTime),
    /// The move has ended.
    Done(DestinationEnd),
}

impl<B: CoordinationBackend + RunManagement, R: Repository> Driver<'_, B, R> {
    /// Executes one request of `source` and gives it the reply. Returns whether to call again, to
    /// freeze the shard, to wait, or the end of the move. `lease` is the lease to offer under; it
    /// is `None` when recovering for a process that has died.
    pub fn step_source(
        &mut self,
        source: &mut HandoffSource,
        lease: Option<&Lease>,
        now: LogicalTime,
    ) -> SourceNext {
        // Deadlines first, so that the request is the one that is due now.
        source.tick(now);
        let request = match source.next_request(now) {
            SourceRequest::Freeze => return SourceNext::Freeze,
            SourceRequest::Wait(until) => return SourceNext::Wait(until),
            SourceRequest::Done(end) => return SourceNext::Done(end),
            request => request,
        };
        if let Some(reply) = self.execute(source, request, lease, now) {
            source.on_reply(now, reply);
        }
        SourceNext::Again
    }

    /// Executes `request` and returns the reply, or `None` for a request without a reply. For
    /// drivers that act between the request and [`HandoffSource::on_reply`].
    pub(crate) fn execute(
        &mut self,
        source: &HandoffSource,
        request: SourceRequest,
        lease: Option<&Lease>,
        now: LogicalTime,
    ) -> Option<SourceReply> {
        Some(match request {
            SourceRequest::Save(record, expected) => {
                let saved = self.records.save(&record, expected);
                SourceReply::Saved(record, saved)
            }
            SourceRequest::Get => SourceReply::Got(self.records.get(&source.terms().id)),
            SourceRequest::Forget(stored) => {
                // A record that could not be deleted has ended nevertheless; garbage collection
                // deletes it.
                let _forgotten = self.records.forget(&stored);
                SourceReply::Forgotten
            }
            SourceRequest::Offer => SourceReply::Offered(self.offer(source, lease, now)),
            SourceRequest::Withdraw => SourceReply::Withdrawn(self.withdraw(source, lease, now)),
            SourceRequest::ReadShard => SourceReply::Shard(self.read_shard(source.terms(), now)),
            SourceRequest::Freeze | SourceRequest::Wait(_) | SourceRequest::Done(_) => return None,
        })
    }

    /// Executes one request of `destination` and gives it the reply. An accepted shard is copied
    /// into `scratch` and returned as `Live`; the record of its move is acknowledged by later
    /// calls.
    pub fn step_destination<'s>(
        &mut self,
        destination: &mut HandoffDestination,
        scratch: &'s mut AcquireScratch,
        now: LogicalTime,
    ) -> DestinationNext<'s> {
        let reply = match destination.next_request(now) {
            DestinationRequest::Accept => {
                let accepted = self.accept(destination.terms(), scratch, now);
                let reply = accepted.as_ref().map(drop).map_err(Clone::clone);
                // Before the view is returned: the caller may not step this move again for a while,
                // and its end must be known.
                destination.on_reply(now, DestinationReply::Accepted(reply));
                return accepted.map_or(DestinationNext::Again, DestinationNext::Live);
            }
            DestinationRequest::ReadShard => {
                DestinationReply::Shard(self.read_shard(destination.terms(), now))
            }
            DestinationRequest::Save(record, expected) => {
                let saved = self.records.save(&record, expected);
                DestinationReply::Saved(record, saved)
            }
            DestinationRequest::Get => {
                DestinationReply::Got(self.records.get(&destination.terms().id))
            }
            DestinationRequest::Wait(until) => return DestinationNext::Wait(until),
            DestinationRequest::Done(end) => return DestinationNext::Done(end),
        };
        destination.on_reply(now, reply);
        DestinationNext::Again
    }

    fn offer(
        &mut self,
        source: &HandoffSource,
        lease: Option<&Lease>,
        now: LogicalTime,
    ) -> Result<(), OfferError> {
        let Some(lease) = lease else {
            // A recovery has no lease, which is the same to the source as one that has ended: it
            // reads the shard next.
            return Err(OfferError::LeaseExpired { deadline: now, now });
        };
        let (terms, cursor) = (source.terms(), source.cursor().as_update());
        let (offer, op) = (terms.offer_terms(), terms.offer_op());
        let offered = self.backend.offer(now, self.tenant, lease, offer, cursor, op);
        offered.map(IdempotentOutcome::into_inner)
    }

    fn withdraw(
        &mut self,
        source: &HandoffSource,
        lease: Option<&Lease>,
        now: LogicalTime,
    ) -> Result<(), WithdrawError> {
        let Some(lease) = lease else {
            return Err(WithdrawError::LeaseExpired { deadline: now, now });
        };
        let (handoff, op) = (source.terms().handoff(), source.terms().withdraw_op());
        let withdrawn = self.backend.withdraw(now, self.tenant, lease, handoff, op);
        withdrawn.map(IdempotentOutcome::into_inner)
    }

    fn accept<'s>(
        &mut self,
        terms: &MoveTerms,
        scratch: &'s mut AcquireScratch,
        now: LogicalTime,
    ) -> Result<AcquireResultView<'s>, AcceptError> {
        self.backend.accept(now, self.tenant, terms.key, terms.to, terms.handoff(), scratch)
    }

    /// Reads the shard: `Some(None)` if it does not exist, `None` if the read failed.
    fn read_shard(
        &mut self,
        terms: &MoveTerms,
        now: LogicalTime,
    ) -> Option<Option<Box<ShardSummary>>> {
        let mut rows = Vec::new();
        let filter = ShardFilter::one(terms.key.shard());
        let run = terms.key.run();
        match self.backend.list_shards_into(now, self.tenant, run, filter, &mut rows) {
            // The fence of a damaged record is not known, so it decides nothing.
            Ok(()) if rows.iter().any(|row| row.damage.is_some()) => None,
            Ok(()) => Some(rows.pop().map(Box::new)),
            // A deleted run has no shards: the move is over, which a failed read would not show.
            Err(gossip_coordination::GetRunError::RunNotFound) => Some(None),
            Err(_) => None,
        }
    }
}
