//! What the convoy waits and locks with, and how many it wakes at once. Its tests run it over the
//! scheduler of `shuttle` as well, by compiling the same file beside another module of this name
//! (`shuttle_tests.rs`).

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use std::thread::{self, Thread};

/// Callers of whom the driver wakes one: about the root of as many as wait at once, so that neither
/// it nor any of them wakes many. A relay is one step deep, because each step is a turn to wait for
/// on a busy machine.
pub(crate) const RELAY: usize = 8;
