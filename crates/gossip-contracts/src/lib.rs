//! The data contracts that every other gossip crate shares: types, their validation and their
//! hashes.
//!
//! - [`identity`]: ids, epochs, logical time, canonical hashing and the registry of hash domains.
//!   It is the leaf layer: it depends on no other module.
//! - [`coordination`]: shard ranges, cursors, manifests and split plans, and the rules about them.
//! - [`connector`]: the interface of a source of keys, and the suite that checks implementations.
//!
//! ```
//! use gossip_contracts::coordination::{
//!     CursorUpdate, ShardSpecRef, plan_split_replace_at_points_with_cursor,
//! };
//!
//! // Split the keys of ["a", "z") that follow the cursor at "c" in two, at "m".
//! let parent = ShardSpecRef::new(b"a", b"z", b"");
//! let cursor = CursorUpdate::with_last_key(b"c");
//! let plan = plan_split_replace_at_points_with_cursor(parent, &[b"m"], cursor)?;
//!
//! // The child that contains the cursor starts with it; the other child starts at its first key.
//! let [left, right] = plan.children() else { panic!("one point makes two children") };
//! assert_eq!((left.spec.end, left.cursor), (b"m".as_slice(), cursor));
//! assert!(right.cursor.is_initial());
//! # Ok::<(), gossip_contracts::coordination::PlanSplitReplaceError>(())
//! ```
//!
//! This crate contains no protocol and does no I/O: it never reads a clock, a random source or the
//! environment, opens nothing, starts no thread and depends on no store.

#![forbid(unsafe_code)]

pub mod connector;
pub mod coordination;
pub mod identity;
