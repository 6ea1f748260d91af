//! A campaign: workers on three real servers lose their leader, again and again.
//!
//! `cargo run --release -p gossip-coordination-etcd --features test-support --example faults -- 10`
//!
//! The number is how often the leader is lost in each way. Every line is a loss: how it happened,
//! how long until the first worker and until every worker worked again. A stale write that is
//! accepted, or acknowledged progress that is lost, ends the campaign with a panic.
#![expect(clippy::print_stdout, reason = "what it prints is its result")]

use gossip_coordination_etcd::test_support::{Campaign, EtcdCluster, Loss};

const WORKERS: usize = 8;
const SHARDS: u32 = 32;

#[tokio::main]
async fn main() {
    #[expect(clippy::disallowed_methods, reason = "a program of its own")]
    let rounds = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    for loss in Loss::ALL {
        let mut campaign = Campaign::start(EtcdCluster::three(), WORKERS, SHARDS).await;
        for _ in 0..rounds {
            let resumed = campaign.lose_leader(loss).await;
            let (first, all) = (resumed.first.as_millis(), resumed.all.as_millis());
            println!("{loss:?}: first {first} ms, all {all} ms");
        }
        println!("{:?}", campaign.finish().await);
    }
}
