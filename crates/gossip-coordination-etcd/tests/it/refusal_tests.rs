//! A refusal costs only the requests that can help, and not one for each waiting caller.

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::InfraError;
use gossip_coordination::store::{AsyncStore, Key, Txn};
use gossip_coordination_etcd::{EtcdCause, EtcdConfig, EtcdStore};
use gossip_testkit_etcd::sim_etcd_kv::{Fault, SimEtcdKv, Target};
use tokio::task::{JoinSet, yield_now};

use crate::lossy_kv::LossyKv;

type Store = EtcdStore<LossyKv<SimEtcdKv>>;

/// Callers that need a lease at once.
const CALLERS: u64 = 16;

/// Turns of the executor after which every task that was started waits for something else.
const SETTLED: usize = 1_000;

/// Transactions that fit into one batch.
const BATCH: u64 = 100;

fn key(number: u64) -> Key {
    let shard = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(number));
    Key::Owner { tenant: TenantId::from_bytes([7; 32]), shard }
}

fn bind(number: u64) -> Txn {
    let mut txn = Txn::new();
    txn.bind(key(number), vec![1]);
    txn
}

fn put(number: u64) -> Txn {
    let mut txn = Txn::new();
    txn.put(key(number), vec![1]);
    txn
}

fn store(retries: u32) -> (LossyKv<SimEtcdKv>, Store) {
    let kv = LossyKv::new(SimEtcdKv::new());
    let config = EtcdConfig::new(["model:1"], "refusal").expect("the usual settings work");
    let config = EtcdConfig { retries, ..config };
    let store = EtcdStore::start(kv.clone(), &config).expect("the usual settings work");
    (kv, store)
}

/// If each caller asked in turn, the last would wait for as many timeouts as there are callers.
#[tokio::test]
async fn a_lease_that_is_refused_is_asked_for_once_for_all_who_wait() {
    let (kv, store) = store(0);
    kv.hold(true);
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let mut store = store.clone();
        callers.spawn(async move { store.commit(vec![bind(number)]).await.remove(0) });
    }
    for _ in 0..SETTLED {
        yield_now().await;
    }
    kv.refuse(EtcdCause::NoLeader);
    kv.hold(false);
    for outcome in callers.join_all().await {
        assert!(outcome.as_ref().is_err_and(InfraError::is_retryable), "{outcome:?}");
    }
    assert_eq!(kv.grant_count(), 1);
    // A later caller sends a new request.
    let mut store = store;
    assert!(store.commit(vec![bind(1)]).await.remove(0).is_err());
    assert_eq!(kv.grant_count(), 2);
}

#[tokio::test]
async fn a_batch_does_not_repeat_the_retries_of_its_lease() {
    const RETRIES: u32 = 3;
    /// More than are met, whether or not retries are repeated.
    const REFUSALS: u32 = (RETRIES + 1) * (RETRIES + 1) * 2;
    let (kv, mut store) = store(RETRIES);
    assert!(store.commit(vec![bind(1)]).await.remove(0).is_ok());
    assert_eq!(kv.grant_count(), 1);
    // The lease is gone when the batch is sent, and there is no other for a long time.
    kv.inner.inject(0, Target::Write, Fault::ExpireLeases);
    for _ in 0..REFUSALS {
        kv.inner.inject(0, Target::Lease, Fault::Refuse);
    }
    let outcome = store.commit(vec![bind(2)]).await.remove(0);
    assert!(outcome.as_ref().is_err_and(InfraError::is_retryable), "{outcome:?}");
    assert_eq!(kv.grant_count(), 1 + u64::from(RETRIES) + 1);
}

/// With a password that is no longer right each would ask for a token, one after the other.
#[tokio::test]
async fn a_batch_is_taken_apart_only_if_one_of_it_may_be_to_blame() {
    for (cause, is_apart) in [
        (EtcdCause::AuthRefused, false),
        (EtcdCause::Corrupt, false),
        (EtcdCause::OtherCluster { endpoint: "host:1".to_owned() }, false),
        (EtcdCause::PermissionDenied, true),
        (EtcdCause::NoSpace, true),
    ] {
        let (kv, mut store) = store(0);
        kv.refuse(cause.clone());
        let outcomes = store.commit((0..BATCH).map(put).collect()).await;
        assert!(outcomes.iter().all(Result::is_err));
        let expected = if is_apart { 1 + BATCH } else { 1 };
        assert_eq!(kv.commit_count(), expected, "{cause}");
    }
}
