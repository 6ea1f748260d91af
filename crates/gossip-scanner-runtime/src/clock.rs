//! The runtime's source of time.
//!
//! Everything below the worker's threads takes `now` as an argument; this file reads the system's
//! clocks. One tick is a millisecond. One other file reads a clock: a listing of a directory
//! compares the time of its last change with the wall clock (`connectors/tree/directory.rs`).
//!
//! A worker has one time for its waits and one for the store (DESIGN Q7, ADR 84):
//!
//! - the **worker time** advances with the monotonic clock: it neither stops nor jumps, whatever
//!   happens to the wall clock. Every wait, interval and backoff uses it, and so does the deadline
//!   until which a worker relies on a lease;
//! - the **wall time** is compared between machines: deadlines and other stored times. It follows
//!   the system's wall clock in both directions.
//!
//! The two are equal when a worker starts, and differ by a [`ClockOffset`] after the wall clock was
//! set. [`WallTime`](crate::wall_time::WallTime) converts between them, at the coordinator handle.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gossip_contracts::identity::LogicalTime;

/// Ticks in a second.
pub(crate) const TICKS_PER_SECOND: u64 = 1000;

/// The smallest step of the wall clock that is followed, in ticks: above the difference between two
/// readings in a row, and far below the skew that other machines tolerate. Without it the offset
/// would change with every reading, and a repeated request would have another deadline.
const STEP_MIN: i64 = 250;

/// The longest time between the two readings of an offset: a thread that lost its processor in
/// between would see a step that did not happen.
const READING_MAX: Duration = Duration::from_millis(20);

const _: () = assert!(READING_MAX.as_millis() < STEP_MIN.unsigned_abs() as u128);

/// A clock that never goes back and never returns zero.
pub trait Clock: Send + Sync {
    /// Returns the worker time.
    fn now(&self) -> LogicalTime;

    /// Returns how far the wall clock is ahead of the worker time.
    fn offset(&self) -> ClockOffset {
        ClockOffset::ZERO
    }

    /// Returns the wall time.
    fn wall(&self) -> LogicalTime {
        self.offset().to_wall(self.now())
    }
}

/// How far the wall clock is ahead of the worker time; negative if it was set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset(i64);

impl ClockOffset {
    /// The offset of a wall clock that was not set since the worker started.
    pub const ZERO: Self = Self(0);

    /// Returns an offset of so many ticks.
    #[must_use]
    pub const fn from_ticks(ticks: i64) -> Self {
        Self(ticks)
    }

    /// Converts worker time to wall time. Zero stays zero, which means "never"; any other time is
    /// at least one.
    #[must_use]
    pub(crate) fn to_wall(self, time: LogicalTime) -> LogicalTime {
        shifted(time, self.0)
    }

    /// Converts wall time to worker time.
    #[must_use]
    pub(crate) fn to_worker(self, time: LogicalTime) -> LogicalTime {
        shifted(time, self.0.saturating_neg())
    }
}

fn shifted(time: LogicalTime, ticks: i64) -> LogicalTime {
    if time == LogicalTime::ZERO {
        return time;
    }
    LogicalTime::from_raw(time.as_raw().saturating_add_signed(ticks).max(1))
}

/// The clocks of the machine, in milliseconds since 1970.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    /// The wall time at `started`; at least one.
    begun: u64,
    /// The offset, in ticks.
    offset: AtomicI64,
}

impl SystemClock {
    /// Returns a clock whose worker time is the wall time now.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now(), begun: wall_ticks().max(1), offset: AtomicI64::new(0) }
    }

    fn worker_ticks(&self, at: Instant) -> u64 {
        let elapsed = at.saturating_duration_since(self.started).as_millis();
        self.begun.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> LogicalTime {
        LogicalTime::from_raw(self.worker_ticks(Instant::now()))
    }

    fn offset(&self) -> ClockOffset {
        let (before, wall, after) = (Instant::now(), wall_ticks(), Instant::now());
        let measured = i64::try_from(i128::from(wall) - i128::from(self.worker_ticks(before)));
        let known = self.offset.load(Ordering::Relaxed);
        let measured = measured.unwrap_or(known);
        if after.duration_since(before) > READING_MAX || (measured - known).abs() < STEP_MIN {
            return ClockOffset(known);
        }
        self.offset.store(measured, Ordering::Relaxed);
        ClockOffset(measured)
    }
}

/// Returns ticks of the monotonic clock since this call, for
/// [`ProcessState::watching`](gossip_coordination::store::ProcessState::watching).
pub fn monotonic_ticks() -> impl Fn() -> u64 + Send + Sync + 'static {
    let started = Instant::now();
    move || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Returns the reading of the wall clock; zero on a machine set to before 1970.
fn wall_ticks() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::ahead(5_000, 10, 5_010)]
    #[case::set_back(-5, 10, 5)]
    #[case::never_zero(-10, 10, 1)]
    #[case::saturates(5, u64::MAX, u64::MAX)]
    #[case::zero_means_never(5_000, 0, 0)]
    fn offset_converts_to_wall_time(#[case] offset: i64, #[case] time: u64, #[case] wall: u64) {
        let converted = ClockOffset(offset).to_wall(LogicalTime::from_raw(time));
        assert_eq!(converted, LogicalTime::from_raw(wall));
    }

    #[test]
    fn conversion_to_wall_and_back_is_the_identity() {
        for offset in [-7_200_000, 0, 7_200_000] {
            let (offset, time) = (ClockOffset(offset), LogicalTime::from_raw(1_700_000_000_000));
            assert_eq!(offset.to_worker(offset.to_wall(time)), time);
        }
    }

    #[test]
    fn worker_time_starts_at_the_wall_time_and_needs_no_offset() {
        let clock = SystemClock::new();
        assert_eq!(clock.offset(), ClockOffset::ZERO);
        assert!(wall_ticks().abs_diff(clock.now().as_raw()) < 10_000);
        assert_eq!(clock.wall().as_raw().abs_diff(clock.now().as_raw()) / 1_000, 0);
    }

    #[test]
    fn step_of_the_wall_clock_changes_the_offset_and_not_the_worker_time() {
        // A clock that began two hours ahead: the wall clock has been set back since.
        let clock = SystemClock { begun: wall_ticks() + 7_200_000, ..SystemClock::new() };
        let ClockOffset(ticks) = clock.offset();
        assert!((-7_260_000..=-7_200_000 + STEP_MIN).contains(&ticks), "{ticks}");
        assert!(clock.now().as_raw() >= clock.begun, "the worker time continues");
        assert_eq!(clock.offset(), ClockOffset(ticks), "small differences are ignored");
    }
}
