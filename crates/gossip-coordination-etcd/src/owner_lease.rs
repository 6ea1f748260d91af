//! The etcd lease of this process, to which its owner keys are attached.
//!
//! When a process ends, its lease expires and etcd deletes the owner keys of all its shards. Other
//! workers then know that the owner is gone and need not add the maximum clock skew. That is all:
//! **an owner key is a liveness hint and never safety**. A stalled leader revokes leases of healthy
//! workers, and a lease can outlive its process. The fence in the record decides whether a write is
//! accepted, and a takeover always waits for the deadline of the lease in the record.
//!
//! There is one lease per process and not per shard, because tens of thousands of leases load a
//! cluster. It is requested while the process reads the first shard that it may own, so that the
//! first claim needs no additional round trip. It is renewed three times per TTL, so two
//! keep-alives may be lost. When a keep-alive or a commit reports that it is gone,
//! [`OwnerLease::binding`] increases and the next bound key gets a new lease; owners whose keys
//! vanished compare the number and bind them again with their next commit.
//!
//! # Never
//! - holds a lock while it waits for the server, except the one that serializes grants;
//! - requests a lease for a process that only reads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Mutex as AsyncMutex;

use crate::error::{EtcdCause, EtcdError};
use crate::kv::EtcdKv;

/// Keep-alives per TTL: all but the last may be lost.
pub(crate) const KEEP_ALIVES_PER_TTL: u64 = 3;

/// The lease of a process, granted on demand.
#[derive(Debug)]
pub(crate) struct OwnerLease {
    ttl_seconds: i64,
    state: Mutex<State>,
    /// Held while a lease is granted, so that concurrent callers share one grant.
    granting: AsyncMutex<()>,
}

#[derive(Debug)]
struct State {
    /// The lease, from its grant until etcd reports that it is gone.
    id: Option<i64>,
    /// The number of leases so far, counting the first even before it is granted.
    binding: u64,
    /// The number of failed grants.
    failures: u64,
    /// The error of the last grant, if none has succeeded since.
    failure: Option<EtcdError>,
}

impl OwnerLease {
    /// Returns a state without a lease; a granted one expires after `ttl_seconds` without a
    /// keep-alive.
    pub(crate) const fn new(ttl_seconds: i64) -> Self {
        let state = Mutex::new(State { id: None, binding: 1, failures: 0, failure: None });
        Self { ttl_seconds, state, granting: AsyncMutex::const_new(()) }
    }

    /// Returns a number that increases whenever previously bound keys may have vanished.
    pub(crate) fn binding(&self) -> u64 {
        self.state().binding
    }

    /// Returns the interval between keep-alives, in milliseconds.
    pub(crate) fn keep_alive_millis(&self) -> u64 {
        self.ttl_seconds.unsigned_abs() * 1_000 / KEEP_ALIVES_PER_TTL
    }

    /// Returns the lease, and requests one if there is none. Concurrent callers share one grant and
    /// its error. Makes one attempt; the caller retries.
    pub(crate) async fn get<K: EtcdKv>(&self, kv: &K) -> Result<i64, EtcdError> {
        let failures = self.state().failures;
        if let Some(id) = self.current() {
            return Ok(id);
        }
        let _granting = self.granting.lock().await;
        // Another caller may have requested a lease while this one waited for the lock; its result
        // serves all that waited, or an outage would cost one timeout per caller.
        if let Some(result) = self.result_since(failures) {
            return result;
        }
        // If the reply is lost there may be a lease whose id is unknown; it expires unused.
        let granted = kv.lease_grant(self.ttl_seconds).await;
        let mut state = self.state();
        match &granted {
            Ok(grant) => (state.id, state.failure) = (Some(grant.id), None),
            Err(error) => {
                state.failures += 1;
                state.failure = Some(error.clone());
            }
        }
        granted.map(|grant| grant.id)
    }

    /// Returns the lease, or the error if a grant failed since `failures` were counted.
    fn result_since(&self, failures: u64) -> Option<Result<i64, EtcdError>> {
        let state = self.state();
        let failure = state.failure.clone().filter(|_| state.failures > failures);
        state.id.map(Ok).or_else(|| failure.map(Err))
    }

    /// Records that `lease` is gone, unless another has replaced it already.
    pub(crate) fn lost(&self, lease: i64) {
        let mut state = self.state();
        if state.id == Some(lease) {
            state.id = None;
            state.binding += 1;
        }
    }

    /// Renews the lease, if there is one.
    pub(crate) async fn keep_alive<K: EtcdKv>(&self, kv: &K) {
        let Some(id) = self.current() else { return };
        match kv.lease_keep_alive(id).await {
            Ok(Some(_remaining)) => {}
            Ok(None) => self.lost(id),
            Err(error) if error.cause == EtcdCause::LeaseNotFound => self.lost(id),
            // The lease may be alive, and declaring it lost would make every owner key be bound
            // again. The next keep-alive finds out.
            Err(_) => {}
        }
    }

    /// Revokes the lease, which deletes every key bound to it. Waits for a grant in progress, whose
    /// lease would otherwise remain.
    pub(crate) async fn revoke<K: EtcdKv>(&self, kv: &K) -> Result<(), EtcdError> {
        let _granting = self.granting.lock().await;
        let Some(id) = self.current() else { return Ok(()) };
        // Before the request: a lost reply must not leave a lease in use that may be revoked.
        self.lost(id);
        match kv.lease_revoke(id).await {
            Err(error) if error.cause == EtcdCause::LeaseNotFound => Ok(()),
            answer => answer,
        }
    }

    /// Returns the lease, if there is one.
    pub(crate) fn current(&self) -> Option<i64> {
        self.state().id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Held for assignments only, so a poisoned state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
