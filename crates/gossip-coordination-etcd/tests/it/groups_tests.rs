//! Transactions that share a batch have the outcomes that each has alone.

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{
    Answer, AsyncStore, CommitOutcome, Conflict, Key, Read, Txn, Versioned,
};
use gossip_coordination::{InfraError, block_on};
use gossip_coordination_etcd::{EtcdConfig, EtcdKv, EtcdStore};
use gossip_testkit_etcd::sim_etcd_kv::SimEtcdKv;
use proptest::prelude::*;

use crate::real_servers::Servers;

type Outcome = Result<CommitOutcome, InfraError>;

const TENANT: TenantId = TenantId::from_bytes([7; 32]);

/// Runs of a test, and shards of each.
const RUNS: u64 = 3;
const SHARDS: u64 = 8;

fn head(run: u64) -> Key {
    Key::RunHead { tenant: TENANT, run: RunId::from_raw(run) }
}

fn hot(run: u64, number: u64) -> Key {
    let shard = ShardKey::new(RunId::from_raw(run), ShardId::from_raw(number));
    Key::ShardHot { tenant: TENANT, shard }
}

fn at(revision: u64) -> Versioned {
    Versioned { revision, bytes: Vec::new() }
}

/// As a checkpoint: compares a shard and the head of its run, and writes the shard.
fn checkpoint(run: u64, number: u64, hot_at: u64, head_at: u64) -> Txn {
    let mut txn = Txn::new();
    txn.expect(hot(run, number), Some(&at(hot_at)));
    txn.expect(head(run), Some(&at(head_at)));
    txn.put(hot(run, number), vec![9; 8]);
    txn
}

/// As one who expects no conflict.
fn terse(mut txn: Txn) -> Txn {
    txn.skip_read_back();
    txn
}

fn config() -> EtcdConfig {
    EtcdConfig::new(["h:1"], "groups").expect("the usual settings work")
}

async fn revision<S: AsyncStore>(store: &mut S, key: Key) -> u64 {
    let answers = store.read(vec![Read::Get(key)]).await.expect("the store works");
    match &answers[..] {
        [Answer::Value(Some(value))] => value.revision,
        other => panic!("{other:?}"),
    }
}

/// Writes every head and every shard once.
async fn populate<S: AsyncStore>(store: &mut S) {
    for run in 0..RUNS {
        let mut txn = Txn::new();
        txn.put(head(run), vec![1]);
        (0..SHARDS).for_each(|number| txn.put(hot(run, number), vec![1]));
        assert!(matches!(store.commit(vec![txn]).await[..], [Ok(CommitOutcome::Applied { .. })]));
    }
}

/// A checkpoint that expects the shard and the head as they are, or not.
async fn expecting<S: AsyncStore>(
    store: &mut S,
    (run, number, hot_is_right, head_is_right): (u64, u64, bool, bool),
) -> Txn {
    let hot_at = revision(store, hot(run, number)).await - u64::from(!hot_is_right);
    let head_at = revision(store, head(run)).await - u64::from(!head_is_right);
    match checkpoint(run, number, hot_at, head_at) {
        txn if number % 3 == 0 => terse(txn),
        txn => txn,
    }
}

/// Returns the keys of a conflict, none if there is no conflict. A conflict without read-back
/// yields its single key.
fn conflicting(outcome: &Outcome) -> Vec<Key> {
    match outcome {
        Ok(CommitOutcome::Applied { .. }) => Vec::new(),
        Ok(CommitOutcome::Conflict(conflict)) => {
            let keys = Conflict::found(conflict).iter().map(|(key, _)| *key);
            if conflict.found().is_empty() { vec![conflict.key()] } else { keys.collect() }
        }
        other => panic!("{other:?}"),
    }
}

/// Transactions committed together have the outcomes that each has alone.
async fn together_as_alone<K: EtcdKv>(
    mut together: EtcdStore<K>,
    mut alone: EtcdStore<K>,
    wishes: &[(u64, u64, bool, bool)],
) {
    populate(&mut together).await;
    populate(&mut alone).await;
    let mut txns = Vec::new();
    for wish in wishes {
        txns.push(expecting(&mut together, *wish).await);
    }
    let outcomes = together.commit(txns).await;
    assert_eq!(outcomes.len(), wishes.len());
    for (wish, outcome) in wishes.iter().zip(&outcomes) {
        let txn = expecting(&mut alone, *wish).await;
        let expected = alone.commit(vec![txn]).await.pop().expect("one for each");
        let (keys, expected) = (conflicting(outcome), conflicting(&expected));
        assert_eq!(keys.is_empty(), expected.is_empty(), "{wish:?}: {outcome:?}");
        // A conflict on the head may hide one on the shard, but never reports a key without one.
        assert!(keys.iter().all(|key| expected.contains(key)), "{wish:?}: {outcome:?}");
    }
}

fn wishes() -> impl Strategy<Value = Vec<(u64, u64, bool, bool)>> {
    let is_right = || prop::bool::weighted(0.8);
    let keys: Vec<(u64, u64)> =
        (0..RUNS).flat_map(|run| (0..SHARDS).map(move |number| (run, number))).collect();
    let len = keys.len();
    (prop::sample::subsequence(keys, 1..=len).prop_shuffle()).prop_flat_map(move |keys| {
        let len = keys.len();
        let rights = prop::collection::vec((is_right(), is_right()), len);
        rights.prop_map(move |rights| {
            let both = keys.iter().zip(rights);
            both.map(|((run, number), (hot, head))| (*run, *number, hot, head)).collect()
        })
    })
}

proptest! {
    #[test]
    fn transactions_together_have_the_outcomes_that_each_has_alone(wishes in wishes()) {
        let store = || EtcdStore::without_tasks(SimEtcdKv::new(), &config()).unwrap();
        block_on(together_as_alone(store(), store(), &wishes));
    }
}

/// The same on a real server, with a stale head among good ones of the same run.
#[tokio::test]
async fn a_stale_head_fails_no_other_transaction_of_the_batch() {
    let wishes: Vec<_> = (0..SHARDS)
        .flat_map(|number| (0..RUNS).map(move |run| (run, number)))
        .map(|(run, number)| (run, number, number != 3, run != 1 || number % 2 == 0))
        .collect();
    for servers in [Servers::Single, Servers::Three] {
        let store = || EtcdStore::start(servers.client(), &servers.config()).unwrap();
        together_as_alone(store(), store(), &wishes).await;
    }
}
