//! `delete_run`: a run that is over disappears with its shards.
//!
//! A tombstone stays: its id is never used again, so fences never start anew, and a deletion that
//! was interrupted goes on where it stopped.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, OpId, RunId, TenantId};

use super::run_transition::find_run_replay;
use super::{Decision, RunChange, RunSeen, RunTransitionRules, assert_clock};
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

impl RunTransitionRules for DeleteRun {
    type Output = ();
    type Error = DeleteRunError;

    fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunSeen<'_>,
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
        let payload_hash = hash_run_operation(b"delete_run");
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
