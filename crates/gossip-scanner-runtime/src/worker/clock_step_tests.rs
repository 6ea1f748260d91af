//! A wall clock that is set by hours does not stop a worker (DESIGN Q7, ADR 84).
//!
//! The story: a worker's wall clock was hours ahead and was set back. Its clock repeated the last
//! reading until the wall clock had caught up, so no timer of the worker advanced: no renewal, no
//! checkpoint by time, no throttled item, no heartbeat.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use gossip_contracts::identity::{LogicalTime, WorkerId};
use gossip_coordination::store::{MapStore, ProcessState, StoreConfig, StoreCoordinator};
use gossip_coordination::{
    AcquireScratch, RunManagement as _, ShardClaiming as _, ShardFilter, WorkerState,
};
use rstest::rstest;

use super::{Drain, Finish, Parts, Renewer, Rest, ShardRunner, WorkerConfig, WorkerShared};
use crate::clock::{Clock, ClockOffset};
use crate::processor::{Inline, ItemResult, Work};
use crate::task::TaskConfig;
use crate::test_support::{Coordinator, RUN, TENANT, World, at, numbered};
use crate::throttle::Limits;

const LEASE: u64 = 1_000;
const HOURS: i64 = 2 * 3_600_000;
/// When the worker starts, on its wall clock.
const BEGIN: u64 = 100_000_000;
/// Ticks between two steps.
const TICK: u64 = 10;
/// Items, and how many of them may start per second; a second's worth may start at once.
const ITEMS: usize = 200;
const PER_SECOND: u64 = 50;
/// The ticks that the items take, with a second to spare for claims.
const LONGEST: u64 = (ITEMS as u64 / PER_SECOND) * 1_000 + 1_000;

/// The clocks of a machine whose wall clock can be set.
struct Machine {
    now: AtomicU64,
    offset: AtomicI64,
}

impl Machine {
    fn set_by(&self, ticks: i64) {
        self.offset.store(ticks, Ordering::Relaxed);
    }
}

impl Clock for Machine {
    fn now(&self) -> LogicalTime {
        at(self.now.load(Ordering::Relaxed))
    }

    fn offset(&self) -> ClockOffset {
        ClockOffset::from_ticks(self.offset.load(Ordering::Relaxed))
    }
}

const WORKER: WorkerId = WorkerId::from_raw(1);

fn config() -> WorkerConfig {
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: WORKER,
        lease_ticks: LEASE,
        threads: 1,
        task: TaskConfig {
            checkpoint_items: u64::MAX,
            checkpoint_ticks: 300,
            ..TaskConfig::default()
        },
        limits: Limits { items: Some(PER_SECOND), bytes: None },
        max_parked: 0,
        auto_split: false,
        store_patience: 60_000,
        seed: 1,
    }
}

/// A worker of one runner, stepped by hand.
struct Stepped<'c, 'a> {
    shared: &'c WorkerShared<'a, Coordinator>,
    runner: ShardRunner<'c, 'a, Coordinator>,
    renewer: Renewer<'c, 'a, Coordinator>,
    machine: &'c Machine,
    renew_at: u64,
}

impl Stepped<'_, '_> {
    /// Lets one tick pass, and steps every part that is due.
    fn tick(&mut self) {
        let now = self.machine.now.fetch_add(TICK, Ordering::Relaxed) + TICK;
        if now >= self.renew_at {
            self.renew_at = now + self.renewer.round(at(now));
        }
        while matches!(self.runner.step(at(now)), Rest::No) {}
    }

    fn now(&self) -> u64 {
        self.machine.now.load(Ordering::Relaxed)
    }
}

/// Another process, with a right clock, that claims whatever it can.
struct Rival {
    handle: StoreCoordinator<MapStore>,
    ticks: std::sync::Arc<AtomicU64>,
}

impl Rival {
    fn new(world: &World) -> Self {
        let ticks = std::sync::Arc::new(AtomicU64::new(0));
        let clock = std::sync::Arc::clone(&ticks);
        let state = ProcessState::default().watching(move || clock.load(Ordering::Relaxed));
        let config = StoreConfig::new(1 << 50);
        Self { handle: StoreCoordinator::sharing(world.store(), config, &state), ticks }
    }

    /// Claims at the wall time `wall`, when so many ticks have passed.
    fn claims(&mut self, wall: u64, ticks: u64) -> bool {
        self.ticks.store(ticks, Ordering::Relaxed);
        let (mut scratch, rival) = (Box::<AcquireScratch>::default(), WorkerId::from_raw(2));
        self.handle.claim_next_available(at(wall), TENANT, RUN, rival, &mut scratch).is_ok()
    }
}

/// Runs `test` with a worker, whose machine's wall clock is right only after it was set by `step`.
fn with_worker(step: i64, test: impl FnOnce(&World, &Machine, Stepped<'_, '_>, &Keys)) {
    let world = World::lasting(LEASE, &[(b"a", b"z")]);
    let (keys, drain, done) = (numbered(ITEMS), Drain::new(), Keys::default());
    let machine = Machine { now: AtomicU64::new(BEGIN), offset: AtomicI64::new(0) };
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &keys,
        processor: &|_| {
            Box::new(Inline::new(|work: Work<'_>, _: &mut Vec<u8>| {
                *done.0.lock().unwrap().entry(work.key().to_vec()).or_default() += 1;
                ItemResult::Done
            }))
        },
        records: None,
        clock: &machine,
        host: &(),
        drain: &drain,
        observer: &(),
    };
    let shared = &WorkerShared::new(&config(), parts);
    let (runner, renewer) = (ShardRunner::new(shared, 0), Renewer::new(shared));
    let mut worker = Stepped { shared, runner, renewer, machine: &machine, renew_at: BEGIN };
    for _ in 0..100 {
        worker.tick();
    }
    assert!(!worker.shared.has_ended());
    machine.set_by(step);
    test(&world, &machine, worker, &done);
}

/// How often each key was processed.
#[derive(Default)]
struct Keys(Mutex<BTreeMap<Vec<u8>, u32>>);

fn stored_cursor(world: &World) -> Option<Vec<u8>> {
    let mut rows = Vec::new();
    world.handle().list_shards_into(at(1), TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
    rows.first().and_then(|row| row.last_key.as_ref().map(|key| key.to_vec()))
}

#[test]
fn worker_whose_wall_clock_is_set_back_works_on() {
    with_worker(-HOURS, |world, machine, mut worker, done| {
        let (mut rival, wall) = (Rival::new(world), |now: u64| now - HOURS.unsigned_abs());
        let before = stored_cursor(world);
        for _ in 0..100 {
            worker.tick();
            let now = worker.now();
            assert!(!rival.claims(wall(now), now), "a renewed lease is not taken");
        }
        assert!(stored_cursor(world) > before, "checkpoints are made by time");
        let mut entries = Vec::new();
        world.handle().list_workers_into(machine.wall(), TENANT, &mut entries).unwrap();
        let age = machine.wall().as_raw() - entries[0].last_seen().as_raw();
        assert!(age <= LEASE, "heartbeats have the wall time: {age}");
        assert_eq!(entries[0].state, WorkerState::Working);
        while !worker.shared.has_ended() {
            worker.tick();
            let now = worker.now();
            assert!(now < BEGIN + LONGEST, "the items take no longer than usual");
            assert!(!rival.claims(wall(now), now), "a renewed lease is not taken");
        }
        assert_eq!(worker.shared.ended(), Ok(Finish::Complete));
        let done = done.0.lock().unwrap();
        assert_eq!(done.len(), ITEMS);
        assert!(done.values().all(|count| *count == 1), "the lease was never lost");
    });
}

/// The store refuses renewals after the deadline, so the lease is lost. The worker claims the shard
/// again at once and repeats the items since the last checkpoint.
#[test]
fn worker_whose_wall_clock_is_set_forward_works_on() {
    with_worker(HOURS, |_, _, mut worker, done| {
        while !worker.shared.has_ended() {
            worker.tick();
            assert!(worker.now() < BEGIN + LONGEST, "no timer waits for hours");
        }
        assert_eq!(worker.shared.ended(), Ok(Finish::Complete));
        assert_eq!(done.0.lock().unwrap().len(), ITEMS);
    });
}

#[rstest]
#[case::a_little(100)]
#[case::back_a_little(-100)]
fn small_step_costs_nothing(#[case] step: i64) {
    with_worker(step, |_, _, mut worker, done| {
        while !worker.shared.has_ended() {
            worker.tick();
            assert!(worker.now() < BEGIN + LONGEST);
        }
        assert_eq!(worker.shared.ended(), Ok(Finish::Complete));
        assert!(done.0.lock().unwrap().values().all(|count| *count == 1));
    });
}

#[test]
fn shard_of_a_dead_worker_whose_clock_was_ahead_is_claimed_after_a_lease() {
    with_worker(-HOURS, |world, _, mut worker, _| {
        let (mut rival, wall) = (Rival::new(world), |now: u64| now - HOURS.unsigned_abs());
        for _ in 0..50 {
            worker.tick();
            assert!(!rival.claims(wall(worker.now()), worker.now()));
        }
        // The worker is dead from here on; its deadline lies two hours ahead.
        let died = worker.now();
        let claimed = (died..).step_by(10).find(|now| rival.claims(wall(*now), *now)).unwrap();
        let waited = claimed - died;
        assert!((LEASE / 2..LEASE * 3 / 2).contains(&waited), "after {waited} ticks");
    });
}
