//! The runtime's source of time.
//!
//! Everything below the worker's threads takes `now` as an argument; this file is the only one that
//! reads the system's clock. One tick is a millisecond.
//!
//! A clock never goes back: if the system clock does, the reading stays the same until the system
//! has caught up. It is never zero.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use gossip_contracts::identity::LogicalTime;

/// Ticks in a second.
pub const TICKS_PER_SECOND: u64 = 1000;

/// A clock that never goes back and never returns zero.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> LogicalTime;
}

/// The clock of the machine, in milliseconds since 1970.
///
/// Wall time and not time since start: deadlines are compared between machines.
#[derive(Debug)]
pub struct SystemClock {
    /// The latest reading; at least one.
    latest: AtomicU64,
}

impl SystemClock {
    /// Returns a clock that has not been read yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { latest: AtomicU64::new(1) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> LogicalTime {
        // A machine set to before 1970 has no valid time: the last reading is repeated.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ticks = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let before = self.latest.fetch_max(ticks, Ordering::Relaxed);
        LogicalTime::from_raw(before.max(ticks))
    }
}
