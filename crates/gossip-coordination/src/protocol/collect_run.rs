//! Collection of runs whose registration was given up (DESIGN Q16).
//!
//! A run that is made and never becomes active keeps its id, and what was registered of it keeps
//! quota that nobody uses. Once nothing has happened to it for long enough, it is collected: first
//! it becomes Cancelled, by a commit that excludes every further chunk of its registration, and
//! then it is deleted like any other. A collection that broke off in between is taken up again.

use gossip_contracts::identity::{LogicalTime, OpId, RunId, TenantId};

use super::{Decision, RunChange, RunInputs, RunTransitionKind, RunTransitionRules, assert_clock};
use crate::error::InfraError;
use crate::run::{RunOpKind, RunOpLogEntry, RunRecord, RunStatus};

/// The operation by which a collection cancels. The numbers of both were drawn at random, once:
/// whoever draws operation ids will not meet them.
pub const COLLECTION_CANCELS: OpId = OpId::from_raw(0x6C1E_5B0D_93A7_42F8);
/// The operation by which a collection deletes.
pub const COLLECTION_DELETES: OpId = OpId::from_raw(0xB3D4_9E27_0F58_C16A);

/// Somebody takes away a run that was never registered to the end.
#[derive(Clone, Copy, Debug)]
pub struct CollectRun {
    /// Whose run.
    pub tenant: TenantId,
    /// Which run.
    pub run: RunId,
    /// Ticks without a sign of its registration after which it counts as given up.
    pub stale_after: u64,
}

/// Why a run is not collected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotCollected {
    /// It is not there, it came further, somebody else ended it, or it may still go on.
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
    /// Whether `run`, whose registration last went on at `registered_at` if it began, is to be
    /// collected at `now`; also if a collection of it broke off.
    #[must_use]
    pub fn applies(&self, now: LogicalTime, run: &RunRecord, registered_at: LogicalTime) -> bool {
        let quiet_since = registered_at.max(run.created_at());
        match run.status() {
            RunStatus::Initializing => quiet_since.saturating_add(self.stale_after) <= now,
            RunStatus::Cancelled => is_collected(run),
            RunStatus::Active | RunStatus::Done | RunStatus::Failed => false,
        }
    }
}

/// Whether a collection has cancelled the run.
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
        if run.status() == RunStatus::Cancelled {
            return Ok(Decision::Replay(()));
        }
        assert!(run.status() == RunStatus::Initializing, "only a run without shards is collected");
        assert!(run.root_shards().is_empty(), "a run without shards has none to lose");
        let payload_hash = RunTransitionKind::Cancel.payload_hash();
        let at = run.stored_time(now);
        let entry = RunOpLogEntry::new(COLLECTION_CANCELS, RunOpKind::CancelRun, payload_hash, at);
        Ok(Decision::commit(RunChange::End { status: RunStatus::Cancelled, entry }, ()))
    }
}
