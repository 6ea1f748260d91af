//! The coordinators on real servers: sizes, round trips, owners that vanish and owners that stop.

use std::time::{Duration, Instant};

use gossip_conformance::damage::in_newer_format;
use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, MAX_SPLIT_CHILDREN,
    ShardSpecRef, SplitChild, SplitReplacePlan, SplitValidationError,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{
    Answer, AsyncStore, AsyncStoreCoordinator, CommitOutcome, FORMAT_VERSION, Key, Read, Txn,
};
use gossip_coordination::{
    AcquireError, AcquireScratch, AsyncCoordinationBackend, AsyncRunManagement, AsyncShardClaiming,
    CheckpointError, CoordinationBackend, InfraError, Lease, RunConfig, RunManagement, ShardFilter,
    SplitError, StoreRefusal,
};
use gossip_coordination_etcd::proto::RangeRequest;
use gossip_coordination_etcd::{
    ConnectError, EtcdConfig, EtcdKv, EtcdStore, GrpcClient, GrpcConfig,
};
use gossip_testkit::test_support::{EtcdServer, ServerOptions, ServerTls, TestDirectory};

use crate::lossy_kv::LossyKv;
use crate::real_servers::{self, Servers};

const TENANT: TenantId = TenantId::from_bytes([3; 32]);
const RUN: RunId = RunId::from_raw(4);
const LEASE: u64 = 1_000;
const SKEW: u64 = 50;

/// How long a server may take to notice that a lease has run out; it looks twice a second.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(60);

type Coordinator<K> = AsyncStoreCoordinator<EtcdStore<K>>;

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

fn shard(number: u64) -> ShardKey {
    ShardKey::new(RUN, ShardId::from_raw(number))
}

fn cursor(key: &[u8]) -> CursorUpdate<'_> {
    CursorUpdate::try_from_parts(Some(key), None).unwrap()
}

fn bounds(count: usize) -> Vec<[u8; 4]> {
    (0..=u32::try_from(count).unwrap()).map(|bound| (bound + 1).to_be_bytes()).collect()
}

/// Creates the run with so many shards.
async fn create<K: EtcdKv>(coordinator: &mut Coordinator<K>, count: usize) {
    let bounds = bounds(count);
    let roots: Vec<_> = bounds
        .windows(2)
        .zip(0..)
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
    coordinator.create_run(at(1), TENANT, RUN, config).await.unwrap();
    let done = coordinator.register_shards(at(2), TENANT, RUN, &roots, op(1)).await.unwrap();
    assert!(done.is_executed());
}

async fn acquire<K: EtcdKv>(
    coordinator: &mut Coordinator<K>,
    now: u64,
    number: u64,
    worker: u64,
) -> Result<Lease, AcquireError> {
    let (mut scratch, worker) = (AcquireScratch::new(), WorkerId::from_raw(worker));
    let granted = coordinator
        .acquire_and_restore_into(at(now), TENANT, shard(number), worker, &mut scratch)
        .await;
    granted.map(|granted| granted.lease)
}

fn start<K: EtcdKv>(kv: K, config: &EtcdConfig) -> Coordinator<K> {
    let store = EtcdStore::start(kv, config).expect("valid settings");
    AsyncStoreCoordinator::new(store, config.store_config())
}

#[tokio::test]
async fn ten_thousand_shards_are_registered_listed_and_deleted_on_a_default_server() {
    let servers = Servers::Single;
    let kv = LossyKv::new(servers.client());
    let mut coordinator = start(kv.clone(), &servers.config());
    create(&mut coordinator, MAX_INITIAL_SHARDS).await;
    let registered = kv.commit_count();
    let mut listed = Vec::new();
    let filter = ShardFilter::all();
    coordinator.list_shards_into(at(3), TENANT, RUN, filter, &mut listed).await.unwrap();
    assert_eq!(listed.len(), MAX_INITIAL_SHARDS);
    coordinator.cancel_run(at(4), TENANT, RUN, op(2)).await.unwrap();
    coordinator.delete_run(at(5), TENANT, RUN, op(3)).await.unwrap();
    let deleted = kv.commit_count() - registered;
    println!("{registered} transactions to register, {deleted} to delete");
    assert!(coordinator.get_run_progress(at(6), TENANT, RUN).await.is_err());
    assert_eq!(key_count(&coordinator).await, 2, "a tombstone and the count are left");
}

/// A damaged record is reported, is left unchanged, and does not affect other shards.
#[tokio::test]
async fn damaged_and_newer_records_are_reported_and_not_changed() {
    let servers = Servers::Single;
    let mut coordinator = start(servers.client(), &servers.config());
    create(&mut coordinator, 2).await;
    let key = Key::ShardHot { tenant: TENANT, shard: shard(0) };
    let Answer::Value(Some(whole)) =
        coordinator.store_mut().read(vec![Read::Get(key)]).await.unwrap().remove(0)
    else {
        panic!("a registered shard is there");
    };
    let mut damaged = whole.bytes.clone();
    damaged[20] ^= 4;
    let newer = in_newer_format(&key, &whole.bytes, FORMAT_VERSION + 1);
    for (bytes, is_newer) in [(damaged, false), (newer, true)] {
        put(&mut coordinator, key, bytes.clone()).await;
        let refused = acquire(&mut coordinator, 10, 0, 1).await;
        let Err(AcquireError::BackendError(error)) = refused else { panic!("{refused:?}") };
        let says_newer =
            matches!(&error, InfraError::Refused { why: StoreRefusal::NewerFormat, .. });
        assert_eq!(says_newer, is_newer, "{error}");
        assert!(is_newer || matches!(error, InfraError::Corruption { .. }), "{error}");
        assert_eq!(error.to_string().contains("upgrade"), is_newer, "{error}");
        let stored = coordinator.store_mut().read(vec![Read::Get(key)]).await.unwrap().remove(0);
        assert!(matches!(stored, Answer::Value(Some(stored)) if stored.bytes == bytes));
    }
    acquire(&mut coordinator, 10, 1, 1).await.expect("its neighbour is well");
    put(&mut coordinator, key, whole.bytes).await;
    acquire(&mut coordinator, 10, 0, 1).await.expect("it is as it was");
}

/// Writes what no coordinator would.
async fn put<K: EtcdKv>(coordinator: &mut Coordinator<K>, key: Key, bytes: Vec<u8>) {
    let mut txn = Txn::new();
    txn.put(key, bytes);
    let outcome = coordinator.store_mut().commit(vec![txn]).await.remove(0);
    assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
}

/// Keys of the coordinator's namespace.
async fn key_count<K: EtcdKv>(coordinator: &Coordinator<K>) -> i64 {
    let span = coordinator.store().namespace().everything();
    let request = RangeRequest {
        key: span.start,
        range_end: span.end,
        count_only: true,
        ..Default::default()
    };
    coordinator.store().kv().range(request).await.unwrap().count
}

fn plan_of(points: &[[u8; 5]], count: usize) -> SplitReplacePlan<'_> {
    let children = points.windows(2).take(count).map(|pair| {
        SplitChild::new(ShardSpecRef::new(&pair[0], &pair[1], b""), CursorUpdate::initial())
    });
    SplitReplacePlan::try_new(children).unwrap()
}

/// Points that cut the first shard of a run into `count` parts.
fn points(count: usize) -> Vec<[u8; 5]> {
    let last = u32::try_from(count).unwrap();
    (0..=last)
        .map(|point| {
            let [_, _, high, low] = point.to_be_bytes();
            if point == last { [0, 0, 0, 2, 0] } else { [0, 0, 0, 1, high.max(low)] }
        })
        .collect()
}

#[tokio::test]
async fn a_split_has_256_children_where_the_server_allows() {
    let flags = ServerOptions::with_flags(&["--max-txn-ops=1024"]);
    let server = EtcdServer::with_options(&flags);
    let endpoint = server.endpoint();
    let mut config = real_servers::config([endpoint.trim_start_matches("http://")]);
    config.max_txn_ops = 1024;
    let mut coordinator =
        start(GrpcClient::new(&GrpcConfig::new([server.endpoint()])).unwrap(), &config);
    assert_eq!(coordinator.split_children_max(), MAX_SPLIT_CHILDREN);
    split_first_shard(&mut coordinator, MAX_SPLIT_CHILDREN).await.unwrap();
    let progress = coordinator.get_run_progress(at(9), TENANT, RUN).await.unwrap();
    assert_eq!(progress.total, 1 + MAX_SPLIT_CHILDREN as u64);
}

#[tokio::test]
async fn a_split_that_exceeds_a_default_server_is_refused_with_both_numbers() {
    let servers = Servers::Single;
    let mut coordinator = start(servers.client(), &servers.config());
    let max = coordinator.split_children_max();
    let refused = split_first_shard(&mut coordinator, max + 1).await;
    let Err(SplitError::SplitInvalid(SplitValidationError::BackendChildLimitExceeded {
        requested,
        backend_max,
    })) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((requested, backend_max), (max + 1, max));
}

/// A run of one shard, cut into `count`.
async fn split_first_shard<K: EtcdKv>(
    coordinator: &mut Coordinator<K>,
    count: usize,
) -> Result<(), SplitError> {
    let range = [[0, 0, 0, 1, 0], [0, 0, 0, 2, 0]];
    let spec = ShardSpecRef::new(&range[0], &range[1], b"");
    let cursor = CursorUpdate::initial();
    let root = InitialShardInput { shard_id: ShardId::from_raw(0), spec, cursor };
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
    coordinator.create_run(at(1), TENANT, RUN, config).await.unwrap();
    coordinator.register_shards(at(2), TENANT, RUN, &[root], op(1)).await.unwrap();
    let lease = acquire(coordinator, 3, 0, 1).await.unwrap();
    let points = points(count);
    let plan = plan_of(&points, count);
    coordinator.split_replace(at(4), TENANT, &lease, &plan, op(2)).await.map(|_| ())
}

/// The round trips of a worker without contention.
#[tokio::test]
async fn a_checkpoint_is_one_round_trip_and_a_claim_at_most_three() {
    let servers = Servers::Single;
    let kv = LossyKv::new(servers.client());
    let mut coordinator = start(kv.clone(), &servers.config());
    create(&mut coordinator, 50).await;
    let (mut scratch, worker) = (AcquireScratch::new(), WorkerId::from_raw(1));
    // The first claim of a handle costs no more than the later ones. The owner lease of the process
    // is not counted: it is granted while the shard is read (`owner_lease_tests.rs`).
    let mut lease = None;
    for now in [9, 10] {
        let before = kv.request_count();
        let claim = coordinator.claim_next_available(at(now), TENANT, RUN, worker, &mut scratch);
        lease = Some(claim.await.unwrap().lease);
        let trips = kv.request_count() - before;
        assert!(trips <= 3, "{trips} round trips for a claim at {now}");
    }
    let lease = lease.unwrap();
    let start = u32::try_from(lease.shard().as_raw()).unwrap() + 1;
    for number in 0..5_u8 {
        let before = kv.request_count();
        let key = [start.to_be_bytes().as_slice(), &[number]].concat();
        let op = op(10 + u64::from(number));
        coordinator.checkpoint(at(20), TENANT, &lease, cursor(&key), op).await.unwrap();
        assert_eq!(kv.request_count() - before, 1, "checkpoint {number}");
    }
}

/// Whether the owner key of the first shard is there.
async fn owner_key_stands<K: EtcdKv>(coordinator: &Coordinator<K>) -> bool {
    let store = coordinator.store();
    let key = store.namespace().key(&Key::Owner { tenant: TENANT, shard: shard(0) });
    let found = store.kv().range(RangeRequest { key, ..Default::default() }).await.unwrap();
    !found.kvs.is_empty()
}

/// A leader that stalls revokes leases of healthy workers. The fence is still current, so nothing
/// is lost: the first commit after a keep-alive has noticed writes the key again.
#[tokio::test]
async fn an_owner_whose_key_vanished_writes_it_again_and_keeps_its_shard() {
    let servers = Servers::Single;
    let config = EtcdConfig { max_clock_skew: Duration::from_millis(SKEW), ..servers.config() };
    let mut owner = start(servers.client(), &config);
    create(&mut owner, 1).await;
    let lease = acquire(&mut owner, 10, 0, 1).await.unwrap();
    assert!(owner_key_stands(&owner).await);
    let etcd_lease = owner.store().owner_lease().expect("granted with the owner key");
    owner.store().kv().lease_revoke(etcd_lease).await.unwrap();
    assert!(!owner_key_stands(&owner).await, "revoking the lease deletes the key");
    // The next keep-alive reports the loss, and the next commit binds the owner key again.
    owner.store().keep_alive().await;
    owner.checkpoint(at(20), TENANT, &lease, cursor(&[0, 0, 0, 1, 1]), op(2)).await.unwrap();
    assert!(owner_key_stands(&owner).await);
    assert_ne!(owner.store().owner_lease(), Some(etcd_lease));
    let mut other = start(servers.client(), &config);
    let refused = acquire(&mut other, 30, 0, 2).await;
    assert!(matches!(refused, Err(AcquireError::AlreadyLeased { .. })), "{refused:?}");
    owner.complete(at(40), TENANT, &lease, cursor(&[0, 0, 0, 1, 2]), op(3)).await.unwrap();
}

/// A stopped worker sends no keep-alives. Others wait for its deadline, longer while its owner key
/// exists, and then every late write of the stopped worker is refused.
#[tokio::test]
async fn a_stopped_worker_is_replaced_after_its_deadline_and_its_writes_are_refused() {
    let servers = Servers::Single;
    let ttl = Duration::from_secs(2);
    let max_clock_skew = Duration::from_millis(SKEW);
    let config = EtcdConfig { max_clock_skew, owner_lease_ttl: ttl, ..servers.config() };
    let began = Instant::now();
    let store = EtcdStore::without_tasks(servers.client(), &config).unwrap();
    let mut stopped = AsyncStoreCoordinator::new(store, config.store_config());
    create(&mut stopped, 1).await;
    let lease = acquire(&mut stopped, 10, 0, 1).await.unwrap();
    let deadline = 10 + LEASE;
    let mut other = start(servers.client(), &config);
    let mut taken = None;
    for now in [deadline - 1, deadline, deadline + SKEW - 1] {
        match acquire(&mut other, now, 0, 2).await {
            Err(AcquireError::AlreadyLeased { lease_deadline, .. })
                if lease_deadline == at(deadline + SKEW) => {}
            // On a machine that stood still meanwhile the key is gone, and the deadline is enough.
            early if began.elapsed() >= ttl => {
                assert_eq!(early.is_ok(), now >= deadline, "{early:?} at {now}");
                taken = early.ok();
            }
            told => panic!("while the owner key exists: {told:?} at {now}"),
        }
        if taken.is_some() {
            break;
        }
    }
    let taken = match taken {
        Some(taken) => taken,
        None => {
            let patience = Instant::now() + EXPIRY_TIMEOUT;
            while owner_key_stands(&other).await {
                assert!(Instant::now() < patience, "the owner key outlives its lease");
                other.store().kv().sleep(100).await;
            }
            let early = acquire(&mut other, deadline - 1, 0, 2).await;
            assert!(early.is_err(), "a missing owner key never steals a lease: {early:?}");
            acquire(&mut other, deadline, 0, 2).await.unwrap()
        }
    };
    assert!(taken.fence() > lease.fence());
    let late = stopped.checkpoint(at(20), TENANT, &lease, cursor(&[0, 0, 0, 1, 1]), op(2)).await;
    assert!(matches!(late, Err(CheckpointError::StaleFence { .. })), "{late:?}");
    other
        .checkpoint(at(deadline + 1), TENANT, &taken, cursor(&[0, 0, 0, 1, 2]), op(3))
        .await
        .unwrap();
}

#[test]
fn a_cluster_that_is_not_there_is_an_error_that_says_so() {
    // Nothing listens on the discard port of a test machine.
    let mut config = EtcdConfig::new(["127.0.0.1:9"], "nobody").unwrap();
    config.connect_timeout = Duration::from_millis(200);
    let error = config.connect_blocking().expect_err("no server listens there");
    assert!(matches!(error, ConnectError::Server(_)), "{error}");
    assert!(error.to_string().contains("check that etcd runs"), "{error}");
}

#[test]
fn endpoints_of_two_clusters_are_refused_at_the_door() {
    let servers = [EtcdServer::single(), EtcdServer::single()];
    let hosts = servers.each_ref().map(|it| format!("127.0.0.1:{}", it.client_port()));
    let config = EtcdConfig::new(hosts, "two").unwrap();
    let error = config.connect_blocking().expect_err("two clusters");
    assert!(error.to_string().contains("belongs to another cluster"), "{error}");
}

#[test]
fn a_missing_file_of_tls_is_named() {
    let url = "etcd://127.0.0.1/nobody?ca=no-such-file.pem";
    let error = EtcdConfig::from_url(url).unwrap().connect_blocking().expect_err("no such file");
    assert!(error.to_string().contains("no-such-file.pem"), "{error}");
}

#[test]
fn an_url_with_an_authority_connects_by_tls_and_one_without_does_not() {
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let cert_pem = signed.cert.pem();
    let directory = TestDirectory::new("etcd-url");
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, &cert_pem).unwrap();
    let key_pem = signed.signing_key.serialize_pem();
    let tls = Some(ServerTls { cert_pem, key_pem, client_ca_pem: None });
    let server = EtcdServer::with_options(&ServerOptions { flags: Vec::new(), tls });
    let plain = format!("etcd://127.0.0.1:{}/tls", server.client_port());
    let url = format!("{plain}?ca={}", ca_file.display());
    let mut coordinator = EtcdConfig::from_url(&url).unwrap().connect_blocking().unwrap();
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
    RunManagement::create_run(&mut coordinator, at(1), TENANT, RUN, config).unwrap();
    let error = EtcdConfig::from_url(&plain).unwrap().connect_blocking().expect_err("plain text");
    assert!(matches!(error, ConnectError::Server(_)), "{error}");
}

/// It blocks a thread of the caller's runtime, and that is all.
#[tokio::test]
async fn the_blocking_coordinator_works_inside_of_a_runtime() {
    let mut coordinator = Servers::Single.config().connect_blocking().unwrap();
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, None).unwrap();
    RunManagement::create_run(&mut coordinator, at(1), TENANT, RUN, config).unwrap();
    let lease_of_nobody = CoordinationBackend::acquire_and_restore_into(
        &mut coordinator,
        at(2),
        TENANT,
        shard(0),
        WorkerId::from_raw(1),
        &mut AcquireScratch::new(),
    )
    .map(|granted| granted.lease);
    assert!(matches!(lease_of_nobody, Err(AcquireError::ShardNotFound { .. })));
}
