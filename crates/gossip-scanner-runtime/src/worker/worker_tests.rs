use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, PageItem,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::{OpId, RunId, ShardKey, WorkerId};
use gossip_coordination::{
    EventKind, ParkReason, RunManagement, RunStatus, ShardAction, ShardFilter, ShardStatus,
    WorkerState,
};

use super::renewer::Renewer;
use super::{Drain, Finish, Parts, RunWorkerError, WorkerConfig, WorkerShared, work};
use crate::clock::{Clock, SystemClock};
use crate::observer::{Event, Observer};
use crate::processor::{Broken, Inline, ItemResult, Processor, Report, Work};
use crate::task::{TaskConfig, TaskOutcome};
use crate::test_support::{RUN, TENANT, World, at, counted, key, numbered};
use crate::throttle::Limits;

/// A lease that is renewed many times within a test.
const LEASE: u64 = 300;

fn config(threads: usize) -> WorkerConfig {
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: WorkerId::from_raw(1),
        lease_ticks: LEASE,
        threads,
        task: TaskConfig { checkpoint_items: 5, retry_first: 1, ..TaskConfig::default() },
        limits: Limits::default(),
        max_parked: 10,
        auto_split: false,
        store_patience: 60_000,
        seed: 1,
    }
}

type Done = Mutex<BTreeMap<Vec<u8>, u32>>;

/// Runs one worker over `connector`, whose processor calls `process` for each key.
fn run(
    world: &World,
    config: &WorkerConfig,
    connector: &dyn Connector,
    drain: &Drain,
    observer: &dyn Observer,
    process: &(dyn Fn(&[u8]) -> ItemResult + Sync),
) -> Result<Finish, RunWorkerError> {
    let clock = SystemClock::new();
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector,
        processor: &|_| {
            Box::new(Inline::new(|work: Work<'_>, _: &mut Vec<u8>| process(work.key())))
        },
        records: None,
        clock: &clock,
        host: &(),
        drain,
        observer,
    };
    work(config, parts)
}

fn note(done: &Done, key: &[u8]) -> ItemResult {
    *done.lock().unwrap().entry(key.to_vec()).or_default() += 1;
    ItemResult::Done
}

fn roots() -> World {
    World::lasting(
        LEASE,
        &[(b"a", b"k020"), (b"k020", b"k040"), (b"k040", b"k060"), (b"k060", b"z")],
    )
}

fn status(world: &World) -> RunStatus {
    world.handle().get_run(TENANT, RUN).unwrap().status()
}

#[test]
fn a_worker_processes_every_key_once_and_completes_the_run() {
    let (world, done) = (roots(), Done::default());
    let process = |key: &[u8]| note(&done, key);
    let finish = run(&world, &config(3), &numbered(80), &Drain::new(), &(), &process);
    assert_eq!(finish, Ok(Finish::Complete));
    assert_eq!(status(&world), RunStatus::Done);
    assert!((0..80).all(|number| done.lock().unwrap()[&key(number)] == 1));
    // A second worker has nothing to do.
    let finish = run(&world, &config(2), &numbered(80), &Drain::new(), &(), &process);
    assert_eq!(finish, Ok(Finish::Complete));
    assert_eq!(done.lock().unwrap().values().sum::<u32>(), 80);
}

#[test]
fn a_run_with_a_parked_shard_stays_active() {
    let mut world = roots();
    let process = |seen: &[u8]| match seen == key(33) {
        true => ItemResult::Failed("no good".into()),
        false => ItemResult::Done,
    };
    let finish = run(&world, &config(2), &numbered(80), &Drain::new(), &(), &process);
    assert_eq!(finish, Ok(Finish::Incomplete { parked: 1, damaged: 0 }));
    assert_eq!(status(&world), RunStatus::Active);
    assert_eq!(world.rows().iter().map(|row| counted(row).0).sum::<u64>(), 79);
}

/// Everything after a parked key goes to a new shard. The results of its items that were already
/// processed are cached in the process. One thread: another one may claim the shard before they are
/// cached.
#[test]
fn keys_after_a_parked_one_are_not_repeated() {
    let (mut world, done) = (roots(), Done::default());
    let fails = |number: usize| number % 7 == 3;
    let process = |seen: &[u8]| {
        note(&done, seen);
        match (0..80).any(|number| fails(number) && seen == key(number)) {
            true => ItemResult::Failed("no good".into()),
            false => ItemResult::Done,
        }
    };
    let config = WorkerConfig { max_parked: 80, ..config(1) };
    let finish = run(&world, &config, &numbered(80), &Drain::new(), &(), &process);
    let parked = (0..80).filter(|number| fails(*number)).count() as u64;
    assert_eq!(finish, Ok(Finish::Incomplete { parked, damaged: 0 }));
    for number in 0..80 {
        let expected = if fails(number) { config.task.item_tries } else { 1 };
        assert_eq!(done.lock().unwrap()[&key(number)], expected, "key {number}");
    }
    assert_eq!(world.rows().iter().map(|row| counted(row).0).sum::<u64>(), 80 - parked);
}

#[test]
fn too_many_parked_shards_stop_the_worker_and_release_the_rest() {
    let mut world = roots();
    let config = WorkerConfig { max_parked: 3, ..config(2) };
    let process = |_: &[u8]| ItemResult::Hopeless("broken".into());
    let finish = run(&world, &config, &numbered(80), &Drain::new(), &(), &process);
    let Err(RunWorkerError::TooManyParked { parked: 4, max: 3 }) = finish else {
        panic!("{finish:?}");
    };
    let rows = world.rows();
    assert!(rows.iter().any(|row| row.status == ShardStatus::Active && !row.leased));
    assert!(rows.iter().filter(|row| row.status == ShardStatus::Parked).count() <= 6);
}

/// The worker has ended with an error, and an item of another runner takes several leases longer.
#[test]
fn leases_are_kept_until_the_last_item_is_settled() {
    let mut world = roots();
    let config = WorkerConfig { max_parked: 0, ..config(2) };
    let both_at_work = Barrier::new(2);
    let process = |seen: &[u8]| {
        both_at_work.wait();
        if seen == key(0) {
            return ItemResult::Hopeless("ends the worker".into());
        }
        thread::sleep(Duration::from_millis(4 * LEASE));
        ItemResult::Done
    };
    let finish = run(&world, &config, &numbered(80), &Drain::new(), &(), &process);
    assert_eq!(finish, Err(RunWorkerError::TooManyParked { parked: 1, max: 0 }));
    let rows = world.rows();
    assert!(rows.iter().all(|row| !row.leased), "every shard was released");
    assert_eq!(rows.iter().map(|row| counted(row).0).sum::<u64>(), 1, "the item is recorded");
}

/// Also with leases that are much longer than the TTL of a registry entry.
#[test]
fn a_dropped_registry_entry_is_restored_within_a_round() {
    let (world, clock, drain) = (roots(), SystemClock::new(), Drain::new());
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &numbered(0),
        processor: &|_| Box::new(Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done)),
        clock: &clock,
        host: &(),
        drain: &drain,
        observer: &(),
        records: None,
    };
    let shared = WorkerShared::new(&WorkerConfig { lease_ticks: 600_000, ..config(1) }, parts);
    let mut renewer = Renewer::new(&shared);
    let is_known = |now: u64| {
        let mut workers = Vec::new();
        world.handle().list_workers_into(at(now), TENANT, &mut workers).unwrap();
        !workers.is_empty()
    };
    let again = renewer.round(at(1000));
    assert!(is_known(1000 + 2 * again), "two heartbeats may be lost");
    // A process that was suspended for a long time registers again in its first round.
    assert!(!is_known(1000 + 600_000));
    renewer.round(at(1000 + 600_000));
    assert!(is_known(1000 + 600_000));
}

#[test]
fn a_drained_worker_keeps_its_progress_and_leaves_no_lease() {
    let (mut world, done, drain) = (roots(), Done::default(), Drain::new());
    let process = |key: &[u8]| {
        if done.lock().unwrap().len() == 30 {
            drain.ask();
        }
        note(&done, key)
    };
    let finish = run(&world, &config(2), &numbered(80), &drain, &(), &process);
    assert_eq!(finish, Ok(Finish::Drained));
    let rows = world.rows();
    assert!(rows.iter().all(|row| !row.leased));
    let covered: u64 = rows.iter().map(|row| counted(row).0).sum();
    assert_eq!(covered, done.lock().unwrap().len() as u64, "every finished item is checkpointed");
    let again = |key: &[u8]| note(&done, key);
    let finish = run(&world, &config(2), &numbered(80), &Drain::new(), &(), &again);
    assert_eq!(finish, Ok(Finish::Complete));
    assert!(
        done.lock().unwrap().values().all(|times| *times == 1),
        "a planned stop redoes nothing"
    );
}

/// An item takes several leases: the renewer keeps its lease valid.
#[test]
fn an_item_may_take_longer_than_a_lease() {
    let (world, done) = (World::lasting(LEASE, &[(b"a", b"z")]), Done::default());
    let process = |seen: &[u8]| {
        if seen == key(1) {
            thread::sleep(Duration::from_millis(3 * LEASE));
        }
        note(&done, seen)
    };
    let finish = run(&world, &config(1), &numbered(3), &Drain::new(), &(), &process);
    assert_eq!(finish, Ok(Finish::Complete));
    assert_eq!(done.lock().unwrap()[&key(1)], 1);
}

/// Calls a function once, at the first event of a kind.
struct Once<'a>(AtomicUsize, &'a (dyn Fn(&Event<'_>) -> bool + Sync));

impl Observer for Once<'_> {
    fn observe(&self, event: Event<'_>) {
        if self.0.load(Ordering::SeqCst) == 0 && (self.1)(&event) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Returns the shard, if the event is a checkpoint.
fn checkpointed(event: &Event<'_>) -> Option<ShardKey> {
    let Event::Kernel(event) = event else { return None };
    let EventKind::ShardCheckpointed { shard, .. } = event.kind else { return None };
    Some(ShardKey::new(event.run, shard))
}

#[test]
fn a_cancelled_run_stops_its_workers() {
    let world = roots();
    let clock = SystemClock::new();
    let cancel = |event: &Event<'_>| {
        checkpointed(event).is_some()
            && world.handle().cancel_run(clock.now(), TENANT, RUN, OpId::from_raw(5)).is_ok()
    };
    let done = Done::default();
    let process = |key: &[u8]| {
        thread::sleep(Duration::from_millis(5));
        note(&done, key)
    };
    let observer = Once(AtomicUsize::new(0), &cancel);
    let finish = run(&world, &config(2), &numbered(80), &Drain::new(), &observer, &process);
    assert_eq!(finish, Ok(Finish::RunOver(RunStatus::Cancelled)));
    // Finished work is not thrown away, and no lease is left behind.
    let mut rows = Vec::new();
    let all = ShardFilter::all();
    world.handle().list_shards_into(clock.now(), TENANT, RUN, all, &mut rows).unwrap();
    assert!(rows.iter().all(|row| !row.leased && row.owner.is_none()), "{rows:?}");
    let stored: u64 = rows.iter().map(|row| crate::progress::counted(row).0).sum();
    assert_eq!(stored as usize, done.lock().unwrap().len());
}

#[test]
fn a_paused_run_waits_until_it_is_resumed() {
    let (world, done, clock) = (roots(), Done::default(), SystemClock::new());
    let toggle = |event: &Event<'_>| match event {
        event if checkpointed(event).is_some() && done.lock().unwrap().len() < 20 => {
            let mut admin = world.handle();
            admin.pause_run(clock.now(), TENANT, RUN, OpId::from_raw(5)).unwrap();
            false
        }
        Event::Paused => {
            let mut admin = world.handle();
            admin.resume_run(clock.now(), TENANT, RUN, OpId::from_raw(6)).is_ok()
        }
        _ => false,
    };
    let process = |key: &[u8]| {
        thread::sleep(Duration::from_millis(20));
        note(&done, key)
    };
    let observer = Once(AtomicUsize::new(0), &toggle);
    let finish = run(&world, &config(2), &numbered(80), &Drain::new(), &observer, &process);
    assert_eq!(finish, Ok(Finish::Complete));
    // Both threads may see it before either has resumed it.
    assert_ne!(observer.0.load(Ordering::SeqCst), 0, "it was paused and resumed");
    assert!(done.lock().unwrap().values().all(|times| *times == 1));
}

#[test]
fn a_request_to_release_reaches_the_owner() {
    let (world, done, clock) =
        (World::lasting(LEASE, &[(b"a", b"z")]), Done::default(), SystemClock::new());
    let ask = |event: &Event<'_>| {
        let Some(shard) = checkpointed(event) else { return false };
        let mut admin = world.handle();
        let (now, op_id) = (clock.now(), OpId::from_raw(5));
        let until = now.saturating_add(60_000);
        admin.request_action(now, TENANT, shard, &ShardAction::Release, until, op_id).is_ok()
    };
    let released = AtomicUsize::new(0);
    let observe = |event: &Event<'_>| {
        if matches!(event, Event::Ended { outcome: TaskOutcome::Released, .. }) {
            released.fetch_add(1, Ordering::SeqCst);
        }
        ask(event)
    };
    let process = |key: &[u8]| {
        thread::sleep(Duration::from_millis(5));
        note(&done, key)
    };
    let observer = Once(AtomicUsize::new(0), &observe);
    let finish = run(&world, &config(1), &numbered(80), &Drain::new(), &observer, &process);
    assert_eq!(finish, Ok(Finish::Complete));
    let mut world = world;
    let row = &world.rows()[0];
    assert_eq!((counted(row).0, row.acquire_count), (80, 2), "released once, and taken again");
    assert!(done.lock().unwrap().values().all(|times| *times == 1));
}

#[test]
fn idle_threads_make_busy_ones_split() {
    let (mut world, done) = (World::lasting(LEASE, &[(b"a", b"z")]), Done::default());
    let config = WorkerConfig { auto_split: true, ..config(4) };
    let process = |key: &[u8]| {
        thread::sleep(Duration::from_millis(5));
        note(&done, key)
    };
    let finish = run(&world, &config, &numbered(200), &Drain::new(), &(), &process);
    assert_eq!(finish, Ok(Finish::Complete));
    let rows = world.rows();
    assert!(rows.len() >= 4, "{} shards", rows.len());
    assert_eq!(rows.iter().map(|row| counted(row).0).sum::<u64>(), 200);
    assert!(done.lock().unwrap().values().all(|times| *times == 1), "a split redoes nothing");
}

#[test]
fn a_worker_registers_and_reports_its_state() {
    let world = roots();
    let seen = Mutex::new(Vec::new());
    let process = |_: &[u8]| {
        thread::sleep(Duration::from_millis(20));
        let mut workers = Vec::new();
        let now = SystemClock::new().now();
        world.handle().list_workers_into(now, TENANT, &mut workers).unwrap();
        seen.lock().unwrap().extend(workers);
        ItemResult::Done
    };
    run(&world, &config(2), &numbered(30), &Drain::new(), &(), &process).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|entry| entry.worker == WorkerId::from_raw(1)));
    assert!(seen.iter().any(|entry| entry.state == WorkerState::Working));
}

/// Panics when the second shard is listed: a bug of the connector.
struct Touchy(gossip_contracts::connector::MemoryConnector);

impl Connector for Touchy {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        assert!(range.start != b"k020", "a broken invariant");
        self.0.enumerate(range, from)
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        self.0.open(item, scratch)
    }
}

#[test]
fn a_panic_parks_its_shard_and_the_others_continue() {
    let mut world = roots();
    let process = |_: &[u8]| ItemResult::Done;
    let finish = run(&world, &config(2), &Touchy(numbered(80)), &Drain::new(), &(), &process);
    assert_eq!(finish, Ok(Finish::Incomplete { parked: 1, damaged: 0 }));
    let rows = world.rows();
    let parked: Vec<_> = rows.iter().filter(|row| row.status == ShardStatus::Parked).collect();
    assert_eq!((parked.len(), &*parked[0].start), (1, b"k020".as_slice()));
    assert_eq!(parked[0].park_reason, Some(ParkReason::Poisoned));
    assert_eq!(world.park_texts(), [Some("the task of this shard panicked".into())]);
}

struct NoProgram;

impl Processor for NoProgram {
    fn capacity(&self) -> usize {
        1
    }

    fn submit(&mut self, _work: Work<'_>) -> Result<(), Broken> {
        Err(Broken::Failed("no such program".into()))
    }

    fn collect(&mut self, _: Duration, _: &mut Vec<Report>) -> Result<(), Broken> {
        Ok(())
    }

    fn abandon(&mut self) {}
}

#[test]
fn a_broken_processor_stops_the_worker() {
    let mut world = roots();
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &numbered(80),
        processor: &|_| Box::new(NoProgram),
        records: None,
        clock: &SystemClock::new(),
        host: &(),
        drain: &Drain::new(),
        observer: &(),
    };
    let finish = work(&config(2), parts);
    assert_eq!(finish, Err(RunWorkerError::Broken(Broken::Failed("no such program".into()))));
    assert!(world.rows().iter().all(|row| !row.leased && row.status == ShardStatus::Active));
}

#[test]
fn a_missing_run_is_run_not_found() {
    let world = roots();
    let config = WorkerConfig { run: RunId::from_raw(99), ..config(1) };
    let finish = run(&world, &config, &numbered(1), &Drain::new(), &(), &|_| ItemResult::Done);
    assert_eq!(finish, Err(RunWorkerError::RunNotFound));
}
