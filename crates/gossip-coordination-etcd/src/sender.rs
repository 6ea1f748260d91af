//! Sends batches: what is tried again, what is an error, and what nobody knows.
//!
//! | what came of a request | what becomes of its transactions |
//! |---|---|
//! | an answer | to each its own outcome |
//! | nobody knows whether it happened | each is [`CommitOutcome::Unknown`] |
//! | certainly not, and it may pass (no connection, no leader, a busy server) | tried again, then each is an error |
//! | certainly not, because the lease of this process is gone | tried again with a new one |
//! | certainly not, for a reason that stays and may be one transaction's | each is sent alone, so that none pays for another |
//! | certainly not, for a reason that stays and is none of theirs (a password, a certificate) | each is an error |
//!
//! What it never does: send again what may have happened.

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

/// The wait before the first retry, in milliseconds; it doubles with each.
const BACKOFF_MILLIS: u64 = 20;
/// The longest wait before a retry: about the time of an election.
const BACKOFF_MILLIS_MAX: u64 = 1_000;

/// New leases that one batch may need: a cluster that revokes each at once is not well.
const LEASES_MAX: u32 = 3;

/// What happened to one transaction.
pub(crate) type Outcome = Result<CommitOutcome, InfraError>;

/// What one request carries: a transaction alone, or several together.
pub(crate) trait SendRequest: Sync {
    /// One outcome, or one for each.
    type Outcomes;

    /// Whether it binds keys to the life of this process.
    fn binds(&self) -> bool;

    /// Sends it once.
    fn send<K: EtcdKv>(
        &self,
        kv: &K,
        namespace: &Namespace,
        lease: i64,
    ) -> impl Future<Output = Result<TxnResponse, EtcdError>> + Send;

    /// What became of it, from the answer to it.
    fn outcomes(&self, namespace: &Namespace, response: TxnResponse) -> Self::Outcomes;
}

/// What every handle of a process shares.
#[derive(Debug)]
pub(crate) struct Sender<K> {
    pub(crate) kv: K,
    pub(crate) namespace: Namespace,
    pub(crate) budget: Budget,
    /// How often what certainly did not happen is tried again.
    pub(crate) retries: u32,
    pub(crate) lease: OwnerLease,
    /// Where a lease is granted, so that nobody waits for one who does not look. A simulation has
    /// none, and polls everything itself.
    pub(crate) runtime: Option<Tasks>,
}

impl<K: EtcdKv> Sender<K> {
    /// Sends `batch` and answers for each of its parcels, in their order, with its note.
    pub(crate) async fn send_batch<N: Send + Sync>(
        self: &Arc<Self>,
        batch: Batch<N>,
    ) -> Vec<(N, Outcome)> {
        let outcomes: Vec<Outcome> = match self.send(&batch).await {
            Ok(outcomes) => outcomes,
            Err(error) if !error.is_certain() => {
                (0..batch.len()).map(|_| Ok(CommitOutcome::Unknown)).collect()
            }
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

    /// As [`Sender::send_batch`] for one txn.
    pub(crate) async fn send_single(self: &Arc<Self>, txn: &PreparedTxn) -> Outcome {
        match self.send(txn).await {
            Ok(outcome) => outcome,
            Err(error) if error.is_certain() => Err(infra_error(&error)),
            Err(_) => Ok(CommitOutcome::Unknown),
        }
    }

    /// Waits before the retry with this number, counted from zero.
    pub(crate) async fn back_off(&self, retry: u32) {
        let doubled = BACKOFF_MILLIS.checked_shl(retry).unwrap_or(BACKOFF_MILLIS_MAX);
        self.kv.sleep(doubled.min(BACKOFF_MILLIS_MAX)).await;
    }

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

    async fn send<L: SendRequest>(self: &Arc<Self>, request: &L) -> Result<L::Outcomes, EtcdError> {
        let (mut retry, mut leases) = (0, 0);
        loop {
            if request.binds() {
                // It was tried often enough when it fails. To try the request again would try each
                // of those tries again.
                self.granted_lease().await?;
            }
            let error = match self.send_once(request).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(error) => error,
            };
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

    async fn send_once<L: SendRequest>(
        self: &Arc<Self>,
        request: &L,
    ) -> Result<L::Outcomes, EtcdError> {
        let lease = if request.binds() { self.granted_lease().await? } else { 0 };
        let answer = request.send(&self.kv, &self.namespace, lease).await;
        if answer.as_ref().is_err_and(|error| error.cause == EtcdCause::LeaseNotFound) {
            self.lease.lost(lease);
        }
        Ok(request.outcomes(&self.namespace, answer?))
    }

    /// The lease, granted if there is none. If it cannot be granted the transactions were not sent,
    /// whatever became of the grant; so it may be tried again, and a lease that nobody knows runs
    /// out by itself.
    pub(crate) async fn granted_lease(self: &Arc<Self>) -> Result<i64, EtcdError> {
        match (self.lease.current(), &self.runtime) {
            (Some(lease), _) => Ok(lease),
            (None, None) => self.grant_lease().await,
            (None, Some(runtime)) => {
                let sender = Arc::clone(self);
                let granted =
                    AbortOnDrop::start(runtime, async move { sender.grant_lease().await });
                let ended = || Err(EtcdError::not_sent("lease grant", EtcdCause::ended()));
                granted.await.unwrap_or_else(ended)
            }
        }
    }

    /// Has the lease granted if there is none, and waits for nothing. Whoever needs it meanwhile
    /// waits for this grant, whose failure counts as its own first try; later it tries for itself.
    /// Without tasks nothing goes on beside the caller, and the lease is granted when it is needed.
    pub(crate) fn expect_lease(self: &Arc<Self>) {
        if let (None, Some(runtime)) = (self.lease.current(), &self.runtime) {
            let sender = Arc::clone(self);
            drop(runtime.spawn(async move { sender.lease.get(&sender.kv).await }));
        }
    }

    async fn grant_lease(&self) -> Result<i64, EtcdError> {
        let mut retry = 0;
        loop {
            match self.lease.get(&self.kv).await {
                Ok(lease) => return Ok(lease),
                Err(error) if error.is_transient() && retry < self.retries => {
                    self.back_off(retry).await;
                    retry += 1;
                }
                Err(error) => return Err(EtcdError::not_sent(error.operation, error.cause)),
            }
        }
    }
}

/// Whether a batch may have been refused for one of its transactions, so that the others would be
/// taken without it.
fn may_concern_one_txn(cause: &EtcdCause) -> bool {
    match cause {
        EtcdCause::TooLarge(_)
        | EtcdCause::PermissionDenied
        | EtcdCause::BadRequest(_)
        // What deletes is taken by a full database.
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

/// A certain failure in the words of the store layer.
pub(crate) fn infra_error(error: &EtcdError) -> InfraError {
    let (operation, message) = (operation(error.operation), error.to_string());
    let refused = |why, message| InfraError::Refused { operation, why, message };
    match &error.cause {
        EtcdCause::Unreachable { .. }
        | EtcdCause::Timeout { .. }
        | EtcdCause::ServerTimeout
        | EtcdCause::NoLeader
        | EtcdCause::Busy
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

/// The step as errors of the store layer name it.
fn operation(request: &'static str) -> &'static str {
    match request {
        "txn" => "etcd.commit",
        "range" | "read" => "etcd.read",
        "lease grant" => "etcd.lease",
        other => other,
    }
}
