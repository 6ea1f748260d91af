//! The books of a trial, judged: the journal of the sink, and the leases that a watcher saw.
//!
//! Nothing here asks the engine for its opinion. The journal says who wrote what under which fence
//! and when, in the order in which it came; the watcher says how long each grant was promised to
//! its owner. What a worker's log says can excuse nothing alone: a key that was done twice needs a
//! cause that was planned, or a lease that was seen to have ended.
//!
//! # What a good book shows
//!
//! - No key is missing, the fences of a key only grow, and a grant has one owner.
//! - A key is done again only under a higher fence, after the lease of its last owner had ended,
//!   and that owner was killed, was stopped, or says itself that it lost this shard. Of one grant
//!   at most one checkpoint interval is.
//! - So whoever gave a live lease up, by a drain or on request, left nothing to be redone.
//! - Every key that a sleeper had begun came late and was refused, and a sleeper that woke up wrote
//!   nothing more under the grants of its former life. Nothing else was refused, but what was
//!   written under a lease that was seen to have ended and whose owner says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::Outcome;

/// Milliseconds since 1970: handlers, workers and the watcher share a machine.
pub(crate) type Time = u64;

/// Shard and fence.
pub(crate) type Grant = (String, u64);

/// Until when each grant was last seen to be promised to its owner. It may have been longer.
pub(crate) type Leases = BTreeMap<Grant, Time>;

/// What happened to the workers, by name; whoever is not named worked to the end.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    pub(crate) killed: BTreeSet<String>,
    pub(crate) slept: BTreeMap<String, Sleep>,
    pub(crate) drained: BTreeSet<String>,
    /// Worker and shard of leases that ended before they were renewed, as the workers say
    /// themselves: a machine that is too busy stops everybody.
    pub(crate) lost: BTreeSet<(String, String)>,
}

/// A worker that was stopped beyond its leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sleep {
    /// Keys and fences that it had begun.
    pub(crate) begun: BTreeSet<(u64, u64)>,
    pub(crate) from: Time,
    pub(crate) until: Time,
}

/// What the books show.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) keys: u64,
    /// Keys done again, by what had happened to their first owner.
    pub(crate) redone: BTreeMap<Cause, u64>,
    /// The most of these that one grant left.
    pub(crate) most_of_a_grant: u64,
    /// Leases that ended although nobody had stopped their owner.
    pub(crate) expired: u64,
    /// Shards that others went on with after a drained worker.
    pub(crate) moved_by_drain: u64,
    /// Late writes of sleepers.
    pub(crate) refused: u64,
}

/// Why a key was done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Killed,
    Slept,
    Expired,
}

/// One line of the journal.
#[derive(Clone, Debug)]
struct Line {
    accepted: bool,
    key: u64,
    grant: Grant,
    worker: String,
    time: Time,
}

/// The books, and what they are held against.
#[derive(Debug)]
pub(crate) struct Books<'b> {
    pub(crate) journal: &'b str,
    pub(crate) leases: &'b Leases,
    pub(crate) fates: &'b Fates,
    /// Keys of the job: those below this number.
    pub(crate) keys: u64,
    /// Keys that the end of one grant may cost.
    pub(crate) allowed: u64,
}

impl Books<'_> {
    /// Judges everything.
    pub(crate) fn judge(&self) -> Outcome<Figures> {
        let lines: Option<Vec<Line>> = self.journal.lines().map(parse).collect();
        let lines = lines.ok_or("a line of the journal makes no sense")?;
        let (accepted, refused): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.accepted);
        let owners = owners(&accepted)?;
        let mut figures = Figures { keys: self.keys, ..Figures::default() };
        figures.refused = self.judge_refusals(&refused)?;
        self.judge_sleepers(&accepted)?;
        self.judge_keys(&accepted, &mut figures)?;
        figures.moved_by_drain = self.judge_drains(&owners)?;
        Ok(figures)
    }

    /// What sleepers had begun came late, all of it and nothing else.
    fn judge_refusals(&self, refused: &[&Line]) -> Outcome<u64> {
        let mut late = BTreeSet::new();
        for line in refused {
            let (key, fence) = (line.key, line.grant.1);
            if self.has_expired(line) {
                continue;
            }
            let sleep = self.fates.slept.get(&line.worker);
            if !sleep.is_some_and(|sleep| sleep.begun.contains(&(key, fence))) {
                return Err(format!("key {key} of worker {} was refused", line.worker).into());
            }
            late.insert((&line.worker, key, fence));
        }
        let begun = self.fates.slept.iter().flat_map(|(worker, sleep)| {
            sleep.begun.iter().map(move |(key, fence)| (worker, *key, *fence))
        });
        if begun.collect::<BTreeSet<_>>() != late {
            return Err("a key that a sleeper had begun did not come late".into());
        }
        let tried = |sleep: &Sleep| !sleep.begun.is_empty();
        match self.fates.slept.values().all(tried) {
            true => Ok(late.len() as u64),
            false => Err("a sleeper had begun nothing, which proves nothing".into()),
        }
    }

    /// Whether the lease of a write was seen to have ended, and its worker says that it lost it: on
    /// a machine that is too busy everybody is a sleeper now and then.
    fn has_expired(&self, line: &Line) -> bool {
        let lost = (line.worker.clone(), line.grant.0.clone());
        let ended = self.leases.get(&line.grant).is_some_and(|deadline| *deadline <= line.time);
        ended && self.fates.lost.contains(&lost) && !self.fates.slept.contains_key(&line.worker)
    }

    /// A grant of a former life is not written under after the sleep.
    fn judge_sleepers(&self, accepted: &[&Line]) -> Outcome<()> {
        for (worker, sleep) in &self.fates.slept {
            let own = accepted.iter().filter(|line| line.worker == *worker);
            let old: BTreeSet<_> = own
                .clone()
                .filter(|line| line.time <= sleep.from)
                .map(|line| &line.grant)
                .collect();
            let awake = own.filter(|line| line.time >= sleep.until);
            if let Some(line) = awake.clone().find(|line| old.contains(&line.grant)) {
                return Err(format!("key {} was taken from a sleeper", line.key).into());
            }
        }
        Ok(())
    }

    /// None is lost; what was done again has a cause.
    fn judge_keys(&self, accepted: &[&Line], figures: &mut Figures) -> Outcome<()> {
        let mut writes: BTreeMap<u64, Vec<&Line>> = BTreeMap::new();
        accepted.iter().for_each(|line| writes.entry(line.key).or_default().push(line));
        if let Some(lost) = (0..self.keys).find(|key| !writes.contains_key(key)) {
            return Err(format!("key {lost} was lost").into());
        }
        let (mut left, mut expired) = (BTreeMap::<&Grant, u64>::new(), BTreeSet::new());
        for pair in writes.values().flat_map(|writes| writes.windows(2)) {
            let [first, second] = pair else { continue };
            let cause = self.cause(first, second)?;
            *figures.redone.entry(cause).or_default() += 1;
            *left.entry(&first.grant).or_default() += 1;
            if cause == Cause::Expired {
                expired.insert(&first.grant);
            }
        }
        figures.expired = expired.len() as u64;
        figures.most_of_a_grant = left.values().copied().max().unwrap_or(0);
        let (most, allowed) = (figures.most_of_a_grant, self.allowed);
        match most <= allowed {
            true => Ok(()),
            false => Err(format!("{most} keys of one grant were redone, {allowed} allowed").into()),
        }
    }

    /// Why a key was done again.
    fn cause(&self, first: &Line, second: &Line) -> Outcome<Cause> {
        let (key, worker) = (first.key, &first.worker);
        if second.grant.1 < first.grant.1 {
            return Err(format!("key {key}: the sink took a lower fence").into());
        }
        if second.grant.1 == first.grant.1 {
            return Err(format!("key {key} was done twice under one fence").into());
        }
        let Some(deadline) = self.leases.get(&first.grant) else {
            return Err(format!("key {key} was redone, and its first lease was never seen").into());
        };
        if second.time < *deadline {
            return Err(
                format!("key {key} of worker {worker} was redone under a live lease").into()
            );
        }
        let slept = self.fates.slept.get(worker).is_some_and(|sleep| first.time <= sleep.from);
        let lost = (worker.clone(), first.grant.0.clone());
        match () {
            () if self.fates.killed.contains(worker) => Ok(Cause::Killed),
            () if slept => Ok(Cause::Slept),
            () if self.fates.lost.contains(&lost) => Ok(Cause::Expired),
            () => Err(format!("key {key} of worker {worker} was redone without a cause").into()),
        }
    }

    /// Others went on with shards of whoever was drained: how many.
    fn judge_drains(&self, owners: &BTreeMap<&Grant, &str>) -> Outcome<u64> {
        let mut moved = 0;
        for worker in &self.fates.drained {
            let last: BTreeMap<&str, u64> = owners
                .iter()
                .filter(|(_, owner)| *owner == worker)
                .map(|((shard, fence), _)| (shard.as_str(), *fence))
                .collect();
            let went_on = |shard: &str, fence: u64| {
                owners.keys().any(|(other, later)| other == shard && *later > fence)
            };
            let of_worker = last.iter().filter(|(shard, fence)| went_on(shard, **fence)).count();
            if of_worker == 0 {
                return Err(
                    format!("nothing of worker {worker} was moved, which proves nothing").into()
                );
            }
            moved += of_worker as u64;
        }
        Ok(moved)
    }
}

/// Who wrote under each grant; one worker each.
fn owners<'l>(accepted: &[&'l Line]) -> Outcome<BTreeMap<&'l Grant, &'l str>> {
    let mut owners = BTreeMap::new();
    for line in accepted {
        let owner = owners.entry(&line.grant).or_insert(line.worker.as_str());
        if *owner != line.worker {
            return Err(format!("fence {} of a shard had two owners", line.grant.1).into());
        }
    }
    Ok(owners)
}

fn parse(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    let [word, key, fence, shard, worker, time] = words.as_slice() else { return None };
    let accepted = match *word {
        "accepted" => true,
        "refused" => false,
        _ => return None,
    };
    Some(Line {
        accepted,
        key: key.parse().ok()?,
        grant: ((*shard).to_owned(), fence.parse().ok()?),
        worker: (*worker).to_owned(),
        time: time.parse().ok()?,
    })
}

impl Figures {
    pub(crate) fn redone_by(&self, cause: Cause) -> u64 {
        self.redone.get(&cause).copied().unwrap_or(0)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} keys, none lost; redone: {} after kills, {} after sleep, {} after {} leases that \
             ran out, at most {} of a grant, none of a live lease; {} late writes refused; {} \
             shards went on after a drain",
            self.keys,
            self.redone_by(Cause::Killed),
            self.redone_by(Cause::Slept),
            self.redone_by(Cause::Expired),
            self.expired,
            self.most_of_a_grant,
            self.refused,
            self.moved_by_drain,
        )
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
