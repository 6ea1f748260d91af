//! The moves to one worker: searched for, accepted, acknowledged.
//!
//! A worker runs this all the time, best beside its work and on handles of its own, because the
//! sources of what it finds stand still until it has accepted.
//!
//! # Invariants
//! - At most [`INBOUND_MAX`] moves are under way; the others are found later.
//! - What is accepted next comes before what is only written down.
//! - A move that was missed is looked at again only after [`HandoffConfig::finish_ticks`]: it can
//!   never arrive any more, and whoever raises the fence of its shard lets its record end.

use std::collections::VecDeque;

use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::{AcquireResultView, AcquireScratch, CoordinationBackend, RunManagement};

use super::destination::{DestinationEnd, DestinationRequest, HandoffDestination};
use super::driver::{DestinationNext, Driver};
use super::terms::{HandoffConfig, MoveTerms, worker_name};
use crate::phase::Phase;
use crate::record::RecordId;
use crate::repository::{IN_PROGRESS_PAGE, Repository, RepositoryError, Stored};

/// Moves to one worker that are under way at a time: two pages of records, far above what one
/// worker is offered while it accepts one.
pub const INBOUND_MAX: usize = 2 * IN_PROGRESS_PAGE;

/// What came of one step.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle every case")]
#[expect(clippy::large_enum_variant, reason = "it is looked at once and never kept")]
pub enum InboundNext<'s> {
    /// There is more to do at once.
    Again,
    /// A shard is this worker's from now on: it may go to work before the record says so.
    Live(AcceptedShard<'s>),
    /// There is nothing to do before this instant.
    Wait(LogicalTime),
}

/// A shard that has arrived.
#[derive(Debug)]
pub struct AcceptedShard<'s> {
    /// The move that brought it.
    pub terms: MoveTerms,
    /// What its source sent along.
    pub snapshot: Vec<u8>,
    /// The shard and its lease.
    pub view: AcquireResultView<'s>,
}

/// Takes what is offered to one worker.
#[derive(Debug)]
pub struct Inbound {
    name: String,
    config: HandoffConfig,
    /// In the order in which they had their turn.
    expected: VecDeque<HandoffDestination>,
    /// Moves that were missed, and when they are looked at again; at most [`INBOUND_MAX`].
    missed: VecDeque<(RecordId, LogicalTime)>,
    /// Whether nothing new is searched for.
    is_closed: bool,
    find_at: LogicalTime,
}

impl Inbound {
    /// The moves to `me`.
    #[must_use]
    pub fn new(me: WorkerId, config: HandoffConfig) -> Self {
        Self {
            name: worker_name(me),
            config,
            expected: VecDeque::new(),
            missed: VecDeque::new(),
            is_closed: false,
            find_at: LogicalTime::ZERO,
        }
    }

    /// The worker takes nothing more: what was accepted is written down, and the rest is left to
    /// its sources, which withdraw it.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.expected.retain(|one| one.end().is_some());
    }

    /// Does one thing: searches, or lets one move go on.
    pub fn step<'s, B: CoordinationBackend + RunManagement, R: Repository>(
        &mut self,
        driver: &mut Driver<'_, B, R>,
        scratch: &'s mut AcquireScratch,
        now: LogicalTime,
    ) -> InboundNext<'s> {
        if !self.is_closed && now >= self.find_at {
            let found = self.find(driver, now).is_ok();
            let ticks = if found { self.config.find_ticks } else { self.config.retry_ticks };
            self.find_at = now.saturating_add(ticks);
        }
        let next = self.next(now).and_then(|index| self.expected.remove(index));
        let Some(mut destination) = next else {
            return InboundNext::Wait(self.next_at(now));
        };
        match driver.step_destination(&mut destination, scratch, now) {
            DestinationNext::Live(view) => {
                let terms = destination.terms().clone();
                let snapshot = destination.snapshot().to_vec();
                self.expected.push_back(destination);
                InboundNext::Live(AcceptedShard { terms, snapshot, view })
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

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    fn miss(&mut self, id: RecordId, now: LogicalTime) {
        self.missed.truncate(INBOUND_MAX - 1);
        self.missed.push_front((id, now.saturating_add(self.config.finish_ticks)));
    }

    /// Adds moves to this worker that are ready and not known.
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
                Some(next) if self.expected.len() < INBOUND_MAX => after = Some(next),
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn expect(&mut self, stored: Stored, now: LogicalTime) {
        let record = &stored.record;
        let is_ready = record.to == self.name && record.state >= Phase::Transfer;
        let is_missed = self.missed.iter().any(|(id, until)| *id == record.id && now < *until);
        let is_known = is_missed || self.expected.iter().any(|one| one.terms().id == record.id);
        if !is_ready || is_known || self.expected.len() >= INBOUND_MAX {
            return;
        }
        // A record that is about something else is not ours.
        let Ok(destination) = HandoffDestination::new(stored, self.config, now) else { return };
        if !matches!(destination.next_request(now), DestinationRequest::Done(_)) {
            self.expected.push_back(destination);
        }
    }

    /// Which move has its turn: one to accept if there is one.
    fn next(&self, now: LogicalTime) -> Option<usize> {
        let accepts =
            |one: &HandoffDestination| one.next_request(now) == DestinationRequest::Accept;
        let asks = |one: &HandoffDestination| {
            !matches!(one.next_request(now), DestinationRequest::Wait(_))
        };
        let first = self.expected.iter().position(accepts);
        first.or_else(|| self.expected.iter().position(asks))
    }

    /// When there is something to do, if nothing is to be done now.
    fn next_at(&self, now: LogicalTime) -> LogicalTime {
        let until = |one: &HandoffDestination| match one.next_request(now) {
            DestinationRequest::Wait(until) => until,
            DestinationRequest::Accept
            | DestinationRequest::ReadShard
            | DestinationRequest::Save(..)
            | DestinationRequest::Get
            | DestinationRequest::Done(_) => now,
        };
        let search = match self.is_closed {
            true => now.saturating_add(self.config.finish_ticks),
            false => self.find_at,
        };
        self.expected.iter().map(until).min().map_or(search, |until| until.min(search))
    }
}
