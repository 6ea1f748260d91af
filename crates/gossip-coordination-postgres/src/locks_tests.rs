//! Two transactions have conflicting locks whenever one writes what the other compares or writes.

use std::sync::Arc;

use gossip_contracts::identity::{LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{Compare, Key, KeyRange, Txn};
use gossip_testkit::Rng;

use crate::locks::{LockPlan, seed};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);

const fn run(number: u64) -> RunId {
    RunId::from_raw(number)
}

const fn shard(number: u64) -> ShardKey {
    ShardKey::new(run(1), ShardId::from_raw(number))
}

fn plan(txn: &Txn) -> LockPlan {
    let mut plan = LockPlan::default();
    plan.add(seed("gossip"), txn);
    plan
}

/// Returns whether one of the plans waits for the other.
fn excludes(one: &LockPlan, other: &LockPlan) -> bool {
    let by_group = one.groups.iter().any(|(group, is_exclusive)| {
        other.groups.get(group).is_some_and(|also| *is_exclusive || *also)
    });
    let by_row = one.anchors.intersection(&other.anchors).next().is_some();
    by_group || by_row || one.locks_table || other.locks_table
}

/// The keys that the random transactions below use.
fn keys() -> Vec<Key> {
    let tenant = TENANT;
    let at = LogicalTime::from_raw(5);
    let mut keys = vec![
        Key::RunHead { tenant, run: run(1) },
        Key::RunHead { tenant, run: run(2) },
        Key::Tombstone { tenant, run: run(1) },
        Key::TenantCounter { tenant },
        Key::Worker { tenant, worker: WorkerId::from_raw(1) },
        Key::Allotment { tenant },
        Key::SchemaVersion,
    ];
    for number in 0..2 {
        let shard = shard(number);
        keys.extend([
            Key::ShardHot { tenant, shard },
            Key::ShardCold { tenant, shard },
            Key::ClaimIndex { tenant, shard, at },
            Key::ParkedIndex { tenant, shard },
        ]);
    }
    keys
}

fn random_txn(rng: &mut Rng, keys: &[Key]) -> Txn {
    let mut txn = Txn::new();
    for key in keys {
        match rng.below(40) {
            0..=4 => txn.expect_revision(*key, Some(3)),
            5 => txn.expect_revision(*key, None),
            6 => txn.expect_value(*key, Arc::new(vec![1])),
            _ => {}
        }
        match rng.below(40) {
            0 => txn.put(*key, vec![1]),
            1 => txn.delete(*key),
            _ => {}
        }
    }
    match rng.below(20) {
        0 => txn.expect_empty(KeyRange::claims_of(TENANT, run(1))),
        1 => txn.expect_empty(KeyRange::workers_of(TENANT)),
        _ => {}
    }
    txn
}

/// Returns whether `one` writes what `other` compares or writes, while the row that both would
/// lock exists.
fn interferes(one: &Txn, other: &Txn) -> bool {
    one.writes().iter().any(|write| {
        let key = write.key();
        let compares = |compare: &Compare| match compare {
            Compare::At { key: of, .. } | Compare::Value { key: of, .. } | Compare::Absent(of) => {
                of == key
            }
            Compare::Empty(range) => range.contains(key.to_bytes().as_bytes()),
        };
        other.writes().iter().any(|write| write.key() == key)
            || other.compares().iter().any(compares)
    })
}

#[test]
fn transactions_that_interfere_exclude_each_other() {
    let (mut rng, keys) = (Rng::seeded(1), keys());
    let (mut interfering, mut concurrent) = (0, 0);
    for _ in 0..50_000 {
        let (one, other) = (random_txn(&mut rng, &keys), random_txn(&mut rng, &keys));
        if interferes(&one, &other) || interferes(&other, &one) {
            interfering += 1;
            assert!(excludes(&plan(&one), &plan(&other)), "{one:?}\n{other:?}");
        } else {
            concurrent += usize::from(!excludes(&plan(&one), &plan(&other)));
        }
    }
    assert!(interfering > 5_000 && concurrent > 5_000, "{interfering} {concurrent}");
}

/// The usual commits of a lease holder: they must not wait for each other.
#[test]
fn checkpoints_of_different_shards_run_at_the_same_time() {
    let checkpoint = |number: u64| {
        let (tenant, shard) = (TENANT, shard(number));
        let mut txn = Txn::new();
        txn.expect_value(Key::RunHead { tenant, run: run(1) }, Arc::new(vec![1]));
        txn.expect_revision(Key::ShardHot { tenant, shard }, Some(3));
        txn.put(Key::ShardHot { tenant, shard }, vec![2]);
        txn.delete(Key::ClaimIndex { tenant, shard, at: LogicalTime::from_raw(5) });
        txn
    };
    let (one, other) = (plan(&checkpoint(1)), plan(&checkpoint(2)));
    assert!(!excludes(&one, &other), "{one:?}\n{other:?}");
    assert!(excludes(&one, &plan(&checkpoint(1))));
    let mut cancel = Txn::new();
    cancel.put(Key::RunHead { tenant: TENANT, run: run(1) }, vec![3]);
    assert!(excludes(&one, &plan(&cancel)));
}

/// The event of a grant or an end: each process writes slots of its own.
#[test]
fn commits_with_events_run_at_the_same_time() {
    let grant = |number: u64, slot: u16| {
        let (tenant, shard) = (TENANT, shard(number));
        let mut txn = Txn::new();
        txn.expect_value(Key::RunHead { tenant, run: run(1) }, Arc::new(vec![1]));
        txn.expect_revision(Key::ShardHot { tenant, shard }, Some(3));
        txn.put(Key::ShardHot { tenant, shard }, vec![2]);
        txn.put(Key::Event { tenant, run: run(1), writer: 9, slot }, vec![2]);
        txn
    };
    let (one, other) = (plan(&grant(1, 1)), plan(&grant(2, 2)));
    assert!(!excludes(&one, &other), "{one:?}\n{other:?}");
    // One that compares the event, as an upgrade of the format does, locks its row.
    let key = Key::Event { tenant: TENANT, run: run(1), writer: 9, slot: 1 };
    let mut upgrade = Txn::new();
    upgrade.expect_revision(key, Some(3));
    upgrade.put(key, vec![4]);
    assert!(plan(&upgrade).anchors.contains(key.to_bytes().as_bytes()));
    assert!(excludes(&plan(&upgrade), &plan(&upgrade)));
}

#[test]
fn stores_in_one_database_have_different_locks() {
    let mut txn = Txn::new();
    txn.put(Key::RunHead { tenant: TENANT, run: run(1) }, vec![1]);
    let mut other = LockPlan::default();
    other.add(seed("other"), &txn);
    assert!(!excludes(&plan(&txn), &other));
}
