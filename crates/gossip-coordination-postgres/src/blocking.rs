//! A blocking face of the store, with a runtime of its own.
//!
//! The runtime has one worker thread: group commits must run while no call is in progress, which a
//! current-thread runtime cannot do. A call becomes a task on that thread and the caller sleeps
//! until it is done, so a call inside of another runtime blocks its thread and does not panic.
//!
//! Clones share the runtime. It ends with the last of them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::block_on;
use gossip_coordination::store::{
    Answer, AsyncStore, CommitOutcome, Read, Store, StoreLimits, Txn,
};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Row;

use crate::backend::ConnectError;
use crate::config::PostgresConfig;
use crate::error::Failure;
use crate::store::PostgresStore;

/// A blocking face of [`PostgresStore`].
#[derive(Clone)]
pub struct BlockingStore {
    store: PostgresStore,
    driver: Arc<Driver>,
}

impl BlockingStore {
    /// Starts a runtime and connects on it: connections belong to the runtime that opened them.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub fn connect(config: &PostgresConfig) -> Result<Self, ConnectError> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("gossip-postgres").enable_all();
        let driver = Driver(Some(builder.build().map_err(ConnectError::Runtime)?));
        let config = config.clone();
        let store = driver.run(async move { PostgresStore::connect(&config).await });
        let ended = || ConnectError::Runtime(std::io::Error::other("it ended while it connected"));
        Ok(Self { store: store.ok_or_else(ended)??, driver: Arc::new(driver) })
    }

    /// Executes a statement of the operator, which is given the schema.
    pub(crate) fn query(
        &self,
        operation: &'static str,
        statement: impl FnOnce(&str) -> String,
    ) -> Result<Vec<Row>, InfraError> {
        let (store, statement) = (self.store.clone(), statement(&self.store.config().schema));
        let rows = self.driver.run(async move { store.query(&statement).await });
        let rows = rows.unwrap_or(Err(Failure::Lost));
        rows.map_err(|failure| failure.into_infra(operation))
    }

    /// Runs a call on the store and keeps the handle that it returns. `None` if it panicked.
    fn call<R: Send + 'static, F>(&mut self, call: impl FnOnce(PostgresStore) -> F) -> Option<R>
    where
        F: Future<Output = (PostgresStore, R)> + Send + 'static,
    {
        let (store, result) = self.driver.run(call(self.store.clone()))?;
        self.store = store;
        Some(result)
    }
}

impl fmt::Debug for BlockingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockingStore").field(&self.store).finish()
    }
}

impl Store for BlockingStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let answers = self.call(|mut store| async move {
            let answers = store.read(reads).await;
            (store, answers)
        });
        answers.unwrap_or_else(|| {
            // A read has no effect, so its failure can be reported as retryable.
            let message = "the task that read has ended early".to_owned();
            Err(InfraError::Transient { operation: "postgres.read", message })
        })
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let count = txns.len();
        let outcomes = self.call(|mut store| async move {
            let outcomes = store.commit(txns).await;
            (store, outcomes)
        });
        // If the task ended early, it may have sent the commit before.
        outcomes.unwrap_or_else(|| (0..count).map(|_| Ok(CommitOutcome::Unknown)).collect())
    }

    fn wait(&mut self, ticks: u64) {
        // The result is ignored: a task that was shut down only makes the wait shorter.
        let _ended = self.call(|mut store| async move {
            store.wait(ticks).await;
            (store, ())
        });
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }
}

/// The runtime. `None` only while it is dropped.
struct Driver(Option<Runtime>);

impl Driver {
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
