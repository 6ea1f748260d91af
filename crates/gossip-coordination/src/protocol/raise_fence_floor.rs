//! `raise_fence_floor`: an operator has restored the store from a backup (DESIGN Q32).
//!
//! Grants that were committed after the backup are lost, and their fences would be issued again.
//! The floor lies above all of them, so a later lease has a higher fence at every sink, and every
//! lease from before the restore is refused.

use gossip_contracts::identity::{FenceEpoch, LogicalTime, RunId, TenantId};

use super::{Decision, RunChange, RunInputs, RunTransitionRules, assert_clock};
use crate::run_errors::GetRunError;

/// How far a floor rises at least: more grants than one shard has between a backup and its restore.
pub const FENCE_FLOOR_STEP: u64 = 1 << 20;

/// The highest floor. Fences stay exact in JSON, whose numbers have 53 bits.
pub(crate) const FENCE_FLOOR_MAX: FenceEpoch = FenceEpoch::from_raw((1 << 53) - 1);

/// Returns the floor for a restore at this time. It lies above the floors of earlier restores, also
/// those that the backup does not have, unless the clock was set back in between.
#[must_use]
pub const fn fence_floor_at(unix_seconds: u64) -> FenceEpoch {
    let floor = unix_seconds.saturating_mul(FENCE_FLOOR_STEP);
    if floor < FENCE_FLOOR_MAX.as_raw() { FenceEpoch::from_raw(floor) } else { FENCE_FLOOR_MAX }
}

/// Returns a fence that is one step above `known` and not below `at_least`, up to the maximum.
pub(super) fn raised(known: FenceEpoch, at_least: FenceEpoch) -> FenceEpoch {
    let above = FenceEpoch::from_raw(known.as_raw().saturating_add(FENCE_FLOOR_STEP));
    above.max(at_least).min(FENCE_FLOOR_MAX)
}

/// Raises the fence floor of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RaiseFenceFloor {
    /// The tenant.
    pub tenant: TenantId,
    /// The run.
    pub(crate) run: RunId,
    /// The floor to reach at least; see [`fence_floor_at`].
    pub(crate) at_least: FenceEpoch,
}

impl RunTransitionRules for RaiseFenceFloor {
    type Output = FenceEpoch;
    type Error = GetRunError;

    fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunInputs<'_>,
    ) -> Result<Decision<RunChange<'_>, FenceEpoch, GetRunError>, GetRunError> {
        assert_clock(now);
        let run = seen.run.ok_or(GetRunError::RunNotFound)?;
        if run.tenant() != self.tenant {
            return Err(GetRunError::TenantMismatch { expected: self.tenant });
        }
        // No operation id: a second raise is harmless, and leases are refused once more.
        let floor = raised(run.fence_floor(), self.at_least);
        assert!(floor >= run.fence_floor(), "a fence floor never falls");
        Ok(Decision::commit(RunChange::RaiseFloor { floor }, floor))
    }
}
