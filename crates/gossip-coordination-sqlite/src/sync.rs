//! What the convoy waits and locks with. Its tests run it over the scheduler of `shuttle` as well,
//! by compiling the same file beside another module of this name (`shuttle_tests.rs`).

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use std::thread::{self, Thread};
