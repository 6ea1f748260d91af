//! Applies a change that `decide` returned; no other code of the kernel mutates a record.
//!
//! Outside of the kernel three places do: `store/run_flight.rs` notes an unfinished registration in
//! a run, `store/shard_repair.rs` rebuilds a damaged record, and `in_memory/undo.rs` restores one
//! after a panic.
//!
//! `decide` has accepted the change, so it fails here only if the slab is full, and then leaves the
//! record unchanged. Steps that allocate therefore come before steps that cannot fail. `guard.rs`
//! checks every change before and after, and the record's invariants are asserted last, so that a
//! wrong rule panics before anything is stored.

use gossip_contracts::coordination::{
    CursorUpdate, PooledShardSpec, PooledSpawnedError, ShardSpecRef,
};
use gossip_contracts::identity::{FenceEpoch, ShardId};
use gossip_stdx::SlabFull;

use super::guard::{Before, assert_after, assert_before};
use super::{Children, RunChange, ShardChange};
use crate::handoff::HandoffId;
use crate::lease::{LeaseHolder, OpLogEntry, OpSequence};
use crate::park_context::ParkContext;
use crate::pool::RecordPool;
use crate::record::{ParkReason, Rare, ShardRecord, ShardStatus};
use crate::request::{PendingRequest, ShardAction};
use crate::run::{RunOpLogEntry, RunRecord, RunStatus};

/// Applies `change` to `record`, whose bytes live in `pool`. The caller creates the new shards.
///
/// # Errors
///
/// Returns [`SlabFull`] if the bytes do not fit; the record is then unchanged.
///
/// # Panics
///
/// Panics if the result violates an invariant: a rule is wrong, and nothing may be stored.
// Inlined because most callers pass a constant kind of change, so the other arms disappear.
#[inline(always)]
pub fn evolve(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    change: &ShardChange<'_>,
) -> Result<(), SlabFull> {
    assert_before(record, pool, change);
    let before = Before::of(record);
    apply(record, pool, change)?;
    assert_after(before, record, pool, change);
    record.assert_invariants(pool);
    Ok(())
}

/// Applies each kind of change; fallible steps first.
#[inline(always)]
fn apply(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    change: &ShardChange<'_>,
) -> Result<(), SlabFull> {
    match change {
        ShardChange::Grant { holder, fence, attempts, handoff } => {
            grant(record, pool, *holder, *fence, *attempts, *handoff);
        }
        ShardChange::Confirm { attempts } => record.attempts = *attempts,
        ShardChange::Renew { holder, drop_request } => renew(record, *holder, *drop_request),
        ShardChange::Advance { cursor, attempts, drop_request, sequence, entry } => {
            advance(record, pool, Some(*cursor))?;
            record.attempts = *attempts;
            clear_request(record, *drop_request);
            remember(record, pool, *sequence, *entry);
        }
        ShardChange::Complete { cursor, sequence, entry } => {
            record.cursor.update(*cursor, &mut pool.bytes)?;
            end(record, ShardStatus::Done);
            remember(record, pool, *sequence, *entry);
        }
        ShardChange::Park { reason, context, sequence, entry } => {
            park(record, *reason, *context);
            entry.iter().for_each(|entry| remember(record, pool, *sequence, *entry));
        }
        ShardChange::Replace { children, sequence, entry } => {
            replace(record, pool, children)?;
            remember(record, pool, *sequence, *entry);
        }
        ShardChange::Shrink { spec, residual, drop_request, sequence, entry } => {
            shrink(record, pool, *spec, residual.shard)?;
            clear_request(record, *drop_request);
            remember(record, pool, *sequence, *entry);
        }
        ShardChange::Unpark { fence, entry } => {
            unpark(record, *fence);
            remember(record, pool, OpSequence::NONE, *entry);
        }
        ShardChange::Release { attempts, sequence, entry } => {
            record.attempts = *attempts;
            clear_lease(record);
            remember(record, pool, *sequence, *entry);
        }
        ShardChange::Offer { offer, cursor, attempts, drop_request, sequence, entry } => {
            advance(record, pool, *cursor)?;
            record.attempts = *attempts;
            clear_request(record, *drop_request);
            rare(record).offer = Some(*offer);
            remember(record, pool, *sequence, *entry);
        }
        ShardChange::Withdraw { handoff: _, drop_request, sequence, entry } => {
            clear_request(record, *drop_request);
            // Also without an offer: the log entry excludes one that is still in flight.
            rare(record).offer = None;
            remember(record, pool, *sequence, *entry);
        }
        ShardChange::Request { op_id, payload_hash, action, expires_at } => {
            let action = ShardAction::clone(action);
            let request = PendingRequest::new(*op_id, *payload_hash, action, *expires_at);
            // Replaces an earlier one and has no log entry: the request itself shows its operation.
            rare(record).request = Some(request);
        }
        ShardChange::Revoke { fence, entry } => {
            revoke(record, *fence);
            remember(record, pool, OpSequence::NONE, *entry);
        }
    }
    Ok(())
}

/// Applies `change` to `run`. Creation and deletion store or remove whole records and do not pass
/// through here.
///
/// # Panics
///
/// Panics if the result violates an invariant, or if `change` creates or deletes the run.
pub fn evolve_run(run: &mut RunRecord, change: &RunChange<'_>) {
    match change {
        RunChange::Activate { registration, roots } => {
            assert!(
                run.status.may_become(RunStatus::Active),
                "only an initializing run can be activated"
            );
            assert!(run.root_shards.is_empty(), "a run's root shards are registered once");
            // A chunked registration completes under the operation that stored its first chunk
            // (Q16).
            assert!(
                run.registration.is_none_or(|begun| begun == *registration),
                "one operation registers all chunks",
            );
            run.status = RunStatus::Active;
            run.registration = Some(*registration);
            run.root_shards = roots.new_shards().map(|new| new.shard).collect();
            assert!(run.root_shards.len() == roots.count(), "every root is registered");
        }
        RunChange::End { status, entry } => {
            assert!(run.status.may_become(*status), "the status transition is legal");
            assert!(status.is_terminal(), "a run ends in a terminal status");
            assert!(run.completed_at.is_none(), "a run that has not ended has no end time");
            assert!(entry.executed_at() >= run.created_at(), "a run ends after its creation");
            run.status = *status;
            run.completed_at = Some(entry.executed_at());
            remember_run(run, *entry);
        }
        RunChange::Pause { paused, changed, entry } => {
            assert!(run.status == RunStatus::Active, "only an active run can be paused or resumed");
            assert!(
                *changed == (run.paused != *paused),
                "an event is emitted only for a new state"
            );
            run.paused = *paused;
            remember_run(run, *entry);
        }
        RunChange::RaiseFloor { floor } => {
            assert!(*floor >= run.fence_floor, "a fence floor never falls");
            run.fence_floor = *floor;
        }
        RunChange::Create(_) | RunChange::Delete(_) => {
            unreachable!("whole run records are created and deleted")
        }
    }
    run.assert_invariants();
}

/// Installs a new lease holder under a new fence; offer, request and sequence of the previous one
/// end.
#[inline]
fn grant(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    holder: LeaseHolder,
    fence: FenceEpoch,
    attempts: u32,
    handoff: Option<HandoffId>,
) {
    bump(record, fence, handoff);
    pool.logs.restart_sequence(record.op_log);
    record.lease = Some(holder);
    record.attempts = attempts;
    // Only shown to operators, so it may stay at the maximum.
    record.acquire_count = record.acquire_count.saturating_add(1);
}

#[inline]
fn renew(record: &mut ShardRecord, holder: LeaseHolder, drop_request: bool) {
    record.lease = Some(holder);
    clear_request(record, drop_request);
}

/// Sets the fence, clears offer and request, and records the handoff that caused the grant.
#[inline]
fn bump(record: &mut ShardRecord, fence: FenceEpoch, handoff: Option<HandoffId>) {
    record.fence_epoch = fence;
    // Most shards never have rare fields: allocate them only to record a handoff.
    if handoff.is_some() {
        rare(record);
    }
    if let Some(rare) = &mut record.rare {
        rare.offer = None;
        rare.request = None;
        rare.last_handoff = handoff;
    }
}

fn revoke(record: &mut ShardRecord, fence: FenceEpoch) {
    // The holder does not know of the revocation; the new fence refuses its next operation.
    clear_lease(record);
    bump(record, fence, None);
}

fn park(record: &mut ShardRecord, reason: ParkReason, context: ParkContext<'_>) {
    end(record, ShardStatus::Parked);
    record.park_reason = Some(reason);
    // Most records have no rare part, and a missing text must not create one.
    if !context.as_str().is_empty() {
        rare(record).park_context = Some(context.as_str().into());
    }
}

/// Leaves the terminal status `Parked`, the only terminal status that can be left.
fn unpark(record: &mut ShardRecord, fence: FenceEpoch) {
    record.status = ShardStatus::Active;
    record.park_reason = None;
    if let Some(rare) = &mut record.rare {
        rare.park_context = None;
    }
    // The administrator vouches for the shard: earlier attempts must not park it again.
    record.attempts = 0;
    bump(record, fence, None);
}

/// Moves the shard to a terminal status and clears lease, offer and request.
fn end(record: &mut ShardRecord, status: ShardStatus) {
    record.assert_transition_legal(status);
    // The fence stays: no operation can follow, and a sink still accepts the holder's last writes.
    record.status = status;
    clear_lease(record);
}

fn clear_lease(record: &mut ShardRecord) {
    record.lease = None;
    if let Some(rare) = &mut record.rare {
        rare.offer = None;
        rare.request = None;
    }
}

fn clear_request(record: &mut ShardRecord, drop_request: bool) {
    if drop_request && let Some(rare) = &mut record.rare {
        rare.request = None;
    }
}

fn advance(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    cursor: Option<CursorUpdate<'_>>,
) -> Result<(), SlabFull> {
    match cursor {
        Some(cursor) => record.cursor.update(cursor, &mut pool.bytes),
        None => Ok(()),
    }
}

/// Out of line so that the large list of children stays off the other changes' stack frame.
#[cold]
fn replace(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    children: &Children<'_>,
) -> Result<(), SlabFull> {
    let ids: Vec<ShardId> = children.new_shards().map(|new| new.shard).collect();
    add_spawned(record, pool, &ids)?;
    end(record, ShardStatus::Split);
    Ok(())
}

/// Allocates the new range and the spawned-list entry; if the second fails, frees the first.
fn shrink(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    spec: ShardSpecRef<'_>,
    residual: ShardId,
) -> Result<(), SlabFull> {
    let spec = PooledShardSpec::from_ref(spec, &mut pool.bytes)?;
    if let Err(full) = add_spawned(record, pool, &[residual]) {
        spec.free(&mut pool.bytes);
        return Err(full);
    }
    // Both allocations succeeded: nothing below can fail.
    std::mem::replace(&mut record.spec, spec).free(&mut pool.bytes);
    Ok(())
}

fn add_spawned(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    ids: &[ShardId],
) -> Result<(), SlabFull> {
    match rare(record).spawned.extend(ids, &mut pool.bytes) {
        Ok(()) => Ok(()),
        Err(PooledSpawnedError::Full(full)) => Err(full),
        Err(error) => unreachable!("splits check the cap on spawned shards: {error}"),
    }
}

fn remember(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    sequence: OpSequence,
    entry: OpLogEntry,
) {
    let log = pool.logs.get_mut(&mut record.op_log);
    log.push(entry);
    log.advance_sequence(sequence);
}

fn remember_run(run: &mut RunRecord, entry: RunOpLogEntry) {
    let known = run.op_log.iter().any(|known| known.op_id() == entry.op_id());
    assert!(!known, "an operation is logged once");
    run.op_log.push_back_overwrite(entry);
}

/// Returns the rarely used fields, allocating them on first use.
fn rare(record: &mut ShardRecord) -> &mut Rare {
    record.rare.get_or_insert_with(Box::default)
}
