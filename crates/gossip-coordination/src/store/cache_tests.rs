//! The record cache saves reads and never changes a result.

use std::sync::Arc;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitResidualPlan,
};
use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
};

use super::cache::{Cache, CachedShard, GENERATION_BYTES_MAX, GENERATION_SHARDS_MAX};
use super::loaded::Head;
use super::{
    Answer, CommitOutcome, Fault, Key, MapStore, Read, Store, StoreConfig, StoreCoordinator,
    StoreLimits, Txn, Versioned,
};
use crate::protocol::{OfferTerms, ReleaseMode};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([8; 32]);
const RUN: RunId = RunId::from_raw(9);
const WORKER: WorkerId = WorkerId::from_raw(1);
const BOUNDS: [&[u8]; 4] = [b"a", b"g", b"p", b"z"];

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

const fn shard(number: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(number))
}

fn cursor(key: &[u8]) -> CursorUpdate<'_> {
    CursorUpdate::try_from_parts(Some(key), None).unwrap()
}

/// A store that counts the shards it reads.
struct Watched {
    store: MapStore,
    shard_reads: u64,
}

impl Store for Watched {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let hot = |read: &&Read| matches!(read, Read::Get(Key::ShardHot { .. }));
        self.shard_reads += reads.iter().filter(hot).count() as u64;
        self.store.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.store.commit(txns)
    }

    fn wait(&mut self, ticks: u64) {
        self.store.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }
}

type Owner = StoreCoordinator<Watched>;
type Admin = StoreCoordinator<MapStore>;

/// An administrator of a run with three shards, and another handle that holds them all.
fn set_up() -> (Admin, Owner, Vec<Lease>) {
    let mut admin = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    let roots: Vec<_> = BOUNDS
        .windows(2)
        .zip(0..)
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(pair[0], pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    admin.create_run_with_shards(at(1), TENANT, RUN, config, &roots, op(1)).unwrap();
    let store = Watched { store: admin.store().another_handle(), shard_reads: 0 };
    let mut owner = StoreCoordinator::new(store, StoreConfig::new(2 << 32));
    let mut scratch = AcquireScratch::new();
    let mut acquire = |id| {
        owner
            .acquire_and_restore_into(at(2), TENANT, shard(id), WORKER, &mut scratch)
            .unwrap()
            .lease
    };
    let leases = (0..3).map(&mut acquire).collect();
    (admin, owner, leases)
}

/// Returns the result of `call` with its cost: shards read, reads, and transactions.
fn cost<R>(owner: &mut Owner, call: impl FnOnce(&mut Owner) -> R) -> (R, [u64; 3]) {
    let count = |owner: &Owner| {
        let store = owner.store();
        [store.shard_reads, store.store.read_count(), store.store.commit_count()]
    };
    let before = count(owner);
    let result = call(owner);
    let after = count(owner);
    (result, [0, 1, 2].map(|nth| after[nth] - before[nth]))
}

/// The cost of a checkpoint that must succeed.
fn checkpoint(owner: &mut Owner, lease: &Lease, key: &[u8], op_id: OpId) -> [u64; 3] {
    let (result, cost) =
        cost(owner, |owner| owner.checkpoint(at(9), TENANT, lease, cursor(key), op_id));
    assert!(result.unwrap().is_executed());
    cost
}

/// One round trip and no read.
const ONE_COMMIT: [u64; 3] = [0, 0, 1];

#[test]
fn operation_on_a_cached_shard_is_one_commit() {
    let (_, mut owner, leases) = set_up();
    for (step, key) in (0..).zip([b"b", b"c", b"d"]) {
        assert_eq!(checkpoint(&mut owner, &leases[0], key, op(10 + step)), ONE_COMMIT);
    }
    let (result, cost_of) = cost(&mut owner, |owner| owner.renew(at(9), TENANT, &leases[0]));
    assert!(result.is_ok());
    assert_eq!((cost_of[0], cost_of[2]), (0, 1), "no read besides the hint");
    assert_eq!(checkpoint(&mut owner, &leases[0], b"e", op(20)), ONE_COMMIT);
    let (result, cost_of) =
        cost(&mut owner, |owner| owner.complete(at(9), TENANT, &leases[0], cursor(b"f"), op(21)));
    assert_eq!((result, cost_of), (Ok(IdempotentOutcome::Executed(())), ONE_COMMIT));
    let reason = ParkReason::Other;
    let (result, cost_of) =
        cost(&mut owner, |owner| owner.park_shard(at(9), TENANT, &leases[1], reason, op(22)));
    assert_eq!((result, cost_of), (Ok(IdempotentOutcome::Executed(())), ONE_COMMIT));
    let mode = ReleaseMode::Clean;
    let (result, cost_of) =
        cost(&mut owner, |owner| owner.release(at(9), TENANT, &leases[2], mode, op(23)));
    assert_eq!((result, cost_of), (Ok(IdempotentOutcome::Executed(())), ONE_COMMIT));
}

#[test]
fn split_caches_both_parts() {
    let (_, mut owner, leases) = set_up();
    let plan = residual();
    owner.split_residual(at(9), TENANT, &leases[0], &plan, op(10)).unwrap();
    assert_eq!(checkpoint(&mut owner, &leases[0], b"b", op(11)), ONE_COMMIT);
    let (result, _) =
        cost(&mut owner, |owner| owner.checkpoint(at(9), TENANT, &leases[0], cursor(b"e"), op(12)));
    assert!(result.is_err(), "the range ends at d: {result:?}");
}

fn residual() -> SplitResidualPlan<'static> {
    let (left, right) = (ShardSpecRef::new(b"a", b"d", b""), ShardSpecRef::new(b"d", b"g", b""));
    SplitResidualPlan::try_new(left, right).unwrap()
}

#[test]
fn stale_cache_entry_costs_a_load_and_a_commit() {
    let (mut admin, mut owner, leases) = set_up();
    let action = ShardAction::Release;
    admin.request_action(at(8), TENANT, shard(0), &action, at(50), op(30)).unwrap();
    let mut events = EventCollector::new();
    let (result, cost) = cost(&mut owner, |owner| {
        owner.with_events(&mut events, |owner| {
            owner.checkpoint(at(9), TENANT, &leases[0], cursor(b"b"), op(10))
        })
    });
    let result = result.unwrap();
    assert!(result.is_executed());
    assert!(result.into_inner().request.is_some(), "the request is seen");
    assert_eq!((cost, owner.store().store.waited()), ([1, 1, 2], 0));
    assert_eq!(events.drain().len(), 1, "one event for one change");
    assert_eq!(checkpoint(&mut owner, &leases[0], b"c", op(11)), ONE_COMMIT);
}

#[test]
fn changed_run_head_is_reloaded_once_for_all_shards() {
    let (mut admin, mut owner, leases) = set_up();
    admin.pause_run(at(8), TENANT, RUN, op(30)).unwrap();
    assert_eq!(checkpoint(&mut owner, &leases[0], b"b", op(10)), [1, 1, 2]);
    assert_eq!(checkpoint(&mut owner, &leases[1], b"h", op(11)), ONE_COMMIT);
}

#[test]
fn mismatched_parts_are_loaded() {
    let (mut admin, mut owner, leases) = set_up();
    // The lease is used by another handle too, which splits.
    admin.split_residual(at(8), TENANT, &leases[0], &residual(), op(30)).unwrap();
    assert_eq!(checkpoint(&mut owner, &leases[0], b"b", op(10)), [1, 1, 2]);
}

#[test]
fn refusal_from_the_cache_is_decided_again() {
    let (mut admin, mut owner, leases) = set_up();
    let (handoff, destination) = (HandoffId::from_raw(1), WorkerId::from_raw(2));
    let terms = OfferTerms { handoff, destination, deadline: at(40) };
    owner.offer(at(5), TENANT, &leases[0], terms, CursorUpdate::initial(), op(10)).unwrap();
    admin.withdraw(at(6), TENANT, &leases[0], handoff, op(11)).unwrap();
    assert_eq!(checkpoint(&mut owner, &leases[0], b"b", op(12)), [1, 1, 1]);
}

#[test]
fn replay_from_the_cache_is_decided_again() {
    let (_, mut owner, leases) = set_up();
    checkpoint(&mut owner, &leases[0], b"b", op(10));
    let (result, cost) =
        cost(&mut owner, |owner| owner.checkpoint(at(9), TENANT, &leases[0], cursor(b"b"), op(10)));
    assert!(result.unwrap().is_replay());
    assert_eq!(cost, [1, 1, 0]);
}

#[test]
fn lost_lease_is_detected_and_dropped_from_the_cache() {
    let (mut admin, mut owner, leases) = set_up();
    admin.revoke_lease(at(8), TENANT, shard(0), None, op(30)).unwrap();
    for expected in [[1, 1, 1], [1, 1, 0]] {
        let (result, cost) = cost(&mut owner, |owner| {
            owner.checkpoint(at(9), TENANT, &leases[0], cursor(b"b"), op(10))
        });
        assert!(matches!(result, Err(CheckpointError::StaleFence { .. })), "{result:?}");
        assert_eq!(cost, expected);
    }
}

#[test]
fn cached_shard_of_a_deleted_run_is_not_found() {
    let (mut admin, mut owner, leases) = set_up();
    admin.cancel_run(at(8), TENANT, RUN, op(30)).unwrap();
    // The tombstone is written, and then the purge fails.
    admin.store_mut().inject(Fault::None);
    admin.store_mut().inject(Fault::Fail);
    admin.delete_run(at(8), TENANT, RUN, op(31)).unwrap_err();
    let result = owner.checkpoint(at(9), TENANT, &leases[0], cursor(b"b"), op(10));
    assert!(matches!(result, Err(CheckpointError::ShardNotFound { .. })), "{result:?}");
}

#[test]
fn unresolved_commit_drops_the_cache_entry() {
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        let (_, mut owner, leases) = set_up();
        owner.store_mut().store.inject(fault);
        let (result, cost) = cost(&mut owner, |owner| {
            owner.checkpoint(at(9), TENANT, &leases[0], cursor(b"b"), op(10))
        });
        assert!(result.unwrap().is_executed());
        let lost = u64::from(fault == Fault::LoseRequest);
        assert_eq!(cost, [1, 1, 1 + lost], "{fault:?}");
    }
}

#[test]
fn administrator_caches_no_shard() {
    let (mut admin, _, _) = set_up();
    let action = ShardAction::Release;
    for number in 0..2 {
        let (now, until, before) = (at(10 + number), at(11 + number), admin.store().read_count());
        let asked = admin.request_action(now, TENANT, shard(0), &action, until, op(30 + number));
        assert!(asked.unwrap().is_executed());
        assert_eq!(admin.store().read_count() - before, 1);
    }
}

#[test]
fn handles_that_share_a_cache_cause_no_conflict() {
    let (_, mut owner, leases) = set_up();
    let store = Watched { store: owner.store().store.another_handle(), shard_reads: 0 };
    let config = StoreConfig { nonce: 3 << 32, ..owner.config() };
    let mut renewer = StoreCoordinator::sharing(store, config, &owner.process_state());
    for (step, key) in (0..).zip([b"b", b"c", b"d"]) {
        assert_eq!(checkpoint(&mut owner, &leases[0], key, op(10 + step)), ONE_COMMIT);
        let (result, cost) = cost(&mut renewer, |it| it.renew(at(9 + step), TENANT, &leases[0]));
        assert!(result.is_ok());
        assert_eq!((cost[0], cost[2]), (0, 1), "beside the hint no read, and no conflict");
    }
}

#[test]
fn older_entry_does_not_replace_a_newer_one() {
    let mut memory = Cache::default();
    for revision in [5, 7, 6] {
        put_at(&mut memory, 1, revision, 9);
    }
    assert_eq!(take(&mut memory, 1), Some(7));
    // Also if the newer one has become old in the meantime.
    put_at(&mut memory, 1, 9, 9);
    (0..=GENERATION_SHARDS_MAX as u64).for_each(|number| put(&mut memory, 10 + number, 9));
    put_at(&mut memory, 1, 8, 9);
    assert_eq!(take(&mut memory, 1), Some(9));
}

/// Caches a shard of `len` bytes in its own run.
fn put(memory: &mut Cache, number: u64, len: usize) {
    put_at(memory, number, number, len);
}

/// The same at a revision.
fn put_at(memory: &mut Cache, number: u64, revision: u64, len: usize) {
    let value = |len| Versioned { revision, bytes: vec![0; len] };
    let key = ShardKey::new(RunId::from_raw(number), ShardId::from_raw(0));
    let remembered = CachedShard { hot: value(len), cold: value(0), bound: None };
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    let (status, fence_floor) = (RunStatus::Active, FenceEpoch::ZERO);
    let run = RunHead { status, paused: false, config, fence_floor };
    let value = Arc::default();
    memory.put(TENANT, key, remembered, Head { revision, value, run, has_roots: true });
}

fn take(memory: &mut Cache, number: u64) -> Option<u64> {
    let key = ShardKey::new(RunId::from_raw(number), ShardId::from_raw(0));
    let head = memory.head(TENANT, key.run()).map(|head| head.revision);
    let hot = memory.take(TENANT, key).map(|shard| shard.hot.revision);
    assert!(hot.is_none() || hot == head);
    hot
}

#[test]
fn cache_is_bounded_and_keeps_recently_used_entries() {
    let max = GENERATION_SHARDS_MAX as u64;
    let mut memory = Cache::default();
    put(&mut memory, 0, 9);
    for number in 1..4 * max {
        put(&mut memory, number, 9);
        assert_eq!(take(&mut memory, 0), Some(0), "used all the time");
        put(&mut memory, 0, 9);
    }
    let kept = (0..4 * max).filter(|number| take(&mut memory, *number).is_some()).count() as u64;
    assert!((max..=2 * max).contains(&kept), "{kept} shards");
}

#[test]
fn cache_is_bounded_in_bytes() {
    let mut memory = Cache::default();
    let len = GENERATION_BYTES_MAX / 8;
    (0..100).for_each(|number| put(&mut memory, number, len));
    let kept = (0..100).filter(|number| take(&mut memory, *number).is_some()).count();
    assert!((8..=16).contains(&kept), "{kept} shards");
    assert_eq!(format!("{memory:?}"), "Cache { shards: 0, bytes: 0, .. }");
}
