//! Workers on three real servers that lose their leader, in short; the long form is
//! `cargo xtask etcd-faults`.

use crate::test_support::{Campaign, EtcdCluster, Loss};

const WORKERS: usize = 4;
const SHARDS: u32 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stale_is_accepted_and_nothing_lost_when_the_leader_is() {
    let mut campaign = Campaign::start(EtcdCluster::three(), WORKERS, SHARDS).await;
    for loss in Loss::ALL {
        let resumed = campaign.lose_leader(loss).await;
        println!("{loss:?}: work resumes after {:?}, all workers {:?}", resumed.first, resumed.all);
    }
    let verdict = campaign.finish().await;
    println!("{verdict:?}");
    assert!(verdict.acknowledged > 0 && verdict.granted > 0);
}
