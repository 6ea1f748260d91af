//! Ours: a run on etcd, its shards leased, and everything that a worker does with them.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, ShardSpecRef,
    plan_split_replace_at_points_initial_cursor,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{AsyncStoreCoordinator, ProcessState, StoreConfig};
use gossip_coordination::{
    AcquireScratch, AsyncCoordinationBackend, AsyncRunManagement, Lease, RunConfig,
};
use gossip_coordination_etcd::{EtcdConfig, EtcdKv, EtcdStore, GrpcClient};

use crate::counting::Counting;
use crate::rounds::Caller;

pub const TENANT: TenantId = TenantId::from_bytes([7; 32]);
/// Longer than any measurement.
const LEASE: u64 = 1 << 40;
/// Bytes of every key.
const KEY_LEN: usize = 64;

pub type Coordinator<K = Counting> = AsyncStoreCoordinator<EtcdStore<K>>;

pub const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// Handles of one process on one namespace.
pub struct Process<K = Counting> {
    store: EtcdStore<K>,
    /// Of all handles, as in the product.
    process: ProcessState,
    handles: u64,
}

impl<K: EtcdKv> Process<K> {
    pub fn new(client: K, config: &EtcdConfig) -> Self {
        let store = EtcdStore::start(client, config).expect("the usual settings work");
        Self { store, process: ProcessState::default(), handles: 0 }
    }

    pub fn handle(&mut self) -> Coordinator<K> {
        self.handles += 1;
        let config = StoreConfig::new(self.handles << 40);
        AsyncStoreCoordinator::sharing(self.store.clone(), config, &self.process)
    }
}

/// Makes a run with `shards` roots, as many as one registration takes.
pub async fn register<K: EtcdKv>(coordinator: &mut Coordinator<K>, run: RunId, shards: usize) {
    assert!(shards <= MAX_INITIAL_SHARDS);
    let bounds: Vec<_> = (0..=shards as u64).map(bound).collect();
    let roots: Vec<_> = bounds
        .windows(2)
        .zip(0..)
        .map(|(bounds, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(&bounds[0], &bounds[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None)
        .expect("a lease is longer than nothing");
    let made = coordinator.create_run_with_shards(at(1), TENANT, run, config, &roots, op(1)).await;
    made.expect("the run is registered");
}

/// Takes one root of a run.
pub async fn acquire<K: EtcdKv>(coordinator: &mut Coordinator<K>, run: RunId, shard: u64) -> Lease {
    let key = ShardKey::new(run, ShardId::from_raw(shard));
    let (worker, mut scratch) = (WorkerId::from_raw(shard + 1), AcquireScratch::new());
    let granted = coordinator.acquire_and_restore_into(at(10), TENANT, key, worker, &mut scratch);
    granted.await.expect("the shard is free").lease
}

/// Replaces a root by `children`.
pub async fn split(coordinator: &mut Coordinator, run: RunId, shard: u64, children: usize) {
    let lease = acquire(coordinator, run, shard).await;
    let (start, end) = (bound(shard), bound(shard + 1));
    let cuts: Vec<_> = (1..children as u16).map(|cut| inner(shard, cut)).collect();
    let points: Vec<&[u8]> = cuts.iter().map(<[u8; KEY_LEN]>::as_slice).collect();
    let parent = ShardSpecRef::new(&start, &end, b"");
    let plan = plan_split_replace_at_points_initial_cursor(parent, &points)
        .expect("the points lie in order inside the parent");
    let cut = coordinator.split_replace(at(11), TENANT, &lease, &plan, op(1)).await;
    cut.expect("the children fit into a transaction");
}

/// A holder of a shard that does nothing but checkpoint.
pub struct Holder<K = GrpcClient> {
    coordinator: Coordinator<K>,
    lease: Lease,
    /// Checkpoints so far.
    made: u64,
}

impl<K: EtcdKv> Holder<K> {
    pub async fn new(mut coordinator: Coordinator<K>, run: RunId, shard: u64) -> Self {
        let lease = acquire(&mut coordinator, run, shard).await;
        Self { coordinator, lease, made: 0 }
    }
}

impl<K: EtcdKv> Caller for Holder<K> {
    async fn once(&mut self) {
        self.made += 1;
        let mut key = bound(self.lease.shard().as_raw());
        key[KEY_LEN - 8..].copy_from_slice(&self.made.to_be_bytes());
        let cursor = CursorUpdate::new(&key, b"");
        let made = self.coordinator.checkpoint(
            at(10 + self.made),
            TENANT,
            &self.lease,
            cursor,
            op(self.made),
        );
        made.await.expect("the lease is good");
    }
}

pub const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

/// Where the range of a root begins.
fn bound(shard: u64) -> [u8; KEY_LEN] {
    let mut bound = [0; KEY_LEN];
    bound[..8].copy_from_slice(&shard.to_be_bytes());
    bound
}

/// A key inside a root.
fn inner(shard: u64, cut: u16) -> [u8; KEY_LEN] {
    let mut key = bound(shard);
    key[8..10].copy_from_slice(&cut.to_be_bytes());
    key
}
