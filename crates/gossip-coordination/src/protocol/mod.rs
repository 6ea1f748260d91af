//! The rules of shard coordination, each written once.
//!
//! ```text
//!  load ──► decide ──► evolve ──► commit          (report: answer + events)
//!  store    pure       pure       store: compare-and-swap
//! ```
//!
//! One file holds one operation: its command, its `decide`, its rules as a ladder of early returns.
//! `decide` looks at records and refuses, answers from memory, or returns a [`ShardChange`] or a
//! [`RunChange`]. [`evolve`] applies a change, and is the only code that changes a record.
//!
//! # The order in which rules speak
//!
//! 1. the shard or run exists, for this tenant;
//! 2. **idempotency**: an operation that happened is answered, whatever became of the lease;
//! 3. **the lease ladder**: tenant, terminal status, fence, expiry, owner
//!    ([`validate_lease`](crate::validate_lease));
//! 4. the run: over, then paused — for operations that start or grow work;
//! 5. a standing offer, which freezes its source;
//! 6. the operation's own rules.
//!
//! Administrators hold no lease, so their operations go 1, 2, 4, 6.
//!
//! # What is absent
//!
//! No store, no clock, no random source, no thread, no future: time is an argument, fresh numbers
//! are arguments, and waiting is somebody else's. No error of infrastructure is made here.

mod accept;
mod acquire;
#[cfg(test)]
mod acquire_tests;
mod checkpoint;
mod claim;
#[cfg(test)]
mod clock_tests;
mod collect_run;
#[cfg(test)]
mod collect_run_tests;
mod complete;
mod create_run;
mod delete_run;
mod evolve;
mod guard;
#[cfg(test)]
mod guard_tests;
mod offer;
mod park;
mod register_shards;
#[cfg(test)]
mod register_shards_tests;
mod release;
mod renew;
mod request_action;
mod revoke_lease;
mod run_transition;
mod split_replace;
mod split_residual;
#[cfg(test)]
mod split_tests;
mod unpark;
mod withdraw;

use std::fmt;

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, Redacted, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_stdx::SlabFull;

pub use self::accept::Accept;
pub(crate) use self::acquire::Verdict;
pub use self::acquire::{Acquire, Grant};
pub use self::checkpoint::Checkpoint;
pub use self::claim::{
    CLAIM_CANDIDATES_MAX, Claim, ClaimCandidates, ClaimCooldown, ClaimStep, claim_offset,
};
pub use self::collect_run::{COLLECTION_CANCELS, COLLECTION_DELETES, CollectRun, NotCollected};
pub use self::complete::Complete;
pub use self::create_run::CreateRun;
pub use self::delete_run::{DeleteRun, Tombstone};
pub use self::evolve::{evolve, evolve_run};
pub use self::offer::{OFFER_LEASES_MAX, OfferShard, OfferTerms};
pub use self::park::Park;
pub use self::register_shards::{RegisterShards, Roots};
pub use self::release::{Release, ReleaseMode};
pub use self::renew::{Renew, Renewed};
pub use self::request_action::RequestAction;
pub use self::revoke_lease::RevokeLease;
pub use self::run_transition::{RunTransition, RunTransitionKind};
pub use self::split_replace::{Children, SplitReplace};
pub use self::split_residual::SplitResidual;
pub use self::unpark::Unpark;
pub use self::withdraw::Withdraw;

use crate::events::{EventKind, RedactedKey};
use crate::handoff::{HandoffId, Offer};
use crate::lease::{LeaseHolder, OpLogEntry};
use crate::record::{NewShard, ParkReason, ShardRecord, ShardView};
use crate::refusal::{OfferStands, RunOnPause, RunOver, ShardMissing};
use crate::request::{PendingRequest, ShardAction};
use crate::run::{Registration, RunHead, RunOpLogEntry, RunRecord, RunStatus};
use crate::shard_limits::ShardQuota;

/// An operation on one shard.
pub trait ShardTransition {
    /// What it answers.
    type Output;
    /// How it refuses.
    type Error;

    /// Whether it looks at the shard's run. If so, the run's head is compared in the commit.
    const CONSULTS_RUN: bool;

    /// Whether it makes shards. If so, they are counted against the limits in the commit.
    const MAKES_SHARDS: bool = false;

    /// Whether it looks at what the store knows of the owner beside the record.
    const CONSULTS_OWNER: bool = false;

    /// Whose shard, and which.
    fn subject(&self) -> (TenantId, ShardKey);

    /// The rules.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, Self::Output, Self::Error>, Self::Error>;

    /// How it says that the record has no quota for its change.
    ///
    /// # Panics
    ///
    /// Unless the operation stores bytes: others need no quota.
    fn exhausted(full: SlabFull) -> Self::Error {
        unreachable!("this operation stores no bytes: {full}")
    }
}

/// An operation on one run.
pub trait RunTransitionRules {
    /// What it answers.
    type Output;
    /// How it refuses.
    type Error;

    /// Whose run, and which.
    fn subject(&self) -> (TenantId, RunId);

    /// The rules.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunInputs<'_>,
    ) -> Result<Decision<RunChange<'_>, Self::Output, Self::Error>, Self::Error>;

    /// How it says that there is no quota for its change.
    ///
    /// # Panics
    ///
    /// Unless the operation makes shards: others need no quota.
    fn exhausted(full: SlabFull) -> Self::Error {
        unreachable!("this operation stores no bytes: {full}")
    }
}

/// What a decision about a shard looks at.
#[derive(Clone, Copy)]
pub struct ShardInputs<'a> {
    /// The shard, if the tenant has it.
    pub shard: Option<ShardView<'a>>,
    /// Its run, if the operation consults it and the run exists.
    pub run: Option<RunHead>,
    /// How many shards there are and may be.
    pub quota: ShardQuota,
    /// What the store knows of the owner beside the record.
    pub owner: OwnerEvidence,
    /// The payload hash of the split that made a shard, for shards of the same run; roots answer
    /// zero. `None` if there is no such shard.
    pub split_hash_of: &'a dyn Fn(ShardId) -> Option<u64>,
}

impl<'a> ShardInputs<'a> {
    /// The shard alone.
    fn shard(&self, key: ShardKey) -> Result<ShardView<'a>, ShardMissing> {
        self.shard.ok_or(ShardMissing(key))
    }

    /// The shard and its run. Until registration has finished, and once deletion has begun, a run
    /// has no shards.
    fn shard_and_run(&self, key: ShardKey) -> Result<(ShardView<'a>, RunHead), ShardMissing> {
        let run = self.run.filter(|run| run.status != RunStatus::Initializing);
        match (self.shard, run) {
            (Some(shard), Some(run)) => Ok((shard, run)),
            (None, _) | (_, None) => Err(ShardMissing(key)),
        }
    }
}

/// What a decision about a run looks at.
#[derive(Clone, Copy, Debug)]
pub struct RunInputs<'a> {
    /// The run, if the tenant has it.
    pub run: Option<&'a RunRecord>,
    /// What is left of a deleted run.
    pub tombstone: Option<Tombstone>,
    /// Shards of the run that are active.
    pub active: u64,
    /// Shards of the run that are parked.
    pub parked: u64,
    /// When a registration in several steps last went on; zero if it did not begin.
    pub registered_at: LogicalTime,
    /// How many shards there are and may be.
    pub quota: ShardQuota,
}

/// What a store knows of a shard's owner beside the record (DESIGN Q7).
///
/// It can only delay a takeover, never bring one forward: that always needs an expired lease.
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an owner key is gone or there; nothing in between")]
pub enum OwnerEvidence {
    /// Nothing speaks for the owner; also what stores without owner keys report.
    Gone,
    /// The owner's liveness key exists.
    Alive {
        /// The worker it belongs to.
        owner: WorkerId,
        /// How long after its deadline a lease is still honoured.
        max_clock_skew: u64,
    },
}

impl OwnerEvidence {
    /// The instant from which `worker` may take over what `holder` holds.
    fn effective_deadline(self, holder: LeaseHolder, worker: WorkerId) -> LogicalTime {
        match self {
            Self::Alive { owner, max_clock_skew } if owner != worker => {
                holder.deadline().saturating_add(max_clock_skew)
            }
            Self::Gone | Self::Alive { .. } => holder.deadline(),
        }
    }
}

impl fmt::Debug for OwnerEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "Gone",
            Self::Alive { .. } => "Alive",
        })
    }
}

/// What a decision comes to, unless it is a refusal.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a decision replays or commits; refusals are errors")]
pub enum Decision<C, T, E> {
    /// It happened before: answer, and change nothing.
    Replay(T),
    /// Commit `change`, then give `answer`.
    ///
    /// The answer can be an error that is true only once the change is stored: an acquire that
    /// parks a shard answers that the shard is parked.
    Commit {
        /// What to apply.
        change: C,
        /// What to say once it is stored.
        answer: Result<T, E>,
    },
}

impl<C, T, E> Decision<C, T, E> {
    const fn commit(change: C, answer: T) -> Self {
        Self::Commit { change, answer: Ok(answer) }
    }
}

/// One change of one shard, and of nothing else but the shards it makes.
///
/// It carries results, not rules: fences, attempts and times were decided before.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ShardChange<'c> {
    /// A worker gets the shard.
    Grant {
        /// Who, until when, by which grant.
        holder: LeaseHolder,
        /// The new fence.
        fence: FenceEpoch,
        /// Attempts from now on.
        attempts: u32,
        /// The planned move behind it, if it was one.
        handoff: Option<HandoffId>,
    },
    /// The lease lasts longer.
    Renew {
        /// The same owner and grant with a later deadline.
        holder: LeaseHolder,
        /// Whether the pending request expired.
        drop_request: bool,
    },
    /// The cursor moves.
    Advance {
        /// To here.
        cursor: CursorUpdate<'c>,
        /// Attempts from now on.
        attempts: u32,
        /// Whether the pending request expired.
        drop_request: bool,
        /// For replay.
        entry: OpLogEntry,
    },
    /// The shard is done.
    Complete {
        /// The last position.
        cursor: CursorUpdate<'c>,
        /// For replay.
        entry: OpLogEntry,
    },
    /// The shard is set aside.
    Park {
        /// Why.
        reason: ParkReason,
        /// For replay; absent when an acquire parks.
        entry: Option<OpLogEntry>,
    },
    /// Children replace the shard.
    Replace {
        /// They.
        children: Children<'c>,
        /// For replay.
        entry: OpLogEntry,
    },
    /// The shard keeps the left part of its range.
    Shrink {
        /// The left part.
        spec: ShardSpecRef<'c>,
        /// The shard that takes the right part.
        residual: NewShard<'c>,
        /// Whether this is what an administrator asked for.
        drop_request: bool,
        /// For replay.
        entry: OpLogEntry,
    },
    /// A parked shard becomes active.
    Unpark {
        /// The new fence.
        fence: FenceEpoch,
        /// For replay.
        entry: OpLogEntry,
    },
    /// The owner gives the shard back.
    Release {
        /// Attempts from now on.
        attempts: u32,
        /// For replay.
        entry: OpLogEntry,
    },
    /// The owner offers the shard.
    Offer {
        /// To whom, until when.
        offer: Offer,
        /// The final position, if it moved.
        cursor: Option<CursorUpdate<'c>>,
        /// Attempts from now on.
        attempts: u32,
        /// Whether this is what an administrator asked for.
        drop_request: bool,
        /// For replay.
        entry: OpLogEntry,
    },
    /// The owner takes its offer back.
    Withdraw {
        /// The planned move.
        handoff: HandoffId,
        /// Whether this is what an administrator asked for.
        drop_request: bool,
        /// For replay.
        entry: OpLogEntry,
    },
    /// An administrator asks something of the owner.
    Request {
        /// Its idempotency key.
        op_id: OpId,
        /// Fingerprint of what is asked.
        payload_hash: u64,
        /// What is asked.
        action: &'c ShardAction,
        /// The first instant at which it no longer counts.
        expires_at: LogicalTime,
    },
    /// An administrator takes the lease away.
    Revoke {
        /// The new fence.
        fence: FenceEpoch,
        /// For replay.
        entry: OpLogEntry,
    },
}

impl<'c> ShardChange<'c> {
    /// The shards that the change makes, in the order of their ranges.
    pub fn births(&self) -> impl Iterator<Item = NewShard<'c>> {
        let (children, residual) = match self {
            Self::Replace { children, .. } => (Some(children.births()), None),
            Self::Shrink { residual, .. } => (None, Some(*residual)),
            Self::Grant { .. }
            | Self::Renew { .. }
            | Self::Advance { .. }
            | Self::Complete { .. }
            | Self::Park { .. }
            | Self::Unpark { .. }
            | Self::Release { .. }
            | Self::Offer { .. }
            | Self::Withdraw { .. }
            | Self::Request { .. }
            | Self::Revoke { .. } => (None, None),
        };
        children.into_iter().flatten().chain(residual)
    }

    /// What the shard's log remembers of the change; nothing of those without an operation id.
    #[must_use]
    pub const fn entry(&self) -> Option<&OpLogEntry> {
        match self {
            Self::Advance { entry, .. }
            | Self::Complete { entry, .. }
            | Self::Replace { entry, .. }
            | Self::Shrink { entry, .. }
            | Self::Unpark { entry, .. }
            | Self::Release { entry, .. }
            | Self::Offer { entry, .. }
            | Self::Withdraw { entry, .. }
            | Self::Revoke { entry, .. } => Some(entry),
            Self::Park { entry, .. } => entry.as_ref(),
            Self::Grant { .. } | Self::Renew { .. } | Self::Request { .. } => None,
        }
    }

    /// What to tell observers of `shard`: the mapping table of the seeds.
    #[must_use]
    pub fn event(&self, shard: ShardId) -> EventKind {
        match self {
            Self::Grant { holder, fence, .. } => EventKind::ShardAcquired {
                shard,
                worker: Redacted::new(holder.owner()),
                fence_epoch: *fence,
            },
            Self::Renew { holder, .. } => {
                EventKind::ShardLeaseRenewed { shard, new_deadline: holder.deadline() }
            }
            Self::Advance { cursor, .. } => EventKind::ShardCheckpointed {
                shard,
                last_key: RedactedKey::new(cursor.last_key()),
            },
            Self::Complete { .. } => EventKind::ShardCompleted { shard },
            Self::Park { reason, .. } => EventKind::ShardParked { shard, reason: *reason },
            Self::Replace { children, .. } => EventKind::ShardSplit {
                parent: shard,
                children: children.births().map(|birth| birth.shard).collect(),
            },
            Self::Shrink { residual, .. } => {
                EventKind::ShardResidualCreated { parent: shard, residual: residual.shard }
            }
            Self::Unpark { fence, .. } => {
                EventKind::ShardUnparked { shard, new_fence_epoch: *fence }
            }
            Self::Release { .. } => EventKind::ShardReleased { shard },
            Self::Offer { offer, .. } => EventKind::ShardOffered { shard, handoff: offer.handoff },
            Self::Withdraw { handoff, .. } => {
                EventKind::ShardOfferWithdrawn { shard, handoff: *handoff }
            }
            Self::Request { action, .. } => {
                EventKind::ShardActionRequested { shard, action: action.label() }
            }
            Self::Revoke { fence, .. } => {
                EventKind::ShardLeaseRevoked { shard, new_fence_epoch: *fence }
            }
        }
    }
}

/// One change of one run, and of nothing else but the root shards it makes or the shards it ends.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunChange<'c> {
    /// A run is made.
    Create(Box<RunRecord>),
    /// A run gets its shards.
    Activate {
        /// Who registered them.
        registration: Registration,
        /// They.
        roots: Roots<'c>,
    },
    /// A run ends.
    End {
        /// How.
        status: RunStatus,
        /// For replay; its time is the end of the run.
        entry: RunOpLogEntry,
    },
    /// Starting shards is suspended or allowed again.
    Pause {
        /// Whether it is suspended from now on.
        paused: bool,
        /// Whether that is anything new.
        changed: bool,
        /// For replay.
        entry: RunOpLogEntry,
    },
    /// A run that is over disappears with its shards.
    Delete(Tombstone),
}

impl RunChange<'_> {
    /// What to tell observers, if anything happened that they could not see before.
    #[must_use]
    pub fn event(&self) -> Option<EventKind> {
        Some(match self {
            Self::Create(_) => EventKind::RunCreated,
            Self::Activate { roots, .. } => EventKind::RunActivated { shard_count: roots.count() },
            Self::End { status, .. } => match status {
                RunStatus::Done => EventKind::RunCompleted,
                RunStatus::Failed => EventKind::RunFailed,
                RunStatus::Cancelled => EventKind::RunCancelled,
                RunStatus::Initializing | RunStatus::Active => {
                    unreachable!("a run ends in a terminal status")
                }
            },
            Self::Pause { changed: false, .. } => return None,
            Self::Pause { paused: true, .. } => EventKind::RunPaused,
            Self::Pause { paused: false, .. } => EventKind::RunResumed,
            Self::Delete(_) => EventKind::RunDeleted,
        })
    }
}

/// Time zero is what an unset clock reports. It is a bug of the caller's process and never bad
/// input, so it panics before anything is decided.
fn assert_clock(now: LogicalTime) {
    assert!(now > LogicalTime::ZERO, "time zero means a broken clock");
}

/// Rule 4, first half: a run that is over grows no new work.
fn check_run_not_over(run: &RunHead) -> Result<(), RunOver> {
    if run.status.is_terminal() {
        return Err(RunOver(run.status));
    }
    Ok(())
}

/// Rule 4, second half: nobody starts a shard of a paused run.
fn check_run_not_paused(run: &RunHead) -> Result<(), RunOnPause> {
    if run.paused {
        return Err(RunOnPause);
    }
    Ok(())
}

/// Rule 5: while an offer stands, its source may renew and withdraw and nothing else. An expired
/// offer still stands: it was sent, and only a committed withdrawal shows that nobody accepted it.
fn check_no_offer(record: &ShardRecord) -> Result<(), OfferStands> {
    match record.offer() {
        Some(offer) => Err(OfferStands(offer.notice())),
        None => Ok(()),
    }
}

/// The time at which something done at `now` is remembered: stored times never fall, so a clock
/// that lags behind another machine's breaks nothing.
fn stored_time(shard: ShardView<'_>, now: LogicalTime) -> LogicalTime {
    let at = now.max(shard.op_log().last_time());
    assert!(at >= now, "a stored time is not before the present");
    at
}

/// The pending request, if it still counts.
fn live_request(record: &ShardRecord, now: LogicalTime) -> Option<&PendingRequest> {
    record.request().filter(|request| request.is_pending_at(now))
}

/// What the owner is shown to be asked of it.
fn shown_request(record: &ShardRecord, now: LogicalTime) -> Option<PendingRequest> {
    live_request(record, now).cloned()
}

/// Whether a request is stored that no longer counts.
fn request_expired(record: &ShardRecord, now: LogicalTime) -> bool {
    record.request().is_some_and(|request| !request.is_pending_at(now))
}

/// Attempts after the cursor was set to `new`: a strict advance is progress, and starts anew.
fn attempts_after_advance(shard: ShardView<'_>, new: CursorUpdate<'_>) -> u32 {
    let advanced = new.last_key() > shard.cursor().last_key();
    // A position that was reached before says nothing about the next key, which may be the one
    // that kills its owners: only what lies beyond starts the count anew.
    if advanced { 0 } else { shard.record().attempts() }
}

/// Attempts that a shard hands down when it is split: one try for each part, so that bisection of
/// a poisoned range goes on and the innocent part is not parked (DESIGN Q13).
fn inherited_attempts(parent: &ShardRecord, run: &RunHead) -> u32 {
    let one_try_left = run.config.max_shard_retries().map(|max| max.saturating_sub(1));
    let inherited = parent.attempts().min(one_try_left.unwrap_or(u32::MAX));
    assert!(inherited <= parent.attempts(), "a split is no attempt");
    inherited
}

#[cfg(test)]
mod claim_tests;
