//! The rings of lifecycle events on the model store: the writes of each commit, and the conclusions
//! of a reader.

use std::collections::{BTreeMap, BTreeSet};

use gossip_contracts::coordination::{CursorUpdate, MAX_SPLIT_CHILDREN};
use gossip_contracts::identity::{Redacted, ShardId, WorkerId};

use super::codec::encode_event;
use super::test_support::{overwrite, stored};
use super::{Fault, Key, KeyKind, MapStore, StoreConfig, StoreCoordinator, StoreLimits};
use crate::protocol::ReleaseMode;
use crate::test_fixtures::{
    RUN, TENANT, at, halves, key, op, register_two_shards, residual, run_config, worker,
};
use crate::*;

type Handle = StoreCoordinator<MapStore>;

fn handle() -> Handle {
    handle_on(MapStore::new())
}

fn handle_on(store: MapStore) -> Handle {
    let mut handle = StoreCoordinator::new(store, StoreConfig::new(1 << 32));
    register_two_shards(&mut handle);
    handle
}

/// A handle of another process on the same store.
fn other(handle: &Handle) -> Handle {
    StoreCoordinator::new(handle.store().another_handle(), StoreConfig::new(2 << 32))
}

fn lease(handle: &mut Handle, now: u64, shard: u64, by: u64) -> Lease {
    let mut scratch = Box::new(AcquireScratch::new());
    let acquired =
        handle.acquire_and_restore_into(at(now), TENANT, key(shard), worker(by), &mut scratch);
    acquired.unwrap().lease
}

fn events(handle: &mut Handle) -> Vec<StoredEvent> {
    let mut all: Vec<StoredEvent> = Vec::new();
    loop {
        let (after, before) = (all.last().map(|event| event.writer), all.len());
        handle.list_events_into(TENANT, RUN, after, &mut all).unwrap();
        if all.len() == before {
            return all;
        }
    }
}

/// The events that a reader may call lost: those that were stored before one of `seen` and are not
/// among them.
fn lost(seen: &[StoredEvent]) -> u64 {
    let mut writers: BTreeMap<EventWriter, (u64, u64)> = BTreeMap::new();
    for event in seen {
        let (earlier, count) = writers.entry(event.writer).or_default();
        (*earlier, *count) = (event.earlier.max(*earlier), *count + 1);
    }
    writers.values().map(|(earlier, count)| earlier.saturating_sub(count - 1)).sum()
}

fn kinds(handle: &Handle) -> BTreeMap<KeyKind, usize> {
    let mut kinds = BTreeMap::new();
    for (key, _) in handle.store().dump() {
        *kinds.entry(Key::parse(&key).unwrap().kind()).or_default() += 1;
    }
    kinds
}

#[test]
fn a_checkpoint_and_a_renewal_write_no_event() {
    let mut handle = handle();
    let lease = lease(&mut handle, 2, 0, 1);
    let changed = |handle: &mut Handle, call: &dyn Fn(&mut Handle)| {
        let before = handle.store().dump();
        call(handle);
        let changed = handle.store().dump().into_iter().filter(|it| !before.contains(it));
        changed.map(|(key, _)| Key::parse(&key).unwrap().kind()).collect::<BTreeSet<_>>()
    };
    let cursor = CursorUpdate::with_last_key(b"c");
    let saved = changed(&mut handle, &|it| {
        it.checkpoint(at(3), TENANT, &lease, cursor, op(1)).unwrap();
    });
    assert_eq!(saved, BTreeSet::from([KeyKind::ShardHot]));
    let renewed = changed(&mut handle, &|it| {
        it.renew(at(9), TENANT, &lease).unwrap();
    });
    assert_eq!(renewed, BTreeSet::from([KeyKind::ShardHot, KeyKind::ClaimIndex]));
}

#[test]
fn every_lifecycle_change_has_one_event_with_its_worker() {
    let mut handle = handle();
    let first = lease(&mut handle, 2, 0, 1);
    handle.split_residual(at(3), TENANT, &first, &residual(b"a", b"f", b"m"), op(1)).unwrap();
    handle.release(at(4), TENANT, &first, ReleaseMode::Clean, op(2)).unwrap();
    let second = lease(&mut handle, 5, 0, 2);
    handle.complete(at(6), TENANT, &second, CursorUpdate::with_last_key(b"b"), op(3)).unwrap();
    let other = lease(&mut handle, 7, 1, 1);
    handle.park_shard(at(8), TENANT, &other, ParkReason::Poisoned, op(4)).unwrap();
    handle.unpark_shard(at(9), TENANT, key(1), op(5)).unwrap();
    lease(&mut handle, 10, 1, 1);
    // That lease has run out, so another worker takes the shard over.
    let taken = lease(&mut handle, 200, 1, 2);
    handle.split_replace(at(201), TENANT, &taken, &halves(b"m", b"s", b"z"), op(6)).unwrap();
    handle.pause_run(at(202), TENANT, RUN, op(7)).unwrap();
    handle.pause_run(at(203), TENANT, RUN, op(8)).unwrap();
    handle.cancel_run(at(204), TENANT, RUN, op(9)).unwrap();
    let by = |event: &StoredEvent| {
        let raw = |id: Option<Redacted<WorkerId>>| id.map(|id| id.into_inner().as_raw());
        (event.at.as_raw(), raw(event.worker), raw(event.previous))
    };
    let seen = events(&mut handle);
    let expected: [(u64, Option<u64>, Option<u64>); 14] = [
        (1, None, None),
        (1, None, None),
        (2, Some(1), None),
        (3, Some(1), None),
        (4, Some(1), None),
        (5, Some(2), None),
        (6, Some(2), None),
        (7, Some(1), None),
        (8, Some(1), None),
        (9, None, None),
        (10, Some(1), None),
        (200, Some(2), Some(1)),
        (201, Some(2), None),
        (202, None, None),
    ];
    assert_eq!(seen[..14].iter().map(by).collect::<Vec<_>>(), expected);
    let [.., cancelled] = &seen[..] else { unreachable!("events") };
    assert_eq!((seen.len(), &cancelled.kind), (15, &EventKind::RunCancelled));
    assert!(matches!(seen[1].kind, EventKind::RunActivated { shard_count: 2 }));
    assert!(
        matches!(&seen[12].kind, EventKind::ShardSplit { children, .. } if children.len() == 2)
    );
    assert!(seen.iter().zip(0..).all(|(it, number)| (it.sequence, it.earlier) == (number, number)));
    assert_eq!(lost(&seen), 0);
}

#[test]
fn a_refused_operation_and_a_replay_write_no_event() {
    let mut handle = handle();
    let held = lease(&mut handle, 2, 0, 1);
    handle.complete(at(3), TENANT, &held, CursorUpdate::with_last_key(b"b"), op(1)).unwrap();
    let before = events(&mut handle);
    handle.complete(at(4), TENANT, &held, CursorUpdate::with_last_key(b"b"), op(1)).unwrap();
    handle.release(at(5), TENANT, &held, ReleaseMode::Clean, op(2)).unwrap_err();
    assert_eq!(events(&mut handle), before);
}

#[test]
fn the_oldest_events_of_a_writer_are_overwritten() {
    let mut handle = handle();
    let rounds = u64::from(EVENTS_PER_WRITER);
    for round in 0..rounds {
        let held = lease(&mut handle, 2 + round, 0, 1);
        handle.release(at(2 + round), TENANT, &held, ReleaseMode::Clean, op(round + 1)).unwrap();
    }
    let seen = events(&mut handle);
    assert_eq!(seen.len(), usize::from(EVENTS_PER_WRITER));
    // Two events of the run, and two of each round.
    let written = 2 + 2 * rounds;
    assert_eq!(lost(&seen), written - u64::from(EVENTS_PER_WRITER));
    let numbers: BTreeSet<u64> = seen.iter().map(|event| event.sequence).collect();
    assert!(numbers.into_iter().eq(written - u64::from(EVENTS_PER_WRITER)..written));
}

#[test]
fn handles_of_one_process_share_a_ring() {
    let mut one = handle();
    let store = one.store().another_handle();
    let mut two = StoreCoordinator::sharing(store, StoreConfig::new(3 << 32), &one.process_state());
    let mut stranger = other(&one);
    lease(&mut one, 2, 0, 1);
    lease(&mut two, 3, 1, 1);
    stranger.pause_run(at(4), TENANT, RUN, op(1)).unwrap();
    let seen = events(&mut stranger);
    let writers: BTreeSet<EventWriter> = seen.iter().map(|event| event.writer).collect();
    assert_eq!((seen.len(), writers.len()), (5, 2));
    let paused = seen.iter().find(|event| event.kind == EventKind::RunPaused).unwrap();
    assert_eq!((paused.sequence, paused.earlier), (0, 0));
    let last = seen.iter().find(|event| event.at == at(3)).unwrap();
    assert_eq!((last.sequence, last.earlier), (3, 3));
}

/// The number of a try that lost a race is not stored, and nothing is lost.
#[test]
fn an_unused_number_is_no_loss() {
    let mut handle = handle();
    handle.store_mut().inject(Fault::Conflict);
    lease(&mut handle, 2, 0, 1);
    let seen = events(&mut handle);
    let numbers: Vec<u64> = seen.iter().map(|event| event.sequence).collect();
    assert_eq!((numbers, lost(&seen)), (vec![0, 1, 3], 0));
}

#[test]
fn an_event_whose_reply_was_lost_is_stored_once() {
    for (fault, counted) in [(Fault::LoseReply, 3), (Fault::LoseRequest, 4)] {
        let mut handle = handle();
        let held = lease(&mut handle, 2, 0, 1);
        handle.store_mut().inject(fault);
        handle.complete(at(3), TENANT, &held, CursorUpdate::with_last_key(b"b"), op(1)).unwrap();
        lease(&mut handle, 4, 1, 1);
        let seen = events(&mut handle);
        let done = |event: &&StoredEvent| matches!(event.kind, EventKind::ShardCompleted { .. });
        assert_eq!(seen.iter().filter(done).count(), 1, "{fault:?}");
        // An event is counted if the reply to its commit arrived: without it, another handle may
        // have executed the operation.
        assert_eq!(seen.iter().map(|event| event.earlier).max(), Some(counted), "{fault:?}");
        assert_eq!((seen.len(), lost(&seen)), (5, 0), "{fault:?}");
    }
}

/// A small page cuts a ring, and a part of a ring would show events as lost.
#[test]
fn a_ring_that_is_longer_than_a_page_is_read_whole() {
    let limits = StoreLimits { page: 3, ..StoreLimits::GENEROUS };
    let mut handle = handle_on(MapStore::with_limits(limits));
    for round in 0..4 {
        let held = lease(&mut handle, 2 + round, 0, 1);
        handle.release(at(2 + round), TENANT, &held, ReleaseMode::Clean, op(round + 1)).unwrap();
    }
    other(&handle).pause_run(at(9), TENANT, RUN, op(9)).unwrap();
    let seen = events(&mut handle);
    assert_eq!((seen.len(), lost(&seen)), (11, 0));
    let numbers: BTreeSet<_> = seen.iter().map(|event| (event.writer, event.sequence)).collect();
    assert_eq!(numbers.len(), 11);
}

#[test]
fn a_deleted_run_has_no_events() {
    let mut handle = handle();
    lease(&mut handle, 2, 0, 1);
    handle.cancel_run(at(3), TENANT, RUN, op(1)).unwrap();
    assert_eq!(kinds(&handle)[&KeyKind::Event], 4);
    handle.delete_run(at(4), TENANT, RUN, op(2)).unwrap();
    assert_eq!(events(&mut handle), []);
    assert_eq!(
        kinds(&handle).into_keys().collect::<Vec<_>>(),
        [KeyKind::TenantCounter, KeyKind::Tombstone]
    );
}

/// A run without roots has no root names by which an interrupted deletion is found.
#[test]
fn an_interrupted_deletion_of_a_run_without_shards_is_completed_by_gc() {
    let mut handle = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    handle.create_run(at(1), TENANT, RUN, run_config()).unwrap();
    handle.cancel_run(at(2), TENANT, RUN, op(1)).unwrap();
    handle.store_mut().inject(Fault::None);
    handle.store_mut().inject_always(Some(Fault::Fail));
    handle.delete_run(at(3), TENANT, RUN, op(2)).unwrap_err();
    assert_eq!(kinds(&handle)[&KeyKind::Event], 2);
    handle.store_mut().inject_always(None);
    let mut gone = Vec::new();
    handle.gc_stale_initializing_runs_into(at(4), TENANT, 1_000, 9, &mut gone).unwrap();
    assert_eq!(gone, [RUN]);
    assert_eq!(kinds(&handle).into_keys().collect::<Vec<_>>(), [KeyKind::Tombstone]);
}

#[test]
fn a_damaged_event_fails_its_listing() {
    let mut handle = handle();
    let (writer, slot) = (events(&mut handle)[0].writer.as_raw(), 0);
    let event = Key::Event { tenant: TENANT, run: RUN, writer, slot };
    let mut value = stored(&mut handle, event);
    value[8] ^= 1;
    overwrite(&mut handle, event, value);
    let listed = handle.list_events_into(TENANT, RUN, None, &mut Vec::new());
    assert!(matches!(listed, Err(InfraError::Corruption { .. })), "{listed:?}");
}

/// The bound by which pages are limited.
#[test]
fn the_longest_event_is_below_its_bound() {
    let shard = ShardId::from_raw(u64::MAX);
    let children = vec![shard; MAX_SPLIT_CHILDREN];
    let by = Some(Redacted::new(worker(u64::MAX)));
    let event = StoredEvent {
        writer: EventWriter::from_raw(u64::MAX),
        sequence: u64::MAX,
        earlier: u64::MAX,
        at: at(u64::MAX),
        worker: by,
        previous: by,
        kind: EventKind::ShardSplit { parent: shard, children },
    };
    let mut value = Vec::new();
    encode_event(TENANT, RUN, &event, &mut value);
    assert!(value.len() + KeyKind::Event.key_len() <= 2_300, "{}", value.len());
    assert!(value.len() <= 2_200, "{}", value.len());
}
