//! Coordination on PostgreSQL: durable, shared by workers on many machines.
//!
//! [`PostgresConfig`] describes a schema of a database, by URL or field by field, and connects to
//! it:
//!
//! ```no_run
//! use gossip_contracts::identity::{RunId, TenantId};
//! use gossip_coordination::RunManagement;
//! use gossip_coordination_postgres::PostgresConfig;
//!
//! let config = PostgresConfig::from_url("postgres://gossip@localhost/work?schema=gossip")?;
//! let mut coordinator = config.connect_blocking()?;
//! let run = coordinator.get_run(TenantId::from_bytes([7; 32]), RunId::from_raw(1))?;
//! # drop(run);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`PostgresConfig::connect`] is the asynchronous form for callers with a tokio runtime.
//!
//! # Layers
//!
//! | module | content |
//! |---|---|
//! | `config`, `url`, `password`, `tls` | settings |
//! | `backend`, `blocking` | the coordinators over the store |
//! | `store` | [`PostgresStore`]: reads and commits of the store layer |
//! | `group_commit`, `batch` | concurrent transactions of a process share calls |
//! | `server` | idle sessions, retries, the incarnation of the server |
//! | `locks` | the locks of a transaction, derived from its keys |
//! | `session`, `read`, `param` | one connection; calls of the server's functions |
//! | `schema`, `migrations` | tables and functions |
//! | `operator` | durability, size and state, for the operator |
//! | `error` | the cause of a failure, and whether a commit may have been applied |
//!
//! # Never
//! - resends a commit that may have been applied, or cancels one;
//! - reads or writes a table for a worker: only the functions of the schema do;
//! - shows a byte of a key, a value, a user or a password in an error or in `Debug`.
//!
//! `docs/postgres.md` describes how to operate a server for it.
#![forbid(unsafe_code)]

mod backend;
mod batch;
mod blocking;
mod config;
mod error;
mod group_commit;
mod locks;
mod operator;
mod param;
mod password;
mod read;
mod schema;
mod server;
mod session;
mod store;
mod tls;
mod url;

pub use self::backend::{AsyncPostgresCoordinator, ConnectError, PostgresCoordinator};
pub use self::blocking::BlockingStore;
pub use self::config::{
    ConfigError, DEFAULT_CONNECT_TIMEOUT, DEFAULT_REQUEST_TIMEOUT, NAME_LEN_MAX, PostgresConfig,
    PostgresEnvironment, PostgresTls, TIMEOUT_MAX, TIMEOUT_MIN, TlsFiles,
};
pub use self::operator::{Durability, PostgresStats};
pub use self::store::PostgresStore;
pub use self::url::{SCHEME, UrlError};

#[cfg(test)]
mod error_tests;
#[cfg(test)]
mod locks_tests;
#[cfg(test)]
mod param_tests;
#[cfg(test)]
mod password_tests;
#[cfg(test)]
mod url_tests;
