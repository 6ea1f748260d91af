//! `complete_run`, `fail_run`, `cancel_run`, `pause_run`, `resume_run`: one sequence of checks.
//!
//! | operation | from | to | also needs |
//! |---|---|---|---|
//! | complete | Active | Done | no shard active or parked |
//! | fail | Active | Failed | |
//! | cancel | Initializing, Active | Cancelled | |
//! | pause, resume | Active | Active | |

use gossip_contracts::identity::{LogicalTime, OpId, RunId, TenantId};

use super::{Decision, RunChange, RunInputs, RunTransitionRules, assert_clock};
use crate::refusal::{OpIdReused, RunOver};
use crate::run::{RunOpKind, RunOpLogEntry, RunOpResult, RunRecord, RunStatus};
use crate::run_errors::RunTransitionError;
use crate::split_execution::hash_run_operation;

/// The requested transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunTransitionKind {
    /// All shards are done.
    Complete,
    /// The run failed.
    Fail,
    /// The run is abandoned on request.
    Cancel,
    /// Grant no further shards.
    Pause,
    /// Grant shards again.
    Resume,
}

impl RunTransitionKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Complete, Self::Fail, Self::Cancel, Self::Pause, Self::Resume];

    /// Returns the status after the transition.
    const fn target(self) -> RunStatus {
        match self {
            Self::Complete => RunStatus::Done,
            Self::Fail => RunStatus::Failed,
            Self::Cancel => RunStatus::Cancelled,
            Self::Pause | Self::Resume => RunStatus::Active,
        }
    }

    const fn op_kind(self) -> RunOpKind {
        match self {
            Self::Complete => RunOpKind::CompleteRun,
            Self::Fail => RunOpKind::FailRun,
            Self::Cancel => RunOpKind::CancelRun,
            Self::Pause => RunOpKind::PauseRun,
            Self::Resume => RunOpKind::ResumeRun,
        }
    }

    /// Returns the payload hash of the operation, whose only parameter is its name.
    #[must_use]
    pub(crate) fn payload_hash(self) -> u64 {
        hash_run_operation(match self {
            Self::Complete => b"complete_run",
            Self::Fail => b"fail_run",
            Self::Cancel => b"cancel_run",
            Self::Pause => b"pause_run",
            Self::Resume => b"resume_run",
        })
    }
}

/// Changes a run's status, on behalf of an administrator or of the runtime at the end of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunTransition {
    /// The tenant.
    pub tenant: TenantId,
    /// The run.
    pub run: RunId,
    /// The transition.
    pub kind: RunTransitionKind,
    /// The idempotency key.
    pub op_id: OpId,
}

impl RunTransitionRules for RunTransition {
    type Output = RunOpResult;
    type Error = RunTransitionError;

    fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunInputs<'_>,
    ) -> Result<Decision<RunChange<'_>, RunOpResult, RunTransitionError>, RunTransitionError> {
        assert_clock(now);
        let run = seen.run.ok_or(RunTransitionError::RunNotFound)?;
        if run.tenant() != self.tenant {
            return Err(RunTransitionError::TenantMismatch { expected: self.tenant });
        }
        let payload_hash = self.kind.payload_hash();
        // Before the status checks: the retry of `complete_run` finds the run already terminal.
        if find_run_replay(run, self.op_id, payload_hash)? {
            return Ok(Decision::Replay(RunOpResult::Ack));
        }
        let (status, target) = (run.status(), self.kind.target());
        if status.is_terminal() {
            return Err(RunOver(status).into());
        }
        // Pause and resume keep the status, so an equal one passes.
        if status != target && !status.may_become(target) {
            return Err(RunTransitionError::WrongStatus { status, target });
        }
        // Only registration activates a run; pause and resume need an active run.
        if status == RunStatus::Initializing && target == RunStatus::Active {
            return Err(RunTransitionError::WrongStatus { status, target });
        }
        // A parked shard's remaining keys were not processed, so the run is not complete.
        let unsettled = seen.active + seen.parked > 0;
        if self.kind == RunTransitionKind::Complete && unsettled {
            let (active, parked) = (seen.active, seen.parked);
            return Err(RunTransitionError::NotSettled { active, parked });
        }
        assert!(!status.is_terminal(), "a terminal run does not change");
        assert!(target != RunStatus::Initializing, "no transition leads to Initializing");
        Ok(Decision::commit(self.change(run, payload_hash, now), RunOpResult::Ack))
    }
}

impl RunTransition {
    fn change<'c>(&self, run: &RunRecord, payload_hash: u64, now: LogicalTime) -> RunChange<'c> {
        let at = run.stored_time(now);
        assert!(at >= run.created_at(), "an operation is not earlier than its run");
        let entry = RunOpLogEntry::new(self.op_id, self.kind.op_kind(), payload_hash, at);
        // A repeated pause is logged for replay, but `changed` suppresses its event.
        let pause = |paused| RunChange::Pause { paused, changed: run.is_paused() != paused, entry };
        match self.kind {
            RunTransitionKind::Complete | RunTransitionKind::Fail | RunTransitionKind::Cancel => {
                RunChange::End { status: self.kind.target(), entry }
            }
            RunTransitionKind::Pause => pause(true),
            RunTransitionKind::Resume => pause(false),
        }
    }
}

/// Returns whether the operation was applied. Registration is a field of the run, so it is found
/// even after the log has dropped older entries.
pub(super) fn find_run_replay(
    run: &RunRecord,
    op_id: OpId,
    payload_hash: u64,
) -> Result<bool, OpIdReused> {
    // Newest first, because a retry usually follows its operation closely.
    let logged = run.op_log().rev().map(|entry| (entry.op_id(), entry.payload_hash()));
    let registered = run.registration().map(|known| (known.op_id, known.payload_hash));
    match logged.chain(registered).find(|(known, _)| *known == op_id) {
        None => Ok(false),
        Some((_, expected_hash)) if expected_hash == payload_hash => Ok(true),
        Some((_, expected_hash)) => {
            Err(OpIdReused { op_id, expected_hash, actual_hash: payload_hash })
        }
    }
}
