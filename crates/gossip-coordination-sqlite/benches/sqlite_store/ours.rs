//! Ours: checkpoints of leased shards through a coordinator, each caller with a handle of its own.

use std::path::Path;
use std::sync::Mutex;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{StoreConfig, StoreCoordinator};
use gossip_coordination::{AcquireScratch, CoordinationBackend, Lease, RunConfig, RunManagement};
use gossip_coordination_sqlite::{SqliteDatabase, SqliteOptions, SqliteStore};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);
/// Longer than any measurement.
const LEASE: u64 = 1 << 40;
/// Bytes of every key.
const KEY_LEN: usize = 64;

/// A run whose shards are all leased, one for each caller.
pub struct Ours {
    callers: Vec<Mutex<Caller>>,
}

struct Caller {
    coordinator: StoreCoordinator<SqliteStore>,
    lease: Lease,
    /// Checkpoints so far.
    made: u64,
}

impl Ours {
    pub fn new(directory: &Path, callers: usize, records: usize, full: bool) -> Self {
        let options = SqliteOptions::default();
        let options = if full { options } else { options.relaxed() };
        let database = SqliteDatabase::open(directory.join("ours"), options).unwrap();
        let handle =
            |nonce: u64| StoreCoordinator::new(database.store(), StoreConfig::new(nonce << 32));
        register(&mut handle(1), records);
        let stride = records / callers;
        let callers = (0..callers)
            .map(|caller| Mutex::new(Caller::new(handle(caller as u64 + 2), caller * stride)));
        Self { callers: callers.collect() }
    }

    /// What one caller repeats.
    pub fn caller(&self, caller: usize) -> impl FnMut() + Send + '_ {
        let caller = &self.callers[caller];
        // Uncontended, so its cost is negligible beside a commit.
        move || caller.lock().unwrap().checkpoint()
    }
}

impl Caller {
    fn new(mut coordinator: StoreCoordinator<SqliteStore>, shard: usize) -> Self {
        let key = ShardKey::new(RUN, ShardId::from_raw(shard as u64));
        let worker = WorkerId::from_raw(shard as u64);
        let mut scratch = AcquireScratch::new();
        let now = LogicalTime::from_raw(10);
        let granted =
            coordinator.acquire_and_restore_into(now, TENANT, key, worker, &mut scratch).unwrap();
        let lease = granted.lease;
        Self { coordinator, lease, made: 0 }
    }

    fn checkpoint(&mut self) {
        self.made += 1;
        let mut key = bound(self.lease.shard().as_raw());
        key[KEY_LEN - 8..].copy_from_slice(&self.made.to_be_bytes());
        let now = LogicalTime::from_raw(10 + self.made);
        let (cursor, op) = (CursorUpdate::new(&key, b""), OpId::from_raw(self.made));
        self.coordinator.checkpoint(now, TENANT, &self.lease, cursor, op).unwrap();
    }
}

fn register(coordinator: &mut StoreCoordinator<SqliteStore>, shards: usize) {
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
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
    let (now, op) = (LogicalTime::from_raw(1), OpId::from_raw(1));
    coordinator.create_run_with_shards(now, TENANT, RUN, config, &roots, op).unwrap();
}

/// Where the range of a shard begins.
fn bound(shard: u64) -> [u8; KEY_LEN] {
    let mut bound = [0; KEY_LEN];
    bound[..8].copy_from_slice(&shard.to_be_bytes());
    bound
}
