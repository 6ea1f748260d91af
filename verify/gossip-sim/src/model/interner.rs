//! Small numbers for values that many states share.
//!
//! A state refers to records by number, so it has a few dozen bytes, and the kernel is called once
//! for each combination of record, command and time. Numbers are assigned in the order of
//! discovery, which is deterministic in a breadth-first search.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Values and their numbers, from zero.
pub(super) struct Interner<T> {
    values: Vec<T>,
    /// Numbers by the hash of their value.
    numbers: HashTable<u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashTable::new() }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// Returns the number of `value`, and whether it is new.
    pub(super) fn intern(&mut self, value: T) -> (u32, bool) {
        let hash = hash(&value);
        let values = &self.values;
        if let Some(number) = self.numbers.find(hash, |at| values[*at as usize] == value) {
            return (*number, false);
        }
        let number = u32::try_from(values.len()).expect("memory ends before numbers do");
        self.values.push(value);
        let values = &self.values;
        self.numbers.insert_unique(hash, number, |at| hash_at(values, *at));
        (number, true)
    }

    /// Returns the value with that number.
    pub(super) fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }

    /// Returns the number of values.
    pub(super) const fn len(&self) -> usize {
        self.values.len()
    }
}

fn hash<T: Hash>(value: &T) -> u64 {
    FixedState::with_seed(0).hash_one(value)
}

fn hash_at<T: Hash>(values: &[T], at: u32) -> u64 {
    hash(&values[at as usize])
}
