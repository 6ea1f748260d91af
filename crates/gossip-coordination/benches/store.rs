//! What the store layer itself costs: checkpoints, renewals and batches of renewals on a store that
//! says yes to everything and keeps nothing, so that nothing of an engine is measured.
//!
//! `cargo bench -p gossip-coordination --bench store`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(missing_docs, reason = "a benchmark has no users")]

#[path = "support/acknowledging.rs"]
mod acknowledging;

use std::time::Instant;

use acknowledging::{TENANT, at, bound_of, set_up};
use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::OpId;
use gossip_coordination::CoordinationBackend;
use gossip_testkit::{CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SHARDS: u64 = 1_000;
const ROUNDS: u64 = 51;

fn report(what: &str, mut nanos: Vec<f64>, allocations: usize) {
    nanos.sort_by(f64::total_cmp);
    let median = nanos[nanos.len() / 2];
    println!("{what}: {median:.0} ns, {allocations} allocations");
}

/// Runs `round` several times; each does something with every shard.
fn measure(what: &str, mut round: impl FnMut(u64)) {
    let mut nanos = Vec::new();
    let mut per_shard = 0;
    for number in 1..=ROUNDS {
        let begun = Instant::now();
        let ((), counts) = count_allocations(|| round(number));
        nanos.push(begun.elapsed().as_nanos() as f64 / SHARDS as f64);
        per_shard = usize::try_from(counts.allocations).unwrap_or(usize::MAX) / SHARDS as usize;
    }
    report(what, nanos, per_shard);
}

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let (mut coordinator, leases) = set_up(SHARDS);
    measure("checkpoint", |round| {
        for (shard, lease) in (0..).zip(&leases) {
            let (key, op_id) = (bound_of(shard, round), OpId::from_raw(round));
            let cursor = CursorUpdate::new(&key, b"token");
            coordinator.checkpoint(at(2 + round), TENANT, lease, cursor, op_id).expect("progress");
        }
    });
    measure("renew_many, per lease", |round| {
        let mut results = Vec::new();
        coordinator.renew_many(at(100 + round), TENANT, &leases, &mut results);
        assert!(results.iter().all(Result::is_ok));
    });
}
