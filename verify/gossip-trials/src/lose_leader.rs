//! Measures the write outage of a cluster of three after five kinds of leader loss.
//!
//! `cargo xtask etcd-faults` runs it after the campaign with workers.
//!
//! Each row has the kind of loss, the time until the first successful write, the number of failed
//! attempts, and how many of those had an unknown outcome. Where packets cannot be dropped, a note
//! replaces the row.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use gossip_coordination_etcd::proto::{PutRequest, Request, TxnRequest};
use gossip_coordination_etcd::{EtcdError, EtcdKv, GrpcClient, GrpcConfig};
use gossip_testkit::test_support::EtcdCluster;
use gossip_testkit_etcd::Loss;
use tokio::runtime::Builder;

use crate::Outcome;

/// Timeout of one write.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// Delay between attempts, so that refusals do not cause a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// Maximum recovery time.
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

/// Returns the row of one kind of loss.
async fn lose_leader(loss: Loss) -> String {
    let mut cluster = loss.cluster();
    let mut config = GrpcConfig::new(cluster.endpoints());
    config.request_timeout = REQUEST_TIMEOUT;
    let leader = cluster.leader(None);
    // The client starts with the leader, which is the worst case.
    config.endpoints.rotate_left(leader);
    let client = GrpcClient::new(&config).expect("the endpoints are valid");
    write(&client).await.expect("a healthy cluster accepts writes");
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
