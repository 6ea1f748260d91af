//! Tests of the etcd store through its public interface: on the model of etcd and on real servers.
//!
//! One program, so that its tests share servers.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "all of it is test code")]

mod backend_tests;
mod conformance_tests;
mod differential_tests;
mod facts_tests;
mod fake_grpc;
mod fault_tests;
mod golden;
mod groups_tests;
mod grpc_tests;
mod lossy_kv;
mod operator_tests;
mod outage_tests;
mod owner_lease_tests;
mod process_tests;
mod race_tests;
mod real_servers;
mod refusal_tests;
mod restore_tests;
mod sim_coordinator_tests;
mod space_tests;
mod store_tests;
mod tls_tests;
mod unpolled_future_tests;
