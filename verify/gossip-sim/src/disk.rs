//! The simulated store: real keys, real encoded bytes, and the contract of an engine.
//!
//! Values are found by a table and scanned by an ordered map of keys, so that a checkpoint costs a
//! simulation as little as it can. The last writes are remembered with what they replaced, for the
//! faults that show something old or take something back: a value that was overwritten moves there,
//! and the room of the one that is forgotten for it is written next, so that costs no allocation.
//! The disk itself never fails; who damages it is `wire` and `damage`.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use foldhash::fast::FixedState;
use gossip_coordination::store::{
    Answer, Compare, Conflict, Key, KeyBytes, KeyKind, KeyRange, Page, Read, Txn, Versioned, Write,
};
use hashbrown::HashMap;

/// Writes that are remembered: those of some hundred operations. More would push what is needed out
/// of the caches.
const PAST_MAX: usize = 128;

/// Versions of one value that may be shown again, at most: the last ones that were overwritten.
pub(super) const VERSIONS_MAX: usize = 4;

/// A value under its key.
#[derive(Debug)]
struct Stored {
    value: Versioned,
    /// The process whose end takes it along.
    bound_to: Option<u32>,
}

/// A write that is remembered.
#[derive(Debug)]
struct Past {
    key: Key,
    /// Of the write; those of one transaction have one.
    revision: u64,
    /// What was there before it; nothing if the key is new.
    before: Option<Stored>,
}

/// What is stored.
#[derive(Debug)]
pub(super) struct Disk {
    values: HashMap<Key, Stored, FixedState>,
    /// The same keys in their order.
    order: BTreeMap<Ordered, Key>,
    revision: u64,
    /// The last writes, in their order.
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

/// The bytes of a key, looked up by any bytes: the bounds of a range are not copied for it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ordered(KeyBytes);

impl Borrow<[u8]> for Ordered {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Disk {
    /// A disk that remembers every write: what it shows of one tenant's past does not depend on how
    /// much others write.
    pub(super) fn with_long_memory() -> Self {
        Self { past_max: usize::MAX, ..Self::default() }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &Key) -> Option<&Versioned> {
        self.values.get(key).map(|stored| &stored.value)
    }

    /// What the last write of a key replaced, if it is remembered and there was anything.
    pub(super) fn before(&self, key: &Key) -> Option<&Versioned> {
        let last = self.past.iter().rev().find(|past| past.key == *key)?;
        last.before.as_ref().map(|stored| &stored.value)
    }

    /// The remembered writes without which `reads` would be answered otherwise, the last ones of
    /// each key.
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

    /// The value that `write` replaced, if there was one.
    pub(super) fn replaced_by(&self, write: &OldWrite) -> Option<&Versioned> {
        self.past.get(write.place)?.before.as_ref().map(|stored| &stored.value)
    }

    /// Answers `reads` as they would have been before `write`.
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

    /// Answers `reads`, in their order.
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

    /// The keys of a range, in their order.
    pub(super) fn range(&self, range: &KeyRange) -> impl Iterator<Item = Key> {
        // Few keys are read of a range, so its end is compared with those and not looked up.
        let bounds = (Bound::Included(range.start().as_bytes()), Bound::Unbounded);
        let keys = self.order.range::<[u8], _>(bounds);
        keys.take_while(|(bytes, _)| bytes.0 < *range.end()).map(|(_, key)| *key)
    }

    /// The keys of a kind, of all tenants.
    pub(super) fn all_of(&self, kind: KeyKind) -> impl Iterator<Item = Key> {
        self.order.values().copied().filter(move |key| key.kind() == kind)
    }

    /// Puts a value in before the simulation begins: no fault takes it back.
    pub(super) fn prepare(&mut self, key: Key, bytes: Vec<u8>) {
        self.revision += 1;
        let value = Versioned { revision: self.revision, bytes };
        self.restore(key, Some(Stored { value, bound_to: None }));
    }

    /// What stands against `txn`, if anything does. Told no more than it must be, as by etcd.
    pub(super) fn conflict(&self, txn: &Txn) -> Option<Conflict> {
        let broken = |compare: &Compare| match compare {
            Compare::At { key, revision } => {
                let found = self.get(key);
                let same = found.is_some_and(|value| value.revision == *revision);
                (!same).then(|| (*key, found.cloned()))
            }
            Compare::Absent(key) => self.get(key).map(|value| (*key, Some(value.clone()))),
            Compare::Empty(range) => {
                self.range(range).next().map(|key| (key, self.get(&key).cloned()))
            }
        };
        Conflict::of(txn, txn.compares().iter().filter_map(broken))
    }

    /// Does what `txn` says for `process`, and answers the revision.
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

    /// Replaces the bytes of a value in place, as damage and its repair do.
    pub(super) fn overwrite(&mut self, key: &Key, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(stored) = self.values.get_mut(key) {
            change(&mut stored.value.bytes);
        }
    }

    /// Puts the bytes of a version right, wherever it is: what is overwritten may come back.
    pub(super) fn mend(&mut self, key: &Key, revision: u64, good: Vec<u8>) {
        let now = self.values.get_mut(key).map(|stored| &mut stored.value);
        let then = self.past.iter_mut().filter(|past| past.key == *key);
        let then = then.filter_map(|past| past.before.as_mut().map(|stored| &mut stored.value));
        if let Some(value) = now.into_iter().chain(then).find(|it| it.revision == revision) {
            value.bytes = good;
        }
    }

    /// Puts back what was under `key` before the last transaction, with the old revision, or
    /// nothing if it was new; whether that has changed anything.
    pub(super) fn lose_last_write(&mut self, key: &Key) -> bool {
        let is_it = |past: &Past| past.key == *key && past.revision == self.revision;
        let Some(place) = self.past.iter().rposition(is_it) else { return false };
        let Some(past) = self.past.remove(place) else { return false };
        self.restore(past.key, past.before);
        true
    }

    /// Takes back the last `count` transactions, as far as they are remembered, and their numbers
    /// with them. Answers the revision from which on everything is gone.
    pub(super) fn lose_last_commits(&mut self, count: u64) -> u64 {
        let from = (self.revision + 1).saturating_sub(count);
        while let Some(past) = self.past.pop_back_if(|past| past.revision >= from) {
            self.revision = past.revision - 1;
            self.restore(past.key, past.before);
        }
        self.revision + 1
    }

    /// What is bound to `process` vanishes; whether there was anything.
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

    /// Makes room for one more write to be remembered. Answers a vector that is empty and has room.
    fn forget_oldest(&mut self) -> Vec<u8> {
        if self.past.len() < self.past_max {
            return Vec::new();
        }
        let oldest = self.past.pop_front().and_then(|past| past.before);
        let mut room = oldest.map(|stored| stored.value.bytes).unwrap_or_default();
        room.clear();
        room
    }

    /// Puts something under a key, or nothing, as if nobody had written.
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

/// A write that [`Disk::past_of`] found, until the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldWrite {
    pub(super) key: Key,
    place: usize,
}

/// Whether `read` is answered with, or without, the value of `key`.
pub(super) fn looks_at(read: &Read, key: &Key) -> bool {
    let holds = |range: &KeyRange| (range.start()..range.end()).contains(&&key.to_bytes());
    match read {
        Read::Get(other) => other == key,
        Read::Scan { range, .. } | Read::Count(range) => holds(range),
        Read::ScanFirst { ranges, .. } => ranges.iter().any(holds),
    }
}
