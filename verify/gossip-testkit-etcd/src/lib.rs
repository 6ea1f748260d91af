//! The test kit of the etcd store: what knows `gossip-coordination-etcd` and is no test itself.
//!
//! - [`sim_etcd_kv`]: a model of etcd behind the same trait as the client of a real server.
//! - [`SimStore`], [`SimEtcdCoordinator`]: store and coordinator over the model.
//! - [`Campaign`], [`StoppedWorkers`]: workers on real servers that lose their leader, or are
//!   stopped by a signal, and the oracle that checks them.
//!
//! A unit test inside `gossip-coordination-etcd` cannot use this crate: it would see two builds of
//! that crate. Its integration tests can.
#![forbid(unsafe_code)]

mod campaign;
mod sim_coordinator;
pub mod sim_etcd_kv;
mod stopped;

pub use self::campaign::{Campaign, Loss, Resumed, Verdict};
pub use self::sim_coordinator::{SimEtcdCoordinator, SimStore};
pub use self::stopped::{StoppedWorkers, Takeover, be_a_stopped_worker, wall_clock};

#[cfg(test)]
mod differential_tests;
#[cfg(test)]
mod faults_tests;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod restore_tests;
#[cfg(test)]
mod sim_etcd_kv_tests;
