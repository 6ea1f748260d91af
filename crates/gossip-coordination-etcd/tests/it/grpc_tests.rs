//! The client against real servers, a broken network, and servers that are not what they seem.

use std::time::{Duration, Instant};

use gossip_coordination_etcd::{
    Credentials, EtcdCause, EtcdError, EtcdKv, Fate, GrpcClient, GrpcConfig, SizeLimit,
};
use gossip_testkit::test_support::{Direction, EtcdCluster, EtcdServer, Proxy};

use crate::facts_tests::{get, put, steps};
use crate::fake_grpc::FakeGrpc;

/// How long a client of these tests waits for an answer that will not come.
const SHORT: Duration = Duration::from_millis(700);

/// How long a cluster may take to work again on a busy machine.
const RECOVERY: Duration = Duration::from_secs(60);

/// How often it is asked meanwhile.
const POLL: Duration = Duration::from_millis(20);

fn client(endpoints: &[String]) -> GrpcClient {
    GrpcClient::new(&GrpcConfig::new(endpoints.iter().cloned())).unwrap()
}

/// A client that does not wait long.
fn hasty(endpoints: &[String]) -> GrpcClient {
    let mut config = GrpcConfig::new(endpoints.iter().cloned());
    config.request_timeout = SHORT;
    GrpcClient::new(&config).unwrap()
}

/// Writes until it succeeds; a busy machine may keep a hasty client waiting.
async fn write_surely(client: &GrpcClient, key: &str) {
    let deadline = Instant::now() + RECOVERY;
    while let Err(error) = write(client, key, "").await {
        assert!(error.is_transient() && Instant::now() < deadline, "{error}");
        tokio::time::sleep(POLL).await;
    }
}

async fn write(client: &GrpcClient, key: &str, value: &str) -> Result<(), EtcdError> {
    client.txn(steps(vec![put(key, value)])).await.map(drop)
}

async fn holds(client: &GrpcClient, key: &str) -> bool {
    let deadline = Instant::now() + RECOVERY;
    loop {
        match client.range(get(key)).await {
            Ok(found) => return !found.kvs.is_empty(),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(POLL).await;
    }
}

fn unused_endpoint() -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port())
}

#[tokio::test]
async fn a_client_needs_endpoints_that_make_sense() {
    let tls = Some(gossip_coordination_etcd::TlsOptions::default());
    for (endpoints, tls) in [
        (vec![], None),
        (vec!["nonsense"], None),
        (vec!["http://host"], None),
        (vec!["ftp://host:1"], None),
        (vec!["https://host:1"], None),
        (vec!["http://host:1"], tls),
    ] {
        let config = GrpcConfig { tls, ..GrpcConfig::new(endpoints.clone()) };
        let error = GrpcClient::new(&config).unwrap_err();
        assert!(matches!(error.cause, EtcdCause::BadConfig(_)), "{endpoints:?}: {error}");
    }
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_that_is_not_there() {
    let error = write(&client(&[unused_endpoint()]), "k", "v").await.unwrap_err();
    assert_eq!(error.fate, Fate::NotSent);
    assert!(matches!(error.cause, EtcdCause::Unreachable { .. }), "{error}");
    assert!(error.is_transient());
}

#[tokio::test]
async fn another_member_is_asked_when_one_is_not_there() {
    let server = EtcdServer::single();
    let client = client(&[unused_endpoint(), unused_endpoint(), server.endpoint()]);
    write(&client, "k", "v").await.unwrap();
    assert!(holds(&client, "k").await);
}

#[tokio::test]
async fn a_network_that_swallows_everything_costs_the_time_to_connect() {
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    proxy.hold(Direction::ToTarget);
    let mut config = GrpcConfig::new([proxy.endpoint()]);
    config.connect_timeout = SHORT;
    let error = write(&GrpcClient::new(&config).unwrap(), "k", "v").await.unwrap_err();
    assert_eq!(error.fate, Fate::NotSent);
    assert!(matches!(error.cause, EtcdCause::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_the_write_is_there() {
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let far = client(&[proxy.endpoint()]);
    write_surely(&far, "warm").await;
    proxy.hold(Direction::FromTarget);
    let task = tokio::spawn(async move { write(&far, "k", "v").await });
    let near = client(&[server.endpoint()]);
    let deadline = Instant::now() + RECOVERY;
    while !holds(&near, "k").await {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(POLL).await;
    }
    proxy.cut();
    let error = task.await.unwrap().unwrap_err();
    assert_eq!(error.fate, Fate::Unknown);
    assert!(matches!(error.cause, EtcdCause::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_lost_request_is_unknown_too_and_the_write_is_not_there() {
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let client = hasty(&[proxy.endpoint()]);
    write_surely(&client, "warm").await;
    proxy.hold(Direction::ToTarget);
    let error = write(&client, "k", "v").await.unwrap_err();
    assert_eq!(error.fate, Fate::Unknown);
    // Cutting the connection discards the held bytes.
    proxy.cut();
    proxy.open();
    assert!(!holds(&client, "k").await);
}

#[tokio::test]
async fn a_server_killed_before_it_answered_leaves_the_outcome_unknown() {
    let mut server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let client = hasty(&[proxy.endpoint()]);
    write_surely(&client, "warm").await;
    proxy.hold(Direction::FromTarget);
    let sent = proxy.bytes_to_target();
    let task = tokio::spawn({
        let client = client.clone();
        async move { write(&client, "k", "v").await }
    });
    wait_until(|| proxy.bytes_to_target() > sent).await;
    server.kill();
    proxy.cut();
    let error = task.await.unwrap().unwrap_err();
    assert_eq!(error.fate, Fate::Unknown);
    assert!(error.is_transient(), "{error}");
    proxy.open();
    server.restart();
    // It holds the write or not; what matters is that it can be asked.
    holds(&client, "k").await;
    assert!(holds(&client, "warm").await);
}

async fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + RECOVERY;
    while !condition() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn a_stopped_server_is_a_timeout() {
    let server = EtcdServer::single();
    let client = hasty(&[server.endpoint()]);
    write_surely(&client, "warm").await;
    server.pause();
    let error = write(&client, "k", "v").await.unwrap_err();
    assert_eq!((error.fate, error.cause), (Fate::Unknown, EtcdCause::Timeout { millis: 700 }));
    server.resume();
    assert!(holds(&client, "warm").await);
}

#[tokio::test]
async fn a_server_that_speaks_http_1_is_named() {
    let server = EtcdServer::single();
    // The port for metrics of the right server: a likely mistake.
    let endpoint = format!("http://127.0.0.1:{}", server.metrics_port());
    let error = write(&client(&[endpoint]), "k", "v").await.unwrap_err();
    assert_eq!(error.fate, Fate::NotSent);
    assert!(matches!(error.cause, EtcdCause::WrongVersion { .. }), "{error:?}");
}

#[tokio::test]
async fn a_grpc_server_that_is_not_etcd_is_named() {
    let server = FakeGrpc::refusing(12, "unknown service etcdserverpb.Maintenance");
    let error = write(&client(&[server.endpoint()]), "k", "v").await.unwrap_err();
    assert_eq!(error.fate, Fate::NotSent);
    assert!(matches!(error.cause, EtcdCause::WrongVersion { .. }), "{error:?}");
}

/// A starting or overloaded etcd, or a proxy in front of it, can return an unknown error text.
#[tokio::test]
async fn an_unrecognised_first_answer_is_retried() {
    let server = FakeGrpc::refusing(2, "some trouble");
    let error = write(&client(&[server.endpoint()]), "k", "v").await.unwrap_err();
    assert_eq!(error.fate, Fate::NotSent);
    assert!(error.is_transient(), "{error}");
}

/// A refused password costs the server work and a log line, so all waiting callers share one reply.
#[tokio::test]
async fn a_token_that_is_refused_is_asked_for_once_for_all_who_wait() {
    const CALLERS: usize = 16;
    let text = "etcdserver: authentication failed, invalid user ID or password";
    let server = FakeGrpc::refusing_after("3.4.23", 3, text);
    let credentials = Credentials { user: "user".to_owned(), password: "old".to_owned() };
    let config = GrpcConfig::new([server.endpoint()]);
    let config = GrpcConfig { credentials: Some(credentials), ..config };
    let client = GrpcClient::new(&config).unwrap();
    let call = || {
        let client = client.clone();
        tokio::spawn(async move { write(&client, "k", "v").await })
    };
    let calls: Vec<_> = (0..CALLERS).map(|_| call()).collect();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!((error.fate, error.cause), (Fate::NotSent, EtcdCause::AuthRefused));
    }
    assert_eq!(server.asked(), 2, "for its version, and for the token");
}

#[tokio::test]
async fn an_etcd_that_is_too_old_is_named() {
    let server = FakeGrpc::with_version("3.2.9");
    let error = write(&client(&[server.endpoint()]), "k", "v").await.unwrap_err();
    assert_eq!(error.fate, Fate::NotSent);
    assert!(error.to_string().contains("found etcd 3.2"), "{error}");
}

/// Its version and cluster are unknown, so nothing may be written to it.
#[tokio::test]
async fn an_etcd_that_refuses_its_status_receives_no_request() {
    let server = FakeGrpc::refusing_first(3, "etcdserver: user name is empty", "3.4.23");
    let error = write(&client(&[server.endpoint()]), "k", "v").await.unwrap_err();
    assert_eq!((error.fate, error.cause), (Fate::NotSent, EtcdCause::AuthRefused));
    assert_eq!(server.asked(), 1, "for its status only");
}

#[tokio::test]
async fn an_etcd_that_states_its_version_after_a_login_is_checked_then() {
    let server = FakeGrpc::refusing_first(3, "etcdserver: user name is empty", "3.2.9");
    let credentials = Credentials { user: "user".to_owned(), password: "secret".to_owned() };
    let config = GrpcConfig::new([server.endpoint()]);
    let config = GrpcConfig { credentials: Some(credentials), ..config };
    let error = write(&GrpcClient::new(&config).unwrap(), "k", "v").await.unwrap_err();
    assert_eq!(error.fate, Fate::NotSent);
    assert!(error.to_string().contains("found etcd 3.2"), "{error}");
    assert_eq!(server.asked(), 3, "for its status, for a token, and for its status again");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_for_certain() {
    let server = EtcdServer::single();
    let client = client(&[server.endpoint()]);
    // Over the limit of the server, and over the limit of its transport.
    for length in [1_600_000, 4_000_000] {
        let error = write(&client, "k", &"x".repeat(length)).await.unwrap_err();
        let refused = (Fate::Refused, EtcdCause::TooLarge(SizeLimit::Bytes));
        assert_eq!((error.fate, error.cause), refused, "{length}");
    }
    assert!(!holds(&client, "k").await);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_taken() {
    let server = EtcdServer::single();
    let mut config = GrpcConfig::new([server.endpoint()]);
    config.max_answer_bytes = 1 << 20;
    let client = GrpcClient::new(&config).unwrap();
    let value = "x".repeat(600_000);
    for key in ["a/1", "a/2"] {
        write(&client, key, &value).await.unwrap();
    }
    let mut all = get("a/");
    all.range_end = b"a0".to_vec();
    let error = client.range(all).await.unwrap_err();
    assert_eq!(error.cause, EtcdCause::TooLarge(SizeLimit::Answer));
    write(&client, "k", "v").await.unwrap();
}

#[tokio::test]
async fn a_cluster_that_lost_its_leader_works_again() {
    let mut cluster = EtcdCluster::three();
    let client = hasty(&cluster.endpoints());
    write_surely(&client, "before").await;
    let leader = cluster.leader(None);
    cluster.member(leader).kill();
    write_surely(&client, "after").await;
    assert!(holds(&client, "before").await);
}

#[tokio::test]
async fn a_member_without_a_majority_refuses_or_leaves_it_open() {
    let mut cluster = EtcdCluster::three();
    let survivor = cluster.leader(None);
    let endpoint = cluster.member(survivor).endpoint();
    let mut config = GrpcConfig::new([endpoint]);
    config.request_timeout = Duration::from_secs(20);
    let client = GrpcClient::new(&config).unwrap();
    write(&client, "before", "").await.unwrap();
    for index in (0..cluster.len()).filter(|it| *it != survivor) {
        cluster.member(index).kill();
    }
    // It was proposed to a leader without followers, so its outcome is unknown.
    let error = write(&client, "lonely", "").await.unwrap_err();
    assert_eq!(error.fate, Fate::Unknown);
    assert!(matches!(error.cause, EtcdCause::ServerTimeout | EtcdCause::NoLeader), "{error}");
    // By now the leader has stepped down for lack of followers, and refuses at once.
    let error = write(&client, "later", "").await.unwrap_err();
    assert_eq!((error.fate, error.cause), (Fate::Refused, EtcdCause::NoLeader));
}

#[tokio::test]
async fn a_leader_that_is_cut_off_is_replaced() {
    let cluster = EtcdCluster::three();
    let client = hasty(&cluster.endpoints());
    write_surely(&client, "before").await;
    let old = cluster.leader(None);
    cluster.cut_off(old);
    let new = cluster.leader(Some(old));
    assert_ne!(old, new);
    write_surely(&client, "after").await;
    cluster.heal();
    cluster.leader(None);
}

/// Two independent servers are not a cluster: a write acknowledged by one would be missing on the
/// other.
#[tokio::test]
async fn a_server_of_another_cluster_is_never_asked() {
    let (mut one, other) = (EtcdServer::single(), EtcdServer::single());
    let client = client(&[one.endpoint(), other.endpoint()]);
    write_surely(&client, "k").await;
    one.kill();
    // The first may find the old connection.
    let errors = [write(&client, "k", "").await, write(&client, "k", "").await];
    let error = errors.into_iter().last().unwrap().unwrap_err();
    assert_eq!(error.fate, Fate::NotSent);
    let is_named = |cause: &EtcdCause| matches!(cause, EtcdCause::OtherCluster { .. });
    assert!(is_named(&error.cause) || error.is_transient(), "{error}");
    let alone = hasty(&[other.endpoint()]);
    assert!(!holds(&alone, "k").await, "it received the request");
    one.restart();
    write_surely(&client, "k").await;
    let error = client.discover_members().await.unwrap_err();
    assert!(is_named(&error.cause), "{error}");
}

/// A cluster that was restored from a backup has the address of the old one and another id. What we
/// know of the old one does not hold there, so nothing may be written to it, not even by a process
/// that did nothing meanwhile.
#[tokio::test]
async fn a_cluster_that_took_the_place_of_ours_is_never_written_to() {
    let (one, other) = (EtcdServer::single(), EtcdServer::single());
    let proxy = Proxy::before(one.client_port());
    let client = client(&[proxy.endpoint()]);
    write_surely(&client, "k").await;
    proxy.redirect(other.client_port());
    proxy.reset();
    let deadline = Instant::now() + RECOVERY;
    // The first may find the old connection.
    let refused = loop {
        let error = write(&client, "k", "").await.expect_err("it is another cluster");
        if !error.is_transient() {
            break error;
        }
        assert!(Instant::now() < deadline, "{error}");
    };
    assert_eq!(refused.fate, Fate::NotSent);
    assert!(matches!(refused.cause, EtcdCause::OtherCluster { .. }), "{refused}");
    assert!(!holds(&hasty(&[other.endpoint()]), "k").await, "it received the request");
}

/// A server closes idle connections. No request fails because of that.
#[tokio::test]
async fn a_connection_that_broke_while_idle_is_replaced_unnoticed() {
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let client = client(&[proxy.endpoint()]);
    write_surely(&client, "k").await;
    proxy.reset();
    // Long enough for the news to arrive.
    tokio::time::sleep(SHORT).await;
    write(&client, "k", "v").await.unwrap();
}

/// However long other requests may take: the lease of a process must not run out meanwhile.
#[tokio::test]
async fn a_lease_is_kept_although_the_first_member_is_stopped() {
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let mut config = GrpcConfig::new([proxy.endpoint(), server.endpoint()]);
    config.request_timeout = Duration::from_secs(300);
    let client = GrpcClient::new(&config).unwrap();
    let lease = client.lease_grant(60).await.unwrap();
    proxy.hold(Direction::ToTarget);
    let kept = tokio::time::timeout(RECOVERY, client.lease_keep_alive(lease.id)).await;
    assert_eq!(kept.expect("the next member is asked").unwrap(), Some(60));
}

#[tokio::test]
async fn leases_are_kept_and_end() {
    let server = EtcdServer::single();
    let client = client(&[server.endpoint()]);
    let lease = client.lease_grant(10).await.unwrap();
    assert_eq!(client.lease_keep_alive(lease.id).await.unwrap(), Some(10));
    let left = client.lease_time_to_live(lease.id).await.unwrap().unwrap();
    assert!(left.granted_seconds == 10 && left.remaining_seconds <= 10);
    client.lease_revoke(lease.id).await.unwrap();
    assert_eq!(client.lease_keep_alive(lease.id).await.unwrap(), None);
    assert_eq!(client.lease_time_to_live(lease.id).await.unwrap(), None);
}
