//! A client that counts what goes through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_coordination_etcd::proto::{
    RangeRequest, RangeResponse, Request, RequestOp, TxnResponse,
};
use gossip_coordination_etcd::{
    Alarm, EtcdError, EtcdKv, GrpcClient, LeaseGrant, LeaseTtl, MemberStatus, TxnMessage,
};

/// Counts requests and the bytes that they write.
#[derive(Clone)]
pub struct Counting {
    client: GrpcClient,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    transactions: AtomicU64,
    bytes: AtomicU64,
}

/// Counts of sent requests.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Reads and transactions.
    pub requests: u64,
    /// Those that write something.
    pub transactions: u64,
    /// Bytes of keys and values in them.
    pub bytes: u64,
}

impl Counting {
    pub fn new(client: GrpcClient) -> Self {
        Self { client, counts: Arc::default() }
    }

    /// Returns the counts since the last call and resets them.
    pub fn take(&self) -> Sent {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Sent {
            requests: take(&self.counts.requests),
            transactions: take(&self.counts.transactions),
            bytes: take(&self.counts.bytes),
        }
    }
}

/// Bytes that the steps of a transaction write, nested ones included.
fn written(steps: &[RequestOp]) -> u64 {
    let bytes = |step: &RequestOp| match &step.request {
        Some(Request::Put(put)) => (put.key.len() + put.value.len()) as u64,
        Some(Request::DeleteRange(delete)) => delete.key.len() as u64,
        Some(Request::Txn(txn)) => written(&txn.success),
        Some(Request::Range(_)) | None => 0,
    };
    steps.iter().map(bytes).sum()
}

impl EtcdKv for Counting {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.client.range(request).await
    }

    async fn txn(&self, request: impl TxnMessage) -> Result<TxnResponse, EtcdError> {
        let request = request.into_request();
        let bytes = written(&request.success);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.counts.transactions.fetch_add(u64::from(bytes > 0), Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.client.txn(request).await
    }

    async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrant, EtcdError> {
        self.client.lease_grant(ttl_seconds).await
    }

    async fn lease_keep_alive(&self, lease: i64) -> Result<Option<i64>, EtcdError> {
        self.client.lease_keep_alive(lease).await
    }

    async fn lease_revoke(&self, lease: i64) -> Result<(), EtcdError> {
        self.client.lease_revoke(lease).await
    }

    async fn lease_time_to_live(&self, lease: i64) -> Result<Option<LeaseTtl>, EtcdError> {
        self.client.lease_time_to_live(lease).await
    }

    async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        self.client.compact(revision).await
    }

    async fn status(&self) -> Result<MemberStatus, EtcdError> {
        self.client.status().await
    }

    async fn alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        self.client.alarms().await
    }

    async fn sleep(&self, millis: u64) {
        self.client.sleep(millis).await;
    }
}
