//! Connected stores on the shared server, each used by one case after another.
//!
//! A new schema with its functions and a new connection cost far more than a script or a case does
//! in them, and there are more than a thousand of these.

use std::any::Any;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use gossip_coordination_postgres::PostgresConfig;
use tokio_postgres::{Client, NoTls};

use crate::conformance_tests::RUNTIME;
use crate::real_server::{config, server};

/// A store and its schema. It is empty, except for what its user has written.
#[derive(Clone)]
pub(crate) struct Pooled<S> {
    pub(crate) store: S,
    pub(crate) config: PostgresConfig,
}

impl<S> Pooled<S> {
    /// Connects to a schema of its own.
    pub(crate) fn connect(connect: impl FnOnce(&PostgresConfig) -> S) -> Self {
        let config = config();
        Self { store: connect(&config), config }
    }

    /// Removes all records. No handle of the store may be in use.
    pub(crate) fn empty(&self) {
        static CLIENT: LazyLock<Client> = LazyLock::new(connect);
        let statement = format!("DELETE FROM {}.entry", self.config.schema);
        RUNTIME.block_on(CLIENT.batch_execute(&statement)).expect("our own server answers");
    }
}

fn connect() -> Client {
    let server = server();
    let to =
        format!("host=127.0.0.1 port={} user={} dbname=postgres", server.port(), server.user());
    RUNTIME.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&to, NoTls).await.expect("our own server answers");
        tokio::spawn(connection);
        client
    })
}

/// Stores that are not in use.
pub(crate) struct Pool<S>(Mutex<Vec<Pooled<S>>>);

impl<S: Clone + Send + Sync + 'static> Pool<S> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns an empty store, and what returns it to the pool when the last clone is dropped.
    pub(crate) fn take(
        &'static self,
        new: impl FnOnce(&PostgresConfig) -> S,
    ) -> (Pooled<S>, Arc<dyn Any + Send + Sync>) {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let pooled = free.unwrap_or_else(|| Pooled::connect(new));
        pooled.empty();
        let taken = Taken { pool: self, pooled: pooled.clone() };
        (pooled, Arc::new(taken))
    }
}

/// A store in use, which returns to its pool.
struct Taken<S: Clone + 'static> {
    pool: &'static Pool<S>,
    pooled: Pooled<S>,
}

impl<S: Clone> Drop for Taken<S> {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.pooled.clone());
    }
}
