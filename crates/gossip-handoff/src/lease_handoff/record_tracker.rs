//! The record of one move as a side of it knows it, and the next save.
//!
//! # Invariants
//! - A save compares the version that was seen last. After a failure or a conflict the record is
//!   read again before anything more is saved.

use gossip_contracts::identity::LogicalTime;

use crate::machine::Machine;
use crate::phase::Phase;
use crate::record::Record;
use crate::repository::{RepositoryError, Stored, Version};

/// Where a record is to go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Goal {
    /// To a phase, one after the other.
    Reach(Phase),
    /// Back, because of this.
    RollBack(&'static str),
}

/// What a side needs to bring its record where it is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordOp {
    /// Save this over that.
    Save(Box<Record>, Option<Version>),
    /// Read it again.
    Get,
    /// Nothing: it is there, or will never be.
    Done,
}

/// A record and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RecordTracker {
    pub(super) record: Record,
    /// `None` until it was first saved.
    version: Option<Version>,
    /// Whether it may have changed since it was last seen.
    is_stale: bool,
    /// Whether it is gone: over and forgotten, by somebody.
    is_gone: bool,
}

impl RecordTracker {
    /// A record that nobody has saved.
    pub(super) const fn fresh(record: Record) -> Self {
        Self { record, version: None, is_stale: false, is_gone: false }
    }

    /// A record that was found.
    pub(super) fn found(stored: Stored) -> Self {
        let version = Some(stored.version);
        Self { record: stored.record, version, is_stale: false, is_gone: false }
    }

    /// The record as it is stored, if it is.
    pub(super) fn stored(&self) -> Option<Stored> {
        let version = self.version.filter(|_| !self.is_stale && !self.is_gone)?;
        Some(Stored { record: self.record.clone(), version })
    }

    /// What brings the record nearer to `goal`.
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
            // The first save of a record that nobody has seen is its first phase.
            Goal::Reach(_) if self.version.is_none() => Ok(()),
            Goal::Reach(phase) if machine.state() >= *phase => return RecordOp::Done,
            Goal::Reach(_) => step(&mut machine, snapshot),
            // What was never saved needs no end.
            Goal::RollBack(_) if self.version.is_none() => return RecordOp::Done,
            // What was acknowledged was accepted, and is never rolled back: whoever has the shard
            // by now, the move happened, and its record is finished.
            Goal::RollBack(_) if machine.state() >= Phase::Ack => step(&mut machine, snapshot),
            Goal::RollBack(reason) => machine.rollback(reason).map_err(drop),
        };
        match stepped {
            Ok(()) => RecordOp::Save(Box::new(machine.record()), self.version),
            Err(()) => RecordOp::Done,
        }
    }

    /// Takes what became of a save; whether the record is ours to drive on.
    pub(super) fn saved(&mut self, record: Record, saved: Result<Version, RepositoryError>) {
        match saved {
            Ok(version) => {
                self.record = record;
                self.version = Some(version);
            }
            Err(_) => self.is_stale = true,
        }
    }

    /// Takes what was read; `false` if nothing could be read.
    pub(super) fn got(&mut self, got: Result<Stored, RepositoryError>) -> bool {
        match got {
            Ok(stored) => *self = Self::found(stored),
            // Nobody saved it, or somebody forgot it.
            Err(RepositoryError::RecordNotFound) => {
                self.is_gone = self.version.is_some();
                self.is_stale = false;
            }
            Err(_) => return false,
        }
        true
    }

    /// The record is about to be read before anything else.
    pub(super) const fn mark_stale(&mut self) {
        self.is_stale = true;
    }
}

/// The next phase.
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
