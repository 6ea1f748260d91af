//! What the store layer itself costs: checkpoints, renewals and batches of renewals on a store that
//! says yes to everything and keeps nothing, so that nothing of an engine is measured.
//!
//! `cargo bench -p gossip-coordination --bench store`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(missing_docs, reason = "a benchmark has no users")]

use std::time::Instant;

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
use gossip_testkit::{CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);
const SHARDS: u64 = 1_000;
const ROUNDS: u64 = 51;

/// Stores the initial state, and acknowledges later commits without storing them.
struct Yes {
    store: MapStore,
    revision: u64,
    keeps: bool,
}

impl Store for Yes {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.store.read(reads)
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        if self.keeps {
            return self.store.commit(txns);
        }
        self.revision += 1;
        let revision = self.revision;
        txns.iter().map(|_| Ok(CommitOutcome::Applied { revision })).collect()
    }

    fn wait(&mut self, _: u64) {}

    fn limits(&self) -> StoreLimits {
        StoreLimits::GENEROUS
    }
}

fn set_up() -> (StoreCoordinator<Yes>, Vec<Lease>) {
    let store = Yes { store: MapStore::new(), revision: 1 << 40, keeps: true };
    let mut coordinator = StoreCoordinator::new(store, StoreConfig::new(1));
    let bounds: Vec<_> = (0..=SHARDS).map(|bound| bound_of(bound, 0)).collect();
    let roots: Vec<_> = (0..SHARDS)
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
    let leases = (0..SHARDS).map(&mut acquire).collect();
    coordinator.store_mut().keeps = false;
    (coordinator, leases)
}

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// A key of 64 bytes in the range of `shard`.
fn bound_of(shard: u64, position: u64) -> [u8; 64] {
    let mut key = [1; 64];
    key[..8].copy_from_slice(&shard.to_be_bytes());
    key[56..].copy_from_slice(&position.to_be_bytes());
    key
}

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
    let (mut coordinator, leases) = set_up();
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
