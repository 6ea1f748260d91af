//! Mutants: deliberate bugs as data, applied to a generated copy of the workspace.
//!
//! The product has no switch for tests. `cargo xtask mutants` copies the workspace, applies the
//! edits of `mutants/*.txt` to the copy, builds it once and runs the hunt there: in the copy every
//! mutant is a run-time switch, so one build serves all of them.
//!
//! | module | contents |
//! |---|---|
//! | `mutants/*.txt` | each mutant: a description, where such a bug was seen, the layers that must find it, and its edits |
//! | `parse` | the format of those files |
//! | [`catalog`] | the parsed files |
//! | [`edit`] | applying edits to a file |
//! | [`copy`] | making the copy |
//! | `switch` | the run-time switch, which only the copy calls |
//!
//! To add a mutant, add an entry to the file of its part and run
//! `cargo xtask mutants --mutant NAME`. `cargo test -p gossip-mutants` lists the edits that no
//! longer fit the workspace.
//!
//! This crate depends on no other crate, because crates of the copy depend on it.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod copy;
pub mod edit;
mod parse;
mod switch;

#[cfg(test)]
mod catalog_tests;

pub use self::parse::ParseError;
pub use self::switch::{GUARDS_VARIABLE, HAS_SWITCHES, OFF, VARIABLE, guards_enabled, is_active};
