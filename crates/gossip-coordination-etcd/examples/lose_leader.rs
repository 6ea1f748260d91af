//! How long writes stand still when a cluster of three loses its leader, in four ways.
//!
//! `cargo xtask etcd-faults` runs it after the campaign of workers.
//!
//! Each line: the way, how long until the first write succeeded, how many attempts failed and how
//! many of them left it open whether they had happened. The namespaces need root.
#![expect(clippy::print_stdout, reason = "what it prints is its result")]

use std::time::{Duration, Instant};

use gossip_coordination_etcd::proto::{PutRequest, Request, TxnRequest};
use gossip_coordination_etcd::test_support::EtcdCluster;
use gossip_coordination_etcd::{EtcdError, EtcdKv, GrpcClient};

/// How long one write waits for its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// Between attempts, so that refusals do not make a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// A cluster that needs longer has not recovered.
const GIVE_UP: Duration = Duration::from_secs(60);

/// What befalls the leader.
#[derive(Clone, Copy, Debug)]
enum Way {
    Killed,
    Stopped,
    ConnectionsCut,
    PacketsDropped,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for way in [Way::Killed, Way::Stopped, Way::ConnectionsCut, Way::PacketsDropped] {
        let cluster = match way {
            Way::PacketsDropped if !EtcdCluster::can_have_machines() => {
                println!("{way:?}: needs root and the program `ip`");
                continue;
            }
            Way::PacketsDropped => EtcdCluster::three_machines(),
            Way::Killed | Way::Stopped | Way::ConnectionsCut => EtcdCluster::three(),
        };
        lose_leader(way, cluster).await;
    }
}

async fn lose_leader(way: Way, mut cluster: EtcdCluster) {
    let mut config = cluster.client_config();
    config.request_timeout = REQUEST_TIMEOUT;
    let leader = cluster.leader(None).await;
    // The client begins at the leader, which is the worst place to begin.
    config.endpoints.rotate_left(leader);
    let client = GrpcClient::new(&config).expect("the endpoints are ours");
    write(&client).await.expect("a healthy cluster takes writes");
    match way {
        Way::Killed => cluster.member(leader).kill(),
        Way::Stopped => cluster.member(leader).pause(),
        Way::ConnectionsCut | Way::PacketsDropped => cluster.cut_off(leader),
    }
    let start = Instant::now();
    let (mut failed, mut unknown) = (0, 0);
    while let Err(error) = write(&client).await {
        failed += 1;
        unknown += u32::from(!error.is_certain());
        assert!(start.elapsed() < GIVE_UP, "{error}");
        tokio::time::sleep(PAUSE).await;
    }
    let millis = start.elapsed().as_millis();
    println!("{way:?}: writes again after {millis} ms; {failed} failed, {unknown} of them unknown");
}

async fn write(client: &GrpcClient) -> Result<(), EtcdError> {
    let put = PutRequest { key: b"k".to_vec(), ..PutRequest::default() };
    let steps = vec![Request::Put(put).into()];
    client.txn(TxnRequest { success: steps, ..TxnRequest::default() }).await.map(drop)
}
