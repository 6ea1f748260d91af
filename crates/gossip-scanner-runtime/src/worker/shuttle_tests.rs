//! The threads of a worker under schedules that rarely occur on a real machine.
//!
//! The same files are compiled a second time, over locks, waits and a clock that `shuttle`
//! schedules: it chooses the next thread at every lock, at every operation of the store and at
//! every wake-up. A deadlock fails the test, and so does a schedule that does not end
//! (`stopped_clock.rs`). Whole workers are run: runners, renewer and handoff thread over the real
//! task and the real coordinator.
//!
//! # Laws
//! - No thread waits for ever, whatever ends the worker, and none is late: when the last shard is
//!   over, every thread ends at that moment, including the renewer.
//! - A drain waits for the in-flight items and not a moment longer.
//! - A lease that is renewed in time is never lost: each key is done once.
//! - The loss of a lease is reported to its holder within a round of renewals and an item; and no
//!   loss is reported that did not happen.
//! - Handoffs and pauses of the machine lose no key, and a handoff repeats none.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, OpId, ShardId, ShardKey};
use gossip_coordination::store::{
    Answer, CommitOutcome, MapStore, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{InfraError, RunManagement as _, RunStatus, ShardAction, ShardFilter};
use gossip_handoff::{Repository, StoreRepository};
use shuttle::rand::Rng as _;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

use self::handoff_thread::worker_of;
use self::worker_shared::{Drain, Parts, WorkerShared, work};
use super::stopped_clock::{self, StoppedClock, begin, now, pass, scope, sleep};
use super::{Finish, MAX_THREADS, RunWorkerError, WorkerConfig};
use crate::observer::{Event, Observer};
use crate::processor::{Inline, ItemResult, Work};
use crate::task::{TaskConfig, TaskOutcome};
use crate::test_support::{RUN, TENANT, World, key, numbered};
use crate::throttle::Limits;

/// Synchronization and time of the threads in these tests.
mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(super) use shuttle::sync::{Arc, Mutex, MutexGuard};

    pub(super) use super::stopped_clock::{self as thread, Condvar, Instant};
}

macro_rules! once_more {
    ($($name:ident from $path:literal;)*) => {
        $(
            #[path = $path]
            #[allow(clippy::duplicate_mod, reason = "the same code over other locks is the point")]
            #[allow(dead_code, unreachable_pub, reason = "not every world needs everything")]
            mod $name;
        )*
    };
}

once_more! {
    damaged from "damaged.rs";
    handoff_thread from "handoff_thread.rs";
    lease_slot from "lease_slot.rs";
    notify from "notify.rs";
    orphans from "orphans.rs";
    parked_retry from "parked_retry.rs";
    quarantine from "quarantine.rs";
    records from "records.rs";
    renewer from "renewer.rs";
    shard_runner from "shard_runner.rs";
    sharing from "sharing.rs";
    store_health from "store_health.rs";
    worker_shared from "worker_shared.rs";
}

/// Schedules of each world and each way to draw them: a few seconds without optimisation.
const SCHEDULES: usize = 120;

/// How often a schedule departs from one that runs every thread as long as possible.
const DEPARTURES: usize = 3;

/// Schedules that are drawn one way before the other way is used.
const TURN: usize = 30;

/// The seed of the schedules: the same ones every time.
const SEED: u64 = 5;

/// The stack of a thread: decoding and planning need more than the usual 32 KiB.
const STACK: usize = 1 << 20;

const LEASE: u64 = 900;
/// Between two rounds of the renewer.
const ROUND: u64 = LEASE / 3;
const KEYS: usize = 12;
/// How long a key takes: a shard of a few keys outlives its lease.
const KEY_TAKES: u64 = 200;

// A holder that does not learn of the loss continues longer than one that does.
const _: () = assert!(ROUND + KEY_TAKES < LEASE - ROUND);

/// Runs `world` alternately under schedules drawn evenly, and under those that depart a few times.
fn explore(world: fn(), schedules: usize) {
    for turn in 0..schedules.div_ceil(TURN) as u64 {
        run(RandomScheduler::new_from_seed(SEED + turn, TURN), world);
        run(PctScheduler::new_from_seed(SEED + turn, DEPARTURES, TURN), world);
    }
}

fn run(scheduler: impl Scheduler + 'static, world: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    Runner::new(scheduler, config).run(move || {
        begin();
        world();
    });
}

/// A store that lets other threads run before each of its operations.
struct Interrupted(MapStore);

impl Store for Interrupted {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        shuttle::thread::sleep(Duration::ZERO);
        self.0.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        shuttle::thread::sleep(Duration::ZERO);
        self.0.commit(txns)
    }

    /// Takes no time, so that times are exact: other threads run first.
    fn wait(&mut self, _ticks: u64) {
        shuttle::thread::yield_now();
    }

    fn limits(&self) -> StoreLimits {
        self.0.limits()
    }
}

/// The workers of one run, and a record of their work.
struct Scene {
    world: World,
    config: WorkerConfig,
    has_records: bool,
    keys: usize,
    key_takes: u64,
    nonces: Mutex<u64>,
    done: Mutex<BTreeMap<Vec<u8>, u32>>,
    /// Which shard ended when, and whether its lease was lost.
    ended: Mutex<Vec<(ShardKey, u64, bool)>>,
}

impl Scene {
    /// Two shards of six keys, and workers with two threads.
    fn new() -> Self {
        Self::of(&[(b"a", b"k006"), (b"k006", b"z")])
    }

    fn of(roots: &[(&[u8], &[u8])]) -> Self {
        let task = TaskConfig {
            checkpoint_items: 1_000,
            checkpoint_ticks: 1_000_000,
            ..TaskConfig::default()
        };
        let config = WorkerConfig {
            tenant: TENANT,
            run: RUN,
            worker: worker_of(RUN, 1),
            lease_ticks: LEASE,
            threads: 2,
            task,
            limits: Limits::default(),
            max_parked: 0,
            auto_split: false,
            store_patience: 60_000,
            seed: 1,
        };
        Self {
            world: World::lasting(LEASE, roots),
            config,
            has_records: false,
            keys: KEYS,
            key_takes: KEY_TAKES,
            nonces: Mutex::new(1_000),
            done: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    fn nonce(&self) -> u64 {
        let mut nonces = self.nonces.lock().unwrap();
        *nonces += 1;
        *nonces
    }

    fn handle(&self) -> StoreCoordinator<Interrupted> {
        let store = Interrupted(self.world.store());
        StoreCoordinator::new(store, StoreConfig::new(self.nonce()))
    }

    fn records(&self) -> Box<dyn Repository> {
        let store = Interrupted(self.world.store());
        Box::new(StoreRepository::new(store, TENANT, self.nonce()))
    }

    /// Runs one worker from start to end.
    fn work(&self, number: u64, drain: &Drain) -> Result<Finish, RunWorkerError> {
        let config =
            WorkerConfig { worker: worker_of(RUN, number), seed: number, ..self.config.clone() };
        let process = |work: Work<'_>, _: &mut Vec<u8>| {
            sleep(self.key_takes);
            *self.done.lock().unwrap().entry(work.key().to_vec()).or_default() += 1;
            ItemResult::Done
        };
        let records = || self.records();
        let parts = Parts {
            coordinator: &|| self.handle(),
            connector: &numbered(self.keys),
            processor: &|_| Box::new(Inline::new(process)),
            records: self.has_records.then_some(&records),
            clock: &StoppedClock,
            host: &(),
            drain,
            observer: self,
        };
        work(&config, parts)
    }

    /// Frees a leased shard. Returns which, if there was one.
    fn revoke(&self) -> Option<ShardKey> {
        let (mut admin, mut rows) = (self.handle(), Vec::new());
        let time = || LogicalTime::from_raw(now());
        admin.list_shards_into(time(), TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
        let key = ShardKey::new(RUN, rows.iter().find(|row| row.leased)?.shard);
        let op_id = OpId::from_raw(self.nonce());
        admin.revoke_lease(time(), TENANT, key, None, op_id).ok().map(|_| key)
    }

    fn is_run_done(&self) -> bool {
        let run = self.world.handle().get_run(TENANT, RUN).unwrap();
        run.status() == RunStatus::Done
    }

    /// Returns whether each key was done exactly once.
    fn each_once(&self) -> bool {
        self.each_done() && self.done.lock().unwrap().values().all(|times| *times == 1)
    }

    fn each_done(&self) -> bool {
        let done = self.done.lock().unwrap();
        (0..self.keys).all(|number| done.contains_key(&key(number)))
    }

    fn last_ended(&self) -> u64 {
        self.ended.lock().unwrap().iter().map(|(_, at, _)| *at).max().unwrap_or(0)
    }
}

impl Observer for Scene {
    fn observe(&self, event: Event<'_>) {
        if let Event::Ended { shard, outcome } = event {
            self.ended.lock().unwrap().push((shard, now(), *outcome == TaskOutcome::Lost));
        }
    }
}

/// Returns a number of ticks below `bound`, for this schedule.
fn some(bound: u64) -> u64 {
    shuttle::rand::thread_rng().gen_range(0..bound)
}

/// A worker without disturbances.
fn undisturbed() {
    let scene = Scene::new();
    assert_eq!(scene.work(1, &Drain::new()), Ok(Finish::Complete));
    assert_eq!(now(), scene.last_ended(), "a thread ended late");
    assert!(scene.is_run_done() && scene.each_once());
}

#[test]
fn under_every_schedule_each_key_is_done_once_and_no_thread_ends_late() {
    explore(undisturbed, SCHEDULES);
}

/// A worker drains at any moment, and another finishes the run.
fn drained() {
    let (scene, drain) = (Scene::new(), Drain::new());
    let (end, late) = scope(|scope| {
        let worker = scope.spawn(|| scene.work(1, &drain));
        sleep(some(1_500));
        let asked = now();
        drain.ask();
        (worker.join().unwrap(), now() - asked)
    });
    assert!(late <= KEY_TAKES, "{late} ticks");
    if end == Ok(Finish::Drained) {
        assert_eq!(scene.work(2, &Drain::new()), Ok(Finish::Complete));
    }
    assert!(scene.is_run_done() && scene.each_once(), "{end:?}");
}

#[test]
fn under_every_schedule_a_drain_waits_for_in_flight_items_and_no_longer() {
    explore(drained, SCHEDULES);
}

/// A worker without work drains, as it starts or while it waits.
fn idle() {
    let mut scene = Scene::new();
    scene.world.now = now();
    let mut other = scene.world.handle();
    while scene.world.claim(&mut other, TaskConfig::default(), 9).is_some() {}
    let drain = Drain::new();
    let late = scope(|scope| {
        let worker = scope.spawn(|| scene.work(1, &drain));
        sleep(some(2) * KEY_TAKES);
        let asked = now();
        drain.ask();
        assert_eq!(worker.join().unwrap(), Ok(Finish::Drained));
        now() - asked
    });
    assert_eq!(late, 0, "a thread missed the notification");
}

#[test]
fn under_every_schedule_a_drain_of_an_idle_worker_ends_it_at_once() {
    explore(idle, SCHEDULES);
}

/// Leases are revoked while they are renewed and while their shards end.
fn robbed(scene: &Scene) {
    let mut revoked = Vec::new();
    let end = scope(|scope| {
        let worker = scope.spawn(|| scene.work(1, &Drain::new()));
        for _ in 0..2 {
            sleep(some(ROUND));
            revoked.extend(scene.revoke().map(|shard| (shard, now())));
        }
        worker.join().unwrap()
    });
    assert_eq!(end, Ok(Finish::Complete));
    assert!(scene.is_run_done() && scene.each_done());
    let ended = scene.ended.lock().unwrap();
    let lost: Vec<_> = ended.iter().filter(|(_, _, is_lost)| *is_lost).collect();
    assert_eq!(lost.len(), revoked.len(), "each revoked lease is reported lost, and no other");
    for (shard, at) in revoked {
        let reported = lost.iter().find(|(lost, when, _)| *lost == shard && *when >= at);
        let when = reported.map(|(_, when, _)| *when);
        assert!(
            when.is_some_and(|when| when - at <= ROUND + scene.key_takes),
            "{when:?} after {at}"
        );
    }
}

/// The loss is reported by a renewal only.
fn robbed_in_silence() {
    robbed(&Scene::new());
}

/// The loss is reported by a checkpoint, too, concurrently with a renewal, and the next shard is
/// claimed at once. There are few keys, so that a small share of the schedules suffices.
fn robbed_in_the_open() {
    let roots: [(&[u8], &[u8]); 2] = [(b"a", b"k001"), (b"k001", b"z")];
    let mut scene = Scene { keys: 2, key_takes: ROUND, ..Scene::of(&roots) };
    scene.config.threads = 1;
    scene.config.task.checkpoint_items = 1;
    robbed(&scene);
}

#[test]
fn under_every_schedule_a_lost_lease_is_reported_to_its_holder_only() {
    explore(robbed_in_silence, SCHEDULES);
    explore(robbed_in_the_open, SCHEDULES);
}

/// The machine pauses all threads for longer than a lease, whatever they are doing.
fn paused() {
    let scene = Scene::new();
    let end = scope(|scope| {
        let worker = scope.spawn(|| scene.work(1, &Drain::new()));
        for _ in 0..2 {
            sleep(some(ROUND));
            pass(LEASE + some(LEASE));
        }
        worker.join().unwrap()
    });
    assert_eq!(end, Ok(Finish::Complete));
    assert!(scene.is_run_done() && scene.each_done());
}

#[test]
fn under_every_schedule_a_pause_beyond_the_lease_loses_no_key() {
    explore(paused, SCHEDULES);
}

/// An administrator requests a handoff from one worker to another, and then one of them drains.
fn moved() {
    let scene = Scene { has_records: true, ..Scene::new() };
    let (first, second) = (Drain::new(), Drain::new());
    let ends = scope(|scope| {
        let one = scope.spawn(|| scene.work(1, &first));
        sleep(some(ROUND));
        let two = scope.spawn(|| scene.work(2, &second));
        let shard = ShardKey::new(RUN, ShardId::from_raw(1));
        let (time, action) = (LogicalTime::from_raw(now()), ShardAction::HandOff(None));
        let (until, op_id) = (time.saturating_add(2_000), OpId::from_raw(77));
        // Refused if the shard has already ended.
        drop(scene.handle().request_action(time, TENANT, shard, &action, until, op_id));
        sleep(some(2 * ROUND));
        first.ask();
        [one.join().unwrap(), two.join().unwrap()]
    });
    assert!(ends.contains(&Ok(Finish::Complete)), "{ends:?}");
    assert!(scene.is_run_done() && scene.each_once());
}

#[test]
fn under_every_schedule_a_handoff_repeats_no_key_and_a_drain_overtakes_it() {
    explore(moved, SCHEDULES / 4);
}
