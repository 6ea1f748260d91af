//! A store that acknowledges everything and keeps nothing: nothing of an engine is measured.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{
    Answer, CommitOutcome, MapStore, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, InfraError, Lease, RunConfig, RunManagement,
};

pub(crate) const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);

/// Stores the initial state, and acknowledges later commits without storing them.
pub(crate) struct Acknowledging {
    store: MapStore,
    revision: u64,
    keeps: bool,
}

impl Store for Acknowledging {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.store.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        if self.keeps {
            return self.store.commit(txns);
        }
        // A greater one each time: the store layer refuses a revision that falls.
        self.revision += 1;
        let revision = self.revision;
        txns.iter().map(|_| Ok(CommitOutcome::Applied { revision })).collect()
    }

    fn wait(&mut self, _: u64) {}

    fn limits(&self) -> StoreLimits {
        StoreLimits::GENEROUS
    }
}

/// Returns a coordinator of one run with this many leased shards, and their leases.
pub(crate) fn set_up(shards: u64) -> (StoreCoordinator<Acknowledging>, Vec<Lease>) {
    // The revision lies above all that the map gives, for the same reason.
    let store = Acknowledging { store: MapStore::new(), revision: 1 << 40, keeps: true };
    let mut coordinator = StoreCoordinator::new(store, StoreConfig::new(1));
    let bounds: Vec<_> = (0..=shards).map(|bound| bound_of(bound, 0)).collect();
    let roots: Vec<_> = (0..shards)
        .zip(bounds.windows(2))
        .map(|(shard, pair)| InitialShardInput {
            shard_id: ShardId::from_raw(shard),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b"metadata of a shard"),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, 1 << 40, None);
    let (config, op) = (config.expect("a lease that lasts"), OpId::from_raw(1));
    let made = coordinator.create_run_with_shards(at(1), TENANT, RUN, config, &roots, op);
    made.expect("a new run");
    let mut scratch = AcquireScratch::new();
    let mut acquire = |shard| {
        let (key, worker) = (ShardKey::new(RUN, ShardId::from_raw(shard)), WorkerId::from_raw(1));
        let got = coordinator.acquire_and_restore_into(at(2), TENANT, key, worker, &mut scratch);
        got.expect("a free shard").lease
    };
    let leases = (0..shards).map(&mut acquire).collect();
    // From here on a commit costs nothing, so only the store layer is measured.
    coordinator.store_mut().keeps = false;
    (coordinator, leases)
}

pub(crate) const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// A key of 64 bytes in the range of `shard`.
pub(crate) fn bound_of(shard: u64, position: u64) -> [u8; 64] {
    let mut key = [1; 64];
    key[..8].copy_from_slice(&shard.to_be_bytes());
    key[56..].copy_from_slice(&position.to_be_bytes());
    key
}
