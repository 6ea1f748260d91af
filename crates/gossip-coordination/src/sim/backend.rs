//! The simulated store as a backend of its own: the same disk, answered at once.
//!
//! The suite that holds every backend to the protocol holds this one too, so what the worlds run on
//! is an engine like the others and not a convenience.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::Disk;
use crate::error::InfraError;
use crate::store::{
    Answer, CommitOutcome, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};

/// A coordinator over the simulated store, blocking.
pub type SimulationBackend = StoreCoordinator<SimDisk>;

/// A handle of a simulated disk. Each is a process of its own.
#[derive(Clone, Debug)]
pub struct SimDisk {
    disk: Arc<Mutex<Disk>>,
    process: u32,
    loses_reply: bool,
}

impl SimDisk {
    /// A handle of an empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self { disk: Arc::default(), process: 1, loses_reply: false }
    }

    /// Another handle of the same disk.
    #[must_use]
    pub fn another_handle(&self) -> Self {
        Self { disk: Arc::clone(&self.disk), process: self.process + 1, loses_reply: false }
    }

    /// The next commit happens and its reply is lost.
    pub const fn lose_next_reply(&mut self) {
        self.loses_reply = true;
    }

    /// A coordinator over this handle.
    #[must_use]
    pub fn coordinator(self, config: StoreConfig) -> SimulationBackend {
        StoreCoordinator::new(self, config)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit_one(&mut self, txn: &Txn) -> CommitOutcome {
        let mut disk = self.disk();
        if let Some(conflict) = disk.conflict(txn) {
            return CommitOutcome::Conflict(conflict);
        }
        let revision = disk.apply(txn, self.process);
        drop(disk);
        match std::mem::take(&mut self.loses_reply) {
            true => CommitOutcome::Unknown,
            false => CommitOutcome::Applied { revision },
        }
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for SimDisk {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        Ok(self.disk().read(&reads, StoreLimits::GENEROUS.page))
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        txns.iter().map(|txn| Ok(self.commit_one(txn))).collect()
    }

    fn wait(&mut self, _ticks: u64) {}

    fn limits(&self) -> StoreLimits {
        StoreLimits::GENEROUS
    }
}
