//! What all processes did together, and whether it could be so.
//!
//! # What is held against it
//! - Nothing is lost: every key up to the stored cursor was done.
//! - Nothing is done twice on a planned move: a key that was done under one fence is not done again
//!   under a later one if every grant in between was an accept.
//! - Nothing is done twice under one fence.
//! - Never two owners: nothing is done under a fence after a later one was granted.
//! - What was acknowledged is kept: whoever has a shard next begins behind it, and the store still
//!   has it at the end.
//! - Nothing is stranded: every shard that is not done was worked on after the trial began to look.

use std::collections::BTreeMap;

use crate::Failure;
use crate::handoff::figures::Times;
use crate::handoff::journal::{Line, What};

/// One shard: what was done under which fence.
#[derive(Debug, Default)]
struct Story {
    /// When and how each fence was granted, as far as it was written down.
    grants: BTreeMap<u64, (u64, bool)>,
    /// Fences under which each key was done.
    done: BTreeMap<u64, Vec<u64>>,
    /// When each fence was last worked under, and first.
    first_and_last: BTreeMap<u64, (u64, u64)>,
    /// When each fence was last frozen.
    frozen: BTreeMap<u64, u64>,
    /// The last key that the store has acknowledged under each fence.
    saved: BTreeMap<u64, u64>,
}

/// Where a shard stands in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    /// Its first key.
    pub(crate) first: u64,
    /// The last key up to which it is done.
    pub(crate) last: Option<u64>,
    pub(crate) is_done: bool,
}

/// Everything that was done.
#[derive(Debug, Default)]
pub(crate) struct Book {
    stories: BTreeMap<u64, Story>,
}

/// What a trial came to.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// Planned moves that were accepted.
    pub(crate) moves: u64,
    /// Keys that were done.
    pub(crate) keys: u64,
    /// Keys that were done again after somebody took a shard over without a move.
    pub(crate) redone: u64,
    /// From the freeze of the source to the first key of the destination.
    pub(crate) gaps: Times,
    /// From the last key of an owner to the first key of who took over without a move.
    pub(crate) takeovers: Times,
}

impl Book {
    /// Takes the journal of one process.
    pub(crate) fn enter(&mut self, lines: &[Line]) {
        for line in lines {
            let story = self.stories.entry(line.shard).or_default();
            match line.what {
                What::Accepted | What::Claimed => {
                    let is_move = line.what == What::Accepted;
                    story.grants.insert(line.fence, (line.at, is_move));
                }
                What::Did(key) => {
                    story.done.entry(key).or_default().push(line.fence);
                    let times =
                        story.first_and_last.entry(line.fence).or_insert((line.at, line.at));
                    *times = (times.0.min(line.at), times.1.max(line.at));
                }
                What::Froze => drop(story.frozen.insert(line.fence, line.at)),
                What::Kept => drop(story.frozen.remove(&line.fence)),
                What::Saved(key) => {
                    let last = story.saved.entry(line.fence).or_insert(key);
                    *last = key.max(*last);
                }
            }
        }
    }

    /// Checks all of it. `reached` tells where each shard stands. From `alive_at` on the trial
    /// waited for every shard that is not done, and then ended: what came later is judged and not
    /// measured.
    pub(crate) fn check(
        &self,
        reached: &BTreeMap<u64, Reached>,
        alive_at: Option<u64>,
    ) -> Result<Sum, Failure> {
        let (mut sum, nothing) = (Sum::default(), Story::default());
        for (shard, Reached { first, last, is_done }) in reached {
            let story = self.stories.get(shard).unwrap_or(&nothing);
            let until = last.map_or(*first, |last| last + 1);
            if let Some(key) = (*first..until).find(|key| !story.done.contains_key(key)) {
                return Err(format!("key {key} of shard {shard} is lost").into());
            }
            story.check(*shard, &mut sum)?;
            story.times(&mut sum, alive_at.unwrap_or(u64::MAX));
            story.check_saved(*shard, *last)?;
            let last_work = story.first_and_last.values().map(|times| times.1).max();
            if !is_done && last_work < alive_at.max(Some(0)) {
                return Err(format!("shard {shard} is stranded: nobody works on it").into());
            }
        }
        Ok(sum)
    }
}

impl Story {
    fn check(&self, shard: u64, sum: &mut Sum) -> Result<(), Failure> {
        sum.keys += self.done.len() as u64;
        for (key, fences) in &self.done {
            let mut fences = fences.clone();
            fences.sort_unstable();
            for pair in fences.windows(2) {
                let (from, to) = (pair[0], pair[1]);
                if from == to {
                    return Err(format!("key {key} of {shard} was done twice at {from}").into());
                }
                let between = self.grants.range(from + 1..=to);
                if between.clone().count() as u64 == to - from && between.clone().all(|it| it.1.1) {
                    return Err(format!("key {key} of {shard} was redone by a move to {to}").into());
                }
                sum.redone += 1;
            }
        }
        self.check_order(shard)
    }

    /// Nobody begins again at or before what an earlier owner was told is recorded, and the store
    /// still has it: `last` is what it says at the end.
    fn check_saved(&self, shard: u64, last: Option<u64>) -> Result<(), Failure> {
        let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
        for (key, fences) in &self.done {
            for fence in fences {
                begun.entry(*fence).or_insert(*key);
            }
        }
        for (fence, first) in begun {
            let before = self.saved.range(..fence).map(|(_, key)| *key).max();
            if before.is_some_and(|before| first <= before) {
                let what = format!("progress of shard {shard} was acknowledged and lost:");
                return Err(format!("{what} fence {fence} began at key {first}").into());
            }
        }
        match self.saved.values().max() {
            Some(saved) if last.is_none_or(|last| last < *saved) => {
                Err(format!("the store forgot acknowledged progress of shard {shard}").into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Nobody works after the next owner has the shard.
    fn check_order(&self, shard: u64) -> Result<(), Failure> {
        for (fence, (_, last)) in &self.first_and_last {
            let next = self.grants.range(fence + 1..).next();
            if let Some((later, (granted, _))) = next.filter(|(_, (granted, _))| granted < last) {
                let late = last - granted;
                let who = format!("shard {shard}: fence {fence} worked {late} µs after");
                return Err(format!("{who} fence {later} was granted").into());
            }
        }
        Ok(())
    }

    /// Counts and measures what was granted up to `until`.
    fn times(&self, sum: &mut Sum, until: u64) {
        for (fence, (_, is_move)) in self.grants.iter().filter(|(_, (at, _))| *at <= until) {
            let first = self.first_and_last.get(fence).map(|times| times.0);
            let Some(before) = fence.checked_sub(1) else { continue };
            if *is_move {
                sum.moves += 1;
                let frozen = self.frozen.get(&before);
                if let (Some(first), Some(frozen)) = (first, frozen) {
                    sum.gaps.push(first.saturating_sub(*frozen));
                }
            } else if let (Some(first), Some((_, last))) = (first, self.first_and_last.get(&before))
            {
                sum.takeovers.push(first.saturating_sub(*last));
            }
        }
    }
}
