//! Limits the start rate of items, for all threads of a worker together.
//!
//! A [`Throttle`] is a pair of token buckets, one in items and one in bytes, each holding at most
//! one second's worth, so a pause is not followed by a burst. Time is an argument. A throttle
//! without limits takes no lock.

use std::sync::Mutex;

use gossip_contracts::identity::LogicalTime;

use crate::clock::TICKS_PER_SECOND;

/// A rate limiter for item starts.
#[derive(Debug, Default)]
pub struct Throttle {
    limits: Limits,
    state: Mutex<State>,
}

/// Items and bytes per second; `None` means no limit, and zero counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Items per second.
    pub items: Option<u64>,
    /// Bytes per second, by the sizes in the listing.
    pub bytes: Option<u64>,
}

/// When the buckets will have refilled the amount taken.
///
/// A bucket is represented by the time at which everything taken is paid for, in fractions of a
/// tick; it is full when that time is a second ago.
#[derive(Debug, Default)]
struct State {
    items_paid: u128,
    bytes_paid: u128,
}

/// Fractions of a tick, so that rates above one per tick are exact enough.
const FRACTIONS: u128 = 1 << 20;

/// How far the payment time may lie back: one second's worth may be taken at once.
const BURST: u128 = TICKS_PER_SECOND as u128 * FRACTIONS;

impl Throttle {
    /// Returns a throttle with these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Takes one item of `bytes` bytes, or returns when there will be room for one.
    ///
    /// An item larger than a second's worth is admitted when the bucket is full and paid for
    /// afterwards; otherwise it would never start.
    pub(crate) fn take(&self, now: LogicalTime, bytes: u64) -> Option<LogicalTime> {
        // The usual case, without the lock that all threads share.
        if self.limits == Limits::default() {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = u128::from(now.as_raw()) * FRACTIONS;
        let oldest = now.saturating_sub(BURST);
        // After a pause at most one second's worth may be taken at once.
        let items_paid = state.items_paid.max(oldest);
        let bytes_paid = state.bytes_paid.max(oldest);
        let busy_until = items_paid.max(bytes_paid);
        if busy_until > now {
            let ticks = u64::try_from(busy_until.div_ceil(FRACTIONS)).unwrap_or(u64::MAX);
            return Some(LogicalTime::from_raw(ticks));
        }
        // Both or neither: an item that the bytes do not admit must not use up the items.
        state.items_paid = items_paid + price(1, self.limits.items);
        state.bytes_paid = bytes_paid + price(bytes, self.limits.bytes);
        None
    }
}

/// Returns how long `amount` takes at `rate` per second.
fn price(amount: u64, rate: Option<u64>) -> u128 {
    rate.map_or(0, |rate| u128::from(amount) * BURST / u128::from(rate.max(1)))
}
