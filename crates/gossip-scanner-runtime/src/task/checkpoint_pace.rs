//! How soon a checkpoint follows the one before.
//!
//! A crash repeats the items since the last checkpoint, so slow items are checkpointed as often as
//! their checkpoints stay cheap: the shortest interval is [`COST_SHARE`] times the measured time of
//! a checkpoint. Fast items, of which a repetition costs little, keep the longest interval.
//!
//! Times are ticks, and most checkpoints take less than one. A time measured in whole ticks is
//! right on average, so the average is kept in fractions of a tick.

use gossip_contracts::identity::LogicalTime;

/// An interval is at least so many times as long as a checkpoint takes: 2 % of the time.
const COST_SHARE: u64 = 50;

/// The interval before a checkpoint was measured, in ticks.
const FIRST_TICKS: u64 = 50;

/// Items are slow if they take so many ticks on average: those of 10 ms surely are. The repetition
/// of faster ones costs little.
const SLOW_ITEM_TICKS: u64 = 8;

/// Parts of a tick in which the average is kept.
const PARTS: u64 = 1024;

/// The weight of the newest checkpoint in the average is one in so many.
const AVERAGED: u64 = 8;

/// The interval between the checkpoints of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckpointPace {
    /// The average time of a checkpoint, in parts of a tick; `None` before the second.
    cost: Option<u64>,
    /// Whether the first checkpoint is stored, whose time is not that of the others.
    is_warm: bool,
    /// When the last checkpoint was begun, until its time is known.
    begun: Option<LogicalTime>,
}

impl CheckpointPace {
    /// Notes that a checkpoint was begun at `now` and is stored.
    pub(super) const fn stored(&mut self, now: LogicalTime) {
        self.begun = Some(now);
    }

    /// Takes the time of the first step after a checkpoint, which ends the measurement of that one.
    pub(super) fn step(&mut self, now: LogicalTime) {
        let Some(begun) = self.begun.take() else { return };
        let lasted = now.as_raw().saturating_sub(begun.as_raw()).saturating_mul(PARTS);
        // The first one of a process opens files and fills caches.
        if !std::mem::replace(&mut self.is_warm, true) {
            return;
        }
        self.cost = Some(match self.cost {
            Some(cost) => cost.saturating_mul(AVERAGED - 1).saturating_add(lasted) / AVERAGED,
            None => lasted,
        });
    }

    /// Returns the ticks from the last checkpoint to the next one, which stores `items` items, with
    /// these shortest and longest intervals.
    pub(super) fn interval(&self, items: u64, shortest: u64, longest: u64) -> u64 {
        let cheap = match self.cost {
            Some(cost) => cost.saturating_mul(COST_SHARE).div_ceil(PARTS),
            None => FIRST_TICKS,
        };
        // The newest item was finished after the time of the step that asks.
        let slow = items.saturating_sub(1).saturating_mul(SLOW_ITEM_TICKS);
        cheap.max(shortest).max(slow).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u64 = 1_000;

    /// Steps through checkpoints that take `lasted` ticks in turn.
    fn after(lasted: &[u64]) -> CheckpointPace {
        let (mut pace, mut now) = (CheckpointPace::default(), LogicalTime::from_raw(1_000));
        for lasted in lasted {
            pace.stored(now);
            now = now.saturating_add(*lasted);
            pace.step(now);
            // Only the first step after a checkpoint counts.
            now = now.saturating_add(777);
            pace.step(now);
        }
        pace
    }

    #[test]
    fn the_first_checkpoints_are_early() {
        assert_eq!(CheckpointPace::default().interval(1, 20, LONGEST), 50);
        assert_eq!(after(&[300]).interval(1, 20, LONGEST), 50);
        assert_eq!(CheckpointPace::default().interval(1, LONGEST, LONGEST), LONGEST);
    }

    #[test]
    fn checkpoints_take_a_fiftieth_of_the_time_at_most() {
        for (lasted, interval) in [(0, 20), (1, 50), (3, 150), (10, 500), (20, LONGEST)] {
            assert_eq!(after(&[lasted; 40]).interval(1, 20, LONGEST), interval, "{lasted}");
        }
        // One checkpoint in four takes a tick: 250 µs on average, so 12.5 ms would do.
        let quarter: Vec<u64> = (0..400).map(|number| u64::from(number % 4 == 0)).collect();
        let interval = after(&quarter).interval(1, 5, LONGEST);
        assert!((8..=18).contains(&interval), "{interval}");
    }

    #[test]
    fn a_slow_store_is_given_time_again_when_it_recovers() {
        let mut lasted = vec![100; 4];
        assert_eq!(after(&lasted).interval(1, 20, LONGEST), LONGEST);
        lasted.extend([0; 60]);
        assert_eq!(after(&lasted).interval(1, 20, LONGEST), 20);
    }

    #[test]
    fn fast_items_keep_the_longest_interval() {
        let pace = after(&[0, 0]);
        assert_eq!(pace.interval(2, 20, LONGEST), 20);
        assert_eq!(pace.interval(6, 20, LONGEST), 40);
        assert_eq!(pace.interval(200, 20, LONGEST), LONGEST);
        assert_eq!(pace.interval(u64::MAX, 20, LONGEST), LONGEST);
        assert_eq!(pace.interval(1, 20, 7), 7);
    }
}
