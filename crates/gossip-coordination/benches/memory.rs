//! The memory of a coordinator: bytes for each shard, idle and with a full operation log.
//!
//! Counts the bytes asked of the allocator and not given back, the slab included, which is sized
//! for exactly these shards. Every shard has 152 bytes of keys, metadata and cursor.
//!
//! `cargo bench -p gossip-coordination --bench memory`
#![expect(clippy::disallowed_methods, reason = "a benchmark looks at its arguments")]
#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(missing_docs, unreachable_pub, reason = "a benchmark has no users")]

mod support;

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::OpId;
use gossip_coordination::{AcquireScratch, CoordinationBackend, InMemoryCoordinator, OP_LOG_CAP};
use gossip_testkit::{CountingAllocator, count_allocations};

use self::support::{DATA_LEN, TENANT, acquire, at, cursor_key, register};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("bytes for each shard, {DATA_LEN} of them its own");
    for shards in [1_000_000, 10_000_000] {
        let (coordinator, counts) = count_allocations(|| {
            let mut coordinator = support::empty(shards);
            register(&mut coordinator, shards);
            coordinator
        });
        let (held, peak) = (per(counts.live_bytes, shards), per(counts.peak_bytes, shards));
        println!("{shards} idle: {held:.1}, at the peak of growing {peak:.1}");
        if shards == 1_000_000 {
            full_logs(coordinator, shards, held);
        }
    }
}

fn full_logs(mut coordinator: InMemoryCoordinator, shards: usize, idle: f64) {
    let mut scratch = Box::new(AcquireScratch::new());
    let ((), counts) = count_allocations(|| {
        for index in 0..shards {
            let lease = acquire(&mut coordinator, 2, index, &mut scratch);
            for step in 1..=OP_LOG_CAP as u64 {
                let key = cursor_key(index, step);
                let (cursor, op_id) = (CursorUpdate::with_last_key(&key), OpId::from_raw(step));
                let done = coordinator.checkpoint(at(2 + step), TENANT, &lease, cursor, op_id);
                assert!(done.expect("accepted").is_executed());
            }
        }
    });
    println!("{shards} leased with a full log: {:.1}", idle + per(counts.live_bytes, shards));
}

fn per(bytes: i64, shards: usize) -> f64 {
    bytes as f64 / shards as f64
}
