//! A client whose next reply to a write can be lost, for tests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gossip_coordination_etcd::TxnMessage;
use gossip_coordination_etcd::proto::{
    RangeRequest, RangeResponse, Request, TxnRequest, TxnResponse,
};
use gossip_coordination_etcd::{
    Alarm, EtcdCause, EtcdError, EtcdKv, LeaseGrant, LeaseTtl, MemberStatus,
};
use tokio::sync::watch;

/// A client around another. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct LossyKv<K> {
    pub(crate) inner: K,
    loses_reply: Arc<AtomicBool>,
    /// Whether transactions and grants of leases wait before they are sent.
    is_held: watch::Sender<bool>,
    /// Transactions that wrote, or tried to.
    commit_count: Arc<AtomicU64>,
    /// Those of them that carried several.
    nested_count: Arc<AtomicU64>,
    /// Requests of any kind but leases.
    request_count: Arc<AtomicU64>,
    /// Grants of leases, or tries.
    grant_count: Arc<AtomicU64>,
    /// Why every transaction and grant is refused, if it is.
    refusal: Arc<Mutex<Option<EtcdCause>>>,
}

impl<K> LossyKv<K> {
    pub(crate) fn new(inner: K) -> Self {
        Self {
            inner,
            loses_reply: Arc::default(),
            is_held: watch::Sender::new(false),
            commit_count: Arc::default(),
            nested_count: Arc::default(),
            request_count: Arc::default(),
            grant_count: Arc::default(),
            refusal: Arc::default(),
        }
    }

    /// Loses the reply to the next transaction that writes.
    pub(crate) fn lose_next_reply(&self) {
        self.loses_reply.store(true, Ordering::SeqCst);
    }

    /// Blocks transactions and lease grants, or lets them continue.
    pub(crate) fn hold(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }

    /// Refuses every transaction and lease grant from now on, with a certain outcome.
    pub(crate) fn refuse(&self, cause: EtcdCause) {
        *self.refusal.lock().unwrap() = Some(cause);
    }

    /// Waits as long as requests are held, and then refuses this one if all are.
    async fn pass(&self, operation: &'static str) -> Result<(), EtcdError> {
        let ended = self.is_held.subscribe().wait_for(|is_held| !is_held).await.is_err();
        assert!(!ended, "the sender is part of this client");
        match self.refusal.lock().unwrap().clone() {
            Some(cause) => Err(EtcdError::refused(operation, cause)),
            None => Ok(()),
        }
    }

    pub(crate) fn commit_count(&self) -> u64 {
        self.commit_count.load(Ordering::SeqCst)
    }

    pub(crate) fn nested_count(&self) -> u64 {
        self.nested_count.load(Ordering::SeqCst)
    }

    pub(crate) fn grant_count(&self) -> u64 {
        self.grant_count.load(Ordering::SeqCst)
    }

    pub(crate) fn request_count(&self) -> u64 {
        self.request_count.load(Ordering::SeqCst)
    }
}

fn writes(request: &TxnRequest) -> bool {
    let is_write = |op: &gossip_coordination_etcd::proto::RequestOp| {
        !matches!(op.request, Some(Request::Range(_)))
    };
    request.success.iter().any(is_write)
}

impl<K: EtcdKv> EtcdKv for LossyKv<K> {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, EtcdError> {
        self.request_count.fetch_add(1, Ordering::SeqCst);
        self.inner.range(request).await
    }

    async fn txn(&self, request: impl TxnMessage) -> Result<TxnResponse, EtcdError> {
        let request = request.into_request();
        self.request_count.fetch_add(1, Ordering::SeqCst);
        let is_write = writes(&request);
        self.commit_count.fetch_add(u64::from(is_write), Ordering::SeqCst);
        let is_nested =
            request.success.iter().any(|op| matches!(op.request, Some(Request::Txn(_))));
        self.nested_count.fetch_add(u64::from(is_nested), Ordering::SeqCst);
        self.pass("txn").await?;
        let answer = self.inner.txn(request).await;
        if is_write && self.loses_reply.swap(false, Ordering::SeqCst) {
            return Err(EtcdError::unknown("txn", EtcdCause::Timeout { millis: 1 }));
        }
        answer
    }

    async fn lease_grant(&self, ttl_seconds: i64) -> Result<LeaseGrant, EtcdError> {
        self.grant_count.fetch_add(1, Ordering::SeqCst);
        self.pass("lease grant").await?;
        self.inner.lease_grant(ttl_seconds).await
    }

    async fn lease_keep_alive(&self, lease: i64) -> Result<Option<i64>, EtcdError> {
        self.inner.lease_keep_alive(lease).await
    }

    async fn lease_revoke(&self, lease: i64) -> Result<(), EtcdError> {
        self.inner.lease_revoke(lease).await
    }

    async fn lease_time_to_live(&self, lease: i64) -> Result<Option<LeaseTtl>, EtcdError> {
        self.inner.lease_time_to_live(lease).await
    }

    async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        self.inner.compact(revision).await
    }

    async fn status(&self) -> Result<MemberStatus, EtcdError> {
        self.inner.status().await
    }

    async fn alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        self.inner.alarms().await
    }

    /// Uses the real clock, also around a model, whose own clock does not advance while tasks wait.
    async fn sleep(&self, millis: u64) {
        tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
    }
}
