//! Checks the combined history of all processes.
//!
//! # Properties
//! - No key is lost: every key up to the stored cursor was processed.
//! - A handoff repeats no key: a key that was processed under one fence is not processed again
//!   under a later one if every grant in between was an accept.
//! - No key is processed twice under one fence.
//! - There is one owner: no key is processed under a fence after a later one was granted.
//! - Acknowledged progress is kept: the next owner starts after it, and the store still has it at
//!   the end.
//! - No shard is stranded: every unfinished shard was processed after `alive_at`.

use std::collections::BTreeMap;

use crate::Failure;
use crate::handoff::figures::Times;
use crate::handoff::journal::{Line, What};

/// The history of one shard.
#[derive(Debug, Default)]
struct ShardHistory {
    /// Time of each recorded grant, and whether it was an accept.
    grants: BTreeMap<u64, (u64, bool)>,
    /// Fences under which each key was processed.
    done: BTreeMap<u64, Vec<u64>>,
    /// Times of the first and last key of each fence.
    first_and_last: BTreeMap<u64, (u64, u64)>,
    /// Time of the last freeze of each fence.
    frozen: BTreeMap<u64, u64>,
    /// The last acknowledged key of each fence.
    saved: BTreeMap<u64, u64>,
}

/// Progress of a shard in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    /// Its first key.
    pub(crate) first: u64,
    /// The last processed key.
    pub(crate) last: Option<u64>,
    pub(crate) is_done: bool,
}

/// The history of all shards.
#[derive(Debug, Default)]
pub(crate) struct HistoryCheck {
    shards: BTreeMap<u64, ShardHistory>,
}

/// Totals of a trial.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// Accepted handoffs.
    pub(crate) moves: u64,
    /// Processed keys.
    pub(crate) keys: u64,
    /// Keys processed again after a takeover without a handoff.
    pub(crate) redone: u64,
    /// From the freeze of the source to the first key of the destination.
    pub(crate) gaps: Times,
    /// From the last key of an owner to the first key of its successor, without a handoff.
    pub(crate) takeovers: Times,
}

impl HistoryCheck {
    /// Adds the journal of one process.
    pub(crate) fn enter(&mut self, lines: &[Line]) {
        for line in lines {
            let history = self.shards.entry(line.shard).or_default();
            match line.what {
                What::Accepted | What::Claimed => {
                    let is_move = line.what == What::Accepted;
                    history.grants.insert(line.fence, (line.at, is_move));
                }
                What::Did(key) => {
                    history.done.entry(key).or_default().push(line.fence);
                    let times =
                        history.first_and_last.entry(line.fence).or_insert((line.at, line.at));
                    *times = (times.0.min(line.at), times.1.max(line.at));
                }
                What::Froze => drop(history.frozen.insert(line.fence, line.at)),
                What::Kept => drop(history.frozen.remove(&line.fence)),
                What::Saved(key) => {
                    let last = history.saved.entry(line.fence).or_insert(key);
                    *last = key.max(*last);
                }
            }
        }
    }

    /// Checks all properties. `reached` is the progress of each shard in the store. From `alive_at`
    /// on, the trial waited for every unfinished shard and then ended: later grants are checked but
    /// not measured.
    pub(crate) fn check(
        &self,
        reached: &BTreeMap<u64, Reached>,
        alive_at: Option<u64>,
    ) -> Result<Sum, Failure> {
        let (mut sum, nothing) = (Sum::default(), ShardHistory::default());
        for (shard, Reached { first, last, is_done }) in reached {
            let history = self.shards.get(shard).unwrap_or(&nothing);
            let until = last.map_or(*first, |last| last + 1);
            if let Some(key) = (*first..until).find(|key| !history.done.contains_key(key)) {
                return Err(format!("key {key} of shard {shard} is lost").into());
            }
            history.check(*shard, &mut sum)?;
            history.times(&mut sum, alive_at.unwrap_or(u64::MAX));
            history.check_saved(*shard, *last)?;
            let last_work = history.first_and_last.values().map(|times| times.1).max();
            if !is_done && last_work < alive_at.max(Some(0)) {
                return Err(format!("shard {shard} is stranded: no worker processes it").into());
            }
        }
        Ok(sum)
    }
}

impl ShardHistory {
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

    /// Checks that no owner starts at or before acknowledged progress of an earlier owner, and that
    /// the store still has it at the end, as `last`.
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

    /// Checks that no owner processes keys after the next owner has the shard.
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

    /// Counts and measures the grants up to `until`.
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
