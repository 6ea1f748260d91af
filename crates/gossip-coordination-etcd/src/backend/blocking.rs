//! A blocking store around an asynchronous one, with a runtime of its own.
//!
//! The runtime has one worker thread: keep-alives and group commits must run while no call is in
//! progress, which a current-thread runtime cannot do. A call becomes a task on that thread and the
//! caller sleeps until it is done, so a call inside of another runtime blocks its thread and does
//! not panic.
//!
//! Clones share the runtime. It ends with the last of them; the owner lease then runs out, unless
//! it was given back before ([`BlockingStore::block_on`] with
//! [`EtcdStore::revoke_owner_lease`](crate::EtcdStore::revoke_owner_lease)).

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::block_on;
use gossip_coordination::store::{
    Answer, AsyncStore, CommitOutcome, Read, Store, StoreLimits, Txn,
};
use tokio::runtime::{Builder, Runtime};

/// A blocking face of `S`.
pub struct BlockingStore<S> {
    store: S,
    driver: Arc<Driver>,
}

impl<S: AsyncStore + Clone + Sync + 'static> BlockingStore<S> {
    /// Starts a runtime and makes the store on it. Blocks until it is made.
    ///
    /// # Errors
    ///
    /// The outer error if the runtime could not be started or ended early, the inner one if `store`
    /// fails.
    pub fn start<E: Send + 'static>(
        store: impl Future<Output = Result<S, E>> + Send + 'static,
    ) -> io::Result<Result<Self, E>> {
        let driver = Arc::new(Driver::start()?);
        let Some(made) = driver.run(store) else {
            return Err(io::Error::other("the runtime ended while the store was made"));
        };
        Ok(made.map(|store| Self { store, driver }))
    }

    /// Returns the asynchronous store.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Runs a call on the asynchronous store and waits for it. `None` if it panicked.
    pub fn block_on<R: Send + 'static, F>(&self, call: impl FnOnce(S) -> F) -> Option<R>
    where
        F: Future<Output = R> + Send + 'static,
    {
        self.driver.run(call(self.store.clone()))
    }
}

impl<S: Clone> Clone for BlockingStore<S> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), driver: Arc::clone(&self.driver) }
    }
}

impl<S: fmt::Debug> fmt::Debug for BlockingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockingStore").field(&self.store).finish()
    }
}

impl<S: AsyncStore + Clone + Sync + 'static> Store for BlockingStore<S> {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let answers = self.block_on(|mut store| async move { store.read(reads).await });
        answers.unwrap_or_else(|| {
            // A read has no effect, so its failure can be reported as retryable.
            let message = "the task that read has ended early".to_owned();
            Err(InfraError::Transient { operation: "etcd.read", message })
        })
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let count = txns.len();
        let outcomes = self.block_on(|mut store| async move { store.commit(txns).await });
        // If the task ended early, it may have sent the commit before.
        outcomes.unwrap_or_else(|| (0..count).map(|_| Ok(CommitOutcome::Unknown)).collect())
    }

    fn wait(&mut self, ticks: u64) {
        // The result is ignored: a task that panicked or was shut down only makes the wait shorter.
        let _ended = self.block_on(|mut store| async move { store.wait(ticks).await });
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn binding(&self) -> Option<u64> {
        self.store.binding()
    }
}

/// The runtime. `None` only while it is dropped.
struct Driver(Option<Runtime>);

impl Driver {
    fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("gossip-etcd").enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs `future` on the worker thread; `None` if it ended without an answer.
    fn run<R: Send + 'static>(
        &self,
        future: impl Future<Output = R> + Send + 'static,
    ) -> Option<R> {
        let runtime = self.0.as_ref()?;
        block_on(runtime.spawn(future)).ok()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A runtime waits for its threads when it is dropped, which panics within another runtime.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
