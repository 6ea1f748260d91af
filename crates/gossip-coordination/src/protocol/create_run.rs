//! `create_run`: a run is made, without shards yet.

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};

use super::{Decision, RunChange, RunInputs, RunTransitionRules, assert_clock};
use crate::run::{RunConfig, RunRecord};
use crate::run_errors::CreateRunError;

/// Somebody makes a run.
#[derive(Clone, Copy, Debug)]
pub struct CreateRun {
    /// Whose run.
    pub tenant: TenantId,
    /// Its id, which must never have been used.
    pub run: RunId,
    /// Its settings.
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
        // A deleted run's id is never used again: its fences would start anew.
        if seen.run.is_some() || seen.tombstone.is_some() {
            return Err(CreateRunError::RunAlreadyExists { run: self.run });
        }
        let record = RunRecord::new(self.tenant, self.run, self.config, now);
        Ok(Decision::commit(RunChange::Create(Box::new(record)), ()))
    }
}
