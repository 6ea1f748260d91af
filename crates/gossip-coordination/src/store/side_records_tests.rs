//! Side records on the model store: the commit that writes them, lost replies, limits, and
//! their removal.

use gossip_contracts::coordination::CursorUpdate;

use super::test_support::{overwrite, stored};
use super::{Fault, Key, KeyKind, MapStore, StoreConfig, StoreCoordinator};
use crate::side_records::{FAILURE_RECORDS_MAX, FAILURES_PER_COUNT};
use crate::test_fixtures::{RUN, TENANT, at, key, op, register_two_shards, worker};
use crate::*;

type Handle = StoreCoordinator<MapStore>;

fn handle() -> Handle {
    let mut handle = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    register_two_shards(&mut handle);
    handle
}

fn lease(handle: &mut Handle, shard: u64) -> Lease {
    let mut scratch = Box::new(AcquireScratch::new());
    let acquired =
        handle.acquire_and_restore_into(at(2), TENANT, key(shard), worker(1), &mut scratch);
    acquired.unwrap().lease
}

fn failure(item: &[u8]) -> SideRecord {
    SideRecord::Failure(FailureRecord {
        key: item.into(),
        place: "".into(),
        kind: FailureKind::Failed,
        exit: Some(ExitCause::Code(22)),
        tries: 3,
        at: at(3),
        host: "host".into(),
        pid: 7,
        message: "exit status 22".into(),
        stderr: b"not found".as_slice().into(),
    })
}

fn results(number: u64, content: &[u8]) -> SideRecord {
    SideRecord::Results(ResultBlock { number, content: content.into() })
}

fn listed(handle: &mut Handle, kind: SideRecordKind) -> Vec<SideRecord> {
    let mut out = Vec::new();
    handle.list_side_records_into(TENANT, RUN, kind, None, 99, &mut out).unwrap();
    out.into_iter().map(|it| it.record).collect()
}

#[test]
fn a_checkpoint_without_records_writes_one_key() {
    let mut handle = handle();
    let lease = lease(&mut handle, 0);
    let before = handle.store().dump();
    handle.checkpoint(at(3), TENANT, &lease, CursorUpdate::with_last_key(b"c"), op(1)).unwrap();
    let changed = handle.store().dump().into_iter().filter(|it| !before.contains(it));
    let kinds: Vec<_> = changed.map(|(key, _)| Key::parse(&key).unwrap().kind()).collect();
    assert_eq!(kinds, [KeyKind::ShardHot]);
}

#[test]
fn records_are_stored_once_although_the_reply_is_lost() {
    let mut handle = handle();
    let lease = lease(&mut handle, 0);
    let records = [failure(b"b"), results(1, b"r")];
    let given = SideRecords::try_new(&records).unwrap();
    let cursor = CursorUpdate::with_last_key(b"c");
    handle.store_mut().inject(Fault::LoseReply);
    handle.checkpoint_with_records(at(3), TENANT, &lease, cursor, given, op(1)).unwrap();
    // A replay stores nothing, whatever it carries.
    let other = [failure(b"other")];
    let other = SideRecords::try_new(&other).unwrap();
    let again = handle.checkpoint_with_records(at(4), TENANT, &lease, cursor, other, op(1));
    assert!(again.unwrap().is_replay());
    assert_eq!(listed(&mut handle, SideRecordKind::Failure), records[..1]);
    assert_eq!(listed(&mut handle, SideRecordKind::Results), records[1..]);
}

#[test]
fn a_refused_operation_stores_no_records() {
    let mut handle = handle();
    let old = lease(&mut handle, 0);
    let expired = old.deadline();
    let mut scratch = Box::new(AcquireScratch::new());
    handle.acquire_and_restore_into(expired, TENANT, key(0), worker(2), &mut scratch).unwrap();
    let records = [failure(b"b"), results(1, b"r")];
    let given = SideRecords::try_new(&records).unwrap();
    let cursor = CursorUpdate::with_last_key(b"c");
    let refused = handle.checkpoint_with_records(expired, TENANT, &old, cursor, given, op(1));
    assert!(matches!(refused, Err(CheckpointError::StaleFence { .. })), "{refused:?}");
    assert_eq!(listed(&mut handle, SideRecordKind::Failure), []);
    assert_eq!(listed(&mut handle, SideRecordKind::Results), []);
}

#[test]
fn an_item_that_fails_again_replaces_its_record() {
    let mut handle = handle();
    for round in 0..2 {
        let lease = lease(&mut handle, 0);
        let records = [failure(b"b")];
        let given = SideRecords::try_new(&records).unwrap();
        let why = (ParkReason::Poisoned, ParkContext::NONE);
        handle.park_shard_with_records(at(3), TENANT, &lease, why, given, op(1 + round)).unwrap();
        handle.unpark_shard(at(3), TENANT, key(0), op(11 + round)).unwrap();
    }
    assert_eq!(listed(&mut handle, SideRecordKind::Failure), [failure(b"b")]);
}

#[test]
fn a_deleted_run_has_no_records() {
    let mut handle = handle();
    let lease = lease(&mut handle, 0);
    let records = [failure(b"b"), results(1, b"r"), results(2, b"s")];
    let given = SideRecords::try_new(&records).unwrap();
    let cursor = CursorUpdate::with_last_key(b"c");
    handle.complete_with_records(at(3), TENANT, &lease, cursor, given, op(1)).unwrap();
    handle.cancel_run(at(4), TENANT, RUN, op(2)).unwrap();
    handle.delete_run(at(5), TENANT, RUN, op(3)).unwrap();
    let left = handle.store().dump().into_iter().map(|(key, _)| Key::parse(&key).unwrap().kind());
    let side = [KeyKind::Failure, KeyKind::ResultBlock];
    assert_eq!(left.filter(|kind| side.contains(kind)).collect::<Vec<_>>(), []);
}

#[test]
fn a_run_keeps_a_bounded_number_of_failures() {
    let mut handle = handle();
    let lease = lease(&mut handle, 0);
    let mut number = 0_u64;
    while number < FAILURE_RECORDS_MAX + 2 * FAILURES_PER_COUNT {
        let records: Vec<_> =
            (0..SIDE_RECORDS_MAX as u64).map(|it| failure(&(number + it).to_be_bytes())).collect();
        number += SIDE_RECORDS_MAX as u64;
        let given = SideRecords::try_new(&records).unwrap();
        let cursor = [&b"b"[..], &number.to_be_bytes()].concat();
        let cursor = CursorUpdate::with_last_key(&cursor);
        handle.checkpoint_with_records(at(3), TENANT, &lease, cursor, given, op(number)).unwrap();
    }
    let kept = handle.store().dump().into_iter();
    let kept = kept.filter(|(key, _)| Key::parse(key).unwrap().kind() == KeyKind::Failure).count();
    assert_eq!(kept as u64, FAILURE_RECORDS_MAX);
}

#[test]
fn records_beyond_the_limits_are_refused() {
    let many: Vec<_> = (0..=SIDE_RECORDS_MAX as u64).map(|it| results(it, b"")).collect();
    let refused = SideRecords::try_new(&many).unwrap_err();
    assert_eq!(refused, SideRecordsError::TooMany { count: SIDE_RECORDS_MAX + 1 });
    let long = [results(1, &[0; RESULT_BLOCK_MAX + 1])];
    assert_eq!(SideRecords::try_new(&long).unwrap_err(), SideRecordsError::RecordTooLong);
    let unnamed = [failure(b"")];
    assert_eq!(SideRecords::try_new(&unnamed).unwrap_err(), SideRecordsError::RecordTooLong);
    let doubled = [results(1, b"a"), failure(b"b"), results(1, b"c")];
    assert_eq!(SideRecords::try_new(&doubled).unwrap_err(), SideRecordsError::Doubled);
    let largest: Vec<_> =
        (0..SIDE_RECORDS_MAX as u64).map(|it| results(it, &[0; RESULT_BLOCK_MAX])).collect();
    assert!(SideRecords::try_new(&largest).is_ok());
}

#[test]
fn long_texts_are_cut() {
    let SideRecord::Failure(mut long) = failure(b"b") else { unreachable!("a failure") };
    long.message = "ä".repeat(FAILURE_TEXT_MAX).into();
    long.stderr = [vec![b'a'; 10], vec![b'z'; FAILURE_STDERR_MAX]].concat().into();
    let cut = [SideRecord::Failure(long.cut())];
    assert!(SideRecords::try_new(&cut).is_ok());
    let SideRecord::Failure(cut) = &cut[0] else { unreachable!("a failure") };
    assert_eq!(*cut.stderr, [b'z'; FAILURE_STDERR_MAX]);
    assert_eq!(cut.message.len(), FAILURE_TEXT_MAX);
}

#[test]
fn a_damaged_record_fails_its_listing() {
    let mut handle = handle();
    let lease = lease(&mut handle, 0);
    let records = [results(1, b"r")];
    let given = SideRecords::try_new(&records).unwrap();
    let cursor = CursorUpdate::with_last_key(b"c");
    handle.checkpoint_with_records(at(3), TENANT, &lease, cursor, given, op(1)).unwrap();
    let block = Key::ResultBlock { tenant: TENANT, shard: key(0), block: 1 };
    let mut value = stored(&mut handle, block);
    value[7] ^= 1;
    overwrite(&mut handle, block, value);
    let mut out = Vec::new();
    let kind = SideRecordKind::Results;
    let listed = handle.list_side_records_into(TENANT, RUN, kind, None, 9, &mut out);
    assert!(matches!(listed, Err(InfraError::Corruption { .. })), "{listed:?}");
}

#[test]
fn damaged_entry_of_a_parked_shard_costs_a_listing_only_its_text() {
    let mut handle = handle();
    for shard in 0..2 {
        let lease = lease(&mut handle, shard);
        let why = (ParkReason::Poisoned, ParkContext::new("exit status 22"));
        let given = SideRecords::NONE;
        handle.park_shard_with_records(at(3), TENANT, &lease, why, given, op(1 + shard)).unwrap();
    }
    overwrite(&mut handle, Key::ParkedIndex { tenant: TENANT, shard: key(0) }, vec![1, 2, 3]);
    let mut rows = Vec::new();
    handle.list_shards_into(at(4), TENANT, RUN, ShardFilter::parked(), &mut rows).unwrap();
    let texts: Vec<_> = rows.iter().map(|row| row.park_context.as_deref().unwrap()).collect();
    assert_eq!(texts, ["the record of the reason cannot be read", "exit status 22"]);
}
