//! A reader returns each event once, and the gaps that it reports are real.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{OpId, ShardId, ShardKey};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::store::{MapStore, StoreConfig, StoreCoordinator};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend as _, EVENTS_PER_WRITER, EventKind, RunConfig,
};

use super::*;

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(3);

type Handle = StoreCoordinator<MapStore>;

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// A run of one shard, made at time 1.
fn handle() -> Handle {
    let mut handle = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 40));
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    let root = InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    };
    handle.create_run_with_shards(at(1), TENANT, RUN, config, &[root], OpId::from_raw(1)).unwrap();
    handle
}

/// Two events.
fn round(handle: &mut Handle, now: u64) {
    let (mut scratch, worker) = (Box::new(AcquireScratch::new()), WorkerId::from_raw(5));
    let key = ShardKey::new(RUN, ShardId::from_raw(0));
    let lease = handle.acquire_and_restore_into(at(now), TENANT, key, worker, &mut scratch);
    let (lease, op_id) = (lease.unwrap().lease, OpId::from_raw(now + 10));
    handle.release(at(now), TENANT, &lease, ReleaseMode::Clean, op_id).unwrap();
}

fn times(entries: &[LogEntry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.at().as_raw()).collect()
}

#[test]
fn each_event_is_returned_once_and_in_the_order_of_times() {
    let mut one = handle();
    let store = one.store().another_handle();
    let mut other = StoreCoordinator::new(store, StoreConfig::new(2 << 40));
    let mut log = EventLog::new(TENANT, RUN);
    round(&mut one, 5);
    round(&mut other, 3);
    assert_eq!(times(&log.read(&mut one).unwrap()), [1, 1, 3, 3, 5, 5]);
    assert_eq!(log.read(&mut one).unwrap(), []);
    round(&mut other, 9);
    round(&mut one, 8);
    assert_eq!(times(&log.read(&mut other).unwrap()), [8, 8, 9, 9]);
}

#[test]
fn events_overwritten_between_two_reads_are_a_gap_of_their_writer() {
    let mut handle = handle();
    let mut log = EventLog::new(TENANT, RUN);
    assert_eq!(log.read(&mut handle).unwrap().len(), 2);
    let max = u64::from(EVENTS_PER_WRITER);
    (0..max / 2 + 3).for_each(|now| round(&mut handle, 10 + now));
    let entries = log.read(&mut handle).unwrap();
    assert_eq!(entries.len() as u64, max + 1);
    let LogEntry::Gap { lost, worker, at: behind, .. } = &entries[0] else {
        panic!("{:?}", entries[0]);
    };
    assert_eq!((*lost, worker.map(Redacted::into_inner)), (6, Some(WorkerId::from_raw(5))));
    assert_eq!(*behind, at(13));
    // It is reported once.
    assert_eq!(log.read(&mut handle).unwrap(), []);
    round(&mut handle, 2_000);
    assert_eq!(times(&log.read(&mut handle).unwrap()), [2_000, 2_000]);
    // A reader that begins now has read neither those nor the first ones.
    let late = EventLog::new(TENANT, RUN).read(&mut handle).unwrap();
    assert!(matches!(late[0], LogEntry::Gap { lost: 10, .. }), "{:?}", late[0]);
}

/// A number that is missing belongs to a try that was not applied, or is in flight.
#[test]
fn a_missing_number_is_no_gap() {
    let event = |sequence: u64, earlier: u64| StoredEvent {
        writer: EventWriter::from_raw(1),
        sequence,
        earlier,
        at: at(sequence + 1),
        worker: None,
        previous: None,
        kind: EventKind::RunPaused,
    };
    let (mut known, mut entries) = (Known::default(), Vec::new());
    known.take(&[event(0, 0), event(3, 1)], &mut entries);
    assert_eq!(times(&entries), [1, 4]);
    // One that was in flight is stored late.
    known.take(&[event(0, 0), event(1, 0), event(3, 1), event(4, 3)], &mut entries);
    assert_eq!(times(&entries), [1, 4, 2, 5]);
    // Four others were stored before this one, and it was overwritten.
    known.take(&[event(0, 0), event(1, 0), event(7, 5), event(4, 3)], &mut entries);
    let gap = entries.iter().find(|entry| matches!(entry, LogEntry::Gap { .. }));
    assert!(matches!(gap, Some(LogEntry::Gap { lost: 1, .. })), "{entries:?}");
}
