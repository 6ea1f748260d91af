//! etcd as a store: a client of our own, and the coordinators over it.
//!
//! [`EtcdKv`] is the part of etcd that we use; [`GrpcClient`] speaks it to a real server. Every
//! failure is an [`EtcdError`] that says first of all whether the request may have happened.
//!
//! What this crate never does: run `protoc`, retry a write that may have happened, or show a byte
//! of a key, a value, a password or a token in an error or in `Debug`.
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
    ADVISED_OWNER_LEASE_TTL, CLAIM_COOLDOWN_MAX, ConfigError, DEFAULT_MAX_CLOCK_SKEW,
    DEFAULT_MAX_REQUEST_BYTES, DEFAULT_MAX_TXN_OPS, DEFAULT_OWNER_LEASE_TTL, DEFAULT_RETRIES,
    ENDPOINTS_MAX, EtcdConfig, EtcdTls, MAX_CLOCK_SKEW_MAX, MAX_REQUEST_BYTES_MAX, MAX_TXN_OPS_MAX,
    MAX_TXN_OPS_MIN, OWNER_LEASE_TTL_MAX, OWNER_LEASE_TTL_MIN, RETRIES_MAX, TIMEOUT_MAX,
    TIMEOUT_MIN, TlsIdentityFiles,
};
pub use self::error::{EtcdCause, EtcdError, Fate, SizeLimit};
pub use self::grpc::GrpcClient;
pub use self::grpc_config::{
    Credentials, DEFAULT_CONNECT_TIMEOUT, DEFAULT_KEEP_ALIVE_INTERVAL, DEFAULT_KEEP_ALIVE_TIMEOUT,
    DEFAULT_MAX_ANSWER_BYTES, DEFAULT_REQUEST_TIMEOUT, GrpcConfig, TlsIdentity, TlsOptions,
};
pub use self::keyspace::{KeySpan, NAMESPACE_LEN_MAX, Namespace, NamespaceError};
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
