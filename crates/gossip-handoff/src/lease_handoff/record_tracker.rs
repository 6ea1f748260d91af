//! One side's view of the record of a move, and its next operation on it.
//!
//! # Invariants
//! - A save compares the version that was read or written last. After a failure or a conflict the
//!   record is read again before the next save.

use gossip_contracts::identity::LogicalTime;

use crate::machine::Machine;
use crate::phase::Phase;
use crate::record::Record;
use crate::repository::{RepositoryError, Stored, Version};

/// The phase that a record must reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Goal {
    /// This phase, through those before it.
    Reach(Phase),
    /// Rolled back, for this reason.
    RollBack(&'static str),
}

/// The next operation on the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordOp {
    /// Save the record over this version.
    Save(Box<Record>, Option<Version>),
    /// Read it again.
    Get,
    /// None: the goal is reached, or cannot be.
    Done,
}

/// The last known state of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RecordTracker {
    pub(super) record: Record,
    /// `None` before the first save.
    version: Option<Version>,
    /// Whether it may have changed since it was last read or written.
    is_stale: bool,
    /// Whether it has ended and was deleted.
    is_gone: bool,
}

impl RecordTracker {
    /// Tracks a record that is not saved yet.
    pub(super) const fn fresh(record: Record) -> Self {
        Self { record, version: None, is_stale: false, is_gone: false }
    }

    /// Tracks a stored record.
    pub(super) fn found(stored: Stored) -> Self {
        let version = Some(stored.version);
        Self { record: stored.record, version, is_stale: false, is_gone: false }
    }

    /// Returns the stored record, if it is known.
    pub(super) fn stored(&self) -> Option<Stored> {
        let version = self.version.filter(|_| !self.is_stale && !self.is_gone)?;
        Some(Stored { record: self.record.clone(), version })
    }

    /// Returns the operation that brings the record one step nearer to `goal`: a read if the record
    /// may have changed, a save of the next phase, or `Done` if there is nothing to do or no way to
    /// the goal. Changes nothing.
    pub(super) fn next_op(&self, goal: &Goal, snapshot: &[u8], now: LogicalTime) -> RecordOp {
        if self.is_stale {
            return RecordOp::Get;
        }
        if self.is_gone || self.record.state.is_terminal() {
            return RecordOp::Done;
        }
        let Ok(mut machine) = Machine::from_record(self.record.clone()) else {
            return RecordOp::Done;
        };
        machine.set_clock(move || now);
        let stepped = match goal {
            // The first save stores the first phase, so that recovery finds the move.
            Goal::Reach(_) if self.version.is_none() => Ok(()),
            Goal::Reach(phase) if machine.state() >= *phase => return RecordOp::Done,
            Goal::Reach(_) => step(&mut machine, snapshot),
            // A record that was never saved need not be rolled back.
            Goal::RollBack(_) if self.version.is_none() => return RecordOp::Done,
            // Ack means that the accept has committed. The move has happened, even if the shard was
            // taken over since, so its record is completed and never rolled back.
            Goal::RollBack(_) if machine.state() >= Phase::Ack => step(&mut machine, snapshot),
            Goal::RollBack(reason) => machine.rollback(reason).map_err(drop),
        };
        match stepped {
            Ok(()) => RecordOp::Save(Box::new(machine.record()), self.version),
            Err(()) => RecordOp::Done,
        }
    }

    /// Takes the result of a save. After any error the record is read before the next one.
    pub(super) fn saved(&mut self, record: Record, saved: Result<Version, RepositoryError>) {
        match saved {
            Ok(version) => {
                self.record = record;
                self.version = Some(version);
            }
            Err(_) => self.is_stale = true,
        }
    }

    /// Takes the result of a read. Returns `false` if the read failed.
    pub(super) fn got(&mut self, got: Result<Stored, RepositoryError>) -> bool {
        match got {
            Ok(stored) => *self = Self::found(stored),
            // Gone only if it was saved once: a record that was never saved can still be created.
            Err(RepositoryError::RecordNotFound) => {
                self.is_gone = self.version.is_some();
                self.is_stale = false;
            }
            Err(_) => return false,
        }
        true
    }

    /// Forces a read before the next save.
    pub(super) const fn mark_stale(&mut self) {
        self.is_stale = true;
    }
}

/// Enters the next phase.
fn step(machine: &mut Machine, snapshot: &[u8]) -> Result<(), ()> {
    let stepped = match machine.state() {
        Phase::Lock => machine.serialize(snapshot),
        Phase::Serialize => machine.transfer(),
        Phase::Transfer => machine.ack(),
        Phase::Ack => machine.unlock(),
        Phase::Unlock => machine.complete(),
        Phase::Complete | Phase::RolledBack => return Err(()),
    };
    stepped.map_err(drop)
}
