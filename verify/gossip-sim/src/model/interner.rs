//! Small numbers for values that many states share.
//!
//! A state names the records in it by number, so it is a few dozen bytes whatever the records hold,
//! and the kernel is asked once for each combination of record, command and time. Numbers are given
//! in the order of discovery, which a breadth-first search makes the same every time.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Values and their numbers, from zero.
pub(super) struct Interner<T> {
    values: Vec<T>,
    /// Numbers, by the hash of their value.
    numbers: HashTable<u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashTable::new() }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The number of `value`, and whether it is new.
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

    /// The value with that number.
    pub(super) fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }

    /// How many values there are.
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
