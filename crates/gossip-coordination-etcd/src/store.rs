//! The store layer on etcd: reads and commits as etcd transactions.
//!
//! The reads of one call are one transaction without writes, so they see one revision and, as
//! etcd's reads are linearizable, every acknowledged commit. Commits go through the group
//! commit of the process ([`coalesce`](crate::coalesce)) or, where there is none, straight to the
//! server.
//!
//! # Never
//! - knows a rule of the protocol, or decodes a value;
//! - reports an unresolved commit as an error: a lost reply is [`CommitOutcome::Unknown`];
//! - sends a request over the server's limits: it is refused here, with both sizes.

use std::fmt;
use std::sync::{Arc, Weak};

use gossip_coordination::InfraError;
use gossip_coordination::store::{Answer, AsyncStore, CommitOutcome, Key, Read, StoreLimits, Txn};

use crate::batch::{Batch, PreparedTxn};
use crate::budget::Budget;
use crate::coalesce::Coalescer;
use crate::config::{ConfigError, EtcdConfig};
use crate::error::EtcdError;
use crate::keyspace::Namespace;
use crate::kv::EtcdKv;
use crate::owner_lease::OwnerLease;
use crate::proto::RangeResponse;
use crate::sender::{Outcome, Sender, infra_error};
use crate::tasks::Tasks;
use crate::{reader, wire};

/// A handle on a namespace of an etcd cluster. Clones share the connection, the group commit and
/// the owner lease of the process.
pub struct EtcdStore<K> {
    sender: Arc<Sender<K>>,
    /// `None` sends every call separately.
    coalescer: Option<Coalescer>,
}

impl<K> Clone for EtcdStore<K> {
    fn clone(&self) -> Self {
        Self { sender: Arc::clone(&self.sender), coalescer: self.coalescer.clone() }
    }
}

impl<K> fmt::Debug for EtcdStore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("namespace", &self.sender.namespace)
            .field("limits", &self.sender.budget.limits)
            .finish_non_exhaustive()
    }
}

impl<K: EtcdKv> EtcdStore<K> {
    /// Creates a store without background tasks, for simulations: every call is sent separately,
    /// and the owner must call [`EtcdStore::keep_alive`] in time.
    ///
    /// # Errors
    ///
    /// What [`EtcdConfig::validate`] finds.
    pub fn without_tasks(kv: K, config: &EtcdConfig) -> Result<Self, ConfigError> {
        Ok(Self { sender: Arc::new(sender(kv, config, None)?), coalescer: None })
    }

    /// Creates a store whose keep-alives and group commit run on the current runtime. The client's
    /// [`EtcdKv::sleep`] must really wait.
    ///
    /// # Errors
    ///
    /// What [`EtcdConfig::validate`] finds.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(kv: K, config: &EtcdConfig) -> Result<Self, ConfigError> {
        Self::start_on(Tasks::current(), kv, config)
    }

    /// As [`EtcdStore::start`], on `tasks`.
    pub(crate) fn start_on(tasks: Tasks, kv: K, config: &EtcdConfig) -> Result<Self, ConfigError> {
        let sender = Arc::new(sender(kv, config, Some(tasks.clone()))?);
        // Not joined: it has a weak reference and ends when the last handle is dropped.
        drop(tasks.spawn(keep_alive(Arc::downgrade(&sender))));
        let coalescer = config.coalesce.then(|| Coalescer::start(&sender, tasks));
        Ok(Self { sender, coalescer })
    }

    /// Returns the client, for requests other than coordination.
    #[must_use]
    pub fn kv(&self) -> &K {
        &self.sender.kv
    }

    /// Returns the namespace of this store.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.sender.namespace
    }

    /// Renews the owner lease, if there is one. A store with background tasks does so itself.
    pub async fn keep_alive(&self) {
        self.sender.lease.keep_alive(&self.sender.kv).await;
    }

    /// Returns the owner lease, if there is one: a liveness hint for other workers, never safety.
    #[must_use]
    pub fn owner_lease(&self) -> Option<i64> {
        self.sender.lease.current()
    }

    /// Revokes the owner lease, so that other workers see at once that this process is gone. A key
    /// bound afterwards gets a new lease.
    ///
    /// # Errors
    ///
    /// [`EtcdError`] if the request failed; the lease then expires after its TTL.
    pub async fn revoke_owner_lease(&self) -> Result<(), EtcdError> {
        self.sender.lease.revoke(&self.sender.kv).await
    }

    /// Returns how many more requests may be in flight, if there is a group commit.
    #[cfg(test)]
    pub(crate) fn free_permits(&self) -> Option<usize> {
        self.coalescer.as_ref().map(Coalescer::free_permits)
    }

    async fn commit_all(&self, prepared: Vec<PreparedTxn>) -> Vec<Outcome> {
        match &self.coalescer {
            Some(coalescer) => coalescer.commit_all(prepared).await,
            None => self.commit_in_batches(prepared).await,
        }
    }

    /// Measures and commits one transaction, the usual case. An error means that it was not
    /// applied.
    async fn commit_lone(&self, txn: Txn) -> Outcome {
        let txn = PreparedTxn::new(&self.sender.namespace, &self.sender.budget, txn)?;
        // Before it is queued: a batch must neither wait for a grant nor fail because of one.
        if txn.binds() {
            self.sender.granted_lease().await.map_err(|error| infra_error(&error))?;
        }
        self.commit_one(txn).await
    }

    async fn commit_one(&self, txn: PreparedTxn) -> Outcome {
        if let Some(coalescer) = &self.coalescer {
            return coalescer.commit(&self.sender, txn).await;
        }
        self.sender.send_single(&txn).await
    }

    /// Commits the transactions of one call in as many batches as they need, one after the other,
    /// and returns their outcomes in order. Used without a group commit.
    async fn commit_in_batches(&self, prepared: Vec<PreparedTxn>) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> =
            prepared.iter().map(|_| Ok(CommitOutcome::Unknown)).collect();
        let mut rest: Vec<(PreparedTxn, usize)> =
            prepared.into_iter().enumerate().map(|(index, txn)| (txn, index)).collect();
        while !rest.is_empty() {
            let mut waiting = rest.into_iter();
            let Some((txn, index)) = waiting.next() else { break };
            let mut batch = Batch::of(txn, index);
            // A transaction that depends on this batch must see its writes, so it is in a later
            // one, as is one that does not fit.
            let left = |(txn, index)| batch.add(&self.sender.budget, txn, index);
            rest = waiting.filter_map(left).collect();
            for (index, outcome) in self.sender.send_batch(batch).await {
                outcomes[index] = outcome;
            }
        }
        outcomes
    }
}

impl<K: EtcdKv> AsyncStore for EtcdStore<K> {
    async fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let sender = &self.sender;
        // A caller that reads the owner of a shard is about to claim it, and will need the lease.
        if reads.iter().any(|read| matches!(read, Read::Get(Key::Owner { .. }))) {
            sender.prefetch_lease();
        }
        let questions = wire::questions(&sender.namespace, &reads, sender.budget.limits.page);
        // A range that cannot have keys is not sent. Its empty answer is inserted below, at its
        // place.
        let is_asked: Vec<bool> = questions.iter().map(Option::is_some).collect();
        let answers = reader::answers(sender, questions.into_iter().flatten().collect()).await;
        let mut answers = answers.map_err(|error| infra_error(&error))?.into_iter();
        let answer = |(read, is_asked): (&Read, bool)| {
            let received = if is_asked { answers.next() } else { Some(RangeResponse::default()) };
            wire::answer(&sender.namespace, read, received)
        };
        reads.iter().zip(is_asked).map(answer).collect()
    }

    async fn commit(&mut self, mut txns: Vec<Txn>) -> Vec<Outcome> {
        // The usual case skips the allocations that several transactions need.
        if txns.len() <= 1 {
            return match txns.pop() {
                Some(txn) => vec![self.commit_lone(txn).await],
                None => Vec::new(),
            };
        }
        let sender = &self.sender;
        let measured: Vec<Result<PreparedTxn, InfraError>> = txns
            .into_iter()
            .map(|txn| PreparedTxn::new(&sender.namespace, &sender.budget, txn))
            .collect();
        // Requested here and not in the batch, so that a refused lease fails only the transactions
        // that need one.
        let lease_error = match measured.iter().flatten().any(PreparedTxn::binds) {
            true => sender.granted_lease().await.err().map(|error| infra_error(&error)),
            false => None,
        };
        let mut outcomes = Vec::with_capacity(measured.len());
        let mut prepared = Vec::with_capacity(measured.len());
        for txn in measured {
            outcomes.push(match (txn, &lease_error) {
                (Ok(txn), Some(error)) if txn.binds() => Some(Err(error.clone())),
                (Ok(txn), _) => {
                    prepared.push(txn);
                    None
                }
                (Err(error), _) => Some(Err(error)),
            });
        }
        // A single one may bypass the queue of the group commit; several are always queued.
        let mut sent = match prepared.pop() {
            Some(only) if prepared.is_empty() => vec![self.commit_one(only).await],
            Some(last) => {
                prepared.push(last);
                self.commit_all(prepared).await
            }
            None => Vec::new(),
        }
        .into_iter();
        let outcome = |done: Option<Outcome>| {
            // A missing outcome is unknown and not an error: the transaction may have been sent.
            done.or_else(|| sent.next()).unwrap_or(Ok(CommitOutcome::Unknown))
        };
        outcomes.into_iter().map(outcome).collect()
    }

    async fn wait(&mut self, ticks: u64) {
        self.sender.kv.sleep(ticks).await;
    }

    fn limits(&self) -> StoreLimits {
        self.sender.budget.limits
    }

    fn binding(&self) -> Option<u64> {
        Some(self.sender.lease.binding())
    }
}

/// Returns the state shared by the handles of a store, if the settings are valid.
fn sender<K>(kv: K, config: &EtcdConfig, runtime: Option<Tasks>) -> Result<Sender<K>, ConfigError> {
    config.validate()?;
    let ttl_seconds = i64::try_from(config.owner_lease_ttl.as_secs()).unwrap_or(i64::MAX);
    Ok(Sender {
        kv,
        namespace: config.namespace.clone(),
        budget: Budget::new(config)?,
        retries: config.retries,
        lease: OwnerLease::new(ttl_seconds),
        runtime,
    })
}

/// Renews the owner lease until every handle is dropped.
async fn keep_alive<K: EtcdKv>(sender: Weak<Sender<K>>) {
    while let Some(alive) = sender.upgrade() {
        alive.lease.keep_alive(&alive.kv).await;
        let (kv, millis) = (alive.kv.clone(), alive.lease.keep_alive_millis());
        // No strong reference during the sleep, or the store could not end.
        drop(alive);
        kv.sleep(millis).await;
    }
}
