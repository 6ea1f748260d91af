//! The simulator's stores as backends of their own, and the suite that holds them to the protocol.
//!
//! A [`SimulationBackend`] is a store that a simulation decides about. There are two: [`SimDisk`],
//! the disk of the worlds answered at once, and [`FaultyStore`](super::FaultyStore), which programs
//! that block are given with its faults. [`OnSimulation`] is the conformance hook: it takes any of
//! them and shows it to the suite that every backend is held to, so what worlds run on is an engine
//! like the others and not a convenience.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gossip_conformance::{Ability, ConformanceTarget, Settings};
use gossip_coordination::store::{
    Answer, CommitOutcome, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{EventCollector, InfraError, StateTransitionEvent};

use super::disk::Disk;

/// A store that a simulation decides about.
pub trait SimulationBackend: Store + Send + Sized {
    /// What reports call it.
    const NAME: &'static str;

    /// A handle of an empty store to which nothing happens by itself.
    fn fresh() -> Self;

    /// Another handle of the same store, as another process has one.
    #[must_use]
    fn another_handle(&self) -> Self;

    /// The next commit happens and its reply is lost.
    fn lose_next_reply(&mut self);

    /// A coordinator over this handle.
    #[must_use]
    fn coordinator(self, config: StoreConfig) -> StoreCoordinator<Self> {
        StoreCoordinator::new(self, config)
    }
}

/// The conformance hook: shows a [`SimulationBackend`] to the suite of every backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnSimulation<B>(PhantomData<B>);

impl<B: SimulationBackend> OnSimulation<B> {
    /// The hook of `B`.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<B: SimulationBackend> ConformanceTarget for OnSimulation<B> {
    type Backend = StoreCoordinator<B>;

    fn name(&self) -> &str {
        B::NAME
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        let mut store = B::fresh();
        settings.allot(&mut store);
        store.coordinator(settings.limit(StoreConfig::new(1)))
    }

    fn with_events<R>(
        &self,
        backend: &mut Self::Backend,
        call: impl FnOnce(&mut Self::Backend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let nonce = backend.config().nonce + 1;
        let config = StoreConfig { nonce, ..backend.config() };
        Some(backend.store().another_handle().coordinator(config))
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.store_mut().lose_next_reply();
        true
    }

    fn split_children_max(&self) -> usize {
        self.fresh(Settings::default()).split_children_max()
    }
}

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

impl SimulationBackend for SimDisk {
    const NAME: &'static str = "the simulated disk";

    fn fresh() -> Self {
        Self::new()
    }

    fn another_handle(&self) -> Self {
        Self { disk: Arc::clone(&self.disk), process: self.process + 1, loses_reply: false }
    }

    fn lose_next_reply(&mut self) {
        self.loses_reply = true;
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
