//! The locks and threads of the group commit, and how many callers it wakes at once. Tests compile
//! `group_commit.rs` again beside another module of this name, over the scheduler of `shuttle`
//! (`shuttle_tests.rs`).

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use std::thread::{self, Thread};

/// Callers of which the leader wakes one: about the square root of a large batch, so that neither
/// the leader nor any caller wakes many. A relay is one step deep, because each further step waits
/// for its turn on a busy machine.
pub(crate) const RELAY: usize = 8;
