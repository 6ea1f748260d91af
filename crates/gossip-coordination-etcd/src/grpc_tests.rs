//! The client against real servers.

use crate::proto::{PutRequest, RangeRequest, Request, TxnRequest};
use crate::test_support::{EtcdCluster, EtcdServer};
use crate::{EtcdKv, GrpcClient};

fn put(key: &[u8], value: &[u8]) -> TxnRequest {
    let put = PutRequest { key: key.to_vec(), value: value.to_vec(), ..PutRequest::default() };
    TxnRequest { success: vec![Request::Put(put).into()], ..TxnRequest::default() }
}

fn get(key: &[u8]) -> RangeRequest {
    RangeRequest { key: key.to_vec(), ..RangeRequest::default() }
}

#[tokio::test]
async fn what_was_put_is_there() {
    let server = EtcdServer::single();
    let client = GrpcClient::new(&server.client_config()).unwrap();
    let before = client.status().await.unwrap().revision;
    let done = client.txn(put(b"k", b"v")).await.unwrap();
    assert_eq!(done.header.unwrap().revision, before + 1);
    let found = client.range(get(b"k")).await.unwrap();
    assert_eq!(found.kvs[0].value, b"v");
    let lease = client.lease_grant(10).await.unwrap();
    assert_eq!(client.lease_keep_alive(lease.id).await.unwrap(), Some(10));
    client.lease_revoke(lease.id).await.unwrap();
    assert_eq!(client.lease_keep_alive(lease.id).await.unwrap(), None);
    assert_eq!(client.lease_time_to_live(lease.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_leader_that_is_cut_off_is_replaced() {
    let cluster = EtcdCluster::three();
    let client = GrpcClient::new(&cluster.client_config()).unwrap();
    client.txn(put(b"k", b"v")).await.unwrap();
    let old = cluster.leader(None).await;
    cluster.cut_off(old);
    let new = cluster.leader(Some(old)).await;
    assert_ne!(old, new);
    cluster.heal();
    cluster.leader(None).await;
}
