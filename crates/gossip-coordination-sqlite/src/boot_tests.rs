//! The first open after a restart of the system raises the fence floors, if commits may be lost.

use std::path::Path;

use gossip_conformance::damage::in_newer_format;
use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::protocol::fence_floor_at;
use gossip_coordination::store::Key;
use gossip_coordination::{
    AcquireScratch, CheckpointError, CoordinationBackend as _, Lease, RunConfig,
    RunManagement as _, ShardClaiming as _,
};
use rstest::rstest;
use rusqlite::{Connection, params};

use crate::test_support::Scratch;
use crate::{Boot, OpenSqliteError, SqliteCoordinator, SqliteDatabase, SqliteOptions};

const RUN: RunId = RunId::from_raw(1);
/// The time of the second boot.
const LATER: u64 = 1_800_000_000;

const fn tenant(number: u8) -> TenantId {
    TenantId::from_bytes([number; 32])
}

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

fn boot(number: u8) -> Boot {
    let id = format!("{number:08x}-8cdb-4d02-a2e5-cf1b48b1d3aa\n");
    Boot::new(&id, LATER).unwrap()
}

fn open(path: &Path, relaxed: bool, in_boot: u8) -> SqliteDatabase {
    let options = SqliteOptions { boot: Some(boot(in_boot)), ..SqliteOptions::default() };
    let options = if relaxed { options.relaxed() } else { options };
    SqliteDatabase::open(path, options).unwrap()
}

/// Makes a run of one shard for each of two tenants, and returns the lease of each.
fn leases(database: &SqliteDatabase) -> [Lease; 2] {
    let mut coordinator = database.coordinator();
    [1, 2].map(|number| {
        let config = RunConfig::try_new(CursorSemantics::Completed, 1_000, None).unwrap();
        let spec = ShardSpecRef::new(b"a", b"z", b"");
        let (shard_id, cursor) = (ShardId::from_raw(0), CursorUpdate::initial());
        let roots = [InitialShardInput { shard_id, spec, cursor }];
        let (tenant, op) = (tenant(number), OpId::from_raw(1));
        coordinator.create_run_with_shards(at(1), tenant, RUN, config, &roots, op).unwrap();
        claim(&mut coordinator, number, 2)
    })
}

fn claim(coordinator: &mut SqliteCoordinator, number: u8, now: u64) -> Lease {
    let (worker, mut scratch) = (WorkerId::from_raw(now), AcquireScratch::new());
    let claimed =
        coordinator.claim_next_available(at(now), tenant(number), RUN, worker, &mut scratch);
    claimed.unwrap().lease
}

fn checkpoint(database: &SqliteDatabase, lease: &Lease) -> Result<(), CheckpointError> {
    let cursor = CursorUpdate::with_last_key(b"c");
    let op = OpId::from_raw(lease.fence().as_raw());
    database.coordinator().checkpoint(at(3), lease.tenant(), lease, cursor, op).map(|_| ())
}

fn stored_boot(path: &Path) -> Option<i64> {
    let connection = Connection::open(path).unwrap();
    let stored = "SELECT value FROM meta WHERE name = 'boot'";
    connection.query_row(stored, [], |row| row.get(0)).ok()
}

#[rstest]
#[case::relaxed_again(true)]
#[case::with_full_sync_now(false)]
fn restart_after_relaxed_sync_refuses_old_leases_of_all_tenants(#[case] relaxed: bool) {
    let scratch = Scratch::new();
    let path = scratch.file("store.db");
    let old = leases(&open(&path, true, 1));
    let database = open(&path, relaxed, 2);
    let floor = fence_floor_at(LATER);
    for (number, old) in [1, 2].into_iter().zip(&old) {
        let (presented, current) = (old.fence(), floor);
        let late = checkpoint(&database, old);
        assert_eq!(late, Err(CheckpointError::StaleFence { presented, current }));
        let new = claim(&mut database.coordinator(), number, 2_000);
        assert_eq!(new.fence(), floor);
    }
    assert_eq!(stored_boot(&path), Some(boot(2).id()));
}

#[rstest]
#[case::same_boot(true, 1)]
#[case::full_sync_only(false, 2)]
fn leases_stay_valid_if_nothing_can_be_lost(#[case] relaxed: bool, #[case] next_boot: u8) {
    let scratch = Scratch::new();
    let path = scratch.file("store.db");
    let old = leases(&open(&path, relaxed, 1));
    let database = open(&path, relaxed, next_boot);
    assert_eq!(old.map(|old| checkpoint(&database, &old)), [Ok(()), Ok(())]);
    assert_eq!(stored_boot(&path), relaxed.then(|| boot(1).id()));
}

/// A second raise would refuse the leases that the first process has taken in this boot.
#[test]
fn second_process_of_a_boot_raises_nothing() {
    let scratch = Scratch::new();
    let path = scratch.file("store.db");
    leases(&open(&path, true, 1));
    let first = open(&path, true, 2);
    let taken = claim(&mut first.coordinator(), 1, 2_000);
    let second = open(&path, true, 2);
    let cursor = CursorUpdate::with_last_key(b"c");
    let mut other = second.coordinator();
    other.checkpoint(at(2_001), tenant(1), &taken, cursor, OpId::from_raw(7)).unwrap();
}

#[test]
fn damaged_head_does_not_keep_the_file_from_opening() {
    let scratch = Scratch::new();
    let path = scratch.file("store.db");
    let old = leases(&open(&path, true, 1));
    let head = Key::RunHead { tenant: tenant(1), run: RUN }.to_bytes();
    let connection = Connection::open(&path).unwrap();
    let damage = "UPDATE kv SET value = x'0201' WHERE key = ?1";
    assert_eq!(connection.execute(damage, [head.as_bytes()]).unwrap(), 1);
    drop(connection);
    let database = open(&path, true, 2);
    assert!(matches!(checkpoint(&database, &old[0]), Err(CheckpointError::BackendError(_))));
    assert!(matches!(checkpoint(&database, &old[1]), Err(CheckpointError::StaleFence { .. })));
}

/// The floors and the boot are one transaction: a failure leaves the old boot, and the next open
/// tries again.
#[test]
fn head_of_a_newer_format_keeps_the_file_closed_and_the_old_boot() {
    let scratch = Scratch::new();
    let path = scratch.file("store.db");
    leases(&open(&path, true, 1));
    let head = Key::RunHead { tenant: tenant(2), run: RUN };
    let connection = Connection::open(&path).unwrap();
    let bytes = head.to_bytes();
    let key = bytes.as_bytes();
    let stored = "SELECT value FROM kv WHERE key = ?1";
    let value: Vec<u8> = connection.query_row(stored, [key], |row| row.get(0)).unwrap();
    let value = in_newer_format(&head, &value, u8::MAX);
    let newer = "UPDATE kv SET value = ?2 WHERE key = ?1";
    assert_eq!(connection.execute(newer, params![key, value]).unwrap(), 1);
    drop(connection);
    let options = SqliteOptions { boot: Some(boot(2)), ..SqliteOptions::default() };
    let error = SqliteDatabase::open(&path, options).unwrap_err();
    assert!(matches!(error, OpenSqliteError::FloorsNotRaised { .. }), "{error}");
    assert_eq!(stored_boot(&path), Some(boot(1).id()));
}

#[rstest]
#[case::uuid("6dfb1c8e-2f1a-4e0b-9d53-000000000000\n", true)]
#[case::empty("", false)]
#[case::no_digits("none of this is a uuid at all", false)]
fn boot_id_is_a_uuid(#[case] text: &str, #[case] valid: bool) {
    assert_eq!(Boot::new(text, 0).is_some(), valid);
}
