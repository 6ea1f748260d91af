//! A store that is cheap to clone.

use std::collections::BTreeMap;
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::store::{
    Answer, CommitOutcome, Compare, Conflict, Key, KeyRange, Page, Read, Store, StoreLimits, Txn,
    Versioned, Write,
};

/// Keys, values and revisions. Clones are independent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForkStore {
    values: Arc<BTreeMap<Vec<u8>, (Key, Versioned)>>,
    revision: u64,
}

impl ForkStore {
    /// Returns all keys and values without revisions, which a new handle cannot distinguish.
    pub(super) fn content(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values.iter().map(|(key, (_, value))| (key.as_slice(), value.bytes.as_slice()))
    }

    /// Returns whether neither store was written since they were cloned.
    pub(super) const fn is_as(&self, other: &Self) -> bool {
        self.revision == other.revision
    }

    /// Returns the answers to `reads`, in their order.
    pub(crate) fn answer(&self, reads: Vec<Read>) -> Vec<Answer> {
        let answer = |read: Read| match read {
            Read::Get(key) => Answer::Value(self.get(&key)),
            Read::Scan { range, limit } => Answer::Page(self.page(&range, limit)),
            Read::Count(range) => Answer::Count(self.page(&range, usize::MAX).len() as u64),
            Read::ScanFirst { ranges, limit } => {
                let mut pages = ranges.iter().map(|range| self.page(range, limit));
                Answer::Page(pages.find(|page| !page.is_empty()).unwrap_or_default())
            }
        };
        reads.into_iter().map(answer).collect()
    }

    fn get(&self, key: &Key) -> Option<Versioned> {
        self.values.get(key.to_bytes().as_bytes()).map(|(_, value)| value.clone())
    }

    fn page(&self, range: &KeyRange, limit: usize) -> Page {
        let span = range.start().as_bytes().to_vec()..range.end().as_bytes().to_vec();
        if span.start >= span.end {
            return Page::new();
        }
        let found = self.values.range(span).map(|(_, (key, value))| (*key, value.clone()));
        found.take(limit).collect()
    }

    fn unexpected(&self, compare: &Compare) -> Option<(Key, Option<Versioned>)> {
        match compare {
            Compare::At { key, revision } => {
                let value = self.get(key);
                let holds = value.as_ref().is_some_and(|value| value.revision == *revision);
                (!holds).then_some((*key, value))
            }
            Compare::Value { key, value: expected } => {
                let value = self.get(key);
                let holds = value.as_ref().is_some_and(|value| value.bytes == **expected);
                (!holds).then_some((*key, value))
            }
            Compare::Absent(key) => self.get(key).map(|value| (*key, Some(value))),
            Compare::Empty(range) => {
                self.page(range, 1).pop().map(|(key, value)| (key, Some(value)))
            }
        }
    }

    /// Applies `txn` if its conditions hold.
    pub(crate) fn apply(&mut self, txn: &Txn) -> CommitOutcome {
        let found = txn.compares().iter().filter_map(|compare| self.unexpected(compare)).collect();
        if let Some(conflict) = Conflict::new(found) {
            return CommitOutcome::Conflict(conflict);
        }
        self.revision += 1;
        let (revision, values) = (self.revision, Arc::make_mut(&mut self.values));
        for write in txn.writes() {
            let bytes = write.key().to_bytes().as_bytes().to_vec();
            match write {
                Write::Put(key, value) | Write::Bind(key, value) => {
                    values.insert(bytes, (*key, Versioned { revision, bytes: value.clone() }));
                }
                Write::Delete(_) => {
                    values.remove(&bytes);
                }
            }
        }
        CommitOutcome::Applied { revision }
    }
}

impl Store for ForkStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        Ok(self.answer(reads))
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        txns.iter().map(|txn| Ok(self.apply(txn))).collect()
    }

    fn wait(&mut self, _: u64) {}

    fn limits(&self) -> StoreLimits {
        StoreLimits::GENEROUS
    }
}
