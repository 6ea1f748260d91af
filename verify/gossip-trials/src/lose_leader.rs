//! How long writes stand still when a cluster of three loses its leader, in five ways.
//!
//! `cargo xtask etcd-faults` runs it after the campaign of workers.
//!
//! Each row: the way, how long until the first write succeeded, how many attempts failed and how
//! many of them left it open whether they had happened. Where packets cannot be dropped, it says so
//! instead of a row.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use gossip_coordination_etcd::proto::{PutRequest, Request, TxnRequest};
use gossip_coordination_etcd::{EtcdError, EtcdKv, GrpcClient, GrpcConfig};
use gossip_testkit::test_support::EtcdCluster;
use gossip_testkit_etcd::Loss;
use tokio::runtime::Builder;

use crate::Outcome;

/// How long one write waits for its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// Between attempts, so that refusals do not make a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// A cluster that needs longer has not recovered.
const GIVE_UP: Duration = Duration::from_secs(60);

/// The program `lose-leader`.
pub fn main() -> ExitCode {
    crate::run_program(|_| Builder::new_current_thread().enable_all().build()?.block_on(run()))
}

async fn run() -> Outcome<String> {
    let mut table = "## writes\n\
         | the leader is | a bare write that began there succeeds after | attempts that failed | \
         of unknown outcome |\n|---|---:|---:|---:|"
        .to_owned();
    let (possible, impossible): (Vec<Loss>, Vec<Loss>) = Loss::ALL
        .into_iter()
        .partition(|loss| !loss.needs_machines() || EtcdCluster::can_have_machines());
    for loss in possible {
        table.push('\n');
        table.push_str(&lose_leader(loss).await);
    }
    if !impossible.is_empty() {
        table.push_str(&format!("\n\nPackets were not dropped: {}.", EtcdCluster::NO_MACHINES));
    }
    Ok(table)
}

/// The row of one way.
async fn lose_leader(loss: Loss) -> String {
    let mut cluster = loss.cluster();
    let mut config = GrpcConfig::new(cluster.endpoints());
    config.request_timeout = REQUEST_TIMEOUT;
    let leader = cluster.leader(None);
    // The client begins at the leader, which is the worst place to begin.
    config.endpoints.rotate_left(leader);
    let client = GrpcClient::new(&config).expect("the endpoints are ours");
    write(&client).await.expect("a healthy cluster takes writes");
    let start = Instant::now();
    loss.befall(&mut cluster, leader);
    let (mut failed, mut unknown) = (0, 0);
    while let Err(error) = write(&client).await {
        failed += 1;
        unknown += u32::from(!error.is_certain());
        assert!(start.elapsed() < GIVE_UP, "{error}");
        tokio::time::sleep(PAUSE).await;
    }
    let (what, seconds) = (loss.in_words(), start.elapsed().as_secs_f32());
    format!("| {what} | {seconds:.1} s | {failed} | {unknown} |")
}

async fn write(client: &GrpcClient) -> Result<(), EtcdError> {
    let put = PutRequest { key: b"k".to_vec(), ..PutRequest::default() };
    let steps = vec![Request::Put(put).into()];
    client.txn(TxnRequest { success: steps, ..TxnRequest::default() }).await.map(drop)
}
