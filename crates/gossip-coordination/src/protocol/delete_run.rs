//! `delete_run`: deletes a terminal run and its shards.
//!
//! A tombstone remains. It reserves the run id for ever, so that fences never restart, and lets an
//! interrupted deletion resume.
//!
//! A run with a damaged record can be deleted by an explicit request. Its status is unreadable, so
//! it is deleted whatever its status; its lease holders lose their shards as in any deletion.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, OpId, RunId, TenantId};

use super::run_transition::find_run_replay;
use super::{Decision, RunChange, RunInputs, RunTransitionRules, assert_clock};
use crate::run_errors::{DeleteRunError, RunOpIdConflict};
use crate::split_execution::hash_run_operation;

/// The record that remains of a deleted run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    /// The operation that deleted the run.
    pub op_id: OpId,
    /// The operation's payload hash.
    pub payload_hash: u64,
}

impl fmt::Debug for Tombstone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tombstone").field("op_id", &self.op_id).finish_non_exhaustive()
    }
}

/// Deletes a run.
#[derive(Clone, Copy, Debug)]
pub struct DeleteRun {
    /// The tenant.
    pub tenant: TenantId,
    /// The run.
    pub run: RunId,
    /// The idempotency key.
    pub op_id: OpId,
}

impl DeleteRun {
    /// Decides the deletion of a run whose record cannot be decoded. Status and log are unreadable,
    /// so nothing is refused: the caller has requested this deletion because of the damage.
    #[must_use]
    pub(crate) fn decide_damaged(&self, now: LogicalTime) -> Tombstone {
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
        // Any operation id replays: the run is deleted, and its log is deleted with it.
        if seen.tombstone.is_some() {
            return Ok(Decision::Replay(()));
        }
        let run = seen.run.ok_or(DeleteRunError::RunNotFound)?;
        if run.tenant() != self.tenant {
            return Err(DeleteRunError::TenantMismatch { expected: self.tenant });
        }
        let payload_hash = deletion_hash();
        // Only for the conflict check: a deletion is never in the log of an existing run.
        find_run_replay(run, self.op_id, payload_hash)
            .map_err(|reused| DeleteRunError::OpIdConflict(RunOpIdConflict::new(reused)))?;
        // Workers of an active run would lose shards without notice; cancel it first.
        if !run.status().is_terminal() {
            return Err(DeleteRunError::NotTerminal { status: run.status() });
        }
        assert!(run.completed_at().is_some(), "a terminal run has an end time");
        let tombstone = Tombstone { op_id: self.op_id, payload_hash };
        Ok(Decision::commit(RunChange::Delete(tombstone), ()))
    }
}

/// Returns the payload hash of a deletion, which has no parameters.
fn deletion_hash() -> u64 {
    hash_run_operation(b"delete_run")
}
