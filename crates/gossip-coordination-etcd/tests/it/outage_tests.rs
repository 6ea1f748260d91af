//! A network that swallows everything for longer than a connection is believed.

use std::time::{Duration, Instant};

use gossip_contracts::identity::{RunId, ShardId, ShardKey, TenantId};
use gossip_coordination::InfraError;
use gossip_coordination::store::{AsyncStore, Key, Read};
use gossip_coordination_etcd::{
    DEFAULT_KEEP_ALIVE_INTERVAL, DEFAULT_KEEP_ALIVE_TIMEOUT, DEFAULT_REQUEST_TIMEOUT, EtcdCause,
    EtcdKv, EtcdStore, Fate, GrpcClient, GrpcConfig,
};
use gossip_testkit::test_support::{Direction, EtcdServer, Proxy};

use crate::facts_tests::{get, put, steps};
use crate::fake_grpc::FakeGrpc;
use crate::real_servers;

/// How much shorter the times of these tests are than the usual ones.
const HASTE: u32 = 10;

/// The outage, in times that a dead connection is believed: so that requests are in flight when it
/// is given up, on the old connection and after it.
const OUTAGE_IN_CONNECTIONS: u32 = 2;

/// How long a server may take to answer again on a busy machine.
const RECOVERY: Duration = Duration::from_secs(60);

/// How long one waits before it is asked again.
const POLL: Duration = Duration::from_millis(20);

// The order of the usual times, which those of these tests keep: a request gives up before its
// connection does, so that a second one is in flight when that happens.
const _: () = {
    assert!(DEFAULT_REQUEST_TIMEOUT.as_millis() < DEFAULT_KEEP_ALIVE_INTERVAL.as_millis());
    assert!(DEFAULT_KEEP_ALIVE_TIMEOUT.as_millis() < DEFAULT_REQUEST_TIMEOUT.as_millis());
};

/// The usual settings for `endpoint`, with shorter times in the same order.
fn hasty(endpoint: String) -> GrpcConfig {
    let usual = GrpcConfig::new([endpoint]);
    GrpcConfig {
        connect_timeout: usual.connect_timeout / HASTE,
        request_timeout: usual.request_timeout / HASTE,
        keep_alive_interval: usual.keep_alive_interval / HASTE,
        keep_alive_timeout: usual.keep_alive_timeout / HASTE,
        ..usual
    }
}

async fn read(store: &mut EtcdStore<GrpcClient>) -> Result<(), InfraError> {
    let shard = ShardKey::new(RunId::from_raw(1), ShardId::from_raw(1));
    let key = Key::ShardHot { tenant: TenantId::from_bytes([7; 32]), shard };
    store.read(vec![Read::Get(key)]).await.map(drop)
}

/// Reads until it is answered. Whatever comes before must be worth another try.
async fn read_surely(store: &mut EtcdStore<GrpcClient>) {
    let deadline = Instant::now() + RECOVERY;
    while let Err(error) = read(store).await {
        assert!(error.is_retryable() && Instant::now() < deadline, "{error}");
        tokio::time::sleep(POLL).await;
    }
}

/// A worker gives up at once on an error that does not pass, and waits out one that does. So an
/// outage must never look as if the server were no etcd.
#[tokio::test]
async fn an_outage_of_the_network_is_worth_another_try_however_long_it_is() {
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let grpc = hasty(proxy.endpoint());
    let config = real_servers::config([proxy.endpoint().trim_start_matches("http://")]);
    let mut store = EtcdStore::start(GrpcClient::new(&grpc).unwrap(), &config).unwrap();
    read_surely(&mut store).await;
    proxy.hold(Direction::ToTarget);
    proxy.hold(Direction::FromTarget);
    let believed = grpc.keep_alive_interval + grpc.keep_alive_timeout;
    let over = Instant::now() + believed * OUTAGE_IN_CONNECTIONS;
    while Instant::now() < over {
        let error = read(&mut store).await.expect_err("nothing comes through");
        assert!(error.is_retryable(), "{error}");
    }
    // Resetting the connections discards the held bytes.
    proxy.reset();
    proxy.open();
    read_surely(&mut store).await;
}

/// A proxy or a balancer between may end a stream or a connection at any time.
#[tokio::test]
async fn a_stream_that_is_reset_is_no_sign_of_another_protocol() {
    let server = FakeGrpc::resetting("3.4.23");
    let client = GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap();
    let error = client.txn(steps(vec![put("k", "v")])).await.unwrap_err();
    assert_eq!(error.fate, Fate::Unknown);
    assert!(matches!(error.cause, EtcdCause::Unreachable { .. }), "{error}");
    let error = client.range(get("k")).await.unwrap_err();
    assert!(matches!(error.cause, EtcdCause::Unreachable { .. }), "{error}");
}
