use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, OpId, ShardId, ShardKey, WorkerId};
use gossip_coordination::{
    EventKind, RunManagement as _, ShardAction, ShardFilter, ShardStatus, WorkerEntry, WorkerState,
};
use rstest::rstest;

use super::{Drain, Finish, Parts, RunWorkerError, WorkerConfig, work, worker_of};
use crate::clock::{Clock, SystemClock};
use crate::observer::{Event, Observer};
use crate::processor::{Inline, ItemResult, Work};
use crate::task::{TaskConfig, TaskOutcome};
use crate::test_support::{Coordinator, RUN, TENANT, World, counted, key, numbered};
use crate::throttle::Limits;

/// A lease that is renewed many times within a test.
const LEASE: u64 = 2_000;

const KEYS: usize = 300;

/// How long a key takes: a test has a few seconds of work, and a handoff takes half of one.
const KEY_TAKES: Duration = Duration::from_millis(15);

/// How long a key takes while a test waits for a handoff: 150 of them are more than ten seconds.
const SLOW_KEY_TAKES: Duration = Duration::from_millis(100);

fn config(number: u64, threads: usize) -> WorkerConfig {
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: worker_of(RUN, number),
        lease_ticks: LEASE,
        threads,
        // Checkpoints are made only by handoffs and at the end.
        task: TaskConfig {
            checkpoint_items: 10_000,
            checkpoint_ticks: 60_000,
            ..TaskConfig::default()
        },
        limits: Limits::default(),
        max_parked: 0,
        auto_split: false,
        store_patience: 60_000,
        seed: number,
    }
}

/// A record of the work of two workers.
#[derive(Default)]
struct Seen {
    done: Mutex<BTreeMap<Vec<u8>, u32>>,
    count: AtomicUsize,
    /// Makes a key take [`SLOW_KEY_TAKES`] until a handoff has ended.
    slow: AtomicBool,
    arrived: AtomicUsize,
    kept: AtomicUsize,
    moved: AtomicUsize,
    released: AtomicUsize,
}

impl Observer for Seen {
    fn observe(&self, event: Event<'_>) {
        if matches!(event, Event::Arrived { .. } | Event::Kept { .. }) {
            self.slow.store(false, Ordering::SeqCst);
        }
        match event {
            Event::Arrived { .. } => self.arrived.fetch_add(1, Ordering::SeqCst),
            Event::Kernel(event) if matches!(event.kind, EventKind::ShardReleased { .. }) => {
                self.released.fetch_add(1, Ordering::SeqCst)
            }
            Event::Kept { .. } => self.kept.fetch_add(1, Ordering::SeqCst),
            Event::Ended { outcome: TaskOutcome::Moved, .. } => {
                self.moved.fetch_add(1, Ordering::SeqCst)
            }
            _ => 0,
        };
    }
}

impl Seen {
    fn process(&self, key: &[u8]) -> ItemResult {
        let takes = if self.slow.load(Ordering::SeqCst) { SLOW_KEY_TAKES } else { KEY_TAKES };
        thread::sleep(takes);
        *self.done.lock().unwrap().entry(key.to_vec()).or_default() += 1;
        self.count.fetch_add(1, Ordering::SeqCst);
        ItemResult::Done
    }

    /// Waits until this many keys are done.
    fn wait_for(&self, keys: usize) {
        const LOOKS: usize = 5_000;
        for _ in 0..LOOKS {
            if self.count.load(Ordering::SeqCst) >= keys {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("the first keys are never done");
    }

    fn each_once(&self) -> bool {
        let done = self.done.lock().unwrap();
        (0..KEYS).all(|number| done.get(&key(number)) == Some(&1))
    }
}

fn run(
    world: &World,
    config: &WorkerConfig,
    drain: &Drain,
    seen: &Seen,
) -> Result<Finish, RunWorkerError> {
    let clock = SystemClock::new();
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &numbered(KEYS),
        processor: &|_| {
            Box::new(Inline::new(|work: Work<'_>, _: &mut Vec<u8>| seen.process(work.key())))
        },
        records: Some(&|| world.records()),
        clock: &clock,
        host: &(),
        drain,
        observer: seen,
    };
    work(config, parts)
}

/// Runs a worker that has every shard and one that has none, and calls `act` in the middle.
fn two(
    world: &World,
    act: &(dyn Fn(&Drain) + Sync),
) -> (Seen, [Result<Finish, RunWorkerError>; 2]) {
    let (seen, first, second) = (Seen::default(), Drain::new(), Drain::new());
    let ends = thread::scope(|scope| {
        let one = scope.spawn(|| run(world, &config(1, 2), &first, &seen));
        seen.wait_for(10);
        let two = scope.spawn(|| run(world, &config(2, 2), &second, &seen));
        wait_for_idle(world);
        act(&first);
        [one.join().unwrap(), two.join().unwrap()]
    });
    (seen, ends)
}

/// Waits until the second worker is registered as idle.
fn wait_for_idle(world: &World) {
    const LOOKS: usize = 5_000;
    for _ in 0..LOOKS {
        let (mut workers, now) = (Vec::new(), SystemClock::new().now());
        world.handle().list_workers_into(now, TENANT, &mut workers).unwrap();
        let second = |entry: &&WorkerEntry| entry.worker == worker_of(RUN, 2);
        if workers.iter().find(second).is_some_and(|entry| entry.state == WorkerState::Idle) {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("it is never idle");
}

/// Waits until a handoff has begun.
fn wait_for_move(world: &World) {
    const LOOKS: usize = 5_000;
    let mut records = world.records();
    for _ in 0..LOOKS {
        if !records.page(None, 1).unwrap().found.is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("it never begins");
}

/// Waits until each of two workers holds one shard, and returns that of the first.
///
/// Which of the two shards a worker claims first is not certain.
fn wait_for_one_each(world: &World) -> ShardKey {
    const LOOKS: usize = 5_000;
    for _ in 0..LOOKS {
        let (mut rows, now) = (Vec::new(), SystemClock::new().now());
        let filter = ShardFilter::all();
        world.handle().list_shards_into(now, TENANT, RUN, filter, &mut rows).unwrap();
        let held = |number| {
            let owner = Some(worker_of(RUN, number));
            rows.iter().find(|row| row.leased && row.owner == owner).map(|row| row.shard)
        };
        if let (Some(first), Some(_)) = (held(1), held(2)) {
            return ShardKey::new(RUN, first);
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("two workers never hold a shard each");
}

/// Waits until `shard` has no lease.
fn wait_until_released(admin: &mut Coordinator, shard: ShardKey) {
    const LOOKS: usize = 5_000;
    for _ in 0..LOOKS {
        let (mut rows, now) = (Vec::new(), SystemClock::new().now());
        admin.list_shards_into(now, TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
        if rows.iter().any(|row| row.shard == shard.shard() && !row.leased) {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("it is never given back");
}

fn halves() -> World {
    World::lasting(LEASE, &[(b"a", b"k150"), (b"k150", b"z")])
}

#[test]
fn a_drained_worker_hands_its_shards_off_and_repeats_no_key() {
    let mut world = halves();
    let (seen, ends) = two(&world, &|drain| drain.ask());
    assert_eq!(ends, [Ok(Finish::Drained), Ok(Finish::Complete)]);
    assert_eq!(seen.arrived.load(Ordering::SeqCst), 2);
    assert_eq!(seen.moved.load(Ordering::SeqCst), 2);
    assert!(seen.each_once());
    // Only the handoffs and the end made checkpoints, and the counts are complete.
    let rows = world.rows();
    assert_eq!(rows.iter().map(|row| counted(row).0).sum::<u64>(), KEYS as u64);
    assert!(rows.iter().all(|row| row.last_handoff.is_some() && row.acquire_count == 2));
}

#[test]
fn a_drain_without_an_idle_worker_releases() {
    let mut world = halves();
    let (seen, drain) = (Seen::default(), Drain::new());
    let end = thread::scope(|scope| {
        let one = scope.spawn(|| run(&world, &config(1, 2), &drain, &seen));
        seen.wait_for(20);
        drain.ask();
        one.join().unwrap()
    });
    assert_eq!(end, Ok(Finish::Drained));
    let rows = world.rows();
    assert!(rows.iter().all(|row| !row.leased && row.status == ShardStatus::Active));
    let counted = rows.iter().map(|row| counted(row).0).sum::<u64>();
    assert_eq!(counted, seen.count.load(Ordering::SeqCst) as u64, "everything done is recorded");
}

#[test]
fn an_administrator_hands_one_shard_off() {
    let world = halves();
    let shard = ShardKey::new(RUN, ShardId::from_raw(1));
    let ask = |_: &Drain| {
        let now = SystemClock::new().now();
        let action = ShardAction::HandOff(Some(worker_of(RUN, 2)));
        let (until, op_id) = (now.saturating_add(5_000), OpId::from_raw(77));
        let mut admin = world.handle();
        admin.request_action(now, TENANT, shard, &action, until, op_id).unwrap();
    };
    let (seen, ends) = two(&world, &ask);
    // The last worker completes the run.
    assert!(ends.contains(&Ok(Finish::Complete)), "{ends:?}");
    assert_eq!(seen.arrived.load(Ordering::SeqCst), 1);
    assert!(seen.each_once());
}

/// The target accepts when its only thread is free, or the holder continues; the shard is never
/// without a holder in between.
#[test]
fn a_busy_worker_accepts_no_shard() {
    let mut world = halves();
    let (seen, drains) = (Seen::default(), [Drain::new(), Drain::new()]);
    // On a busy machine the shards would be done before their holder has read the request.
    seen.slow.store(true, Ordering::SeqCst);
    let ends = thread::scope(|scope| {
        let one = scope.spawn(|| run(&world, &config(1, 1), &drains[0], &seen));
        seen.wait_for(5);
        let two = scope.spawn(|| run(&world, &config(2, 1), &drains[1], &seen));
        let shard = wait_for_one_each(&world);
        let now = SystemClock::new().now();
        let action = ShardAction::HandOff(Some(worker_of(RUN, 2)));
        let (until, op_id) = (now.saturating_add(60_000), OpId::from_raw(77));
        world.handle().request_action(now, TENANT, shard, &action, until, op_id).unwrap();
        [one.join().unwrap(), two.join().unwrap()]
    });
    assert!(ends.contains(&Ok(Finish::Complete)), "{ends:?}");
    let ended = seen.arrived.load(Ordering::SeqCst) + seen.kept.load(Ordering::SeqCst);
    assert_eq!((seen.released.load(Ordering::SeqCst), ended), (0, 1));
    assert!(seen.each_once());
    assert!(world.rows().iter().all(|row| row.status == ShardStatus::Done));
}

/// A worker that does not exist, one of another run, the holder itself.
#[rstest]
#[case::gone(worker_of(RUN, 999), 1)]
#[case::stranger(WorkerId::from_raw(999), 0)]
#[case::oneself(worker_of(RUN, 1), 0)]
fn a_move_without_a_destination_leaves_the_shard(#[case] to: WorkerId, #[case] offers: usize) {
    let mut world = halves();
    let shard = ShardKey::new(RUN, ShardId::from_raw(1));
    let ask = |_: &Drain| {
        let now = SystemClock::new().now();
        let action = ShardAction::HandOff(Some(to));
        let (until, op_id) = (LogicalTime::from_raw(now.as_raw() + 5_000), OpId::from_raw(77));
        world.handle().request_action(now, TENANT, shard, &action, until, op_id).unwrap();
    };
    let (seen, ends) = two(&world, &ask);
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    assert_eq!(seen.arrived.load(Ordering::SeqCst), 0);
    assert_eq!(seen.kept.load(Ordering::SeqCst), offers, "every failed offer is reported");
    assert!(seen.each_once());
    assert!(world.rows().iter().all(|row| row.acquire_count == 1), "it was never released");
}

/// A shard that its holder loses while it is offered does not continue there, and is not reported
/// as kept.
#[rstest]
#[case::revoked(|admin: &mut Coordinator, now, shard| {
    admin.revoke_lease(now, TENANT, shard, None, OpId::from_raw(78)).unwrap();
})]
#[case::paused(|admin: &mut Coordinator, now, shard| {
    admin.pause_run(now, TENANT, RUN, OpId::from_raw(78)).unwrap();
    wait_until_released(admin, shard);
    admin.resume_run(SystemClock::new().now(), TENANT, RUN, OpId::from_raw(79)).unwrap();
})]
fn a_shard_that_is_lost_while_offered_is_not_reported_as_kept(
    #[case] lose: fn(&mut Coordinator, LogicalTime, ShardKey),
) {
    let mut world = halves();
    let shard = ShardKey::new(RUN, ShardId::from_raw(1));
    let act = |_: &Drain| {
        let now = SystemClock::new().now();
        let action = ShardAction::HandOff(Some(worker_of(RUN, 999)));
        let (until, mut admin) = (now.saturating_add(5_000), world.handle());
        admin.request_action(now, TENANT, shard, &action, until, OpId::from_raw(77)).unwrap();
        wait_for_move(&world);
        lose(&mut admin, SystemClock::new().now(), shard);
    };
    let (seen, ends) = two(&world, &act);
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    assert_eq!(seen.kept.load(Ordering::SeqCst), 0);
    assert!(world.rows().iter().all(|row| row.status == ShardStatus::Done));
}

/// A worker that drains while a requested shard is not frozen yet waits for neither for ever.
#[test]
fn a_drain_overtakes_a_requested_handoff() {
    let mut world = halves();
    let shard = ShardKey::new(RUN, ShardId::from_raw(1));
    let ask = |drain: &Drain| {
        let now = SystemClock::new().now();
        let (action, until) = (ShardAction::HandOff(None), now.saturating_add(5_000));
        let op_id = OpId::from_raw(77);
        world.handle().request_action(now, TENANT, shard, &action, until, op_id).unwrap();
        thread::sleep(Duration::from_millis(LEASE / 3));
        drain.ask();
    };
    let (seen, ends) = two(&world, &ask);
    assert_eq!(ends, [Ok(Finish::Drained), Ok(Finish::Complete)]);
    assert!(seen.each_once());
    assert!(world.rows().iter().all(|row| row.status == ShardStatus::Done));
}
