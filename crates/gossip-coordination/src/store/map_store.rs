//! A model store in memory: the contract of an engine in a page, and faults on demand.
//!
//! Handles share one map behind a lock, so several coordinators can work on one store. Values are
//! bytes as on a disk: everything that is stored here went through the codec. Faults are put in a
//! queue of the handle, and each commit takes the next one. On request the store binds keys: each
//! handle is a process then, and its keys vanish when it is told to be gone.
//!
//! What it never does: sleep, or fail without being told to.

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::engine::{Answer, Page, Read, Store, StoreLimits};
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
    /// Present if the store binds keys.
    process: Option<Process>,
    /// Reads of this handle, each of any number of questions.
    read_count: u64,
    /// Transactions of this handle.
    commit_count: u64,
    /// Calls that brought them.
    batch_count: u64,
    /// Ticks that this handle was told to wait.
    waited: u64,
}

/// What a handle binds keys to.
#[derive(Clone, Copy, Debug)]
struct Process {
    /// Of this handle and its clones.
    id: u64,
    /// How often its keys vanished, as far as it noticed.
    binding: u64,
}

/// What handles share.
#[derive(Debug, Default)]
struct Map {
    /// By the bytes of the key.
    values: BTreeMap<Vec<u8>, Versioned>,
    /// The processes of the keys that are bound.
    bound: BTreeMap<Vec<u8>, u64>,
    process_count: u64,
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

    /// The same handle of a store that binds keys to the process of each handle.
    #[must_use]
    pub fn with_bindings(mut self) -> Self {
        let process = self.lock().next_process();
        self.process = Some(process);
        self
    }

    /// Another handle of the same store, of a process of its own, without faults.
    #[must_use]
    pub fn another_handle(&self) -> Self {
        let process = self.process.map(|_| self.lock().next_process());
        Self { map: Arc::clone(&self.map), limits: self.limits, process, ..Self::default() }
    }

    /// What is bound to the process of this handle vanishes: the process is gone, or will not
    /// notice for a while.
    pub fn end_process(&mut self) {
        if let Some(process) = self.process {
            self.lock().vanish(process.id);
        }
    }

    /// What is bound to the process of this handle vanishes although it lives, and it notices.
    pub fn revoke_bindings(&mut self) {
        self.end_process();
        if let Some(process) = &mut self.process {
            process.binding += 1;
        }
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

    /// How many transactions this handle was given.
    #[must_use]
    pub const fn commit_count(&self) -> u64 {
        self.commit_count
    }

    /// How many calls brought them: round trips, if there was a wire.
    #[must_use]
    pub const fn batch_count(&self) -> u64 {
        self.batch_count
    }

    /// How many reads this handle made, whatever they asked.
    #[must_use]
    pub const fn read_count(&self) -> u64 {
        self.read_count
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
        let key = txn.compares().iter().find_map(Compare::key)?;
        Conflict::of(txn, iter::once((key, self.lock().get(&key).cloned())))
    }

    fn apply(&self, txn: &Txn) -> CommitOutcome {
        let mut map = self.lock();
        let broken = txn.compares().iter().filter_map(|compare| map.broken(compare));
        if let Some(conflict) = Conflict::of(txn, broken) {
            return CommitOutcome::Conflict(conflict);
        }
        map.revision += 1;
        txn.writes().iter().for_each(|write| map.write(write, self.process));
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
            Read::Scan { range, limit } => Answer::Page(self.page(range, (*limit).min(page))?),
            Read::Count(range) => Answer::Count(self.range(range).count() as u64),
            Read::ScanFirst { ranges, limit } => {
                let found = ranges.iter().find(|range| self.range(range).next().is_some());
                let page = found.map(|range| self.page(range, (*limit).min(page))).transpose()?;
                Answer::Page(page.unwrap_or_default())
            }
        })
    }

    fn page(&self, range: &KeyRange, limit: usize) -> Result<Page, InfraError> {
        let parse = |(key, value): (&Vec<u8>, &Versioned)| {
            Ok((Key::parse(key).map_err(foreign)?, value.clone()))
        };
        self.range(range).take(limit).map(parse).collect()
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

    const fn next_process(&mut self) -> Process {
        self.process_count += 1;
        Process { id: self.process_count, binding: 1 }
    }

    fn vanish(&mut self, process: u64) {
        self.revision += 1;
        for (key, _) in self.bound.extract_if(.., |_, of| *of == process) {
            self.values.remove(&key);
        }
    }

    fn write(&mut self, write: &Write, process: Option<Process>) {
        let key = write.key().to_bytes().as_bytes().to_vec();
        self.bound.remove(&key);
        if let Write::Bind(..) = write {
            let process = process.expect("only stores that bind are asked to");
            self.bound.insert(key.clone(), process.id);
        }
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
        self.read_count += 1;
        if reads.len() > self.limits().txn_ops {
            let message = format!("a read of {} questions is too large", reads.len());
            let (operation, why) = ("map store.read", StoreRefusal::TooLarge);
            return Err(InfraError::Refused { operation, why, message });
        }
        let (map, page) = (self.lock(), self.limits().page);
        reads.iter().map(|read| map.answer(read, page)).collect()
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.batch_count += 1;
        txns.iter().map(|txn| self.commit_one(txn)).collect()
    }

    fn wait(&mut self, ticks: u64) {
        self.waited += ticks;
    }

    fn limits(&self) -> StoreLimits {
        self.limits.unwrap_or(StoreLimits::GENEROUS)
    }

    fn binding(&self) -> Option<u64> {
        self.process.map(|process| process.binding)
    }
}

fn foreign(malformed: super::key::MalformedKey) -> InfraError {
    InfraError::Corruption { operation: "map store.scan", message: malformed.to_string() }
}
