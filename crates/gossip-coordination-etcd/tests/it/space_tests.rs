//! A real server whose database is full, and how it is repaired.

use gossip_coordination_etcd::{Alarm, EtcdCause, EtcdError, EtcdKv, Fate, GrpcClient, GrpcConfig};
use gossip_testkit::test_support::{EtcdServer, ServerOptions};
use gossip_testkit_etcd::sim_etcd_kv::SimEtcdKv;

use crate::facts_tests::{delete, get, put, read, steps};

/// Small enough to be filled at once, large enough to begin.
pub(crate) const QUOTA_BYTES: usize = 2_000_000;

/// Of one write.
pub(crate) const VALUE_BYTES: usize = 20_000;

/// More than fit.
const MAX_WRITES: usize = 10_000;

pub(crate) fn small_server() -> EtcdServer {
    let quota = format!("--quota-backend-bytes={QUOTA_BYTES}");
    EtcdServer::with_options(&ServerOptions::with_flags(&[&quota]))
}

pub(crate) async fn write(kv: &impl EtcdKv, key: &str) -> Result<(), EtcdError> {
    kv.txn(steps(vec![put(key, &"x".repeat(VALUE_BYTES))])).await.map(drop)
}

/// Writes one key until the server refuses; its answer.
pub(crate) async fn fill(kv: &impl EtcdKv) -> EtcdError {
    for _ in 0..MAX_WRITES {
        if let Err(error) = write(kv, "k").await {
            return error;
        }
    }
    panic!("{MAX_WRITES} writes fit");
}

#[tokio::test]
async fn a_full_database_is_said_and_repaired() {
    let server = small_server();
    let client = GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap();
    let error = fill(&client).await;
    // The first refusal leaves it open; from then on we know before we send.
    assert_eq!((error.fate, &error.cause), (Fate::Unknown, &EtcdCause::NoSpace));
    assert!(error.to_string().contains("etcdctl alarm disarm"), "{error}");
    let error = write(&client, "k").await.unwrap_err();
    assert_eq!((error.fate, error.cause), (Fate::NotSent, EtcdCause::NoSpace));
    let error = client.lease_grant(60).await.unwrap_err();
    assert_eq!((error.fate, error.cause), (Fate::NotSent, EtcdCause::NoSpace));
    assert_eq!(client.alarms().await.unwrap(), [Alarm::NoSpace]);
    // Reading and deleting still work.
    assert_eq!(client.range(get("k")).await.unwrap().kvs.len(), 1);
    for step in [read("k"), delete("k")] {
        client.txn(steps(vec![step])).await.unwrap();
    }
    // What the operator types: etcdctl compact, etcdctl defrag, etcdctl alarm disarm.
    let revision = client.status().await.unwrap().revision;
    client.compact_file(revision).await.unwrap();
    client.defragment().await.unwrap();
    client.disarm_no_space().await.unwrap();
    assert_eq!(client.alarms().await.unwrap(), []);
    write(&client, "k").await.unwrap();
}

/// It takes a write between the gate and the log when the database is seen to be full: nine
/// servers of ten show it.
const MAX_SERVERS: usize = 20;

#[tokio::test]
async fn a_refusal_for_space_does_not_mean_that_nothing_happened() {
    for _ in 0..MAX_SERVERS {
        if refused_yet_there().await > 0 {
            return;
        }
    }
    panic!("of {MAX_SERVERS} servers none refused what it did");
}

/// How many of the writes that a server refused when it became full are there all the same.
async fn refused_yet_there() -> usize {
    const CALLERS: usize = 64;
    let server = small_server();
    let client = GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap();
    let tasks: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let client = client.clone();
            tokio::spawn(async move { write_until_refused(&client, caller).await })
        })
        .collect();
    let mut found = 0;
    for task in tasks {
        let key = task.await.unwrap();
        found += client.range(get(&key)).await.unwrap().kvs.len();
    }
    found
}

/// Writes keys of its own until one is refused; that one.
async fn write_until_refused(client: &GrpcClient, caller: usize) -> String {
    for number in 0..MAX_WRITES {
        let key = format!("k/{caller}/{number}");
        if let Err(error) = write(client, &key).await {
            assert_eq!(error.cause, EtcdCause::NoSpace);
            return key;
        }
    }
    panic!("{MAX_WRITES} writes fit");
}

#[tokio::test]
async fn the_model_is_full_in_the_same_way() {
    let kv = SimEtcdKv::new();
    write(&kv, "k").await.unwrap();
    kv.fill();
    let error = fill(&kv).await;
    assert_eq!((error.fate, error.cause), (Fate::Unknown, EtcdCause::NoSpace));
    let error = write(&kv, "k").await.unwrap_err();
    assert_eq!((error.fate, error.cause), (Fate::NotSent, EtcdCause::NoSpace));
    assert_eq!(kv.lease_grant(60).await.unwrap_err().fate, Fate::NotSent);
    assert_eq!(kv.alarms().await.unwrap(), [Alarm::NoSpace]);
    assert_eq!(kv.range(get("k")).await.unwrap().kvs.len(), 1);
    for step in [read("k"), delete("k")] {
        kv.txn(steps(vec![step])).await.unwrap();
    }
    kv.disarm();
    write(&kv, "k").await.unwrap();
}
