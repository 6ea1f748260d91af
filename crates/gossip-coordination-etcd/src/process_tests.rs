//! A worker that is a process of its own, stopped by a signal for longer than its lease lasts.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::{
    AcquireError, AcquireScratch, CheckpointError, CoordinationBackend, Lease, RunConfig,
    RunManagement,
};

use crate::real_servers::Servers;
use crate::{EtcdConfig, EtcdCoordinator};

/// Tells the same test, in a process of its own, to be the worker, and where.
const PLACE: &str = "GOSSIP_TEST_WORKER";

/// What the worker's lines begin with; the test harness prints others.
const SAYS: &str = "worker: ";

const TENANT: TenantId = TenantId::from_bytes([4; 32]);
const RUN: RunId = RunId::from_raw(2);
const SHARD: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));
const LEASE_MILLIS: u64 = 5_000;

/// A takeover that needs longer does not happen: a lease, an owner lease, and a busy machine.
const GIVE_UP: Duration = Duration::from_secs(60);

#[test]
fn a_stopped_process_is_replaced_and_its_late_write_refused() {
    if let Ok(place) = std::env::var(PLACE) {
        return be_the_worker(&place);
    }
    let config = EtcdConfig { owner_lease_ttl: Duration::from_secs(2), ..Servers::Single.config() };
    let mut other = config.connect_blocking().unwrap();
    create_run(&mut other);
    let mut worker = Worker::start(&config);
    let acquired_by: u64 = worker.expect("acquired");
    worker.expect("advanced");

    worker.signal("STOP");
    let taken_at = take_over(&mut other, acquired_by + LEASE_MILLIS);
    worker.signal("CONT");
    // What it says next it may have done before it was stopped, or be refused.
    loop {
        let (word, at) = worker.next();
        match &*word {
            "advanced" => assert!(at < taken_at, "a stale write was accepted"),
            "refused" => break,
            other => panic!("the worker says {other}"),
        }
    }
    assert!(worker.process.wait().unwrap().success());
}

/// A clock that processes share.
pub(crate) fn now() -> LogicalTime {
    #[expect(clippy::disallowed_methods, reason = "two processes need one clock")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    LogicalTime::from_raw(u64::try_from(now.as_millis()).unwrap())
}

fn create_run(coordinator: &mut EtcdCoordinator) {
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE_MILLIS, None).unwrap();
    let spec = ShardSpecRef::new(b"a", b"z", b"");
    let root = InitialShardInput { shard_id: SHARD.shard(), spec, cursor: CursorUpdate::initial() };
    let op = OpId::from_raw(1);
    coordinator.create_run_with_shards(now(), TENANT, RUN, config, &[root], op).unwrap();
}

fn acquire(coordinator: &mut EtcdCoordinator, worker: u64) -> Result<Lease, AcquireError> {
    let (mut scratch, worker) = (AcquireScratch::new(), WorkerId::from_raw(worker));
    let granted = coordinator.acquire_and_restore_into(now(), TENANT, SHARD, worker, &mut scratch);
    granted.map(|granted| granted.lease)
}

/// Tries until the shard is ours, and answers when that was. Never before `earliest`.
fn take_over(other: &mut EtcdCoordinator, earliest: u64) -> u64 {
    let begun = Instant::now();
    loop {
        match acquire(other, 2) {
            Ok(_) => break,
            Err(AcquireError::AlreadyLeased { .. }) => thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < GIVE_UP, "nobody takes over");
    }
    let taken_at = now().as_raw();
    assert!(taken_at >= earliest, "taken over {} ms early", earliest - taken_at);
    taken_at
}

/// The child process.
struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(config: &EtcdConfig) -> Self {
        let name = "process_tests::a_stopped_process_is_replaced_and_its_late_write_refused";
        let (hosts, path) = (config.endpoints.join(","), config.namespace.path());
        let place = format!("etcd://{hosts}/{path}?owner_lease_ttl=2s&max_clock_skew=0ms");
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PLACE, place)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// The time that comes with `word`, which is what it says next.
    fn expect(&mut self, word: &str) -> u64 {
        let (said, at) = self.next();
        assert_eq!(said, word);
        at
    }

    /// What it says next, and when it had asked.
    fn next(&mut self) -> (String, u64) {
        loop {
            let line = self.lines.next().expect("the worker says how it ends").unwrap();
            if let Some(said) = line.split_once(SAYS).map(|(_, said)| said) {
                let (word, at) = said.split_once(' ').unwrap();
                return (word.to_owned(), at.parse().unwrap());
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.process.kill();
    }
}

/// Holds the shard and moves its cursor until it is refused.
fn be_the_worker(place: &str) {
    let say = |word: &str, at: LogicalTime| println!("{SAYS}{word} {}", at.as_raw());
    let mut coordinator = EtcdConfig::from_url(place).unwrap().connect_blocking().unwrap();
    let asked = now();
    let lease = acquire(&mut coordinator, 1).unwrap();
    say("acquired", asked);
    for number in 0..u8::MAX {
        let (key, asked) = ([b'b', number], now());
        let cursor = CursorUpdate::try_from_parts(Some(&key), None).unwrap();
        let op = OpId::from_raw(10 + u64::from(number));
        match coordinator.checkpoint(asked, TENANT, &lease, cursor, op) {
            Ok(_) => say("advanced", asked),
            Err(CheckpointError::StaleFence { .. }) => return say("refused", asked),
            Err(error) => panic!("{error}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("nobody stopped the worker");
}
