//! `acquire_and_restore_into`: a worker acquires a shard without a live lease: it has none, its
//! deadline has passed, or its deadline is void ([`LeaseWatch`](super::LeaseWatch)).
//!
//! Every grant increments the fence. The fence, not the clock, excludes the previous lease holder.
//!
//! # Attempts
//!
//! A shard whose grants bring no progress is parked (DESIGN Q13, ADR 82). A grant whose reply was
//! lost says nothing about the shard. Therefore a grant counts when it is received:
//!
//! - the first grant since the last progress counts when it is stored, so that an ordinary acquire
//!   is one commit; if its reply is lost, one attempt too many is counted;
//! - every later one is counted by [`ConfirmGrant`](super::ConfirmGrant), which the coordinator
//!   commits before it returns the lease. In a run with zero retries the first one is, too.
//!
//! So at most one of the counted grants was not received. A run without a limit parks nothing by
//! the count, and its grants are not confirmed.

use std::fmt;

use gossip_contracts::identity::{LogicalTime, Redacted, ShardKey, TenantId, WorkerId};

use super::{
    Decision, ShardChange, ShardInputs, ShardTransition, assert_clock, check_run_not_over,
    check_run_not_paused,
};
use crate::error::AcquireError;
use crate::handoff::HandoffId;
use crate::lease::{GrantToken, Lease, LeaseHolder, OpSequence};
use crate::park_context::ParkContext;
use crate::record::{ParkReason, ShardRecord, ShardStatus};
use crate::run::RunHead;

/// Acquires a shard.
#[derive(Clone, Copy)]
pub struct Acquire {
    /// The tenant.
    pub tenant: TenantId,
    /// The shard.
    pub key: ShardKey,
    /// The worker.
    pub worker: WorkerId,
    /// A fresh random number that identifies the grant if its reply is lost.
    pub token: GrantToken,
    /// Whether the reply can be lost after the grant was stored.
    pub reply: ReplyPath,
    /// Whether to refuse a shard whose grant would be its last attempt.
    pub spares_last_attempt: bool,
}

/// How the reply to a grant reaches its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a reply can be lost, or not")]
pub enum ReplyPath {
    /// A function result: the caller has it, or has died.
    Certain,
    /// A message, which can be lost after the grant was stored.
    CanBeLost,
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The result of a granted acquire or accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The capability to change the shard.
    pub lease: Lease,
    /// Grants since the last progress. An acquire counts as an attempt; an accepted handoff does
    /// not.
    pub attempts: u32,
    /// Whether the attempt counts only once [`ConfirmGrant`](super::ConfirmGrant) is committed.
    pub(crate) needs_confirmation: bool,
}

/// The outcome of an acquire that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The worker gets the shard.
    Grant,
    /// The shard has exhausted its attempts and is parked.
    GiveUp,
}

impl ShardTransition for Acquire {
    type Output = Grant;
    type Error = AcquireError;

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
        // Stated without the rule itself: the lease had its time, on the wall clock or unrenewed.
        let had_its_time = |holder: LeaseHolder| {
            let lease = run.config.lease_duration().saturating_add(seen.watch.max_clock_skew);
            now >= holder.deadline() || seen.watch.unchanged_for >= lease
        };
        let previous = shard.record().lease();
        assert!(previous.is_none_or(had_its_time), "a grant never replaces a live lease");
        Ok(Decision::commit(grant.change(None), grant))
    }
}

impl Acquire {
    /// Checks whether the acquire is granted, parks the shard or is refused.
    ///
    /// Separate from [`decide`](ShardTransition::decide), which builds change, answer and refusal
    /// as one large value; the in-memory coordinator avoids building it.
    ///
    /// # Errors
    ///
    /// Returns the first check that fails.
    #[inline]
    pub(crate) fn check(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Verdict, AcquireError> {
        assert_clock(now);
        let (shard, run) = seen.shard_and_run(self.key)?;
        let record = shard.record();
        // The tenant first, so that a caller from another tenant learns nothing about the shard.
        if record.tenant() != self.tenant {
            return Err(AcquireError::TenantMismatch { expected: self.tenant });
        }
        // The run before the shard: an idle worker should learn that no shard of it is left to do.
        check_run_not_over(&run)?;
        check_run_not_paused(&run)?;
        if record.status().is_terminal() {
            return Err(terminal(self.key, record.status()));
        }
        self.check_not_leased(now, record, &run, seen)?;
        // Attempts are counted at a grant and checked at the next one: a shard that crashes its
        // lease holders reports nothing, so only the next acquire can detect it.
        if run.config.max_shard_retries().is_some_and(|max| record.attempts() > max) {
            return Ok(Verdict::GiveUp);
        }
        // Checked here and not by the caller before: a grant counts as an attempt, and another
        // worker may use one up between a read and the acquire.
        let is_last = run.config.max_shard_retries().is_some_and(|max| record.attempts() == max);
        if self.spares_last_attempt && is_last {
            return Err(AcquireError::LastAttempt);
        }
        Ok(Verdict::Grant)
    }

    /// Returns the grant of a shard that passed [`Self::check`].
    #[inline]
    pub(crate) fn grant(&self, now: LogicalTime, record: &ShardRecord, run: &RunHead) -> Grant {
        let lease = grant(now, self.tenant, record, run, self.worker, self.token);
        let attempts = record.attempts().saturating_add(1);
        let matters = match run.config.max_shard_retries() {
            // Nothing is ever parked by the count.
            None => false,
            Some(0) => true,
            // Confirming costs a commit, which the first grant of every shard would pay.
            Some(_) => attempts > 1,
        };
        let needs_confirmation = matters && self.reply == ReplyPath::CanBeLost;
        Grant { lease, attempts, needs_confirmation }
    }

    /// Refuses while a lease is live, even the same worker's: two processes may share a worker id
    /// by mistake.
    fn check_not_leased(
        &self,
        now: LogicalTime,
        record: &ShardRecord,
        run: &RunHead,
        seen: &ShardInputs<'_>,
    ) -> Result<(), AcquireError> {
        let Some(holder) = record.lease() else {
            return Ok(());
        };
        // Clocks differ: while the holder's process is alive, its lease is honoured for the skew.
        let lease_deadline = seen.owner.effective_deadline(holder, self.worker);
        assert!(lease_deadline >= holder.deadline(), "evidence only delays a takeover");
        if now < lease_deadline && !is_void(now, holder, run, seen) {
            let current_owner = Redacted::new(holder.owner());
            return Err(AcquireError::AlreadyLeased { current_owner, lease_deadline });
        }
        Ok(())
    }

    /// Parks a shard that has exhausted its attempts; the acquire returns that it is parked.
    const fn give_up<'c>(&self) -> Decision<ShardChange<'c>, Grant, AcquireError> {
        Decision::Commit {
            change: ShardChange::Park {
                reason: ParkReason::TooManyErrors,
                sequence: OpSequence::NONE,
                context: ParkContext::NONE,
                entry: None,
            },
            answer: Err(terminal(self.key, ShardStatus::Parked)),
        }
    }
}

/// Returns whether the deadline of `holder` is void. Evidence of its owner does not count then: the
/// owner's process may live, but it has not renewed for a lease and the skew.
fn is_void(now: LogicalTime, holder: LeaseHolder, run: &RunHead, seen: &ShardInputs<'_>) -> bool {
    seen.watch.voids(now, holder.deadline(), run.config.lease_duration())
}

const fn terminal(shard: ShardKey, status: ShardStatus) -> AcquireError {
    AcquireError::ShardTerminal { shard, status }
}

/// Returns the lease of a grant at `now`.
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
    // After a restore the floor lies above every fence that was issued before it.
    let fence = record.fence_epoch().increment().max(run.fence_floor);
    assert!(fence > record.fence_epoch(), "every grant increments the fence");
    assert!(fence >= run.fence_floor, "a grant is not below the fence floor of its run");
    assert!(deadline >= now, "a deadline is at or after the grant");
    Lease::new(tenant, record.key(), worker, fence, deadline, token)
}

impl Grant {
    /// Returns the change that stores the lease.
    #[inline]
    pub(crate) fn change<'c>(&self, handoff: Option<HandoffId>) -> ShardChange<'c> {
        let Self { lease, attempts, needs_confirmation } = self;
        let holder = LeaseHolder::new(lease.owner(), lease.deadline(), lease.token());
        let attempts = attempts.saturating_sub(u32::from(*needs_confirmation));
        ShardChange::Grant { holder, fence: lease.fence(), attempts, handoff }
    }
}
