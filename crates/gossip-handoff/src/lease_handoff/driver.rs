//! Carries the questions of a source or a destination to a backend and a repository.
//!
//! One call is one operation. Nothing is decided here.

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

/// A tenant's backend and records.
#[derive(Debug)]
pub struct Driver<'m, B, R> {
    /// Whose shards.
    pub tenant: TenantId,
    /// Where they are.
    pub backend: &'m mut B,
    /// Where their moves are recorded.
    pub records: &'m mut R,
}

/// What came of one step of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
pub enum SourceNext {
    /// It has more to do at once.
    Again,
    /// The caller stops working on the shard now, and says where ([`HandoffSource::freeze`]).
    Freeze,
    /// It has nothing to do before this instant.
    Wait(LogicalTime),
    /// It is over, and so is the record or it is left to whoever recovers it.
    Done(SourceEnd),
}

/// What came of one step of a destination.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
#[expect(clippy::large_enum_variant, reason = "it is looked at once and never kept")]
pub enum DestinationNext<'s> {
    /// It has more to do at once.
    Again,
    /// The shard is the destination's from now on: it may go to work before the record says so.
    Live(AcquireResultView<'s>),
    /// It has nothing to do before this instant.
    Wait(LogicalTime),
    /// It is over.
    Done(DestinationEnd),
}

impl<B: CoordinationBackend + RunManagement, R: Repository> Driver<'_, B, R> {
    /// Lets `source` do one thing. `lease` is the one it offers under; a recovered source of a
    /// process that is gone has none.
    pub fn step_source(
        &mut self,
        source: &mut HandoffSource,
        lease: Option<&Lease>,
        now: LogicalTime,
    ) -> SourceNext {
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

    /// Does what `source` asks for and answers what came of it; `None` for a question that nothing
    /// comes of. For drivers that do something in between.
    pub fn execute(
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
                // What is not forgotten is over all the same.
                let _forgotten = self.records.forget(&stored);
                SourceReply::Forgotten
            }
            SourceRequest::Offer => SourceReply::Offered(self.offer(source, lease, now)),
            SourceRequest::Withdraw => SourceReply::Withdrawn(self.withdraw(source, lease, now)),
            SourceRequest::ReadShard => SourceReply::Shard(self.read_shard(source.terms(), now)),
            SourceRequest::Freeze | SourceRequest::Wait(_) | SourceRequest::Done(_) => return None,
        })
    }

    /// Lets `destination` do one thing. What it accepts is copied into `scratch`.
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

    /// The shard, as far as it can be seen.
    fn read_shard(
        &mut self,
        terms: &MoveTerms,
        now: LogicalTime,
    ) -> Option<Option<Box<ShardSummary>>> {
        let mut rows = Vec::new();
        let filter = ShardFilter::one(terms.key.shard());
        let run = terms.key.run();
        match self.backend.list_shards_into(now, self.tenant, run, filter, &mut rows) {
            Ok(()) => Some(rows.pop().map(Box::new)),
            Err(gossip_coordination::GetRunError::RunNotFound) => Some(None),
            Err(_) => None,
        }
    }
}
