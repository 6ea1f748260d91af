//! Garbage collection of runs whose registration was abandoned (DESIGN Q16).
//!
//! A run that never becomes active keeps its id, and its registered shards occupy quota. After a
//! period without registration activity it is collected: it is first cancelled, by a commit that
//! excludes further registration chunks, and then deleted like any other run. An interrupted
//! collection is resumed.

use gossip_contracts::identity::{LogicalTime, OpId, RunId, TenantId};

use super::{Decision, RunChange, RunInputs, RunTransitionKind, RunTransitionRules, assert_clock};
use crate::error::InfraError;
use crate::run::{RunOpKind, RunOpLogEntry, RunRecord, RunStatus};

/// Operation id of the cancellation. Both ids were drawn at random once, so a caller's random
/// operation ids do not collide with them.
pub const COLLECTION_CANCELS: OpId = OpId::from_raw(0x6C1E_5B0D_93A7_42F8);
/// Operation id of the deletion.
pub const COLLECTION_DELETES: OpId = OpId::from_raw(0xB3D4_9E27_0F58_C16A);

/// Collects a run whose registration was never completed.
#[derive(Clone, Copy, Debug)]
pub struct CollectRun {
    /// The tenant.
    pub tenant: TenantId,
    /// The run.
    pub run: RunId,
    /// Ticks without registration activity after which the run counts as abandoned.
    pub stale_after: u64,
}

/// The reason why a run is not collected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotCollected {
    /// The run does not exist, is active, was ended by another operation, or is too recent.
    NotStale,
    /// The store failed.
    Stored(InfraError),
}

impl From<InfraError> for NotCollected {
    fn from(error: InfraError) -> Self {
        Self::Stored(error)
    }
}

impl CollectRun {
    /// Returns whether `run` is to be collected at `now`, or has an interrupted collection.
    /// `registered_at` is the time of its last registration chunk.
    #[must_use]
    pub(crate) fn applies(
        &self,
        now: LogicalTime,
        run: &RunRecord,
        registered_at: LogicalTime,
    ) -> bool {
        // A chunk counts as activity, so a slow registration is not collected while it continues.
        let quiet_since = registered_at.max(run.created_at());
        match run.status() {
            RunStatus::Initializing => quiet_since.saturating_add(self.stale_after) <= now,
            RunStatus::Cancelled => is_collected(run),
            RunStatus::Active | RunStatus::Done | RunStatus::Failed => false,
        }
    }
}

/// Returns whether a collection has cancelled the run.
fn is_collected(run: &RunRecord) -> bool {
    let ours = |entry: &RunOpLogEntry| {
        (entry.op_id(), entry.kind()) == (COLLECTION_CANCELS, RunOpKind::CancelRun)
    };
    run.op_log().any(ours)
}

impl RunTransitionRules for CollectRun {
    type Output = ();
    type Error = NotCollected;

    fn subject(&self) -> (TenantId, RunId) {
        (self.tenant, self.run)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunInputs<'_>,
    ) -> Result<Decision<RunChange<'_>, (), NotCollected>, NotCollected> {
        assert_clock(now);
        let run = seen.run.ok_or(NotCollected::NotStale)?;
        if run.tenant() != self.tenant || !self.applies(now, run, seen.registered_at) {
            return Err(NotCollected::NotStale);
        }
        // A collection was interrupted between cancellation and deletion: the caller deletes next.
        if run.status() == RunStatus::Cancelled {
            return Ok(Decision::Replay(()));
        }
        assert!(run.status() == RunStatus::Initializing, "only an initializing run is collected");
        assert!(run.root_shards().is_empty(), "an initializing run has no active shards");
        // Hashed like an administrator's cancellation, so the log needs no other kind.
        let payload_hash = RunTransitionKind::Cancel.payload_hash();
        let at = run.stored_time(now);
        let entry = RunOpLogEntry::new(COLLECTION_CANCELS, RunOpKind::CancelRun, payload_hash, at);
        Ok(Decision::commit(RunChange::End { status: RunStatus::Cancelled, entry }, ()))
    }
}
