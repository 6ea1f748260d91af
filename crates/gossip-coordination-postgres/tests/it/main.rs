//! Tests of the PostgreSQL store through its public interface, on real servers.
//!
//! One program, so that its tests share servers.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "all of it is test code")]

mod access_tests;
mod conformance_tests;
mod differential_tests;
mod fault_tests;
mod lock_tests;
mod lossy_store;
mod message_proxy;
mod real_server;
mod schema_tests;
mod store_pool;
