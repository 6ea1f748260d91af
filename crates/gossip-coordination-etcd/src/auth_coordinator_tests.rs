//! The coordinator on a server that asks who we are: tokens that run out, permissions and passwords
//! that are taken away while a worker is at work.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::{
    AcquireScratch, AsyncCoordinationBackend, AsyncRunManagement, AsyncShardClaiming,
    CheckpointError, InfraError, Lease, RunConfig, ShardFilter, StoreRefusal,
};
use gossip_testkit::test_support::{EtcdServer, ServerOptions, TestDirectory};

use crate::auth_tests::{ask, client, enable_auth};
use crate::{AsyncEtcdCoordinator, ConnectError, EtcdCause, EtcdConfig, GrpcClient, Namespace};

const TENANT: TenantId = TenantId::from_bytes([5; 32]);
const RUN: RunId = RunId::from_raw(6);
const PATH: &str = "team/prod";

/// Tokens that a worker must have used up before a test believes that they run out.
const TOKENS: u64 = 3;
/// Tokens live for a second, so this many take some.
const PATIENCE: Duration = Duration::from_secs(60);

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// A server with authentication whose tokens live for a second, and what it needs to exist.
struct Guarded {
    server: EtcdServer,
    root: GrpcClient,
    /// Holds the key that tokens are signed with.
    _directory: TestDirectory,
}

impl Guarded {
    async fn start() -> Self {
        let directory = TestDirectory::new("etcd-auth");
        let key = directory.path().join("token.key");
        std::fs::write(&key, "signs tokens of a test").unwrap();
        let flag = format!("--auth-token=jwt,sign-method=HS256,priv-key={},ttl=1s", key.display());
        let server = EtcdServer::with_options(&ServerOptions::with_flags(&[&flag]));
        enable_auth(&client(&server, None), Namespace::new(PATH).unwrap().everything()).await;
        let root = client(&server, Some(("root", "root-secret")));
        Self { server, root, _directory: directory }
    }

    /// `login` is empty, or a user and a password with a colon between them.
    fn url(&self, login: &str, path: &str) -> EtcdConfig {
        let port = self.server.client_port();
        let (user, password) = login.split_once(':').unwrap_or_default();
        let at = if user.is_empty() { "" } else { "@" };
        let url = format!("etcd://{user}{at}127.0.0.1:{port}/{path}");
        let mut config = EtcdConfig::from_url(&url).unwrap();
        if let Some(credentials) = &mut config.credentials {
            password.clone_into(&mut credentials.password);
        }
        config
    }

    async fn worker(&self) -> AsyncEtcdCoordinator {
        self.url("worker:worker-secret", PATH).connect().await.unwrap()
    }

    async fn refusal(&self, login: &str) -> String {
        match self.url(login, PATH).connect().await {
            Err(ConnectError::Server(error)) => {
                assert_eq!(error.cause, EtcdCause::AuthRefused);
                error.to_string()
            }
            other => panic!("{:?}", other.err()),
        }
    }

    async fn ask(&self, path: &'static str, first: &str, second: &str) {
        ask(&self.root, path, first, second).await;
    }
}

async fn create_run(coordinator: &mut AsyncEtcdCoordinator) -> Result<(), InfraError> {
    let config = RunConfig::try_new(CursorSemantics::Completed, 1 << 40, None).unwrap();
    let roots = [(b"a", b"m", 0), (b"m", b"z", 1)].map(|(start, end, id)| InitialShardInput {
        shard_id: ShardId::from_raw(id),
        spec: ShardSpecRef::new(start, end, b""),
        cursor: CursorUpdate::initial(),
    });
    let op = OpId::from_raw(1);
    let made = coordinator.create_run_with_shards(at(1), TENANT, RUN, config, &roots, op).await;
    match made {
        Ok(_) => Ok(()),
        Err(error) => Err(infra(&error).unwrap_or_else(|| panic!("{error}"))),
    }
}

/// Returns the store failure among the sources of an error.
fn infra(error: &(dyn std::error::Error + 'static)) -> Option<InfraError> {
    let mut next = Some(error);
    while let Some(link) = next {
        if let Some(found) = link.downcast_ref::<InfraError>() {
            return Some(found.clone());
        }
        next = link.source();
    }
    None
}

async fn claim(coordinator: &mut AsyncEtcdCoordinator) -> Lease {
    let mut scratch = AcquireScratch::new();
    let worker = WorkerId::from_raw(1);
    let claim = coordinator.claim_next_available(at(2), TENANT, RUN, worker, &mut scratch);
    claim.await.unwrap().lease
}

/// The checkpoint with this number on the way through a shard.
async fn checkpoint(
    coordinator: &mut AsyncEtcdCoordinator,
    lease: &Lease,
    number: u64,
) -> Result<(), CheckpointError> {
    let start = if lease.shard() == ShardId::from_raw(0) { b"b" } else { b"n" };
    let key = [start.as_slice(), &number.to_be_bytes()].concat();
    let cursor = CursorUpdate::try_from_parts(Some(&key), None).unwrap();
    let op = OpId::from_raw(100 + number);
    coordinator.checkpoint(at(3), TENANT, lease, cursor, op).await.map(drop)
}

fn assert_not_permitted(result: Result<(), CheckpointError>) {
    let Err(CheckpointError::BackendError(error)) = result else { panic!("{result:?}") };
    let InfraError::Refused { why: StoreRefusal::NotPermitted, message, .. } = &error else {
        panic!("{error}");
    };
    assert!(!message.contains("secret"), "{message}");
}

#[tokio::test]
async fn password_comes_from_a_file_of_its_user_only() {
    let guarded = Guarded::start().await;
    let directory = TestDirectory::new("etcd-password");
    let file = directory.path().join("password");
    let port = guarded.server.client_port();
    let url = format!("etcd://worker@127.0.0.1:{port}/{PATH}");
    let with_file = format!("{url}?password_file={}", file.display());
    let refusal = async |url: &str| {
        let refused = EtcdConfig::from_url(url).unwrap().connect().await;
        refused.expect_err("it cannot connect").to_string()
    };
    assert!(refusal(&url).await.contains("GOSSIP_ETCD_PASSWORD"));
    assert!(refusal(&with_file).await.contains("could not be read"));
    std::fs::write(&file, "worker-secret\nanother line\n").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    assert!(refusal(&with_file).await.contains("chmod 600"));
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    EtcdConfig::from_url(&with_file).unwrap().connect().await.unwrap();
    std::fs::write(&file, "wrong-secret\n").unwrap();
    let refused = refusal(&with_file).await;
    assert!(!refused.contains("secret"), "{refused}");
}

#[tokio::test]
async fn a_whole_run_goes_through_a_server_whose_tokens_run_out() {
    let guarded = Guarded::start().await;
    let mut coordinator = guarded.worker().await;
    create_run(&mut coordinator).await.unwrap();
    let leases = [claim(&mut coordinator).await, claim(&mut coordinator).await];
    let (mut number, begun) = (0, Instant::now());
    while coordinator.store().kv().token_count() < TOKENS {
        assert!(begun.elapsed() < PATIENCE, "tokens do not run out");
        number += 1;
        checkpoint(&mut coordinator, &leases[0], number).await.unwrap();
    }
    for lease in &leases {
        coordinator.renew(at(4), TENANT, lease).await.unwrap();
        checkpoint(&mut coordinator, lease, number + 1).await.unwrap();
        let op = OpId::from_raw(7);
        let key = if lease.shard() == ShardId::from_raw(0) { b"l" } else { b"y" };
        coordinator.complete(at(5), TENANT, lease, CursorUpdate::new(key, b""), op).await.unwrap();
    }
    let mut listed = Vec::new();
    let filter = ShardFilter::all();
    coordinator.list_shards_into(at(6), TENANT, RUN, filter, &mut listed).await.unwrap();
    assert_eq!(listed.len(), 2);
    coordinator.complete_run(at(7), TENANT, RUN, OpId::from_raw(8)).await.unwrap();
    coordinator.delete_run(at(8), TENANT, RUN, OpId::from_raw(9)).await.unwrap();
    coordinator.store().revoke_owner_lease().await.unwrap();
}

#[tokio::test]
async fn a_refused_user_gets_an_error_and_changes_nothing() {
    let guarded = Guarded::start().await;
    for login in ["worker:wrong-secret", "absent:wrong-secret"] {
        let text = guarded.refusal(login).await;
        assert!(!text.contains("secret") && !text.contains("nobody"), "{text}");
    }
    // A client without a login may read the server status, and nothing else.
    let mut silent = guarded.url("", PATH).connect().await.unwrap();
    let elsewhere = guarded.url("worker:worker-secret", "team/other");
    let mut elsewhere = elsewhere.connect().await.unwrap();
    for coordinator in [&mut silent, &mut elsewhere] {
        let error = create_run(coordinator).await.unwrap_err();
        let is_refused =
            matches!(error, InfraError::Refused { why: StoreRefusal::NotPermitted, .. });
        assert!(is_refused, "{error}");
    }
    create_run(&mut guarded.worker().await).await.expect("no earlier call created it");
}

#[tokio::test]
async fn a_permission_that_is_taken_away_and_given_back_loses_nothing() {
    let guarded = Guarded::start().await;
    let mut coordinator = guarded.worker().await;
    create_run(&mut coordinator).await.unwrap();
    let lease = claim(&mut coordinator).await;
    checkpoint(&mut coordinator, &lease, 1).await.unwrap();
    guarded.ask("/etcdserverpb.Auth/UserRevokeRole", "worker", "worker").await;
    assert_not_permitted(checkpoint(&mut coordinator, &lease, 2).await);
    guarded.ask("/etcdserverpb.Auth/UserGrantRole", "worker", "worker").await;
    checkpoint(&mut coordinator, &lease, 2).await.unwrap();
}

#[tokio::test]
async fn a_changed_password_is_refused_and_the_new_one_works() {
    let guarded = Guarded::start().await;
    let mut coordinator = guarded.worker().await;
    create_run(&mut coordinator).await.unwrap();
    let lease = claim(&mut coordinator).await;
    guarded.ask("/etcdserverpb.Auth/UserChangePassword", "worker", "new-secret").await;
    assert_not_permitted(checkpoint(&mut coordinator, &lease, 1).await);
    let mut again = guarded.url("worker:new-secret", PATH).connect().await.unwrap();
    checkpoint(&mut again, &lease, 1).await.unwrap();
}
