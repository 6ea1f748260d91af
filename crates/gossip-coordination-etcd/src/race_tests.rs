//! Processes that race for the same shards: no limit is overshot, no fence given twice, and what
//! was acknowledged is there.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireError, AcquireScratch, CoordinationBackend, CreateRunError, Lease, RegisterShardsError,
    RunConfig, RunManagement,
};

use crate::real_servers::Servers;
use crate::test_support::wall_clock as now;
use crate::{EtcdConfig, EtcdCoordinator};

/// Tells the same test, in a process of its own, to race, and where.
const PLACE: &str = "GOSSIP_TEST_RACER";
/// The number of that process.
const NUMBER: &str = "GOSSIP_TEST_RACER_NUMBER";

/// What a racer's lines begin with; the test harness prints others.
const SAYS: &str = "racer: ";

const PROCESSES: u64 = 4;
/// Shards that the tenant may have, the one that all race for included.
const SHARDS_MAX: usize = 25;
/// Leases that each process wants on the shard that all race for.
const GRANTS: u64 = 15;

const TENANT: TenantId = TenantId::from_bytes([6; 32]);
const SHARED: RunId = RunId::from_raw(1);
const LEASE_MILLIS: u64 = 30_000;

/// Between two looks at a shard that somebody has.
const PAUSE: Duration = Duration::from_millis(2);

/// A race that lasts longer does not end.
const GIVE_UP: Duration = Duration::from_secs(120);

#[test]
fn racing_processes_overshoot_no_limit_and_share_no_fence() {
    if let Ok(place) = std::env::var(PLACE) {
        return race(&place);
    }
    let config = EtcdConfig { max_shards_per_tenant: SHARDS_MAX, ..Servers::Three.config() };
    let mut judge = config.connect_blocking().unwrap();
    create(&mut judge, SHARED).unwrap();
    let racers: Vec<Child> = (0..PROCESSES).map(|number| start(&config, number)).collect();
    let said: Vec<(String, u64)> = racers.into_iter().flat_map(finish).collect();

    let numbers = |word: &str| -> Vec<u64> {
        said.iter().filter(|(said, _)| said == word).map(|(_, number)| *number).collect()
    };
    let created = numbers("created");
    assert_eq!(created.len() + 1, SHARDS_MAX, "{created:?}");
    for run in created {
        judge.get_run(TENANT, RunId::from_raw(run)).expect("it was acknowledged");
    }
    assert!(is_limit(&create(&mut judge, RunId::from_raw(2))), "there was room for more");

    let fences = numbers("granted");
    assert_eq!(fences.len() as u64, PROCESSES * GRANTS);
    let distinct: BTreeSet<u64> = fences.iter().copied().collect();
    assert_eq!(distinct.len(), fences.len(), "a fence was given twice");
    let last = acquire(&mut judge, PROCESSES).unwrap().fence().as_raw();
    assert!(distinct.iter().all(|fence| *fence < last));
}

/// One process: fills the tenant with runs of one shard, then takes the shared shard again and
/// again, and moves it on.
fn race(place: &str) {
    let number: u64 = std::env::var(NUMBER).unwrap().parse().unwrap();
    let say = |word: &str, number: u64| println!("{SAYS}{word} {number}");
    let mut coordinator = EtcdConfig::from_url(place).unwrap().connect_blocking().unwrap();
    for nth in 1.. {
        let run = number * 1_000 + 1_000 + nth;
        let created = create(&mut coordinator, RunId::from_raw(run));
        if is_limit(&created) {
            break;
        }
        created.unwrap();
        say("created", run);
    }
    for nth in 0..GRANTS {
        let lease = acquire_surely(&mut coordinator, number);
        let fence = lease.fence().as_raw();
        say("granted", fence);
        // Fences rise, so a cursor that follows them does.
        let key = [&b"b"[..], &fence.to_be_bytes()].concat();
        let cursor = CursorUpdate::try_from_parts(Some(&key), None).unwrap();
        let op = |step| OpId::from_raw(number * 1_000 + nth * 2 + step + 10);
        coordinator.checkpoint(now(), TENANT, &lease, cursor, op(0)).unwrap();
        coordinator.release(now(), TENANT, &lease, ReleaseMode::Clean, op(1)).unwrap();
    }
}

fn start(config: &EtcdConfig, number: u64) -> Child {
    let name = "race_tests::racing_processes_overshoot_no_limit_and_share_no_fence";
    let (hosts, path) = (config.endpoints.join(","), config.namespace.path());
    let place = format!("etcd://{hosts}/{path}?max_shards_per_tenant={SHARDS_MAX}");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(PLACE, place)
        .env(NUMBER, number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a racer said, when it has ended well.
fn finish(racer: Child) -> Vec<(String, u64)> {
    let output = racer.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let said = text.lines().filter_map(|line| line.split_once(SAYS)?.1.split_once(' '));
    said.map(|(word, number)| (word.to_owned(), number.parse().unwrap())).collect()
}

/// A run with one shard.
fn create(coordinator: &mut EtcdCoordinator, run: RunId) -> Result<(), CreateRunError> {
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE_MILLIS, None).unwrap();
    let spec = ShardSpecRef::new(b"a", b"z", b"");
    let shard_id = ShardId::from_raw(0);
    let root = InitialShardInput { shard_id, spec, cursor: CursorUpdate::initial() };
    let op = OpId::from_raw(1);
    coordinator.create_run_with_shards(now(), TENANT, run, config, &[root], op).map(drop)
}

fn is_limit(created: &Result<(), CreateRunError>) -> bool {
    let Err(CreateRunError::RegisterShardsFailed(error)) = created else { return false };
    matches!(error, RegisterShardsError::ShardLimitExceeded { .. })
}

fn acquire(coordinator: &mut EtcdCoordinator, worker: u64) -> Result<Lease, AcquireError> {
    let (mut scratch, worker) = (AcquireScratch::new(), WorkerId::from_raw(worker + 1));
    let shard = ShardKey::new(SHARED, ShardId::from_raw(0));
    let granted = coordinator.acquire_and_restore_into(now(), TENANT, shard, worker, &mut scratch);
    granted.map(|granted| granted.lease)
}

/// Tries until the shard is ours.
fn acquire_surely(coordinator: &mut EtcdCoordinator, worker: u64) -> Lease {
    let begun = Instant::now();
    loop {
        match acquire(coordinator, worker) {
            Ok(lease) => return lease,
            Err(AcquireError::AlreadyLeased { .. }) => thread::sleep(PAUSE),
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < GIVE_UP, "the shard is never free");
    }
}
