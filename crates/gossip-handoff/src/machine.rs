//! The machine: one record, driven through its phases.
//!
//! It changes a record in memory and nothing else. Whoever drives it stores
//! [`Machine::record`] after every step, *before* acting on it; a crash then finds a record that
//! says at least as much as was done.

use std::fmt;

use gossip_contracts::identity::LogicalTime;
use thiserror::Error;

use crate::phase::Phase;
use crate::record::{InvalidRecord, Record, RecordId, check_snapshot, cut_reason};

/// Where a machine takes the time from.
type Clock = Box<dyn FnMut() -> LogicalTime + Send>;

/// One handoff on its way.
///
/// A machine that is made or rehydrated has a clock that stands still at the time it was given;
/// [`Machine::set_clock`] gives it one that runs. Time never goes back: an earlier reading counts
/// as the last one.
pub struct Machine {
    record: Record,
    clock: Clock,
}

impl Machine {
    /// A handoff of `subject` that begins in [`Phase::Lock`].
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for a name that is empty or too long, or a handoff to oneself.
    pub fn new(
        id: RecordId,
        subject: impl Into<String>,
        from: impl Into<String>,
        to: impl Into<String>,
        now: LogicalTime,
    ) -> Result<Self, InvalidRecord> {
        Self::from_record(Record {
            id,
            subject: subject.into(),
            from: from.into(),
            to: to.into(),
            state: Phase::Lock,
            started_at: now,
            last_transition: now,
            snapshot: Vec::new(),
            error: String::new(),
        })
    }

    /// The machine of a stored record, to go on after a crash.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for what no machine has made.
    pub fn from_record(record: Record) -> Result<Self, InvalidRecord> {
        record.check()?;
        let now = record.last_transition;
        Ok(Self { record, clock: Box::new(move || now) })
    }

    /// Takes the time from `clock` from now on.
    pub fn set_clock(&mut self, clock: impl FnMut() -> LogicalTime + Send + 'static) {
        self.clock = Box::new(clock);
    }

    /// The phase.
    #[must_use]
    pub const fn state(&self) -> Phase {
        self.record.state
    }

    /// The record as it is now, to be stored.
    #[must_use]
    pub fn record(&self) -> Record {
        self.record.clone()
    }

    /// Whether it is over.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        self.record.state.is_terminal()
    }

    /// Lock → Serialize: the owner has frozen the subject, and this is its state. It may be empty.
    ///
    /// # Errors
    ///
    /// [`HandoffError`]; a snapshot that is too large leaves the machine as it was.
    pub fn serialize(&mut self, snapshot: impl Into<Vec<u8>>) -> Result<(), HandoffError> {
        self.check(Phase::Lock, Phase::Serialize)?;
        let snapshot = snapshot.into();
        check_snapshot(&snapshot)?;
        self.record.snapshot = snapshot;
        self.enter(Phase::Serialize);
        Ok(())
    }

    /// Serialize → Transfer. The owner tells the destination once this is stored.
    ///
    /// # Errors
    ///
    /// [`HandoffError`].
    pub fn transfer(&mut self) -> Result<(), HandoffError> {
        self.advance(Phase::Serialize, Phase::Transfer)
    }

    /// Transfer → Ack: the destination has loaded the snapshot and is live.
    ///
    /// # Errors
    ///
    /// [`HandoffError`].
    pub fn ack(&mut self) -> Result<(), HandoffError> {
        self.advance(Phase::Transfer, Phase::Ack)
    }

    /// Ack → Unlock. The owner drops its copy once this is stored. There is no way back.
    ///
    /// # Errors
    ///
    /// [`HandoffError`].
    pub fn unlock(&mut self) -> Result<(), HandoffError> {
        self.advance(Phase::Ack, Phase::Unlock)
    }

    /// Unlock → Complete. The snapshot is dropped: nobody needs it any more.
    ///
    /// # Errors
    ///
    /// [`HandoffError`].
    pub fn complete(&mut self) -> Result<(), HandoffError> {
        self.advance(Phase::Unlock, Phase::Complete)?;
        self.record.snapshot = Vec::new();
        Ok(())
    }

    /// Ends a handoff that has not reached Unlock: the owner keeps the subject. The snapshot stays
    /// for whoever looks into it; a very long `reason` is cut.
    ///
    /// A destination that has acknowledged is live. Whoever rolls back from Ack must have stopped
    /// it first; where a fence decides who owns, as it does for shards, that cannot be known from
    /// here, and the join with leases never does it (DESIGN 6).
    ///
    /// # Errors
    ///
    /// [`HandoffError`]: past the point of no return a handoff only goes forward.
    pub fn rollback(&mut self, reason: &str) -> Result<(), HandoffError> {
        self.check_live()?;
        let from = self.record.state;
        if !from.is_reversible() {
            return Err(HandoffError::InvalidPhaseTransition { from, to: Phase::RolledBack });
        }
        self.record.error = cut_reason(reason);
        self.enter(Phase::RolledBack);
        Ok(())
    }

    fn advance(&mut self, from: Phase, to: Phase) -> Result<(), HandoffError> {
        self.check(from, to)?;
        self.enter(to);
        Ok(())
    }

    fn check(&self, from: Phase, to: Phase) -> Result<(), HandoffError> {
        self.check_live()?;
        if self.record.state != from {
            let from = self.record.state;
            return Err(HandoffError::InvalidPhaseTransition { from, to });
        }
        Ok(())
    }

    const fn check_live(&self) -> Result<(), HandoffError> {
        match self.is_terminal() {
            true => Err(HandoffError::Terminal { state: self.record.state }),
            false => Ok(()),
        }
    }

    fn enter(&mut self, state: Phase) {
        self.record.state = state;
        self.record.last_transition = (self.clock)().max(self.record.last_transition);
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("record", &self.record).finish_non_exhaustive()
    }
}

/// Why a machine did not move. It is then as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandoffError {
    /// The phases come one after the other, and there is no way back from Unlock on.
    #[error("a handoff does not go from {from} to {to}")]
    InvalidPhaseTransition {
        /// The phase it is in.
        from: Phase,
        /// The phase that was asked for.
        to: Phase,
    },
    /// It is over.
    #[error("the handoff is over: {state}")]
    Terminal {
        /// How it ended.
        state: Phase,
    },
    /// The snapshot does not fit.
    #[error(transparent)]
    Invalid(#[from] InvalidRecord),
}
