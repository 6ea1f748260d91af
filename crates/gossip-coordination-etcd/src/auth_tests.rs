//! Users, passwords, tokens and permissions of a real server.

use gossip_testkit::test_support::EtcdServer;

use crate::node::Method;
use crate::test_fixtures::{get, put, steps};
use crate::{Credentials, EtcdCause, EtcdKv, Fate, GrpcClient, GrpcConfig, KeySpan};

/// Names and passwords: what these requests have in common.
#[derive(Clone, PartialEq, prost::Message)]
struct Names {
    #[prost(string, tag = "1")]
    first: String,
    #[prost(string, tag = "2")]
    second: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct GrantRequest {
    #[prost(string, tag = "1")]
    role: String,
    #[prost(message, optional, tag = "2")]
    permission: Option<Permission>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Permission {
    /// 2 is to read and to write.
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    range_end: Vec<u8>,
}

/// The answers tell nothing that we need.
#[derive(Clone, PartialEq, prost::Message)]
struct Done {}

/// Asks for what needs two words, as a name and a password.
pub(crate) async fn ask(client: &GrpcClient, path: &'static str, first: &str, second: &str) {
    let method = Method::write("auth", path);
    let names = Names { first: first.to_owned(), second: second.to_owned() };
    let _: Done = client.call(&method, &names).await.unwrap();
}

/// Only `root` may do everything; `worker` may use the keys of one span.
pub(crate) async fn enable_auth(client: &GrpcClient, span: KeySpan) {
    for (user, password) in [("root", "root-secret"), ("worker", "worker-secret")] {
        ask(client, "/etcdserverpb.Auth/UserAdd", user, password).await;
        ask(client, "/etcdserverpb.Auth/RoleAdd", user, "").await;
        ask(client, "/etcdserverpb.Auth/UserGrantRole", user, user).await;
    }
    let permission = Permission { kind: 2, key: span.start, range_end: span.end };
    let grant = GrantRequest { role: "worker".to_owned(), permission: Some(permission) };
    let path = "/etcdserverpb.Auth/RoleGrantPermission";
    let method = Method::write("auth", path);
    let _: Done = client.call(&method, &grant).await.unwrap();
    ask(client, "/etcdserverpb.Auth/AuthEnable", "", "").await;
}

pub(crate) fn client(server: &EtcdServer, login: Option<(&str, &str)>) -> GrpcClient {
    let mut config = GrpcConfig::new([server.endpoint()]);
    config.credentials = login.map(|(user, password)| Credentials {
        user: user.to_owned(),
        password: password.to_owned(),
    });
    GrpcClient::new(&config).unwrap()
}

async fn outcome(client: &GrpcClient, key: &str) -> Result<(), (Fate, EtcdCause)> {
    let result = client.txn(steps(vec![put(key, "v")])).await;
    result.map(drop).map_err(|error| (error.fate, error.cause))
}

#[tokio::test]
async fn who_we_are_is_checked_and_said_without_secrets() {
    let mut server = EtcdServer::single();
    // A password does no harm on a server without authentication.
    let worker = client(&server, Some(("worker", "worker-secret")));
    assert_eq!(outcome(&worker, "w/early").await, Ok(()));
    let span = KeySpan { start: b"w/".to_vec(), end: b"w0".to_vec() };
    enable_auth(&client(&server, None), span).await;
    // Now the server requires it, and the same client sends it.
    assert_eq!(outcome(&worker, "w/k").await, Ok(()));
    let refused = Err((Fate::Refused, EtcdCause::AuthRefused));
    assert_eq!(outcome(&client(&server, None), "w/k").await, refused);
    let wrong = client(&server, Some(("worker", "wrong-secret")));
    assert_eq!(outcome(&wrong, "w/k").await, Err((Fate::NotSent, EtcdCause::AuthRefused)));
    let denied = Err((Fate::Refused, EtcdCause::PermissionDenied));
    assert_eq!(outcome(&worker, "other/k").await, denied);
    let error = worker.range(get("other/k")).await.unwrap_err();
    assert_eq!(error.cause, EtcdCause::PermissionDenied);
    // One step that is not permitted, and no step is done.
    let both = steps(vec![put("w/both", "v"), put("other/both", "v")]);
    assert!(worker.txn(both).await.unwrap_err().is_certain());
    assert!(worker.range(get("w/both")).await.unwrap().kvs.is_empty());
    // A server that starts again has forgotten every token.
    server.restart();
    // The first read may still find the old connection.
    let _ = worker.range(get("w/k")).await;
    assert_eq!(outcome(&worker, "w/k").await, Ok(()));
    let lease = worker.lease_grant(60).await.unwrap();
    assert_eq!(worker.lease_keep_alive(lease.id).await.unwrap(), Some(60));
    let shown = format!("{worker:?} {:?}", GrpcConfig::new([server.endpoint()]).credentials);
    assert!(!shown.contains("secret"), "{shown}");
}
