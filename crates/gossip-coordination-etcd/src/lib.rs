//! etcd as a store: a client of our own, a model of the server, and the coordinators over them.
//!
//! [`EtcdKv`] is the part of etcd that we use; Every
//! failure is an [`EtcdError`] that says first of all whether the request may have happened.
//!
//! What this crate never does: run `protoc`, retry a write that may have happened, or show a byte
//! of a key, a value, a password or a token in an error or in `Debug`.
#![forbid(unsafe_code)]

mod error;
mod kv;
pub mod proto;

pub use self::error::{EtcdCause, EtcdError, Fate, SizeLimit};
pub use self::kv::{Alarm, EtcdKv, LeaseGrant, LeaseTtl, MemberStatus};
