//! The side that gives a shard away.
//!
//! ```text
//!  Preparing ─► Ready ─► Offering ─► Offered ─► Withdrawing ─► Confirming ─► Closing ─► Done
//!      │          │         └──────────┴──────┬─────┘                          ▲
//!      └──────────┴───────────────────────────┼── Looking ─────────────────────┘
//!        (no offer was ever sent)             (something else has the lease)
//! ```
//!
//! # Invariants
//! - The offer is asked for only after the record was saved in Transfer and the shard stands still.
//! - [`SourceEnd::Kept`] is told only if no offer was ever asked for, or the last one was refused
//!   and none is in doubt, or a withdrawal has committed and the fence was seen at F after that. A
//!   withdrawal alone is not enough: a repeated one is answered from memory, whoever has the shard.
//! - Once the end is known it never changes; what is left is the record.

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{OfferError, ShardSummary, WithdrawError};

use super::record_tracker::{Goal, RecordOp, RecordTracker};
use super::terms::{HandoffConfig, MoveOutcome, MoveTerms, NotAMove};
use crate::phase::Phase;
use crate::record::{InvalidRecord, Record, check_snapshot};
use crate::repository::{RepositoryError, Stored, Version};

/// What a source needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a driver must carry every question")]
pub enum SourceRequest {
    /// Save this over that version, as [`SourceReply::Saved`].
    Save(Box<Record>, Option<Version>),
    /// Read the record of the move, as [`SourceReply::Got`].
    Get,
    /// Forget this, as [`SourceReply::Forgotten`].
    Forget(Box<Stored>),
    /// Stop working on the shard, and say where ([`HandoffSource::freeze`]).
    Freeze,
    /// Offer the shard under the lease, as [`SourceReply::Offered`].
    Offer,
    /// Withdraw the offer under the lease, as [`SourceReply::Withdrawn`].
    Withdraw,
    /// Look at the shard, as [`SourceReply::Shard`].
    ReadShard,
    /// Nothing before this instant.
    Wait(LogicalTime),
    /// Nothing any more.
    Done(SourceEnd),
}

/// What came of a question. `None` as the error of an operation means that the store failed and
/// it may have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "one for each question")]
pub enum SourceReply {
    /// What became of a save, and what was to be saved.
    Saved(Box<Record>, Result<Version, RepositoryError>),
    /// What was read.
    Got(Result<Stored, RepositoryError>),
    /// Whether it was forgotten; nothing depends on it.
    Forgotten,
    /// What became of the offer.
    Offered(Result<(), OfferError>),
    /// What became of the withdrawal.
    Withdrawn(Result<(), WithdrawError>),
    /// The shard; `Ok(None)` if there is none, `None` if it could not be looked at.
    Shard(Option<Option<Box<ShardSummary>>>),
}

/// How a move ended for the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every caller must know what to do")]
pub enum SourceEnd {
    /// The destination has or had it: drop the copy.
    Moved,
    /// Nothing has moved and nothing will: go on under the lease.
    Kept(NotMovedReason),
    /// The lease is worth nothing any more: never go on under it.
    Lost(NotMovedReason),
}

/// Why a shard did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotMovedReason {
    /// The record could not be saved in time.
    NotRecorded,
    /// A record of this id is driven by somebody else.
    Taken,
    /// The kernel refused the offer.
    Refused,
    /// Nobody accepted in time, or the caller changed its mind.
    Withdrawn,
    /// The source was restarted before it offered anything.
    Restarted,
    /// Another owner took the shard.
    Superseded,
    /// The shard is finished or deleted.
    Gone,
    /// The lease ended before the offer could be withdrawn.
    LeaseEnded,
    /// The store did not answer for too long.
    Unreachable,
}

impl NotMovedReason {
    const fn reason(self) -> &'static str {
        match self {
            Self::NotRecorded => "the record could not be saved in time",
            Self::Taken => "somebody else drives the record",
            Self::Refused => "the offer was refused",
            Self::Withdrawn => "the offer was withdrawn",
            Self::Restarted => "the source restarted before it offered",
            Self::Superseded => "superseded: another owner took the shard",
            Self::Gone => "the shard is finished or deleted",
            Self::LeaseEnded => "the lease ended",
            Self::Unreachable => "the store did not answer",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The record goes to Transfer; no offer was asked for.
    Preparing,
    /// The record is in Transfer, and the shard is still worked on.
    Ready,
    /// The offer is asked for until it is known.
    Offering,
    /// The offer stands, as far as is known.
    Offered,
    /// The withdrawal is asked for until it is known.
    Withdrawing,
    /// The withdrawal has committed, now or long ago; is the shard still ours?
    Confirming,
    /// The lease is gone; whose is the shard?
    Checking,
    /// The end is known; the record follows.
    Closing,
    Done,
}

/// One shard on its way out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HandoffSource {
    terms: MoveTerms,
    config: HandoffConfig,
    /// The final position; an initial one keeps the stored one.
    cursor: Cursor,
    /// Kept until the record holds it.
    snapshot: Vec<u8>,
    tracker: RecordTracker,
    state: State,
    /// Whether the shard stands still.
    is_frozen: bool,
    /// Whether an offer was ever asked for.
    was_offered: bool,
    /// Whether an offer may stand, or may be on its way.
    offer_unresolved: bool,
    /// Whether the caller changed its mind.
    is_cancelled: bool,
    /// Whether there is a lease to withdraw under.
    has_lease: bool,
    end: Option<SourceEnd>,
    /// Nothing is asked before this instant.
    not_before: LogicalTime,
    /// When preparing, or closing, has taken long enough.
    give_up_at: LogicalTime,
}

impl HandoffSource {
    /// A move that begins at `now`. The caller has frozen the shard: `cursor` is where it stopped,
    /// and an initial one keeps what is stored.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for a snapshot that is too large, or a move to oneself.
    pub fn new(
        terms: MoveTerms,
        cursor: Cursor,
        snapshot: Vec<u8>,
        config: HandoffConfig,
        now: LogicalTime,
    ) -> Result<Self, InvalidRecord> {
        check_snapshot(&snapshot)?;
        let tracker = RecordTracker::fresh(terms.begin(now)?.record());
        let give_up_at = now.saturating_add(config.prepare_ticks);
        let source = Self::at(terms, config, tracker, State::Preparing, give_up_at);
        Ok(Self { cursor, snapshot, has_lease: true, is_frozen: true, ..source })
    }

    /// A move without a snapshot that begins at `now`, while the caller goes on working: it stands
    /// still from [`SourceRequest::Freeze`] on, when only the offer is left to do. So the gap of
    /// the move is an offer and an accept.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for a move to oneself.
    pub fn prepare(
        terms: MoveTerms,
        config: HandoffConfig,
        now: LogicalTime,
    ) -> Result<Self, InvalidRecord> {
        let source = Self::new(terms, Cursor::initial(), Vec::new(), config, now)?;
        Ok(Self { is_frozen: false, ..source })
    }

    /// The shard stands still from now on, at `cursor`; an initial one keeps what is stored.
    pub fn freeze(&mut self, now: LogicalTime, cursor: Cursor) {
        self.cursor = cursor;
        self.is_frozen = true;
        if self.state == State::Ready {
            self.not_before = LogicalTime::ZERO;
            self.advance(now);
        }
    }

    /// A move that this source left behind, or whose source is gone. `has_lease` tells whether the
    /// caller still holds the lease of the move's fence: a task that was restarted does, a process
    /// does not.
    ///
    /// # Errors
    ///
    /// [`NotAMove`] if the record is about something else.
    pub fn recover(
        stored: Stored,
        has_lease: bool,
        config: HandoffConfig,
        now: LogicalTime,
    ) -> Result<Self, NotAMove> {
        let terms = MoveTerms::of(&stored.record)?;
        let phase = stored.record.state;
        let give_up_at = now.saturating_add(config.finish_ticks);
        let tracker = RecordTracker::found(stored);
        let mut source = Self::at(terms, config, tracker, State::Checking, give_up_at);
        source.has_lease = has_lease;
        match phase {
            // An offer is asked for only after Transfer was saved, so there was none. Yet the shard
            // is looked at: a first save that arrives twice, and late, makes a record anew whose
            // move is long over and forgotten.
            Phase::Lock | Phase::Serialize => {}
            Phase::Transfer => {
                source.was_offered = true;
                source.offer_unresolved = true;
                source.state = if has_lease { State::Withdrawing } else { State::Checking };
            }
            // Whoever acknowledged has accepted before.
            Phase::Ack | Phase::Unlock | Phase::Complete => source.settle(now, SourceEnd::Moved),
            Phase::RolledBack => source.settle(now, SourceEnd::Lost(NotMovedReason::Superseded)),
        }
        Ok(source)
    }

    const fn at(
        terms: MoveTerms,
        config: HandoffConfig,
        tracker: RecordTracker,
        state: State,
        give_up_at: LogicalTime,
    ) -> Self {
        Self {
            terms,
            config,
            cursor: Cursor::initial(),
            snapshot: Vec::new(),
            tracker,
            state,
            is_frozen: false,
            was_offered: false,
            offer_unresolved: false,
            is_cancelled: false,
            has_lease: false,
            end: None,
            not_before: LogicalTime::ZERO,
            give_up_at,
        }
    }

    /// What is moved.
    #[must_use]
    pub const fn terms(&self) -> &MoveTerms {
        &self.terms
    }

    /// The final position.
    #[must_use]
    pub const fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// How the move ended. It is known before the record says so, and the caller may act on it.
    #[must_use]
    pub const fn end(&self) -> Option<SourceEnd> {
        self.end
    }

    /// The caller changed its mind: the offer is withdrawn as soon as may be. If it was accepted
    /// before, it was.
    pub const fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    /// Time has passed, or the caller changed its mind: a source that is not frozen yet gives up,
    /// and one whose offer nobody took withdraws it. Nothing else changes by time alone.
    pub fn tick(&mut self, now: LogicalTime) {
        if self.state == State::Ready {
            self.advance(now);
        }
        self.stop_waiting(now);
    }

    /// Whether the shard stands still and waits for what is asked next.
    #[must_use]
    pub const fn is_urgent(&self) -> bool {
        matches!(self.state, State::Offering | State::Withdrawing | State::Confirming)
    }

    /// What is needed next.
    #[must_use]
    pub fn next_request(&self, now: LogicalTime) -> SourceRequest {
        if let (State::Done, Some(end)) = (self.state, self.end) {
            return SourceRequest::Done(end);
        }
        if now < self.not_before {
            return SourceRequest::Wait(self.not_before);
        }
        match self.state {
            State::Preparing => self.request_for(self.record_op(now, &PREPARED)),
            State::Ready => SourceRequest::Freeze,
            State::Offering => SourceRequest::Offer,
            State::Offered | State::Confirming | State::Checking => SourceRequest::ReadShard,
            State::Withdrawing => SourceRequest::Withdraw,
            State::Closing | State::Done => self.close(now),
        }
    }

    /// Takes what came of the last question.
    pub fn on_reply(&mut self, now: LogicalTime, reply: SourceReply) {
        match reply {
            SourceReply::Saved(record, saved) => self.saved(now, *record, saved),
            SourceReply::Got(got) => {
                if !self.tracker.got(got) {
                    self.pause(now, self.config.retry_ticks);
                }
            }
            SourceReply::Forgotten => self.state = State::Done,
            SourceReply::Offered(offered) => self.offered(now, offered),
            SourceReply::Withdrawn(withdrawn) => self.withdrawn(now, withdrawn),
            SourceReply::Shard(seen) => self.seen(now, seen),
        }
        self.advance(now);
    }

    /// Moves on from what has arrived or taken too long.
    fn advance(&mut self, now: LogicalTime) {
        match self.state {
            State::Preparing if self.is_cancelled || now >= self.give_up_at => {
                self.settle(now, SourceEnd::Kept(NotMovedReason::NotRecorded));
            }
            State::Preparing => match self.record_op(now, &PREPARED) {
                RecordOp::Done if self.tracker.record.state == Phase::Transfer => {
                    self.snapshot = Vec::new();
                    self.state = State::Ready;
                    self.pause(now, self.config.lead_ticks);
                    self.advance(now);
                }
                // Somebody ended it meanwhile.
                RecordOp::Done => self.settle(now, SourceEnd::Kept(NotMovedReason::Taken)),
                RecordOp::Save(..) | RecordOp::Get => {}
            },
            State::Ready if self.is_cancelled || now >= self.terms.offer_deadline => {
                self.settle(now, SourceEnd::Kept(NotMovedReason::NotRecorded));
            }
            State::Ready if self.is_frozen => {
                self.was_offered = true;
                self.not_before = LogicalTime::ZERO;
                self.state = State::Offering;
            }
            State::Closing => {
                let arrived = self.record_op(now, &self.goal()) == RecordOp::Done;
                let forgets = self.tracker.record.state == Phase::Complete;
                let nothing_left = arrived && !(forgets && self.tracker.stored().is_some());
                // What is left is found by whoever recovers it.
                if nothing_left || now >= self.give_up_at {
                    self.state = State::Done;
                }
            }
            State::Ready
            | State::Offering
            | State::Offered
            | State::Withdrawing
            | State::Confirming
            | State::Checking
            | State::Done => {}
        }
    }

    fn close(&self, now: LogicalTime) -> SourceRequest {
        self.request_for(self.record_op(now, &self.goal()))
    }

    fn record_op(&self, now: LogicalTime, goal: &Goal) -> RecordOp {
        self.tracker.next_op(goal, &self.snapshot, now)
    }

    fn request_for(&self, record_op: RecordOp) -> SourceRequest {
        match record_op {
            RecordOp::Save(record, version) => SourceRequest::Save(record, version),
            RecordOp::Get => SourceRequest::Get,
            RecordOp::Done => match self.tracker.stored() {
                Some(stored) => SourceRequest::Forget(Box::new(stored)),
                None => SourceRequest::Get,
            },
        }
    }

    fn saved(&mut self, now: LogicalTime, record: Record, saved: Result<Version, RepositoryError>) {
        let conflict = saved == Err(RepositoryError::VersionConflict);
        let failed = saved.is_err();
        self.tracker.saved(record, saved);
        if conflict && self.state == State::Preparing {
            // Not ours any more, or never: it is left alone.
            self.end = Some(SourceEnd::Kept(NotMovedReason::Taken));
            self.state = State::Done;
        } else if failed && !conflict {
            self.pause(now, self.config.retry_ticks);
        }
    }

    fn offered(&mut self, now: LogicalTime, offered: Result<(), OfferError>) {
        match offered {
            Ok(()) => {
                self.offer_unresolved = true;
                self.state = State::Offered;
            }
            Err(OfferError::BackendError(_)) => {
                self.offer_unresolved = true;
                let is_late = self.is_cancelled || now >= self.terms.offer_deadline;
                self.state = if is_late { State::Withdrawing } else { State::Offering };
                self.pause(now, self.config.retry_ticks);
            }
            Err(
                OfferError::StaleFence { .. }
                | OfferError::LeaseExpired { .. }
                | OfferError::ShardTerminal { .. }
                | OfferError::ShardNotFound { .. },
            ) => self.state = State::Checking,
            // An earlier one may stand, so only a withdrawal makes sure.
            Err(_) if self.offer_unresolved => self.state = State::Withdrawing,
            Err(_) => self.settle(now, SourceEnd::Kept(NotMovedReason::Refused)),
        }
    }

    fn withdrawn(&mut self, now: LogicalTime, withdrawn: Result<(), WithdrawError>) {
        match withdrawn {
            Ok(()) => self.state = State::Confirming,
            Err(WithdrawError::BackendError(_)) => {
                self.pause(now, self.config.retry_ticks);
                self.stop_looking(now);
            }
            Err(_) => self.state = State::Checking,
        }
    }

    fn seen(&mut self, now: LogicalTime, seen: Option<Option<Box<ShardSummary>>>) {
        let Some(shard) = seen else {
            self.pause(now, self.config.retry_ticks);
            self.stop_looking(now);
            return self.stop_waiting(now);
        };
        match self.terms.outcome(shard.as_deref()) {
            MoveOutcome::Moved => self.settle(now, SourceEnd::Moved),
            MoveOutcome::Superseded => {
                self.settle(now, SourceEnd::Lost(NotMovedReason::Superseded))
            }
            MoveOutcome::Gone => self.settle(now, SourceEnd::Lost(NotMovedReason::Gone)),
            MoveOutcome::Before if self.state == State::Confirming => {
                self.settle(now, SourceEnd::Kept(NotMovedReason::Withdrawn));
            }
            MoveOutcome::Before if self.state == State::Checking && !self.was_offered => {
                let why = NotMovedReason::Restarted;
                let kept = self.has_lease;
                self.settle(now, if kept { SourceEnd::Kept(why) } else { SourceEnd::Lost(why) });
            }
            // The fence is F and the lease is worth nothing: the record stays in Transfer until the
            // fence moves, because nobody can withdraw.
            MoveOutcome::Before if self.state == State::Checking => {
                self.end = Some(SourceEnd::Lost(NotMovedReason::LeaseEnded));
                self.state = State::Done;
            }
            MoveOutcome::Before => {
                self.pause(now, self.config.find_ticks);
                self.stop_waiting(now);
            }
        }
    }

    /// An offer that nobody took in time is withdrawn.
    fn stop_waiting(&mut self, now: LogicalTime) {
        let is_late = self.is_cancelled || now >= self.terms.offer_deadline;
        if self.state == State::Offered && is_late {
            self.state = State::Withdrawing;
            self.not_before = LogicalTime::ZERO;
        }
    }

    /// A store that does not answer is not asked for ever. The record is left to whoever recovers
    /// it, and the source does not go on: an offer may stand.
    fn stop_looking(&mut self, now: LogicalTime) {
        let waits = matches!(self.state, State::Withdrawing | State::Confirming | State::Checking);
        let patience = self.config.finish_ticks;
        let begun = self.terms.offer_deadline.max(self.give_up_at);
        if waits && now >= begun.saturating_add(patience) {
            self.end = Some(SourceEnd::Lost(NotMovedReason::Unreachable));
            self.state = State::Done;
        }
    }

    fn settle(&mut self, now: LogicalTime, end: SourceEnd) {
        self.end = Some(end);
        self.state = State::Closing;
        self.give_up_at = now.saturating_add(self.config.finish_ticks);
        self.not_before = LogicalTime::ZERO;
        if end == SourceEnd::Moved {
            // The destination has most likely acknowledged meanwhile.
            self.tracker.mark_stale();
        }
        self.advance(now);
    }

    /// Where the record goes once the end is known.
    const fn goal(&self) -> Goal {
        match self.end {
            Some(SourceEnd::Kept(why) | SourceEnd::Lost(why)) => Goal::RollBack(why.reason()),
            Some(SourceEnd::Moved) | None => Goal::Reach(Phase::Complete),
        }
    }

    const fn pause(&mut self, now: LogicalTime, ticks: u64) {
        self.not_before = now.saturating_add(ticks);
    }
}

const PREPARED: Goal = Goal::Reach(Phase::Transfer);
