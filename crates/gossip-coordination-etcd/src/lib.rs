//! etcd as a store: a client of our own, a model of the server, and the coordinators over them.
//!
//! [`EtcdKv`] is the part of etcd that we use; [`GrpcClient`] speaks it to a real server. Every
//! failure is an [`EtcdError`] that says first of all whether the request may have happened.
//!
//! What this crate never does: run `protoc`, retry a write that may have happened, or show a byte
//! of a key, a value, a password or a token in an error or in `Debug`.
#![forbid(unsafe_code)]

mod diagnosis;
mod error;
mod grpc;
mod grpc_codec;
mod grpc_config;
mod kv;
mod node;
pub mod proto;
#[cfg(any(test, feature = "sim"))]
pub mod sim_etcd_kv;
mod status;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod txn_effect;

pub use self::error::{EtcdCause, EtcdError, Fate, SizeLimit};
pub use self::grpc::GrpcClient;
pub use self::grpc_config::{
    Credentials, DEFAULT_CONNECT_TIMEOUT, DEFAULT_MAX_ANSWER_BYTES, DEFAULT_REQUEST_TIMEOUT,
    GrpcConfig, TlsIdentity, TlsOptions,
};
pub use self::kv::{Alarm, EtcdKv, LeaseGrant, LeaseTtl, MemberStatus};

#[cfg(test)]
mod auth_tests;
#[cfg(test)]
mod facts_tests;
#[cfg(test)]
mod grpc_tests;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod status_tests;
#[cfg(test)]
mod tls_tests;
