//! The source: the worker that hands a shard over.
//!
//! ```text
//!  Preparing ─► Ready ─► Offering ─► Offered ─► Withdrawing ─► Confirming ─► Closing ─► Done
//!      │          │         └──────────┴──────┬─────┘                          ▲
//!      └──────────┴───────────────────────────┼── Checking ────────────────────┘
//!        (no offer was ever sent)             (something else has the lease)
//! ```
//!
//! # Invariants
//! - The offer is requested only after the record was saved in Transfer and the shard was frozen.
//! - The end is [`SourceEnd::Kept`] only if no offer was ever requested; or the last offer was
//!   rejected and no earlier one is unresolved; or a withdrawal has committed and the fence was
//!   read as F after it. A withdrawal alone is not enough: a repeated one is answered from the
//!   operation log, regardless of the current lease holder.
//! - Once the end is known it never changes; only the record remains to be updated.

use gossip_contracts::coordination::Cursor;
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{OfferError, ShardSummary, WithdrawError};

use super::record_tracker::{Goal, RecordOp, RecordTracker};
use super::terms::{HandoffConfig, MoveOutcome, MoveTerms, NotAMove};
use crate::phase::Phase;
use crate::record::{InvalidRecord, Record, check_snapshot};
use crate::repository::{RepositoryError, Stored, Version};

/// The next operation of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a driver must execute every request")]
pub enum SourceRequest {
    /// Save the record over this version; reply with [`SourceReply::Saved`].
    Save(Box<Record>, Option<Version>),
    /// Read the record of the move; reply with [`SourceReply::Got`].
    Get,
    /// Delete this record; reply with [`SourceReply::Forgotten`].
    Forget(Box<Stored>),
    /// Stop working on the shard, and pass its cursor to [`HandoffSource::freeze`].
    Freeze,
    /// Offer the shard under the lease; reply with [`SourceReply::Offered`].
    Offer,
    /// Withdraw the offer under the lease; reply with [`SourceReply::Withdrawn`].
    Withdraw,
    /// Read the shard; reply with [`SourceReply::Shard`].
    ReadShard,
    /// Nothing before this time.
    Wait(LogicalTime),
    /// Nothing: the source is done.
    Done(SourceEnd),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "one for each request")]
pub enum SourceReply {
    /// The record of the request, and the result of the save.
    Saved(Box<Record>, Result<Version, RepositoryError>),
    /// The record that was read.
    Got(Result<Stored, RepositoryError>),
    /// The deletion was tried. Its result does not matter: the record has ended.
    Forgotten,
    /// The result of the offer.
    Offered(Result<(), OfferError>),
    /// The result of the withdrawal.
    Withdrawn(Result<(), WithdrawError>),
    /// The shard; `Some(None)` if it does not exist, `None` if it could not be read.
    Shard(Option<Option<Box<ShardSummary>>>),
}

/// How a move ended for the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "every caller must know what to do")]
pub enum SourceEnd {
    /// The destination accepted the shard: drop the copy.
    Moved,
    /// The shard did not and will not move: resume under the lease.
    Kept(NotMovedReason),
    /// The lease is no longer valid: never resume under it.
    Lost(NotMovedReason),
}

/// Why a shard did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotMovedReason {
    /// The record could not be saved in time.
    NotRecorded,
    /// Another process drives the record of this id.
    Taken,
    /// The coordinator rejected the offer.
    Refused,
    /// The destination did not accept in time, or the caller cancelled.
    Withdrawn,
    /// The source restarted before it offered the shard.
    Restarted,
    /// Another owner took the shard.
    Superseded,
    /// The shard is finished or deleted.
    Gone,
    /// The lease ended before the offer could be withdrawn.
    LeaseEnded,
    /// The store was unreachable for too long.
    Unreachable,
}

impl NotMovedReason {
    const fn reason(self) -> &'static str {
        match self {
            Self::NotRecorded => "the record could not be saved in time",
            Self::Taken => "another process drives the record",
            Self::Refused => "the offer was rejected",
            Self::Withdrawn => "the offer was withdrawn",
            Self::Restarted => "the source restarted before it offered",
            Self::Superseded => "superseded: another owner took the shard",
            Self::Gone => "the shard is finished or deleted",
            Self::LeaseEnded => "the lease ended",
            Self::Unreachable => "the store was unreachable",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The record is advanced to Transfer; no offer was requested.
    Preparing,
    /// The record is in Transfer, and the caller still works on the shard.
    Ready,
    /// The offer is requested until its result is known.
    Offering,
    /// The offer was open when last seen.
    Offered,
    /// The withdrawal is requested until its result is known.
    Withdrawing,
    /// The withdrawal has committed, now or earlier; the fence is read to see whether an accept
    /// came first.
    Confirming,
    /// The lease is lost; the fence is read to see who owns the shard.
    Checking,
    /// The end is known; the record is brought up to date.
    Closing,
    Done,
}

/// The source side of one move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HandoffSource {
    terms: MoveTerms,
    config: HandoffConfig,
    /// The final cursor; an initial one keeps the stored cursor.
    cursor: Cursor,
    /// Kept until it is saved in the record.
    snapshot: Vec<u8>,
    tracker: RecordTracker,
    state: State,
    /// Whether the caller has stopped working on the shard.
    is_frozen: bool,
    /// Whether an offer was ever requested.
    was_offered: bool,
    /// Whether an offer may be open or in flight.
    offer_unresolved: bool,
    /// Whether the caller has cancelled the move.
    is_cancelled: bool,
    /// Whether the caller holds the lease, so that it can withdraw.
    has_lease: bool,
    end: Option<SourceEnd>,
    /// The next request is not issued before this time.
    not_before: LogicalTime,
    /// The deadline of preparing or closing.
    give_up_at: LogicalTime,
}

impl HandoffSource {
    /// Begins a move at `now`. The caller has frozen the shard at `cursor`; an initial cursor keeps
    /// the stored one.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] if the snapshot is too large or source and destination are the same.
    pub fn new(
        terms: MoveTerms,
        cursor: Cursor,
        snapshot: Vec<u8>,
        config: HandoffConfig,
        now: LogicalTime,
    ) -> Result<Self, InvalidRecord> {
        // Now, and not when it is saved: the caller has just frozen the shard and can still resume.
        check_snapshot(&snapshot)?;
        let tracker = RecordTracker::fresh(terms.begin(now)?.record());
        let give_up_at = now.saturating_add(config.prepare_ticks);
        let source = Self::at(terms, config, tracker, State::Preparing, give_up_at);
        Ok(Self { cursor, snapshot, has_lease: true, is_frozen: true, ..source })
    }

    /// Begins a move without a snapshot at `now`, while the caller keeps working. The caller stops
    /// at [`SourceRequest::Freeze`], when only the offer remains, so the shard is frozen only for
    /// the offer and the accept.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] if source and destination are the same.
    pub fn prepare(
        terms: MoveTerms,
        config: HandoffConfig,
        now: LogicalTime,
    ) -> Result<Self, InvalidRecord> {
        let source = Self::new(terms, Cursor::initial(), Vec::new(), config, now)?;
        Ok(Self { is_frozen: false, ..source })
    }

    /// Records that the caller has stopped at `cursor`; an initial cursor keeps the stored one.
    pub fn freeze(&mut self, now: LogicalTime, cursor: Cursor) {
        self.cursor = cursor;
        self.is_frozen = true;
        if self.state == State::Ready {
            self.not_before = LogicalTime::ZERO;
            self.advance(now);
        }
    }

    /// Recovers a move that an earlier task or process began. `has_lease` is whether the caller
    /// still holds the lease with the fence of the move: a restarted task does, a restarted process
    /// does not.
    ///
    /// # Errors
    ///
    /// [`NotAMove`] if the record does not describe the move of a shard.
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
            // The offer comes after Transfer was saved, so there was none. The fence is checked
            // nevertheless: a delayed duplicate of the first save creates the record again after
            // its move has ended and was deleted.
            Phase::Lock | Phase::Serialize => {}
            Phase::Transfer => {
                source.was_offered = true;
                source.offer_unresolved = true;
                source.state = if has_lease { State::Withdrawing } else { State::Checking };
            }
            // The destination saves Ack only after its accept has committed.
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

    /// Returns the terms of the move.
    #[must_use]
    pub const fn terms(&self) -> &MoveTerms {
        &self.terms
    }

    /// Returns the final cursor.
    #[must_use]
    pub(crate) const fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Returns how the move ended, if that is known. The caller may act on it before the record is
    /// updated.
    #[must_use]
    pub const fn end(&self) -> Option<SourceEnd> {
        self.end
    }

    /// Cancels the move: the offer is withdrawn as soon as possible. An accept that committed
    /// before the withdrawal stays valid.
    pub const fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    /// Applies deadlines and a cancellation: a source that is not frozen yet aborts, and one whose
    /// offer was not accepted withdraws it.
    pub fn tick(&mut self, now: LogicalTime) {
        if self.state == State::Ready {
            self.advance(now);
        }
        self.stop_waiting(now);
    }

    /// Returns whether the shard is frozen until the next request is executed.
    #[must_use]
    pub(crate) const fn is_urgent(&self) -> bool {
        matches!(self.state, State::Offering | State::Withdrawing | State::Confirming)
    }

    /// Returns the operation to execute next. Changes nothing: it is the same one until
    /// [`on_reply`](Self::on_reply), [`freeze`](Self::freeze) or [`tick`](Self::tick) changes the
    /// state, or a wait has ended at `now`. Deadlines take effect only there, so call `tick` first.
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
            // `Done` always has an end, so it was returned above.
            State::Closing | State::Done => self.close(now),
        }
    }

    /// Takes the result of the last request and enters the next state. A failure of
    /// the store delays the next request and is no error.
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

    /// Enters the next state if the record is ready or a deadline has passed.
    fn advance(&mut self, now: LogicalTime) {
        match self.state {
            State::Preparing if self.is_cancelled || now >= self.give_up_at => {
                self.settle(now, SourceEnd::Kept(NotMovedReason::NotRecorded));
            }
            State::Preparing => match self.record_op(now, &PREPARED) {
                RecordOp::Done if self.tracker.record.state == Phase::Transfer => {
                    // Freed, because a source lives for the whole offer and the record has it.
                    self.snapshot = Vec::new();
                    self.state = State::Ready;
                    self.pause(now, self.config.lead_ticks);
                    self.advance(now);
                }
                // Nothing is left to save although it is not in Transfer: another process ended it.
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
                // After the deadline the record is left to recovery, which finds it in the index.
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

    /// Takes the result of a save. A conflict before the offer ends the move.
    fn saved(&mut self, now: LogicalTime, record: Record, saved: Result<Version, RepositoryError>) {
        let conflict = saved == Err(RepositoryError::VersionConflict);
        let failed = saved.is_err();
        self.tracker.saved(record, saved);
        if conflict && self.state == State::Preparing {
            // Another process drives the record. No offer was sent, so this source keeps the shard,
            // and does not change a record that is no longer its own.
            self.end = Some(SourceEnd::Kept(NotMovedReason::Taken));
            self.state = State::Done;
        } else if failed && !conflict {
            self.pause(now, self.config.retry_ticks);
        }
    }

    /// Takes the result of an offer: waits for the destination, offers again, withdraws, or reads
    /// the shard to find out who has it.
    fn offered(&mut self, now: LogicalTime, offered: Result<(), OfferError>) {
        match offered {
            Ok(()) => {
                self.offer_unresolved = true;
                self.state = State::Offered;
            }
            Err(OfferError::BackendError(_)) => {
                // The reply was lost, so the offer may have committed.
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
            // This attempt was rejected, but an earlier one may have committed: only a withdrawal
            // rules that out.
            Err(_) if self.offer_unresolved => self.state = State::Withdrawing,
            Err(_) => self.settle(now, SourceEnd::Kept(NotMovedReason::Refused)),
        }
    }

    /// Takes the result of a withdrawal. Unless it is retried or given up, the fence of the
    /// shard is read next and decides.
    fn withdrawn(&mut self, now: LogicalTime, withdrawn: Result<(), WithdrawError>) {
        match withdrawn {
            // A repeated withdrawal succeeds from the operation log even if the shard was accepted
            // in between, so the fence is read before the source resumes.
            Ok(()) => self.state = State::Confirming,
            Err(WithdrawError::BackendError(_)) => {
                self.pause(now, self.config.retry_ticks);
                self.stop_looking(now);
            }
            Err(_) => self.state = State::Checking,
        }
    }

    /// Takes the shard as read, `None` if the read failed, and ends the move if its fence or its
    /// status decides it. Otherwise waits and reads again.
    fn seen(&mut self, now: LogicalTime, seen: Option<Option<Box<ShardSummary>>>) {
        let Some(shard) = seen else {
            self.pause(now, self.config.retry_ticks);
            self.stop_looking(now);
            return self.stop_waiting(now);
        };
        match self.terms.outcome(shard.as_deref()) {
            MoveOutcome::Moved => self.settle(now, SourceEnd::Moved),
            MoveOutcome::Superseded => {
                self.settle(now, SourceEnd::Lost(NotMovedReason::Superseded));
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
            // The fence is F but the lease has ended, so no process can withdraw the offer. The
            // record stays in Transfer until a grant raises the fence.
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

    /// Withdraws an offer that was cancelled or not accepted in time.
    fn stop_waiting(&mut self, now: LogicalTime) {
        let is_late = self.is_cancelled || now >= self.terms.offer_deadline;
        if self.state == State::Offered && is_late {
            self.state = State::Withdrawing;
            self.not_before = LogicalTime::ZERO;
        }
    }

    /// Aborts when the store has been unreachable for too long. The source must not resume, because
    /// its offer may be open; the record is left to recovery.
    fn stop_looking(&mut self, now: LogicalTime) {
        let waits = matches!(self.state, State::Withdrawing | State::Confirming | State::Checking);
        let patience = self.config.finish_ticks;
        let begun = self.terms.offer_deadline.max(self.give_up_at);
        if waits && now >= begun.saturating_add(patience) {
            self.end = Some(SourceEnd::Lost(NotMovedReason::Unreachable));
            self.state = State::Done;
        }
    }

    /// Records how the move ended. The record is then brought to that end, until `finish_ticks`
    /// have passed.
    fn settle(&mut self, now: LogicalTime, end: SourceEnd) {
        self.end = Some(end);
        self.state = State::Closing;
        self.give_up_at = now.saturating_add(self.config.finish_ticks);
        self.not_before = LogicalTime::ZERO;
        if end == SourceEnd::Moved {
            // The destination has probably saved Ack meanwhile: read before writing.
            self.tracker.mark_stale();
        }
        self.advance(now);
    }

    /// Returns the phase that the record must reach now that the end is known.
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
