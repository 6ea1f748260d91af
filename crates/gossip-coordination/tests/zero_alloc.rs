//! What the coordinator in memory asks of the allocator: nothing in its steady state, and little
//! for each shard.
//!
//! A million shards are present in release builds; debug builds, whose slab checks itself, take
//! a hundred thousand. Memory of ten million is measured by the benchmark `memory`.
//!
//! The steady state begins when every shard at work has remembered one operation: its log is taken
//! from a chunk then, and one such first operation in a thousand makes a new chunk.

#[path = "../benches/support/mod.rs"]
mod support;

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{OpId, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, InMemoryCoordinator, Lease, RunManagement, ShardClaiming,
    ShardFilter,
};
use gossip_testkit::{CountingAllocator, count_allocations};

use self::support::{TENANT, acquire, at, cursor_key, idle, register, run_of};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SHARDS: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

/// Shards at work: more than fit in one chunk of anything.
const WORKING: usize = 3_000;

/// Bytes that an idle shard may take all in, of which 152 are its own.
const BYTES_PER_IDLE_SHARD_MAX: i64 = 350;

#[track_caller]
fn assert_allocates_nothing<R>(action: impl FnOnce() -> R) -> R {
    let (result, counts) = count_allocations(action);
    assert_eq!((counts.allocations, counts.deallocations), (0, 0));
    result
}

/// Some shards of different runs that are held and have remembered an operation.
fn at_work(coordinator: &mut InMemoryCoordinator, scratch: &mut AcquireScratch) -> Vec<Lease> {
    let shards = (0..WORKING).map(|number| number * (SHARDS / WORKING));
    let leases: Vec<_> = shards.map(|index| acquire(coordinator, 2, index, scratch)).collect();
    for (number, lease) in leases.iter().enumerate() {
        checkpoint(coordinator, lease, number, 1);
    }
    leases
}

fn checkpoint(coordinator: &mut InMemoryCoordinator, lease: &Lease, number: usize, step: u64) {
    let key = cursor_key(number * (SHARDS / WORKING), step);
    let cursor = CursorUpdate::with_last_key(&key);
    let done = coordinator.checkpoint(at(2 + step), TENANT, lease, cursor, OpId::from_raw(step));
    assert!(done.expect("accepted").is_executed());
}

#[test]
fn operations_of_the_steady_state_allocate_nothing() {
    let mut coordinator = idle(SHARDS);
    let mut scratch = Box::new(AcquireScratch::new());
    let leases = at_work(&mut coordinator, &mut scratch);
    assert_allocates_nothing(|| {
        for step in 2..20 {
            for (number, lease) in leases.iter().enumerate() {
                checkpoint(&mut coordinator, lease, number, step);
                coordinator.renew(at(2 + step), TENANT, lease).unwrap();
            }
        }
    });
    let (some, others) = leases.split_at(WORKING / 2);
    assert_allocates_nothing(|| {
        for (number, lease) in some.iter().enumerate() {
            let key = cursor_key(number * (SHARDS / WORKING), 30);
            let (cursor, op_id) = (CursorUpdate::with_last_key(&key), OpId::from_raw(30));
            let done = coordinator.complete(at(30), TENANT, lease, cursor, op_id);
            assert!(done.unwrap().is_executed());
        }
        for lease in others {
            let (mode, op_id) = (ReleaseMode::Clean, OpId::from_raw(31));
            coordinator.release(at(31), TENANT, lease, mode, op_id).unwrap();
        }
    });
    assert_allocates_nothing(|| {
        for lease in others {
            let (key, worker) = (lease.key(), lease.owner());
            coordinator
                .acquire_and_restore_into(at(32), TENANT, key, worker, &mut scratch)
                .unwrap();
        }
        for number in 0..WORKING {
            let worker = WorkerId::from_raw(number as u64);
            let run = run_of(number * (SHARDS / WORKING));
            coordinator.claim_next_available(at(33), TENANT, run, worker, &mut scratch).unwrap();
        }
    });
}

#[test]
fn an_idle_shard_takes_little_memory_also_while_the_table_grows() {
    let (coordinator, counts) = count_allocations(|| {
        let mut coordinator = support::empty(SHARDS);
        register(&mut coordinator, SHARDS);
        coordinator
    });
    assert_eq!(coordinator.total_shards(), SHARDS);
    let (held, peak) = (counts.live_bytes / SHARDS as i64, counts.peak_bytes / SHARDS as i64);
    assert!(held <= BYTES_PER_IDLE_SHARD_MAX, "{held} bytes for each idle shard");
    assert!(2 * peak <= 3 * held, "{peak} bytes at the peak, {held} afterwards");
}

#[test]
fn a_row_of_a_listing_allocates_what_it_shows() {
    const ROWS: usize = 10_000;
    // A row is a struct and three keys, copied once; sorting needs a place for each.
    const BYTES_PER_ROW_MAX: u64 = 512;
    let mut coordinator = idle(ROWS);
    let (mut rows, filter) = (Vec::with_capacity(ROWS), ShardFilter::default());
    let (listed, counts) = count_allocations(|| {
        coordinator.list_shards_into(at(2), TENANT, run_of(0), filter, &mut rows)
    });
    listed.unwrap();
    assert_eq!(rows.len(), ROWS);
    let per_row = counts.bytes / ROWS as u64;
    assert!(per_row <= BYTES_PER_ROW_MAX, "{per_row} bytes for each row");

    let (progress, counts) =
        count_allocations(|| coordinator.get_run_progress(at(2), TENANT, run_of(0)));
    assert_eq!(progress.unwrap().total, ROWS as u64);
    assert!(counts.bytes <= 4096, "progress copies at most one key: {} bytes", counts.bytes);
}
