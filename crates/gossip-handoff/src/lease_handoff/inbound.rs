//! Finds the moves to one worker, accepts and acknowledges them.
//!
//! A worker runs this all the time, preferably on a thread with handles of its own, because the
//! shard of a move is frozen until it is accepted.
//!
//! # Invariants
//! - At most [`INBOUND_MAX`] moves are in flight; further ones are found later.
//! - Accepts come before updates of records, because a frozen shard waits for an accept.
//! - A missed move is read again only after [`HandoffConfig::finish_ticks`]: it cannot be accepted
//!   any more, and its record ends when a grant raises the fence of its shard.

use std::collections::VecDeque;

use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::{AcquireResultView, AcquireScratch, CoordinationBackend, RunManagement};

use super::destination::{DestinationEnd, DestinationRequest, HandoffDestination};
use super::driver::{DestinationNext, Driver};
use super::terms::{HandoffConfig, worker_name};
use crate::phase::Phase;
use crate::record::RecordId;
use crate::repository::{IN_PROGRESS_PAGE, Repository, RepositoryError, Stored};

/// The most moves to one worker in flight: two pages of records, far more than a worker is offered
/// while it accepts one.
pub(crate) const INBOUND_MAX: usize = 2 * IN_PROGRESS_PAGE;

/// The result of one step.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
#[expect(clippy::large_enum_variant, reason = "it is matched once and never stored")]
pub enum InboundNext<'s> {
    /// Step again at once.
    Again,
    /// This worker owns a shard. It may start working before the record is updated.
    Live(AcceptedShard<'s>),
    /// Step again at this time.
    Wait(LogicalTime),
}

/// A shard that was accepted.
#[derive(Debug)]
pub struct AcceptedShard<'s> {
    /// The snapshot of its source.
    pub snapshot: Vec<u8>,
    /// The shard and its lease.
    pub view: AcquireResultView<'s>,
}

/// Accepts the shards that are offered to one worker.
#[derive(Debug)]
pub struct Inbound {
    name: String,
    config: HandoffConfig,
    /// In flight, the least recently stepped first.
    expected: VecDeque<HandoffDestination>,
    /// Missed moves and when they are read again; at most [`INBOUND_MAX`].
    missed: VecDeque<(RecordId, LogicalTime)>,
    /// Whether the search for new moves has stopped.
    is_closed: bool,
    /// Whether this worker could process another shard now.
    has_capacity: bool,
    find_at: LogicalTime,
}

impl Inbound {
    /// Returns an empty set of moves to `me`.
    #[must_use]
    pub fn new(me: WorkerId, config: HandoffConfig) -> Self {
        Self {
            name: worker_name(me),
            config,
            expected: VecDeque::new(),
            missed: VecDeque::new(),
            is_closed: false,
            has_capacity: true,
            find_at: LogicalTime::ZERO,
        }
    }

    /// Stops accepting. Accepted moves are still acknowledged; the sources of the others withdraw
    /// their offers.
    pub fn close(&mut self) {
        self.is_closed = true;
        // Moves whose end is known still have to be acknowledged in their records.
        self.expected.retain(|one| one.end().is_some());
    }

    /// Sets whether this worker could process another shard now. While it could not, no offer is
    /// searched for or accepted, so that a source whose offer expires continues its shard, and a
    /// busy worker sends no requests. Initially it could.
    pub const fn set_capacity(&mut self, has_capacity: bool) {
        self.has_capacity = has_capacity;
    }

    /// Searches for moves if that is due, and executes one operation of one move. Returns an
    /// accepted shard, whether to call again, or until when to wait. A failed search is repeated
    /// later.
    pub fn step<'s, B: CoordinationBackend + RunManagement, R: Repository>(
        &mut self,
        driver: &mut Driver<'_, B, R>,
        scratch: &'s mut AcquireScratch,
        now: LogicalTime,
    ) -> InboundNext<'s> {
        if self.searches() && now >= self.find_at {
            let found = self.find(driver, now).is_ok();
            // After a failure the store gets more time than between two searches.
            let ticks = if found { self.config.find_ticks } else { self.config.retry_ticks };
            self.find_at = now.saturating_add(ticks);
        }
        // Taken out and put back at the end, so that every move gets its turn.
        let next = self.next(now).and_then(|index| self.expected.remove(index));
        let Some(mut destination) = next else {
            return InboundNext::Wait(self.next_at(now));
        };
        match driver.step_destination(&mut destination, scratch, now) {
            DestinationNext::Live(view) => {
                let snapshot = destination.snapshot().to_vec();
                self.expected.push_back(destination);
                InboundNext::Live(AcceptedShard { snapshot, view })
            }
            DestinationNext::Again | DestinationNext::Wait(_) => {
                self.expected.push_back(destination);
                InboundNext::Again
            }
            DestinationNext::Done(DestinationEnd::Missed) => {
                self.miss(destination.terms().id.clone(), now);
                InboundNext::Again
            }
            DestinationNext::Done(_) => InboundNext::Again,
        }
    }

    /// Returns whether no move is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    fn miss(&mut self, id: RecordId, now: LogicalTime) {
        // The oldest entry is dropped. Its record is then read once more, which costs an accept.
        self.missed.truncate(INBOUND_MAX - 1);
        self.missed.push_front((id, now.saturating_add(self.config.finish_ticks)));
    }

    /// Adds the moves to this worker that are in Transfer and not in flight yet.
    fn find<B, R: Repository>(
        &mut self,
        driver: &mut Driver<'_, B, R>,
        now: LogicalTime,
    ) -> Result<(), RepositoryError> {
        let mut after = None;
        self.missed.retain(|(_, until)| now < *until);
        loop {
            let page =
                driver.records.in_progress_page(&self.name, after.as_ref(), IN_PROGRESS_PAGE)?;
            for stored in page.found {
                self.expect(stored, now);
            }
            match page.next {
                // Further records would be read and not admitted.
                Some(next) if self.expected.len() < INBOUND_MAX => after = Some(next),
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Adds the move of a record to those in flight. Ignores a record for another worker or without
    /// work left, a move that is known or was missed lately, and any beyond the limit.
    fn expect(&mut self, stored: Stored, now: LogicalTime) {
        let record = &stored.record;
        let is_ready = record.to == self.name && record.state >= Phase::Transfer;
        let is_missed = self.missed.iter().any(|(id, until)| *id == record.id && now < *until);
        let is_known = is_missed || self.expected.iter().any(|one| one.terms().id == record.id);
        if !is_ready || is_known || self.expected.len() >= INBOUND_MAX {
            return;
        }
        // Records of other subjects may share the repository.
        let Ok(destination) = HandoffDestination::new(stored, self.config, now) else { return };
        if !matches!(destination.next_request(now), DestinationRequest::Done(_)) {
            self.expected.push_back(destination);
        }
    }

    /// Returns whether new moves are searched for.
    const fn searches(&self) -> bool {
        !self.is_closed && self.has_capacity
    }

    /// Returns the move to step next, one that can be accepted first.
    fn next(&self, now: LogicalTime) -> Option<usize> {
        let accepts =
            |one: &HandoffDestination| self.request_of(one, now) == DestinationRequest::Accept;
        let asks = |one: &HandoffDestination| {
            !matches!(self.request_of(one, now), DestinationRequest::Wait(_))
        };
        // The source of a move that can be accepted is frozen; records can wait.
        let first = self.expected.iter().position(accepts);
        first.or_else(|| self.expected.iter().position(asks))
    }

    /// Returns the next operation of a move. An accept waits for capacity.
    fn request_of(&self, one: &HandoffDestination, now: LogicalTime) -> DestinationRequest {
        match one.next_request(now) {
            DestinationRequest::Accept if !self.has_capacity => {
                DestinationRequest::Wait(now.saturating_add(self.config.find_ticks))
            }
            request => request,
        }
    }

    /// Returns when the next step is due.
    fn next_at(&self, now: LogicalTime) -> LogicalTime {
        let until = |one: &HandoffDestination| match self.request_of(one, now) {
            DestinationRequest::Wait(until) => until,
            DestinationRequest::Accept
            | DestinationRequest::ReadShard
            | DestinationRequest::Save(..)
            | DestinationRequest::Get
            | DestinationRequest::Done(_) => now,
        };
        // Without a search its caller should look again at some time.
        let search = match self.searches() {
            true => self.find_at,
            false => now.saturating_add(self.config.finish_ticks),
        };
        self.expected.iter().map(until).min().map_or(search, |until| until.min(search))
    }
}
