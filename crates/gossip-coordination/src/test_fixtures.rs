//! Seeded coordinators, canonical plans and short constructors, shared by the tests.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitResidualPlan,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};

use crate::store::test_support::AsyncMap;
use crate::store::{AsyncStoreCoordinator, MapStore, StoreConfig, StoreCoordinator};
use crate::{
    AcquireScratch, CoordinationBackend, CoordinatorRuntimeConfig, InMemoryCoordinator, Lease,
    RunConfig, RunManagement,
};

/// The tenant of every fixture.
pub(crate) const TENANT: TenantId = TenantId::from_bytes([7; 32]);
/// The run of every fixture.
pub(crate) const RUN: RunId = RunId::from_raw(1);
/// How long a lease of the fixture's run lasts.
pub(crate) const LEASE: u64 = 100;

/// Short for a time.
pub(crate) const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// Short for an operation id.
pub(crate) const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

/// Short for a worker.
pub(crate) const fn worker(number: u64) -> WorkerId {
    WorkerId::from_raw(number)
}

/// Short for a fence.
pub(crate) const fn fence(raw: u64) -> FenceEpoch {
    FenceEpoch::from_raw(raw)
}

/// Short for a shard of the fixture's run.
pub(crate) const fn key(shard: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(shard))
}

/// Settings of the fixture's run: parks a shard at its fourth grant without progress.
pub(crate) fn run_config() -> RunConfig {
    RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(2)).expect("a lease that lasts")
}

/// A coordinator with one active run of two shards, `[a, m)` and `[m, z)`, at time 1.
pub(crate) fn two_shards() -> InMemoryCoordinator {
    two_shards_of(run_config())
}

/// As [`two_shards`], with this configuration of the run.
pub(crate) fn two_shards_of(config: RunConfig) -> InMemoryCoordinator {
    let mut coordinator = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        slab_capacity: 1 << 20,
        ..CoordinatorRuntimeConfig::default()
    });
    register_two_shards_of(&mut coordinator, config);
    coordinator
}

/// As [`two_shards`] over an asynchronous store.
pub(crate) fn two_shards_async() -> AsyncStoreCoordinator<AsyncMap> {
    let mut coordinator = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    register_two_shards(&mut coordinator);
    let store = AsyncMap(coordinator.store().another_handle());
    AsyncStoreCoordinator::new(store, StoreConfig::new(2 << 32))
}

/// Registers the fixture's run.
pub(crate) fn register_two_shards(coordinator: &mut impl RunManagement) {
    register_two_shards_of(coordinator, run_config());
}

/// As [`register_two_shards`], with this configuration.
fn register_two_shards_of(coordinator: &mut impl RunManagement, config: RunConfig) {
    let shards = [(0, b"a", b"m"), (1, b"m", b"z")].map(|(id, start, end)| InitialShardInput {
        shard_id: ShardId::from_raw(id),
        spec: ShardSpecRef::new(start, end, b""),
        cursor: CursorUpdate::initial(),
    });
    let made = coordinator.create_run_with_shards(at(1), TENANT, RUN, config, &shards, op(1_000));
    made.expect("a new run with two good shards");
}

/// Acquires a shard at `now` for `worker`.
pub(crate) fn acquire(
    coordinator: &mut InMemoryCoordinator,
    now: u64,
    shard: u64,
    worker_number: u64,
) -> Lease {
    let mut scratch = Box::new(AcquireScratch::new());
    let worker = worker(worker_number);
    let acquired =
        coordinator.acquire_and_restore_into(at(now), TENANT, key(shard), worker, &mut scratch);
    acquired.expect("the shard is free").lease
}

/// Cuts a range in two at `cut`: the canonical replacing split of a shard without progress.
pub(crate) fn halves<'a>(start: &'a [u8], cut: &'a [u8], end: &'a [u8]) -> SplitReplacePlan<'a> {
    let parts = [(start, cut), (cut, end)];
    let children = parts.map(|(start, end)| {
        SplitChild::new(ShardSpecRef::new(start, end, b""), CursorUpdate::initial())
    });
    SplitReplacePlan::try_new(children).expect("two children")
}

/// Keeps `[start, cut)` and gives the rest away: the canonical residual split.
pub(crate) fn residual<'a>(start: &'a [u8], cut: &'a [u8], end: &'a [u8]) -> SplitResidualPlan<'a> {
    let keep = ShardSpecRef::new(start, cut, b"");
    let give = ShardSpecRef::new(cut, end, b"");
    SplitResidualPlan::try_new(keep, give).expect("the parts differ")
}
