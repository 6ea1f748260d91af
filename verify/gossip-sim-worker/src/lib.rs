//! Verification of the worker (`gossip-scanner-runtime`). No product crate depends on it.
//!
//! Both modules step the production worker in virtual time through
//! [`gossip_scanner_runtime::stepping`]:
//!
//! - [`sim`] runs workers on a store with faults, and an oracle checks every result. `cargo xtask
//!   sim-worker` runs it.
//! - [`makespan`] measures how evenly uneven work is spread over workers. `cargo xtask makespan`
//!   runs it.

#![forbid(unsafe_code)]

pub mod makespan;
pub mod sim;
mod timeline;
