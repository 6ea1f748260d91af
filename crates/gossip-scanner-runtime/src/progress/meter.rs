//! Turns successive snapshots into progress.

use std::collections::BTreeMap;

use gossip_contracts::identity::{FenceEpoch, ShardId};
use gossip_coordination::{RunStatus, ShardStatus, ShardSummary};

use super::eta::{Eta, Speed};
use super::{Progress, ProgressKind, RunLook, Tally, counted, covered};
use crate::density::Density;

/// Tracks one run. Its reports never decrease.
#[derive(Debug)]
pub struct ProgressMeter {
    density: Density,
    speed: Speed,
    /// The largest count reported so far.
    keys: u64,
    /// The largest fraction reported so far; below 1 while work remains.
    fraction: f64,
}

impl ProgressMeter {
    /// Returns a meter for a run over the source that `density` was taken of.
    #[must_use]
    pub fn new(density: Density) -> Self {
        Self { density, speed: Speed::default(), keys: 0, fraction: 0.0 }
    }

    /// Records a snapshot and returns the progress of the run.
    pub fn observe(&mut self, look: &RunLook) -> Progress {
        let tally = Tally::of(&look.shards, &self.density);
        self.keys = self.keys.max(tally.keys);
        self.speed.look(look.at, look.paused, self.keys);
        // A run without work left may wait for a worker that completes it; to the reader it is
        // over.
        let is_over = look.status == RunStatus::Done
            || (!look.shards.is_empty() && tally.done > 0 && left_over(&tally) == 0);
        let kind = self.kind();
        // Exactly 1 only at the end: rounding must not announce it.
        self.fraction = if is_over { 1.0 } else { self.fraction.max(self.part(&tally)) };
        let total = (kind != ProgressKind::Unknown || is_over).then(|| self.total(is_over));
        Progress {
            at: look.at,
            keys: self.keys,
            unread: tally.unread,
            total,
            kind: if is_over { ProgressKind::Exact } else { kind },
            fraction: total.map(|_| self.fraction),
            shards_done: tally.done,
            shards_parked: tally.parked,
            shards_leased: tally.leased,
            shards_waiting: tally.waiting,
            paused: look.paused,
            eta: total.and_then(|total| self.eta(look, total, is_over)),
        }
    }

    const fn kind(&self) -> ProgressKind {
        match (self.density.total(), self.density.is_empty()) {
            (Some(_), _) => ProgressKind::Exact,
            (None, false) => ProgressKind::Estimated,
            (None, true) => ProgressKind::Unknown,
        }
    }

    /// Returns the part of the source that is covered; below 1, because something is left.
    fn part(&self, tally: &Tally) -> f64 {
        let part = match self.density.total() {
            Some(total) => tally.keys as f64 / total.max(1) as f64,
            None => tally.covered as f64 / self.density.len().max(1) as f64,
        };
        part.min(ALMOST)
    }

    /// Returns the number of all keys, at least the covered ones.
    fn total(&self, is_over: bool) -> u64 {
        let total = match self.density.total() {
            _ if is_over => self.keys,
            Some(total) => total,
            None if self.fraction > 0.0 => (self.keys as f64 / self.fraction) as u64,
            // No key is covered, so only the sample itself is known.
            None => self.density.len() as u64,
        };
        total.max(self.keys)
    }

    fn eta(&mut self, look: &RunLook, total: u64, is_over: bool) -> Option<Eta> {
        if is_over {
            return Some(Eta { left: 0, error: 0 });
        }
        let leased = || look.shards.iter().filter(|shard| is_leased(shard));
        let fences: BTreeMap<ShardId, FenceEpoch> =
            leased().map(|shard| (shard.shard, shard.fence_epoch)).collect();
        self.speed.keep(&fences);
        let mut slowest = 0.0_f64;
        for shard in leased() {
            let (keys, left) = (counted(shard).0, self.keys_left(shard, total));
            let needs = self.speed.shard_needs(shard.shard, shard.fence_epoch, keys, left);
            slowest = slowest.max(needs.unwrap_or(0.0));
        }
        let (ticks_per_key, error) = self.speed.of_run()?;
        // A run is not over before its slowest leased shard, however fast the others are.
        let left = ((total - self.keys) as f64 * ticks_per_key).max(slowest);
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
                let left = self.density.len() as f64 * (1.0 - self.fraction);
                left.max(1.0).sqrt().recip()
            }
        }
    }
}

/// The largest fraction that is reported while work remains.
const ALMOST: f64 = 0.9999;

/// Shards with remaining work, including parked ones.
const fn left_over(tally: &Tally) -> u64 {
    tally.leased + tally.waiting + tally.parked
}

fn is_leased(shard: &ShardSummary) -> bool {
    shard.leased && shard.status == ShardStatus::Active
}
