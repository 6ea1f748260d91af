//! Whatever is chosen by URL works, and two handles of it see each other.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::store::{Answer, KeyRange, Read, Store as _};
use gossip_coordination::{AcquireScratch, ClaimError, RunConfig, RunManagement, ShardClaiming};
use gossip_testkit::test_support::{EtcdServer, PostgresServer, TestDirectory};

use super::*;

const TENANT: TenantId = TenantId::from_bytes([5; 32]);
const RUN: RunId = RunId::from_raw(1);

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

fn config() -> RunConfig {
    RunConfig::try_new(CursorSemantics::Completed, 1_000, None).unwrap()
}

fn root() -> InitialShardInput<'static> {
    InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    }
}

/// How many owner keys there are, as others see it.
fn owner_keys(url: &str) -> u64 {
    let mut store = Backend::open(&url.parse().unwrap()).unwrap().store();
    let keys = KeyRange::owners_of(TENANT, RUN);
    match store.read(vec![Read::Count(keys)]).unwrap().remove(0) {
        Answer::Count(count) => count,
        other => panic!("{other:?}"),
    }
}

/// One handle makes a run, and another claims its shard.
fn check(url: &str) {
    check_on(&Backend::open(&url.parse().unwrap()).unwrap());
}

fn check_on(backend: &Backend) {
    let (mut one, mut other) = (backend.coordinator(), backend.coordinator());
    let (roots, op) = ([root()], OpId::from_raw(1));
    one.create_run_with_shards(at(1), TENANT, RUN, config(), &roots, op).unwrap();
    let (worker, mut scratch) = (WorkerId::from_raw(1), AcquireScratch::new());
    let claimed = other.claim_next_available(at(2), TENANT, RUN, worker, &mut scratch).unwrap();
    assert_eq!(claimed.lease.shard(), ShardId::from_raw(0));
    assert_ne!(one.config().nonce, other.config().nonce, "handles differ");
}

/// A worker that claimed through one handle waits before it claims through another.
fn check_cooldown(url: &str) {
    let backend = Backend::open(&url.parse().unwrap()).unwrap();
    check_on(&backend);
    let (worker, mut scratch) = (WorkerId::from_raw(1), AcquireScratch::new());
    let early =
        backend.coordinator().claim_next_available(at(251), TENANT, RUN, worker, &mut scratch);
    let retry_after = at(252);
    assert_eq!(early.map(|_| ()), Err(ClaimError::Throttled { retry_after }));
    let claim =
        backend.coordinator().claim_next_available(at(252), TENANT, RUN, worker, &mut scratch);
    assert!(matches!(claim, Err(ClaimError::NoneAvailable { .. })), "the cooldown is over");
}

#[test]
fn handles_of_a_store_share_the_cooldown_that_its_url_sets() {
    let (directory, server) = (TestDirectory::new("stores-cooldown"), EtcdServer::single());
    check_cooldown("memory:?claim_cooldown=250ms");
    let file = directory.path().join("state");
    check_cooldown(&format!("sqlite:{}?claim_cooldown=250ms", file.display()));
    let host = server.endpoint();
    let host = host.trim_start_matches("http://");
    check_cooldown(&format!("etcd://{host}/cooldown?claim_cooldown=250ms"));
}

#[test]
fn a_store_in_memory_works() {
    check("memory:");
}

#[test]
fn a_file_works_and_is_found_again() {
    let directory = TestDirectory::new("stores-file");
    let url = format!("sqlite:{}", directory.path().join("state").display());
    check(&url);
    let mut again = Backend::open(&url.parse().unwrap()).unwrap().coordinator();
    assert_eq!(again.get_run(TENANT, RUN).unwrap().run(), RUN);
}

#[test]
fn a_cluster_works_and_asks_for_fewer_checkpoints_than_a_file() {
    let server = EtcdServer::single();
    let host = server.endpoint();
    let host = host.trim_start_matches("http://");
    let url = format!("etcd://{host}/blocking");
    check(&url);
    assert_eq!(Backend::open(&url.parse().unwrap()).unwrap().checkpoint_ticks_min(), 500);
    let memory = Backend::open(&"memory:".parse().unwrap()).unwrap();
    assert_eq!(memory.checkpoint_ticks_min(), 0);
}

#[test]
fn a_database_works_and_is_found_again() {
    let server = PostgresServer::single();
    let url = format!("postgres://{}@127.0.0.1:{}/postgres", server.user(), server.port());
    check(&url);
    let mut again = Backend::open(&url.parse().unwrap()).unwrap().coordinator();
    assert_eq!(again.get_run(TENANT, RUN).unwrap().run(), RUN);
    check_cooldown(&format!("{url}?schema=cooldown&claim_cooldown=250ms"));
}

/// The lease of the key would last for a quarter of a minute.
#[test]
fn who_retires_leaves_no_owner_key() {
    let server = EtcdServer::single();
    let host = server.endpoint();
    let host = host.trim_start_matches("http://");
    let url = format!("etcd://{host}/blocking");
    let backend = Backend::open(&url.parse().unwrap()).unwrap();
    check_on(&backend);
    assert_eq!(owner_keys(&url), 1);
    backend.retire();
    assert_eq!(owner_keys(&url), 0);
}

#[test]
fn what_cannot_be_opened_says_so() {
    let directory = TestDirectory::new("stores-missing");
    let url = format!("sqlite:{}", directory.path().join("no/such/place").display());
    let error = Backend::open(&url.parse().unwrap()).unwrap_err();
    assert!(matches!(error, OpenStoreError::Sqlite(_)), "{error}");
    // No process listens on the discard port of this machine.
    let url = "etcd://127.0.0.1:9/x?connect_timeout=500ms&request_timeout=1s";
    let error = Backend::open(&url.parse().unwrap()).unwrap_err();
    assert!(matches!(error, OpenStoreError::Etcd(_)), "{error}");
    let error = Backend::open(&"postgres://u@127.0.0.1:9/d".parse().unwrap()).unwrap_err();
    assert!(matches!(error, OpenStoreError::Postgres(_)), "{error}");
}
