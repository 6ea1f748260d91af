//! The clocks of a process of the runtime.
//!
//! As in production a process has two times (ADR 84): the worker time begins at the wall time and
//! is never set, and the wall clock may be set at any moment, by a little or by hours, also back
//! from an error with which the process has started. The store sees wall time only.

use super::context::{Clock, EPOCH};
use super::processes::DRIFT_MAX;
use super::random::Stream;
use super::wire::CLOCK_STEP_MAX;

/// By how much a clock is wrong that is wrong by hours: two hours. [`EPOCH`] is later.
pub(super) const FAR_TICKS: i64 = 2 * 3_600_000;

/// The largest error of a wall clock. Steps that would exceed it set the clock right instead.
const ERROR_MAX: i64 = FAR_TICKS + FAR_TICKS / 8;

/// Smaller steps are not followed, as in production.
const STEP_MIN: i64 = 250;

/// One wrong clock or step in this many is one by hours.
const FAR_ONE_IN: u64 = 3;

const _: () = assert!(ERROR_MAX < EPOCH as i64 / 2, "no clock reads zero");

/// Errors of the clocks of a process, against the true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClockErrors {
    pub(super) wall: i64,
    pub(super) worker: i64,
}

/// The clocks of one process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessClock {
    /// The worker time.
    worker: Clock,
    /// By how much the wall clock was set since the process started.
    stepped: i64,
    /// The part of it that the process follows.
    followed: i64,
}

impl ProcessClock {
    /// Sets the wall clock wrong before the process starts.
    pub(super) fn skew(&mut self, lease: u64, luck: &mut Stream) {
        self.worker.offset = if luck.one_in(FAR_ONE_IN) {
            far(luck)
        } else {
            luck.below(lease / 2) as i64 - lease as i64 / 4
        };
    }

    /// Makes both clocks run too fast or too slow.
    pub(super) fn drift(&mut self, luck: &mut Stream) {
        self.worker.drift = luck.below(2 * DRIFT_MAX) as i64 - DRIFT_MAX as i64;
    }

    /// Steps the wall clock in the direction of `sign` at the true time `now`: by a little, by
    /// hours, or to the right time if it lies in that direction.
    pub(super) fn step(&mut self, sign: i64, now: u64, lease: u64, luck: &mut Stream) {
        let error = self.worker_error(now) + self.stepped;
        let step = if error * sign < 0 && luck.one_in(2) {
            -error
        } else if luck.one_in(FAR_ONE_IN) {
            sign * FAR_TICKS
        } else {
            sign * (1 + luck.below(lease.min(CLOCK_STEP_MAX)) as i64)
        };
        let is_possible = (error + step).abs() <= ERROR_MAX;
        self.stepped += if is_possible { step } else { -error };
        if (self.stepped - self.followed).abs() >= STEP_MIN {
            self.followed = self.stepped;
        }
    }

    /// Returns the worker time at the true time `now`.
    pub(super) fn worker(&self, now: u64) -> u64 {
        self.worker.read(now)
    }

    /// Returns how far the wall clock is ahead of the worker time.
    pub(super) const fn offset(&self) -> i64 {
        self.followed
    }

    /// Returns the errors at the true time `now`.
    pub(super) fn errors(&self, now: u64) -> ClockErrors {
        let worker = self.worker_error(now);
        ClockErrors { wall: worker + self.followed, worker }
    }

    fn worker_error(&self, now: u64) -> i64 {
        self.worker.read(now) as i64 - (EPOCH + now) as i64
    }
}

fn far(luck: &mut Stream) -> i64 {
    if luck.one_in(2) { FAR_TICKS } else { -FAR_TICKS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_time_advances_evenly_and_the_wall_clock_stays_in_bounds() {
        for seed in 0..200 {
            let mut luck = Stream::named(seed, "clock", 0);
            let mut clock = ProcessClock::default();
            clock.skew(1_000, &mut luck);
            let mut far = 0;
            for now in 0..200 {
                let sign = if luck.one_in(2) { 1 } else { -1 };
                clock.step(sign, now, 1_000, &mut luck);
                assert_eq!(clock.worker(now + 1), clock.worker(now) + 1, "seed {seed}");
                let wall = clock.errors(now).wall;
                assert!(wall.abs() <= ERROR_MAX + STEP_MIN, "seed {seed}: {wall}");
                far += u32::from(wall.abs() > FAR_TICKS / 2);
            }
            assert!((1..200).contains(&far), "seed {seed}: {far} readings are wrong by hours");
        }
    }

    #[test]
    fn clock_that_started_ahead_is_set_right() {
        let (mut luck, mut clock) = (Stream::named(1, "clock", 0), ProcessClock::default());
        clock.worker.offset = FAR_TICKS;
        let set = (0..100).any(|now| {
            clock.step(-1, now, 1_000, &mut luck);
            clock.errors(now).wall == 0
        });
        assert!(set, "no step sets the clock right");
        assert_eq!(clock.worker(7), EPOCH + 7 + FAR_TICKS.unsigned_abs(), "it is never set");
    }
}
