//! Answers that no server should give.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, AsyncStore, Key, KeyRange, Read};

use crate::proto::{KeyValue, RangeRequest, RangeResponse, TxnResponse};
use crate::{
    Alarm, EtcdCause, EtcdConfig, EtcdError, EtcdKv, EtcdStore, LeaseGrant, LeaseTtl, MemberStatus,
    SizeLimit, TxnMessage,
};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);

/// Keys of a scan at most.
const LIMIT: usize = 3;

/// A server that finds its first answer too large, and then gives the same one for ever.
#[derive(Clone)]
struct Stubborn {
    answer: RangeResponse,
    asked: Arc<AtomicUsize>,
}

impl EtcdKv for Stubborn {
    async fn range(&self, _: RangeRequest) -> Result<RangeResponse, EtcdError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        assert!(asked < 100, "asked without end");
        match asked {
            0 => Err(EtcdError::refused("range", EtcdCause::TooLarge(SizeLimit::Answer))),
            _ => Ok(self.answer.clone()),
        }
    }

    async fn txn(&self, _: impl TxnMessage) -> Result<TxnResponse, EtcdError> {
        Err(EtcdError::refused("txn", EtcdCause::Busy))
    }

    async fn lease_grant(&self, _: i64) -> Result<LeaseGrant, EtcdError> {
        Err(EtcdError::refused("lease grant", EtcdCause::Busy))
    }

    async fn lease_keep_alive(&self, _: i64) -> Result<Option<i64>, EtcdError> {
        Ok(None)
    }

    async fn lease_revoke(&self, _: i64) -> Result<(), EtcdError> {
        Ok(())
    }

    async fn lease_time_to_live(&self, _: i64) -> Result<Option<LeaseTtl>, EtcdError> {
        Ok(None)
    }

    async fn compact(&self, _: i64) -> Result<(), EtcdError> {
        Ok(())
    }

    async fn status(&self) -> Result<MemberStatus, EtcdError> {
        Err(EtcdError::refused("status", EtcdCause::Busy))
    }

    async fn alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        Ok(Vec::new())
    }

    async fn sleep(&self, _: u64) {}
}

fn key(tenant: TenantId, shard: u64) -> Key {
    Key::ShardHot { tenant, shard: ShardKey::new(RUN, ShardId::from_raw(shard)) }
}

/// What a scan of the run's shards is answered with if the server finds these keys.
fn scanned(keys: &[Key], more: bool) -> Result<Vec<Answer>, InfraError> {
    let config = EtcdConfig::new(["host:1".to_owned()], "n").unwrap();
    let kv = |key: &Key| KeyValue {
        key: config.namespace.key(key),
        mod_revision: 5,
        ..KeyValue::default()
    };
    let kvs = keys.iter().map(kv).collect();
    let answer = RangeResponse { kvs, more, ..RangeResponse::default() };
    let server = Stubborn { answer, asked: Arc::default() };
    let mut store = EtcdStore::without_tasks(server, &config).unwrap();
    let range = KeyRange::hot_shards_of(TENANT, RUN);
    let read = pin!(store.read(vec![Read::Scan { range, limit: LIMIT }]));
    match read.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answers) => answers,
        Poll::Pending => panic!("a scripted answer is ready at once"),
    }
}

fn is_corruption(answer: &Result<Vec<Answer>, InfraError>) -> bool {
    matches!(answer, Err(InfraError::Corruption { .. }))
}

#[test]
fn a_page_that_fits_its_question_is_taken() {
    let keys = [key(TENANT, 1), key(TENANT, 2)];
    let Ok(answers) = scanned(&keys, false) else { panic!("a good answer is refused") };
    let [Answer::Page(page)] = answers.as_slice() else { panic!("another answer") };
    assert!(page.iter().map(|(key, _)| *key).eq(keys));
}

#[test]
fn a_server_that_says_more_and_gives_nothing_is_not_asked_for_ever() {
    let Ok(answers) = scanned(&[], true) else { panic!("nothing is an answer") };
    assert_eq!(answers, [Answer::Page(Vec::new())]);
}

#[test]
fn a_server_that_gives_the_same_key_for_ever_is_refused() {
    assert!(is_corruption(&scanned(&[key(TENANT, 1)], true)));
}

#[test]
fn a_page_with_more_keys_than_were_asked_for_is_refused() {
    let keys: Vec<Key> = (0..=LIMIT as u64).map(|shard| key(TENANT, shard)).collect();
    assert!(is_corruption(&scanned(&keys, true)));
}

#[test]
fn a_page_with_keys_of_another_tenant_is_refused() {
    let other = TenantId::from_bytes([8; 32]);
    assert!(is_corruption(&scanned(&[key(other, 1)], false)));
    assert!(is_corruption(&scanned(&[key(TENANT, 1), key(other, 1)], false)));
}

#[test]
fn a_page_whose_keys_fall_is_refused() {
    assert!(is_corruption(&scanned(&[key(TENANT, 2), key(TENANT, 1)], false)));
}
