//! The destination: the worker that takes a shard over.
//!
//! It owns the shard from the commit of its accept; then it saves Ack in the record. All other
//! changes of the record are left to the source, except that the destination rolls back a move that
//! has become impossible.

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{AcceptError, ShardSummary};

use super::record_tracker::{Goal, RecordOp, RecordTracker};
use super::terms::{HandoffConfig, MoveOutcome, MoveTerms, NotAMove};
use crate::phase::Phase;
use crate::record::Record;
use crate::repository::{RepositoryError, Stored, Version};

/// The next operation of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a driver must execute every request")]
pub enum DestinationRequest {
    /// Accept the shard; reply with [`DestinationReply::Accepted`].
    Accept,
    /// Read the shard; reply with [`DestinationReply::Shard`].
    ReadShard,
    /// Save the record over this version; reply with [`DestinationReply::Saved`].
    Save(Box<Record>, Option<Version>),
    /// Read the record of the move; reply with [`DestinationReply::Got`].
    Get,
    /// Nothing before this time.
    Wait(LogicalTime),
    /// Nothing: the destination is done.
    Done(DestinationEnd),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "one for each request")]
pub enum DestinationReply {
    /// The result of the accept.
    Accepted(Result<(), AcceptError>),
    /// The shard; `Some(None)` if it does not exist, `None` if it could not be read.
    Shard(Option<Option<Box<ShardSummary>>>),
    /// The record of the request, and the result of the save.
    Saved(Box<Record>, Result<Version, RepositoryError>),
    /// The record that was read.
    Got(Result<Stored, RepositoryError>),
}

/// How a move ended for the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every caller must know what to do")]
pub enum DestinationEnd {
    /// It owns the shard, under the lease that the accept returned.
    Live,
    /// The accept has committed, but its reply with the lease was lost, or the process that sent it
    /// has died. The shard becomes free when that lease expires.
    GrantLost,
    /// It does not own the shard and will not get it by this move.
    Missed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Accepting,
    /// There was no offer; the shard is read to see whether it is still to come.
    Checking,
    /// The end is known; the record is brought up to date.
    Closing,
    Done,
}

/// The destination side of one move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HandoffDestination {
    terms: MoveTerms,
    config: HandoffConfig,
    tracker: RecordTracker,
    state: State,
    end: Option<DestinationEnd>,
    /// The phase that the record must reach once the end is known.
    goal: Goal,
    /// Accepts that were rejected since the shard was last read.
    refusals: u32,
    /// The next request is not issued before this time.
    not_before: LogicalTime,
    /// The deadline of closing.
    give_up_at: LogicalTime,
}

impl HandoffDestination {
    /// Continues a move to this worker that was found at `now`, in any phase.
    ///
    /// # Errors
    ///
    /// [`NotAMove`] if the record does not describe the move of a shard.
    pub fn new(stored: Stored, config: HandoffConfig, now: LogicalTime) -> Result<Self, NotAMove> {
        let terms = MoveTerms::of(&stored.record)?;
        let phase = stored.record.state;
        let acknowledged_at = stored.record.last_transition;
        let mut destination = Self {
            terms,
            config,
            tracker: RecordTracker::found(stored),
            state: State::Accepting,
            end: None,
            goal: ACKNOWLEDGED,
            refusals: 0,
            not_before: LogicalTime::ZERO,
            give_up_at: LogicalTime::ZERO,
        };
        match phase {
            // The offer comes after Transfer, so the record is read again before an accept.
            Phase::Lock | Phase::Serialize => destination.tracker.mark_stale(),
            Phase::Transfer => {}
            // An earlier process accepted. If the source has not finished by now it has died, and
            // the destination finishes the record.
            Phase::Ack | Phase::Unlock
                if now >= acknowledged_at.saturating_add(config.finish_ticks) =>
            {
                let finished = Goal::Reach(Phase::Complete);
                destination.settle(now, DestinationEnd::GrantLost, finished);
            }
            Phase::Ack | Phase::Unlock | Phase::Complete => {
                destination.stop(DestinationEnd::GrantLost);
            }
            Phase::RolledBack => destination.stop(DestinationEnd::Missed),
        }
        Ok(destination)
    }

    /// Returns the terms of the move.
    #[must_use]
    pub(crate) const fn terms(&self) -> &MoveTerms {
        &self.terms
    }

    /// Returns the snapshot of the source.
    #[must_use]
    pub fn snapshot(&self) -> &[u8] {
        &self.tracker.record.snapshot
    }

    /// Returns how the move ended, if that is known. The caller may act on it before the record is
    /// updated.
    #[must_use]
    pub const fn end(&self) -> Option<DestinationEnd> {
        self.end
    }

    /// Returns the operation to execute next. Changes nothing: it is the same one until
    /// [`on_reply`](Self::on_reply) changes the state or a wait has ended at `now`.
    #[must_use]
    pub fn next_request(&self, now: LogicalTime) -> DestinationRequest {
        if let (State::Done, Some(end)) = (self.state, self.end) {
            return DestinationRequest::Done(end);
        }
        if now < self.not_before {
            return DestinationRequest::Wait(self.not_before);
        }
        match self.state {
            State::Accepting if !self.is_ready() => DestinationRequest::Get,
            State::Accepting => DestinationRequest::Accept,
            State::Checking => DestinationRequest::ReadShard,
            State::Closing | State::Done => match self.record_op(now) {
                RecordOp::Save(record, version) => DestinationRequest::Save(record, version),
                RecordOp::Get | RecordOp::Done => DestinationRequest::Get,
            },
        }
    }

    /// Takes the result of the last request.
    pub fn on_reply(&mut self, now: LogicalTime, reply: DestinationReply) {
        match reply {
            DestinationReply::Accepted(accepted) => self.accepted(now, accepted),
            DestinationReply::Shard(seen) => self.seen(now, seen),
            DestinationReply::Saved(record, saved) => {
                if matches!(saved, Err(RepositoryError::Store(_))) {
                    self.pause(now, self.config.retry_ticks);
                }
                self.tracker.saved(*record, saved);
            }
            DestinationReply::Got(got) => self.got(now, got),
        }
        self.advance(now);
    }

    /// Returns whether the record was read in Transfer, so that it contains the snapshot and the
    /// offer may be open.
    fn is_ready(&self) -> bool {
        self.tracker.stored().is_some_and(|stored| stored.record.state == Phase::Transfer)
    }

    /// Takes the record as read. While this move is not accepted, decides whether it still can be.
    fn got(&mut self, now: LogicalTime, got: Result<Stored, RepositoryError>) {
        if !self.tracker.got(got) {
            self.pause(now, self.config.retry_ticks);
            // The read failed while the source may be frozen: retry until the offer ends.
            if now < self.terms.offer_deadline {
                return;
            }
        }
        if self.state != State::Accepting {
            return;
        }
        let phase = self.tracker.record.state;
        let is_there = self.tracker.stored().is_some();
        if !is_there || phase.is_terminal() || now >= self.terms.offer_deadline {
            // Nothing to accept. The record is left alone, because its source finishes it.
            self.stop(DestinationEnd::Missed);
        } else if phase < Phase::Transfer {
            self.tracker.mark_stale();
            self.pause(now, self.config.poll_ticks);
        } else if phase > Phase::Transfer {
            self.stop(DestinationEnd::GrantLost);
        }
    }

    /// Takes the result of an accept. On an error that does not decide the move, it accepts again
    /// or reads the shard.
    fn accepted(&mut self, now: LogicalTime, accepted: Result<(), AcceptError>) {
        match accepted {
            Ok(()) => self.settle(now, DestinationEnd::Live, ACKNOWLEDGED),
            Err(AcceptError::BackendError(_)) => {
                self.pause(now, self.config.retry_ticks);
                if now >= self.terms.offer_deadline {
                    self.state = State::Checking;
                }
            }
            // Probably not offered yet. A retry costs one read, and the source may be frozen.
            Err(AcceptError::NoOffer) if self.is_patient(now) => {
                self.refusals += 1;
                self.pause(now, self.config.poll_ticks);
            }
            // Not yet, or no longer: the fence of the shard distinguishes the two.
            Err(_) => self.state = State::Checking,
        }
    }

    /// Returns whether the accept is retried without reading the shard first.
    fn is_patient(&self, now: LogicalTime) -> bool {
        now < self.terms.offer_deadline && self.refusals + 1 < self.config.accepts_per_read
    }

    /// Takes the shard as read, `None` if the read failed, and ends the move if its fence decides
    /// it.
    fn seen(&mut self, now: LogicalTime, seen: Option<Option<Box<ShardSummary>>>) {
        let Some(shard) = seen else {
            self.pause(now, self.config.retry_ticks);
            // The accept may have committed, so giving up waits longer than the offer.
            let patience = self.terms.offer_deadline.saturating_add(self.config.finish_ticks);
            if now >= patience {
                self.stop(DestinationEnd::Missed);
            }
            return;
        };
        match self.terms.outcome(shard.as_deref()) {
            MoveOutcome::Before if now < self.terms.offer_deadline => {
                self.state = State::Accepting;
                // The offer may still come. The record is read again too, because the source may
                // have ended the move.
                self.refusals = 0;
                self.tracker.mark_stale();
                self.pause(now, self.config.poll_ticks);
            }
            // The source withdraws the offer and rolls the record back.
            MoveOutcome::Before => self.stop(DestinationEnd::Missed),
            MoveOutcome::Moved => self.settle(now, DestinationEnd::GrantLost, ACKNOWLEDGED),
            MoveOutcome::Superseded | MoveOutcome::Gone => {
                let back = Goal::RollBack("superseded: it can never happen");
                self.settle(now, DestinationEnd::Missed, back);
            }
        }
    }

    /// Ends the move and leaves the record to the source.
    const fn stop(&mut self, end: DestinationEnd) {
        self.end = Some(end);
        self.state = State::Done;
    }

    /// Ends the move and brings the record to `goal`.
    fn settle(&mut self, now: LogicalTime, end: DestinationEnd, goal: Goal) {
        self.end = Some(end);
        self.goal = goal;
        self.state = State::Closing;
        self.not_before = LogicalTime::ZERO;
        self.give_up_at = now.saturating_add(self.config.finish_ticks);
        self.advance(now);
    }

    fn advance(&mut self, now: LogicalTime) {
        let arrived = || self.record_op(now) == RecordOp::Done || now >= self.give_up_at;
        if self.state == State::Closing && arrived() {
            self.state = State::Done;
        }
    }

    fn record_op(&self, now: LogicalTime) -> RecordOp {
        self.tracker.next_op(&self.goal, &[], now)
    }

    const fn pause(&mut self, now: LogicalTime, ticks: u64) {
        self.not_before = now.saturating_add(ticks);
    }
}

const ACKNOWLEDGED: Goal = Goal::Reach(Phase::Ack);
