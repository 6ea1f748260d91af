//! The simulator's stores as coordinator backends, and their conformance hook.
//!
//! A [`SimulationBackend`] is a store under the control of a simulation. There are two: [`SimDisk`]
//! is the disk of the simulator with immediate answers, and [`FaultyStore`](super::FaultyStore) is
//! a blocking store with faults. [`OnSimulation`] runs the conformance suite of every backend on
//! them, so that simulations run on a store that conforms like the others.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gossip_conformance::{Ability, ConformanceTarget, Settings};
use gossip_coordination::store::{
    Answer, CommitOutcome, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{CollectEvents, EventCollector, InfraError, StateTransitionEvent};

use super::disk::Disk;

/// A store under the control of a simulation.
pub trait SimulationBackend: Store + Send + Sized {
    /// Name in reports.
    const NAME: &'static str;

    /// Returns a handle to an empty store without faults.
    fn fresh() -> Self;

    /// Returns another handle to the same store, as another process would have.
    #[must_use]
    fn another_handle(&self) -> Self;

    /// Loses the reply to the next commit, which is applied.
    fn lose_next_reply(&mut self);

    /// Returns a coordinator over this handle.
    #[must_use]
    fn coordinator(self, config: StoreConfig) -> StoreCoordinator<Self> {
        StoreCoordinator::new(self, config)
    }
}

/// Conformance hook: runs the suite of every backend on a [`SimulationBackend`].
#[derive(Clone, Copy, Debug, Default)]
pub struct OnSimulation<B>(PhantomData<B>);

impl<B: SimulationBackend> OnSimulation<B> {
    /// Returns the hook of `B`.
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

    fn sibling_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let nonce = backend.config().nonce + 1;
        let config = StoreConfig { nonce, ..backend.config() };
        let store = backend.store().another_handle();
        Some(StoreCoordinator::sharing(store, config, &backend.process_state()))
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.store_mut().lose_next_reply();
        true
    }

    fn split_children_max(&self) -> usize {
        self.fresh(Settings::default()).split_children_max()
    }
}

/// A handle to a simulated disk. Each handle is a process of its own.
#[derive(Clone, Debug)]
pub struct SimDisk {
    disk: Arc<Mutex<Disk>>,
    process: u32,
    loses_reply: bool,
}

impl SimDisk {
    /// Returns a handle to an empty disk.
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
    const NAME: &'static str = "simulated disk";

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
