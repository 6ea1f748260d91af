//! `acquire_and_restore_into`: a worker gets a shard that nobody holds.
//!
//! Every grant raises the fence. That, and not the clock, is what keeps the last owner out.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, Redacted, ShardKey, TenantId, WorkerId};

use super::{
    Decision, ShardChange, ShardSeen, ShardTransition, assert_clock, check_run_not_over,
    check_run_not_paused,
};
use crate::error::AcquireError;
use crate::lease::{GrantToken, Lease, LeaseHolder};
use crate::record::{ParkReason, ShardRecord, ShardStatus};
use crate::run::RunHead;

/// A worker asks for a shard.
#[derive(Clone, Copy)]
pub struct Acquire {
    /// Whose shard.
    pub tenant: TenantId,
    /// Which shard.
    pub key: ShardKey,
    /// Who asks.
    pub worker: WorkerId,
    /// A fresh number, by which a lost reply is recognised.
    pub token: GrantToken,
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("key", &self.key).finish_non_exhaustive()
    }
}

/// What a worker that got a shard is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The capability to change the shard.
    pub lease: Lease,
    /// Grants since the last progress. An acquire counts; an accepted move does not.
    pub attempts: u32,
}

impl ShardTransition for Acquire {
    type Output = Grant;
    type Error = AcquireError;

    const CONSULTS_RUN: bool = true;
    const CONSULTS_OWNER: bool = true;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.key)
    }

    // Into its caller: what it returns is large, and copying it would cost as much as deciding.
    #[inline(always)]
    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardSeen<'_>,
    ) -> Result<Decision<ShardChange<'_>, Grant, AcquireError>, AcquireError> {
        assert_clock(now);
        let (shard, run) = seen.shard_and_run(self.key)?;
        let record = shard.record();
        if record.tenant() != self.tenant {
            return Err(AcquireError::TenantMismatch { expected: self.tenant });
        }
        check_run_not_over(&run)?;
        check_run_not_paused(&run)?;
        if record.status().is_terminal() {
            return Err(terminal(self.key, record.status()));
        }
        self.check_nobody_holds(now, record, seen)?;
        if run.config.max_shard_retries().is_some_and(|max| record.attempts() > max) {
            return Ok(self.give_up());
        }
        let grant = grant(now, self.tenant, record, &run, self.worker, self.token);
        let attempts = record.attempts().saturating_add(1);
        Ok(grant.decision(attempts, None))
    }
}

impl Acquire {
    /// Also for the same worker: two processes may share a name by mistake.
    fn check_nobody_holds(
        &self,
        now: LogicalTime,
        record: &ShardRecord,
        seen: &ShardSeen<'_>,
    ) -> Result<(), AcquireError> {
        let Some(holder) = record.lease() else {
            return Ok(());
        };
        let lease_deadline = seen.owner.effective_deadline(holder, self.worker);
        if now < lease_deadline {
            let current_owner = Redacted::new(holder.owner());
            return Err(AcquireError::AlreadyLeased { current_owner, lease_deadline });
        }
        Ok(())
    }

    /// The shard has used up its attempts: the acquire commits the parking and says so.
    const fn give_up<'c>(&self) -> Decision<ShardChange<'c>, Grant, AcquireError> {
        Decision::Commit {
            change: ShardChange::Park { reason: ParkReason::TooManyErrors, entry: None },
            answer: Err(terminal(self.key, ShardStatus::Parked)),
        }
    }
}

const fn terminal(shard: ShardKey, status: ShardStatus) -> AcquireError {
    AcquireError::ShardTerminal { shard, status }
}

/// The lease that a grant at `now` gives out.
#[inline]
pub(super) fn grant(
    now: LogicalTime,
    tenant: TenantId,
    record: &ShardRecord,
    run: &RunHead,
    worker: WorkerId,
    token: GrantToken,
) -> Lease {
    let deadline = now.saturating_add(run.config.lease_duration());
    let fence = record.fence_epoch().increment();
    Lease::new(tenant, record.key(), worker, fence, deadline, token)
}

impl Lease {
    /// The commit by which this lease comes into force.
    #[inline]
    pub(super) fn decision<'c, E>(
        self,
        attempts: u32,
        handoff: Option<crate::handoff::HandoffId>,
    ) -> Decision<ShardChange<'c>, Grant, E> {
        let holder = LeaseHolder::new(self.owner(), self.deadline(), self.token());
        let change = ShardChange::Grant { holder, fence: self.fence(), attempts, handoff };
        Decision::commit(change, Grant { lease: self, attempts })
    }
}
