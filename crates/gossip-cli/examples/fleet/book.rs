//! The journal of the sink, judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::Outcome;

/// What happened to the workers, by name; whoever is not named worked to the end.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    pub(crate) killed: BTreeSet<String>,
    /// Stopped beyond its lease, with the keys it had begun.
    pub(crate) slept: BTreeMap<String, BTreeSet<u64>>,
    pub(crate) drained: BTreeSet<String>,
    /// Worker and shard of leases that ended before they were renewed, as the workers say
    /// themselves: a machine that is too busy stops everybody.
    pub(crate) lost: BTreeSet<(String, String)>,
}

/// What the journal shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) keys: u64,
    /// Keys done again after a worker was killed or stopped, or was too late to renew.
    pub(crate) redone_by_crashes: u64,
    /// The most of these that one worker left in one shard.
    pub(crate) most_of_a_shard: u64,
    /// Keys that drained workers had done before they left.
    pub(crate) done_by_drained: u64,
    /// Late writes of the sleeper.
    pub(crate) refused: u64,
}

/// One line of the journal.
struct Line<'a> {
    accepted: bool,
    key: u64,
    fence: u64,
    shard: &'a str,
    worker: &'a str,
}

/// Judges a journal of `keys` keys; `allowed` are the keys that a crash may cost in one shard.
pub(crate) fn judge(journal: &str, keys: u64, allowed: u64, fates: &Fates) -> Outcome<Figures> {
    let mut accepted: BTreeMap<u64, Vec<Line<'_>>> = BTreeMap::new();
    let mut figures = Figures { keys, ..Figures::default() };
    for line in journal.lines() {
        let line = parse(line).ok_or("a line of the journal makes no sense")?;
        match line.accepted {
            true => accepted.entry(line.key).or_default().push(line),
            false => judge_refusal(&line, fates, &mut figures)?,
        }
    }
    if let Some(lost) = (0..keys).find(|key| !accepted.contains_key(key)) {
        return Err(format!("key {lost} was lost").into());
    }
    let mut left: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (key, writes) in &accepted {
        judge_key(*key, writes, fates, &mut left)?;
        figures.done_by_drained += u64::from(fates.drained.contains(writes[0].worker));
    }
    figures.redone_by_crashes = left.values().sum();
    figures.most_of_a_shard = left.values().copied().max().unwrap_or(0);
    if figures.most_of_a_shard > allowed {
        let most = figures.most_of_a_shard;
        return Err(format!("{most} keys of one shard were redone, {allowed} allowed").into());
    }
    Ok(figures)
}

/// Only somebody who slept may come too late, and only with what it had begun.
fn judge_refusal(line: &Line<'_>, fates: &Fates, figures: &mut Figures) -> Outcome<()> {
    let begun = fates.slept.get(line.worker);
    if !begun.is_some_and(|begun| begun.contains(&line.key)) {
        return Err(format!("key {} of worker {} was refused", line.key, line.worker).into());
    }
    figures.refused += 1;
    Ok(())
}

/// Fences only grow, and all but the last write of a key are of somebody who was killed, slept, or
/// says that it has lost the lease.
fn judge_key<'a>(
    key: u64,
    writes: &[Line<'a>],
    fates: &Fates,
    left: &mut BTreeMap<(&'a str, &'a str), u64>,
) -> Outcome<()> {
    for pair in writes.windows(2) {
        let [first, second] = pair else { continue };
        if second.fence < first.fence {
            return Err(format!("key {key}: the sink took a lower fence").into());
        }
        if second.fence == first.fence {
            return Err(format!("key {key} was done twice under one fence").into());
        }
        let lost = (first.worker.to_owned(), first.shard.to_owned());
        let excused = fates.killed.contains(first.worker)
            || fates.slept.contains_key(first.worker)
            || fates.lost.contains(&lost);
        if !excused {
            return Err(format!("key {key} of worker {} was redone", first.worker).into());
        }
        *left.entry((first.worker, first.shard)).or_default() += 1;
    }
    Ok(())
}

fn parse(line: &str) -> Option<Line<'_>> {
    let words: Vec<&str> = line.split(' ').collect();
    let [word, key, fence, shard, worker] = words.as_slice() else { return None };
    let accepted = match *word {
        "accepted" => true,
        "refused" => false,
        _ => return None,
    };
    Some(Line { accepted, key: key.parse().ok()?, fence: fence.parse().ok()?, shard, worker })
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} keys, none lost; {} redone after kills, sleep and lost leases, at most {} of a shard; \
             {} late writes refused; {} keys of drained workers and those of all others done once",
            self.keys,
            self.redone_by_crashes,
            self.most_of_a_shard,
            self.refused,
            self.done_by_drained
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates() -> Fates {
        Fates {
            killed: BTreeSet::from(["k".to_owned()]),
            slept: BTreeMap::from([("z".to_owned(), BTreeSet::from([1]))]),
            drained: BTreeSet::from(["d".to_owned()]),
            lost: BTreeSet::from([("l".to_owned(), "s".to_owned())]),
        }
    }

    fn judged(journal: &str) -> Result<Figures, String> {
        judge(journal, 2, 1, &fates()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_good_journal_is_counted() {
        let good = "accepted 0 1 s d\naccepted 1 1 t k\naccepted 1 2 t z\naccepted 1 3 t w\n\
                    refused 1 2 t z\n";
        let figures = judged(good).unwrap();
        let expected = Figures {
            keys: 2,
            redone_by_crashes: 2,
            most_of_a_shard: 1,
            done_by_drained: 1,
            refused: 1,
        };
        assert_eq!(figures, expected);
    }

    #[test]
    fn each_fault_is_noticed() {
        for (journal, fault) in [
            ("accepted 0 1 s d", "key 1 was lost"),
            ("accepted 0 1 s d\naccepted 0 2 s w\naccepted 1 1 s w", "of worker d was redone"),
            ("accepted 0 1 s w\naccepted 0 2 s w\naccepted 1 1 s w", "of worker w was redone"),
            ("accepted 0 1 t l\naccepted 0 2 t w\naccepted 1 1 s w", "of worker l was redone"),
            ("accepted 0 2 s k\naccepted 0 1 s w\naccepted 1 1 s w", "took a lower fence"),
            ("accepted 0 1 s k\naccepted 0 1 s w\naccepted 1 1 s w", "twice under one fence"),
            ("accepted 0 1 s w\naccepted 1 1 s w\nrefused 0 1 s d", "of worker d was refused"),
            ("accepted 0 1 s w\naccepted 1 1 s w\nrefused 0 1 s z", "of worker z was refused"),
            (
                "accepted 0 1 s k\naccepted 0 2 s w\naccepted 1 1 s k\naccepted 1 2 s w",
                "2 keys of one shard were redone",
            ),
            ("accepted 0 1", "makes no sense"),
        ] {
            let error = judged(journal).unwrap_err();
            assert!(error.contains(fault), "{journal}: {error}");
        }
    }
}
