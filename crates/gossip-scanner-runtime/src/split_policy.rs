//! Chooses the shard that is worth splitting when a worker is idle.
//!
//! An idle worker lists the held shards and requests a split of the one with the most remaining
//! *time*: its remaining keys, by the density of the source and the counts in the tokens so far,
//! times the observed speed of its holder. The holder chooses the split point, because it has the
//! page and can sample the remaining range.
//!
//! # Rules
//!
//! - Never before first progress: a split is requested only after the shard's cursor has moved
//!   since it was granted, or since it was last split.
//! - Not for small shards: [`SPLIT_KEYS_MIN`] keys, and a minimum of remaining time, relative to
//!   the measured time of a move and to the time that the worker has been running. The latter
//!   bounds the splits of a run by workers times a logarithm.
//! - Bounded in number: [`SPLITS_PER_LEASE`] for each held shard, all workers together.
//!
//! It reads no clock and no store, and equal snapshots give equal answers.

use std::collections::BTreeMap;

use gossip_contracts::identity::{FenceEpoch, LogicalTime, ShardId};
use gossip_coordination::{ShardStatus, ShardSummary};

use crate::density::Density;
use crate::progress::{Speed, counted, covered};

/// Fewer keys than this cannot be split: one of them stays. In-flight keys count. The minimum is
/// low because keys are of any size; the remaining time decides whether a split is worth it.
pub(crate) const SPLIT_KEYS_MIN: usize = 2;

/// Splits of a run per held shard: halving that often divides any shard down to single keys, so
/// more would be a bug.
pub(crate) const SPLITS_PER_LEASE: usize = 64;

/// Work shorter than this is not split within a process: a claim takes a few ticks.
const WORTH_NEAR: f64 = 100.0;

/// Work shorter than this is not split between processes while no move was measured: the request
/// waits for a checkpoint, and the new shard for a claim, about a second each.
const WORTH_FAR: f64 = 3_000.0;

/// Work shorter than so many moves between processes is not split: the other worker must gain more
/// than the move takes.
const WORTH_MOVES: f64 = 2.0;

/// Work shorter than this fraction of the elapsed time is not split: the run would end earlier by
/// less than that.
const WORTH_OF_ELAPSED: f64 = 1.0 / 64.0;

/// Maximum number of requests per search: the first shard without a pending request is enough.
const ASKED_MAX: usize = 4;

/// The number of covered sampled keys from which on a shard's own density is used.
const LEARNED_FROM: usize = 8;

/// A shard that has not moved for this many ticks has an observed speed of zero.
const STILL_FROM: u64 = 4_000;

/// The input of a decision.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    /// The current time.
    pub(crate) now: LogicalTime,
    /// When this worker started: the run may have been idle for weeks before.
    pub(crate) begun: LogicalTime,
    /// How many shards the run was created with.
    pub(crate) roots: usize,
    /// All of its shards.
    pub(crate) shards: &'a [ShardSummary],
    /// Ticks per key of this worker, in all of its shards or the last one, whichever is more, if it
    /// has finished any.
    pub(crate) ticks_per_key: Option<f64>,
    /// How many ticks a move between processes takes, if one was measured.
    pub(crate) move_ticks: Option<f64>,
    /// For a shard of the same process: how far it is.
    pub(crate) near: &'a dyn Fn(ShardId) -> Option<NearShard>,
}

/// A shard that is held by a thread of the same process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NearShard {
    /// Whether it has progressed since it was claimed or last split.
    pub(crate) moved: bool,
    /// When it was claimed.
    pub(crate) since: LogicalTime,
    /// How many keys were finished since then.
    pub(crate) keys: u64,
}

/// Chooses shards by their observed progress.
#[derive(Debug, Default)]
pub(crate) struct SplitPolicy {
    speed: Speed,
    eras: BTreeMap<ShardId, Era>,
}

/// A shard since its grant or its last split.
#[derive(Clone, Copy, Debug)]
struct Era {
    fence: FenceEpoch,
    spawned: u32,
    /// The counted keys at its first observation.
    keys: u64,
    /// Whether it has moved since then.
    moved: bool,
}

impl SplitPolicy {
    /// Returns the shards to request a split of, best first.
    pub(crate) fn candidates(
        &mut self,
        situation: Situation<'_>,
        density: &Density,
    ) -> Vec<ShardId> {
        let held: Vec<_> = situation.shards.iter().filter(|shard| is_held(shard)).collect();
        self.follow(&situation, &held);
        let splits = situation.shards.len().saturating_sub(situation.roots);
        // Counted from the listing and not by this worker, so the bound holds for all workers
        // together.
        if splits >= held.len() * SPLITS_PER_LEASE {
            return Vec::new();
        }
        let scale = keys_per_sample(situation.shards, density);
        let mut worth: Vec<(f64, ShardId)> = Vec::new();
        for shard in held.iter().filter(|shard| self.has_moved(shard, &situation)) {
            let left = self.ticks_left(shard, &situation, density, scale);
            if is_worth_it(left, shard, &situation) {
                worth.push((left, shard.shard));
            }
        }
        // The id breaks ties, so that equal snapshots give equal answers.
        worth.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        worth.truncate(ASKED_MAX);
        worth.into_iter().map(|(_, shard)| shard).collect()
    }

    /// Records a snapshot.
    fn follow(&mut self, situation: &Situation<'_>, held: &[&ShardSummary]) {
        let keys = held.iter().map(|shard| counted(shard).0).sum();
        self.speed.look(situation.now, false, keys);
        let fences = held.iter().map(|shard| (shard.shard, shard.fence_epoch)).collect();
        self.speed.keep(&fences);
        self.eras.retain(|shard, era| fences.get(shard) == Some(&era.fence));
        for shard in held {
            let (fence, spawned, keys) = (shard.fence_epoch, shard.spawned_count, counted(shard).0);
            // A shard that was never split has moved if it has a cursor at all.
            let fresh = Era { fence, spawned, keys, moved: spawned == 0 && keys > 0 };
            let era = self.eras.entry(shard.shard).or_insert(fresh);
            // A split began a new era: progress from before it does not allow the next one.
            if era.spawned != spawned {
                *era = fresh;
            }
            era.moved |= keys > era.keys;
            self.speed.follow(shard.shard, fence, keys);
        }
    }

    fn has_moved(&self, shard: &ShardSummary, situation: &Situation<'_>) -> bool {
        let seen = || self.eras.get(&shard.shard).is_some_and(|era| era.moved);
        (situation.near)(shard.shard).map_or_else(seen, |near| near.moved)
    }

    /// Returns how long a shard will take its holder; infinity if its keys or its speed are
    /// unknown.
    fn ticks_left(
        &self,
        shard: &ShardSummary,
        situation: &Situation<'_>,
        density: &Density,
        scale: f64,
    ) -> f64 {
        if density.is_empty() {
            return f64::MAX;
        }
        let (keys, left) = (counted(shard).0, keys_left(shard, density, scale));
        // Of a shard of this process the speed since its claim is known, and not only that since it
        // was first listed.
        let seen = match (situation.near)(shard.shard) {
            Some(NearShard { since, keys, .. }) if keys > 0 => {
                (situation.now.as_raw().saturating_sub(since.as_raw()), keys)
            }
            Some(_) | None => self.speed.seen(shard.shard, keys),
        };
        match (seen, situation.ticks_per_key) {
            ((ticks, done), _) if done > 0 => left * ticks as f64 / done as f64,
            // No key in all this time: assume that the next one is finished right now.
            ((ticks, _), _) if ticks >= STILL_FROM => left * ticks as f64,
            (_, Some(ticks_per_key)) => left * ticks_per_key,
            (_, None) => f64::MAX,
        }
    }
}

fn is_held(shard: &ShardSummary) -> bool {
    shard.leased && shard.status == ShardStatus::Active && shard.damage.is_none()
}

/// Returns whether splitting the remaining work would end the run noticeably earlier.
fn is_worth_it(left: f64, shard: &ShardSummary, situation: &Situation<'_>) -> bool {
    let elapsed = situation.now.as_raw().saturating_sub(situation.begun.as_raw());
    let near = (situation.near)(shard.shard).is_some();
    let far = situation
        .move_ticks
        .map_or(WORTH_FAR, |ticks| (ticks * WORTH_MOVES).clamp(WORTH_NEAR, WORTH_FAR));
    let least = if near { WORTH_NEAR } else { far };
    left >= least.max(elapsed as f64 * WORTH_OF_ELAPSED)
}

/// Returns how many keys one sampled key represents, as far as the run has learned it.
fn keys_per_sample(shards: &[ShardSummary], density: &Density) -> f64 {
    let learned = shards.iter().filter(|shard| shard.status != ShardStatus::Split);
    let (keys, samples) = learned.fold((0, 0), |(keys, samples), shard| {
        (keys + counted(shard).0, samples + covered(shard, density))
    });
    match density.total() {
        Some(total) => total as f64 / density.len().max(1) as f64,
        None if samples >= LEARNED_FROM => keys as f64 / samples as f64,
        None => 1.0,
    }
}

/// Returns the keys of a shard that are not covered: the remaining sample, in keys.
fn keys_left(shard: &ShardSummary, density: &Density, scale: f64) -> f64 {
    let (keys, samples) = (counted(shard).0, covered(shard, density));
    let left = density.between(&shard.start, &shard.end).saturating_sub(samples);
    let scale = if samples >= LEARNED_FROM { keys as f64 / samples as f64 } else { scale };
    // An exhausted sample says little: half of the keys that one sampled key represents may remain.
    (left as f64).max(0.5) * scale
}
