//! Side records: failures and results that are stored in the commit they describe.

use gossip_contracts::coordination::CursorUpdate;
use gossip_coordination::{
    CheckpointError, CoordinationBackend, ExitCause, FailureKind, FailureRecord, ParkContext,
    ParkReason, ResultBlock, RunManagement, SideRecord, SideRecordId, SideRecordKind, SideRecords,
};

use super::world::{OTHER_RUN, STRANGER, World, at, key, op};
use super::{ConformanceTarget, refused, topic};

topic!("side_records":
    records_are_stored_with_the_operation,
    records_whose_reply_was_lost_are_stored_once,
    a_replay_stores_no_records,
    a_refused_operation_stores_no_records,
    a_superseded_lease_holder_stores_no_records,
    an_item_that_fails_again_has_one_record,
    records_are_listed_in_pages,
    records_belong_to_one_tenant_and_run,
    a_deleted_run_has_no_records,
);

fn failure(item: &[u8]) -> SideRecord {
    SideRecord::Failure(FailureRecord {
        key: item.into(),
        place: "list.txt:2".into(),
        kind: FailureKind::Failed,
        exit: Some(ExitCause::Signal(9)),
        tries: 3,
        at: at(11),
        host: "host".into(),
        pid: 7,
        message: "killed".into(),
        stderr: b"\xff".as_slice().into(),
    })
}

fn results(number: u64) -> SideRecord {
    SideRecord::Results(ResultBlock { number, content: number.to_be_bytes().as_slice().into() })
}

fn limited(records: &[SideRecord]) -> SideRecords<'_> {
    SideRecords::try_new(records).expect("few and short records")
}

/// Returns all records of one kind.
fn listed<T: ConformanceTarget>(
    world: &mut World<'_, T>,
    kind: SideRecordKind,
) -> Vec<(SideRecordId, SideRecord)> {
    let (tenant, run, mut all) = (world.tenant, world.run, Vec::new());
    loop {
        let (after, mut page) = (all.last().map(|(id, _)| *id), Vec::new());
        let next = world.backend.list_side_records_into(tenant, run, kind, after, 9, &mut page);
        next.expect("the store is there");
        if page.is_empty() {
            return all;
        }
        all.extend(page.into_iter().map(|it| (it.id, it.record)));
    }
}

fn failures<T: ConformanceTarget>(world: &mut World<'_, T>) -> Vec<SideRecord> {
    listed(world, SideRecordKind::Failure).into_iter().map(|(_, record)| record).collect()
}

fn blocks<T: ConformanceTarget>(world: &mut World<'_, T>) -> Vec<SideRecord> {
    listed(world, SideRecordKind::Results).into_iter().map(|(_, record)| record).collect()
}

/// Checkpoint, complete and park.
pub fn records_are_stored_with_the_operation<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (tenant, cursor) = (world.tenant, CursorUpdate::with_last_key(b"c"));
    let records = [failure(b"b"), results(1)];
    let stored = world.backend.checkpoint_with_records(
        at(11),
        tenant,
        &held.lease,
        cursor,
        limited(&records),
        op(1),
    );
    stored.expect("live");
    let more = [results(2)];
    let ended = world.backend.complete_with_records(
        at(12),
        tenant,
        &held.lease,
        cursor,
        limited(&more),
        op(2),
    );
    ended.expect("live");
    let other = world.acquire(13, key(1), 1);
    let last = [failure(b"n"), results(0)];
    let why = (ParkReason::Poisoned, ParkContext::new("exit status 1"));
    let parked = world.backend.park_shard_with_records(
        at(14),
        tenant,
        &other.lease,
        why,
        limited(&last),
        op(3),
    );
    parked.expect("live");
    assert_eq!(failures(&mut world), [failure(b"b"), failure(b"n")]);
    let blocks = listed(&mut world, SideRecordKind::Results);
    let ids = blocks.iter().map(|(id, _)| (id.shard(world.run), id.number));
    assert_eq!(ids.collect::<Vec<_>>(), [(key(0), 1), (key(0), 2), (key(1), 0)]);
}

/// The retry carries the same records.
pub fn records_whose_reply_was_lost_are_stored_once<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (tenant, cursor) = (world.tenant, CursorUpdate::with_last_key(b"c"));
    let records = [failure(b"b"), results(1)];
    world.lose_reply();
    for time in [11, 12] {
        let _ = world.backend.checkpoint_with_records(
            at(time),
            tenant,
            &held.lease,
            cursor,
            limited(&records),
            op(1),
        );
    }
    assert_eq!(failures(&mut world), [failure(b"b")]);
    assert_eq!(blocks(&mut world), [results(1)]);
}

/// The records are no parameter of the operation.
pub fn a_replay_stores_no_records<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    let (tenant, cursor) = (world.tenant, CursorUpdate::with_last_key(b"c"));
    let records = [failure(b"b")];
    let again = world.backend.checkpoint_with_records(
        at(12),
        tenant,
        &held.lease,
        cursor,
        limited(&records),
        op(1),
    );
    assert!(again.expect("known").is_replay());
    assert_eq!(failures(&mut world), []);
}

/// A cursor outside the range.
pub fn a_refused_operation_stores_no_records<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (tenant, cursor) = (world.tenant, CursorUpdate::with_last_key(b"x"));
    let records = [failure(b"b"), results(1)];
    let refused = world.backend.checkpoint_with_records(
        at(11),
        tenant,
        &held.lease,
        cursor,
        limited(&records),
        op(1),
    );
    refused!(refused, CheckpointError::CursorOutOfBounds(_));
    assert_eq!(failures(&mut world), []);
    assert_eq!(blocks(&mut world), []);
}

/// The fence protects the records as it protects the cursor.
pub fn a_superseded_lease_holder_stores_no_records<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let old = world.acquire(10, key(0), 1);
    let new = world.acquire(900, key(0), 2);
    let (tenant, cursor) = (world.tenant, CursorUpdate::with_last_key(b"c"));
    let (stale, fresh) = ([failure(b"b"), results(1)], [results(7)]);
    let refused = world.backend.checkpoint_with_records(
        at(901),
        tenant,
        &old.lease,
        cursor,
        limited(&stale),
        op(1),
    );
    refused!(refused, CheckpointError::StaleFence { .. });
    let stored = world.backend.checkpoint_with_records(
        at(902),
        tenant,
        &new.lease,
        cursor,
        limited(&fresh),
        op(2),
    );
    stored.expect("live");
    assert_eq!(failures(&mut world), []);
    assert_eq!(blocks(&mut world), [results(7)]);
}

/// The record is replaced.
pub fn an_item_that_fails_again_has_one_record<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    for round in 0..2 {
        let held = world.acquire(10 + 10 * round, key(0), 1);
        let (tenant, records) = (world.tenant, [failure(b"b")]);
        let why = (ParkReason::Poisoned, ParkContext::NONE);
        let parked = world.backend.park_shard_with_records(
            at(11 + 10 * round),
            tenant,
            &held.lease,
            why,
            limited(&records),
            op(1 + round),
        );
        parked.expect("live");
        let unparked =
            world.backend.unpark_shard(at(12 + 10 * round), tenant, key(0), op(9 + round));
        unparked.expect("parked");
    }
    assert_eq!(failures(&mut world), [failure(b"b")]);
}

/// A page begins behind the last record of the one before.
pub fn records_are_listed_in_pages<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let records: Vec<_> = (1..=5).map(results).collect();
    let (tenant, run, cursor) = (world.tenant, world.run, CursorUpdate::with_last_key(b"c"));
    let stored = world.backend.checkpoint_with_records(
        at(11),
        tenant,
        &held.lease,
        cursor,
        limited(&records),
        op(1),
    );
    stored.expect("live");
    let mut page = Vec::new();
    let kind = SideRecordKind::Results;
    for after in [None, Some(2), Some(4), Some(5), Some(u64::MAX)] {
        page.clear();
        let after = after.map(|number| SideRecordId { group: 0, number });
        let listed = world.backend.list_side_records_into(tenant, run, kind, after, 2, &mut page);
        listed.expect("the store is there");
        let first = after.map_or(1, |after| after.number.saturating_add(1));
        let numbers: Vec<u64> = page.iter().map(|it| it.id.number).collect();
        assert_eq!(numbers, (first..=5).take(2).collect::<Vec<_>>());
    }
}

/// Another tenant and another run have none.
pub fn records_belong_to_one_tenant_and_run<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (tenant, cursor) = (world.tenant, CursorUpdate::with_last_key(b"c"));
    let records = [failure(b"b")];
    let stored = world.backend.checkpoint_with_records(
        at(11),
        tenant,
        &held.lease,
        cursor,
        limited(&records),
        op(1),
    );
    stored.expect("live");
    world.run = OTHER_RUN;
    assert_eq!(failures(&mut world), []);
    (world.run, world.tenant) = (super::world::RUN, STRANGER);
    assert_eq!(failures(&mut world), []);
}

/// They are removed with the run.
pub fn a_deleted_run_has_no_records<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (tenant, run, cursor) = (world.tenant, world.run, CursorUpdate::with_last_key(b"c"));
    let records = [failure(b"b"), results(1)];
    let ended = world.backend.complete_with_records(
        at(11),
        tenant,
        &held.lease,
        cursor,
        limited(&records),
        op(1),
    );
    ended.expect("live");
    world.backend.cancel_run(at(12), tenant, run, op(2)).expect("active");
    assert_eq!(failures(&mut world), [failure(b"b")], "the end of a run keeps them");
    world.backend.delete_run(at(13), tenant, run, op(3)).expect("over");
    assert_eq!(failures(&mut world), []);
    assert_eq!(blocks(&mut world), []);
}
