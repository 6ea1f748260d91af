//! The state machine that takes one record through its phases.
//!
//! It changes a record in memory only. The caller stores [`Machine::record`] after every
//! transition and *before* acting on it, so after a crash the stored record is never behind the
//! actions.

use std::fmt;

use gossip_contracts::identity::LogicalTime;
use thiserror::Error;

use crate::phase::Phase;
use crate::record::{InvalidRecord, Record, RecordId, check_snapshot, cut_reason};

/// The source of the machine's timestamps.
type Clock = Box<dyn FnMut() -> LogicalTime + Send>;

/// One handoff.
///
/// A new or restored machine uses the fixed time that it was given; [`Machine::set_clock`] sets a
/// running clock. Timestamps never decrease: a reading earlier than the last one is replaced by it.
pub struct Machine {
    record: Record,
    clock: Clock,
}

impl Machine {
    /// Starts a handoff of `subject` in [`Phase::Lock`].
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

    /// Restores the machine of a stored record, to continue after a crash.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for a record that no machine produces.
    pub fn from_record(record: Record) -> Result<Self, InvalidRecord> {
        record.check()?;
        // The latest time that is known; `set_clock` replaces it.
        let now = record.last_transition;
        Ok(Self { record, clock: Box::new(move || now) })
    }

    /// Sets the clock for all further timestamps.
    pub fn set_clock(&mut self, clock: impl FnMut() -> LogicalTime + Send + 'static) {
        self.clock = Box::new(clock);
    }

    /// Returns the phase.
    #[must_use]
    pub const fn state(&self) -> Phase {
        self.record.state
    }

    /// Returns a copy of the record, to be stored.
    #[must_use]
    pub fn record(&self) -> Record {
        self.record.clone()
    }

    /// Returns whether no further transition is possible.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        self.record.state.is_terminal()
    }

    /// Lock → Serialize: the owner has frozen the subject, whose state is `snapshot`. It may be
    /// empty.
    ///
    /// # Errors
    ///
    /// [`HandoffError`]. A snapshot that is too large leaves the machine unchanged.
    pub fn serialize(&mut self, snapshot: impl Into<Vec<u8>>) -> Result<(), HandoffError> {
        self.check(Phase::Lock, Phase::Serialize)?;
        let snapshot = snapshot.into();
        // Before the change, so that a refused snapshot leaves the machine in Lock.
        check_snapshot(&snapshot)?;
        self.record.snapshot = snapshot;
        self.enter(Phase::Serialize);
        Ok(())
    }

    /// Serialize → Transfer. The owner notifies the destination after this is stored.
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

    /// Ack → Unlock. The owner drops its copy after this is stored. This is irreversible.
    ///
    /// # Errors
    ///
    /// [`HandoffError`].
    pub fn unlock(&mut self) -> Result<(), HandoffError> {
        self.advance(Phase::Ack, Phase::Unlock)
    }

    /// Unlock → Complete. Deletes the snapshot, which is no longer needed.
    ///
    /// # Errors
    ///
    /// [`HandoffError`].
    pub fn complete(&mut self) -> Result<(), HandoffError> {
        self.advance(Phase::Unlock, Phase::Complete)?;
        self.record.snapshot = Vec::new();
        Ok(())
    }

    /// Rolls back a handoff that has not reached Unlock: the owner keeps the subject. The snapshot
    /// is kept for inspection. A `reason` longer than
    /// [`REASON_LEN_MAX`](crate::REASON_LEN_MAX) is truncated.
    ///
    /// A destination that has acknowledged is live, so a caller that rolls back from Ack must stop
    /// it first. For shards the fence decides who owns, which the record does not show; therefore
    /// [`lease_handoff`](crate::lease_handoff) never rolls back from Ack (DESIGN 6).
    ///
    /// # Errors
    ///
    /// [`HandoffError`] from Unlock on.
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
        // Two machines with different clocks drive one record, and its times must not decrease.
        self.record.last_transition = (self.clock)().max(self.record.last_transition);
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("record", &self.record).finish_non_exhaustive()
    }
}

/// A rejected transition. The machine is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandoffError {
    /// The transition does not exist: a phase was skipped, or a rollback came after Unlock.
    #[error("no transition from {from} to {to}")]
    InvalidPhaseTransition {
        /// The current phase.
        from: Phase,
        /// The requested phase.
        to: Phase,
    },
    /// The handoff is in a terminal phase.
    #[error("the handoff has ended: {state}")]
    Terminal {
        /// The terminal phase.
        state: Phase,
    },
    /// The snapshot is too large.
    #[error(transparent)]
    Invalid(#[from] InvalidRecord),
}
