//! Stores, selected by URL.
//!
//! | URL | where coordination state is stored |
//! |---|---|
//! | `memory:` | in this process, for experiments; lost with the last handle |
//! | `sqlite:PATH` | in one file, durable, shared by the processes of one machine |
//! | `sqlite:PATH?sync=relaxed` | the same, faster; a power failure may lose the last commits |
//! | `etcd://HOST:PORT,HOST:PORT/PREFIX` | in an etcd cluster, shared by machines |
//! | `postgres://USER@HOST:PORT/DATABASE` | in a PostgreSQL database, shared by machines |
//!
//! [`EtcdConfig::from_url`] lists the settings of `etcd://`, and [`PostgresConfig::from_url`] those
//! of `postgres://`.
//!
//! ```
//! use gossip_coordination::CoordinationFacade;
//! use gossip::store::{Backend, StoreUrl};
//!
//! fn work(coordinator: &mut impl CoordinationFacade) {
//!     // The same code on a laptop and on a cluster.
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url: StoreUrl = "memory:".parse()?;
//! let backend = Backend::open(&url)?;
//! // One handle for each thread.
//! work(&mut backend.coordinator());
//! # Ok(())
//! # }
//! ```
//!
//! A bare path or an unknown scheme is refused, with the correct form in the error. No error shows
//! a URL, because it may hold a password.

mod any_store;
mod backend;
mod boot;
mod url;

pub use self::any_store::AnyStore;
pub use self::backend::{Backend, Coordinator, OpenStoreError};
pub use self::url::{StoreUrl, StoreUrlError};
pub use gossip_coordination_sqlite::{BackupError, FileSystem};

#[cfg(doc)]
use gossip_coordination_etcd::EtcdConfig;
#[cfg(doc)]
use gossip_coordination_postgres::PostgresConfig;

#[cfg(test)]
mod backend_tests;
#[cfg(test)]
mod url_tests;
