//! Verification of the worker (`gossip-scanner-runtime`). No product crate depends on this crate.
//!
//! Both modules step the production worker in virtual time through
//! [`gossip_scanner_runtime::stepping`]:
//!
//! - [`sim`] runs workers on a store with faults, and an oracle checks every result. `cargo xtask
//!   sim-worker` runs it.
//! - [`makespan`] measures how evenly uneven work is spread over workers. `cargo xtask makespan`
//!   runs it.
//!
//! `cargo test -p gossip-sim-worker` runs short forms of both.
//!
//! # Example
//!
//! One world, from its seed:
//!
//! ```
//! use gossip_sim_worker::sim::{Plan, run};
//!
//! let outcome = run(Plan::of_seed(7));
//! assert!(outcome.broken.is_none());
//! ```

#![forbid(unsafe_code)]

pub mod makespan;
pub mod sim;
mod timeline;
