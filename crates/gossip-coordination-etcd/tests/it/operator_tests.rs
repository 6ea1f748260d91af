//! Runs the commands that `docs/etcd.md` gives to operators.
//!
//! The commands are read from the document, so that it cannot list one that does not work. Each
//! block has its own test; a block without a test is an error.

use std::path::Path;
use std::process::{Command, Stdio};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, plan_split_residual_at_point,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::store::{Allotment, fly, load_allotment, set_allotment};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, InfraError, RunConfig, RunManagement, ShardClaiming,
    StoreRefusal,
};
use gossip_coordination_etcd::{
    Alarm, EtcdCause, EtcdConfig, EtcdCoordinator, EtcdKv, GrpcClient, GrpcConfig,
};
use gossip_testkit::test_support::{EtcdServer, ServerOptions, TestDirectory};

use crate::space_tests::{QUOTA_BYTES, VALUE_BYTES, fill, small_server, write};

const DOCUMENT: &str = include_str!("../../../../docs/etcd.md");

/// The blocks of commands under each heading, in their order.
fn blocks(heading: &str) -> Vec<&'static str> {
    let (_, section) = DOCUMENT.split_once(&format!("\n## {heading}\n")).expect("a heading");
    commands(section.split("\n## ").next().unwrap_or_default())
}

fn commands(text: &'static str) -> Vec<&'static str> {
    let opened = text.split("```sh\n").skip(1);
    opened.map(|rest| rest.split_once("```").expect("a block ends").0).collect()
}

/// Types commands at a shell that stops at the first one that fails.
fn type_in(commands: &str, server: &EtcdServer, directory: &Path) {
    let typed = Command::new("sh")
        .args(["-ec", commands])
        .current_dir(directory)
        .envs([("ETCDCTL_API", "3"), ("ETCDCTL_ENDPOINTS", &server.endpoint())])
        .stdin(Stdio::null())
        .output()
        .expect("there is a shell");
    let said = String::from_utf8_lossy(&typed.stderr);
    assert!(!said.contains("not found"), "{said}: run `cargo xtask setup`");
    assert!(typed.status.success(), "{commands} said {said}");
}

const TENANT: TenantId = TenantId::from_bytes([1; 32]);
const OTHER: TenantId = TenantId::from_bytes([2; 32]);

fn create_run(coordinator: &mut EtcdCoordinator, run: u64) -> bool {
    let config = RunConfig::try_new(CursorSemantics::Completed, 1_000, None).unwrap();
    let now = LogicalTime::from_raw(1);
    coordinator.create_run(now, TENANT, RunId::from_raw(run), config).is_ok()
}

#[test]
fn every_block_of_commands_is_typed_by_a_test() {
    let tested = blocks("A full database").len() + blocks("Users").len();
    assert_eq!((tested, commands(DOCUMENT).len()), (4, 4));
}

#[tokio::test]
async fn a_full_database_is_repaired_as_the_document_says() {
    let server = small_server();
    let client = GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap();
    let config = EtcdConfig::new([format!("127.0.0.1:{}", server.client_port())], "full").unwrap();
    let mut coordinator = config.connect_blocking().unwrap();
    assert!(create_run(&mut coordinator, 1), "there is room");
    assert_eq!(fill(&client).await.cause, EtcdCause::NoSpace);
    assert!(!create_run(&mut coordinator, 2), "it is full");
    assert_eq!(client.alarms().await.unwrap(), [Alarm::NoSpace]);
    let before = client.status().await.unwrap().db_size;
    for block in blocks("A full database") {
        type_in(block, &server, TestDirectory::new("etcdctl").path());
    }
    assert!(client.status().await.unwrap().db_size < before, "no space was given back");
    assert!(create_run(&mut coordinator, 2), "the same coordinator does not recover");
    let mut other = config.connect_blocking().unwrap();
    for run in [1, 2] {
        assert!(other.get_run(TENANT, RunId::from_raw(run)).is_ok(), "run {run} is lost");
    }
}

/// With the flags of the document, but for a smaller quota and retention. History is kept for up to
/// twice the retention, and the quota holds that of eight.
#[tokio::test]
async fn a_database_that_is_compacted_as_the_document_says_takes_more_than_its_quota() {
    const RETENTION_MILLIS: u64 = 500;
    const WRITES_IN_QUOTA: u64 = (QUOTA_BYTES / VALUE_BYTES) as u64;
    const PAUSE_MILLIS: u64 = 8 * RETENTION_MILLIS / WRITES_IN_QUOTA;
    let line = DOCUMENT.lines().find(|line| line.starts_with("--quota-backend-bytes="));
    let flags: Vec<_> = line.expect("flags of a server").split(' ').collect();
    let retention = format!("--auto-compaction-retention={RETENTION_MILLIS}ms");
    let [quota, mode, minutes] = flags[..] else { panic!("three flags: {flags:?}") };
    assert!(minutes.starts_with("--auto-compaction-retention="));
    let quota = format!("{}={QUOTA_BYTES}", quota.split_once('=').expect("a number").0);
    let server = EtcdServer::with_options(&ServerOptions::with_flags(&[&quota, mode, &retention]));
    let client = GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap();
    for number in 0..WRITES_IN_QUOTA * 3 / 2 {
        let written = write(&client, "k").await;
        assert!(written.is_ok(), "{written:?} after {number} writes");
        client.sleep(PAUSE_MILLIS).await;
    }
    assert_eq!(client.alarms().await.unwrap(), []);
}

#[test]
fn a_user_is_made_as_the_document_says() {
    let server = EtcdServer::single();
    let directory = TestDirectory::new("etcdctl");
    for user in ["gossip", "tenant", "root"] {
        let file = directory.path().join(format!("{user}.password"));
        std::fs::write(file, format!("{user}-secret\n")).unwrap();
    }
    for block in blocks("Users") {
        let block = block.replace("PREFIX", "/team/prod//").replace("TENANT", &digits(TENANT));
        type_in(&block, &server, directory.path());
    }
    let port = server.client_port();
    let connect = |user: &str, password: &str, path: &str| {
        let user = if user.is_empty() { String::new() } else { format!("{user}@") };
        let url = format!("etcd://{user}127.0.0.1:{port}/{path}");
        let mut config = EtcdConfig::from_url(&url).unwrap();
        if let Some(credentials) = &mut config.credentials {
            password.clone_into(&mut credentials.password);
        }
        config.connect_blocking()
    };
    assert!(create_run(&mut connect("gossip", "gossip-secret", "team/prod").unwrap(), 1));
    // Neither without a name nor beside the prefix.
    assert!(!create_run(&mut connect("", "", "team/prod").unwrap(), 1));
    assert!(!create_run(&mut connect("gossip", "gossip-secret", "team").unwrap(), 1));
    assert!(connect("gossip", "other-secret", "team/prod").is_err());

    // A user of one tenant does everything for it, and nothing for another or for the operator.
    let mut worker = connect(&digits(TENANT), "tenant-secret", "team/prod").unwrap();
    let mut operator = connect("gossip", "gossip-secret", "team/prod").unwrap();
    let two = Some(Allotment::of_shards(2));
    fly(operator.store_mut(), set_allotment(TENANT, two)).unwrap();
    live(&mut worker, TENANT).unwrap();
    let refused = live(&mut worker, OTHER).unwrap_err();
    assert!(refused.contains("permi"), "{refused}");
    let raised = fly(worker.store_mut(), set_allotment(TENANT, None));
    let is_refused =
        matches!(raised, Err(InfraError::Refused { why: StoreRefusal::NotPermitted, .. }));
    assert!(is_refused, "{raised:?}");
    assert_eq!(fly(worker.store_mut(), load_allotment(TENANT)), Ok(Allotment::of_shards(2)));
}

fn digits(tenant: TenantId) -> String {
    tenant.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A run of one shard from its creation to its deletion.
fn live(coordinator: &mut EtcdCoordinator, tenant: TenantId) -> Result<(), String> {
    let (now, run) = (LogicalTime::from_raw(1), RunId::from_raw(9));
    let (worker, op) = (WorkerId::from_raw(1), OpId::from_raw);
    let config = RunConfig::try_new(CursorSemantics::Completed, 60_000, None).unwrap();
    let root = InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    };
    let made = coordinator.create_run_with_shards(now, tenant, run, config, &[root], op(1));
    made.map_err(|error| format!("{error:?}"))?;
    coordinator.register_worker(now, tenant, worker, None).unwrap();
    let mut scratch = AcquireScratch::new();
    let granted = coordinator.claim_next_available(now, tenant, run, worker, &mut scratch);
    let lease = granted.unwrap().lease;
    let plan = plan_split_residual_at_point(root.spec, b"m").unwrap();
    coordinator.split_residual(now, tenant, &lease, &plan, op(2)).unwrap();
    coordinator.cancel_run(now, tenant, run, op(3)).unwrap();
    coordinator.delete_run(now, tenant, run, op(4)).unwrap();
    Ok(())
}
