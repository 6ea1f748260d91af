//! What we rely on in etcd, each fact stated for the model and for the real server.

use std::future::Future;

use gossip_coordination_etcd::proto::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, PutRequest, RangeRequest, Request,
    RequestOp, Response, TargetUnion, TxnRequest, TxnResponse,
};
use gossip_coordination_etcd::{EtcdCause, EtcdKv, GrpcClient, GrpcConfig, SizeLimit};
use gossip_testkit::test_support::EtcdServer;
use gossip_testkit_etcd::sim_etcd_kv::SimEtcdKv;

/// `--max-txn-ops` by default.
const MAX_OPS: usize = 128;

pub(crate) fn put(key: &str, value: &str) -> RequestOp {
    let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    Request::Put(PutRequest { key, value, ..PutRequest::default() }).into()
}

pub(crate) fn delete(key: &str) -> RequestOp {
    let key = key.as_bytes().to_vec();
    Request::DeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() }).into()
}

pub(crate) fn get(key: &str) -> RangeRequest {
    RangeRequest { key: key.as_bytes().to_vec(), ..RangeRequest::default() }
}

pub(crate) fn read(key: &str) -> RequestOp {
    Request::Range(get(key)).into()
}

/// Holds if the key is absent.
pub(crate) fn absent(key: &str) -> Compare {
    Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Version as i32,
        key: key.as_bytes().to_vec(),
        target_union: Some(TargetUnion::Version(0)),
        range_end: Vec::new(),
    }
}

pub(crate) fn steps(success: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { success, ..TxnRequest::default() }
}

/// A nested transaction that puts a key if it is absent, and else reads it.
fn put_if_absent(key: &str, value: &str) -> RequestOp {
    Request::Txn(TxnRequest {
        compare: vec![absent(key)],
        success: vec![put(key, value)],
        failure: vec![read(key)],
    })
    .into()
}

fn nested(answer: &TxnResponse, index: usize) -> &TxnResponse {
    match &answer.responses[index].response {
        Some(Response::Txn(inner)) => inner,
        other => panic!("{other:?} answers a nested transaction"),
    }
}

fn value_read(answer: &TxnResponse, index: usize) -> Option<&[u8]> {
    match &answer.responses[index].response {
        Some(Response::Range(range)) => range.kvs.first().map(|kv| kv.value.as_slice()),
        other => panic!("{other:?} answers a range"),
    }
}

async fn value_of(kv: &impl EtcdKv, key: &str) -> Option<Vec<u8>> {
    kv.range(get(key)).await.unwrap().kvs.pop().map(|kv| kv.value)
}

/// States a fact for both. One server serves all facts in turn, so keys begin with their name.
async fn for_both<F, G>(server: &EtcdServer, model: F, real: G)
where
    F: AsyncFnOnce(SimEtcdKv),
    G: AsyncFnOnce(GrpcClient),
{
    model(SimEtcdKv::new()).await;
    real(GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap()).await;
}

/// Runs each fact for both.
macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        #[tokio::test]
        async fn each_fact_holds_for_the_model_and_for_the_server() {
            let server = EtcdServer::single();
            $(
                println!(stringify!($fact));
                for_both(&server, $fact::<SimEtcdKv>, $fact::<GrpcClient>).await;
            )*
        }
    };
}

facts! {
    nested_compares_see_the_state_before_everything,
    steps_see_what_steps_before_them_wrote,
    a_failed_neighbour_leaves_the_others_applied,
    everything_written_has_one_revision,
    a_range_is_absent_exactly_if_it_is_empty,
    no_value_equals_an_absent_one,
    the_largest_list_counts_and_nested_ones_have_what_is_left,
    a_key_is_written_once,
    a_refused_transaction_does_nothing,
    a_lease_takes_its_keys_along,
}

async fn nested_compares_see_the_state_before_everything<K: EtcdKv>(kv: K) {
    // The outer put makes the key; the nested compare does not see it, and puts it once more
    // elsewhere.
    let inner = TxnRequest {
        compare: vec![absent("before/a")],
        success: vec![put("before/b", "inner")],
        failure: vec![put("before/b", "saw it")],
    };
    let outer = steps(vec![put("before/a", "outer"), Request::Txn(inner).into()]);
    let answer = kv.txn(outer).await.unwrap();
    assert!(nested(&answer, 1).succeeded);
    assert_eq!(value_of(&kv, "before/b").await.unwrap(), b"inner");
    // The same between neighbours: the second does not see what the first wrote.
    let first = put_if_absent("before/c", "first");
    let second = TxnRequest {
        compare: vec![absent("before/c")],
        success: vec![put("before/d", "second")],
        failure: Vec::new(),
    };
    let answer = kv.txn(steps(vec![first, Request::Txn(second).into()])).await.unwrap();
    assert!(nested(&answer, 0).succeeded && nested(&answer, 1).succeeded);
}

async fn steps_see_what_steps_before_them_wrote<K: EtcdKv>(kv: K) {
    let inner = Request::Txn(steps(vec![read("seen/a")])).into();
    let list = vec![read("seen/a"), put("seen/a", "1"), read("seen/a"), inner];
    let answer = kv.txn(steps(list)).await.unwrap();
    assert_eq!(value_read(&answer, 0), None);
    assert_eq!(value_read(&answer, 2), Some(b"1".as_slice()));
    assert_eq!(value_read(nested(&answer, 3), 0), Some(b"1".as_slice()));
}

async fn a_failed_neighbour_leaves_the_others_applied<K: EtcdKv>(kv: K) {
    kv.txn(steps(vec![put("group/1", "old")])).await.unwrap();
    let list = (0..3).map(|it| put_if_absent(&format!("group/{it}"), "new")).collect();
    let answer = kv.txn(steps(list)).await.unwrap();
    assert!(answer.succeeded);
    let outcomes: Vec<bool> = (0..3).map(|it| nested(&answer, it).succeeded).collect();
    assert_eq!(outcomes, [true, false, true]);
    assert_eq!(value_read(nested(&answer, 1), 0), Some(b"old".as_slice()));
    assert_eq!(value_of(&kv, "group/2").await.unwrap(), b"new");
}

async fn everything_written_has_one_revision<K: EtcdKv>(kv: K) {
    let before = kv.status().await.unwrap().revision;
    let list = vec![put("one/a", ""), put_if_absent("one/b", ""), put("one/c", "")];
    let answer = kv.txn(steps(list)).await.unwrap();
    assert_eq!(answer.header.unwrap().revision, before + 1);
    for key in ["one/a", "one/b", "one/c"] {
        let found = kv.range(get(key)).await.unwrap();
        assert_eq!(found.kvs[0].mod_revision, before + 1, "{key}");
    }
    // A transaction that writes nothing creates no revision, and returns the current one.
    let idle = kv.txn(steps(vec![delete("one/nothing")])).await.unwrap();
    assert_eq!(idle.header.unwrap().revision, before + 1);
}

async fn a_range_is_absent_exactly_if_it_is_empty<K: EtcdKv>(kv: K) {
    let empty = Compare { range_end: b"empty/z".to_vec(), ..absent("empty/a") };
    let ask = || TxnRequest { compare: vec![empty.clone()], ..TxnRequest::default() };
    assert!(kv.txn(ask()).await.unwrap().succeeded);
    kv.txn(steps(vec![put("empty/b", "")])).await.unwrap();
    assert!(!kv.txn(ask()).await.unwrap().succeeded);
    kv.txn(steps(vec![delete("empty/b")])).await.unwrap();
    assert!(kv.txn(ask()).await.unwrap().succeeded);
}

async fn no_value_equals_an_absent_one<K: EtcdKv>(kv: K) {
    let results = [CompareResult::Equal, CompareResult::NotEqual, CompareResult::Less];
    for result in results {
        let compare = Compare {
            result: result as i32,
            target: CompareTarget::Value as i32,
            target_union: Some(TargetUnion::Value(Vec::new())),
            ..absent("value/none")
        };
        let ask = TxnRequest { compare: vec![compare], ..TxnRequest::default() };
        assert!(!kv.txn(ask).await.unwrap().succeeded, "{result:?}");
    }
}

async fn the_largest_list_counts_and_nested_ones_have_what_is_left<K: EtcdKv>(kv: K) {
    let puts = |from: usize, count: usize| {
        (from..from + count).map(|it| put(&format!("ops/{it}"), "")).collect::<Vec<_>>()
    };
    // Each list may be full: their sum does not count.
    let compare: Vec<Compare> = (0..MAX_OPS).map(|it| absent(&format!("ops/{it}"))).collect();
    let full = TxnRequest { compare, success: puts(0, MAX_OPS), failure: puts(0, MAX_OPS) };
    kv.txn(full).await.unwrap();
    let refused = |result: Result<TxnResponse, gossip_coordination_etcd::EtcdError>| {
        let error = result.unwrap_err();
        assert!(error.is_certain());
        assert_eq!(error.cause, EtcdCause::TooLarge(SizeLimit::Ops));
    };
    refused(kv.txn(steps(puts(0, MAX_OPS + 1))).await);
    // Of `outer` steps one is nested, and may have the rest.
    for outer in [1, 64, MAX_OPS - 1] {
        let group = |inner: usize| {
            let mut list = puts(0, outer - 1);
            list.push(Request::Txn(steps(puts(outer, inner))).into());
            steps(list)
        };
        kv.txn(group(MAX_OPS - outer)).await.unwrap();
        refused(kv.txn(group(MAX_OPS - outer + 1)).await);
    }
}

async fn a_key_is_written_once<K: EtcdKv>(kv: K) {
    let twice = |list: Vec<RequestOp>| {
        let kv = kv.clone();
        async move {
            let error = kv.txn(steps(list)).await.unwrap_err();
            assert!(matches!(error.cause, EtcdCause::BadRequest(_)) && error.is_certain());
        }
    };
    twice(vec![put("once/a", "1"), put("once/a", "2")]).await;
    twice(vec![put("once/a", "1"), delete("once/a")]).await;
    twice(vec![put("once/a", "1"), put_if_absent("once/a", "2")]).await;
    twice(vec![put_if_absent("once/a", "1"), put_if_absent("once/a", "2")]).await;
    assert_eq!(value_of(&kv, "once/a").await, None);
}

async fn a_refused_transaction_does_nothing<K: EtcdKv>(kv: K) {
    let before = kv.status().await.unwrap().revision;
    let bound = PutRequest { key: b"lease/b".to_vec(), lease: 12_345, ..PutRequest::default() };
    let list = vec![put("lease/a", ""), Request::Put(bound).into()];
    let error = kv.txn(steps(list)).await.unwrap_err();
    assert_eq!(error.cause, EtcdCause::LeaseNotFound);
    assert!(error.is_certain());
    assert_eq!(value_of(&kv, "lease/a").await, None);
    assert_eq!(kv.status().await.unwrap().revision, before);
}

async fn a_lease_takes_its_keys_along<K: EtcdKv>(kv: K) {
    let lease = kv.lease_grant(600).await.unwrap();
    let bound = |key: &str| {
        let key = key.as_bytes().to_vec();
        Request::Put(PutRequest { key, lease: lease.id, ..PutRequest::default() }).into()
    };
    kv.txn(steps(vec![bound("owner/a"), bound("owner/b"), put("owner/c", "")])).await.unwrap();
    // A put without a lease unties the key.
    let before = kv.txn(steps(vec![put("owner/b", "free")])).await.unwrap();
    kv.lease_revoke(lease.id).await.unwrap();
    assert_eq!(value_of(&kv, "owner/a").await, None);
    assert_eq!(value_of(&kv, "owner/b").await.unwrap(), b"free");
    let after = kv.status().await.unwrap().revision;
    assert_eq!(after, before.header.unwrap().revision + 1);
    let error = kv.lease_revoke(lease.id).await.unwrap_err();
    assert_eq!(error.cause, EtcdCause::LeaseNotFound);
}

/// A future that is checked to be sendable: the store is driven from any thread.
fn sendable<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn requests_can_be_driven_from_any_thread() {
    let kv = SimEtcdKv::new();
    let handle = tokio::spawn(sendable(async move { kv.txn(steps(vec![put("k", "v")])).await }));
    assert!(handle.await.unwrap().is_ok());
}
