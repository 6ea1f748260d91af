//! Coordination on etcd: durable, replicated, shared by workers on many machines.
//!
//! [`EtcdConfig`] describes a namespace of a cluster, by URL or field by field, and connects to it:
//!
//! ```no_run
//! use gossip_contracts::identity::{RunId, TenantId};
//! use gossip_coordination::RunManagement;
//! use gossip_coordination_etcd::{EtcdConfig, another_blocking_handle};
//!
//! let config = EtcdConfig::from_url("etcd://h1:2379,h2:2379,h3:2379/team/prod")?;
//! let mut coordinator = config.connect_blocking()?;
//! let run = coordinator.get_run(TenantId::from_bytes([7; 32]), RunId::from_raw(1))?;
//!
//! // One connection per process, one handle per worker.
//! let handle = another_blocking_handle(&coordinator);
//! # drop((run, handle));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`EtcdConfig::connect`] is the asynchronous form for callers with a tokio runtime.
//!
//! # Layers
//!
//! | module | content |
//! |---|---|
//! | `config`, `url`, `backend` | settings, and the coordinators over the store |
//! | `store` | reads and commits of the store layer as etcd transactions |
//! | `coalesce`, `batch`, `groups` | concurrent transactions of a process share requests |
//! | `sender` | retries, and which failures leave a commit unresolved |
//! | `owner_lease` | the lease that removes the owner keys of a dead process |
//! | `wire`, `message`, `reader`, `keyspace`, `budget` | requests and responses, and their limits |
//! | `kv` | [`EtcdKv`], the part of etcd that we use |
//! | `grpc`, `node`, `status`, `diagnosis` | [`GrpcClient`], which implements it for real servers |
//! | `error` | [`EtcdError`]: the cause, and whether the request may have been applied |
//!
//! # Never
//! - resends a write that may have been applied;
//! - relies on an owner key for safety: the fence in the record decides;
//! - shows a byte of a key, a value, a password or a token in an error or in `Debug`.
//!
//! `docs/etcd.md` describes how to operate a cluster for it.
#![forbid(unsafe_code)]

// The model of etcd names this crate as other crates do.
#[cfg(test)]
extern crate self as gossip_coordination_etcd;

mod abort_on_drop;
mod backend;
mod batch;
mod budget;
mod coalesce;
mod config;
mod diagnosis;
mod error;
mod groups;
mod grpc;
mod grpc_codec;
mod grpc_config;
mod keyspace;
mod kv;
mod message;
mod node;
mod owner_lease;
mod password;
pub mod proto;
mod reader;
mod sender;
mod single_use_connector;
mod status;
mod store;
mod tasks;
mod txn_effect;
mod url;
mod wire;

pub use self::backend::{
    AsyncEtcdCoordinator, BlockingStore, ConnectError, EtcdCoordinator, another_blocking_handle,
    another_handle,
};
pub use self::budget::RequestTooSmall;
pub use self::config::{
    ConfigError, DEFAULT_MAX_CLOCK_SKEW, DEFAULT_MAX_REQUEST_BYTES, DEFAULT_MAX_TXN_OPS,
    DEFAULT_OWNER_LEASE_TTL, DEFAULT_RETRIES, EtcdConfig, EtcdTls, RETRIES_MAX, TlsIdentityFiles,
};
pub use self::error::{EtcdCause, EtcdError, Fate, SizeLimit};
pub use self::grpc::GrpcClient;
pub use self::grpc_config::{
    Credentials, DEFAULT_KEEP_ALIVE_INTERVAL, DEFAULT_KEEP_ALIVE_TIMEOUT, DEFAULT_REQUEST_TIMEOUT,
    GrpcConfig, TlsIdentity, TlsOptions,
};
pub use self::keyspace::{KeySpan, Namespace, NamespaceError};
pub use self::kv::{Alarm, EtcdKv, LeaseGrant, LeaseTtl, MemberStatus};
pub use self::message::{EncodedTxn, TxnMessage};
pub use self::store::EtcdStore;
pub use self::url::{SCHEME, UrlError};

#[cfg(test)]
mod answers_tests;
#[cfg(test)]
mod auth_coordinator_tests;
#[cfg(test)]
mod auth_tests;
#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod explorer;
#[cfg(test)]
mod explorer_tests;
#[cfg(test)]
mod groups_tests;
#[cfg(test)]
mod keyspace_tests;
#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod sender_tests;
// Included for tests of internals that need the model: `gossip-testkit-etcd` implements the trait
// `EtcdKv` of the crate as it is built without `cfg(test)`, which is another trait than ours here.
#[cfg(test)]
#[path = "../../../verify/gossip-testkit-etcd/src/sim_etcd_kv.rs"]
pub mod sim_etcd_kv;
#[cfg(test)]
mod status_tests;
#[cfg(test)]
mod test_fixtures;
