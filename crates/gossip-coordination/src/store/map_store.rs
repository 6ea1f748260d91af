//! An in-memory store for tests: the contract of an engine in a page, with injectable faults.
//!
//! Handles share one map behind a lock, so several coordinators can use one store. Values are bytes
//! as on a disk: every stored value passes through the codec. Faults are queued per handle, and
//! each commit takes the next one. Optionally the store binds keys: each handle is then a process,
//! and its keys vanish when the test ends that process.
//!
//! It never sleeps, and fails only on request.

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::engine::{Answer, Page, Read, Store, StoreLimits};
use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Compare, Conflict, Txn, Versioned, Write};
use crate::error::{InfraError, StoreRefusal};

/// The fault of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault.
    None,
    /// The transaction is applied, and the reply is lost.
    LoseReply,
    /// The transaction is not applied, and the outcome is unknown.
    LoseRequest,
    /// The commit reports a conflict on its first compare.
    Conflict,
    /// The commit fails and is not applied.
    Fail,
}

/// A handle of an in-memory store.
#[derive(Clone, Debug, Default)]
pub struct MapStore {
    map: Arc<Mutex<Map>>,
    /// Faults of the next commits of this handle.
    faults: VecDeque<Fault>,
    /// Fault of all later commits.
    usual: Option<Fault>,
    limits: Option<StoreLimits>,
    /// `Some` if the store binds keys.
    process: Option<Process>,
    /// Number of reads, each of any number of queries.
    read_count: u64,
    /// Number of transactions.
    commit_count: u64,
    /// Number of commit calls.
    batch_count: u64,
    /// Total ticks of requested waits.
    waited: u64,
}

/// The process that keys are bound to.
#[derive(Clone, Copy, Debug)]
struct Process {
    /// Shared by this handle and its clones.
    id: u64,
    /// Number of times its keys vanished and it noticed, plus one.
    binding: u64,
}

/// A copy of everything that a [`MapStore`] holds.
#[derive(Clone, Debug)]
pub struct MapBackup(Map);

/// The state that handles share.
#[derive(Clone, Debug, Default)]
struct Map {
    /// Values by key bytes.
    values: BTreeMap<Vec<u8>, Versioned>,
    /// The processes of the bound keys.
    bound: BTreeMap<Vec<u8>, u64>,
    process_count: u64,
    /// Revision of the last commit.
    revision: u64,
}

impl MapStore {
    /// Creates a handle of an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a handle of an empty store with these limits.
    #[must_use]
    pub fn with_limits(limits: StoreLimits) -> Self {
        Self { limits: Some(limits), ..Self::default() }
    }

    /// Makes the store bind keys to the process of each handle.
    #[must_use]
    pub fn with_bindings(mut self) -> Self {
        let process = self.lock().next_process();
        self.process = Some(process);
        self
    }

    /// Creates another handle of the same store, as a separate process without faults.
    #[must_use]
    pub fn another_handle(&self) -> Self {
        // A process of its own: the end of one handle must not remove the keys of another.
        let process = self.process.map(|_| self.lock().next_process());
        Self { map: Arc::clone(&self.map), limits: self.limits, process, ..Self::default() }
    }

    /// Removes the keys bound to this handle's process: the process died, or does not notice the
    /// loss for a while.
    pub fn end_process(&mut self) {
        if let Some(process) = self.process {
            self.lock().vanish(process.id);
        }
    }

    /// Removes the keys bound to this handle's live process, which notices the loss.
    pub fn revoke_bindings(&mut self) {
        self.end_process();
        if let Some(process) = &mut self.process {
            process.binding += 1;
        }
    }

    /// Queues `fault` for a commit.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push_back(fault);
    }

    /// Clears the queue of faults.
    pub fn forget_faults(&mut self) {
        self.faults.clear();
    }

    /// Sets the fault of every commit after the queued ones; `None` for no fault.
    pub const fn inject_always(&mut self, fault: Option<Fault>) {
        self.usual = fault;
    }

    /// Returns the number of transactions of this handle.
    #[must_use]
    pub const fn commit_count(&self) -> u64 {
        self.commit_count
    }

    /// Returns the number of commit calls, which would be round trips on a network.
    #[must_use]
    pub const fn batch_count(&self) -> u64 {
        self.batch_count
    }

    /// Returns the number of reads of this handle.
    #[must_use]
    pub const fn read_count(&self) -> u64 {
        self.read_count
    }

    /// Returns the total ticks of requested waits.
    #[must_use]
    pub const fn waited(&self) -> u64 {
        self.waited
    }

    /// Returns a copy of the store.
    #[must_use]
    pub fn backup(&self) -> MapBackup {
        MapBackup(self.lock().clone())
    }

    /// Replaces everything by a copy made earlier. Revisions continue from those of the copy, so
    /// they repeat, as those of a server that is restored from a snapshot.
    pub fn restore(&mut self, backup: &MapBackup) {
        *self.lock() = backup.0.clone();
    }

    /// Returns every key and value.
    #[must_use]
    pub fn dump(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let map = self.lock();
        map.values.iter().map(|(key, value)| (key.clone(), value.bytes.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        // A commit changes the map only after its last check, so a poisoned map is consistent.
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
                // A conflict is lost as well, so the caller cannot conclude that the transaction
                // was applied.
                self.apply(txn);
                Ok(CommitOutcome::Unknown)
            }
            // The same outcome as above: a caller must not be able to distinguish the two.
            Fault::LoseRequest => Ok(CommitOutcome::Unknown),
            // A transaction without a compare cannot conflict, so it is applied.
            Fault::Conflict => {
                Ok(self.pretended(txn).map_or_else(|| self.apply(txn), CommitOutcome::Conflict))
            }
            Fault::Fail => {
                let message = "injected failure".to_owned();
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
        // Under one lock with the writes, which makes the transaction atomic.
        let broken = txn.compares().iter().filter_map(|compare| map.broken(compare));
        if let Some(conflict) = Conflict::of(txn, broken) {
            return CommitOutcome::Conflict(conflict);
        }
        // One revision per transaction, as the contract requires, also across deletions.
        map.revision += 1;
        txn.writes().iter().for_each(|write| map.write(write, self.process));
        CommitOutcome::Applied { revision: map.revision }
    }
}

impl Map {
    /// Returns a key that fails `compare`, if any, and its current value.
    fn broken(&self, compare: &Compare) -> Option<(Key, Option<Versioned>)> {
        match compare {
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
        // A range may have its end before its start, which `BTreeMap::range` would panic on.
        let end = end.max(start);
        self.values
            .range::<[u8], _>((std::ops::Bound::Included(start), std::ops::Bound::Excluded(end)))
    }

    const fn next_process(&mut self) -> Process {
        self.process_count += 1;
        Process { id: self.process_count, binding: 1 }
    }

    fn vanish(&mut self, process: u64) {
        // A deletion by the store is a commit too: revisions must not repeat across it.
        self.revision += 1;
        for (key, _) in self.bound.extract_if(.., |_, of| *of == process) {
            self.values.remove(&key);
        }
    }

    fn write(&mut self, write: &Write, process: Option<Process>) {
        let key = write.key().to_bytes().as_bytes().to_vec();
        // An unbound write of a bound key releases it from its process.
        self.bound.remove(&key);
        if let Write::Bind(..) = write {
            // The core writes owner keys only if `binding` returned a number.
            let process = process.expect("only stores that bind keys receive `Bind`");
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
            let message = format!("a read of {} queries is too large", reads.len());
            let (operation, why) = ("map store.read", StoreRefusal::TooLarge);
            return Err(InfraError::Refused { operation, why, message });
        }
        // One lock for all queries, so that their answers are one snapshot.
        let (map, page) = (self.lock(), self.limits().page);
        reads.iter().map(|read| map.answer(read, page)).collect()
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.batch_count += 1;
        // One after the other: they are independent, and the lock is released in between.
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
