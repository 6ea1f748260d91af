//! A model store in memory: the contract of an engine in a page, and faults on demand.
//!
//! Handles share one map behind a lock, so several coordinators can work on one store. Values are
//! bytes as on a disk: everything that is stored here went through the codec. Faults are put in a
//! queue of the handle, and each commit takes the next one.
//!
//! What it never does: sleep, or fail without being told to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::engine::{Page, Store, StoreLimits};
use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Compare, Txn, Versioned, Write};
use crate::error::InfraError;

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
    /// Of the last write; every write takes the next.
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

    fn apply(&self, txn: &Txn) -> CommitOutcome {
        let mut map = self.lock();
        if let Some(key) = txn.compares().iter().find_map(|compare| map.broken(compare)) {
            return CommitOutcome::Conflict(key);
        }
        txn.writes().iter().for_each(|write| map.write(write));
        CommitOutcome::Applied
    }
}

impl Map {
    /// A key that breaks `compare`, if one does.
    fn broken(&self, compare: &Compare) -> Option<Key> {
        match compare {
            Compare::At { key, revision } => {
                let found = self.get(key).map(|value| value.revision);
                (found != Some(*revision)).then_some(*key)
            }
            Compare::Absent(key) => self.get(key).is_some().then_some(*key),
            Compare::Empty(range) => self.range(range).find_map(|(key, _)| Key::parse(key).ok()),
        }
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
        self.revision += 1;
        let key = write.key().to_bytes().as_bytes().to_vec();
        match write {
            Write::Put(_, bytes) => {
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
    fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Versioned>>, InfraError> {
        let map = self.lock();
        Ok(keys.iter().map(|key| map.get(key).cloned()).collect())
    }

    fn scan(&mut self, range: &KeyRange, limit: usize) -> Result<Page, InfraError> {
        let map = self.lock();
        let page = map.range(range).take(limit.min(self.limits().page));
        page.map(|(key, value)| Ok((Key::parse(key).map_err(foreign)?, value.clone()))).collect()
    }

    fn count(&mut self, range: &KeyRange) -> Result<u64, InfraError> {
        Ok(self.lock().range(range).count() as u64)
    }

    fn commit(&mut self, txn: &Txn) -> Result<CommitOutcome, InfraError> {
        if !self.limits().admit(txn) {
            let message = format!("a transaction of {} operations is too large", txn.op_count());
            return Err(InfraError::Transient { operation: "map store.commit", message });
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
                Ok(first_compare(txn).map_or_else(|| self.apply(txn), CommitOutcome::Conflict))
            }
            Fault::Fail => {
                let message = "told to fail".to_owned();
                Err(InfraError::Transient { operation: "map store.commit", message })
            }
        }
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
