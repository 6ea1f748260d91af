//! A lease whose deadline lies hours ahead does not lock its shard (DESIGN Q7, ADR 84).
//!
//! The story: a worker's wall clock was three hours ahead, it claimed shards, its clock was
//! corrected, and it was killed. Its deadlines stayed three hours ahead, claims never looked that
//! far into the index, and the run waited for three hours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::{MapStore, ProcessState, StoreConfig, StoreCoordinator};
use crate::protocol::ClaimScope;
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([4; 32]);
const RUN: RunId = RunId::from_raw(6);
const LEASE: u64 = 100;
const SKEW: u64 = 20;
/// How long a record must stay at one revision.
const WINDOW: u64 = LEASE + SKEW;
/// The wall time of a worker whose clock is ahead.
const AHEAD: u64 = 1_000_000;
const FAST: WorkerId = WorkerId::from_raw(1);
const RIGHT: WorkerId = WorkerId::from_raw(2);

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// A process with a monotonic clock.
struct Process {
    handle: StoreCoordinator<MapStore>,
    worker: WorkerId,
    ticks: Arc<AtomicU64>,
}

impl Process {
    fn new(store: &MapStore, worker: WorkerId) -> Self {
        let ticks = Arc::new(AtomicU64::new(7));
        let state = ProcessState::default().watching({
            let ticks = Arc::clone(&ticks);
            move || ticks.load(Ordering::SeqCst)
        });
        let handle = StoreCoordinator::sharing(store.another_handle(), config(worker), &state);
        Self { handle, worker, ticks }
    }

    /// Another handle of the process.
    fn another(&self, nonce: u64) -> Self {
        let store = self.handle.store().another_handle();
        let config = config(WorkerId::from_raw(nonce));
        let handle = StoreCoordinator::sharing(store, config, &self.handle.process_state());
        Self { handle, worker: self.worker, ticks: Arc::clone(&self.ticks) }
    }

    fn claim(&mut self, now: u64) -> Result<Lease, ClaimError> {
        let mut scratch = Box::new(AcquireScratch::new());
        let claimed =
            self.handle.claim_next_available(at(now), TENANT, RUN, self.worker, &mut scratch);
        claimed.map(|view| view.lease)
    }

    fn acquire(&mut self, now: u64, shard: u64) -> Result<Lease, AcquireError> {
        let (mut scratch, key) = (Box::new(AcquireScratch::new()), key(shard));
        let granted =
            self.handle.acquire_and_restore_into(at(now), TENANT, key, self.worker, &mut scratch);
        granted.map(|view| view.lease)
    }

    fn pass(&self, ticks: u64) {
        self.ticks.fetch_add(ticks, Ordering::SeqCst);
    }
}

const fn config(worker: WorkerId) -> StoreConfig {
    StoreConfig { max_clock_skew: SKEW, ..StoreConfig::new(worker.as_raw() << 40) }
}

const fn key(shard: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(shard))
}

/// A store with a run of so many shards.
fn store_of(shards: u8) -> MapStore {
    store_with_attempts(shards, None)
}

/// The same, with so many attempts for each shard.
fn store_with_attempts(shards: u8, attempts: Option<u32>) -> MapStore {
    let store = MapStore::new();
    let mut admin = StoreCoordinator::new(store.another_handle(), config(WorkerId::from_raw(99)));
    let bounds: Vec<_> = (0..shards).map(|id| ([b'a', id], [b'a', id + 1])).collect();
    let roots: Vec<_> = bounds
        .iter()
        .zip(0..)
        .map(|((start, end), id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(start, end, b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let run = RunConfig::try_new(CursorSemantics::Completed, LEASE, attempts).unwrap();
    let op = OpId::from_raw(1);
    admin.create_run_with_shards(at(1), TENANT, RUN, run, &roots, op).unwrap();
    store
}

/// A process whose clock was ahead when it acquired every shard of a run.
fn all_held(shards: u8) -> (Process, Vec<Lease>, Process) {
    let store = store_of(shards);
    let mut fast = Process::new(&store, FAST);
    let leases = (0..shards).map(|id| fast.acquire(AHEAD, u64::from(id)).unwrap()).collect();
    (fast, leases, Process::new(&store, RIGHT))
}

#[test]
fn shard_with_a_far_deadline_is_claimed_after_a_lease_and_the_skew() {
    let (_fast, leases, mut right) = all_held(1);
    // The first claim learns the lease duration, the second begins to watch.
    for _ in 0..2 {
        assert!(matches!(right.claim(100), Err(ClaimError::NoneAvailable { .. })));
    }
    right.pass(WINDOW - 1);
    assert!(right.claim(100 + WINDOW - 1).is_err(), "one tick too early");
    right.pass(WINDOW);
    let lease = right.claim(100 + 2 * WINDOW).unwrap();
    assert!(lease.fence() > leases[0].fence());
    assert_eq!(lease.deadline(), at(100 + 2 * WINDOW + LEASE), "by the right clock");
}

/// A claim that spares last attempts finds the shard and refuses it. The exclusive claim of the
/// same worker follows at once.
#[test]
fn far_shard_on_its_last_attempt_is_found_by_the_exclusive_claim_that_follows() {
    let store = store_with_attempts(1, Some(1));
    let held = Process::new(&store, FAST).acquire(AHEAD, 0).unwrap();
    let mut right = Process::new(&store, RIGHT);
    for _ in 0..2 {
        assert!(right.claim(100).is_err());
    }
    right.pass(2 * WINDOW);
    let now = 100 + 2 * WINDOW;
    let mut within = |scope| {
        let mut scratch = Box::new(AcquireScratch::new());
        let (handle, worker) = (&mut right.handle, right.worker);
        let claimed = handle.claim_within(scope, at(now), TENANT, RUN, worker, &mut scratch);
        claimed.map(|view| view.lease.fence())
    };
    let spared = within(ClaimScope::SpareLastAttempts);
    assert!(matches!(spared, Err(ClaimError::OnlyLastAttempts)), "{spared:?}");
    assert!(within(ClaimScope::Any).unwrap() > held.fence());
}

/// After the step back a renewal keeps the deadline, so neither record nor index shows a new time;
/// the revision does.
#[test]
fn renewed_lease_with_a_far_deadline_is_not_taken() {
    let (mut fast, leases, mut right) = all_held(1);
    for round in 0..20 {
        let now = 100 + round * LEASE / 3;
        let renewed = fast.handle.renew(at(now), TENANT, &leases[0]).unwrap();
        assert_eq!(renewed.new_deadline, leases[0].deadline(), "a renewal never shortens a lease");
        assert!(right.claim(now).is_err());
        assert!(right.acquire(now, 0).is_err());
        right.pass(LEASE / 3);
    }
}

#[test]
fn process_without_a_monotonic_clock_waits_for_the_deadline() {
    let (_fast, _, right) = all_held(1);
    let store = right.handle.store().another_handle();
    let handle = StoreCoordinator::new(store, config(RIGHT));
    let mut unwatching = Process { handle, ..right };
    for round in 0..20 {
        assert!(unwatching.claim(100 + round * WINDOW).is_err());
        assert!(unwatching.acquire(100 + round * WINDOW, 0).is_err());
        unwatching.pass(WINDOW);
    }
}

#[test]
fn acquire_of_a_named_shard_watches_it_too() {
    let (_fast, _, mut right) = all_held(1);
    let refused = right.acquire(100, 0).unwrap_err();
    assert!(matches!(refused, AcquireError::AlreadyLeased { .. }), "{refused:?}");
    right.pass(WINDOW - 1);
    assert!(right.acquire(100, 0).is_err());
    right.pass(1);
    right.acquire(100, 0).unwrap();
}

#[test]
fn handles_of_a_process_watch_together() {
    let (_fast, _, mut right) = all_held(1);
    assert!(right.acquire(100, 0).is_err());
    right.pass(WINDOW);
    right.another(3).acquire(100, 0).unwrap();
}

/// A lease that ended and was granted anew has another revision: the watch starts again.
#[test]
fn watch_of_an_earlier_lease_does_not_count() {
    let (mut fast, leases, mut right) = all_held(1);
    assert!(right.acquire(100, 0).is_err());
    right.pass(WINDOW);
    let mode = protocol::ReleaseMode::Clean;
    fast.handle.release(at(AHEAD), TENANT, &leases[0], mode, OpId::from_raw(2)).unwrap();
    fast.acquire(AHEAD, 0).unwrap();
    assert!(right.acquire(100, 0).is_err());
    right.pass(WINDOW);
    right.acquire(100, 0).unwrap();
}

/// More than one search holds, while the leases at the front of the index are renewed.
#[test]
fn renewed_leases_do_not_hide_those_behind_them() {
    let shards = 70;
    let (mut fast, leases, mut right) = all_held(shards);
    let mut taken = None;
    for round in 0..60_u64 {
        let now = 100 + round * LEASE / 4;
        // All but one are renewed.
        let (mut results, live) = (Vec::new(), &leases[1..]);
        fast.handle.renew_many(at(now), TENANT, live, &mut results);
        assert!(results.iter().all(Result::is_ok));
        right.pass(LEASE / 4);
        taken = taken.or_else(|| right.claim(now).ok());
    }
    assert_eq!(taken.expect("the lease that is not renewed is found").key(), key(0));
}

/// DESIGN Q23: a search shares the round trip of the scan.
#[test]
fn searches_cost_no_round_trip_while_no_deadline_is_far() {
    let trips = |process: &Process| {
        let store = process.handle.store();
        store.read_count() + store.batch_count()
    };
    let store = store_of(2);
    let mut holder = Process::new(&store, FAST);
    holder.acquire(100, 0).unwrap();
    holder.acquire(100, 1).unwrap();
    let mut watching = Process::new(&store, RIGHT);
    let handle = StoreCoordinator::new(store.another_handle(), config(RIGHT));
    let mut other = Process { handle, ..Process::new(&store, RIGHT) };
    for round in 0..5 {
        let count = |process: &mut Process| {
            let before = trips(process);
            assert!(process.claim(101 + round).is_err());
            trips(process) - before
        };
        assert_eq!(count(&mut watching), count(&mut other), "round {round}");
        watching.pass(WINDOW);
    }
}
