//! A store whose next reply to a commit can be lost.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gossip_coordination::InfraError;
use gossip_coordination::store::{
    Answer, AsyncStore, CommitOutcome, Read, Store, StoreLimits, Txn,
};

/// A store around another. Clones share the rule.
#[derive(Clone, Debug)]
pub(crate) struct LossyStore<S> {
    inner: S,
    loses_reply: Arc<AtomicBool>,
    /// Dropped with the last clone.
    _taken: Option<Arc<dyn Any + Send + Sync>>,
}

impl<S> LossyStore<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, loses_reply: Arc::default(), _taken: None }
    }

    /// As [`Self::new`], of a store that returns to a pool when `taken` is dropped.
    pub(crate) fn of_pool(inner: S, taken: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _taken: Some(taken), ..Self::new(inner) }
    }

    /// Loses the reply to the next commit, which is applied.
    pub(crate) fn lose_next_reply(&self) {
        self.loses_reply.store(true, Ordering::SeqCst);
    }

    fn reply(&self, outcomes: Vec<Outcome>) -> Vec<Outcome> {
        match self.loses_reply.swap(false, Ordering::SeqCst) {
            true => outcomes.iter().map(|_| Ok(CommitOutcome::Unknown)).collect(),
            false => outcomes,
        }
    }
}

type Outcome = Result<CommitOutcome, InfraError>;

impl<S: Store> Store for LossyStore<S> {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.inner.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Outcome> {
        let outcomes = self.inner.commit(txns);
        self.reply(outcomes)
    }

    fn wait(&mut self, ticks: u64) {
        self.inner.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }
}

impl<S: AsyncStore + Sync> AsyncStore for LossyStore<S> {
    async fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.inner.read(reads).await
    }

    async fn commit(&mut self, txns: Vec<Txn>) -> Vec<Outcome> {
        let outcomes = self.inner.commit(txns).await;
        self.reply(outcomes)
    }

    async fn wait(&mut self, ticks: u64) {
        self.inner.wait(ticks).await;
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }
}
