//! A worker that is a process of its own, stopped by a signal for longer than its lease lasts.
//!
//! The worker holds a shard, checkpoints its cursor and renews its lease. It is stopped
//! (`SIGSTOP`); another worker waits until the shard is free and acquires it; the stopped worker
//! resumes (`SIGCONT`) as if no time had passed, and writes. The oracle compares the lines that the
//! worker printed with the stored state:
//!
//! - **no early takeover**: the shard is taken over after every deadline that was returned to the
//!   worker, so a renewal that is accepted late is detected as well;
//! - **nothing acknowledged is lost**: the other worker gets a cursor at or after every checkpoint
//!   that was acknowledged to the stopped one;
//! - **no stale write is accepted**: the late write is refused because of its fence, and the cursor
//!   stays where the other worker found it.
//!
//! It panics at the first violation, and it measures how long the shard had no worker.

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
    RunManagement, ShardFilter,
};
use gossip_coordination_etcd::{EtcdConfig, EtcdCoordinator};
use gossip_testkit::test_support::send_signal;

/// Makes a process act as the worker; the value is the store URL.
const PLACE: &str = "GOSSIP_TEST_WORKER";
/// The run whose shard it holds.
const NUMBER: &str = "GOSSIP_TEST_WORKER_RUN";

/// What the worker's lines begin with; a test harness prints others.
const SAYS: &str = "worker: ";

const TENANT: TenantId = TenantId::from_bytes([4; 32]);
const SHARD: ShardId = ShardId::from_raw(0);

/// Who is stopped, and who takes over.
const WORKER: WorkerId = WorkerId::from_raw(1);
const OTHER: WorkerId = WorkerId::from_raw(2);

/// How long a lease lasts: long enough for a busy machine to renew it in time.
const LEASE_MILLIS: u64 = 5_000;

/// Checkpoints of the first worker before it is stopped.
const BEFORE_STOP: u64 = 10;

/// As many more of each one after it, up to a bound: they are stopped at all ages of their leases,
/// some after a renewal.
const MORE_EACH: u64 = 25;
const AGES: u64 = 8;

/// Between two checkpoints, and between two attempts to acquire a leased shard.
const PAUSE: Duration = Duration::from_millis(20);

/// A takeover that needs longer does not happen: a lease, an owner lease, and a busy machine.
const GIVE_UP: Duration = Duration::from_secs(60);

/// How a shard was taken over by another worker.
#[derive(Clone, Copy, Debug)]
pub struct Takeover {
    /// From the signal to the grant.
    pub after_stop: Duration,
    /// From the end of the lease to the grant, in milliseconds of the clock that processes share.
    pub after_lease: Duration,
    /// Checkpoints that were acknowledged to the worker.
    pub acknowledged: u64,
}

/// Workers that are stopped one after the other, each in a run of its own.
#[derive(Debug)]
pub struct StoppedWorkers {
    config: EtcdConfig,
    other: EtcdCoordinator,
    next_run: u64,
}

impl StoppedWorkers {
    /// Creates workers in this namespace, and another coordinator that takes over from them.
    pub fn new(config: EtcdConfig) -> Self {
        let other = config.connect_blocking().expect("the servers are ours");
        Self { config, other, next_run: 1 }
    }

    /// Stops one. `program` must start a process that calls [`be_a_stopped_worker`].
    ///
    /// # Panics
    ///
    /// If anything is promised and not kept.
    pub fn stop_one(&mut self, program: Command) -> Takeover {
        let run = RunId::from_raw(self.next_run);
        let checkpoints = BEFORE_STOP + MORE_EACH * ((self.next_run - 1) % AGES);
        self.next_run += 1;
        create_run(&mut self.other, run);
        let mut worker = Process::start(program, &self.config, run);
        let mut told = Told::default();
        worker.listen(&mut told, |told| told.checkpoints >= checkpoints);

        let stopped = Instant::now();
        worker.signal("STOP");
        let found = self.take_over(run);
        let after_stop = stopped.elapsed();
        let taken_at = wall_clock().as_raw();
        worker.signal("CONT");
        worker.listen(&mut told, |told| told.is_refused);
        worker.end();
        told.judge(taken_at, found, self.stored(run));
        let after_lease = Duration::from_millis(taken_at - told.deadline);
        Takeover { after_stop, after_lease, acknowledged: told.acknowledged }
    }

    /// Retries until the other worker has acquired the shard, and returns its cursor.
    fn take_over(&mut self, run: RunId) -> u64 {
        let begun = Instant::now();
        let mut scratch = AcquireScratch::new();
        loop {
            let key = ShardKey::new(run, SHARD);
            let now = wall_clock();
            match self.other.acquire_and_restore_into(now, TENANT, key, OTHER, &mut scratch) {
                Ok(granted) => return number_in(granted.snapshot.cursor().last_key()),
                Err(AcquireError::AlreadyLeased { .. }) => {}
                Err(AcquireError::BackendError(error)) if error.is_retryable() => {}
                Err(error) => panic!("{error}"),
            }
            assert!(begun.elapsed() < GIVE_UP, "the shard was not taken over");
            thread::sleep(PAUSE);
        }
    }

    /// Returns the stored cursor.
    fn stored(&mut self, run: RunId) -> u64 {
        let (mut rows, all) = (Vec::new(), ShardFilter::all());
        let listed = self.other.list_shards_into(wall_clock(), TENANT, run, all, &mut rows);
        listed.expect("the servers are ours");
        let [row] = &rows[..] else { panic!("the run has {} shards", rows.len()) };
        number_in(row.last_key.as_deref())
    }
}

/// A clock that processes share.
pub fn wall_clock() -> LogicalTime {
    #[expect(clippy::disallowed_methods, reason = "two processes need one clock")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = now.expect("1970 is over").as_millis();
    LogicalTime::from_raw(u64::try_from(millis).expect("the year is not that far away"))
}

/// Is the worker, if this process was started as one: holds its shard and moves its cursor until
/// it is refused. Answers whether it was.
///
/// # Panics
///
/// If it is not refused in time, or for another reason than its fence.
pub fn be_a_stopped_worker() -> bool {
    let (Ok(place), Ok(run)) = (std::env::var(PLACE), std::env::var(NUMBER)) else {
        return false;
    };
    let config = EtcdConfig::from_url(&place).expect("the place was written by us");
    let run = RunId::from_raw(run.parse().expect("the run was written by us"));
    let mut coordinator = config.connect_blocking().expect("the servers are ours");
    hold(&mut coordinator, run);
    true
}

fn hold(coordinator: &mut EtcdCoordinator, run: RunId) {
    let (mut scratch, key) = (AcquireScratch::new(), ShardKey::new(run, SHARD));
    let now = wall_clock();
    let granted = coordinator.acquire_and_restore_into(now, TENANT, key, WORKER, &mut scratch);
    let mut lease = granted.expect("no other worker claims it yet").lease;
    say("until", lease.deadline().as_raw());
    let begun = Instant::now();
    let mut number = 1;
    while begun.elapsed() < GIVE_UP {
        // The write comes first: it, and not the renewal, is what must be refused.
        match checkpoint(coordinator, &lease, number) {
            Ok(()) => say("advanced", number),
            Err(CheckpointError::StaleFence { .. }) => return say("refused", number),
            // It may have happened: the same once more.
            Err(CheckpointError::BackendError(error)) if error.is_retryable() => continue,
            Err(error) => panic!("{error}"),
        }
        renew(coordinator, &mut lease);
        number += 1;
        thread::sleep(PAUSE);
    }
    panic!("the worker was not stopped");
}

fn checkpoint(
    coordinator: &mut EtcdCoordinator,
    lease: &Lease,
    number: u64,
) -> Result<(), CheckpointError> {
    let key = key_of(number);
    let cursor = CursorUpdate::try_from_parts(Some(&key), None).expect("a short key");
    let op = OpId::from_raw(10 + number);
    coordinator.checkpoint(wall_clock(), TENANT, lease, cursor, op).map(drop)
}

/// Renews a lease of which half is gone.
fn renew(coordinator: &mut EtcdCoordinator, lease: &mut Lease) {
    let now = wall_clock();
    if now.as_raw() + LEASE_MILLIS / 2 < lease.deadline().as_raw() {
        return;
    }
    // A failed renewal is ignored: if the lease is lost, the next write fails.
    if let Ok(renewed) = coordinator.renew(now, TENANT, lease) {
        lease.set_deadline(renewed.new_deadline);
        say("until", lease.deadline().as_raw());
    }
}

#[expect(clippy::print_stdout, reason = "the parent process reads the worker's output")]
fn say(word: &str, number: u64) {
    println!("{SAYS}{word} {number}");
}

fn create_run(coordinator: &mut EtcdCoordinator, run: RunId) {
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE_MILLIS, None);
    let config = config.expect("a plain run");
    let spec = ShardSpecRef::new(b"a", b"z", b"");
    let root = InitialShardInput { shard_id: SHARD, spec, cursor: CursorUpdate::initial() };
    let (now, op) = (wall_clock(), OpId::from_raw(1));
    let created = coordinator.create_run_with_shards(now, TENANT, run, config, &[root], op);
    created.expect("a new run");
}

fn key_of(number: u64) -> Vec<u8> {
    [b"b".as_slice(), &number.to_be_bytes()].concat()
}

/// The number in a cursor that [`key_of`] wrote; zero without one.
fn number_in(key: Option<&[u8]>) -> u64 {
    let digits = key.and_then(|key| key.get(1..9));
    digits.map_or(0, |digits| u64::from_be_bytes(digits.try_into().expect("eight bytes")))
}

/// The replies that the worker received, as it printed them.
#[derive(Debug, Default)]
struct Told {
    /// When its lease ends, after every renewal that it knows of.
    deadline: u64,
    /// The highest checkpoint that was acknowledged.
    acknowledged: u64,
    checkpoints: u64,
    is_refused: bool,
}

impl Told {
    fn hear(&mut self, word: &str, number: u64) {
        match word {
            "until" => self.deadline = self.deadline.max(number),
            "advanced" => {
                self.acknowledged = self.acknowledged.max(number);
                self.checkpoints += 1;
            }
            "refused" => self.is_refused = true,
            other => panic!("the worker says {other}"),
        }
    }

    /// Compares with the time of the takeover, the cursor at that time, and the cursor at the end.
    fn judge(&self, taken_at: u64, found: u64, stored: u64) {
        let Self { deadline, acknowledged, .. } = *self;
        assert!(taken_at >= deadline, "taken over {} ms early", deadline - taken_at);
        assert_eq!(stored, found, "a stale write was accepted");
        assert!(found >= acknowledged, "acknowledged progress is lost: {found}, {acknowledged}");
    }
}

/// The child process.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(mut program: Command, config: &EtcdConfig, run: RunId) -> Self {
        let EtcdConfig { endpoints, namespace, owner_lease_ttl, max_clock_skew, .. } = config;
        let (hosts, path) = (endpoints.join(","), namespace.path());
        let (ttl, skew) = (owner_lease_ttl.as_secs(), max_clock_skew.as_millis());
        let place = format!("etcd://{hosts}/{path}?owner_lease_ttl={ttl}s&max_clock_skew={skew}ms");
        program.env(PLACE, place).env(NUMBER, run.as_raw().to_string()).stdout(Stdio::piped());
        let mut child = program.spawn().expect("a process of our own starts");
        let stdout = child.stdout.take().expect("its output was asked for");
        Self { child, lines: BufReader::new(stdout).lines() }
    }

    fn signal(&self, name: &str) {
        send_signal(name, self.child.id());
    }

    /// Reads its output until `is_enough` holds.
    fn listen(&mut self, told: &mut Told, is_enough: impl Fn(&Told) -> bool) {
        while !is_enough(told) {
            let line = self.lines.next().expect("the worker says how it ends");
            let line = line.expect("the worker speaks plainly");
            if let Some((word, number)) = line.split_once(SAYS).and_then(|it| it.1.split_once(' '))
            {
                told.hear(word, number.parse().expect("a number comes with every word"));
            }
        }
    }

    fn end(&mut self) {
        // A harness may print more, and must not find its output closed.
        self.lines.by_ref().for_each(drop);
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "the worker ended with {status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker with a lease until 100, whose fifth checkpoint was acknowledged.
    fn told() -> Told {
        let mut told = Told::default();
        for (word, number) in [("until", 50), ("advanced", 5), ("until", 100), ("refused", 6)] {
            told.hear(word, number);
        }
        told
    }

    #[test]
    fn a_fair_takeover_is_let_pass() {
        told().judge(100, 5, 5);
        // The sixth checkpoint was applied, but the worker was stopped before the reply arrived.
        told().judge(101, 6, 6);
    }

    #[test]
    #[should_panic(expected = "taken over 1 ms early")]
    fn an_early_takeover_is_seen() {
        told().judge(99, 5, 5);
    }

    #[test]
    #[should_panic(expected = "a stale write was accepted")]
    fn a_stale_write_is_seen() {
        told().judge(100, 5, 6);
    }

    #[test]
    #[should_panic(expected = "acknowledged progress is lost")]
    fn lost_progress_is_seen() {
        told().judge(100, 4, 4);
    }
}
