//! The side that gets a shard.
//!
//! It accepts, and owns the shard from that commit on; then it says so in the record. Whatever else
//! it finds it leaves to the source, except a move that can never happen: that it ends.

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{AcceptError, ShardSummary};

use super::record_tracker::{Goal, RecordOp, RecordTracker};
use super::terms::{HandoffConfig, MoveOutcome, MoveTerms, NotAMove};
use crate::phase::Phase;
use crate::record::Record;
use crate::repository::{RepositoryError, Stored, Version};

/// What a destination needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a driver must carry every question")]
pub enum DestinationRequest {
    /// Accept the shard, as [`DestinationReply::Accepted`].
    Accept,
    /// Look at the shard, as [`DestinationReply::Shard`].
    ReadShard,
    /// Save this over that version, as [`DestinationReply::Saved`].
    Save(Box<Record>, Option<Version>),
    /// Read the record of the move, as [`DestinationReply::Got`].
    Get,
    /// Nothing before this instant.
    Wait(LogicalTime),
    /// Nothing any more.
    Done(DestinationEnd),
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "one for each question")]
pub enum DestinationReply {
    /// Whether it was accepted.
    Accepted(Result<(), AcceptError>),
    /// The shard; `Some(None)` if there is none, `None` if it could not be looked at.
    Shard(Option<Option<Box<ShardSummary>>>),
    /// What became of a save, and what was to be saved.
    Saved(Box<Record>, Result<Version, RepositoryError>),
    /// What was read.
    Got(Result<Stored, RepositoryError>),
}

/// How a move ended for the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every caller must know what to do")]
pub enum DestinationEnd {
    /// It has the shard, under the lease that the accept answered.
    Live,
    /// The accept happened, and its answer was lost with the lease in it, or with the process that
    /// asked. The shard is free when that lease ends.
    GrantLost,
    /// It does not have the shard and will not get it by this move.
    Missed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Accepting,
    /// There was no offer: not yet, or no more?
    Checking,
    /// The end is known; the record follows.
    Closing,
    Done,
}

/// One shard on its way in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HandoffDestination {
    terms: MoveTerms,
    config: HandoffConfig,
    tracker: RecordTracker,
    state: State,
    end: Option<DestinationEnd>,
    /// Where the record goes once the end is known.
    goal: Goal,
    /// Accepts that were refused since the shard was last looked at.
    refusals: u32,
    /// Nothing is asked before this instant.
    not_before: LogicalTime,
    /// When closing has taken long enough.
    give_up_at: LogicalTime,
}

impl HandoffDestination {
    /// A move to this worker that was found at `now`, at any phase.
    ///
    /// # Errors
    ///
    /// [`NotAMove`] if the record is about something else.
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
            // The offer is not sent yet; the record is read again before it is accepted.
            Phase::Lock | Phase::Serialize => destination.tracker.mark_stale(),
            Phase::Transfer => {}
            // Accepted before this process began. A source that does not finish is gone.
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

    /// What is moved.
    #[must_use]
    pub const fn terms(&self) -> &MoveTerms {
        &self.terms
    }

    /// What the source sent along.
    #[must_use]
    pub fn snapshot(&self) -> &[u8] {
        &self.tracker.record.snapshot
    }

    /// How the move ended. It is known before the record says so, and the caller may act on it.
    #[must_use]
    pub const fn end(&self) -> Option<DestinationEnd> {
        self.end
    }

    /// What is needed next.
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

    /// Takes what came of the last question.
    pub fn on_reply(&mut self, now: LogicalTime, reply: DestinationReply) {
        match reply {
            DestinationReply::Accepted(accepted) => self.accepted(now, accepted),
            DestinationReply::Shard(seen) => self.seen(now, seen),
            DestinationReply::Saved(record, saved) => {
                if matches!(saved, Err(RepositoryError::Failed { .. })) {
                    self.pause(now, self.config.retry_ticks);
                }
                self.tracker.saved(*record, saved);
            }
            DestinationReply::Got(got) => self.got(now, got),
        }
        self.advance(now);
    }

    /// Whether the record was seen in Transfer: the snapshot is whole, and the offer may stand.
    fn is_ready(&self) -> bool {
        self.tracker.stored().is_some_and(|stored| stored.record.state == Phase::Transfer)
    }

    fn got(&mut self, now: LogicalTime, got: Result<Stored, RepositoryError>) {
        if !self.tracker.got(got) {
            self.pause(now, self.config.retry_ticks);
            // Nothing was learned, and the source stands still: ask again while the offer stands.
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
            // Whatever becomes of the record, it is the source's.
            self.stop(DestinationEnd::Missed);
        } else if phase < Phase::Transfer {
            self.tracker.mark_stale();
            self.pause(now, self.config.poll_ticks);
        } else if phase > Phase::Transfer {
            self.stop(DestinationEnd::GrantLost);
        }
    }

    fn accepted(&mut self, now: LogicalTime, accepted: Result<(), AcceptError>) {
        match accepted {
            Ok(()) => self.settle(now, DestinationEnd::Live, ACKNOWLEDGED),
            Err(AcceptError::BackendError(_)) => {
                self.pause(now, self.config.retry_ticks);
                if now >= self.terms.offer_deadline {
                    self.state = State::Checking;
                }
            }
            // Most likely not yet. Asking again costs one read, and the source may stand still.
            Err(AcceptError::NoOffer) if self.is_patient(now) => {
                self.refusals += 1;
                self.pause(now, self.config.poll_ticks);
            }
            // Not yet, or no more: the shard tells.
            Err(_) => self.state = State::Checking,
        }
    }

    /// Whether it asks for the offer again without a look at the shard.
    fn is_patient(&self, now: LogicalTime) -> bool {
        now < self.terms.offer_deadline && self.refusals + 1 < self.config.accepts_per_read
    }

    fn seen(&mut self, now: LogicalTime, seen: Option<Option<Box<ShardSummary>>>) {
        let Some(shard) = seen else {
            self.pause(now, self.config.retry_ticks);
            let patience = self.terms.offer_deadline.saturating_add(self.config.finish_ticks);
            if now >= patience {
                self.stop(DestinationEnd::Missed);
            }
            return;
        };
        match self.terms.outcome(shard.as_deref()) {
            MoveOutcome::Before if now < self.terms.offer_deadline => {
                self.state = State::Accepting;
                self.refusals = 0;
                self.tracker.mark_stale();
                self.pause(now, self.config.poll_ticks);
            }
            // The source withdraws it, and ends the record.
            MoveOutcome::Before => self.stop(DestinationEnd::Missed),
            MoveOutcome::Moved => self.settle(now, DestinationEnd::GrantLost, ACKNOWLEDGED),
            MoveOutcome::Superseded | MoveOutcome::Gone => {
                let back = Goal::RollBack("superseded: it can never happen");
                self.settle(now, DestinationEnd::Missed, back);
            }
        }
    }

    /// The end is known, and the record is not ours to end.
    const fn stop(&mut self, end: DestinationEnd) {
        self.end = Some(end);
        self.state = State::Done;
    }

    /// The end is known, and the record follows.
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
