//! What the codec of the store layer asks of the allocator: nothing to encode, once its buffer is
//! large enough, and nothing by a length that it only read.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{
    Key, KeyRange, decode_hot, decode_roots, encode_claim_entry, encode_cold, encode_hot,
};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, CoordinatorRuntimeConfig, InMemoryCoordinator, RunConfig,
    RunManagement,
};
use gossip_testkit::{CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const SHARD: ShardKey = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(0));
const DEADLINE: LogicalTime = LogicalTime::from_raw(102);

#[track_caller]
fn assert_allocates_nothing<R>(action: impl FnOnce() -> R) -> R {
    let (result, counts) = count_allocations(action);
    assert_eq!((counts.allocations, counts.deallocations), (0, 0));
    result
}

/// A leased shard with a full log.
fn coordinator() -> InMemoryCoordinator {
    let config =
        CoordinatorRuntimeConfig { slab_capacity: 1 << 16, ..CoordinatorRuntimeConfig::default() };
    let mut coordinator = InMemoryCoordinator::new(config);
    let root = InitialShardInput {
        shard_id: SHARD.shard(),
        spec: ShardSpecRef::new(&[b'a'; 64], &[b'z'; 64], b"metadata"),
        cursor: CursorUpdate::initial(),
    };
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None);
    let config = config.expect("a lease that lasts");
    let (now, op) = (LogicalTime::from_raw(2), OpId::from_raw(1));
    let made = coordinator.create_run_with_shards(now, TENANT, SHARD.run(), config, &[root], op);
    made.expect("a new run");
    let mut scratch = AcquireScratch::new();
    let worker = WorkerId::from_raw(1);
    let got = coordinator.acquire_and_restore_into(now, TENANT, SHARD, worker, &mut scratch);
    let lease = got.expect("a free shard").lease;
    for step in 0..20 {
        let (key, op) = ([b'b' + step; 64], OpId::from_raw(10 + u64::from(step)));
        let cursor = CursorUpdate::new(&key, b"token");
        let checkpoint = coordinator.checkpoint(now, TENANT, &lease, cursor, op);
        checkpoint.expect("progress");
    }
    coordinator
}

#[test]
fn encoding_into_a_large_enough_buffer_allocates_nothing() {
    let coordinator = coordinator();
    let shard = coordinator.shard(TENANT, SHARD).unwrap();
    let mut out = Vec::new();
    encode_hot(shard, Some(DEADLINE), &mut out);
    let first = out.clone();
    assert_allocates_nothing(|| {
        for _ in 0..3 {
            encode_cold(shard, &mut out);
            encode_claim_entry(TENANT, SHARD, DEADLINE, &mut out);
            encode_hot(shard, Some(DEADLINE), &mut out);
        }
    });
    assert_eq!(out, first);
}

#[test]
fn reading_a_hot_part_allocates_nothing() {
    let coordinator = coordinator();
    let mut out = Vec::new();
    let shard = coordinator.shard(TENANT, SHARD).unwrap();
    // The first value of a thread makes room for those that are remembered.
    let earlier = LogicalTime::from_raw(DEADLINE.as_raw() - 1);
    encode_hot(shard, Some(earlier), &mut out);
    assert_eq!(decode_hot(TENANT, SHARD, &out).unwrap().indexed_at, Some(earlier));
    encode_hot(shard, Some(DEADLINE), &mut out);
    let hot = assert_allocates_nothing(|| decode_hot(TENANT, SHARD, &out).unwrap());
    assert_eq!(hot.op_log.len(), 16);
}

#[test]
fn keys_and_ranges_allocate_nothing() {
    assert_allocates_nothing(|| {
        let key = Key::ClaimIndex { tenant: TENANT, shard: SHARD, at: DEADLINE };
        let range = KeyRange::claims_of(TENANT, SHARD.run());
        assert!(range.contains(key.to_bytes().as_bytes()));
        assert_eq!(Key::parse(key.to_bytes().as_bytes()), Ok(key));
    });
}

/// A refusal makes its message and no more, whatever lengths the bytes claim.
#[test]
fn hostile_lengths_reserve_nothing() {
    let mut ids = Vec::new();
    for value in [[0xFF; 64], [1; 64], [2; 64]] {
        let (refused, counts) = count_allocations(|| {
            decode_roots(TENANT, SHARD.run(), 0, &value, &mut ids).unwrap_err()
        });
        assert!(counts.allocations <= 8, "{refused} took {} allocations", counts.allocations);
    }
    assert_eq!(ids.capacity(), 0);
}
