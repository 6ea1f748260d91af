//! The data contracts that every other gossip crate shares.
//!
//! Types, their validation and their hashes; no protocol and no I/O.
//! Nothing here reads a clock, a random source or the environment, opens anything, starts a thread
//! or knows a store.
//!
//! - [`identity`]: ids, epochs, logical time, canonical hashing and the registry of hash domains.
//!   It is the leaf layer: it names nothing from the other modules.
//! - [`coordination`]: shard ranges, cursors, manifests and split plans, and the rules about them.

#![forbid(unsafe_code)]

pub mod coordination;
pub mod identity;
