//! The coordinator over the model of etcd: everything but the network, and the same every time.
//!
//! [`SimStore`] is the real [`EtcdStore`] over [`SimEtcdKv`]. The model answers at once, so nothing
//! waits, and there is no runtime, no thread and no clock but the model's. Nothing happens in the
//! background either: a simulation that wants owner leases to live calls [`SimStore::keep_alive`],
//! and one that wants a process to die does not.

use gossip_coordination::store::{
    Answer, AsyncStore, CommitOutcome, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{InfraError, block_on};
use gossip_coordination_etcd::{ConfigError, EtcdConfig, EtcdStore};

use crate::sim_etcd_kv::SimEtcdKv;

/// The blocking coordinator over the model of etcd.
pub type SimEtcdCoordinator = StoreCoordinator<SimStore>;

/// The store of one simulated process. Clones are handles of the same process.
#[derive(Clone, Debug)]
pub struct SimStore(EtcdStore<SimEtcdKv>);

impl SimStore {
    /// A process that uses `kv`.
    ///
    /// # Errors
    ///
    /// What [`EtcdConfig::validate`] finds.
    pub fn new(kv: SimEtcdKv, config: &EtcdConfig) -> Result<Self, ConfigError> {
        EtcdStore::without_tasks(kv, config).map(Self)
    }

    /// A handle of this process. The simulation gives it a nonce of its own.
    #[must_use]
    pub fn coordinator(&self, config: StoreConfig) -> SimEtcdCoordinator {
        StoreCoordinator::new(self.clone(), config)
    }

    /// The store itself.
    #[must_use]
    pub const fn store(&self) -> &EtcdStore<SimEtcdKv> {
        &self.0
    }

    /// Keeps the owner lease of the process, as a real one does at a third of its time.
    pub fn keep_alive(&self) {
        block_on(self.0.keep_alive());
    }
}

impl Store for SimStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        block_on(self.0.read(reads))
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        block_on(self.0.commit(txns))
    }

    fn wait(&mut self, ticks: u64) {
        block_on(self.0.wait(ticks));
    }

    fn limits(&self) -> StoreLimits {
        self.0.limits()
    }

    fn binding(&self) -> Option<u64> {
        self.0.binding()
    }
}
