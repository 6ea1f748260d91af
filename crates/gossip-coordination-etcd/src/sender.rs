//! Sends transactions and batches: which failures are retried, which are errors, and which leave
//! the commit unresolved.
//!
//! | result of a request | outcome of its transactions |
//! |---|---|
//! | a response | each its own outcome |
//! | it may have been applied | each is [`CommitOutcome::Unknown`] |
//! | certainly not applied, transient (no connection, no leader, a busy server) | retried, then each is an error |
//! | certainly not applied, the owner lease expired | retried with a new lease |
//! | certainly not applied, permanent, may concern one transaction | each is sent alone, so that none fails because of another |
//! | certainly not applied, permanent, concerns none of them (a password, a certificate) | each is an error |
//!
//! It never resends a request that may have been applied.

use std::future::Future;
use std::sync::Arc;

use gossip_coordination::store::CommitOutcome;
use gossip_coordination::{InfraError, StoreRefusal};

use crate::abort_on_drop::AbortOnDrop;
use crate::batch::{Batch, PreparedTxn};
use crate::budget::Budget;
use crate::error::{EtcdCause, EtcdError};
use crate::keyspace::Namespace;
use crate::kv::EtcdKv;
use crate::owner_lease::OwnerLease;
use crate::proto::TxnResponse;
use crate::tasks::Tasks;

/// The delay before the first retry, in milliseconds; it doubles with each.
const BACKOFF_MILLIS: u64 = 20;
/// The longest delay before a retry: about the time of a leader election.
const BACKOFF_MILLIS_MAX: u64 = 1_000;

/// New leases for one batch: a cluster that revokes each at once is broken.
const LEASES_MAX: u32 = 3;

/// The outcome of one transaction.
pub(crate) type Outcome = Result<CommitOutcome, InfraError>;

/// The content of one request: a single transaction or a batch.
pub(crate) trait SendRequest: Sync {
    /// One outcome, or one per transaction.
    type Outcomes;

    /// Returns whether it binds keys to the owner lease of this process.
    fn binds(&self) -> bool;

    /// Sends the request once.
    fn send<K: EtcdKv>(
        &self,
        kv: &K,
        namespace: &Namespace,
        lease: i64,
    ) -> impl Future<Output = Result<TxnResponse, EtcdError>> + Send;

    /// Returns the outcomes from the response.
    fn outcomes(&self, namespace: &Namespace, response: TxnResponse) -> Self::Outcomes;
}

/// The state shared by all handles of a process.
#[derive(Debug)]
pub(crate) struct Sender<K> {
    pub(crate) kv: K,
    pub(crate) namespace: Namespace,
    pub(crate) budget: Budget,
    /// How often a request that was certainly not applied is retried.
    pub(crate) retries: u32,
    pub(crate) lease: OwnerLease,
    /// Where a lease is granted, so that the grant proceeds even if its caller stops polling. A
    /// simulation has none, and polls everything itself.
    pub(crate) runtime: Option<Tasks>,
}

impl<K: EtcdKv> Sender<K> {
    /// Sends `batch` and returns the outcome of each of its transactions, in order, with its note.
    /// An error means that the transaction was certainly not applied.
    pub(crate) async fn send_batch<N: Send + Sync>(
        self: &Arc<Self>,
        batch: Batch<N>,
    ) -> Vec<(N, Outcome)> {
        let outcomes: Vec<Outcome> = match self.send(&batch).await {
            Ok(outcomes) => outcomes,
            // The request may still be in the raft log: a retry could apply it twice.
            Err(error) if !error.is_certain() => {
                (0..batch.len()).map(|_| Ok(CommitOutcome::Unknown)).collect()
            }
            // Certainly not applied, so sending each alone cannot apply one twice.
            Err(error) if batch.len() > 1 && may_concern_one_txn(&error.cause) => {
                return self.send_separately(batch).await;
            }
            Err(error) => {
                let error = infra_error(&error);
                (0..batch.len()).map(|_| Err(error.clone())).collect()
            }
        };
        batch.into_notes().zip(outcomes).collect()
    }

    /// As [`Sender::send_batch`], for one transaction.
    pub(crate) async fn send_single(self: &Arc<Self>, txn: &PreparedTxn) -> Outcome {
        match self.send(txn).await {
            Ok(outcome) => outcome,
            Err(error) if error.is_certain() => Err(infra_error(&error)),
            Err(_) => Ok(CommitOutcome::Unknown),
        }
    }

    /// Waits before retry number `retry`, counted from zero.
    pub(crate) async fn back_off(&self, retry: u32) {
        let doubled = BACKOFF_MILLIS.checked_shl(retry).unwrap_or(BACKOFF_MILLIS_MAX);
        self.kv.sleep(doubled.min(BACKOFF_MILLIS_MAX)).await;
    }

    /// Sends each transaction alone, one after the other, so that the one that was refused fails
    /// alone. The batch was certainly not applied.
    async fn send_separately<N: Send + Sync>(
        self: &Arc<Self>,
        batch: Batch<N>,
    ) -> Vec<(N, Outcome)> {
        let mut delivered = Vec::with_capacity(batch.len());
        for (txn, note) in batch.apart() {
            delivered.push((note, self.send_single(&txn).await));
        }
        delivered
    }

    /// Sends `request` until it is answered, and returns its outcomes. Retries only if it was
    /// certainly not applied, up to the limits; then returns the last error.
    async fn send<L: SendRequest>(self: &Arc<Self>, request: &L) -> Result<L::Outcomes, EtcdError> {
        let (mut retry, mut leases) = (0, 0);
        loop {
            if request.binds() {
                // The grant has its own retries. Retrying the request as well would multiply them.
                self.granted_lease().await?;
            }
            let error = match self.send_once(request).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(error) => error,
            };
            // Not a retry of the request: the server refuses it before the first write, and only
            // the lease must be replaced. So it has a count of its own.
            let lost_lease = error.cause == EtcdCause::LeaseNotFound;
            if lost_lease && request.binds() && leases < LEASES_MAX {
                leases += 1;
            } else if error.is_certain() && error.is_transient() && retry < self.retries {
                self.back_off(retry).await;
                retry += 1;
            } else {
                return Err(error);
            }
        }
    }

    /// Sends `request` once, with the owner lease if it binds keys. Records the loss of a lease
    /// that the server does not know.
    async fn send_once<L: SendRequest>(
        self: &Arc<Self>,
        request: &L,
    ) -> Result<L::Outcomes, EtcdError> {
        // Requested again, because a concurrent caller may have reported the loss of the lease
        // since `send` requested it. Usually it is there.
        let lease = if request.binds() { self.granted_lease().await? } else { 0 };
        let answer = request.send(&self.kv, &self.namespace, lease).await;
        if answer.as_ref().is_err_and(|error| error.cause == EtcdCause::LeaseNotFound) {
            // Compared by id: a concurrent caller may have replaced it already.
            self.lease.lost(lease);
        }
        Ok(request.outcomes(&self.namespace, answer?))
    }

    /// Returns the owner lease, and requests one if there is none. If that fails the transactions
    /// were not sent, so they may be retried; a lease whose grant reply was lost expires unused.
    pub(crate) async fn granted_lease(self: &Arc<Self>) -> Result<i64, EtcdError> {
        match (self.lease.current(), &self.runtime) {
            (Some(lease), _) => Ok(lease),
            // A simulation polls everything itself, so no caller can stop in the middle of a grant.
            (None, None) => self.grant_lease().await,
            (None, Some(runtime)) => {
                let sender = Arc::clone(self);
                let granted =
                    AbortOnDrop::start(runtime, async move { sender.grant_lease().await });
                // The task ended with its runtime, perhaps after the grant. The transactions were
                // not sent in any case.
                let ended = || Err(EtcdError::not_sent("lease grant", EtcdCause::ended()));
                granted.await.unwrap_or_else(ended)
            }
        }
    }

    /// Requests a lease in the background if there is none. Callers that need it meanwhile wait for
    /// this grant, whose failure counts as their first attempt. Without tasks this does nothing,
    /// and the lease is requested when it is needed.
    pub(crate) fn prefetch_lease(self: &Arc<Self>) {
        if let (None, Some(runtime)) = (self.lease.current(), &self.runtime) {
            let sender = Arc::clone(self);
            drop(runtime.spawn(async move { sender.lease.get(&sender.kv).await }));
        }
    }

    /// Requests the lease, with retries. An error is always `NotSent`.
    async fn grant_lease(&self) -> Result<i64, EtcdError> {
        let mut retry = 0;
        loop {
            match self.lease.get(&self.kv).await {
                Ok(lease) => return Ok(lease),
                Err(error) if error.is_transient() && retry < self.retries => {
                    self.back_off(retry).await;
                    retry += 1;
                }
                // The grant itself may have been applied; the request that needs it was not sent.
                Err(error) => return Err(EtcdError::not_sent(error.operation, error.cause)),
            }
        }
    }
}

/// Returns whether a batch may have been refused because of one of its transactions, so that the
/// others would succeed without it.
fn may_concern_one_txn(cause: &EtcdCause) -> bool {
    match cause {
        EtcdCause::TooLarge(_)
        | EtcdCause::PermissionDenied
        | EtcdCause::BadRequest(_)
        // A full database still accepts transactions that only delete.
        | EtcdCause::NoSpace
        | EtcdCause::LeaseNotFound => true,
        EtcdCause::Unreachable { .. }
        | EtcdCause::Timeout { .. }
        | EtcdCause::ServerTimeout
        | EtcdCause::NoLeader
        | EtcdCause::Busy
        | EtcdCause::AuthRefused
        | EtcdCause::Compacted
        | EtcdCause::FutureRevision
        | EtcdCause::WrongVersion { .. }
        | EtcdCause::OtherCluster { .. }
        | EtcdCause::Tls { .. }
        | EtcdCause::BadConfig(_)
        | EtcdCause::Corrupt
        | EtcdCause::Other { .. } => false,
    }
}

/// Maps an error of a request that was certainly not applied to the store layer.
pub(crate) fn infra_error(error: &EtcdError) -> InfraError {
    let (operation, message) = (operation(error.operation), error.to_string());
    let refused = |why, message| InfraError::Refused { operation, why, message };
    match &error.cause {
        EtcdCause::Unreachable { .. }
        | EtcdCause::Timeout { .. }
        | EtcdCause::ServerTimeout
        | EtcdCause::NoLeader
        | EtcdCause::Busy
        // A compaction between the parts of one read: a new read starts at a newer revision.
        | EtcdCause::Compacted
        | EtcdCause::FutureRevision
        | EtcdCause::LeaseNotFound
        | EtcdCause::Other { .. } => InfraError::Transient { operation, message },
        EtcdCause::AuthRefused | EtcdCause::PermissionDenied => {
            refused(StoreRefusal::NotPermitted, message)
        }
        EtcdCause::NoSpace => refused(StoreRefusal::NoSpace, message),
        EtcdCause::TooLarge(_) => refused(StoreRefusal::TooLarge, message),
        EtcdCause::WrongVersion { .. }
        | EtcdCause::OtherCluster { .. }
        | EtcdCause::Tls { .. }
        | EtcdCause::BadRequest(_)
        | EtcdCause::BadConfig(_) => refused(StoreRefusal::Unusable, message),
        EtcdCause::Corrupt => InfraError::Corruption { operation, message },
    }
}

/// Returns the operation name that errors of the store layer use.
fn operation(request: &'static str) -> &'static str {
    match request {
        "txn" => "etcd.commit",
        "range" | "read" => "etcd.read",
        "lease grant" => "etcd.lease",
        other => other,
    }
}
