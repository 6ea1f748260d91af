//! A caller that begins an operation and never polls it again does not block other callers.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, AsyncStore, CommitOutcome, Key, Read, Txn};
use gossip_coordination_etcd::{EtcdConfig, EtcdKv, EtcdStore, GrpcClient, GrpcConfig};
use gossip_testkit::test_support::{Direction, EtcdServer, Proxy};
use gossip_testkit_etcd::sim_etcd_kv::SimEtcdKv;

use crate::facts_tests::get;
use crate::lossy_kv::LossyKv;

/// A longer wait counts as forever: everything here is answered at once.
const FOREVER: Duration = Duration::from_secs(60);

/// Between two looks.
const POLL: Duration = Duration::from_millis(5);

type Store = EtcdStore<LossyKv<SimEtcdKv>>;

fn owner_key(number: u64) -> Key {
    let shard = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(number));
    Key::Owner { tenant: TenantId::from_bytes([7; 32]), shard }
}

fn bind(number: u64) -> Txn {
    let mut txn = Txn::new();
    txn.bind(owner_key(number), vec![1]);
    txn
}

fn put(number: u64) -> Txn {
    let mut txn = Txn::new();
    txn.put(owner_key(number), vec![1]);
    txn
}

/// A store on the model, held or not.
fn store(coalesce: bool) -> (LossyKv<SimEtcdKv>, Store) {
    let kv = LossyKv::new(SimEtcdKv::new());
    let config = EtcdConfig::new(["model:1"], "driven").expect("the usual settings work");
    let store = EtcdStore::start(kv.clone(), &EtcdConfig { coalesce, ..config });
    (kv, store.expect("the usual settings work"))
}

/// Polls a future once and leaves it pending.
async fn begin<F: Future>(future: &mut Pin<&mut F>) {
    let ended = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
    assert!(!ended, "it has to wait");
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(FOREVER, future).await.expect("blocked by a future that is not polled")
}

type Outcome = Result<CommitOutcome, InfraError>;

fn assert_applied(outcomes: &[Outcome]) {
    let is_applied = |outcome: &Outcome| matches!(outcome, Ok(CommitOutcome::Applied { .. }));
    assert!(outcomes.iter().all(is_applied), "{outcomes:?}");
}

async fn is_there(store: &mut Store, number: u64) -> bool {
    let answers = store.read(vec![Read::Get(owner_key(number))]).await.expect("the model works");
    matches!(answers[..], [Answer::Value(Some(_))])
}

#[tokio::test]
async fn a_commit_whose_future_is_not_polled_is_made() {
    let (kv, mut store) = store(true);
    let mut other = store.clone();
    kv.hold(true);
    let mut commit = pin!(store.commit(vec![put(1)]));
    begin(&mut commit).await;
    kv.hold(false);
    soon(async {
        while !is_there(&mut other, 1).await {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
    assert_applied(&commit.await);
}

#[tokio::test]
async fn no_caller_waits_for_a_lease_request_of_another() {
    for coalesce in [true, false] {
        let (kv, mut store) = store(coalesce);
        let mut other = store.clone();
        kv.hold(true);
        let mut commit = pin!(store.commit(vec![bind(1)]));
        begin(&mut commit).await;
        kv.hold(false);
        assert_applied(&soon(other.commit(vec![bind(2)])).await);
        assert_applied(&commit.await);
    }
}

#[tokio::test]
async fn no_caller_waits_for_a_connection_attempt_of_another() {
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let client = GrpcClient::new(&GrpcConfig::new([proxy.endpoint()])).unwrap();
    proxy.hold(Direction::FromTarget);
    let mut first = pin!(client.range(get("k")));
    begin(&mut first).await;
    proxy.open();
    soon(client.range(get("k"))).await.unwrap();
    first.await.unwrap();
}

/// A carrier is woken by the first of them, and lets the others go before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_that_are_about_to_send_travel_together() {
    let (kv, store) = store(true);
    let commit = |number: u64| {
        let mut store = store.clone();
        async move { store.commit(vec![put(number)]).await }
    };
    let kv = &kv;
    let sent = |count| {
        soon(async move {
            while kv.commit_count() < count {
                tokio::time::sleep(POLL).await;
            }
        })
    };
    kv.hold(true);
    let mut alone = pin!(commit(0));
    begin(&mut alone).await;
    sent(1).await;
    let commits: Vec<_> = (1..=10).map(commit).collect();
    // Spawned by one task, they are queued on its thread one after the other.
    let begun = tokio::spawn(async { commits.into_iter().map(tokio::spawn).collect::<Vec<_>>() });
    let begun = begun.await.unwrap();
    sent(2).await;
    kv.hold(false);
    assert_applied(&soon(alone).await);
    for task in begun {
        assert_applied(&soon(task).await.unwrap());
    }
    assert_eq!(kv.commit_count(), 2, "one that found the queue empty, and the others together");
}

/// Callers that gave up while a server did not answer do not delay others when it does.
#[tokio::test]
async fn a_cancelled_transaction_is_not_sent() {
    give_up_behind(3).await;
}

/// The first of them was taken out of the queue by a carrier, which waits for a flight.
#[tokio::test]
async fn a_transaction_cancelled_while_its_sender_waited_is_not_sent() {
    give_up_behind(2).await;
}

/// Callers give up behind so many that are held.
async fn give_up_behind(busy_count: u64) {
    let (kv, store) = store(true);
    kv.hold(true);
    let mut busy = Vec::new();
    for number in 0..busy_count {
        let mut store = store.clone();
        busy.push(tokio::spawn(async move { store.commit(vec![put(number)]).await }));
        tokio::task::yield_now().await;
    }
    for number in 10..20 {
        let mut store = store.clone();
        let mut commit = pin!(store.commit(vec![put(number)]));
        begin(&mut commit).await;
    }
    kv.hold(false);
    for task in busy {
        assert_applied(&soon(task).await.unwrap());
    }
    let mut store = store;
    assert_applied(&soon(store.commit(vec![put(20)])).await);
    for number in 10..20 {
        assert!(!is_there(&mut store, number).await, "{number} was sent");
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_takes_its_request_with_it() {
    let (kv, mut store) = store(true);
    let mut other = store.clone();
    kv.hold(true);
    {
        let mut commit = pin!(store.commit(vec![put(1)]));
        begin(&mut commit).await;
    }
    // The place of the one that is gone is free again, and both are sent at the same time.
    let both = vec![put(2), put(3)];
    let mut commit = pin!(other.commit(both));
    begin(&mut commit).await;
    kv.hold(false);
    assert_applied(&soon(commit).await);
    assert!(!is_there(&mut store, 1).await, "sent after its caller gave up");
}
