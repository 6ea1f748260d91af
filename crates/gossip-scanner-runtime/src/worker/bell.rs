//! Waiting that can be cut short.

use std::time::Duration;

use super::sync::{Condvar, Mutex, PoisonError};

/// Wakes whoever waits. A ring is never missed: a wait names the last ring it has heard.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// Wakes all who wait.
    pub(crate) fn ring(&self) {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        *rings += 1;
        self.rung.notify_all();
    }

    /// How often it was rung.
    pub(crate) fn heard(&self) -> u64 {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a ring after `heard`, at most for `patience`.
    pub(crate) fn wait(&self, heard: u64, patience: Duration) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        // Woken early, late or by mistake: whoever waits looks at the world again anyway.
        drop(self.rung.wait_timeout_while(rings, patience, |rings| *rings == heard));
    }
}
