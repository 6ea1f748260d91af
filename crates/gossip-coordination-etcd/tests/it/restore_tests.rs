//! Backs up and restores a real cluster with the commands that `docs/operations.md` gives.
//!
//! The commands are read from the document and typed at a shell; only names, addresses and
//! directories are replaced by those of the test. The last block is `gossip store restored`, whose
//! operation is called here; `tests/restored.rs` of `gossip-cli` runs the command.

use std::path::Path;
use std::process::{Command, Stdio};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::protocol::fence_floor_at;
use gossip_coordination::{
    AcquireScratch, CheckpointError, CoordinationBackend as _, Lease, RunConfig,
    RunManagement as _, ShardClaiming as _,
};
use gossip_coordination_etcd::{EtcdConfig, EtcdCoordinator};
use gossip_testkit::test_support::{EtcdCluster, TestDirectory};

const DOCUMENT: &str = include_str!("../../../../docs/operations.md");
const TENANT: TenantId = TenantId::from_bytes([1; 32]);
const RUN: RunId = RunId::from_raw(1);
/// The member list, the member and the directories of the document.
const LIST: &str = "m1=http://m1:2380,m2=http://m2:2380,m3=http://m3:2380";
const NAME: &str = "--name m1";
const PEER: &str = "http://m1:2380";
const DATA: &str = "/var/lib/etcd-2";
const BACKUP: &str = "/backup/";

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// Returns the three blocks of commands about etcd: back up, restore, raise the floors.
fn blocks() -> [&'static str; 3] {
    let (_, section) = DOCUMENT.split_once("\n## etcd\n").expect("a heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let opened = section.split("```sh\n").skip(1);
    let blocks: Vec<_> = opened.map(|rest| rest.split_once("```").expect("an end").0).collect();
    blocks.try_into().expect("three blocks")
}

/// Types a command in which `changes` were made; each must occur.
fn type_in(command: &str, changes: &[(&str, &str)]) {
    let mut typed = command.to_owned();
    for (from, to) in changes {
        assert!(typed.contains(from), "the document has no {from}");
        typed = typed.replace(from, to);
    }
    let shell = Command::new("sh").args(["-ec", &typed]).stdin(Stdio::null()).output();
    let output = shell.expect("there is a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{typed} said {said}");
}

fn connect(cluster: &EtcdCluster) -> EtcdCoordinator {
    let endpoints = cluster.endpoints().join(",").replace("http://", "");
    let config = EtcdConfig::from_url(&format!("etcd://{endpoints}/team/prod")).unwrap();
    config.connect_blocking().unwrap()
}

fn claim(coordinator: &mut EtcdCoordinator, now: u64, worker: u64) -> Lease {
    let mut scratch = AcquireScratch::new();
    let worker = WorkerId::from_raw(worker);
    let claimed = coordinator.claim_next_available(at(now), TENANT, RUN, worker, &mut scratch);
    claimed.unwrap().lease
}

fn save(coordinator: &mut EtcdCoordinator, lease: &Lease, op: u64) -> Result<(), CheckpointError> {
    let (cursor, op) = (CursorUpdate::with_last_key(b"b"), OpId::from_raw(op));
    coordinator.checkpoint(at(20), TENANT, lease, cursor, op).map(|_| ())
}

fn restore(cluster: &mut EtcdCluster, snapshot: &Path, directory: &Path) {
    let (list, snapshot) = (cluster.member_list(), format!("{}/", snapshot.display()));
    cluster.restart_on(|member| {
        let (member, block) = (member.member(), blocks()[1]);
        let (name, peer) = member.split_once('=').expect("a name and an address");
        let (data, name) = (directory.join(name), format!("--name {name}"));
        let path = data.display().to_string();
        type_in(
            block,
            &[(LIST, &list), (NAME, &name), (PEER, peer), (DATA, &path), (BACKUP, &snapshot)],
        );
        data
    });
}

#[test]
fn a_cluster_is_restored_as_the_document_says() {
    let (mut cluster, directory) = (EtcdCluster::three(), TestDirectory::new("restore"));
    let mut before = connect(&cluster);
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    let root = InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    };
    let op = OpId::from_raw(1);
    before.create_run_with_shards(at(1), TENANT, RUN, config, &[root], op).unwrap();
    let member = cluster.endpoints().remove(0);
    let backup = format!("{}/", directory.path().display());
    type_in(blocks()[0], &[("$ONE_MEMBER", &member), (BACKUP, &backup)]);
    let lost = claim(&mut before, 10, 1);
    save(&mut before, &lost, 2).expect("a live lease");

    let path = directory.path().to_owned();
    restore(&mut cluster, &path, &path);
    assert!(blocks()[2].contains("store restored"), "{}", blocks()[2]);
    let mut after = connect(&cluster);
    let (floor, mut raised) = (fence_floor_at(1_700_000_000), Vec::new());
    let each = &mut |tenant, run, result| raised.push((tenant, run, result));
    after.raise_fence_floors(at(15), None, floor, each).unwrap();
    assert_eq!(raised, [(TENANT, RUN, Ok(floor))]);

    // The lease of before is refused, from a new handle and from the one that was not closed.
    let refused = save(&mut after, &lost, 3).unwrap_err();
    assert!(matches!(refused, CheckpointError::StaleFence { .. }), "{refused:?}");
    assert!(save(&mut before, &lost, 4).is_err());
    let new = claim(&mut after, 16, 2);
    assert_eq!(new.fence(), floor);
    save(&mut after, &new, 5).expect("a live lease");
}
