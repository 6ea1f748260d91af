//! What the model does beyond the server: its clock, its faults, and that both are repeatable.

use gossip_coordination_etcd::proto::{PutRequest, Request, TxnResponse};
use gossip_coordination_etcd::{EtcdCause, EtcdError, EtcdKv, Fate};

use crate::requests::{get, put, steps};
use crate::sim_etcd_kv::{Fault, FaultRates, SimEtcdKv, Target};

async fn write(kv: &SimEtcdKv, key: &str) -> Result<TxnResponse, EtcdError> {
    kv.txn(steps(vec![put(key, "v")])).await
}

async fn holds(kv: &SimEtcdKv, key: &str) -> bool {
    !kv.range(get(key)).await.unwrap().kvs.is_empty()
}

async fn bind(kv: &SimEtcdKv, key: &str, lease: i64) {
    let put = PutRequest { key: key.into(), lease, ..PutRequest::default() };
    kv.txn(steps(vec![Request::Put(put).into()])).await.unwrap();
}

#[tokio::test]
async fn a_lease_ends_when_its_time_has_come_and_not_before() {
    let kv = SimEtcdKv::new();
    let lease = kv.lease_grant(10).await.unwrap();
    bind(&kv, "owner", lease.id).await;
    kv.sleep(9_999).await;
    assert!(holds(&kv, "owner").await);
    assert_eq!(kv.lease_keep_alive(lease.id).await.unwrap(), Some(10));
    kv.sleep(9_999).await;
    assert!(holds(&kv, "owner").await);
    kv.sleep(1).await;
    assert!(!holds(&kv, "owner").await);
    assert_eq!(kv.lease_keep_alive(lease.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_lost_request_never_happens_and_a_lost_reply_has_happened() {
    let kv = SimEtcdKv::new();
    kv.inject(0, Target::Write, Fault::LoseRequest);
    kv.inject(1, Target::Write, Fault::LoseReply);
    assert_eq!(write(&kv, "a").await.unwrap_err().fate, Fate::Unknown);
    assert_eq!(write(&kv, "b").await.unwrap_err().fate, Fate::Unknown);
    assert!(!holds(&kv, "a").await);
    assert!(holds(&kv, "b").await);
}

#[tokio::test]
async fn a_refused_request_is_certain() {
    let kv = SimEtcdKv::new();
    kv.inject(0, Target::Any, Fault::Refuse);
    assert!(write(&kv, "a").await.unwrap_err().is_certain());
    assert!(!holds(&kv, "a").await);
}

#[tokio::test]
async fn a_write_that_fills_the_database_happens() {
    let kv = SimEtcdKv::new();
    kv.inject(0, Target::Write, Fault::FillSpace);
    let error = write(&kv, "a").await.unwrap_err();
    assert_eq!((error.fate, error.cause), (Fate::Unknown, EtcdCause::NoSpace));
    assert!(holds(&kv, "a").await);
    assert_eq!(write(&kv, "b").await.unwrap_err().fate, Fate::NotSent);
}

#[tokio::test]
async fn leases_end_early_and_while_a_request_is_delayed() {
    let kv = SimEtcdKv::new();
    for fault in [Fault::ExpireLeases, Fault::Delay(10_000)] {
        let lease = kv.lease_grant(10).await.unwrap();
        bind(&kv, "owner", lease.id).await;
        kv.inject(0, Target::Read, fault);
        assert!(!holds(&kv, "owner").await, "{fault:?}");
    }
    assert_eq!(kv.now(), 10_000);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_history() {
    let run = async |seed| {
        let kv = SimEtcdKv::new();
        let (lose_request, lose_reply, refuse) = (100, 100, 100);
        let rates = FaultRates { lose_request, lose_reply, refuse, expire_leases: 10 };
        kv.inject_randomly(seed, rates);
        let mut outcomes = Vec::new();
        for number in 0..200 {
            outcomes.push(write(&kv, &format!("{number}")).await);
        }
        (outcomes, kv.contents(), kv.requests())
    };
    assert_eq!(run(1).await, run(1).await);
    assert_ne!(run(1).await.0, run(2).await.0);
}
