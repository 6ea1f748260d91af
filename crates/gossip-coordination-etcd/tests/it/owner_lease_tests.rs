//! One lease for a process, granted late, kept, lost and replaced.

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::store::{AsyncStore, CommitOutcome, Key, Read, Txn};
use gossip_coordination_etcd::{EtcdConfig, EtcdKv, EtcdStore};
use gossip_testkit_etcd::sim_etcd_kv::{Fault, SimEtcdKv, Target};

use crate::lossy_kv::LossyKv;
use crate::real_servers::Servers;

fn owner_key(number: u64) -> Key {
    let shard = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(number));
    Key::Owner { tenant: TenantId::from_bytes([7; 32]), shard }
}

fn config() -> EtcdConfig {
    EtcdConfig::new(["model:1"], "lease").expect("the usual settings work")
}

fn bind(number: u64) -> Txn {
    let mut txn = Txn::new();
    txn.bind(owner_key(number), vec![1]);
    txn
}

async fn commit<K: EtcdKv>(store: &mut EtcdStore<K>, txn: Txn) {
    let outcome = store.commit(vec![txn]).await.pop().expect("one for each");
    assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_process_that_binds_nothing_has_no_lease() {
    let kv = SimEtcdKv::new();
    let mut store = EtcdStore::without_tasks(kv.clone(), &config()).unwrap();
    let mut txn = Txn::new();
    txn.put(owner_key(1), vec![1]);
    commit(&mut store, txn).await;
    assert_eq!(store.owner_lease(), None);
    assert_eq!(kv.contents()[0].lease, 0);
}

/// Turns that other tasks are given before something must have happened.
const TURNS: usize = 1_000;

#[tokio::test]
async fn the_lease_is_asked_for_while_the_first_owner_is_read() {
    let kv = LossyKv::new(SimEtcdKv::new());
    let mut store = EtcdStore::start(kv.clone(), &config()).unwrap();
    kv.hold(true);
    let mut reader = store.clone();
    let Key::Owner { tenant, shard } = owner_key(1) else { unreachable!() };
    let reads = vec![Read::Get(Key::ShardHot { tenant, shard }), Read::Get(owner_key(1))];
    let read = tokio::spawn(async move { reader.read(reads).await });
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    assert_eq!((kv.request_count(), kv.grant_count()), (1, 1), "both are on their way");
    assert!(!read.is_finished());
    let mut binder = store.clone();
    let bound = tokio::spawn(async move { commit(&mut binder, bind(1)).await });
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    kv.hold(false);
    read.await.unwrap().unwrap();
    bound.await.unwrap();
    assert_eq!(kv.grant_count(), 1, "the commit waited for the same grant");
    assert_eq!(kv.inner.contents()[0].lease, store.owner_lease().unwrap());
    commit(&mut store, bind(2)).await;
    assert_eq!(kv.grant_count(), 1);
}

#[tokio::test]
async fn a_lease_that_is_being_granted_is_given_back_too() {
    let kv = LossyKv::new(SimEtcdKv::new());
    let mut store = EtcdStore::start(kv.clone(), &config()).unwrap();
    kv.hold(true);
    store.read(vec![Read::Get(owner_key(1))]).await.unwrap();
    let leaver = store.clone();
    let left = tokio::spawn(async move { leaver.revoke_owner_lease().await });
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    assert_eq!(kv.grant_count(), 1);
    kv.hold(false);
    left.await.unwrap().unwrap();
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    assert_eq!((store.owner_lease(), store.binding()), (None, Some(2)));
}

#[tokio::test]
async fn who_looks_for_no_owner_has_no_lease() {
    let kv = LossyKv::new(SimEtcdKv::new());
    let mut store = EtcdStore::start(kv.clone(), &config()).unwrap();
    let Key::Owner { tenant, shard } = owner_key(1) else { unreachable!() };
    store.read(vec![Read::Get(Key::ShardHot { tenant, shard })]).await.unwrap();
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    assert_eq!((kv.grant_count(), store.owner_lease()), (0, None));
}

#[tokio::test]
async fn keys_of_all_handles_are_bound_to_one_lease() {
    let kv = SimEtcdKv::new();
    let mut store = EtcdStore::without_tasks(kv.clone(), &config()).unwrap();
    let mut other = store.clone();
    commit(&mut store, bind(1)).await;
    commit(&mut other, bind(2)).await;
    let lease = store.owner_lease().expect("granted with the first key");
    let leases: Vec<i64> = kv.contents().iter().map(|it| it.lease).collect();
    assert_eq!(leases, [lease, lease]);
    assert_eq!(store.binding(), Some(1));
}

#[tokio::test]
async fn a_lease_that_is_kept_outlives_its_time_and_one_that_is_not_takes_its_keys() {
    let kv = SimEtcdKv::new();
    let mut store = EtcdStore::without_tasks(kv.clone(), &config()).unwrap();
    commit(&mut store, bind(1)).await;
    for _ in 0..10 {
        kv.advance(5_000);
        store.keep_alive().await;
    }
    assert_eq!((kv.contents().len(), store.binding()), (1, Some(1)));
    kv.advance(16_000);
    assert_eq!(kv.contents().len(), 0);
    // The keep-alive reports the loss, and owners see that their keys may be gone.
    store.keep_alive().await;
    assert_eq!((store.owner_lease(), store.binding()), (None, Some(2)));
    commit(&mut store, bind(1)).await;
    assert_eq!(kv.contents().len(), 1);
}

#[tokio::test]
async fn a_bind_whose_lease_is_gone_gets_a_new_one_at_once() {
    let kv = SimEtcdKv::new();
    let mut store = EtcdStore::without_tasks(kv.clone(), &config()).unwrap();
    commit(&mut store, bind(1)).await;
    let first = store.owner_lease();
    kv.inject(0, Target::Write, Fault::ExpireLeases);
    commit(&mut store, bind(2)).await;
    assert_ne!(store.owner_lease(), first);
    assert_eq!(store.binding(), Some(2));
    let keys: Vec<i64> = kv.contents().iter().map(|it| it.lease).collect();
    assert_eq!(keys, [store.owner_lease().unwrap()], "the first key went with its lease");
}

#[tokio::test]
async fn a_cluster_that_revokes_every_lease_is_an_error_and_not_a_loop() {
    let kv = SimEtcdKv::new();
    let mut store = EtcdStore::without_tasks(kv.clone(), &config()).unwrap();
    for _ in 0..8 {
        kv.inject(0, Target::Write, Fault::ExpireLeases);
    }
    let outcome = store.commit(vec![bind(1)]).await.pop().unwrap();
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(kv.contents().len(), 0);
}

#[tokio::test]
async fn a_grant_whose_reply_is_lost_is_a_certain_failure_of_the_commit() {
    let kv = SimEtcdKv::new();
    let config = EtcdConfig { retries: 0, ..config() };
    let mut store = EtcdStore::without_tasks(kv.clone(), &config).unwrap();
    kv.inject(0, Target::Lease, Fault::LoseReply);
    let outcome = store.commit(vec![bind(1)]).await.pop().unwrap();
    assert!(outcome.is_err_and(|error| error.is_retryable()));
    assert_eq!(kv.contents().len(), 0);
    commit(&mut store, bind(1)).await;
}

#[tokio::test]
async fn who_binds_nothing_does_not_pay_for_a_lease_that_is_refused() {
    let kv = SimEtcdKv::new();
    let config = EtcdConfig { retries: 0, ..config() };
    let mut store = EtcdStore::without_tasks(kv.clone(), &config).unwrap();
    kv.inject(0, Target::Lease, Fault::Refuse);
    let mut plain = Txn::new();
    plain.put(owner_key(2), vec![1]);
    let outcomes = store.commit(vec![bind(1), plain, bind(3)]).await;
    assert!(outcomes[0].is_err() && outcomes[2].is_err(), "{outcomes:?}");
    assert!(matches!(outcomes[1], Ok(CommitOutcome::Applied { .. })), "{outcomes:?}");
    assert_eq!(kv.contents().len(), 1);
}

#[tokio::test]
async fn a_process_that_ends_well_takes_its_keys_with_it() {
    let servers = Servers::Single;
    let mut store = EtcdStore::start(servers.client(), &servers.config()).unwrap();
    commit(&mut store, bind(1)).await;
    let lease = store.owner_lease().expect("granted with the first key");
    store.revoke_owner_lease().await.unwrap();
    assert_eq!(store.kv().lease_time_to_live(lease).await.unwrap(), None);
    // Twice does no harm.
    store.revoke_owner_lease().await.unwrap();
}

/// The background task keeps a real lease beyond its time.
#[tokio::test]
async fn a_real_lease_is_kept_in_the_background() {
    let servers = Servers::Single;
    let ttl = std::time::Duration::from_secs(2);
    let config = EtcdConfig { owner_lease_ttl: ttl, ..servers.config() };
    let mut store = EtcdStore::start(servers.client(), &config).unwrap();
    commit(&mut store, bind(1)).await;
    let lease = store.owner_lease().expect("granted with the first key");
    // Twice its TTL by the server clock, so keep-alives must have arrived.
    store.kv().sleep(5_000).await;
    let left = store.kv().lease_time_to_live(lease).await.unwrap();
    assert!(left.is_some(), "no keep-alive was sent");
    assert_eq!(store.binding(), Some(1));
}
