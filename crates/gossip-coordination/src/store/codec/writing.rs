//! The format in which values are written: that of the store, as far as this process knows it.
//!
//! A program writes the format that it has read, in the schema record or in any other, and the
//! oldest that it knows otherwise. So a newer program on an older store writes what older programs
//! read, until an operator upgrades the store (ADR 77).
//!
//! Encoders are called far below a flight, so the format is not an argument of each: a flight sets
//! it for its thread while it is polled. It changes bytes only, never a decision.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::frame::{FORMAT_OLDEST, FORMAT_VERSION};

/// The format of a store, shared by the handles of a process. It only rises.
#[derive(Clone, Debug)]
pub(in crate::store) struct StoreFormat(Arc<AtomicU8>);

impl Default for StoreFormat {
    fn default() -> Self {
        Self(Arc::new(AtomicU8::new(FORMAT_OLDEST)))
    }
}

impl StoreFormat {
    fn get(&self) -> u8 {
        // Only the number itself is shared, so relaxed ordering is enough.
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that the store has values of `format`. One that this program cannot write is ignored.
    pub(in crate::store) fn learn(&self, format: u8) {
        if format <= FORMAT_VERSION {
            self.0.fetch_max(format, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static WRITING: RefCell<Option<StoreFormat>> = const { RefCell::new(None) };
}

/// Runs `call` with `format` as the format of values that are written, and raises it to that of
/// values that are read.
pub(in crate::store) fn within<R>(format: &StoreFormat, call: impl FnOnce() -> R) -> R {
    let _outer = Outer(WRITING.replace(Some(format.clone())));
    call()
}

/// Restores the format of the outer scope, also after a panic.
struct Outer(Option<StoreFormat>);

impl Drop for Outer {
    fn drop(&mut self) {
        WRITING.set(self.0.take());
    }
}

/// Returns the format to write; outside every scope the oldest.
pub(super) fn format() -> u8 {
    WRITING.with_borrow(|writing| writing.as_ref().map_or(FORMAT_OLDEST, StoreFormat::get))
}

/// Notes that a value of `format` was read.
pub(super) fn learn(format: u8) {
    // In a store of the oldest format, which is the usual case, nothing is to be learnt.
    if format > FORMAT_OLDEST {
        WRITING.with_borrow(|writing| {
            if let Some(writing) = writing {
                writing.learn(format);
            }
        });
    }
}
