//! A condition variable with a counter, so that no notification is lost.

use std::time::Duration;

use super::sync::{Condvar, Mutex, PoisonError};

/// Wakes every waiting thread. A wait names the last count that its caller has seen, so a
/// notification between the caller's check and its wait is not lost.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Notify {
    /// Wakes all waiting threads.
    pub(crate) fn wake_all(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        self.changed.notify_all();
    }

    /// Returns the number of notifications so far.
    pub(crate) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a notification after the first `seen` ones, at most for `timeout`.
    pub(crate) fn wait(&self, seen: u64, timeout: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // Callers check their own condition again after every wait, so the reason of the wake-up
        // does not matter: a notification, the timeout or a spurious one.
        drop(self.changed.wait_timeout_while(count, timeout, |count| *count == seen));
    }
}
