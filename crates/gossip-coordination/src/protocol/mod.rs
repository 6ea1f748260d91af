//! The protocol kernel: the rules of shard coordination as pure functions.
//!
//! ```text
//!  load ──► decide ──► evolve ──► commit          (report: answer + events)
//!  store    pure       pure       store: compare-and-swap
//! ```
//!
//! Each file holds one operation: its command and its `decide`, written as a sequence of early
//! returns. `decide` reads records and either refuses, replays an earlier result, or returns a
//! [`ShardChange`] or a [`RunChange`]. [`evolve`] applies a change; no other code of the kernel
//! mutates a record.
//!
//! # Order of checks
//!
//! 1. the shard or run exists, for this tenant;
//! 2. **idempotency**: a replayed operation returns its first result, whatever the lease state;
//! 3. **lease checks**: tenant, terminal status, fence, expiry, owner
//!    ([`validate_lease`](crate::validate_lease));
//! 4. **sequence**: an operation that a later one of the same lease overtook is not executed;
//! 5. run status: terminal, then paused, for operations that start or add work;
//! 6. a pending offer, which freezes its source;
//! 7. the operation's own rules.
//!
//! Administrators hold no lease, so their operations apply checks 1, 2, 5 and 7.
//!
//! # Purity
//!
//! The kernel has no store, clock, random source, thread or future. Time and fresh random numbers
//! are arguments; the caller does the waiting. The kernel returns no infrastructure error.

mod accept;
mod acquire;
#[cfg(test)]
mod acquire_tests;
mod checkpoint;
mod claim;
mod claim_cooldown;
#[cfg(test)]
mod clock_tests;
mod collect_run;
#[cfg(test)]
mod collect_run_tests;
mod complete;
mod confirm_grant;
mod create_run;
mod delete_run;
#[cfg(test)]
mod every_operation_tests;
mod evolve;
mod guard;
#[cfg(test)]
mod guard_tests;
mod lease_watch;
mod offer;
mod park;
mod raise_fence_floor;
mod register_shards;
#[cfg(test)]
mod register_shards_tests;
mod release;
mod renew;
mod repair_shard;
#[cfg(test)]
mod repair_shard_tests;
mod request_action;
mod revoke_lease;
mod run_transition;
mod split_replace;
mod split_residual;
#[cfg(test)]
mod split_tests;
mod unpark;
mod with_records;
mod withdraw;

use std::fmt;

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, Redacted, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_stdx::SlabFull;

pub use self::accept::Accept;
pub(crate) use self::acquire::Verdict;
pub use self::acquire::{Acquire, Grant, ReplyPath};
pub use self::checkpoint::Checkpoint;
pub use self::claim::{CLAIM_CANDIDATES_MAX, ClaimCandidates, ClaimScope};
pub(crate) use self::claim::{Claim, ClaimStep, claim_offset};
pub(crate) use self::claim_cooldown::{ClaimCooldown, ClaimTimes, Reservation};
pub use self::collect_run::{COLLECTION_CANCELS, COLLECTION_DELETES, CollectRun, NotCollected};
pub use self::complete::Complete;
pub(crate) use self::confirm_grant::ConfirmGrant;
pub use self::create_run::CreateRun;
pub use self::delete_run::{DeleteRun, Tombstone};
pub use self::evolve::{evolve, evolve_run};
pub use self::lease_watch::LeaseWatch;
pub use self::offer::{OFFER_LEASES_MAX, OfferShard, OfferTerms};
pub use self::park::Park;
pub(crate) use self::raise_fence_floor::{FENCE_FLOOR_MAX, RaiseFenceFloor};
pub use self::raise_fence_floor::{FENCE_FLOOR_STEP, fence_floor_at};
pub use self::register_shards::{RegisterShards, Roots};
pub use self::release::{Release, ReleaseMode};
pub use self::renew::{Renew, Renewed};
pub use self::repair_shard::RepairedShard;
pub(crate) use self::repair_shard::{Remains, RepairShard};
pub use self::request_action::RequestAction;
pub use self::revoke_lease::RevokeLease;
pub use self::run_transition::{RunTransition, RunTransitionKind};
pub use self::split_replace::{Children, SplitReplace};
pub use self::split_residual::SplitResidual;
pub use self::unpark::Unpark;
pub use self::with_records::WithRecords;
pub use self::withdraw::Withdraw;

use crate::events::{EventKind, RedactedKey};
use crate::handoff::{HandoffId, Offer};
use crate::lease::{Lease, LeaseHolder, OpLogEntry, OpSequence};
use crate::park_context::ParkContext;
use crate::record::{NewShard, ParkReason, ShardRecord, ShardView};
use crate::refusal::{LeaseRefusal, OfferStands, RunOnPause, RunOver, ShardMissing};
use crate::request::{PendingRequest, ShardAction};
use crate::run::{Registration, RunHead, RunOpLogEntry, RunRecord, RunStatus};
use crate::shard_limits::ShardQuota;
use crate::side_records::SideRecord;

/// An operation on one shard.
pub trait ShardTransition {
    /// The result of a successful operation.
    type Output;
    /// The reasons to refuse the operation.
    type Error;

    /// Whether the operation creates shards. If so, the commit counts them against the quota.
    const MAKES_SHARDS: bool = false;

    /// Whether the operation reads evidence that the lease holder is alive: the store's and the
    /// caller's watch.
    const CONSULTS_OWNER: bool = false;

    /// Returns the tenant and the key of the shard.
    fn subject(&self) -> (TenantId, ShardKey);

    /// Decides the operation at `now` from `seen`.
    ///
    /// # Errors
    ///
    /// Returns the first check that fails.
    fn decide(
        &self,
        now: LogicalTime,
        seen: &ShardInputs<'_>,
    ) -> Result<Decision<ShardChange<'_>, Self::Output, Self::Error>, Self::Error>;

    /// Returns the side records that the commit writes. They are no input of the decision.
    fn side_records(&self) -> &[SideRecord] {
        &[]
    }

    /// Converts a full slab into the operation's error.
    ///
    /// # Panics
    ///
    /// Panics unless the operation stores bytes; the others cannot fill the slab.
    fn exhausted(full: SlabFull) -> Self::Error {
        unreachable!("this operation stores no bytes: {full}")
    }
}

/// An operation on one run.
pub trait RunTransitionRules {
    /// The result of a successful operation.
    type Output;
    /// The reasons to refuse the operation.
    type Error;

    /// Returns the tenant and the id of the run.
    fn subject(&self) -> (TenantId, RunId);

    /// Decides the operation at `now` from `seen`.
    ///
    /// # Errors
    ///
    /// Returns the first check that fails.
    fn decide(
        &self,
        now: LogicalTime,
        seen: &RunInputs<'_>,
    ) -> Result<Decision<RunChange<'_>, Self::Output, Self::Error>, Self::Error>;

    /// Converts a full slab into the operation's error.
    ///
    /// # Panics
    ///
    /// Panics unless the operation creates shards; the others cannot fill the slab.
    fn exhausted(full: SlabFull) -> Self::Error {
        unreachable!("this operation stores no bytes: {full}")
    }
}

/// The inputs of a decision about a shard.
#[derive(Clone, Copy)]
pub struct ShardInputs<'a> {
    /// The shard, if it exists for this tenant.
    pub shard: Option<ShardView<'a>>,
    /// Its run, if it exists.
    pub run: Option<RunHead>,
    /// Current shard counts and their limits.
    pub quota: ShardQuota,
    /// The store's evidence that the lease holder is alive.
    pub owner: OwnerEvidence,
    /// How long the caller has seen the shard unchanged.
    pub watch: LeaseWatch,
    /// Returns the payload hash of the split that created a shard of the same run, zero for a root
    /// shard, `None` if the shard does not exist.
    pub split_hash_of: &'a dyn Fn(ShardId) -> Option<u64>,
}

impl<'a> ShardInputs<'a> {
    /// Returns the shard.
    fn shard(&self, key: ShardKey) -> Result<ShardView<'a>, ShardMissing> {
        self.shard.ok_or(ShardMissing(key))
    }

    /// Returns the fence floor of the run; zero if there is none.
    fn fence_floor(&self) -> FenceEpoch {
        self.run.map_or(FenceEpoch::ZERO, |run| run.fence_floor)
    }

    /// Returns the shard and its run. A run has no shards before its registration is complete or
    /// after its deletion has begun.
    fn shard_and_run(&self, key: ShardKey) -> Result<(ShardView<'a>, RunHead), ShardMissing> {
        // Chunks of a registration are stored before the run is active; they must stay invisible.
        let run = self.run.filter(|run| run.status != RunStatus::Initializing);
        match (self.shard, run) {
            (Some(shard), Some(run)) => Ok((shard, run)),
            (None, _) | (_, None) => Err(ShardMissing(key)),
        }
    }
}

/// The inputs of a decision about a run.
#[derive(Clone, Copy, Debug)]
pub struct RunInputs<'a> {
    /// The run, if it exists for this tenant.
    pub run: Option<&'a RunRecord>,
    /// The tombstone, if the run was deleted.
    pub tombstone: Option<Tombstone>,
    /// Number of active shards of the run.
    pub active: u64,
    /// Number of parked shards of the run.
    pub parked: u64,
    /// Time of the last chunk of a chunked registration; zero if none was stored.
    pub registered_at: LogicalTime,
    /// Current shard counts and their limits.
    pub quota: ShardQuota,
}

/// Evidence outside the record that a shard's lease holder is alive (DESIGN Q7).
///
/// Evidence can only delay a takeover: every takeover requires an expired lease or a void deadline
/// ([`LeaseWatch`]).
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an owner key exists or does not")]
pub enum OwnerEvidence {
    /// No liveness key exists. Stores without owner keys always report this.
    Gone,
    /// The lease holder's liveness key exists.
    Alive {
        /// The worker it belongs to.
        owner: WorkerId,
        /// How long past its deadline a lease is still honoured.
        max_clock_skew: u64,
    },
}

impl OwnerEvidence {
    /// Returns the instant from which `worker` may take over the shard held by `holder`.
    fn effective_deadline(self, holder: LeaseHolder, worker: WorkerId) -> LogicalTime {
        match self {
            // A worker's own liveness key must not delay its own retry after a restart.
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

/// The result of a decision that is not a refusal.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a decision replays or commits; refusals are errors")]
pub enum Decision<C, T, E> {
    /// The operation was applied before: return its result and change nothing.
    Replay(T),
    /// Commit `change`, then return `answer`.
    ///
    /// The answer can be an error that holds only once the change is stored: an acquire that parks
    /// a shard returns that the shard is parked.
    Commit {
        /// The change to apply.
        change: C,
        /// The result to return after the commit.
        answer: Result<T, E>,
    },
}

impl<C, T, E> Decision<C, T, E> {
    const fn commit(change: C, answer: T) -> Self {
        Self::Commit { change, answer: Ok(answer) }
    }
}

/// A change of one shard and of the shards it creates.
///
/// It carries results, not rules: `decide` has computed fences, attempts and times.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ShardChange<'c> {
    /// Grants the shard to a worker.
    Grant {
        /// The lease holder, its deadline and its grant token.
        holder: LeaseHolder,
        /// The new fence.
        fence: FenceEpoch,
        /// The new attempt count.
        attempts: u32,
        /// The handoff that this grant completes, if any.
        handoff: Option<HandoffId>,
    },
    /// Counts the attempt of a grant that its worker has received.
    Confirm {
        /// The new attempt count.
        attempts: u32,
    },
    /// Extends the lease.
    Renew {
        /// The same owner and grant with a later deadline.
        holder: LeaseHolder,
        /// Whether to clear the pending request because it expired.
        drop_request: bool,
    },
    /// Advances the cursor.
    Advance {
        /// The new cursor.
        cursor: CursorUpdate<'c>,
        /// The new attempt count.
        attempts: u32,
        /// Whether to clear the pending request because it expired.
        drop_request: bool,
        /// The operation's sequence in its lease.
        sequence: OpSequence,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
    /// Completes the shard.
    Complete {
        /// The final cursor.
        cursor: CursorUpdate<'c>,
        /// The operation's sequence in its lease.
        sequence: OpSequence,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
    /// Parks the shard.
    Park {
        /// The park reason.
        reason: ParkReason,
        /// The text for people; stored until the shard is unparked.
        context: ParkContext<'c>,
        /// The operation's sequence in its lease; none when an acquire parks.
        sequence: OpSequence,
        /// The log entry, for replay; absent when an acquire parks.
        entry: Option<OpLogEntry>,
    },
    /// Replaces the shard by children.
    Replace {
        /// The children.
        children: Children<'c>,
        /// The operation's sequence in its lease.
        sequence: OpSequence,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
    /// Keeps the left part of the range and creates a shard for the right part.
    Shrink {
        /// The left part.
        spec: ShardSpecRef<'c>,
        /// The shard that takes the right part.
        residual: NewShard<'c>,
        /// Whether the change fulfils the pending request.
        drop_request: bool,
        /// The operation's sequence in its lease.
        sequence: OpSequence,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
    /// Makes a parked shard active.
    Unpark {
        /// The new fence.
        fence: FenceEpoch,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
    /// Releases the lease.
    Release {
        /// The new attempt count.
        attempts: u32,
        /// The operation's sequence in its lease.
        sequence: OpSequence,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
    /// Offers the shard to another worker.
    Offer {
        /// The handoff, its destination and its deadline.
        offer: Offer,
        /// The final cursor, if it advanced.
        cursor: Option<CursorUpdate<'c>>,
        /// The new attempt count.
        attempts: u32,
        /// Whether the change fulfils the pending request.
        drop_request: bool,
        /// The operation's sequence in its lease.
        sequence: OpSequence,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
    /// Withdraws the offer.
    Withdraw {
        /// The handoff.
        handoff: HandoffId,
        /// Whether the change fulfils the pending request.
        drop_request: bool,
        /// The operation's sequence in its lease.
        sequence: OpSequence,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
    /// Stores an administrator's request to the lease holder.
    Request {
        /// The idempotency key.
        op_id: OpId,
        /// Hash of the request's parameters.
        payload_hash: u64,
        /// The requested action.
        action: &'c ShardAction,
        /// The first instant at which the request is expired.
        expires_at: LogicalTime,
    },
    /// Revokes the lease.
    Revoke {
        /// The new fence.
        fence: FenceEpoch,
        /// The log entry, for replay.
        entry: OpLogEntry,
    },
}

impl<'c> ShardChange<'c> {
    /// Returns the shards that the change creates, in range order.
    pub fn new_shards(&self) -> impl Iterator<Item = NewShard<'c>> {
        let (children, residual) = match self {
            Self::Replace { children, .. } => (Some(children.new_shards()), None),
            Self::Shrink { residual, .. } => (None, Some(*residual)),
            Self::Grant { .. }
            | Self::Confirm { .. }
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

    /// Returns the log entry of the change; `None` for changes without an operation id.
    #[must_use]
    pub(crate) const fn entry(&self) -> Option<&OpLogEntry> {
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
            // Not replayed from the log: a repeated grant is a new one, a renewal may be repeated,
            // a confirmation names the count, and a stored request names its operation.
            Self::Grant { .. }
            | Self::Confirm { .. }
            | Self::Renew { .. }
            | Self::Request { .. } => None,
        }
    }

    /// Returns the sequence of the change in its lease; none for changes without a lease or an
    /// operation id.
    #[must_use]
    pub(crate) const fn sequence(&self) -> OpSequence {
        match self {
            Self::Advance { sequence, .. }
            | Self::Complete { sequence, .. }
            | Self::Park { sequence, .. }
            | Self::Replace { sequence, .. }
            | Self::Shrink { sequence, .. }
            | Self::Release { sequence, .. }
            | Self::Offer { sequence, .. }
            | Self::Withdraw { sequence, .. } => *sequence,
            // Renewals may be applied in any order; the others are not operations under a lease.
            Self::Grant { .. }
            | Self::Confirm { .. }
            | Self::Renew { .. }
            | Self::Unpark { .. }
            | Self::Request { .. }
            | Self::Revoke { .. } => OpSequence::NONE,
        }
    }

    /// Returns whether the change has a lifecycle event. A checkpoint, a renewal and the
    /// confirmation of a grant have none: they are as frequent as items or leases.
    #[inline]
    #[must_use]
    pub(crate) const fn is_lifecycle(&self) -> bool {
        match self {
            Self::Advance { .. } | Self::Renew { .. } | Self::Confirm { .. } => false,
            Self::Grant { .. }
            | Self::Complete { .. }
            | Self::Park { .. }
            | Self::Replace { .. }
            | Self::Shrink { .. }
            | Self::Unpark { .. }
            | Self::Release { .. }
            | Self::Offer { .. }
            | Self::Withdraw { .. }
            | Self::Request { .. }
            | Self::Revoke { .. } => true,
        }
    }

    /// Returns the event for `shard`, by the mapping table of the seeds; `None` for a change that
    /// observers do not see.
    #[must_use]
    pub(crate) fn event(&self, shard: ShardId) -> Option<EventKind> {
        Some(match self {
            Self::Grant { holder, fence, .. } => EventKind::ShardAcquired {
                shard,
                worker: Redacted::new(holder.owner()),
                fence_epoch: *fence,
            },
            // The grant is the event; its confirmation completes it.
            Self::Confirm { .. } => return None,
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
                children: children.new_shards().map(|new| new.shard).collect(),
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
        })
    }
}

/// A change of one run and of the shards it creates or deletes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunChange<'c> {
    /// Creates a run.
    Create(Box<RunRecord>),
    /// Adds the root shards and activates the run.
    Activate {
        /// The registering operation.
        registration: Registration,
        /// The root shards.
        roots: Roots<'c>,
    },
    /// Ends the run.
    End {
        /// The terminal status.
        status: RunStatus,
        /// The log entry, for replay; its time is the run's end time.
        entry: RunOpLogEntry,
    },
    /// Pauses or resumes claims.
    Pause {
        /// Whether the run is paused.
        paused: bool,
        /// Whether this differs from the stored flag.
        changed: bool,
        /// The log entry, for replay.
        entry: RunOpLogEntry,
    },
    /// Raises the fence floor.
    RaiseFloor {
        /// The new floor.
        floor: FenceEpoch,
    },
    /// Deletes a terminal run and its shards.
    Delete(Tombstone),
}

impl RunChange<'_> {
    /// Returns the event for observers, or `None` if no visible state changed.
    #[must_use]
    pub(crate) fn event(&self) -> Option<EventKind> {
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
            // A second pause commits its log entry, but observers see no change.
            // So does a raised floor: the next grants show it.
            Self::Pause { changed: false, .. } | Self::RaiseFloor { .. } => return None,
            Self::Pause { paused: true, .. } => EventKind::RunPaused,
            Self::Pause { paused: false, .. } => EventKind::RunResumed,
            Self::Delete(_) => EventKind::RunDeleted,
        })
    }
}

/// Panics at time zero, which an unset clock reports. This is a bug in the calling process and
/// never bad input.
fn assert_clock(now: LogicalTime) {
    assert!(now > LogicalTime::ZERO, "time zero means a broken clock");
}

/// The last lease check: a lease from before a restore is refused, even if the restored record has
/// its fence.
fn check_fence_floor(seen: &ShardInputs<'_>, lease: &Lease) -> Result<(), LeaseRefusal> {
    let (presented, floor) = (lease.fence(), seen.fence_floor());
    if presented < floor {
        return Err(LeaseRefusal::StaleFence { presented, current: floor });
    }
    Ok(())
}

/// Check 5, first half: a terminal run accepts no new work.
fn check_run_not_over(run: &RunHead) -> Result<(), RunOver> {
    if run.status.is_terminal() {
        return Err(RunOver(run.status));
    }
    Ok(())
}

/// Check 5, second half: no shard of a paused run is granted.
fn check_run_not_paused(run: &RunHead) -> Result<(), RunOnPause> {
    // Work that has begun continues: a pause concerns grants only.
    if run.paused {
        return Err(RunOnPause);
    }
    Ok(())
}

/// Check 6: while an offer is pending, its source may only renew and withdraw. An expired offer is
/// still pending: only a committed withdrawal proves that the destination did not accept it.
fn check_no_offer(record: &ShardRecord) -> Result<(), OfferStands> {
    match record.offer() {
        Some(offer) => Err(OfferStands(offer.notice())),
        None => Ok(()),
    }
}

/// Returns the time to store for an operation at `now`. Stored times never decrease, so a clock
/// that lags behind another machine's clock is harmless.
fn stored_time(shard: ShardView<'_>, now: LogicalTime) -> LogicalTime {
    // The lease holder before may have had a clock that was ahead.
    let at = now.max(shard.op_log().last_time());
    assert!(at >= now, "a stored time is at or after now");
    at
}

/// Returns the pending request unless it has expired.
fn live_request(record: &ShardRecord, now: LogicalTime) -> Option<&PendingRequest> {
    record.request().filter(|request| request.is_pending_at(now))
}

/// Returns a copy of the unexpired request for the lease holder.
fn shown_request(record: &ShardRecord, now: LogicalTime) -> Option<PendingRequest> {
    live_request(record, now).cloned()
}

/// Returns whether the stored request has expired.
fn request_expired(record: &ShardRecord, now: LogicalTime) -> bool {
    record.request().is_some_and(|request| !request.is_pending_at(now))
}

/// Returns the attempt count after a cursor update to `new`; an advance resets it.
fn attempts_after_advance(shard: ShardView<'_>, new: CursorUpdate<'_>) -> u32 {
    let advanced = new.last_key() > shard.cursor().last_key();
    // Repeating a position proves nothing about the next key, which may be the one that kills its
    // lease holders. Only an advance beyond the stored key resets the count.
    if advanced { 0 } else { shard.record().attempts() }
}

/// Returns the attempt count of a split's children. Each child keeps at least one try, so that
/// bisection of a poisoned range continues and the healthy part is not parked (DESIGN Q13).
fn inherited_attempts(parent: &ShardRecord, run: &RunHead) -> u32 {
    let one_try_left = run.config.max_shard_retries().map(|max| max.saturating_sub(1));
    // Inherited, not reset: otherwise a poisoned range could be split for ever.
    let inherited = parent.attempts().min(one_try_left.unwrap_or(u32::MAX));
    assert!(inherited <= parent.attempts(), "a split does not count as an attempt");
    inherited
}

#[cfg(test)]
mod claim_tests;
