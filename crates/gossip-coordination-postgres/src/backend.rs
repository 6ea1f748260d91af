//! The coordinators on PostgreSQL: an asynchronous one, and a blocking one around the same store.
//!
//! Both are the coordinators of the store layer over [`PostgresStore`]; no operation is written
//! here. A process makes one connection and as many handles on it as it has workers.

use std::io;
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::store::{
    AsyncStoreCoordinator, StoreConfig, StoreCoordinator, fresh_nonce, ticks,
};
use thiserror::Error;
use tokio_postgres::Client;

use crate::blocking::BlockingStore;
use crate::config::{ConfigError, PostgresConfig};
use crate::error::Failure;
use crate::session::connect;
use crate::store::PostgresStore;

/// The coordinator on PostgreSQL for callers that have a tokio runtime.
pub type AsyncPostgresCoordinator = AsyncStoreCoordinator<PostgresStore>;

/// The coordinator on PostgreSQL for callers that have none: it brings its own. See
/// [`BlockingStore`].
pub type PostgresCoordinator = StoreCoordinator<BlockingStore>;

impl PostgresConfig {
    /// Connects, so that configuration errors appear here.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: settings, files, or a server that does not answer as it should.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(&self) -> Result<AsyncPostgresCoordinator, ConnectError> {
        let store = PostgresStore::connect(self).await?;
        Ok(AsyncStoreCoordinator::new(store, self.store_config()))
    }

    /// As [`PostgresConfig::connect`], with a runtime of its own.
    ///
    /// # Errors
    ///
    /// As [`PostgresConfig::connect`], and [`ConnectError::Runtime`].
    pub fn connect_blocking(&self) -> Result<PostgresCoordinator, ConnectError> {
        Ok(StoreCoordinator::new(BlockingStore::connect(self)?, self.store_config()))
    }

    /// Connects to the database without opening a store in it, for statements of the caller's own.
    ///
    /// The connection ends with the client, and its password and TLS are those of a store.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: settings, files, or a server that refuses.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect_client(&self) -> Result<Client, ConnectError> {
        self.validate()?;
        Ok(connect(self, &Arc::default()).await?)
    }

    /// Returns the configuration of another handle, with a nonce that no other handle has.
    #[must_use]
    pub fn store_config(&self) -> StoreConfig {
        StoreConfig {
            max_children_per_op: self.max_children_per_op,
            claim_cooldown_interval: ticks(self.claim_cooldown),
            // Grant tokens derive from the nonce, and a handle recognizes its lost commits by
            // them: two handles with one nonce would take each other's grants for their own.
            ..StoreConfig::new(fresh_nonce())
        }
    }
}

/// Why there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The settings cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The schema was upgraded by a newer program.
    #[error("the schema has version {found}, this gossip knows up to {known}")]
    NewerSchema {
        /// The version of the schema.
        found: usize,
        /// The newest version of this program.
        known: usize,
    },
    /// The server cannot be reached or refuses.
    #[error(transparent)]
    Store(InfraError),
    /// There is no thread for the runtime.
    #[error("no runtime could be started: {0}")]
    Runtime(io::Error),
}

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> Self {
        Self::Store(failure.into_infra("postgres.connect"))
    }
}
