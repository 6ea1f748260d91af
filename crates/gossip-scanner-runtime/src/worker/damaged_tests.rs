//! A worker with a damaged shard processes all others, and ends incomplete.

use std::sync::Mutex;

use gossip_contracts::identity::{ShardId, ShardKey, WorkerId};
use gossip_coordination::store::{Answer, Key, Read, Store as _, Txn};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend as _, RunManagement as _, RunStatus, ShardDamage,
};
use rstest::rstest;

use super::{Drain, Finish, Parts, WorkerConfig, work};
use crate::clock::{Clock as _, SystemClock};
use crate::observer::{Event, Observer};
use crate::processor::{Inline, ItemResult, Work};
use crate::task::TaskConfig;
use crate::test_support::{RUN, TENANT, World, key, numbered};
use crate::throttle::Limits;

const LEASE: u64 = 300;
const KEYS: usize = 80;
/// Its range is `k020` to `k040`.
const VICTIM: ShardKey = ShardKey::new(RUN, ShardId::from_raw(2));

fn roots() -> World {
    let bounds: [(&[u8], &[u8]); 4] =
        [(b"a", b"k020"), (b"k020", b"k040"), (b"k040", b"k060"), (b"k060", b"z")];
    World::lasting(LEASE, &bounds)
}

fn config(threads: usize) -> WorkerConfig {
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: WorkerId::from_raw(1),
        lease_ticks: LEASE,
        threads,
        task: TaskConfig { checkpoint_items: 5, ..TaskConfig::default() },
        limits: Limits::default(),
        max_parked: 10,
        auto_split: true,
        store_patience: 60_000,
        seed: 1,
    }
}

/// Flips one bit of a part of the victim's record.
fn damage(world: &World, part: ShardDamage) {
    let (tenant, shard, mut store) = (TENANT, VICTIM, world.store());
    let key = match part {
        ShardDamage::Hot | ShardDamage::Both => Key::ShardHot { tenant, shard },
        ShardDamage::Cold => Key::ShardCold { tenant, shard },
    };
    let Answer::Value(Some(mut stored)) = store.read(vec![Read::Get(key)]).unwrap().remove(0)
    else {
        panic!("the shard is stored")
    };
    stored.bytes[8] ^= 0x10;
    let mut txn = Txn::new();
    txn.put(key, stored.bytes);
    store.commit(vec![txn]).remove(0).unwrap();
}

/// The damaged shards that were reported.
#[derive(Default)]
struct Reports(Mutex<Vec<ShardKey>>);

impl Observer for Reports {
    fn observe(&self, event: Event<'_>) {
        if let Event::Damaged { shard } = event {
            self.0.lock().unwrap().push(shard);
        }
    }
}

fn run(
    world: &World,
    threads: usize,
    reports: &Reports,
    process: &(dyn Fn(&[u8]) -> ItemResult + Sync),
) -> Finish {
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &numbered(KEYS),
        processor: &|_| {
            Box::new(Inline::new(|work: Work<'_>, _: &mut Vec<u8>| process(work.key())))
        },
        records: None,
        clock: &SystemClock::new(),
        host: &(),
        drain: &Drain::new(),
        observer: reports,
    };
    work(&config(threads), parts).unwrap()
}

#[rstest]
#[case::hot_by_one_thread(ShardDamage::Hot, 1)]
#[case::hot_by_three(ShardDamage::Hot, 3)]
#[case::cold(ShardDamage::Cold, 2)]
fn damaged_shard_is_reported_once_and_all_others_finish(
    #[case] part: ShardDamage,
    #[case] threads: usize,
) {
    let (world, reports, done) = (roots(), Reports::default(), Mutex::new(Vec::new()));
    damage(&world, part);
    let process = |key: &[u8]| {
        done.lock().unwrap().push(key.to_vec());
        ItemResult::Done
    };
    let finish = run(&world, threads, &reports, &process);
    assert_eq!(finish, Finish::Incomplete { parked: 0, damaged: 1 });
    assert_eq!(*reports.0.lock().unwrap(), [VICTIM]);
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    let others: Vec<_> = (0..20).chain(40..KEYS).map(key).collect();
    assert_eq!(done, others, "every key of the other shards, and no other key");
    assert_eq!(world.handle().get_run(TENANT, RUN).unwrap().status(), RunStatus::Active);
}

/// The claim index still has the lease, whose deadline is hours away. No claim takes a damaged
/// shard over, so nothing is left to wait for.
#[test]
fn damaged_shard_whose_deadline_lies_hours_ahead_is_not_waited_for() {
    const HOURS: u64 = 2 * 3_600_000;
    let (world, reports) = (roots(), Reports::default());
    let ahead = SystemClock::new().now().saturating_add(HOURS);
    let (mut scratch, dead) = (Box::<AcquireScratch>::default(), WorkerId::from_raw(9));
    world.handle().acquire_and_restore_into(ahead, TENANT, VICTIM, dead, &mut scratch).unwrap();
    damage(&world, ShardDamage::Hot);
    let finish = run(&world, 1, &reports, &|_| ItemResult::Done);
    assert_eq!(finish, Finish::Incomplete { parked: 0, damaged: 1 });
    assert_eq!(*reports.0.lock().unwrap(), [VICTIM]);
}

#[test]
fn record_damaged_while_its_shard_is_held_ends_that_shard_only() {
    let (world, reports, done) = (roots(), Reports::default(), Mutex::new(Vec::new()));
    let process = |seen: &[u8]| {
        if seen == key(27) {
            damage(&world, ShardDamage::Hot);
        }
        done.lock().unwrap().push(seen.to_vec());
        ItemResult::Done
    };
    let finish = run(&world, 2, &reports, &process);
    assert_eq!(finish, Finish::Incomplete { parked: 0, damaged: 1 });
    assert_eq!(*reports.0.lock().unwrap(), [VICTIM]);
    let done = done.into_inner().unwrap();
    assert!((0..20).chain(40..KEYS).all(|number| done.contains(&key(number))));
}
