//! Turns successive snapshots into progress.

use std::collections::BTreeMap;

use gossip_contracts::identity::{FenceEpoch, ShardId};
use gossip_coordination::{RunStatus, ShardStatus, ShardSummary};

use super::eta::{Eta, Needs, Speed};
use super::{Progress, ProgressKind, RunLook, Slice, Tally, counted, covered};
use crate::density::Density;

/// Tracks one run. Its reports never decrease.
#[derive(Debug)]
pub struct ProgressMeter {
    density: Density,
    speed: Speed,
    /// The largest number of keys that the cursors have passed, unread ones included.
    passed: u64,
    /// The largest number of done keys.
    keys: u64,
    /// The largest covered part of the source, unread keys included.
    covered: f64,
    /// The largest done part reported so far, also in percent.
    done: (f64, u8),
}

impl ProgressMeter {
    /// Returns a meter for a run over the source that `density` was taken of.
    #[must_use]
    pub fn new(density: Density) -> Self {
        let speed = Speed::default();
        Self { density, speed, passed: 0, keys: 0, covered: 0.0, done: (0.0, 0) }
    }

    /// Records a snapshot and returns the progress of the run.
    pub fn observe(&mut self, look: &RunLook) -> Progress {
        let tally = Tally::of(&look.shards, &self.density);
        self.passed = self.passed.max(tally.keys);
        self.keys = self.keys.max(tally.keys.saturating_sub(tally.unread));
        self.follow(look);
        // A run without work left may wait for a worker that completes it; to the reader it is
        // over.
        let is_over = look.status == RunStatus::Done
            || (!look.shards.is_empty() && tally.done > 0 && left_over(&tally) == 0);
        let kind = self.kind();
        self.measure(&tally, is_over);
        let total = (kind != ProgressKind::Unknown || is_over).then(|| self.total(is_over));
        Progress {
            at: look.at,
            keys: self.keys,
            unread: self.passed - self.keys,
            total,
            kind: if is_over { ProgressKind::Exact } else { kind },
            fraction: total.map(|_| self.done.0),
            percent: total.map(|_| self.done.1),
            shards_done: tally.done,
            shards_parked: tally.parked,
            shards_damaged: tally.damaged,
            shards_leased: tally.leased,
            shards_waiting: tally.waiting,
            paused: look.paused,
            eta: total.and_then(|total| self.eta(look, total, is_over)),
        }
    }

    /// Returns where the shards of a snapshot lie in the source, in the order of their ranges.
    /// Split shards are left out, because their parts are shards of their own.
    ///
    /// Without a sample of the source all shards have the same width.
    #[must_use]
    pub fn slices(&self, look: &RunLook) -> Vec<Slice> {
        look.slices(&self.density)
    }

    /// Records leases and speed of a snapshot.
    fn follow(&mut self, look: &RunLook) {
        let leased = || look.shards.iter().filter(|shard| is_leased(shard));
        let fences: BTreeMap<ShardId, FenceEpoch> =
            leased().map(|shard| (shard.shard, shard.fence_epoch)).collect();
        self.speed.keep(&fences);
        self.speed.follow_leases(leased());
        self.speed.look(look.at, look.paused, self.passed);
    }

    /// Measures how much of the source is covered and done.
    fn measure(&mut self, tally: &Tally, is_over: bool) {
        let (part, whole) = match self.density.total() {
            // Listed to its end, the source has as many keys as the cursors have passed.
            _ if is_over => (self.passed, self.passed),
            // At least one: a source without keys is not done before its run is over.
            Some(total) => (self.passed, total.max(1)),
            None => (tally.covered as u64, self.density.len().max(1) as u64),
        };
        self.covered = self.covered.max(part as f64 / whole.max(1) as f64).min(1.0);
        let done = Part { part, whole, keys: self.keys, passed: self.passed };
        self.done = match is_over {
            // Exact now, where it may have been an estimate.
            true => (done.fraction(), done.percent()),
            // The end is announced by the end, not by rounding.
            false => (
                self.done.0.max(done.fraction().min(ALMOST)),
                self.done.1.max(done.percent().min(ALMOST_PERCENT)),
            ),
        };
    }

    const fn kind(&self) -> ProgressKind {
        match (self.density.total(), self.density.is_empty()) {
            (Some(_), _) => ProgressKind::Exact,
            (None, false) => ProgressKind::Estimated,
            (None, true) => ProgressKind::Unknown,
        }
    }

    /// Returns the number of all keys, at least the covered ones.
    fn total(&self, is_over: bool) -> u64 {
        let total = match self.density.total() {
            _ if is_over => self.passed,
            Some(total) => total,
            None if self.covered > 0.0 => (self.passed as f64 / self.covered) as u64,
            // No key is covered, so only the sample itself is known.
            None => self.density.len() as u64,
        };
        total.max(self.passed)
    }

    /// Returns the remaining time; `None` if it is unknown.
    fn eta(&self, look: &RunLook, total: u64, is_over: bool) -> Option<Eta> {
        if is_over {
            return Some(Eta { left: 0, error: 0 });
        }
        let (mut slowest, mut at_least) = (0.0_f64, 0.0_f64);
        for shard in look.shards.iter().filter(|shard| is_leased(shard)) {
            let (keys, left) = (counted(shard).0, self.keys_left(shard, total));
            match self.speed.shard_needs(shard.shard, keys, left) {
                Needs::About(ticks) => slowest = slowest.max(ticks),
                Needs::MoreThan(ticks) => at_least = at_least.max(ticks),
                // The speed of the run serves for it.
                Needs::Unknown => {}
            }
        }
        let (ticks_per_key, error) = self.speed.of_run()?;
        // A run is not over before its slowest leased shard, however fast the others are.
        let left = ((total - self.passed) as f64 * ticks_per_key).max(slowest);
        // A shard that has finished no key yet has no speed. Where it may need longer than all that
        // is known, any number would be invented.
        if at_least > left {
            return None;
        }
        Some(Eta { left: left as u64, error: (left * error.hypot(self.look_error())) as u64 })
    }

    /// Returns how many keys of a shard are not covered, by its share of the sample.
    fn keys_left(&self, shard: &ShardSummary, total: u64) -> f64 {
        let whole = self.density.between(&shard.start, &shard.end);
        let left = whole.saturating_sub(covered(shard, &self.density));
        left as f64 * total as f64 / self.density.len().max(1) as f64
    }

    /// Returns the sampling error: chance in the remaining part of the sample.
    fn look_error(&self) -> f64 {
        match self.kind() {
            ProgressKind::Exact => 0.0,
            ProgressKind::Estimated | ProgressKind::Unknown => {
                let left = self.density.len() as f64 * (1.0 - self.covered);
                left.max(1.0).sqrt().recip()
            }
        }
    }
}

/// The largest fraction and percentage that are reported while work remains.
const ALMOST: f64 = 0.9999;
const ALMOST_PERCENT: u8 = 99;

/// The done part of a source: the covered part of it, of which unread keys are not done.
struct Part {
    part: u64,
    whole: u64,
    keys: u64,
    passed: u64,
}

impl Part {
    fn fraction(&self) -> f64 {
        let (done, all) = self.of_all();
        done as f64 / all as f64
    }

    /// Rounded down, from integers: 29 of 100 are 29 %, which a product of fractions need not give.
    fn percent(&self) -> u8 {
        let (done, all) = self.of_all();
        u8::try_from(done * 100 / all).unwrap_or(100).min(100)
    }

    fn of_all(&self) -> (u128, u128) {
        // A source without keys is done as a whole.
        if self.whole == 0 || self.passed == 0 {
            return (u128::from(self.whole == 0), 1);
        }
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        (product(self.part, self.keys), product(self.whole, self.passed))
    }
}

/// Shards with remaining work, including parked and damaged ones.
const fn left_over(tally: &Tally) -> u64 {
    tally.leased + tally.waiting + tally.parked + tally.damaged
}

fn is_leased(shard: &ShardSummary) -> bool {
    shard.leased && shard.status == ShardStatus::Active && shard.damage.is_none()
}
