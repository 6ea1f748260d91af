//! The simulated store: real keys, real encoded bytes, and the contract of an engine.
//!
//! Values are found by a table and scanned by an ordered map of keys, so that a checkpoint costs a
//! simulation as little as it can. Each value keeps the one before it, for the faults that need
//! something old to show. The disk itself never fails; who damages it is `wire` and `damage`.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::store::{
    Answer, Compare, Conflict, Key, KeyBytes, KeyKind, KeyRange, Page, Read, Txn, Versioned, Write,
};

/// A value, and what was under its key before.
#[derive(Debug)]
struct Stored {
    value: Versioned,
    before: Option<Versioned>,
    /// The process whose end takes it along.
    bound_to: Option<u32>,
}

/// What is stored.
#[derive(Debug, Default)]
pub(super) struct Disk {
    values: HashMap<Key, Stored, FixedState>,
    /// The same keys in their order.
    order: BTreeMap<Ordered, Key>,
    revision: u64,
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
    /// The value of a key.
    pub(super) fn get(&self, key: &Key) -> Option<&Versioned> {
        self.values.get(key).map(|stored| &stored.value)
    }

    /// The value before the present one.
    pub(super) fn before(&self, key: &Key) -> Option<&Versioned> {
        self.values.get(key)?.before.as_ref()
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

    /// Puts back what was under `key` before its last write, with the old revision.
    pub(super) fn lose_last_write(&mut self, key: &Key) -> bool {
        let Some(stored) = self.values.get_mut(key) else { return false };
        let Some(before) = stored.before.take() else { return false };
        stored.value = before;
        true
    }

    /// What is bound to `process` vanishes; whether there was anything.
    pub(super) fn vanish(&mut self, process: u32) -> bool {
        self.revision += 1;
        let owners = KeyRange::all_of(KeyKind::Owner);
        let bound = |key: &Key| self.values.get(key).is_some_and(|it| it.bound_to == Some(process));
        let gone: Vec<Key> = self.range(&owners).filter(bound).collect();
        gone.iter().for_each(|key| self.remove(key));
        !gone.is_empty()
    }

    fn put(&mut self, key: Key, bytes: &[u8], bound_to: Option<u32>) {
        let revision = self.revision;
        match self.values.get_mut(&key) {
            Some(stored) => {
                // The value before the last one is nobody's, and its room is as large as is needed.
                let mut room = stored.before.take().map(|before| before.bytes).unwrap_or_default();
                room.clear();
                room.extend_from_slice(bytes);
                let value = Versioned { revision, bytes: room };
                let before = std::mem::replace(&mut stored.value, value);
                (stored.before, stored.bound_to) = (Some(before), bound_to);
            }
            None => {
                let value = Versioned { revision, bytes: bytes.to_vec() };
                self.values.insert(key, Stored { value, before: None, bound_to });
                self.order.insert(Ordered(key.to_bytes()), key);
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        if self.values.remove(key).is_some() {
            self.order.remove(key.to_bytes().as_bytes());
        }
    }
}
