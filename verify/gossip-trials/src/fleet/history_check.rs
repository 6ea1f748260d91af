//! Checks the history of a trial: the journal of the sink, and the leases that a watcher observed.
//!
//! The check does not use the engine. The journal records each write with worker, fence and time,
//! in arrival order; the watcher records the observed deadline of each grant. A worker's log is not
//! sufficient evidence: a key that was processed twice needs a planned cause, or a lease that was
//! observed to have ended.
//!
//! # Properties
//!
//! - No key is missing, the fences of a key only increase, and a grant has one owner.
//! - A key is processed again only under a higher fence, after the lease of its last owner had
//!   ended, and that owner was killed, was suspended, or reports that it lost this shard. At most
//!   one checkpoint interval per grant is processed again.
//! - A worker that gives up a live lease, by a drain or on request, therefore leaves no key to be
//!   processed again.
//! - Every key that a suspended worker had begun is written late and refused, and the resumed
//!   worker writes nothing more under its earlier grants. Other refusals occur only for writes
//!   under a lease that was observed to have ended and that its owner reports as lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::Outcome;

/// Milliseconds since 1970: handlers, workers and the watcher share a machine.
pub(crate) type Time = u64;

/// Shard and fence.
pub(crate) type Grant = (String, u64);

/// The last observed deadline of each grant. The real deadline may have been later.
pub(crate) type Leases = BTreeMap<Grant, Time>;

/// Faults injected into workers, by name; a worker without an entry ran to the end.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    pub(crate) killed: BTreeSet<String>,
    pub(crate) slept: BTreeMap<String, Sleep>,
    pub(crate) drained: BTreeSet<String>,
    /// Worker and shard of leases that workers report as lost: on an overloaded machine renewals
    /// can be late.
    pub(crate) lost: BTreeSet<(String, String)>,
}

/// A worker that was suspended for longer than its leases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sleep {
    /// Keys and fences that it had begun.
    pub(crate) begun: BTreeSet<(u64, u64)>,
    pub(crate) from: Time,
    pub(crate) until: Time,
}

/// Figures of a history.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) keys: u64,
    /// Keys processed again, by the fault of their first owner.
    pub(crate) redone: BTreeMap<Cause, u64>,
    /// Maximum number of these per grant.
    pub(crate) most_of_a_grant: u64,
    /// Leases that expired without a fault of their owner.
    pub(crate) expired: u64,
    /// Shards that other workers continued after a drain.
    pub(crate) moved_by_drain: u64,
    /// Late writes of suspended workers.
    pub(crate) refused: u64,
}

/// Why a key was processed again.
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

/// The recorded history and the bounds it is checked against.
#[derive(Debug)]
pub(crate) struct History<'b> {
    pub(crate) journal: &'b str,
    pub(crate) leases: &'b Leases,
    pub(crate) fates: &'b Fates,
    /// Keys of the job: those below this number.
    pub(crate) keys: u64,
    /// Keys per grant that may be processed again.
    pub(crate) allowed: u64,
}

impl History<'_> {
    /// Checks all properties and returns the figures.
    pub(crate) fn check(&self) -> Outcome<Figures> {
        let lines: Option<Vec<Line>> = self.journal.lines().map(parse).collect();
        let lines = lines.ok_or("invalid line in the journal")?;
        let (accepted, refused): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.accepted);
        let owners = owners(&accepted)?;
        let mut figures = Figures { keys: self.keys, ..Figures::default() };
        figures.refused = self.check_refusals(&refused)?;
        self.check_suspended(&accepted)?;
        self.check_keys(&accepted, &mut figures)?;
        figures.moved_by_drain = self.check_drains(&owners)?;
        Ok(figures)
    }

    /// Checks that every key that a suspended worker had begun, and no other, was refused.
    fn check_refusals(&self, refused: &[&Line]) -> Outcome<u64> {
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
            return Err("a key that a suspended worker had begun was not written late".into());
        }
        let tried = |sleep: &Sleep| !sleep.begun.is_empty();
        match self.fates.slept.values().all(tried) {
            true => Ok(late.len() as u64),
            false => Err("a suspended worker had begun no key, so the trial shows nothing".into()),
        }
    }

    /// Returns whether the lease of a write was observed to have ended, and its worker reports it
    /// as lost: on an overloaded machine any worker can be delayed.
    fn has_expired(&self, line: &Line) -> bool {
        let lost = (line.worker.clone(), line.grant.0.clone());
        let ended = self.leases.get(&line.grant).is_some_and(|deadline| *deadline <= line.time);
        ended && self.fates.lost.contains(&lost) && !self.fates.slept.contains_key(&line.worker)
    }

    /// Checks that a resumed worker writes nothing under grants from before its suspension.
    fn check_suspended(&self, accepted: &[&Line]) -> Outcome<()> {
        for (worker, sleep) in &self.fates.slept {
            let own = accepted.iter().filter(|line| line.worker == *worker);
            let old: BTreeSet<_> = own
                .clone()
                .filter(|line| line.time <= sleep.from)
                .map(|line| &line.grant)
                .collect();
            let awake = own.filter(|line| line.time >= sleep.until);
            if let Some(line) = awake.clone().find(|line| old.contains(&line.grant)) {
                return Err(format!("key {} was accepted from a suspended worker", line.key).into());
            }
        }
        Ok(())
    }

    /// Checks that no key is lost and that every repeated key has a cause.
    fn check_keys(&self, accepted: &[&Line], figures: &mut Figures) -> Outcome<()> {
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

    /// Why a key was processed again.
    fn cause(&self, first: &Line, second: &Line) -> Outcome<Cause> {
        let (key, worker) = (first.key, &first.worker);
        if second.grant.1 < first.grant.1 {
            return Err(format!("key {key}: the sink accepted a lower fence").into());
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

    /// Returns the number of shards that other workers continued after a drain.
    fn check_drains(&self, owners: &BTreeMap<&Grant, &str>) -> Outcome<u64> {
        let mut moved = 0;
        for worker in &self.fates.drained {
            let last: BTreeMap<&str, u64> = owners
                .iter()
                .filter(|(_, owner)| *owner == worker)
                .map(|((shard, fence), _)| (shard.as_str(), *fence))
                .collect();
            let continued = |shard: &str, fence: u64| {
                owners.keys().any(|(other, later)| other == shard && *later > fence)
            };
            let of_worker = last.iter().filter(|(shard, fence)| continued(shard, **fence)).count();
            if of_worker == 0 {
                return Err(format!(
                    "no shard of worker {worker} was continued, so the trial shows nothing"
                )
                .into());
            }
            moved += of_worker as u64;
        }
        Ok(moved)
    }
}

/// Returns the worker that wrote under each grant; fails if there are two.
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
             shards continued after a drain",
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
#[path = "history_check_tests.rs"]
mod tests;
