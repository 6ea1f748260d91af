//! Transactions of a batch that expect the same of one key.
//!
//! Every operation on a shard compares the head of its run. In a batch the server would compare it,
//! and be told how to read it, once for each. So those that expect the very same are put into one
//! transaction, which compares it for all of them and has theirs nested in it.
//!
//! If that compare fails, none of the group happens, as none of them would have alone, and each is
//! told of that key. What else was not as they expected they are not told: they look at it with
//! their next try. Who expects another revision of the key is in another group, so nobody pays for
//! a neighbour's conflict.
//!
//! # Limits
//!
//! A group is one level more. The transactions of the outermost level, those of a group, and the
//! longest list of the longest transaction must not exceed what the server takes, together.

use foldhash::fast::FixedState;
use gossip_coordination::store::{Compare, Key, Txn};
use hashbrown::HashMap;

/// A key, and the revision at which it is expected; `None` for absent.
type Expected = (Key, Option<u64>);

/// Transactions that travel as one step of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// One that shares nothing: its place in the batch.
    Single(usize),
    /// Some that share a compare; at least two.
    Sharing(Vec<Member>),
}

/// A transaction in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its place in the batch.
    pub(crate) place: usize,
    /// Which of its compares is the one that all of them have.
    pub(crate) shared: usize,
}

/// Puts the transactions of a batch into groups, in the order of the first of each. `ops_max` is
/// the longest list of any of them, `limit` what the server takes.
pub(crate) fn groups<'t>(
    txns: impl Iterator<Item = &'t Txn> + Clone,
    ops_max: usize,
    limit: usize,
) -> Vec<Group> {
    let mut groups = gather(txns.clone());
    if depth(&groups) + ops_max > limit {
        // A batch without groups fits. One large group is one too many, two halves are not.
        halve(&mut groups);
    }
    if depth(&groups) + ops_max > limit {
        return (0..txns.count()).map(Group::Single).collect();
    }
    groups
}

fn gather<'t>(txns: impl Iterator<Item = &'t Txn> + Clone) -> Vec<Group> {
    let mut counts: HashMap<Expected, usize, FixedState> = HashMap::default();
    for (_, expected) in txns.clone().flat_map(expectations) {
        *counts.entry(expected).or_default() += 1;
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<Expected, usize, FixedState> = HashMap::default();
    for (place, txn) in txns.enumerate() {
        let commonest = expectations(txn).max_by_key(|(_, expected)| counts[expected]);
        let Some((shared, expected)) = commonest.filter(|(_, it)| counts[it] > 1) else {
            groups.push(Group::Single(place));
            continue;
        };
        let index = *known.entry(expected).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(Group::Sharing(members)) => members.push(Member { place, shared }),
            _ => groups.push(Group::Sharing(vec![Member { place, shared }])),
        }
    }
    groups.iter_mut().for_each(Group::settle);
    groups
}

/// What a transaction expects of single keys, each with its place among the compares. One that
/// compares ranges as well has none: it is rare, and its compares need not all be sent.
fn expectations(txn: &Txn) -> impl Iterator<Item = (usize, Expected)> + '_ {
    let has_range = txn.compares().iter().any(|it| matches!(it, Compare::Empty(_)));
    let compares = if has_range { &[] } else { txn.compares() };
    compares.iter().enumerate().filter_map(|(index, compare)| match compare {
        Compare::At { key, revision } => Some((index, (*key, Some(*revision)))),
        Compare::Absent(key) => Some((index, (*key, None))),
        Compare::Empty(_) => None,
    })
}

impl Group {
    /// A group of one is none: the others with its compare have one that is commoner still.
    fn settle(&mut self) {
        if let Self::Sharing(members) = self
            && let [only] = **members
        {
            *self = Self::Single(only.place);
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Single(_) => 0,
            Self::Sharing(members) => members.len(),
        }
    }
}

/// Steps of the outermost level and of the largest group.
fn depth(groups: &[Group]) -> usize {
    groups.len() + groups.iter().map(Group::len).max().unwrap_or(0)
}

/// Makes two of the largest group.
fn halve(groups: &mut Vec<Group>) {
    if let Some(Group::Sharing(members)) = groups.iter_mut().max_by_key(|group| group.len())
        && members.len() > 3
    {
        let half = members.split_off(members.len() / 2);
        groups.push(Group::Sharing(half));
    }
}
