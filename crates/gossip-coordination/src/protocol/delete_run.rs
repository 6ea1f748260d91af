//! `delete_run`: a run that is over disappears with its shards.
//!
//! A tombstone stays: its id is never used again, so fences never start anew, and a deletion that
//! was interrupted goes on where it stopped.
//!
//! A run whose record is damaged can be deleted too, by whoever asks for just that: nobody can read
//! whether it is over, so it goes whatever it was. Its owners lose their shards as by any deletion.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, OpId, RunId, TenantId};

use super::run_transition::find_run_replay;
use super::{Decision, RunChange, RunInputs, RunTransitionRules, assert_clock};
use crate::run_errors::{DeleteRunError, RunOpIdConflict};
use crate::split_execution::hash_run_operation;

/// What is left of a deleted run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    /// The operation that deleted it.
    pub op_id: OpId,
    /// Its fingerprint.
    pub payload_hash: u64,
}

impl fmt::Debug for Tombstone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tombstone").field("op_id", &self.op_id).finish_non_exhaustive()
    }
}

/// An administrator deletes a run.
#[derive(Clone, Copy, Debug)]
pub struct DeleteRun {
    /// Whose run.
    pub tenant: TenantId,
    /// Which run.
    pub run: RunId,
    /// The idempotency key.
    pub op_id: OpId,
}

impl DeleteRun {
    /// The rule for a run whose record is there and cannot be read. It has no status and no log to
    /// look at, so nothing is refused: the caller has seen the damage and asked for this.
    #[must_use]
    pub fn decide_damaged(&self, now: LogicalTime) -> Tombstone {
        assert_clock(now);
        Tombstone { op_id: self.op_id, payload_hash: deletion_hash() }
    }
}

impl RunTransitionRules for DeleteRun {
    type Output = ();
    type Error = DeleteRunError;

    fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunInputs<'_>,
    ) -> Result<Decision<RunChange<'_>, (), DeleteRunError>, DeleteRunError> {
        assert_clock(now);
        // Whoever asks: the run is gone, which is what was asked for, and its log is gone with it.
        if seen.tombstone.is_some() {
            return Ok(Decision::Replay(()));
        }
        let run = seen.run.ok_or(DeleteRunError::RunNotFound)?;
        if run.tenant() != self.tenant {
            return Err(DeleteRunError::TenantMismatch { expected: self.tenant });
        }
        let payload_hash = deletion_hash();
        find_run_replay(run, self.op_id, payload_hash)
            .map_err(|reused| DeleteRunError::OpIdConflict(RunOpIdConflict::new(reused)))?;
        if !run.status().is_terminal() {
            return Err(DeleteRunError::NotTerminal { status: run.status() });
        }
        assert!(run.completed_at().is_some(), "a run that is over has an end");
        let tombstone = Tombstone { op_id: self.op_id, payload_hash };
        Ok(Decision::commit(RunChange::Delete(tombstone), ()))
    }
}

/// The fingerprint of every deletion: there is nothing to choose about it.
fn deletion_hash() -> u64 {
    hash_run_operation(b"delete_run")
}
