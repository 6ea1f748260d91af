//! The one etcd lease of this process, to which its owner keys are tied.
//!
//! When a process is gone its lease runs out, and etcd deletes the owner keys of all shards that it
//! held. Others then see that nobody is at work and need not wait for clocks that differ. That is
//! all: **an owner key is a hint of life and never safety**. A leader that stalls revokes leases of
//! healthy workers, and a lease can outlive its process. Whether a write is accepted is decided by
//! the fence in the record, and a takeover always waits for the deadline of the lease in it.
//!
//! One lease for each process and not for each shard, because tens of thousands of leases hurt a
//! cluster. It is asked for while a process looks at the first shard that it would own, so that
//! its first claim takes no round trip more than the others, and kept alive at a third of its time,
//! so two keep-alives may be lost. When a keep-alive or a commit is told that it is gone,
//! [`OwnerLease::binding`] rises and the next key that is bound gets a new one; owners whose keys
//! vanished see the number and bind them again with their first commit after that.
//!
//! # Never
//! - holds a lock while it waits for the server, the one apart that keeps two from granting;
//! - grants a lease to a process that would own nothing: one that only looks on has none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Mutex as AsyncMutex;

use crate::error::{EtcdCause, EtcdError};
use crate::kv::EtcdKv;

/// Keep-alives within the life of a lease: all but the last may be lost.
pub(crate) const KEEP_ALIVES_PER_TTL: u64 = 3;

/// The lease of a process, or the place for one.
#[derive(Debug)]
pub(crate) struct OwnerLease {
    ttl_seconds: i64,
    state: Mutex<State>,
    /// Held while a lease is granted, so that one process has one.
    granting: AsyncMutex<()>,
}

#[derive(Debug)]
struct State {
    /// The lease, from its grant until etcd says that it is gone.
    id: Option<i64>,
    /// How many leases there have been, the first included even before it is granted.
    binding: u64,
    /// How many grants have failed.
    failures: u64,
    /// Why the last grant failed, if none has succeeded since.
    failure: Option<EtcdError>,
}

impl OwnerLease {
    /// No lease yet; it will last so many seconds without a keep-alive.
    pub(crate) const fn new(ttl_seconds: i64) -> Self {
        let state = Mutex::new(State { id: None, binding: 1, failures: 0, failure: None });
        Self { ttl_seconds, state, granting: AsyncMutex::const_new(()) }
    }

    /// Rises whenever keys that were bound earlier may have vanished.
    pub(crate) fn binding(&self) -> u64 {
        self.state().binding
    }

    /// How long to wait between two keep-alives, in milliseconds.
    pub(crate) fn keep_alive_millis(&self) -> u64 {
        self.ttl_seconds.unsigned_abs() * 1_000 / KEEP_ALIVES_PER_TTL
    }

    /// The lease, granted if there is none. However many ask at once, each waits for one grant.
    pub(crate) async fn get<K: EtcdKv>(&self, kv: &K) -> Result<i64, EtcdError> {
        let failures = self.state().failures;
        if let Some(id) = self.current() {
            return Ok(id);
        }
        let _granting = self.granting.lock().await;
        // Somebody else may have asked while we waited for our turn, and speaks for all who waited.
        if let Some(told) = self.told_since(failures) {
            return told;
        }
        // If the reply is lost there may be a lease that nobody knows; it runs out by itself.
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

    /// The lease, or why there is none if a grant failed since there were so many failures.
    fn told_since(&self, failures: u64) -> Option<Result<i64, EtcdError>> {
        let state = self.state();
        let failure = state.failure.clone().filter(|_| state.failures > failures);
        state.id.map(Ok).or_else(|| failure.map(Err))
    }

    /// Notes that `lease` is gone, unless another has taken its place already.
    pub(crate) fn lost(&self, lease: i64) {
        let mut state = self.state();
        if state.id == Some(lease) {
            state.id = None;
            state.binding += 1;
        }
    }

    /// Keeps the lease, if there is one.
    pub(crate) async fn keep_alive<K: EtcdKv>(&self, kv: &K) {
        let Some(id) = self.current() else { return };
        match kv.lease_keep_alive(id).await {
            Ok(Some(_remaining)) => {}
            Ok(None) => self.lost(id),
            Err(error) if error.cause == EtcdCause::LeaseNotFound => self.lost(id),
            // Nobody knows whether it lives. The next keep-alive will be told.
            Err(_) => {}
        }
    }

    /// Gives the lease back, and with it every key that is bound to it. One that is being granted
    /// is waited for, or it would stay behind.
    pub(crate) async fn revoke<K: EtcdKv>(&self, kv: &K) -> Result<(), EtcdError> {
        let _granting = self.granting.lock().await;
        let Some(id) = self.current() else { return Ok(()) };
        self.lost(id);
        match kv.lease_revoke(id).await {
            Err(error) if error.cause == EtcdCause::LeaseNotFound => Ok(()),
            answer => answer,
        }
    }

    /// The lease, if there is one.
    pub(crate) fn current(&self) -> Option<i64> {
        self.state().id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The lock is held for an assignment or two; what a panic elsewhere leaves is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
