//! `complete_run`, `fail_run`, `cancel_run`, `pause_run`, `resume_run`: one ladder, five ends.
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

/// Where a run is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunTransitionKind {
    /// Everything was done.
    Complete,
    /// Give up.
    Fail,
    /// Stop.
    Cancel,
    /// Let nobody start a shard.
    Pause,
    /// Let shards be started again.
    Resume,
}

impl RunTransitionKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Complete, Self::Fail, Self::Cancel, Self::Pause, Self::Resume];

    /// The status that the run shall have.
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

    /// Fingerprint of the operation, which has no parameters but its name.
    #[must_use]
    pub fn payload_hash(self) -> u64 {
        hash_run_operation(match self {
            Self::Complete => b"complete_run",
            Self::Fail => b"fail_run",
            Self::Cancel => b"cancel_run",
            Self::Pause => b"pause_run",
            Self::Resume => b"resume_run",
        })
    }
}

/// An administrator, or the runtime when a run settles, moves a run on.
#[derive(Clone, Copy, Debug)]
pub struct RunTransition {
    /// Whose run.
    pub tenant: TenantId,
    /// Which run.
    pub run: RunId,
    /// Where to.
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
        if find_run_replay(run, self.op_id, payload_hash)? {
            return Ok(Decision::Replay(RunOpResult::Ack));
        }
        let (status, target) = (run.status(), self.kind.target());
        if status.is_terminal() {
            return Err(RunOver(status).into());
        }
        if status != target && !status.may_become(target) {
            return Err(RunTransitionError::WrongStatus { status, target });
        }
        // Registration alone makes a run active; pausing is for runs that are.
        if status == RunStatus::Initializing && target == RunStatus::Active {
            return Err(RunTransitionError::WrongStatus { status, target });
        }
        // Parked shards keep a run from being complete: their keys were not done.
        let unsettled = seen.active + seen.parked > 0;
        if self.kind == RunTransitionKind::Complete && unsettled {
            let (active, parked) = (seen.active, seen.parked);
            return Err(RunTransitionError::NotSettled { active, parked });
        }
        debug_assert!(!status.is_terminal(), "a run ends once");
        debug_assert!(target != RunStatus::Initializing, "nothing begins again");
        Ok(Decision::commit(self.change(run, payload_hash, now), RunOpResult::Ack))
    }
}

impl RunTransition {
    fn change<'c>(&self, run: &RunRecord, payload_hash: u64, now: LogicalTime) -> RunChange<'c> {
        let at = run.stored_time(now);
        assert!(at >= run.created_at(), "a run's operations come after its beginning");
        let entry = RunOpLogEntry::new(self.op_id, self.kind.op_kind(), payload_hash, at);
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

/// Whether the run remembers the operation; its registration is one it never forgets.
pub(super) fn find_run_replay(
    run: &RunRecord,
    op_id: OpId,
    payload_hash: u64,
) -> Result<bool, OpIdReused> {
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
