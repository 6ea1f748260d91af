//! The remaining time, and its error.

use std::collections::{BTreeMap, VecDeque};

use gossip_contracts::identity::{FenceEpoch, LogicalTime, ShardId};
use gossip_coordination::ShardSummary;

use super::counted;
use crate::clock::TICKS_PER_SECOND;

/// The speed is that of this much working time before the last snapshot: long enough to smooth the
/// intervals between checkpoints, short enough to follow workers that join or leave.
const WINDOW: u64 = 60 * TICKS_PER_SECOND;

/// Snapshots kept at most: the window at one per half second, and its ends.
const LOOKS_KEPT: usize = 128;

const _: () = assert!(WINDOW / LOOKS_APART < LOOKS_KEPT as u64);

/// Snapshots closer together than this count as one: their difference is mostly chance.
const LOOKS_APART: u64 = TICKS_PER_SECOND / 2;

/// Leased shards whose own speed is tracked: more than workers have threads.
const SHARDS_FOLLOWED: usize = 4096;

/// The assumed relative error with only two snapshots, which give a speed but no error.
const ERROR_OF_ONE: f64 = 0.5;

/// Remaining working time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eta {
    /// Ticks.
    pub left: u64,
    /// The standard error, in ticks: of the speed, and of the sample if the total is an estimate.
    /// It does not include changes that have not shown yet.
    pub error: u64,
}

/// The speed of a run, in working time.
#[derive(Debug, Default)]
pub(crate) struct Speed {
    /// Working time so far, in ticks since the first snapshot.
    worked: u64,
    /// The time of the last snapshot, and whether the run was paused then.
    last: Option<(LogicalTime, bool)>,
    /// Working time and keys of the last snapshots, oldest first; neither ever decreases.
    looks: VecDeque<(u64, u64)>,
    /// Whether a lease holder was seen at work. Before that only the newest snapshot is kept: the
    /// leases of a dead worker look like any other, and waiting for their end is no slowness.
    has_worked: bool,
    /// When each leased shard was first seen under its lease.
    shards: BTreeMap<ShardId, Followed>,
}

/// A leased shard, since it was first seen so.
#[derive(Clone, Copy, Debug)]
struct Followed {
    fence: FenceEpoch,
    /// Working time and keys then.
    since: (u64, u64),
    /// The end of the lease then.
    deadline: Option<LogicalTime>,
    /// Whether the lease was renewed since.
    is_renewed: bool,
}

/// The time that a leased shard needs for its remaining keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Needs {
    /// About so many ticks, by its own speed.
    About(f64),
    /// More than so many ticks: its lease is renewed, and in all the time since it was first seen
    /// it has not finished a key.
    MoreThan(f64),
    /// Nothing is known: it was just granted, or its holder is dead.
    Unknown,
}

impl Speed {
    /// Records a snapshot.
    pub(crate) fn look(&mut self, at: LogicalTime, paused: bool, keys: u64) {
        // An interval counts only if the run was active at both ends, so a pause never lowers the
        // speed.
        if let Some((before, was_paused)) = self.last
            && !paused
            && !was_paused
        {
            self.worked += at.as_raw().saturating_sub(before.as_raw());
        }
        self.last = Some((at, paused));
        let newest = self.looks.back().copied();
        self.has_worked |= newest.is_some_and(|(_, before)| keys > before);
        if newest.is_some_and(|(worked, _)| self.worked < worked + LOOKS_APART) {
            return;
        }
        // Listings are not of one instant and may show less than the last one.
        let keys = newest.map_or(keys, |(_, before)| keys.max(before));
        if !self.has_worked {
            self.looks.clear();
        }
        self.looks.push_back((self.worked, keys));
        // One snapshot from before the window stays, so that the window is always spanned.
        let is_outside = |look: &(u64, u64)| look.0 + WINDOW <= self.worked;
        while self.looks.len() > LOOKS_KEPT || self.looks.get(1).is_some_and(is_outside) {
            self.looks.pop_front();
        }
    }

    /// Drops shards that are no longer leased, or have another lease.
    pub(crate) fn keep(&mut self, leased: &BTreeMap<ShardId, FenceEpoch>) {
        self.shards.retain(|shard, known| leased.get(shard) == Some(&known.fence));
    }

    /// Tracks the leases of the next snapshot, and notes whether their holders are at work.
    pub(super) fn follow_leases<'a>(&mut self, leased: impl Iterator<Item = &'a ShardSummary>) {
        let is_first = self.last.is_none();
        for shard in leased {
            let is_known = self.shards.contains_key(&shard.shard);
            self.follow(shard.shard, shard.fence_epoch, counted(shard).0);
            let Some(followed) = self.shards.get_mut(&shard.shard) else { continue };
            if !is_known {
                followed.deadline = shard.lease_deadline;
            }
            followed.is_renewed |= shard.lease_deadline > followed.deadline;
            // A grant between two snapshots was made to a live worker. Those of the first snapshot
            // may be of workers that died before it.
            self.has_worked |= followed.is_renewed || (!is_known && !is_first);
        }
    }

    /// Returns the time that a followed shard, which now counts `keys`, needs for `left` more keys,
    /// and at least for one.
    pub(super) fn shard_needs(&self, shard: ShardId, keys: u64, left: f64) -> Needs {
        let ((ticks, done), left) = (self.seen(shard, keys), left.max(1.0));
        match self.shards.get(&shard) {
            Some(_) if ticks > 0 && done > 0 => Needs::About(left * ticks as f64 / done as f64),
            Some(followed) if followed.is_renewed => Needs::MoreThan(left * ticks as f64),
            Some(_) | None => Needs::Unknown,
        }
    }

    /// Starts to track a leased shard with `keys` counted keys, unless it is tracked.
    pub(crate) fn follow(&mut self, shard: ShardId, fence: FenceEpoch, keys: u64) {
        // A shard that is not followed has no estimate of its own; the run's speed then serves for
        // it.
        if self.shards.len() < SHARDS_FOLLOWED || self.shards.contains_key(&shard) {
            let since = (self.worked, keys);
            let followed = Followed { fence, since, deadline: None, is_renewed: false };
            self.shards.entry(shard).or_insert(followed);
        }
    }

    /// For how many ticks a shard, which now counts `keys`, was followed, and how many keys it has
    /// finished meanwhile; neither if it is not followed.
    pub(crate) fn seen(&self, shard: ShardId, keys: u64) -> (u64, u64) {
        self.shards.get(&shard).map_or((0, 0), |known| {
            (self.worked - known.since.0, keys.saturating_sub(known.since.1))
        })
    }

    /// Returns the ticks for each key, and the relative error of that; `None` without progress.
    pub(super) fn of_run(&self) -> Option<(f64, f64)> {
        // Over the whole window, because single intervals depend on when workers checkpoint.
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let (ticks, keys) = (last.0 - first.0, last.1 - first.1);
        if ticks == 0 || keys == 0 {
            return None;
        }
        let mean = keys as f64 / ticks as f64;
        Some((mean.recip(), self.relative_error(mean)))
    }

    /// Returns the standard error of the mean speed, as a part of it.
    fn relative_error(&self, mean: f64) -> f64 {
        let pairs = self.looks.iter().zip(self.looks.iter().skip(1));
        let speeds = pairs.map(|(a, b)| (b.1 - a.1) as f64 / (b.0 - a.0) as f64);
        let (count, squares) =
            speeds.fold((0.0, 0.0), |(n, sum), speed| (n + 1.0, sum + (speed - mean).powi(2)));
        if count < 2.0 {
            return ERROR_OF_ONE;
        }
        (squares / (count - 1.0) / count).sqrt() / mean
    }
}
