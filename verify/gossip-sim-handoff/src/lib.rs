//! Verification of planned moves (`gossip-handoff`). No product crate depends on it.
//!
//! - [`search`] explores every reachable state of one move, within a budget of faults and crashes.
//!   `cargo xtask check-handoff` runs it.
//! - [`sim`] runs random schedules in which moves race with splits, expiry, parking, cancelled
//!   runs, drains and each other. `cargo xtask sim-handoff` runs it.
//! - [`conformance`] is the test suite that every `Repository` must pass.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod search;
pub mod sim;

#[cfg(test)]
mod search_tests;
#[cfg(test)]
mod sim_tests;
