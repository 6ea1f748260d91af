//! Workers on three real servers that lose their leader, in short; the long form is
//! `cargo xtask etcd-faults`.

use std::io::Write;

use gossip_testkit::test_support::EtcdCluster;
use gossip_testkit_etcd::{Campaign, Loss};

/// Set in continuous integration: a test that cannot run there fails instead of being skipped.
const CHECKS: &str = "CI";

const WORKERS: usize = 4;
const SHARDS: u32 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stale_is_accepted_and_nothing_lost_when_the_leader_is() {
    let losses = Loss::ALL.into_iter().filter(|loss| !loss.needs_machines());
    lose_leader(EtcdCluster::three(), losses).await;
}

/// Packets that are dropped leave connections that hang, where closed ones fail at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stale_is_accepted_and_nothing_lost_when_packets_are() {
    if !EtcdCluster::can_have_machines() {
        let why = EtcdCluster::NO_MACHINES;
        assert!(std::env::var_os(CHECKS).is_none(), "packets were not dropped: {why}");
        // Not by `println!`, which the harness hides when a test passes.
        return writeln!(std::io::stderr(), "NOT RUN: packets were not dropped: {why}").unwrap();
    }
    lose_leader(EtcdCluster::three_machines(), [Loss::Unplugged]).await;
}

async fn lose_leader(cluster: EtcdCluster, losses: impl IntoIterator<Item = Loss>) {
    let mut campaign = Campaign::start(cluster, WORKERS, SHARDS).await;
    for loss in losses {
        let resumed = campaign.lose_leader(loss).await;
        println!("{loss:?}: work resumes after {:?}, all workers {:?}", resumed.first, resumed.all);
    }
    let verdict = campaign.finish().await;
    println!("{verdict:?}");
    assert!(verdict.acknowledged > 0 && verdict.granted > 0);
}
