//! What a change takes for granted, and what it leaves behind.
//!
//! `decide` has just looked at the record, so nothing here fails unless a rule is wrong, or a
//! change meets another record than the one it was decided about. Either would store a lie, and
//! stops here instead: before the commit, in every build.
//!
//! Guards never refuse. Whatever can be wrong with a *caller* was refused by `decide`; whatever
//! can be wrong with *stored bytes* was refused when they were decoded. What would read keys or
//! the log on the path of every checkpoint is left to debug builds.

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{FenceEpoch, LogicalTime};

use super::{Children, ShardChange};
use crate::handoff::Offer;
use crate::lease::{LeaseHolder, OpKind, OpLogEntry};
use crate::pool::RecordPool;
use crate::record::{NewShard, ShardRecord, ShardStatus, ShardView};

/// The fields that [`assert_after`] compares with, copied before a change.
#[derive(Clone, Copy)]
pub(super) struct Before {
    fence: FenceEpoch,
    lease: Option<LeaseHolder>,
    acquire_count: u32,
    spawned_count: usize,
}

impl Before {
    #[inline(always)]
    pub(super) fn of(record: &ShardRecord) -> Self {
        Self {
            fence: record.fence_epoch(),
            lease: record.lease(),
            acquire_count: record.acquire_count(),
            spawned_count: record.spawned_count(),
        }
    }
}

/// Panics unless `change` fits the record that it is about to change.
#[inline(always)]
pub(super) fn assert_before(record: &ShardRecord, pool: &RecordPool, change: &ShardChange<'_>) {
    match change {
        ShardChange::Grant { holder, fence, .. } => before_grant(record, *holder, *fence),
        ShardChange::Renew { holder, .. } => before_renewal(record, *holder),
        ShardChange::Advance { cursor, attempts, entry, .. } => {
            before_work(record, *entry, OpKind::Checkpoint);
            before_cursor(record, pool, *cursor);
            // A checkpoint is progress or none; it never uses an attempt up.
            assert!(
                *attempts == 0 || *attempts == record.attempts(),
                "attempts start anew or stay"
            );
        }
        ShardChange::Complete { cursor, entry } => {
            before_work(record, *entry, OpKind::Complete);
            before_cursor(record, pool, *cursor);
        }
        ShardChange::Park { entry, .. } => before_park(record, entry.as_ref()),
        ShardChange::Replace { children, entry } => {
            before_work(record, *entry, OpKind::SplitReplace);
            before_replacement(record, pool, children);
        }
        ShardChange::Shrink { spec, residual, entry, .. } => {
            before_work(record, *entry, OpKind::SplitResidual);
            let old = ShardView::new(record, pool).spec();
            assert!(spec.start == old.start, "a parent keeps the left part");
            assert!(spec.end == residual.spec.start, "the parts of a range meet");
            assert!(residual.spec.end == old.end, "the residual keeps the end");
            before_birth(record, residual);
        }
        ShardChange::Unpark { fence, entry } => {
            assert!(record.status() == ShardStatus::Parked, "only a parked shard is unparked");
            assert!(entry.kind() == OpKind::Unpark, "an operation is remembered as what it was");
            assert!(*fence == record.fence_epoch().increment(), "a fence rises by one");
        }
        ShardChange::Release { attempts, entry } => {
            before_work(record, *entry, OpKind::Release);
            assert!(*attempts <= record.attempts(), "giving a shard back is no attempt");
        }
        ShardChange::Offer { offer, cursor, entry, .. } => {
            before_work(record, *entry, OpKind::Offer);
            before_offer(record, pool, offer, *cursor);
        }
        ShardChange::Withdraw { handoff, entry, .. } => {
            before_owned(record, *entry, OpKind::Withdraw);
            let standing = record.offer().map(|offer| offer.handoff);
            assert!(standing.is_none_or(|it| it == *handoff), "an offer is taken back by its name");
        }
        ShardChange::Request { payload_hash, .. } => {
            assert!(record.lease().is_some(), "an owner is asked, and nobody else");
            assert!(*payload_hash != 0, "a payload hash of zero means that hashing is broken");
        }
        ShardChange::Revoke { fence, entry } => {
            before_owned(record, *entry, OpKind::RevokeLease);
            assert!(*fence == record.fence_epoch().increment(), "a fence rises by one");
        }
    }
}

/// Panics unless the record is what `change` makes of one that was as `before`.
///
/// The record's own invariants are asserted apart ([`ShardRecord::assert_invariants`]): they hold
/// of every record, and these of this step alone.
#[inline(always)]
pub(super) fn assert_after(
    before: Before,
    record: &ShardRecord,
    pool: &RecordPool,
    change: &ShardChange<'_>,
) {
    match change {
        ShardChange::Grant { holder, .. } => {
            after_bump(before, record);
            assert!(record.lease() == Some(*holder), "whoever was granted the shard holds it");
            assert!(record.acquire_count() > 0, "a grant is counted");
        }
        ShardChange::Renew { holder, .. } => {
            assert!(record.fence_epoch() == before.fence, "a renewal is no grant");
            assert!(record.lease() == Some(*holder), "a renewed lease is the renewed one");
        }
        ShardChange::Advance { .. }
        | ShardChange::Withdraw { .. }
        | ShardChange::Request { .. } => {
            after_step(before, record);
        }
        ShardChange::Offer { offer, .. } => {
            after_step(before, record);
            assert!(record.offer() == Some(offer), "an offer stands once it is made");
        }
        ShardChange::Shrink { .. } => {
            assert!(record.fence_epoch() == before.fence, "a cut changes no owner");
            assert!(record.lease() == before.lease, "the parent keeps its lease");
            assert!(record.spawned_count() == before.spawned_count + 1, "one residual is born");
        }
        ShardChange::Complete { .. } => after_end(before, record, ShardStatus::Done),
        ShardChange::Park { .. } => after_end(before, record, ShardStatus::Parked),
        ShardChange::Replace { .. } => {
            after_end(before, record, ShardStatus::Split);
            assert!(record.spawned_count() > before.spawned_count, "a split shard has children");
        }
        ShardChange::Release { .. } => {
            assert!(record.fence_epoch() == before.fence, "the next grant raises the fence");
            assert!(record.lease().is_none(), "a shard that was given back is free");
        }
        ShardChange::Unpark { .. } | ShardChange::Revoke { .. } => {
            after_bump(before, record);
            assert!(record.lease().is_none(), "an administrator grants nothing");
        }
    }
    debug_assert!(remembers(record, pool, change.entry()), "what happened is remembered last");
}

/// Every grant raises the fence by one, whoever held the shard before and however that ended.
#[inline]
fn before_grant(record: &ShardRecord, holder: LeaseHolder, fence: FenceEpoch) {
    assert!(record.status() == ShardStatus::Active, "only an active shard is granted");
    assert!(fence == record.fence_epoch().increment(), "a fence rises by one");
    assert!(holder.deadline() > LogicalTime::ZERO, "a grant ends at a real time");
}

/// A renewal moves a deadline forward and touches nothing else of a lease.
#[inline]
fn before_renewal(record: &ShardRecord, renewed: LeaseHolder) {
    let held = record.lease().expect("a lease that is renewed is held");
    assert!(renewed.owner() == held.owner(), "a renewal changes no owner");
    assert!(renewed.token() == held.token(), "a renewal is no grant");
    assert!(renewed.deadline() >= held.deadline(), "a renewal never shortens a lease");
}

/// Work under a lease: somebody holds it, and no offer has frozen it.
#[inline(always)]
fn before_work(record: &ShardRecord, entry: OpLogEntry, kind: OpKind) {
    before_owned(record, entry, kind);
    assert!(record.offer().is_none(), "an offer freezes its source");
}

#[inline(always)]
fn before_owned(record: &ShardRecord, entry: OpLogEntry, kind: OpKind) {
    assert!(record.status() == ShardStatus::Active, "only an active shard is worked on");
    assert!(record.lease().is_some(), "only the holder of a lease works");
    assert!(entry.kind() == kind, "an operation is remembered as what it was");
}

/// Progress never falls, and never leaves the range.
#[inline(always)]
fn before_cursor(record: &ShardRecord, pool: &RecordPool, cursor: CursorUpdate<'_>) {
    debug_assert!(cursor.last_key().is_some(), "progress has a position");
    let shard = ShardView::new(record, pool);
    debug_assert!(cursor.last_key() >= shard.cursor().last_key(), "progress never falls");
    debug_assert!(
        cursor.last_key().is_none_or(|key| shard.spec().contains_key(key)),
        "progress stays within the range",
    );
}

/// An owner parks what it holds; an acquire parks what nobody holds any more. The second has no
/// operation id, and its lease, if one is left, has run out.
fn before_park(record: &ShardRecord, entry: Option<&OpLogEntry>) {
    assert!(record.status() == ShardStatus::Active, "only an active shard is parked");
    if let Some(entry) = entry {
        before_work(record, *entry, OpKind::Park);
    }
}

/// The children tile their parent's range, in order and without a gap. `decide` has checked the
/// caller's plan; this looks at what is about to be made of it.
#[cold]
fn before_replacement(record: &ShardRecord, pool: &RecordPool, children: &Children<'_>) {
    let parent = ShardView::new(record, pool).spec();
    let mut covered = parent.start;
    for birth in children.births() {
        assert!(birth.spec.start == covered, "children leave no gap and do not overlap");
        before_birth(record, &birth);
        covered = birth.spec.end;
    }
    assert!(covered == parent.end, "children cover their parent to its end");
}

/// A derived shard starts at its parent's fence, so that a sink can order the two.
fn before_birth(parent: &ShardRecord, birth: &NewShard<'_>) {
    assert!(birth.shard.is_derived(), "a shard that is cut off has a derived id");
    assert!(birth.fence == parent.fence_epoch(), "a child starts at its parent's fence");
    let lineage = birth.lineage.expect("a derived shard knows its parent");
    assert!(lineage.parent == parent.key().shard(), "a child's parent is the one that was cut");
}

fn before_offer(
    record: &ShardRecord,
    pool: &RecordPool,
    offer: &Offer,
    cursor: Option<CursorUpdate<'_>>,
) {
    assert!(record.lease_owner() != Some(offer.destination), "nobody offers to themselves");
    assert!(offer.payload_hash != 0, "a payload hash of zero means that hashing is broken");
    if let Some(cursor) = cursor {
        before_cursor(record, pool, cursor);
    }
}

/// The fence rose by one, and with it ended whatever the last owner had going.
#[inline]
fn after_bump(before: Before, record: &ShardRecord) {
    assert!(record.fence_epoch() == before.fence.increment(), "a fence rises by one");
    assert!(record.status() == ShardStatus::Active, "a shard with a new fence is there for work");
    assert!(record.offer().is_none(), "an offer ends with its fence");
    assert!(record.request().is_none(), "a request ends with its fence");
}

/// A step of the owner: same fence, same lease, same children.
#[inline]
fn after_step(before: Before, record: &ShardRecord) {
    assert!(record.fence_epoch() == before.fence, "a step changes no fence");
    assert!(record.lease() == before.lease, "a step changes no lease");
    assert!(record.acquire_count() == before.acquire_count, "a step is no grant");
    assert!(record.spawned_count() == before.spawned_count, "a step makes no shards");
}

fn after_end(before: Before, record: &ShardRecord, status: ShardStatus) {
    assert!(record.status() == status, "a shard ends as it was decided");
    assert!(record.fence_epoch() == before.fence, "an end changes no fence");
    assert!(record.lease().is_none(), "nobody holds what has ended");
    assert!(record.offer().is_none(), "nobody is offered what has ended");
}

/// Whether the newest entry of the log is the change's own, if it has one.
fn remembers(record: &ShardRecord, pool: &RecordPool, entry: Option<&OpLogEntry>) -> bool {
    let newest = || ShardView::new(record, pool).op_log().iter().last().copied();
    entry.is_none_or(|entry| newest() == Some(*entry))
}
