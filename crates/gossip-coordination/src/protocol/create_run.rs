//! `create_run`: creates a run without shards.

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};

use super::{Decision, RunChange, RunInputs, RunTransitionRules, assert_clock};
use crate::run::{RunConfig, RunRecord, RunStatus};
use crate::run_errors::CreateRunError;

/// Creates a run.
#[derive(Clone, Copy, Debug)]
pub struct CreateRun {
    /// The tenant.
    pub tenant: TenantId,
    /// The run id, which must never have been used.
    pub run: RunId,
    /// The run's configuration.
    pub config: RunConfig,
}

impl RunTransitionRules for CreateRun {
    type Output = ();
    type Error = CreateRunError;

    fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunInputs<'_>,
    ) -> Result<Decision<RunChange<'_>, (), CreateRunError>, CreateRunError> {
        assert_clock(now);
        // A deleted run's id is never reused: its fences would restart, and a sink could then
        // accept a write of the deleted run.
        if seen.run.is_some() || seen.tombstone.is_some() {
            return Err(CreateRunError::RunAlreadyExists { run: self.run });
        }
        let record = RunRecord::new(self.tenant, self.run, self.config, now);
        // Shards are claimed only after the last of them is registered.
        assert!(record.status() == RunStatus::Initializing, "a new run has no shards to claim");
        Ok(Decision::commit(RunChange::Create(Box::new(record)), ()))
    }
}
