//! The simulated store: real keys, encoded bytes, and the contract of an engine.
//!
//! A hash table finds values and an ordered map of keys serves scans, so that a checkpoint is cheap
//! to simulate. The latest writes are kept with the values they replaced, for faults that read or
//! restore an old version. The buffer of the oldest kept value is reused for the next write, so
//! keeping values does not allocate. The disk never fails by design; `wire` and `damage` inject the
//! faults.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use foldhash::fast::FixedState;
use gossip_coordination::store::{
    Answer, Compare, Conflict, Key, KeyBytes, KeyKind, KeyRange, Page, Read, Txn, Versioned, Write,
};
use hashbrown::HashMap;

/// Number of writes kept: those of about a hundred operations. More would evict hot data from the
/// CPU caches.
const PAST_MAX: usize = 128;

/// Maximum number of old versions of a value that a fault can return.
pub(super) const VERSIONS_MAX: usize = 4;

/// A value and its binding.
#[derive(Debug)]
struct Stored {
    value: Versioned,
    /// The process whose end deletes the value.
    bound_to: Option<u32>,
}

/// A write that is kept.
#[derive(Debug)]
struct Past {
    key: Key,
    /// Revision of the write; shared by all writes of a transaction.
    revision: u64,
    /// The replaced value; `None` if the key was new.
    before: Option<Stored>,
}

/// The stored values.
#[derive(Debug)]
pub(super) struct Disk {
    values: HashMap<Key, Stored, FixedState>,
    /// The same keys in order.
    order: BTreeMap<Ordered, Key>,
    revision: u64,
    /// The latest writes, oldest first.
    past: VecDeque<Past>,
    past_max: usize,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            values: HashMap::default(),
            order: BTreeMap::new(),
            revision: 0,
            past: VecDeque::new(),
            past_max: PAST_MAX,
        }
    }
}

/// The bytes of a key, which can be looked up by a byte slice without copying range bounds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ordered(KeyBytes);

impl Borrow<[u8]> for Ordered {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Disk {
    /// Returns a disk that keeps every write, so that the old versions of one tenant do not depend
    /// on the number of writes of others.
    pub(super) fn with_long_memory() -> Self {
        Self { past_max: usize::MAX, ..Self::default() }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &Key) -> Option<&Versioned> {
        self.values.get(key).map(|stored| &stored.value)
    }

    /// Returns the value that the last write of a key replaced, if it is kept.
    pub(super) fn before(&self, key: &Key) -> Option<&Versioned> {
        let last = self.past.iter().rev().find(|past| past.key == *key)?;
        last.before.as_ref().map(|stored| &stored.value)
    }

    /// Returns the kept writes that affect `reads`, the latest ones of each key.
    pub(super) fn past_of(&self, reads: &[Read]) -> Vec<OldWrite> {
        let mut found: Vec<OldWrite> = Vec::new();
        for (place, past) in self.past.iter().enumerate().rev() {
            let alike = found.iter().filter(|other| other.key == past.key).count();
            if alike < VERSIONS_MAX && reads.iter().any(|read| looks_at(read, &past.key)) {
                found.push(OldWrite { key: past.key, place });
            }
        }
        found
    }

    /// Returns the value that `write` replaced, if there was one.
    pub(super) fn replaced_by(&self, write: &OldWrite) -> Option<&Versioned> {
        self.past.get(write.place)?.before.as_ref().map(|stored| &stored.value)
    }

    /// Answers `reads` in the state before `write`.
    pub(super) fn read_before(&self, write: &OldWrite, reads: &[Read], page: usize) -> Vec<Answer> {
        let mut then = Self::default();
        let undone = self.past.get(write.place).map_or(u64::MAX, |past| past.revision);
        let touched = |key: &Key| reads.iter().any(|read| looks_at(read, key));
        for (key, stored) in self.order.values().filter_map(|key| Some((key, self.get(key)?))) {
            if touched(key) {
                then.restore(*key, Some(Stored { value: stored.clone(), bound_to: None }));
            }
        }
        for past in self.past.iter().rev().take_while(|past| past.revision >= undone) {
            if touched(&past.key) {
                let before = past.before.as_ref().map(|it| it.value.clone());
                then.restore(past.key, before.map(|value| Stored { value, bound_to: None }));
            }
        }
        then.read(reads, page)
    }

    /// Answers `reads` in order.
    pub(super) fn read(&self, reads: &[Read], page: usize) -> Vec<Answer> {
        reads.iter().map(|read| self.answer(read, page)).collect()
    }

    fn answer(&self, read: &Read, page: usize) -> Answer {
        match read {
            Read::Get(key) => Answer::Value(self.get(key).cloned()),
            Read::Scan { range, limit } => Answer::Page(self.page(range, (*limit).min(page))),
            Read::Count(range) => Answer::Count(self.range(range).count() as u64),
            Read::ScanFirst { ranges, limit } => {
                let found = ranges.iter().find(|range| self.range(range).next().is_some());
                let page = found.map(|range| self.page(range, (*limit).min(page)));
                Answer::Page(page.unwrap_or_default())
            }
        }
    }

    fn page(&self, range: &KeyRange, limit: usize) -> Page {
        let keys = self.range(range).take(limit);
        keys.filter_map(|key| Some((key, self.get(&key)?.clone()))).collect()
    }

    /// Returns the keys of a range in order.
    pub(super) fn range(&self, range: &KeyRange) -> impl Iterator<Item = Key> {
        // Few keys of a range are read, so the end is compared and not looked up.
        let bounds = (Bound::Included(range.start().as_bytes()), Bound::Unbounded);
        let keys = self.order.range::<[u8], _>(bounds);
        keys.take_while(|(bytes, _)| bytes.0 < *range.end()).map(|(_, key)| *key)
    }

    /// Returns the keys of a kind, of all tenants.
    pub(super) fn all_of(&self, kind: KeyKind) -> impl Iterator<Item = Key> {
        self.order.values().copied().filter(move |key| key.kind() == kind)
    }

    /// Stores a value before the simulation begins. No fault removes it.
    pub(super) fn prepare(&mut self, key: Key, bytes: Vec<u8>) {
        self.revision += 1;
        let value = Versioned { revision: self.revision, bytes };
        self.restore(key, Some(Stored { value, bound_to: None }));
    }

    /// Returns the first conflict of `txn`, with no more detail than etcd gives.
    pub(super) fn conflict(&self, txn: &Txn) -> Option<Conflict> {
        let broken = |compare: &Compare| match compare {
            Compare::At { key, revision } => {
                let found = self.get(key);
                let same = found.is_some_and(|value| value.revision == *revision);
                (!same).then(|| (*key, found.cloned()))
            }
            Compare::Value { key, value } => {
                let found = self.get(key);
                let same = found.is_some_and(|found| found.bytes == **value);
                (!same).then(|| (*key, found.cloned()))
            }
            Compare::Absent(key) => self.get(key).map(|value| (*key, Some(value.clone()))),
            Compare::Empty(range) => {
                self.range(range).next().map(|key| (key, self.get(&key).cloned()))
            }
        };
        Conflict::of(txn, txn.compares().iter().filter_map(broken))
    }

    /// Applies `txn` for `process` and returns the revision.
    pub(super) fn apply(&mut self, txn: &Txn, process: u32) -> u64 {
        self.revision += 1;
        for write in txn.writes() {
            match write {
                Write::Put(key, bytes) => self.put(*key, bytes, None),
                Write::Bind(key, bytes) => self.put(*key, bytes, Some(process)),
                Write::Delete(key) => self.remove(key),
            }
        }
        self.revision
    }

    /// Replaces the bytes of a value in place, for damage and repair.
    pub(super) fn overwrite(&mut self, key: &Key, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(stored) = self.values.get_mut(key) {
            change(&mut stored.value.bytes);
        }
    }

    /// Restores the bytes of a version, even if it was overwritten: an old version may be read
    /// again.
    pub(super) fn repair_version(&mut self, key: &Key, revision: u64, good: Vec<u8>) {
        let now = self.values.get_mut(key).map(|stored| &mut stored.value);
        let then = self.past.iter_mut().filter(|past| past.key == *key);
        let then = then.filter_map(|past| past.before.as_mut().map(|stored| &mut stored.value));
        if let Some(value) = now.into_iter().chain(then).find(|it| it.revision == revision) {
            value.bytes = good;
        }
    }

    /// Restores the value of `key` before the last transaction, with its old revision, or removes a
    /// new key. Returns whether anything changed.
    pub(super) fn lose_last_write(&mut self, key: &Key) -> bool {
        let is_it = |past: &Past| past.key == *key && past.revision == self.revision;
        let Some(place) = self.past.iter().rposition(is_it) else { return false };
        let Some(past) = self.past.remove(place) else { return false };
        self.restore(past.key, past.before);
        true
    }

    /// Undoes the last `count` kept transactions and their revisions. Returns the first lost
    /// revision.
    pub(super) fn lose_last_commits(&mut self, count: u64) -> u64 {
        let from = (self.revision + 1).saturating_sub(count);
        while let Some(past) = self.past.pop_back_if(|past| past.revision >= from) {
            self.revision = past.revision - 1;
            self.restore(past.key, past.before);
        }
        self.revision + 1
    }

    /// As [`lose_last_commits`](Self::lose_last_commits), and no transaction in part: the oldest
    /// kept one may have lost some of its writes.
    pub(super) fn restore_before(&mut self, count: u64) -> u64 {
        let oldest = self.past.front().map_or(self.revision, |past| past.revision);
        self.lose_last_commits(count.min(self.revision - oldest))
    }

    /// Deletes the values bound to `process`. Returns whether there were any.
    pub(super) fn vanish(&mut self, process: u32) -> bool {
        self.revision += 1;
        let bound = |key: &Key| self.values.get(key).is_some_and(|it| it.bound_to == Some(process));
        let gone: Vec<Key> = self.all_of(KeyKind::Owner).filter(bound).collect();
        gone.iter().for_each(|key| self.remove(key));
        !gone.is_empty()
    }

    fn put(&mut self, key: Key, bytes: &[u8], bound_to: Option<u32>) {
        let revision = self.revision;
        let mut room = self.forget_oldest();
        room.extend_from_slice(bytes);
        let value = Versioned { revision, bytes: room };
        let before = self.values.insert(key, Stored { value, bound_to });
        if before.is_none() {
            self.order.insert(Ordered(key.to_bytes()), key);
        }
        self.past.push_back(Past { key, revision, before });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(before) = self.values.remove(key) {
            self.order.remove(key.to_bytes().as_bytes());
            self.forget_oldest();
            let (key, revision) = (*key, self.revision);
            self.past.push_back(Past { key, revision, before: Some(before) });
        }
    }

    /// Drops the oldest kept write if necessary. Returns an empty vector with capacity.
    fn forget_oldest(&mut self) -> Vec<u8> {
        if self.past.len() < self.past_max {
            return Vec::new();
        }
        let oldest = self.past.pop_front().and_then(|past| past.before);
        let mut room = oldest.map(|stored| stored.value.bytes).unwrap_or_default();
        room.clear();
        room
    }

    /// Sets or removes a value without recording a write.
    fn restore(&mut self, key: Key, stored: Option<Stored>) {
        match stored {
            Some(stored) => {
                self.values.insert(key, stored);
                self.order.insert(Ordered(key.to_bytes()), key);
            }
            None => {
                self.values.remove(&key);
                self.order.remove(key.to_bytes().as_bytes());
            }
        }
    }
}

/// A write found by [`Disk::past_of`]; valid until the next write.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldWrite {
    pub(super) key: Key,
    place: usize,
}

/// Returns whether the answer to `read` depends on the value of `key`.
pub(super) fn looks_at(read: &Read, key: &Key) -> bool {
    let holds = |range: &KeyRange| (range.start()..range.end()).contains(&&key.to_bytes());
    match read {
        Read::Get(other) => other == key,
        Read::Scan { range, .. } | Read::Count(range) => holds(range),
        Read::ScanFirst { ranges, .. } => ranges.iter().any(holds),
    }
}
