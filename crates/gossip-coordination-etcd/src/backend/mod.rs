//! The coordinators on etcd: an asynchronous one, and a blocking one around the same store.
//!
//! Both are the coordinators of the store layer over [`EtcdStore`]; no operation is written here.
//! So they offer every trait of the protocol.
//!
//! ```no_run
//! use gossip_coordination_etcd::EtcdConfig;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = EtcdConfig::from_url("etcd://h1,h2,h3/team/prod")?;
//! let coordinator = config.connect_blocking()?;
//! # Ok(())
//! # }
//! ```
//!
//! A process makes one connection and as many handles on it as it has workers
//! ([`another_handle`], [`another_blocking_handle`]): they share the group commit and the owner
//! lease.
//!
//! What it never does: hold a second copy of anything that the store layer knows.

mod blocking;

use std::io;
use std::path::PathBuf;

use gossip_coordination::store::{
    AsyncStoreCoordinator, StoreConfig, StoreCoordinator, fresh_nonce, ticks,
};
use thiserror::Error;

pub use self::blocking::BlockingStore;
use crate::config::{ConfigError, EtcdConfig};
use crate::error::EtcdError;
use crate::grpc::GrpcClient;
use crate::grpc_config::{Credentials, GrpcConfig, TlsOptions};
use crate::kv::EtcdKv;
use crate::password;
use crate::store::EtcdStore;

/// The coordinator on etcd for callers that have a tokio runtime.
pub type AsyncEtcdCoordinator = AsyncStoreCoordinator<EtcdStore<GrpcClient>>;

/// The coordinator on etcd for callers that have none: it brings its own. See [`BlockingStore`].
pub type EtcdCoordinator = StoreCoordinator<BlockingStore<EtcdStore<GrpcClient>>>;

/// The largest answer that we take: a page of shards with everything as long as it may be. Usual
/// pages are far below four mebibytes; a larger response is read in parts.
const ANSWER_BYTES_MAX: usize = 64 << 20;

impl EtcdConfig {
    /// Connects and checks the members, so that configuration errors appear here.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: settings, files, or a cluster that does not answer as it should.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime. So do the operations of the coordinator, which wait and connect
    /// in the runtime in which they are polled.
    pub async fn connect(&self) -> Result<AsyncEtcdCoordinator, ConnectError> {
        let store = self.connect_store().await?;
        Ok(AsyncStoreCoordinator::new(store, self.store_config()))
    }

    /// As [`EtcdConfig::connect`], with a runtime of its own.
    ///
    /// # Errors
    ///
    /// As [`EtcdConfig::connect`], and [`ConnectError::Runtime`].
    pub fn connect_blocking(&self) -> Result<EtcdCoordinator, ConnectError> {
        let config = self.clone();
        // Connected on the store's own runtime: connections belong to the runtime that opened them.
        let connect = async move { config.connect_store().await };
        let store = BlockingStore::start(connect).map_err(ConnectError::Runtime)??;
        Ok(StoreCoordinator::new(store, self.store_config()))
    }

    /// Returns the configuration of another handle, with a nonce that no other handle has.
    #[must_use]
    pub fn store_config(&self) -> StoreConfig {
        StoreConfig {
            max_children_per_op: self.max_children_per_op,
            claim_cooldown_interval: ticks(self.claim_cooldown),
            max_clock_skew: ticks(self.max_clock_skew),
            ..StoreConfig::new(fresh_nonce())
        }
    }

    async fn connect_store(&self) -> Result<EtcdStore<GrpcClient>, ConnectError> {
        self.validate()?;
        let client = GrpcClient::new(&self.grpc_config()?)?;
        // Before any key is written, which a member of another cluster could receive.
        client.discover_members().await?;
        // The requests before carry no credentials. This one does, so a wrong password fails here
        // and not at the first operation.
        client.status().await?;
        Ok(EtcdStore::start(client, self)?)
    }

    fn grpc_config(&self) -> Result<GrpcConfig, ConnectError> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoints = self.endpoints.iter().map(|host| format!("{scheme}://{host}"));
        let tls = self.tls.as_ref().map(TlsOptions::read).transpose();
        Ok(GrpcConfig {
            credentials: self.usable_credentials()?,
            tls: tls.map_err(|(path, error)| ConnectError::File { path, error })?,
            tls_files: self.tls.clone(),
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            max_answer_bytes: ANSWER_BYTES_MAX,
            ..GrpcConfig::new(endpoints)
        })
    }

    /// Returns the credentials with the password of the file, if there is one.
    fn usable_credentials(&self) -> Result<Option<Credentials>, ConnectError> {
        let Some(mut credentials) = self.credentials.clone() else { return Ok(None) };
        if let Some(path) = &self.password_file {
            let read = password::of_file(path);
            credentials.password =
                read.map_err(|error| ConnectError::File { path: path.clone(), error })?;
        }
        match credentials.password.is_empty() {
            true => Err(ConnectError::NoPassword),
            false => Ok(Some(credentials)),
        }
    }
}

/// Returns another handle on the same connection, for another worker of this process. The handles
/// share one record cache and one claim cooldown per worker.
#[must_use]
pub fn another_handle(coordinator: &AsyncEtcdCoordinator) -> AsyncEtcdCoordinator {
    let config = StoreConfig { nonce: fresh_nonce(), ..coordinator.config() };
    AsyncStoreCoordinator::sharing(
        coordinator.store().clone(),
        config,
        &coordinator.process_state(),
    )
}

/// Returns another handle on the same connection and runtime, for another thread of this process.
/// The handles share one record cache and one claim cooldown per worker.
#[must_use]
pub fn another_blocking_handle(coordinator: &EtcdCoordinator) -> EtcdCoordinator {
    let config = StoreConfig { nonce: fresh_nonce(), ..coordinator.config() };
    StoreCoordinator::sharing(coordinator.store().clone(), config, &coordinator.process_state())
}

/// Why there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The settings cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is a user and no password.
    #[error("a user needs a password; use password_file=FILE or GOSSIP_ETCD_PASSWORD")]
    NoPassword,
    /// The password, or a file of TLS, could not be read.
    #[error("the file {path:?} could not be read: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The cluster does not answer as it should.
    #[error(transparent)]
    Server(#[from] EtcdError),
    /// There is no thread for the runtime.
    #[error("no runtime could be started: {0}")]
    Runtime(io::Error),
}
