//! Connections that are cut, servers and backends that are killed: nothing acknowledged is lost,
//! and nothing is reported as refused that was applied.

use std::time::Duration;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::store::{
    Answer, CommitOutcome, Key, Read, Store as _, StoreCoordinator, Txn, Versioned,
};
use gossip_coordination::{
    AcquireScratch, CheckpointError, CoordinationBackend, Lease, RunConfig, RunManagement,
    ShardClaiming,
};
use gossip_coordination_postgres::{BlockingStore, PostgresConfig, PostgresCoordinator};
use gossip_testkit::test_support::{PostgresOptions, PostgresServer, send_signal};

use crate::message_proxy::{MessageProxy, Side};
use crate::real_server::{config_on, server};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);
const RUN: RunId = RunId::from_raw(1);
const WORKER: WorkerId = WorkerId::from_raw(1);

/// A key that no operation touches.
fn key(number: u64) -> Key {
    Key::Tombstone { tenant: TENANT, run: RunId::from_raw(number) }
}

fn load(store: &mut BlockingStore, key: Key) -> Option<Versioned> {
    match store.read(vec![Read::Get(key)]).unwrap().remove(0) {
        Answer::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Puts a value if the key is unchanged.
fn replace(found: Option<&Versioned>, key: Key, bytes: &[u8]) -> Txn {
    let mut txn = Txn::new();
    txn.expect(key, found);
    txn.put(key, bytes.to_vec());
    txn
}

fn commit(store: &mut BlockingStore, txn: Txn) -> CommitOutcome {
    store.commit(vec![txn]).remove(0).unwrap()
}

/// What a commit sends and receives: the cuts below are at each of these messages.
const COMMIT: [(Side, &[u8]); 2] = [(Side::Client, b"BES"), (Side::Server, b"2DCZ")];

#[test]
fn a_commit_is_one_round_trip() {
    let proxy = MessageProxy::before(server().port());
    let config = PostgresConfig { port: proxy.port(), ..config_on(server()) };
    let mut store = BlockingStore::connect(&config).unwrap();
    commit(&mut store, replace(None, key(1), b"warm"));
    proxy.record();
    commit(&mut store, replace(None, key(2), b"one"));
    let recorded = proxy.recorded();
    for (side, tags) in COMMIT {
        let sent: Vec<u8> =
            recorded.iter().filter(|(of, _)| *of == side).map(|(_, tag)| *tag).collect();
        assert_eq!(sent, tags, "{side:?}");
    }
}

/// The server sends rows and the end of the command before it commits. A client that took them for
/// an acknowledgement would report commits that a crash undoes.
#[test]
fn a_commit_cut_at_any_message_is_unknown_and_never_wrongly_refused() {
    let proxy = MessageProxy::before(server().port());
    let config = PostgresConfig { port: proxy.port(), ..config_on(server()) };
    let mut store = BlockingStore::connect(&config).unwrap();
    let mut witness =
        BlockingStore::connect(&PostgresConfig { port: server().port(), ..config }).unwrap();
    let (mut number, mut applied) = (10, 0);
    for (side, tags) in COMMIT {
        for cut in 0..tags.len() {
            // A session is there before the cut, so that only the commit is cut.
            number += 1;
            commit(&mut store, replace(None, key(number), b"warm"));
            number += 1;
            proxy.cut_after(side, cut);
            let outcome = commit(&mut store, replace(None, key(number), b"cut"));
            assert!(proxy.has_cut(), "{side:?} {cut}");
            assert_eq!(outcome, CommitOutcome::Unknown, "{side:?} after {cut} messages");
            // The next write of the key settles it: the first attempt may still be running.
            let settled = commit(&mut witness, replace(None, key(number), b"settled"));
            let is_applied = matches!(settled, CommitOutcome::Conflict(_));
            let bytes = load(&mut witness, key(number)).unwrap().bytes;
            assert_eq!(bytes, if is_applied { &b"cut"[..] } else { b"settled" });
            // Without `Sync` the server never commits; with it, it does although we have gone.
            assert!(is_applied || side == Side::Client, "{side:?} after {cut} messages");
            applied += usize::from(is_applied);
        }
    }
    assert!(applied >= 4, "{applied}");
}

/// The server has the commit and executes it after the client has stopped waiting. A read in
/// between would say that it was not applied.
#[test]
fn a_commit_on_a_frozen_server_process_is_unknown_and_is_applied_later() {
    let server = PostgresServer::single();
    let request_timeout = Duration::from_millis(500);
    let config = PostgresConfig { request_timeout, ..config_on(&server) };
    let mut store = BlockingStore::connect(&config).unwrap();
    let frozen = "SELECT pid FROM pg_stat_activity WHERE application_name = 'gossip'";
    let frozen: Vec<u32> = server.sql(frozen).lines().map(|pid| pid.parse().unwrap()).collect();
    frozen.iter().for_each(|pid| send_signal("STOP", *pid));
    let outcome = commit(&mut store, replace(None, key(1), b"late"));
    assert_eq!(outcome, CommitOutcome::Unknown);
    assert_eq!(load(&mut store, key(1)), None, "not yet");
    frozen.iter().for_each(|pid| send_signal("CONT", *pid));
    let applied = format!("SELECT count(*) FROM {}.entry", config.schema);
    while server.sql(&applied) == "0" {
        std::thread::yield_now();
    }
    let settled = commit(&mut store, replace(None, key(1), b"second"));
    assert!(matches!(settled, CommitOutcome::Conflict(_)), "{settled:?}");
}

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

/// Makes a run with one shard and leases it.
fn leased(coordinator: &mut PostgresCoordinator) -> Lease {
    let config = RunConfig::try_new(CursorSemantics::Completed, 1_000_000, None).unwrap();
    let root = InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    };
    coordinator
        .create_run_with_shards(at(1), TENANT, RUN, config, &[root], OpId::from_raw(1))
        .unwrap();
    claim(coordinator, at(2))
}

fn claim(coordinator: &mut PostgresCoordinator, now: LogicalTime) -> Lease {
    let mut scratch = AcquireScratch::new();
    coordinator.claim_next_available(now, TENANT, RUN, WORKER, &mut scratch).unwrap().lease
}

fn checkpoint(
    coordinator: &mut PostgresCoordinator,
    lease: &Lease,
    op: u64,
    cursor: &[u8],
) -> Result<(), CheckpointError> {
    let cursor = CursorUpdate::with_last_key(cursor);
    coordinator.checkpoint(at(3), TENANT, lease, cursor, OpId::from_raw(op)).map(|_| ())
}

/// Repeats a checkpoint until the server is back: every failure until then is retryable.
fn checkpoint_until_answered(
    server: &mut PostgresServer,
    coordinator: &mut PostgresCoordinator,
    lease: &Lease,
    op: u64,
    cursor: &[u8],
) -> Result<(), CheckpointError> {
    for _ in 0..200 {
        match checkpoint(coordinator, lease, op, cursor) {
            Err(CheckpointError::BackendError(error)) if error.is_retryable() => {
                server.wait_until_accepting();
            }
            answered => return answered,
        }
    }
    panic!("the server did not come back");
}

/// The lease from before a crash is refused, and a new grant has a fence above the raised floor.
fn check_fenced(server: &mut PostgresServer, coordinator: &mut PostgresCoordinator, old: &Lease) {
    let refused = checkpoint_until_answered(server, coordinator, old, 90, b"m");
    assert!(matches!(refused, Err(CheckpointError::StaleFence { .. })), "{refused:?}");
    let new = claim(coordinator, at(2_000_000));
    assert!(new.fence().as_raw() > 1 << 20, "{:?}", new.fence());
    let coordinator_sees = checkpoint(coordinator, &new, 91, b"n");
    assert_eq!(coordinator_sees, Ok(()));
}

#[test]
fn a_clean_restart_keeps_leases() {
    let mut server = PostgresServer::single();
    let mut coordinator = config_on(&server).connect_blocking().unwrap();
    let lease = leased(&mut coordinator);
    assert_eq!(checkpoint(&mut coordinator, &lease, 2, b"c"), Ok(()));
    server.restart();
    assert_eq!(checkpoint_until_answered(&mut server, &mut coordinator, &lease, 3, b"d"), Ok(()));
}

#[test]
fn a_killed_server_raises_the_floors_and_loses_nothing() {
    let mut server = PostgresServer::single();
    let config = config_on(&server);
    let mut coordinator = config.connect_blocking().unwrap();
    let lease = leased(&mut coordinator);
    assert_eq!(checkpoint(&mut coordinator, &lease, 2, b"c"), Ok(()));
    server.kill();
    server.restart_killed();
    let incarnations = format!("SELECT count(*) FROM {}.incarnation", config.schema);
    assert_eq!(server.sql(&incarnations), "0", "crash recovery empties an unlogged table");
    check_fenced(&mut server, &mut coordinator, &lease);
    // Another process that opens the store finds the floors raised and raises them no further.
    let mut other = config.connect_blocking().unwrap();
    let fence = claim(&mut other, at(9_000_000)).fence();
    assert!(fence.as_raw() < 2 * fence_after_one_raise(&server), "{fence:?}");
}

/// Roughly the floor of one raise: the server's time in seconds times 2²⁰.
fn fence_after_one_raise(server: &PostgresServer) -> u64 {
    let seconds: u64 = server.sql("SELECT extract(epoch FROM now())::bigint").parse().unwrap();
    seconds << 20
}

#[test]
fn a_killed_backend_raises_the_floors() {
    let mut server = PostgresServer::single();
    let config = config_on(&server);
    let mut coordinator = config.connect_blocking().unwrap();
    let lease = leased(&mut coordinator);
    let backend = "SELECT pid FROM pg_stat_activity WHERE application_name = 'gossip' LIMIT 1";
    let pid = server.sql(backend).parse().unwrap();
    server.kill_backend(pid);
    check_fenced(&mut server, &mut coordinator, &lease);
}

#[test]
fn a_declared_replicated_store_keeps_leases_after_a_crash() {
    let mut server = PostgresServer::single();
    let config = config_on(&server);
    let mut coordinator = config.connect_blocking().unwrap();
    server.sql(&format!("UPDATE {}.meta SET durability = 'replicated'", config.schema));
    let lease = leased(&mut coordinator);
    server.kill();
    server.restart_killed();
    assert_eq!(checkpoint_until_answered(&mut server, &mut coordinator, &lease, 3, b"d"), Ok(()));
}

#[test]
fn a_promoted_standby_has_every_acknowledged_commit_and_raised_floors() {
    let mut primary = PostgresServer::with_options(&PostgresOptions {
        settings: vec!["wal_level=replica".to_owned()],
        ..PostgresOptions::default()
    });
    let mut server = PostgresServer::synchronous_standby(&primary);
    let config = config_on(&primary);
    let mut coordinator = config.connect_blocking().unwrap();
    let lease = leased(&mut coordinator);
    assert_eq!(checkpoint(&mut coordinator, &lease, 2, b"k"), Ok(()));
    primary.kill();
    server.promote();
    let config = PostgresConfig { port: server.port(), ..config };
    let mut coordinator = config.connect_blocking().unwrap();
    assert_eq!(released_cursor(&mut coordinator), b"k", "the acknowledged checkpoint");
    check_fenced(&mut server, &mut coordinator, &lease);
}

/// Claims the shard after every deadline, releases it, and returns its cursor.
fn released_cursor(coordinator: &mut PostgresCoordinator) -> Vec<u8> {
    let (now, mut scratch) = (at(1_900_000), AcquireScratch::new());
    let granted = coordinator.claim_next_available(now, TENANT, RUN, WORKER, &mut scratch).unwrap();
    let cursor = granted.snapshot.cursor().last_key().unwrap_or_default().to_vec();
    let (lease, op) = (granted.lease, OpId::from_raw(50));
    coordinator.release(now, TENANT, &lease, ReleaseMode::Clean, op).unwrap();
    cursor
}

/// The standby does not answer and the wait is cancelled: the server reports success, with a
/// warning, for a commit that a failover would lose.
#[test]
fn a_success_with_a_warning_is_unknown() {
    let primary = PostgresServer::single();
    let config = config_on(&primary);
    let mut store = BlockingStore::connect(&config).unwrap();
    commit(&mut store, replace(None, key(1), b"before"));
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (missing)'");
    primary.sql("SELECT pg_reload_conf()");
    let waiting = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                   WHERE wait_event = 'SyncRep'";
    // The server processes read the setting some time after the call has returned. Until then
    // commits are applied without a wait.
    let outcomes = (2..1_000).map(|number| {
        let txn = replace(None, key(number), b"unreplicated");
        std::thread::scope(|scope| {
            let committing = scope.spawn(|| commit(&mut store, txn));
            while !committing.is_finished() && primary.sql(waiting) != "1" {
                std::thread::yield_now();
            }
            committing.join().unwrap()
        })
    });
    let mut waited = outcomes.skip_while(|it| matches!(it, CommitOutcome::Applied { .. }));
    assert_eq!(waited.next(), Some(CommitOutcome::Unknown));
}

#[test]
fn the_function_forces_synchronous_commits() {
    let config = config_on(server());
    let mut store = BlockingStore::connect(&config).unwrap();
    commit(&mut store, replace(None, key(1), b"x"));
    let schema = &config.schema;
    let shown = server().sql(&format!(
        "SET synchronous_commit = off; BEGIN; \
         SELECT part FROM {schema}.commit((SELECT id FROM {schema}.incarnation), '{{}}', '{{}}', \
         false, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', \
         '{{}}', '{{}}', '{{}}', '{{}}'); \
         SHOW synchronous_commit; COMMIT; SHOW synchronous_commit"
    ));
    assert_eq!(shown, "0\non\noff");
}

#[test]
fn another_isolation_level_is_refused() {
    let config = config_on(server());
    let mut store =
        StoreCoordinator::new(BlockingStore::connect(&config).unwrap(), config.store_config());
    let schema = &config.schema;
    let call = format!(
        "DO $$ BEGIN PERFORM {schema}.commit(0, '{{}}', '{{}}', false, '{{}}', '{{}}', '{{}}', \
         '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}'); \
         EXCEPTION WHEN SQLSTATE 'GS001' THEN RAISE EXCEPTION 'refused' USING ERRCODE = '22012'; \
         END $$"
    );
    let refused = std::panic::catch_unwind(|| {
        server().sql(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {call}; COMMIT"))
    });
    assert!(refused.is_err());
    server().sql(&format!("BEGIN ISOLATION LEVEL READ COMMITTED; {call}; COMMIT"));
    assert_eq!(load(store.store_mut(), key(1)), None);
}
