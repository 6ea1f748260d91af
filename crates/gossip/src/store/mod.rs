//! The choice of a store by URL, in one place.
//!
//! | URL | where coordination lives |
//! |---|---|
//! | `memory:` | in this process, for trying things out; gone when the last handle is |
//! | `sqlite:PATH` | in one file, durable, shared by the processes of one machine |
//! | `sqlite:PATH?sync=relaxed` | the same, faster; a power cut may lose the last commits |
//! | `etcd://HOST:PORT,HOST:PORT/PREFIX` | in an etcd cluster, shared by machines |
//!
//! The settings of `etcd://` are those of [`EtcdConfig::from_url`].
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
//! # Never
//! - guesses: a bare path or an unknown scheme is refused with what to type instead;
//! - shows a URL in an error, because it may hold a password.

mod any_store;
mod backend;
mod url;

pub use self::any_store::{AnyAsyncStore, AnyStore};
pub use self::backend::{AsyncBackend, AsyncCoordinator, Backend, Coordinator, OpenError};
pub use self::url::{StoreUrl, StoreUrlError};

#[cfg(doc)]
use gossip_coordination_etcd::EtcdConfig;

#[cfg(test)]
mod backend_tests;
#[cfg(test)]
mod url_tests;
