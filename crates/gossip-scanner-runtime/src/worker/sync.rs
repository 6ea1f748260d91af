//! Synchronization and time of the worker's threads. The tests compile the same files a second time
//! against a module of this name that `shuttle` schedules (`shuttle_tests.rs`).

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
pub(super) use std::thread;
pub(super) use std::time::Instant;
