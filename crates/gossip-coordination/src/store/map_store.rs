//! A model store in memory: the contract of an engine in a page, and faults on demand.
//!
//! Handles share one map behind a lock, so several coordinators can work on one store. Values are
//! bytes as on a disk: everything that is stored here went through the codec. Faults are put in a
//! queue of the handle, and each commit takes the next one.
//!
//! What it never does: sleep, or fail without being told to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::engine::{Answer, Read, Store, StoreLimits};
use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Compare, Conflict, Txn, Versioned, Write};
use crate::error::{InfraError, StoreRefusal};

/// What goes wrong with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing.
    None,
    /// It happens, and the reply is lost.
    LoseReply,
    /// It does not happen, and nobody says so.
    LoseRequest,
    /// It is told to have met a conflict on its first compare.
    Conflict,
    /// It fails, and did not happen.
    Fail,
}

/// A handle of a store in memory.
#[derive(Clone, Debug, Default)]
pub struct MapStore {
    map: Arc<Mutex<Map>>,
    /// What becomes of the next commits of this handle.
    faults: VecDeque<Fault>,
    /// What becomes of all commits behind those.
    usual: Option<Fault>,
    limits: Option<StoreLimits>,
    /// Commits of this handle.
    commit_count: u64,
    /// Ticks that this handle was told to wait.
    waited: u64,
}

/// What handles share.
#[derive(Debug, Default)]
struct Map {
    /// By the bytes of the key.
    values: BTreeMap<Vec<u8>, Versioned>,
    /// Of the last commit; every commit takes the next.
    revision: u64,
}

impl MapStore {
    /// A handle of an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle of an empty store with small transactions.
    #[must_use]
    pub fn with_limits(limits: StoreLimits) -> Self {
        Self { limits: Some(limits), ..Self::default() }
    }

    /// Another handle of the same store, without faults.
    #[must_use]
    pub fn another_handle(&self) -> Self {
        Self { map: Arc::clone(&self.map), limits: self.limits, ..Self::default() }
    }

    /// Lets the next commit that has no fault yet meet `fault`.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push_back(fault);
    }

    /// Forgets the faults that no commit met yet.
    pub fn forget_faults(&mut self) {
        self.faults.clear();
    }

    /// Lets every commit meet `fault` once the injected ones are used up; `None` for no more.
    pub const fn inject_always(&mut self, fault: Option<Fault>) {
        self.usual = fault;
    }

    /// How many commits this handle made.
    #[must_use]
    pub const fn commit_count(&self) -> u64 {
        self.commit_count
    }

    /// How many ticks this handle was told to wait.
    #[must_use]
    pub const fn waited(&self) -> u64 {
        self.waited
    }

    /// Every key and value.
    #[must_use]
    pub fn dump(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let map = self.lock();
        map.values.iter().map(|(key, value)| (key.clone(), value.bytes.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        // A commit changes the map only after its last check, so a panic elsewhere harms nothing.
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit_one(&mut self, txn: &Txn) -> Result<CommitOutcome, InfraError> {
        if !self.limits().admit(txn) {
            let message = format!("a transaction of {} operations is too large", txn.op_count());
            let (operation, why) = ("map store.commit", StoreRefusal::TooLarge);
            return Err(InfraError::Refused { operation, why, message });
        }
        self.commit_count += 1;
        match self.faults.pop_front().or(self.usual).unwrap_or(Fault::None) {
            Fault::None => Ok(self.apply(txn)),
            Fault::LoseReply => {
                self.apply(txn);
                Ok(CommitOutcome::Unknown)
            }
            Fault::LoseRequest => Ok(CommitOutcome::Unknown),
            Fault::Conflict => {
                Ok(self.pretended(txn).map_or_else(|| self.apply(txn), CommitOutcome::Conflict))
            }
            Fault::Fail => {
                let message = "told to fail".to_owned();
                Err(InfraError::Transient { operation: "map store.commit", message })
            }
        }
    }

    /// A conflict on the first key that `txn` compares.
    fn pretended(&self, txn: &Txn) -> Option<Conflict> {
        let key = first_compare(txn)?;
        Conflict::new(vec![(key, self.lock().get(&key).cloned())])
    }

    fn apply(&self, txn: &Txn) -> CommitOutcome {
        let mut map = self.lock();
        let broken = txn.compares().iter().filter_map(|compare| map.broken(compare));
        if let Some(conflict) = Conflict::new(broken.collect()) {
            return CommitOutcome::Conflict(conflict);
        }
        map.revision += 1;
        txn.writes().iter().for_each(|write| map.write(write));
        CommitOutcome::Applied { revision: map.revision }
    }
}

impl Map {
    /// A key that breaks `compare`, if one does, and what is there.
    fn broken(&self, compare: &Compare) -> Option<(Key, Option<Versioned>)> {
        match compare {
            Compare::At { key, revision } => {
                let found = self.get(key);
                let same = found.is_some_and(|value| value.revision == *revision);
                (!same).then(|| (*key, found.cloned()))
            }
            Compare::Absent(key) => self.get(key).map(|value| (*key, Some(value.clone()))),
            Compare::Empty(range) => {
                let mut keys = self.range(range);
                keys.find_map(|(key, value)| Some((Key::parse(key).ok()?, Some(value.clone()))))
            }
        }
    }

    fn answer(&self, read: &Read, page: usize) -> Result<Answer, InfraError> {
        Ok(match read {
            Read::Get(key) => Answer::Value(self.get(key).cloned()),
            Read::Scan { range, limit } => {
                let rows = self.range(range).take((*limit).min(page));
                let parse = |(key, value): (&Vec<u8>, &Versioned)| {
                    Ok((Key::parse(key).map_err(foreign)?, value.clone()))
                };
                Answer::Page(rows.map(parse).collect::<Result<_, InfraError>>()?)
            }
            Read::Count(range) => Answer::Count(self.range(range).count() as u64),
        })
    }

    fn get(&self, key: &Key) -> Option<&Versioned> {
        self.values.get(key.to_bytes().as_bytes())
    }

    fn range(&self, range: &KeyRange) -> impl Iterator<Item = (&Vec<u8>, &Versioned)> {
        let (start, end) = (range.start().as_bytes(), range.end().as_bytes());
        // A range may be empty the wrong way round, which the map would not take.
        let end = end.max(start);
        self.values
            .range::<[u8], _>((std::ops::Bound::Included(start), std::ops::Bound::Excluded(end)))
    }

    fn write(&mut self, write: &Write) {
        let key = write.key().to_bytes().as_bytes().to_vec();
        match write {
            Write::Put(_, bytes) | Write::Bind(_, bytes) => {
                let value = Versioned { revision: self.revision, bytes: bytes.clone() };
                self.values.insert(key, value);
            }
            Write::Delete(_) => {
                self.values.remove(&key);
            }
        }
    }
}

impl Store for MapStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let (map, page) = (self.lock(), self.limits().page);
        reads.iter().map(|read| map.answer(read, page)).collect()
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        txns.iter().map(|txn| self.commit_one(txn)).collect()
    }

    fn wait(&mut self, ticks: u64) {
        self.waited += ticks;
    }

    fn limits(&self) -> StoreLimits {
        self.limits.unwrap_or(StoreLimits::GENEROUS)
    }
}

fn first_compare(txn: &Txn) -> Option<Key> {
    txn.compares().iter().find_map(|compare| match compare {
        Compare::At { key, .. } | Compare::Absent(key) => Some(*key),
        Compare::Empty(_) => None,
    })
}

fn foreign(malformed: super::key::MalformedKey) -> InfraError {
    InfraError::Corruption { operation: "map store.scan", message: malformed.to_string() }
}
