//! Every invariant of a record stops what breaks it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, MAX_SPAWNED_PER_SHARD, PooledSpawned, ShardSpecRef,
};
use gossip_contracts::identity::ShardId;
use rstest::rstest;

use crate::record::Rare;
use crate::request::PendingRequest;
use crate::test_fixtures::{RUN, TENANT, at, fence, op, worker};
use crate::{
    GrantToken, HandoffId, LeaseHolder, Lineage, NewShard, Offer, OpKind, OpLogEntry, ParkReason,
    RecordPool, ShardAction, ShardRecord, ShardStatus, ShardView,
};

const CHILD: ShardId = ShardId::from_raw(ShardId::DERIVED_BIT | 1);
const LINEAGE: Lineage = Lineage { parent: ShardId::from_raw(9), split_hash: 7 };

fn birth(shard: ShardId, lineage: Option<Lineage>) -> NewShard<'static> {
    NewShard {
        shard,
        spec: ShardSpecRef::new(b"a", b"m", b"meta"),
        cursor: CursorUpdate::new(b"c", b"t"),
        fence: fence(3),
        attempts: 2,
        cursor_semantics: CursorSemantics::Completed,
        lineage,
    }
}

/// A healthy root.
fn root() -> (ShardRecord, RecordPool) {
    let mut pool = RecordPool::new(1 << 16);
    let birth = birth(ShardId::from_raw(1), None);
    let record = ShardRecord::new(Arc::new(TENANT), RUN, &birth, &mut pool).unwrap();
    (record, pool)
}

fn holder() -> LeaseHolder {
    LeaseHolder::new(worker(5), at(9), GrantToken::from_raw(1))
}

fn request() -> PendingRequest {
    PendingRequest::new(op(1), 7, ShardAction::Release, at(9))
}

fn offer() -> Offer {
    let handoff = HandoffId::from_raw(1);
    Offer { handoff, destination: worker(6), deadline: at(9), payload_hash: 7 }
}

/// Breaks a healthy root with `damage` and says what the record says about it.
fn broken(damage: impl FnOnce(&mut ShardRecord, &mut RecordPool)) -> String {
    let (mut record, mut pool) = root();
    record.assert_invariants(&pool);
    damage(&mut record, &mut pool);
    let said = panic_of(|| record.assert_invariants(&pool));
    pool.bytes.clear();
    said
}

/// What `call` panics with.
fn panic_of(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the damage is noticed");
    panic.downcast_ref::<String>().expect("a panic says why").clone()
}

fn rare(record: &mut ShardRecord) -> &mut Rare {
    record.rare.get_or_insert_with(Box::default)
}

#[track_caller]
fn assert_breaks(number: &str, damage: impl FnOnce(&mut ShardRecord, &mut RecordPool)) {
    let said = broken(damage);
    assert!(said.starts_with(&format!("{number}:")), "{said}");
}

#[test]
fn inv_1_a_reason_exactly_when_parked() {
    assert_breaks("INV-1", |record, _| record.park_reason = Some(ParkReason::Other));
    assert_breaks("INV-1", |record, _| record.status = ShardStatus::Parked);
}

#[rstest]
#[case(ShardStatus::Done)]
#[case(ShardStatus::Split)]
#[case(ShardStatus::Parked)]
fn inv_3_a_terminal_shard_holds_no_lease(#[case] status: ShardStatus) {
    assert_breaks("INV-3", |record, _| {
        record.status = status;
        record.park_reason = (status == ShardStatus::Parked).then_some(ParkReason::Other);
        record.lease = Some(holder());
    });
}

#[test]
fn inv_4_a_real_fence() {
    assert_breaks("INV-4", |record, _| record.fence_epoch = fence(0));
}

/// INV-5, a log of at most [`OP_LOG_CAP`](crate::OP_LOG_CAP), is the ring buffer's own.
#[test]
fn inv_5_a_log_never_outgrows_its_bound() {
    let (mut record, mut pool) = root();
    for number in 0..40 {
        let entry = OpLogEntry::new(op(number), OpKind::Checkpoint, 7, at(number + 1));
        pool.logs.get_mut(&mut record.op_log).push(entry);
    }
    record.assert_invariants(&pool);
    assert_eq!(ShardView::new(&record, &pool).op_log().len(), crate::OP_LOG_CAP);
    record.free(&mut pool);
}

#[test]
fn inv_6_a_split_shard_has_children() {
    assert_breaks("INV-6", |record, _| record.status = ShardStatus::Split);
    assert_breaks("INV-6", |record, _| {
        record.status = ShardStatus::Split;
        rare(record);
    });
}

#[test]
fn inv_7_a_parent_exactly_when_derived() {
    assert_breaks("INV-7", |record, _| rare(record).lineage = Some(LINEAGE));
    let mut pool = RecordPool::new(1 << 16);
    let orphan = birth(CHILD, None);
    let said = panic_of(|| {
        let _ = ShardRecord::new(Arc::new(TENANT), RUN, &orphan, &mut pool);
    });
    assert_eq!(said, "INV-7: a parent exactly when derived");
    pool.bytes.clear();
}

#[test]
fn inv_8_spawned_shards_are_derived() {
    assert_breaks("INV-8", |record, pool| {
        rare(record).spawned = spawned(&[CHILD, ShardId::from_raw(2)], pool);
    });
}

/// Remembers operations that the log itself would refuse.
fn remember(record: &mut ShardRecord, pool: &mut RecordPool, entries: [(u64, u64); 3]) {
    for (number, ticks) in entries {
        let entry = OpLogEntry::new(op(number), OpKind::Checkpoint, 7, at(ticks));
        pool.logs.get_mut(&mut record.op_log).push_unchecked(entry);
    }
}

#[test]
fn inv_9_operation_ids_are_unique() {
    assert_breaks("INV-9", |record, pool| remember(record, pool, [(1, 1), (2, 2), (1, 3)]));
}

#[test]
fn inv_13_times_in_the_log_never_fall() {
    assert_breaks("INV-13", |record, pool| remember(record, pool, [(1, 5), (2, 6), (3, 4)]));
}

/// INV-10 is the list's own.
#[test]
fn inv_10_spawned_is_bounded() {
    let (mut record, mut pool) = root();
    let ids: Vec<_> = (0..=MAX_SPAWNED_PER_SHARD as u64)
        .map(|number| ShardId::from_raw(ShardId::DERIVED_BIT | number))
        .collect();
    rare(&mut record).spawned = spawned(&ids[..MAX_SPAWNED_PER_SHARD], &mut pool);
    record.assert_invariants(&pool);
    let one_more = rare(&mut record).spawned.extend(&ids[MAX_SPAWNED_PER_SHARD..], &mut pool.bytes);
    assert!(one_more.is_err());
    assert_eq!(record.spawned_count(), MAX_SPAWNED_PER_SHARD);
    record.free(&mut pool);
}

#[test]
fn inv_11_an_offer_needs_a_lease() {
    assert_breaks("INV-11", |record, _| rare(record).offer = Some(offer()));
}

#[test]
fn inv_12_a_request_needs_a_lease() {
    assert_breaks("INV-12", |record, _| rare(record).request = Some(request()));
}

#[test]
fn what_a_held_shard_may_have_breaks_nothing() {
    let (mut record, mut pool) = root();
    record.lease = Some(holder());
    let extras = rare(&mut record);
    extras.offer = Some(offer());
    extras.request = Some(request());
    record.assert_invariants(&pool);
    record.free(&mut pool);
}

fn spawned(ids: &[ShardId], pool: &mut RecordPool) -> PooledSpawned {
    let mut spawned = PooledSpawned::empty();
    spawned.extend(ids, &mut pool.bytes).unwrap();
    spawned
}

#[test]
fn a_newborn_is_active_and_free() {
    let mut pool = RecordPool::new(1 << 16);
    let birth = birth(CHILD, Some(LINEAGE));
    let record = ShardRecord::new(Arc::new(TENANT), RUN, &birth, &mut pool).unwrap();
    assert_eq!((record.status(), record.lease()), (ShardStatus::Active, None));
    assert_eq!((record.fence_epoch(), record.attempts()), (fence(3), 2));
    assert_eq!((record.acquire_count(), record.spawned_count()), (0, 0));
    assert_eq!((record.parent(), record.lineage()), (Some(LINEAGE.parent), Some(LINEAGE)));
    assert_eq!((record.offer(), record.request(), record.last_handoff()), (None, None, None));
    let view = ShardView::new(&record, &pool);
    assert_eq!((view.spec(), view.cursor()), (birth.spec, birth.cursor));
    assert_eq!((view.op_log().len(), view.spawned().count()), (0, 0));
    record.free(&mut pool);
    assert_eq!(pool.bytes().live_slots(), 0);
}

#[test]
fn a_newborn_that_does_not_fit_leaves_nothing_behind() {
    // Room for the spec, but not for the cursor behind it.
    let birth = NewShard {
        cursor: CursorUpdate::new(&[b'c'; 200], &[1; 200]),
        ..birth(CHILD, Some(LINEAGE))
    };
    for capacity in [0, 16, 64, 256] {
        let mut pool = RecordPool::new(capacity);
        assert!(ShardRecord::new(Arc::new(TENANT), RUN, &birth, &mut pool).is_err());
        assert_eq!(pool.bytes().live_slots(), 0, "with {capacity} bytes");
    }
}

#[test]
fn a_lease_is_live_before_its_deadline_and_not_at_it() {
    let (mut record, mut pool) = root();
    assert!(!record.is_leased_at(at(1)));
    record.lease = Some(holder());
    assert_eq!((record.lease_owner(), record.lease_deadline()), (Some(worker(5)), Some(at(9))));
    assert!(record.is_leased_at(at(8)));
    assert!(!record.is_leased_at(at(9)));
    record.free(&mut pool);
}

#[test]
fn terminal_states_have_no_way_out() {
    for from in ShardStatus::ALL {
        for to in ShardStatus::ALL {
            let (mut record, mut pool) = root();
            record.status = from;
            let check = AssertUnwindSafe(|| record.assert_transition_legal(to));
            let legal = catch_unwind(check).is_ok();
            assert_eq!(legal, from == ShardStatus::Active || from == to, "{from:?} to {to:?}");
            record.free(&mut pool);
        }
    }
}

#[test]
fn statuses_and_reasons_come_back_by_their_numbers() {
    for (number, status) in (0_u8..).zip(ShardStatus::ALL) {
        assert_eq!((status as u8, ShardStatus::from_u8(number)), (number, Some(status)));
        assert_eq!(status.is_terminal(), number != 0);
    }
    assert_eq!(ShardStatus::from_u8(4), None);
    for (number, reason) in (0_u8..).zip(ParkReason::ALL) {
        assert_eq!((reason as u8, ParkReason::from_u8(number)), (number, Some(reason)));
    }
    assert_eq!(ParkReason::from_u8(5), None);
}
