//! The keys that a batch of transactions uses.
//!
//! A server evaluates the compares of a batch against the state before it, so only independent
//! transactions may share one: no transaction writes a key that another compares or writes.
//! Otherwise both could succeed where, in sequence, the second would fail.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::key::Key;
use super::range::KeyRange;
use super::txn::{Compare, Txn, Write};

/// The keys that the transactions of a batch compare and write.
#[derive(Debug, Default)]
pub struct Footprint {
    compared: HashSet<Key, FixedState>,
    compared_ranges: Vec<KeyRange>,
    written: HashSet<Key, FixedState>,
}

impl Footprint {
    /// Adds the keys of a transaction.
    pub fn add(&mut self, txn: &Txn) {
        self.written.extend(txn.writes().iter().map(|write| *write.key()));
        for compare in txn.compares() {
            match compare {
                Compare::At { key, .. } | Compare::Value { key, .. } | Compare::Absent(key) => {
                    self.compared.insert(*key);
                }
                Compare::Empty(range) => self.compared_ranges.push(*range),
            }
        }
    }

    /// Returns whether `txn` writes a key that the batch uses, or compares one that it writes.
    #[must_use]
    pub fn conflicts_with(&self, txn: &Txn) -> bool {
        // Both directions: a write may invalidate a compare of the batch, and a write of the batch
        // one of this transaction's.
        let writes_into = |write: &Write| {
            let key = write.key();
            self.written.contains(key)
                || self.compared.contains(key)
                || self.compared_ranges.iter().any(|range| contains(range, key))
        };
        let looks_at = |compare: &Compare| match compare {
            Compare::At { key, .. } | Compare::Value { key, .. } | Compare::Absent(key) => {
                self.written.contains(key)
            }
            Compare::Empty(range) => self.written.iter().any(|key| contains(range, key)),
        };
        txn.writes().iter().any(writes_into) || txn.compares().iter().any(looks_at)
    }
}

impl<'t> FromIterator<&'t Txn> for Footprint {
    fn from_iter<I: IntoIterator<Item = &'t Txn>>(txns: I) -> Self {
        let mut footprint = Self::default();
        txns.into_iter().for_each(|txn| footprint.add(txn));
        footprint
    }
}

fn contains(range: &KeyRange, key: &Key) -> bool {
    range.contains(key.to_bytes().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TENANT;
    use gossip_contracts::identity::RunId;

    fn head(run: u64) -> Key {
        Key::RunHead { tenant: TENANT, run: RunId::from_raw(run) }
    }

    fn txn(compared: Option<Key>, empty: Option<KeyRange>, written: Option<Key>) -> Txn {
        let mut txn = Txn::new();
        compared.into_iter().for_each(|key| txn.expect_revision(key, Some(1)));
        empty.into_iter().for_each(|range| txn.expect_empty(range));
        written.into_iter().for_each(|key| txn.put(key, b"v".to_vec()));
        txn
    }

    /// Both orders, because the two directions are different code.
    fn check(one: &Txn, other: &Txn, is_conflict: bool) {
        for (first, second) in [(one, other), (other, one)] {
            let footprint: Footprint = [first].into_iter().collect();
            assert_eq!(footprint.conflicts_with(second), is_conflict, "{first:?} and {second:?}");
        }
    }

    #[test]
    fn transactions_conflict_if_one_writes_a_key_that_the_other_uses() {
        let all = KeyRange::runs_of(TENANT);
        let writes = txn(None, None, Some(head(1)));
        check(&writes, &txn(None, None, Some(head(1))), true);
        check(&writes, &txn(Some(head(1)), None, None), true);
        check(&writes, &txn(None, Some(all), None), true);
        check(&writes, &txn(Some(head(2)), None, Some(head(3))), false);
    }

    #[test]
    fn transactions_may_compare_the_same_keys() {
        let compares = txn(Some(head(1)), Some(KeyRange::runs_of(TENANT)), None);
        check(&compares, &compares.clone(), false);
    }
}
