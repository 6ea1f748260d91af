//! Preconditions and postconditions of a change.
//!
//! `decide` has just read the record, so a guard fails only if a rule is wrong or if a change is
//! applied to another record than the one it was decided on. Either would store wrong data, so the
//! guards panic before the commit, in every build.
//!
//! Guards never refuse: `decide` rejects bad callers, and the decoder rejects bad stored bytes.

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{FenceEpoch, LogicalTime};

use super::{Children, ShardChange};
use crate::handoff::{HandoffId, Offer};
use crate::lease::{LeaseHolder, OpKind, OpLogEntry, OpSequence};
use crate::pool::RecordPool;
use crate::record::{NewShard, ShardRecord, ShardStatus, ShardView};
use crate::request::PendingRequest;

/// The fields that [`assert_after`] compares, copied before a change.
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

/// Panics unless `change` may be applied to `record`.
#[inline(always)]
pub(super) fn assert_before(record: &ShardRecord, pool: &RecordPool, change: &ShardChange<'_>) {
    match change {
        ShardChange::Grant { holder, fence, handoff, .. } => {
            before_grant(record, *holder, *fence);
            handoff.iter().for_each(|handoff| before_accept(record, *holder, *handoff));
        }
        ShardChange::Confirm { attempts } => {
            assert!(record.lease().is_some(), "a confirmed grant has a holder");
            assert!(
                Some(*attempts) == record.attempts().checked_add(1),
                "a confirmation counts one attempt"
            );
        }
        ShardChange::Renew { holder, .. } => before_renewal(record, *holder),
        ShardChange::Advance { cursor, attempts, entry, .. } => {
            before_work(record, *entry, OpKind::Checkpoint);
            before_cursor(record, pool, *cursor);
            // A checkpoint either makes progress or repeats a position; it never uses an attempt.
            assert!(
                *attempts == 0 || *attempts == record.attempts(),
                "a checkpoint resets or keeps the attempts"
            );
        }
        ShardChange::Complete { cursor, entry, .. } => {
            before_work(record, *entry, OpKind::Complete);
            before_cursor(record, pool, *cursor);
        }
        ShardChange::Park { entry, .. } => before_park(record, entry.as_ref()),
        ShardChange::Replace { children, entry, .. } => {
            before_work(record, *entry, OpKind::SplitReplace);
            before_replacement(record, pool, children);
        }
        ShardChange::Shrink { spec, residual, entry, .. } => {
            before_work(record, *entry, OpKind::SplitResidual);
            before_shrink(record, pool, *spec, residual);
        }
        ShardChange::Unpark { fence, entry } => {
            assert!(record.status() == ShardStatus::Parked, "only a parked shard can be unparked");
            assert!(entry.kind() == OpKind::Unpark, "a log entry has its operation's kind");
            assert!(*fence == record.fence_epoch().increment(), "a fence increases by one");
        }
        ShardChange::Release { attempts, entry, .. } => {
            before_work(record, *entry, OpKind::Release);
            assert!(*attempts <= record.attempts(), "a release does not count as an attempt");
        }
        ShardChange::Offer { offer, cursor, entry, .. } => {
            before_work(record, *entry, OpKind::Offer);
            before_offer(record, pool, offer, *cursor);
        }
        ShardChange::Withdraw { handoff, entry, .. } => {
            before_owned(record, *entry, OpKind::Withdraw);
            let pending = record.offer().map(|offer| offer.handoff);
            assert!(
                pending.is_none_or(|it| it == *handoff),
                "a withdrawal names the pending offer"
            );
        }
        ShardChange::Request { payload_hash, .. } => {
            assert!(record.lease().is_some(), "a request requires a lease holder");
            assert!(*payload_hash != 0, "a payload hash is never zero");
        }
        ShardChange::Revoke { fence, entry } => {
            before_owned(record, *entry, OpKind::RevokeLease);
            assert!(*fence == record.fence_epoch().increment(), "a fence increases by one");
        }
    }
}

/// Panics unless `record` is the result of `change` on a record that was as `before`.
///
/// [`ShardRecord::assert_invariants`] checks what holds for every record; this checks what holds
/// for this step only.
#[inline(always)]
pub(super) fn assert_after(
    before: Before,
    record: &ShardRecord,
    pool: &RecordPool,
    change: &ShardChange<'_>,
) {
    match change {
        ShardChange::Grant { holder, fence, attempts, handoff } => {
            after_bump(before, record);
            assert!(record.fence_epoch() == *fence, "the granted fence is stored");
            assert!(record.lease() == Some(*holder), "the grantee holds the lease");
            assert!(record.acquire_count() > 0, "a grant increments the count");
            assert!(record.attempts() == *attempts, "a grant stores its attempts");
            // The source of a handoff learns from it that its offer was accepted.
            assert!(record.last_handoff() == *handoff, "a grant records the handoff it ends");
            assert!(executed(record, pool) == OpSequence::NONE, "a grant restarts the sequence");
        }
        ShardChange::Renew { holder, .. } => {
            // A new fence would end the holder's own lease.
            assert!(record.fence_epoch() == before.fence, "a renewal is not a grant");
            assert!(record.lease() == Some(*holder), "the renewed lease is stored");
        }
        ShardChange::Advance { .. } => after_step(before, record),
        ShardChange::Confirm { attempts } => {
            after_step(before, record);
            assert!(record.attempts() == *attempts, "a confirmed attempt is stored");
        }
        ShardChange::Withdraw { .. } => {
            after_step(before, record);
            assert!(record.offer().is_none(), "a withdrawal ends the offer");
        }
        ShardChange::Request { op_id, .. } => {
            after_step(before, record);
            let stored = record.request().map(PendingRequest::op_id);
            assert!(stored == Some(*op_id), "the newest request is stored");
        }
        ShardChange::Offer { offer, .. } => {
            after_step(before, record);
            assert!(record.offer() == Some(offer), "the offer is stored");
        }
        ShardChange::Shrink { spec, .. } => after_shrink(before, record, pool, *spec),
        ShardChange::Complete { .. } => {
            after_end(before, record, ShardStatus::Done);
            assert!(record.spawned_count() == before.spawned_count, "completing is not a split");
        }
        ShardChange::Park { reason, .. } => {
            after_end(before, record, ShardStatus::Parked);
            assert!(record.park_reason() == Some(*reason), "the reason is stored");
            assert!(record.spawned_count() == before.spawned_count, "parking is not a split");
        }
        ShardChange::Replace { .. } => {
            after_end(before, record, ShardStatus::Split);
            assert!(record.spawned_count() > before.spawned_count, "a split shard has children");
            record.assert_spawned(pool);
        }
        ShardChange::Release { attempts, .. } => after_release(before, record, *attempts),
        ShardChange::Unpark { .. } => {
            after_revocation(before, record);
            // Otherwise the next acquire would park the shard again.
            assert!(record.attempts() == 0, "an unpark forgets the attempts");
            assert!(record.park_context().is_none(), "an unpark removes the text of the park");
        }
        ShardChange::Revoke { .. } => after_revocation(before, record),
    }
    after_log(record, pool, change);
}

/// The log holds the operation and its sequence.
#[inline(always)]
fn after_log(record: &ShardRecord, pool: &RecordPool, change: &ShardChange<'_>) {
    // The log was just written, so this reads no further cache line.
    let sequence = change.sequence();
    assert!(
        sequence == OpSequence::NONE || sequence == executed(record, pool),
        "the record keeps the highest executed sequence"
    );
    assert!(
        is_newest_entry(record, pool, change.entry()),
        "the newest log entry is this operation's"
    );
}

/// Every grant raises the fence, whatever happened to the previous lease: by one, or to the run's
/// fence floor.
#[inline]
fn before_grant(record: &ShardRecord, holder: LeaseHolder, fence: FenceEpoch) {
    assert!(record.status() == ShardStatus::Active, "only an active shard can be granted");
    assert!(fence > record.fence_epoch(), "a grant raises the fence");
    assert!(holder.deadline() > LogicalTime::ZERO, "a grant has a deadline");
}

/// A grant that ends a handoff is that of the pending offer, to its destination.
fn before_accept(record: &ShardRecord, holder: LeaseHolder, handoff: HandoffId) {
    let offer = record.offer().expect("an accepted shard was offered");
    assert!(offer.handoff == handoff, "an accept names the pending offer");
    assert!(offer.destination == holder.owner(), "the destination receives the lease");
}

/// The parts tile the old range, and the cursor stays in the parent's part.
fn before_shrink(
    record: &ShardRecord,
    pool: &RecordPool,
    spec: ShardSpecRef<'_>,
    residual: &NewShard<'_>,
) {
    let shard = ShardView::new(record, pool);
    let old = shard.spec();
    // The three compares together prove that the parts tile the old range.
    assert!(spec.start == old.start, "the parent keeps the left part");
    assert!(spec.end == residual.spec.start, "the parts are adjacent");
    assert!(residual.spec.end == old.end, "the residual ends where the parent ended");
    // Otherwise keys that are done would be in the residual, and be processed again.
    let done = shard.cursor().last_key();
    assert!(done.is_none_or(|key| key < spec.end), "the cursor stays in the parent's part");
    before_new_shard(record, residual);
}

/// A renewal extends the deadline and changes nothing else of the lease.
#[inline]
fn before_renewal(record: &ShardRecord, renewed: LeaseHolder) {
    let held = record.lease().expect("a renewed shard has a lease");
    assert!(renewed.owner() == held.owner(), "a renewal keeps the lease holder");
    assert!(renewed.token() == held.token(), "a renewal is not a grant");
    // If the reply is lost, the holder continues to rely on the old deadline.
    assert!(renewed.deadline() >= held.deadline(), "a renewal never shortens a lease");
}

/// Checks an operation that does work: the shard has a lease and no offer has frozen it.
#[inline(always)]
fn before_work(record: &ShardRecord, entry: OpLogEntry, kind: OpKind) {
    before_owned(record, entry, kind);
    assert!(record.offer().is_none(), "a pending offer freezes its source");
}

#[inline(always)]
fn before_owned(record: &ShardRecord, entry: OpLogEntry, kind: OpKind) {
    assert!(record.status() == ShardStatus::Active, "only an active shard accepts work");
    assert!(record.lease().is_some(), "only a lease holder can change a shard");
    assert!(entry.kind() == kind, "a log entry has its operation's kind");
}

/// A cursor never moves backwards and never leaves the shard's range.
#[inline(always)]
fn before_cursor(record: &ShardRecord, pool: &RecordPool, cursor: CursorUpdate<'_>) {
    let key = cursor.last_key().expect("a cursor advance has a key");
    // `decide` has checked the caller's cursor; this is the last point before a regression is
    // stored, and a stored regression repeats items without any later error.
    let shard = ShardView::new(record, pool);
    let spec = shard.spec();
    // A stored cursor is in the range, so a key behind it needs no comparison with the start.
    let floor = shard.cursor().last_key().unwrap_or(spec.start);
    assert!(key >= floor, "a cursor never moves backwards and never before the start");
    assert!(spec.end.is_empty() || key < spec.end, "a cursor stays within the range");
}

/// The lease holder parks its shard, or an acquire parks a shard without a live lease. The latter
/// has no operation id; a remaining lease has expired or is void.
fn before_park(record: &ShardRecord, entry: Option<&OpLogEntry>) {
    assert!(record.status() == ShardStatus::Active, "only an active shard can be parked");
    if let Some(entry) = entry {
        before_work(record, *entry, OpKind::Park);
    }
}

/// The children tile their parent's range in order and without a gap. `decide` has validated the
/// caller's plan; this validates the shards derived from it.
#[cold]
fn before_replacement(record: &ShardRecord, pool: &RecordPool, children: &Children<'_>) {
    let parent = ShardView::new(record, pool).spec();
    let mut covered = parent.start;
    for new in children.new_shards() {
        assert!(new.spec.start == covered, "children neither overlap nor leave a gap");
        before_new_shard(record, &new);
        covered = new.spec.end;
    }
    assert!(covered == parent.end, "the last child ends where its parent ends");
}

/// A derived shard starts at its parent's fence, so that a sink can order writes of the two.
fn before_new_shard(parent: &ShardRecord, new: &NewShard<'_>) {
    assert!(new.shard.is_derived(), "a split creates derived ids");
    assert!(new.fence == parent.fence_epoch(), "a child starts at its parent's fence");
    let lineage = new.lineage.expect("a derived shard records its parent");
    assert!(lineage.parent == parent.key().shard(), "a child records the shard that was split");
    assert!(new.shard != parent.key().shard(), "a child is another shard");
    assert!(
        new.cursor_semantics == parent.cursor_semantics(),
        "a child reads cursors as its parent does"
    );
}

fn before_offer(
    record: &ShardRecord,
    pool: &RecordPool,
    offer: &Offer,
    cursor: Option<CursorUpdate<'_>>,
) {
    assert!(record.lease_owner() != Some(offer.destination), "the destination is another worker");
    // Zero is the value of an unset hash, and would match another unset one.
    assert!(offer.payload_hash != 0, "a payload hash is never zero");
    if let Some(cursor) = cursor {
        before_cursor(record, pool, cursor);
    }
}

/// The fence increased, which ends the previous lease's offer and request.
#[inline]
fn after_bump(before: Before, record: &ShardRecord) {
    assert!(record.fence_epoch() > before.fence, "a fence increases");
    assert!(record.status() == ShardStatus::Active, "a shard with a new fence is active");
    assert!(record.offer().is_none(), "a new fence clears the offer");
    assert!(record.request().is_none(), "a new fence clears the request");
    assert!(record.spawned_count() == before.spawned_count, "a new fence creates no shards");
}

/// An administrator's change ends the lease with a new fence and grants none.
fn after_revocation(before: Before, record: &ShardRecord) {
    after_bump(before, record);
    assert!(record.fence_epoch() == before.fence.increment(), "a fence increases by one");
    assert!(record.lease().is_none(), "an unpark or a revocation grants no lease");
    assert!(record.acquire_count() == before.acquire_count, "a revocation is not a grant");
}

fn after_release(before: Before, record: &ShardRecord, attempts: u32) {
    // The released holder is refused because there is no lease, not by the fence.
    assert!(record.fence_epoch() == before.fence, "the next grant raises the fence");
    assert!(record.lease().is_none(), "a released shard has no lease");
    assert!(record.status() == ShardStatus::Active, "a released shard can be claimed");
    assert!(record.attempts() == attempts, "a release stores its attempts");
    assert!(record.request().is_none(), "a request ends with its lease");
}

fn after_shrink(before: Before, record: &ShardRecord, pool: &RecordPool, spec: ShardSpecRef<'_>) {
    assert!(record.fence_epoch() == before.fence, "a residual split keeps the fence");
    assert!(record.lease() == before.lease, "the parent keeps its lease");
    assert!(record.spawned_count() == before.spawned_count + 1, "a split creates one residual");
    assert!(record.status() == ShardStatus::Active, "the parent keeps working");
    assert!(ShardView::new(record, pool).spec() == spec, "the parent's new range is stored");
    record.assert_spawned(pool);
}

/// A step of the lease holder keeps the fence, the lease and the children.
#[inline]
fn after_step(before: Before, record: &ShardRecord) {
    assert!(record.fence_epoch() == before.fence, "a step keeps the fence");
    assert!(record.lease() == before.lease, "a step keeps the lease");
    assert!(record.acquire_count() == before.acquire_count, "a step is not a grant");
    assert!(record.spawned_count() == before.spawned_count, "a step creates no shards");
}

fn after_end(before: Before, record: &ShardRecord, status: ShardStatus) {
    assert!(record.status() == status, "the shard has the decided status");
    // The last writes of the holder may still be in flight to a sink that compares fences.
    assert!(record.fence_epoch() == before.fence, "a terminal change keeps the fence");
    assert!(record.lease().is_none(), "a terminal shard has no lease");
    assert!(record.offer().is_none(), "a terminal shard has no offer");
}

/// Returns the highest sequence executed under the current lease.
#[inline]
fn executed(record: &ShardRecord, pool: &RecordPool) -> OpSequence {
    ShardView::new(record, pool).op_log().sequence()
}

/// Returns whether `entry`, if any, is the newest entry of the log.
fn is_newest_entry(record: &ShardRecord, pool: &RecordPool, entry: Option<&OpLogEntry>) -> bool {
    let newest = || ShardView::new(record, pool).op_log().newest();
    entry.is_none_or(|entry| newest() == Some(entry))
}
