//! Verification of handoffs (`gossip-handoff`). No product crate depends on this crate.
//!
//! - [`search`] explores every reachable state of one handoff, within a budget of faults and
//!   crashes. `cargo xtask check-handoff` runs it.
//! - [`sim`] runs random schedules in which handoffs race with splits, expiry, parking, cancelled
//!   runs, drains and each other. `cargo xtask sim-handoff` runs it.
//! - [`conformance`] is the test suite that every `Repository` must pass.
//!
//! `cargo test -p gossip-sim-handoff` runs short forms of all three.
//!
//! # Example
//!
//! One schedule, from its seed:
//!
//! ```
//! use gossip_sim_handoff::sim::{Plan, Simulator};
//!
//! let plan = Plan { seed: 7, bug: None, is_traced: false };
//! let outcome = Simulator::new().run(plan);
//! assert_eq!(outcome.broken, None);
//! ```

#![forbid(unsafe_code)]

pub mod conformance;
pub mod search;
pub mod sim;

#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod sim_tests;
