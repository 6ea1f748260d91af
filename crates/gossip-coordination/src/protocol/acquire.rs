//! `acquire_and_restore_into`: a worker gets a shard that nobody holds.
//!
//! Every grant raises the fence. That, and not the clock, is what keeps the last owner out.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, Redacted, ShardKey, TenantId, WorkerId};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, assert_clock, check_run_not_over,
    check_run_not_paused,
};
use crate::error::AcquireError;
use crate::handoff::HandoffId;
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

/// What becomes of a shard that an acquire is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The worker gets it.
    Grant,
    /// It has used up its attempts and is parked.
    GiveUp,
}

impl ShardTransition for Acquire {
    type Output = Grant;
    type Error = AcquireError;

    const CONSULTS_RUN: bool = true;
    const CONSULTS_OWNER: bool = true;

    fn subject(&self) -> (TenantId, ShardKey) {
        (self.tenant, self.key)
    }

    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, Grant, AcquireError>, AcquireError> {
        if self.check(now, seen)? == Verdict::GiveUp {
            return Ok(self.give_up());
        }
        let (shard, run) = seen.shard_and_run(self.key)?;
        let grant = self.grant(now, shard.record(), &run);
        debug_assert!(!shard.record().is_leased_at(now), "nobody is robbed of a live lease");
        Ok(Decision::commit(grant.change(None), grant))
    }
}

impl Acquire {
    /// The rules.
    ///
    /// Apart from [`decide`](ShardTransition::decide), which puts change, answer and refusal into
    /// one large value: the coordinator in memory is done with the rest before that is built.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    #[inline]
    pub(crate) fn check(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Verdict, AcquireError> {
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
        // Counted at the grant and judged at the next: a shard that kills its owners says nothing,
        // so only the one who comes after can notice.
        if run.config.max_shard_retries().is_some_and(|max| record.attempts() > max) {
            return Ok(Verdict::GiveUp);
        }
        Ok(Verdict::Grant)
    }

    /// What the worker is given of a shard that passed [`Self::check`].
    #[inline]
    pub(crate) fn grant(&self, now: LogicalTime, record: &ShardRecord, run: &RunHead) -> Grant {
        let lease = grant(now, self.tenant, record, run, self.worker, self.token);
        Grant { lease, attempts: record.attempts().saturating_add(1) }
    }

    /// Also for the same worker: two processes may share a name by mistake.
    fn check_nobody_holds(
        &self,
        now: LogicalTime,
        record: &ShardRecord,
        seen: &ShardInputs<'_>,
    ) -> Result<(), AcquireError> {
        let Some(holder) = record.lease() else {
            return Ok(());
        };
        let lease_deadline = seen.owner.effective_deadline(holder, self.worker);
        debug_assert!(lease_deadline >= holder.deadline(), "evidence only delays a takeover");
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
    assert!(fence > record.fence_epoch(), "every grant raises the fence");
    assert!(deadline >= now, "a lease does not end before it begins");
    Lease::new(tenant, record.key(), worker, fence, deadline, token)
}

impl Grant {
    /// The change by which the lease comes into force.
    #[inline]
    pub(crate) fn change<'c>(&self, handoff: Option<HandoffId>) -> ShardChange<'c> {
        let Self { lease, attempts } = self;
        let holder = LeaseHolder::new(lease.owner(), lease.deadline(), lease.token());
        ShardChange::Grant { holder, fence: lease.fence(), attempts: *attempts, handoff }
    }
}
