//! Many shards with data of usual size, shared by benchmarks and the tests of their claims.
//!
//! Every shard has 152 bytes of its own: bounds of 40 bytes each, 24 of metadata, and a cursor key
//! of 48, so that the payload of a checkpoint is exactly one block of BLAKE3.
#![allow(dead_code, unreachable_pub, reason = "each target uses its part")]

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, CoordinatorRuntimeConfig, InMemoryCoordinator, Lease,
    RunConfig, RunManagement,
};

/// The tenant of every shard.
pub const TENANT: TenantId = TenantId::from_bytes([7; 32]);
/// The lease holder of leased shards.
pub const WORKER: WorkerId = WorkerId::from_raw(1);
/// How long a lease lasts: longer than any measurement.
pub const LEASE: u64 = 1 << 40;
/// Bytes of a bound.
pub const BOUND_LEN: usize = 40;
/// Bytes of a cursor's key.
pub const CURSOR_LEN: usize = 48;
/// Bytes of metadata.
pub const METADATA: &[u8; 24] = b"a connector's own remark";
/// Bytes of keys, metadata and cursor in all.
pub const DATA_LEN: usize = 2 * BOUND_LEN + METADATA.len() + CURSOR_LEN;
/// What they occupy in the slab: two blocks, each a power of two.
pub const SLAB_BYTES_PER_SHARD: usize = 128 + 64;

/// Short for a time.
pub const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// The name of the `index`-th shard: runs hold as many as one registration may bring.
pub const fn key_of(index: usize) -> ShardKey {
    ShardKey::new(run_of(index), ShardId::from_raw((index % MAX_INITIAL_SHARDS) as u64))
}

/// The run of the `index`-th shard.
pub const fn run_of(index: usize) -> RunId {
    RunId::from_raw((index / MAX_INITIAL_SHARDS) as u64 + 1)
}

/// Where the range of the `index`-th shard starts.
pub fn bound(index: usize) -> [u8; BOUND_LEN] {
    let mut bound = [b'k'; BOUND_LEN];
    // Big-endian at the end, so that bounds ascend with the index.
    bound[BOUND_LEN - 8..].copy_from_slice(&(index as u64).to_be_bytes());
    bound
}

/// A key in the range of the `index`-th shard; greater for a greater `progress`.
pub fn cursor_key(index: usize, progress: u64) -> [u8; CURSOR_LEN] {
    let mut key = [0; CURSOR_LEN];
    key[..BOUND_LEN].copy_from_slice(&bound(index));
    key[BOUND_LEN..].copy_from_slice(&progress.to_be_bytes());
    key
}

/// A coordinator with room for `shards`.
pub fn empty(shards: usize) -> InMemoryCoordinator {
    InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        max_shards_per_tenant: usize::MAX,
        max_total_shards: usize::MAX,
        // The size that is chosen without this would not hold a million shards.
        slab_capacity: shards * SLAB_BYTES_PER_SHARD,
        ..CoordinatorRuntimeConfig::default()
    })
}

/// Registers shards until there are `shards`, run by run.
pub fn register(coordinator: &mut InMemoryCoordinator, shards: usize) {
    let mut first = 0;
    while first < shards {
        let end = shards.min(first + MAX_INITIAL_SHARDS);
        register_run(coordinator, first, end);
        first = end;
    }
}

fn register_run(coordinator: &mut InMemoryCoordinator, first: usize, end: usize) {
    let bounds: Vec<_> = (first..=end).map(bound).collect();
    let cursors: Vec<_> = (first..end).map(|index| cursor_key(index, 0)).collect();
    let row = |index: usize| InitialShardInput {
        shard_id: key_of(index).shard(),
        spec: ShardSpecRef::new(&bounds[index - first], &bounds[index - first + 1], METADATA),
        cursor: CursorUpdate::with_last_key(&cursors[index - first]),
    };
    let rows: Vec<_> = (first..end).map(row).collect();
    let config =
        RunConfig::try_new(CursorSemantics::Completed, LEASE, None).expect("a lease that lasts");
    let (run, op_id) = (run_of(first), OpId::from_raw(1));
    let made = coordinator.create_run_with_shards(at(1), TENANT, run, config, &rows, op_id);
    made.expect("a new run with good shards");
}

/// `shards` registered, idle shards.
pub fn idle(shards: usize) -> InMemoryCoordinator {
    let mut coordinator = empty(shards);
    register(&mut coordinator, shards);
    coordinator
}

/// Acquires the `index`-th shard.
pub fn acquire(
    coordinator: &mut InMemoryCoordinator,
    now: u64,
    index: usize,
    scratch: &mut AcquireScratch,
) -> Lease {
    let key = key_of(index);
    let got = coordinator.acquire_and_restore_into(at(now), TENANT, key, WORKER, scratch);
    got.expect("the shard is free").lease
}
