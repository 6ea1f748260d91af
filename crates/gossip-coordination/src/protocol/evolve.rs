//! Applying a change: the only code that mutates a record.
//!
//! A change was decided; nothing is refused here except for lack of room, and then the record is
//! as it was. What needs room comes before what cannot fail. Every change is guarded on both sides
//! (`guard.rs`) and ends by asserting the record's invariants, so that a broken rule stops before
//! anything is stored.

use gossip_contracts::coordination::{
    CursorUpdate, PooledShardSpec, PooledSpawnedError, ShardSpecRef,
};
use gossip_contracts::identity::{FenceEpoch, ShardId};
use gossip_stdx::SlabFull;

use super::guard::{Before, assert_after, assert_before};
use super::{Children, RunChange, ShardChange};
use crate::handoff::HandoffId;
use crate::lease::{LeaseHolder, OpLogEntry, OpResult};
use crate::pool::RecordPool;
use crate::record::{ParkReason, Rare, ShardRecord, ShardStatus};
use crate::request::{PendingRequest, ShardAction};
use crate::run::{RunOpLogEntry, RunRecord, RunStatus};

/// Applies `change` to `record`, whose bytes live in `pool`. Newborn shards are made apart.
///
/// # Errors
///
/// [`SlabFull`] if the bytes do not fit; the record is then as it was.
///
/// # Panics
///
/// If the result breaks an invariant: a rule is wrong, and nothing must be stored.
// Into its caller, which mostly knows the kind of change: the others then cost nothing.
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

/// The table of changes: what each does to the fields, in the order that lets it fail early.
#[inline(always)]
fn apply(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    change: &ShardChange<'_>,
) -> Result<(), SlabFull> {
    match change {
        ShardChange::Grant { holder, fence, attempts, handoff } => {
            grant(record, *holder, *fence, *attempts, *handoff);
        }
        ShardChange::Renew { holder, drop_request } => renew(record, *holder, *drop_request),
        ShardChange::Advance { cursor, attempts, drop_request, entry } => {
            advance(record, pool, Some(*cursor))?;
            record.attempts = *attempts;
            clear_request(record, *drop_request);
            remember(record, pool, *entry);
        }
        ShardChange::Complete { cursor, entry } => {
            record.cursor.update(*cursor, &mut pool.bytes)?;
            end(record, ShardStatus::Done);
            remember(record, pool, *entry);
        }
        ShardChange::Park { reason, entry } => {
            park(record, *reason);
            entry.iter().for_each(|entry| remember(record, pool, *entry));
        }
        ShardChange::Replace { children, entry } => {
            replace(record, pool, children)?;
            remember(record, pool, *entry);
        }
        ShardChange::Shrink { spec, residual, drop_request, entry } => {
            shrink(record, pool, *spec, residual.shard)?;
            clear_request(record, *drop_request);
            remember(record, pool, *entry);
        }
        ShardChange::Unpark { fence, entry } => {
            unpark(record, *fence);
            remember(record, pool, *entry);
        }
        ShardChange::Release { attempts, entry } => {
            record.attempts = *attempts;
            clear_lease(record);
            remember(record, pool, *entry);
        }
        ShardChange::Offer { offer, cursor, attempts, drop_request, entry } => {
            advance(record, pool, *cursor)?;
            record.attempts = *attempts;
            clear_request(record, *drop_request);
            rare(record).offer = Some(*offer);
            remember(record, pool, *entry);
        }
        ShardChange::Withdraw { handoff: _, drop_request, entry } => {
            clear_request(record, *drop_request);
            rare(record).offer = None;
            remember(record, pool, *entry);
        }
        ShardChange::Request { op_id, payload_hash, action, expires_at } => {
            let action = ShardAction::clone(action);
            let request = PendingRequest::new(*op_id, *payload_hash, action, *expires_at);
            rare(record).request = Some(request);
        }
        ShardChange::Revoke { fence, entry } => {
            revoke(record, *fence);
            remember(record, pool, *entry);
        }
    }
    Ok(())
}

/// Applies `change` to `run`. A created run comes whole, and a deleted one goes whole; neither
/// passes through here.
///
/// # Panics
///
/// If the result breaks an invariant, or `change` makes or deletes the run.
pub fn evolve_run(run: &mut RunRecord, change: &RunChange<'_>) {
    match change {
        RunChange::Activate { registration, roots } => {
            assert!(run.status.may_become(RunStatus::Active), "registration makes a run active");
            assert!(run.root_shards.is_empty(), "a run gets its shards once");
            // What began in chunks is ended under the operation that began it (DESIGN Q16).
            assert!(
                run.registration.is_none_or(|begun| begun == *registration),
                "a registration ends as it began",
            );
            run.status = RunStatus::Active;
            run.registration = Some(*registration);
            run.root_shards = roots.births().map(|birth| birth.shard).collect();
        }
        RunChange::End { status, entry } => {
            assert!(run.status.may_become(*status), "a run ends once, and by a legal way");
            assert!(run.completed_at.is_none(), "a run that goes on has no end");
            assert!(entry.executed_at() >= run.created_at(), "a run ends after it began");
            run.status = *status;
            run.completed_at = Some(entry.executed_at());
            remember_run(run, *entry);
        }
        RunChange::Pause { paused, changed, entry } => {
            assert!(run.status == RunStatus::Active, "only an active run is paused or resumed");
            assert!(*changed == (run.paused != *paused), "observers are told what is new");
            run.paused = *paused;
            remember_run(run, *entry);
        }
        RunChange::Create(_) | RunChange::Delete(_) => {
            unreachable!("runs are made and deleted whole")
        }
    }
    run.assert_invariants();
}

/// A new owner: the fence rises, and whatever was between the last owner and others ends.
#[inline]
fn grant(
    record: &mut ShardRecord,
    holder: LeaseHolder,
    fence: FenceEpoch,
    attempts: u32,
    handoff: Option<HandoffId>,
) {
    bump(record, fence, handoff);
    record.lease = Some(holder);
    record.attempts = attempts;
    record.acquire_count = record.acquire_count.saturating_add(1);
}

#[inline]
fn renew(record: &mut ShardRecord, holder: LeaseHolder, drop_request: bool) {
    record.lease = Some(holder);
    clear_request(record, drop_request);
}

/// Raises the fence. Any bump ends an offer and a request, and remembers the move behind it.
#[inline]
fn bump(record: &mut ShardRecord, fence: FenceEpoch, handoff: Option<HandoffId>) {
    record.fence_epoch = fence;
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
    clear_lease(record);
    bump(record, fence, None);
}

fn park(record: &mut ShardRecord, reason: ParkReason) {
    end(record, ShardStatus::Parked);
    record.park_reason = Some(reason);
}

/// The one way out of a terminal status: a new life without the last one's attempts.
fn unpark(record: &mut ShardRecord, fence: FenceEpoch) {
    record.status = ShardStatus::Active;
    record.park_reason = None;
    record.attempts = 0;
    bump(record, fence, None);
}

/// The shard reaches a terminal status: nobody holds it, offers it or is asked about it.
fn end(record: &mut ShardRecord, status: ShardStatus) {
    record.assert_transition_legal(status);
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

/// Out of line: the list of children is large, and other changes should not make room for it.
#[cold]
fn replace(
    record: &mut ShardRecord,
    pool: &mut RecordPool,
    children: &Children<'_>,
) -> Result<(), SlabFull> {
    let ids: Vec<ShardId> = children.births().map(|birth| birth.shard).collect();
    add_spawned(record, pool, &ids)?;
    end(record, ShardStatus::Split);
    Ok(())
}

/// Two things need room, so the second one's failure undoes the first.
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
        Err(error) => unreachable!("the cap on spawned shards is a rule of splits: {error}"),
    }
}

fn remember(record: &mut ShardRecord, pool: &mut RecordPool, entry: OpLogEntry) {
    assert!(entry.result() == OpResult::Completed, "refusals are not remembered");
    pool.logs.get_mut(&mut record.op_log).push(entry);
}

fn remember_run(run: &mut RunRecord, entry: RunOpLogEntry) {
    let known = run.op_log.iter().any(|known| known.op_id() == entry.op_id());
    assert!(!known, "an operation is remembered once");
    run.op_log.push_back_overwrite(entry);
}

/// The parts that most shards never have, made when one is needed.
fn rare(record: &mut ShardRecord) -> &mut Rare {
    record.rare.get_or_insert_with(Box::default)
}
