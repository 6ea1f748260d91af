//! Processes that race for the same shards: no quota is exceeded, no fence is granted twice, and
//! every acknowledged operation is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef, SplitResidualPlan,
    SplitValidationError,
};
use gossip_contracts::identity::{OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::store::{Allotment, fly, set_allotment};
use gossip_coordination::{
    AcquireError, AcquireResultView, AcquireScratch, ClaimError, CoordinationBackend,
    CreateRunError, Lease, RegisterShardsError, RunConfig, RunManagement, ShardClaiming,
    ShardFilter, SplitError,
};
use gossip_coordination_etcd::{EtcdConfig, EtcdCoordinator};
use gossip_testkit_etcd::wall_clock as now;

use crate::real_servers::Servers;

/// Makes the same test, in a process of its own, act as a racer; the value is the store URL.
const PLACE: &str = "GOSSIP_TEST_RACER";
/// The number of that process.
const NUMBER: &str = "GOSSIP_TEST_RACER_NUMBER";

/// What a racer's lines begin with; the test harness prints others.
const SAYS: &str = "racer: ";

const PROCESSES: u64 = 4;
/// Shards that a tenant may have.
const SHARDS_MAX: usize = 25;
/// Leases that each process wants on the shard that all race for, and as many on any shard.
const GRANTS: u64 = 15;

/// Its runs have one shard each, and are created in the race.
const MANY_RUNS: TenantId = TenantId::from_bytes([6; 32]);
/// Its only run begins with one shard and is split in the race.
const ONE_RUN: TenantId = TenantId::from_bytes([7; 32]);
const SHARED: RunId = RunId::from_raw(1);
const ROOT: ShardId = ShardId::from_raw(0);
const LEASE_MILLIS: u64 = 30_000;

/// The range of a shard that was not split yet: halved [`SHARDS_MAX`] times, there is room left.
const RANGE: [u64; 2] = [1, 1 << 62];

/// Between two attempts to claim a shard that is leased.
const PAUSE: Duration = Duration::from_millis(2);

/// A race that lasts longer does not end.
const GIVE_UP: Duration = Duration::from_secs(120);

#[test]
fn racing_processes_overshoot_no_limit_and_share_no_fence() {
    if let Ok(place) = std::env::var(PLACE) {
        return Racer::new(&place).race();
    }
    let config = Servers::Three.config();
    let mut judge = config.connect_blocking().unwrap();
    for tenant in [ONE_RUN, MANY_RUNS] {
        let allotment = Some(Allotment::of_shards(SHARDS_MAX as u64));
        fly(judge.store_mut(), set_allotment(tenant, allotment)).unwrap();
    }
    create(&mut judge, ONE_RUN, SHARED).unwrap();
    let racers: Vec<Child> = (0..PROCESSES).map(|number| start(&config, number)).collect();
    let mut said = Said::default();
    racers.into_iter().for_each(|racer| said.hear(&finish(racer)));

    for run in &said.created {
        judge.get_run(MANY_RUNS, RunId::from_raw(*run)).expect("it was acknowledged");
    }
    let more = create(&mut judge, MANY_RUNS, RunId::from_raw(2));
    assert!(is_limit(&more), "there was room for more runs");
    said.check_counts();
    said.check(&stored(&mut judge));
    let mut scratch = AcquireScratch::new();
    let held = Held::of(acquire(&mut judge, ROOT, PROCESSES, &mut scratch).unwrap());
    let last = held.lease.fence().as_raw();
    let root = ROOT.as_raw();
    assert!(said.granted.range((root, last)..=(root, u64::MAX)).next().is_none(), "fences rise");
    let more = held.split(&mut judge, OpId::from_raw(1));
    assert_eq!(more, None, "there was room for more shards");
}

/// What the judge says of a checkpoint that was acknowledged and is not there.
const LOST: &str = "acknowledged progress is lost";

/// Everything that was acknowledged to the racers.
#[derive(Debug, Default)]
struct Said {
    /// Runs.
    created: BTreeSet<u64>,
    /// By shard and fence: where the cursor stood.
    granted: BTreeMap<(u64, u64), u64>,
    /// By shard and fence: where it was moved to. Under each lease it is moved once.
    advanced: BTreeMap<(u64, u64), u64>,
    /// Shards that were split off.
    split: BTreeSet<u64>,
}

impl Said {
    fn hear(&mut self, lines: &[(String, Vec<u64>)]) {
        for (word, numbers) in lines {
            match (&**word, &numbers[..]) {
                ("created", [run]) => assert!(self.created.insert(*run)),
                ("granted", [shard, fence, found]) => {
                    let other = self.granted.insert((*shard, *fence), *found);
                    assert_eq!(other, None, "a fence was given twice");
                }
                ("advanced", [shard, fence, key]) => {
                    self.advanced.insert((*shard, *fence), *key);
                }
                ("split", [shard]) => {
                    assert!(self.split.insert(*shard), "a shard was born twice");
                }
                other => panic!("a racer says {other:?}"),
            }
        }
    }

    /// Each process got what it wanted, and all together as much as there is room for.
    fn check_counts(&self) {
        assert_eq!(self.granted.len() as u64, PROCESSES * GRANTS * 2);
        assert_eq!(self.created.len(), SHARDS_MAX, "the limit on runs");
        assert_eq!(self.split.len() + 1, SHARDS_MAX, "the limit on shards");
    }

    /// Compares the cursor of each grant with the checkpoints acknowledged under lower fences, and
    /// the final state with the stored shards of the shared run and their cursors.
    /// Every racer ended without an error, so an operation without acknowledgement did not happen.
    fn check(&self, stored: &BTreeMap<u64, Option<u64>>) {
        assert!(stored.len() <= SHARDS_MAX, "{} shards overshoot the limit", stored.len());
        let born: BTreeSet<u64> = self.split.iter().copied().chain([ROOT.as_raw()]).collect();
        assert_eq!(stored.keys().copied().collect::<BTreeSet<_>>(), born, "shards");
        for ((shard, fence), found) in &self.granted {
            assert!(Some(*found) >= self.told_before(*shard, *fence), "{LOST}: {shard}, {fence}");
        }
        for (shard, cursor) in stored {
            let told = self.told_before(*shard, u64::MAX);
            assert!(*cursor >= told, "{LOST} at the end: {shard}");
            assert_eq!(*cursor, told, "this progress was not acknowledged: {shard}");
        }
    }

    /// The last checkpoint under a lower fence than this one.
    fn told_before(&self, shard: u64, fence: u64) -> Option<u64> {
        self.advanced.range((shard, 0)..(shard, fence)).next_back().map(|(_, key)| *key)
    }
}

/// The shards of the shared run, and where their cursors stand.
fn stored(judge: &mut EtcdCoordinator) -> BTreeMap<u64, Option<u64>> {
    let mut rows = Vec::new();
    judge.list_shards_into(now(), ONE_RUN, SHARED, ShardFilter::all(), &mut rows).unwrap();
    rows.iter().map(|row| (row.shard.as_raw(), row.last_key.as_deref().map(number_in))).collect()
}

/// One process: fills a tenant with runs of one shard, then takes shards of the shared run again
/// and again, the first one and any in turn, moves them on and splits them.
struct Racer {
    coordinator: EtcdCoordinator,
    number: u64,
    op_count: u64,
}

impl Racer {
    fn new(place: &str) -> Self {
        let number = std::env::var(NUMBER).unwrap().parse().unwrap();
        let coordinator = EtcdConfig::from_url(place).unwrap().connect_blocking().unwrap();
        Self { coordinator, number, op_count: 0 }
    }

    fn race(mut self) {
        self.fill();
        for _ in 0..GRANTS {
            self.turn(Some(ROOT));
            self.turn(None);
        }
    }

    fn fill(&mut self) {
        for nth in 1.. {
            let run = self.number * 1_000 + 1_000 + nth;
            let created = create(&mut self.coordinator, MANY_RUNS, RunId::from_raw(run));
            if is_limit(&created) {
                return;
            }
            created.unwrap();
            say("created", &[run]);
        }
    }

    fn turn(&mut self, shard: Option<ShardId>) {
        let mut held = self.get(shard);
        let (shard, fence) = (held.lease.shard().as_raw(), held.lease.fence().as_raw());
        say("granted", &[shard, fence, held.at]);
        let op = self.next_op();
        held.advance(&mut self.coordinator, op);
        say("advanced", &[shard, fence, held.at]);
        let op = self.next_op();
        if let Some(child) = held.split(&mut self.coordinator, op) {
            say("split", &[child.as_raw()]);
        }
        let op = self.next_op();
        self.coordinator.release(now(), ONE_RUN, &held.lease, ReleaseMode::Clean, op).unwrap();
    }

    /// Tries until the shard is ours, or any is.
    fn get(&mut self, shard: Option<ShardId>) -> Held {
        let begun = Instant::now();
        let mut scratch = AcquireScratch::new();
        while begun.elapsed() < GIVE_UP {
            let Self { coordinator, number, .. } = self;
            let granted = match shard {
                Some(shard) => match acquire(coordinator, shard, *number, &mut scratch) {
                    Err(AcquireError::AlreadyLeased { .. }) => None,
                    granted => Some(granted.unwrap()),
                },
                None => match claim(coordinator, *number, &mut scratch) {
                    Err(ClaimError::NoneAvailable { .. }) => None,
                    granted => Some(granted.unwrap()),
                },
            };
            if let Some(granted) = granted {
                return Held::of(granted);
            }
            thread::sleep(PAUSE);
        }
        panic!("no shard is ever free");
    }

    /// Unique among all processes.
    fn next_op(&mut self) -> OpId {
        self.op_count += 1;
        OpId::from_raw(((self.number + 1) << 32) | self.op_count)
    }
}

/// A lease and how far its shard has come.
struct Held {
    lease: Lease,
    start: u64,
    /// The last key that was reached, or the first of the shard.
    at: u64,
    end: u64,
}

impl Held {
    fn of(granted: AcquireResultView<'_>) -> Self {
        let spec = granted.snapshot.spec();
        let (start, end) = (number_in(spec.start), number_in(spec.end));
        let at = granted.snapshot.cursor().last_key().map_or(start, number_in);
        Self { start, at, end, lease: granted.lease }
    }

    fn advance(&mut self, coordinator: &mut EtcdCoordinator, op: OpId) {
        self.at += 1;
        let key = self.at.to_be_bytes();
        let cursor = CursorUpdate::try_from_parts(Some(&key), None).unwrap();
        coordinator.checkpoint(now(), ONE_RUN, &self.lease, cursor, op).unwrap();
    }

    /// Splits off the upper half of the remaining range, if the quota allows one more shard.
    fn split(&self, coordinator: &mut EtcdCoordinator, op: OpId) -> Option<ShardId> {
        let middle = self.at + (self.end - self.at) / 2;
        let [start, middle, end] = [self.start, middle, self.end].map(u64::to_be_bytes);
        let (low, high) =
            (ShardSpecRef::new(&start, &middle, b""), ShardSpecRef::new(&middle, &end, b""));
        let plan = SplitResidualPlan::try_new(low, high).unwrap();
        match coordinator.split_residual(now(), ONE_RUN, &self.lease, &plan, op) {
            Ok(split) => Some(split.into_inner().residual),
            Err(SplitError::SplitInvalid(SplitValidationError::ShardLimitExceeded { .. })) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

fn say(word: &str, numbers: &[u64]) {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    println!("{SAYS}{word} {}", numbers.join(" "));
}

fn start(config: &EtcdConfig, number: u64) -> Child {
    let name = "race_tests::racing_processes_overshoot_no_limit_and_share_no_fence";
    let (hosts, path) = (config.endpoints.join(","), config.namespace.path());
    let place = format!("etcd://{hosts}/{path}");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(PLACE, place)
        .env(NUMBER, number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a racer said, when it has ended well.
fn finish(racer: Child) -> Vec<(String, Vec<u64>)> {
    let output = racer.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let said = text.lines().filter_map(|line| line.split_once(SAYS)?.1.split_once(' '));
    let numbers = |text: &str| text.split(' ').map(|it| it.parse().unwrap()).collect();
    said.map(|(word, rest)| (word.to_owned(), numbers(rest))).collect()
}

/// A run with one shard.
fn create(
    coordinator: &mut EtcdCoordinator,
    tenant: TenantId,
    run: RunId,
) -> Result<(), CreateRunError> {
    let config = RunConfig::try_new(CursorSemantics::Completed, LEASE_MILLIS, None).unwrap();
    let [start, end] = RANGE.map(u64::to_be_bytes);
    let spec = ShardSpecRef::new(&start, &end, b"");
    let root = InitialShardInput { shard_id: ROOT, spec, cursor: CursorUpdate::initial() };
    let op = OpId::from_raw(1);
    coordinator.create_run_with_shards(now(), tenant, run, config, &[root], op).map(drop)
}

fn is_limit(created: &Result<(), CreateRunError>) -> bool {
    let Err(CreateRunError::RegisterShardsFailed(error)) = created else { return false };
    matches!(error, RegisterShardsError::ShardLimitExceeded { .. })
}

fn acquire<'s>(
    coordinator: &mut EtcdCoordinator,
    shard: ShardId,
    worker: u64,
    scratch: &'s mut AcquireScratch,
) -> Result<AcquireResultView<'s>, AcquireError> {
    let (key, worker) = (ShardKey::new(SHARED, shard), WorkerId::from_raw(worker + 1));
    coordinator.acquire_and_restore_into(now(), ONE_RUN, key, worker, scratch)
}

fn claim<'s>(
    coordinator: &mut EtcdCoordinator,
    worker: u64,
    scratch: &'s mut AcquireScratch,
) -> Result<AcquireResultView<'s>, ClaimError> {
    let worker = WorkerId::from_raw(worker + 1);
    coordinator.claim_next_available(now(), ONE_RUN, SHARED, worker, scratch)
}

fn number_in(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("a key of ours has eight bytes"))
}

/// Racers with one split acknowledged, and checkpoints on both shards, two of them on the first.
fn two_shards() -> (Said, BTreeMap<u64, Option<u64>>) {
    let mut said = Said::default();
    let lines = [
        ("granted", vec![0, 1, 3]),
        ("advanced", vec![0, 1, 4]),
        ("split", vec![7]),
        ("granted", vec![0, 2, 4]),
        ("advanced", vec![0, 2, 5]),
        ("granted", vec![7, 2, 8]),
        ("advanced", vec![7, 2, 9]),
    ];
    said.hear(&lines.map(|(word, numbers)| (word.to_owned(), numbers)));
    (said, [(0, Some(5)), (7, Some(9))].into())
}

#[test]
fn the_judge_accepts_acknowledged_writes() {
    let (said, stored) = two_shards();
    said.check(&stored);
}

#[test]
#[should_panic(expected = "acknowledged progress is lost at the end: 7")]
fn the_judge_sees_a_lost_checkpoint() {
    let (said, mut stored) = two_shards();
    stored.insert(7, Some(8));
    said.check(&stored);
}

#[test]
#[should_panic(expected = "acknowledged progress is lost: 0, 2")]
fn the_judge_sees_a_lost_checkpoint_that_another_one_hides() {
    let (mut said, stored) = two_shards();
    said.granted.insert((0, 2), 3);
    said.check(&stored);
}

#[test]
#[should_panic(expected = "acknowledged progress is lost at the end: 0")]
fn the_judge_sees_that_every_checkpoint_is_lost() {
    let (said, mut stored) = two_shards();
    stored.insert(0, None);
    said.check(&stored);
}

#[test]
#[should_panic(expected = "a fence was given twice")]
fn the_judge_sees_a_fence_that_was_given_twice() {
    let (mut said, _) = two_shards();
    said.hear(&[("granted".to_owned(), vec![7, 2, 9])]);
}

#[test]
#[should_panic(expected = "26 shards overshoot the limit")]
fn the_judge_sees_a_shard_too_many() {
    let (said, mut stored) = two_shards();
    stored.extend((100..124).map(|shard| (shard, None)));
    said.check(&stored);
}
