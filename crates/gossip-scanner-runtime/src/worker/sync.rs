//! What the threads of a worker lock, wait and tell the time with. Their tests run them over the
//! scheduler of `shuttle` as well, by compiling the same files beside another module of this name
//! (`shuttle_tests.rs`).

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
pub(super) use std::thread;
pub(super) use std::time::Instant;
