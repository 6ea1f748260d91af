//! Claims in small and large runs, listings, renewals of many shards: round trips and bytes.

use std::time::Instant;

use gossip_contracts::identity::{RunId, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireScratch, AsyncCoordinationBackend, AsyncRunManagement, AsyncShardClaiming, ShardFilter,
    ShardStatus,
};
use gossip_coordination_etcd::GrpcConfig;
use gossip_testkit::test_support::EtcdServer;

use crate::ours::{Coordinator, Holder, Process, TENANT, acquire, at, op, register, split};
use crate::process;
use crate::rounds::{Caller, median, millis};

const SMALL: RunId = RunId::from_raw(100);
const LARGE: RunId = RunId::from_raw(50_000);
/// Roots of the large run.
const ROOTS: usize = 10_000;
/// Roots that are split, each into as many as one transaction publishes on a default server.
const SPLIT: u64 = 1_026;
const CHILDREN: usize = 40;
/// Claims in each run.
const CLAIMS: usize = 301;
/// Shards that one worker renews.
const RENEWED: usize = 1_000;
/// Checkpoints whose bytes are counted: more than a log holds, so that it is full.
const CHECKPOINTS: u64 = 64;

/// Time and round trips of claims with 100 and with 50,000 shards, and a listing of the latter.
pub async fn claims() {
    let server = EtcdServer::single();
    let mut process = process(&GrpcConfig::new([server.endpoint()]), true);
    let mut admin = process.handle();
    register(&mut admin, SMALL, 100).await;
    register(&mut admin, LARGE, ROOTS).await;
    for shard in 0..SPLIT {
        split(&mut admin, LARGE, shard, CHILDREN).await;
    }
    let mut rows = Vec::new();
    let begin = Instant::now();
    let listed = admin.list_shards_into(at(20), TENANT, LARGE, ShardFilter::all(), &mut rows);
    listed.await.expect("the run is listed");
    let active = rows.iter().filter(|row| row.status == ShardStatus::Active).count();
    println!(
        "\nlisting of {} shards, {active} of them active: {:.0} ms",
        rows.len(),
        millis(&begin.elapsed())
    );
    compare_claims(&mut process).await;
}

async fn compare_claims(process: &mut Process) {
    let (mut small, mut large) = (Claimer::new(process), Claimer::new(process));
    for _ in 0..CLAIMS {
        small.claim(SMALL).await;
        large.claim(LARGE).await;
    }
    println!("\n| shards | p50 ms of a claim | p90 | the first | round trips: median | most |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for (shards, claimer) in [(100, &small), (50_000, &large)] {
        let mut times = claimer.times.clone();
        times.sort_unstable_by(f64::total_cmp);
        println!(
            "| {shards} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} |",
            median(times.clone()),
            times[times.len() * 9 / 10],
            claimer.times[0],
            median(claimer.trips.clone()),
            claimer.trips.iter().copied().fold(0.0, f64::max),
        );
    }
    println!("\np50 at 50,000 ÷ p50 at 100: **{:.2}**", median(large.times) / median(small.times));
}

/// A worker that claims a shard and gives it back, so that the run stays as large as it is.
struct Claimer {
    coordinator: Coordinator,
    made: u64,
    /// Milliseconds.
    times: Vec<f64>,
    trips: Vec<f64>,
}

impl Claimer {
    fn new(process: &mut Process) -> Self {
        Self { coordinator: process.handle(), made: 0, times: Vec::new(), trips: Vec::new() }
    }

    async fn claim(&mut self, run: RunId) {
        self.made += 1;
        let (now, mut scratch) = (at(100 + self.made), AcquireScratch::new());
        self.coordinator.store().kv().take();
        let begin = Instant::now();
        let worker = WorkerId::from_raw(9);
        let claim = self.coordinator.claim_next_available(now, TENANT, run, worker, &mut scratch);
        let lease = claim.await.expect("most shards are free").lease;
        self.times.push(millis(&begin.elapsed()));
        self.trips.push(self.coordinator.store().kv().take().requests as f64);
        let back = self.coordinator.release(now, TENANT, &lease, ReleaseMode::Clean, op(self.made));
        back.await.expect("the lease is good");
    }
}

/// Transactions and bytes of renewing many shards at once, and bytes of one checkpoint.
pub async fn renewals() {
    let server = EtcdServer::single();
    let mut process = process(&GrpcConfig::new([server.endpoint()]), true);
    let mut worker = process.handle();
    // One more, to be checkpointed.
    register(&mut worker, SMALL, RENEWED + 1).await;
    let mut leases = Vec::new();
    for shard in 0..RENEWED as u64 {
        leases.push(acquire(&mut worker, SMALL, shard).await);
    }
    // As in the product, a different handle of the process renews than the one that acquired.
    let mut renewer = process.handle();
    renewer.store().kv().take();
    let begin = Instant::now();
    let mut renewed = Vec::new();
    renewer.renew_many(at(20), TENANT, &leases, &mut renewed).await;
    assert!(renewed.iter().all(Result::is_ok), "every lease is good");
    let (time, sent) = (millis(&begin.elapsed()), renewer.store().kv().take());
    println!(
        "\nrenewing {} shards of one worker: {} transactions, {} other requests, {} bytes of keys \
         and values per shard, {time:.0} ms",
        leases.len(),
        sent.transactions,
        sent.requests - sent.transactions,
        sent.bytes / leases.len() as u64,
    );
    let kv = worker.store().kv().clone();
    let mut holder = Holder::new(worker, SMALL, RENEWED as u64).await;
    for _ in 0..CHECKPOINTS {
        kv.take();
        holder.once().await;
    }
    let sent = kv.take();
    println!(
        "a checkpoint with keys of 64 bytes and a full log: {} round trips, {} bytes of keys and \
         values",
        sent.requests, sent.bytes
    );
}
