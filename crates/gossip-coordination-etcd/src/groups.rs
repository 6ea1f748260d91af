//! Groups the transactions of a batch that share a compare.
//!
//! Every operation on a shard compares the head of its run. In a batch the compare and its
//! read-back would be sent once per transaction. So transactions with the same compare are nested
//! in one that compares the key for all of them.
//!
//! If that compare fails, none of the group is applied, as none would have been alone, and each
//! gets a conflict on that key. Further conflicts are not reported; a retry finds them.
//! Transactions that expect another revision of the key are in another group, so none fails because
//! of another.
//!
//! # Limits
//!
//! A group adds a level. The operations of the outer level, of the largest group, and of the
//! longest list of any transaction must not exceed the server's limit in total.

use foldhash::fast::FixedState;
use gossip_coordination::store::{Compare, Key, Txn};
use hashbrown::HashMap;

/// A key, and how it is expected.
type Expected<'t> = (Key, State<'t>);

/// The expected state of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum State<'t> {
    Absent,
    At(u64),
    Holds(&'t [u8]),
}

/// One operation of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// A single transaction: its place in the batch.
    Single(usize),
    /// Transactions that share a compare; at least two.
    Sharing(Vec<Member>),
}

/// A transaction in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its place in the batch.
    pub(crate) place: usize,
    /// The index of the shared compare among its compares.
    pub(crate) shared: usize,
}

/// Groups the transactions of a batch, in the order of the first of each group. `ops_max` is the
/// longest list of any of them, `limit` that of the server.
pub(crate) fn groups<'t>(
    txns: impl Iterator<Item = &'t Txn> + Clone,
    ops_max: usize,
    limit: usize,
) -> Vec<Group> {
    let mut groups = gather(txns.clone());
    if depth(&groups) + ops_max > limit {
        // The largest group counts, so its halves may fit where it does not. A batch without
        // groups fits in any case.
        halve(&mut groups);
    }
    if depth(&groups) + ops_max > limit {
        return (0..txns.count()).map(Group::Single).collect();
    }
    groups
}

/// Puts transactions with an equal compare in one group, however large it becomes. A transaction
/// that shares none of its compares stays single.
fn gather<'t>(txns: impl Iterator<Item = &'t Txn> + Clone) -> Vec<Group> {
    // Counted first: each transaction joins the most frequent of its compares, so that groups are
    // large.
    let mut counts: HashMap<Expected<'t>, usize, FixedState> = HashMap::default();
    for (_, expected) in txns.clone().flat_map(expectations) {
        *counts.entry(expected).or_default() += 1;
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<Expected<'t>, usize, FixedState> = HashMap::default();
    for (place, txn) in txns.enumerate() {
        let commonest = expectations(txn).max_by_key(|(_, expected)| counts[expected]);
        let Some((shared, expected)) = commonest.filter(|(_, it)| counts[it] > 1) else {
            groups.push(Group::Single(place));
            continue;
        };
        // A group takes the place of its first member, which keeps the order of the batch.
        let index = *known.entry(expected).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(Group::Sharing(members)) => members.push(Member { place, shared }),
            _ => groups.push(Group::Sharing(vec![Member { place, shared }])),
        }
    }
    groups.iter_mut().for_each(Group::normalize);
    groups
}

/// Returns the compares of single keys of a transaction, with their indexes. None for a transaction
/// that also compares ranges: it is rare, and an empty range is not sent, which shifts the indexes.
fn expectations(txn: &Txn) -> impl Iterator<Item = (usize, Expected<'_>)> {
    let has_range = txn.compares().iter().any(|it| matches!(it, Compare::Empty(_)));
    let compares = if has_range { &[] } else { txn.compares() };
    compares.iter().enumerate().filter_map(|(index, compare)| match compare {
        Compare::At { key, revision } => Some((index, (*key, State::At(*revision)))),
        Compare::Value { key, value } => Some((index, (*key, State::Holds(value)))),
        Compare::Absent(key) => Some((index, (*key, State::Absent))),
        Compare::Empty(_) => None,
    })
}

impl Group {
    /// Turns a group of one into a single: its other candidates joined more frequent compares.
    fn normalize(&mut self) {
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

/// Returns the operations of the outer level plus those of the largest group.
fn depth(groups: &[Group]) -> usize {
    groups.len() + groups.iter().map(Group::len).max().unwrap_or(0)
}

/// Splits the largest group in two.
fn halve(groups: &mut Vec<Group>) {
    if let Some(Group::Sharing(members)) = groups.iter_mut().max_by_key(|group| group.len())
        // Halves of fewer than four would be groups of one, which share nothing.
        && members.len() > 3
    {
        let half = members.split_off(members.len() / 2);
        groups.push(Group::Sharing(half));
    }
}
