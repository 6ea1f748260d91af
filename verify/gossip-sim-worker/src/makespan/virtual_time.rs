//! Workers in virtual time, driven by an event queue.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gossip_contracts::connector::MemoryConnector;
use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpec, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::store::{MapStore, StoreConfig, StoreCoordinator};
use gossip_coordination::{RunConfig, RunManagement as _, ShardFilter};
use gossip_scanner_runtime::stepping::{Renewer, Rest, ShardRunner, WorkerShared};
use gossip_scanner_runtime::{
    Broken, Clock, Cut, Drain, INITIAL_SHARDS_MAX, ItemResult, Limits, Parts, Processor, Report,
    TaskConfig, Work, WorkerConfig, initial_shards,
};

use super::connector::{Look, UnevenSource};
use super::{Case, Outcome, Way};
use crate::timeline::Timeline;

const TENANT: TenantId = TenantId::from_bytes([5; 32]);
const RUN: RunId = RunId::from_raw(1);
/// Every key lies in it.
const ROOT: (&[u8], &[u8]) = (b"!", b"~");
/// The lease of a run as users have it, in ticks.
const LEASE: u64 = 15_000;
/// Without splits, a worker that was idle for this time shuts down: leases are renewed, so no shard
/// becomes free. Its polling would dominate the time of a table.
const GOES_HOME_AFTER: u64 = 60_000;
/// First shards for each worker, where they are split later.
const SHARDS_PER_WORKER: usize = 4;

type Coordinator = StoreCoordinator<MapStore>;

/// Runs a case to its end.
///
/// # Panics
///
/// If a key was processed twice or not at all, which invalidates the figures.
#[must_use]
pub fn run(case: Case) -> Outcome {
    let items = case.shape.items(case.keys);
    let costs: BTreeMap<Vec<u8>, u64> = items.into_iter().collect();
    let source = source(case, &costs);
    let shards = first_shards(case, &source);
    let heaviest = shards.iter().map(|shard| work_of(shard, &costs)).max().unwrap_or(0);
    let world = World { store: MapStore::new(), nonce: AtomicU64::new(1), now: AtomicU64::new(1) };
    world.register(&shards);
    let desks: Vec<Desk<'_>> = (0..case.workers).map(|_| Desk::new(&world, &costs)).collect();
    world.run(case, &source, &desks);
    let done: u64 = desks.iter().map(|desk| desk.done.load(Ordering::Relaxed)).sum();
    assert_eq!(done, costs.len() as u64, "every key is done once");
    let ends = desks.iter().map(|desk| desk.ready_at.load(Ordering::Relaxed));
    Outcome {
        makespan: ends.max().unwrap_or(1) - 1,
        work: costs.values().sum(),
        initial: shards.len(),
        splits: world.count_shards() - shards.len(),
        heaviest,
    }
}

fn source(case: Case, costs: &BTreeMap<Vec<u8>, u64>) -> UnevenSource {
    let mut directories: Vec<Vec<u8>> = costs.keys().filter_map(|key| directory(key)).collect();
    directories.dedup();
    let look = match case.shape.looks_at_directories() {
        true => Look::Directories,
        false => Look::Keys,
    };
    let keys = MemoryConnector::try_new(costs.keys().map(|key| (key.clone(), Vec::new())));
    UnevenSource { keys: keys.expect("keys are in order and short"), directories, look }
}

/// Returns the directory of a path, with a trailing slash.
fn directory(path: &[u8]) -> Option<Vec<u8>> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    Some(path[..=slash].to_vec())
}

fn first_shards(case: Case, source: &UnevenSource) -> Vec<ShardSpec> {
    let wanted = match case.way {
        Way::Static(each) => each * case.workers,
        Way::Bytes | Way::Auto => SHARDS_PER_WORKER * case.workers,
    };
    let root = ShardSpecRef::new(ROOT.0, ROOT.1, b"");
    let source = match case.way {
        Way::Bytes => source.unseen(),
        Way::Static(_) | Way::Auto => source.clone(),
    };
    initial_shards(&source, root, wanted.min(INITIAL_SHARDS_MAX)).expect("a source in memory")
}

fn work_of(shard: &ShardSpec, costs: &BTreeMap<Vec<u8>, u64>) -> u64 {
    let range = shard.start().to_vec()..shard.end().to_vec();
    costs.range(range).map(|(_, ticks)| ticks).sum()
}

/// The store, and the time.
struct World {
    store: MapStore,
    nonce: AtomicU64,
    now: AtomicU64,
}

/// Who does something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Slot(usize),
    Renewer(usize),
}

impl World {
    fn handle(&self) -> Coordinator {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed);
        StoreCoordinator::new(self.store.another_handle(), StoreConfig::new(nonce))
    }

    fn register(&self, shards: &[ShardSpec]) {
        let mut admin = self.handle();
        let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(3));
        let config = config.expect("valid constants");
        admin.create_run(self.now(), TENANT, RUN, config).expect("a new store");
        let inputs: Vec<_> = shards
            .iter()
            .zip(1..)
            .map(|(spec, id)| InitialShardInput {
                shard_id: ShardId::from_raw(id),
                spec: spec.as_spec_ref(),
                cursor: CursorUpdate::initial(),
            })
            .collect();
        let op_id = OpId::from_raw(1);
        admin.register_shards(self.now(), TENANT, RUN, &inputs, op_id).expect("cuts tile the root");
    }

    fn count_shards(&self) -> usize {
        let mut rows = Vec::new();
        let filter = ShardFilter::all();
        self.handle()
            .list_shards_into(self.now(), TENANT, RUN, filter, &mut rows)
            .expect("the run exists");
        rows.len()
    }

    /// Runs all workers until each has ended.
    fn run(&self, case: Case, source: &UnevenSource, desks: &[Desk<'_>]) {
        let (coordinator, drain) = (|| self.handle(), Drain::new());
        let processors: Vec<_> = desks
            .iter()
            .map(|desk| move |_: usize| Box::new(Waiting { desk }) as Box<dyn Processor>)
            .collect();
        let crews: Vec<WorkerShared<'_, Coordinator>> = processors
            .iter()
            .enumerate()
            .map(|(number, processor)| {
                let parts = Parts {
                    coordinator: &coordinator,
                    connector: source,
                    processor,
                    records: None,
                    clock: self,
                    host: &(),
                    drain: &drain,
                    observer: &(),
                };
                WorkerShared::new(&config(case, number), parts)
            })
            .collect();
        self.take_turns(case, &crews, desks);
    }

    fn take_turns(&self, case: Case, crews: &[WorkerShared<'_, Coordinator>], desks: &[Desk<'_>]) {
        let mut slots: Vec<_> = crews.iter().map(|crew| ShardRunner::new(crew, 0)).collect();
        let mut renewers: Vec<_> = crews.iter().map(Renewer::new).collect();
        let mut queue = Timeline::new();
        for number in 0..crews.len() {
            queue.push(1, Actor::Slot(number));
            queue.push(1, Actor::Renewer(number));
        }
        while let Some((time, actor)) = queue.pop() {
            self.now.store(time, Ordering::Relaxed);
            let now = LogicalTime::from_raw(time);
            let (Actor::Slot(number) | Actor::Renewer(number)) = actor;
            let goes_home = case.goes_home(time, &desks[number]);
            let next = match actor {
                Actor::Slot(_) | Actor::Renewer(_) if goes_home => None,
                Actor::Renewer(number) if crews[number].has_ended() => None,
                Actor::Renewer(number) => Some(time + renewers[number].round(now)),
                Actor::Slot(number) => match slots[number].step(now) {
                    // A key is being processed, or there is more to do at once.
                    Rest::No => Some(desks[number].wakes_at.load(Ordering::Relaxed).max(time)),
                    Rest::Until(until) => Some(until.as_raw().max(time + 1)),
                    Rest::Over => None,
                },
            };
            if let Some(next) = next {
                queue.push(next, actor);
            }
        }
    }
}

impl Case {
    /// Returns whether a worker was idle for so long that no shard can become free for it.
    fn goes_home(self, time: u64, desk: &Desk<'_>) -> bool {
        let ready_at = desk.ready_at.load(Ordering::Relaxed);
        matches!(self.way, Way::Static(_)) && time >= ready_at + GOES_HOME_AFTER
    }
}

impl Clock for World {
    fn now(&self) -> LogicalTime {
        LogicalTime::from_raw(self.now.load(Ordering::Relaxed))
    }
}

fn config(case: Case, number: usize) -> WorkerConfig {
    let cut = if case.way == Way::Bytes { Cut::Bytes } else { Cut::Learned };
    let name = number as u64 + 1;
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: WorkerId::from_raw(name),
        lease_ticks: LEASE,
        threads: 1,
        task: TaskConfig { cut, ..TaskConfig::default() },
        limits: Limits::default(),
        max_parked: 0,
        auto_split: !matches!(case.way, Way::Static(_)),
        store_patience: 60_000,
        seed: name,
    }
}

/// Where a worker processes keys.
struct Desk<'w> {
    world: &'w World,
    costs: &'w BTreeMap<Vec<u8>, u64>,
    /// End of the in-flight key, or of the last one.
    ready_at: AtomicU64,
    /// End of the task's wait for it, bounded because requests may arrive meanwhile.
    wakes_at: AtomicU64,
    done: AtomicU64,
    /// The ticket of the in-flight key, plus one; zero if there is none.
    under_way: AtomicU64,
}

impl<'w> Desk<'w> {
    const fn new(world: &'w World, costs: &'w BTreeMap<Vec<u8>, u64>) -> Self {
        Self {
            world,
            costs,
            ready_at: AtomicU64::new(0),
            wakes_at: AtomicU64::new(0),
            done: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
        }
    }
}

/// Processing is waiting.
struct Waiting<'d> {
    desk: &'d Desk<'d>,
}

impl Processor for Waiting<'_> {
    fn capacity(&self) -> usize {
        1
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let now = self.desk.world.now.load(Ordering::Relaxed);
        let cost = self.desk.costs.get(work.key()).copied().unwrap_or(1);
        self.desk.ready_at.store(now + cost, Ordering::Relaxed);
        self.desk.under_way.store(work.ticket as u64 + 1, Ordering::Relaxed);
        Ok(())
    }

    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        let now = self.desk.world.now.load(Ordering::Relaxed);
        let ready_at = self.desk.ready_at.load(Ordering::Relaxed);
        let wakes_at = ready_at.min(now + patience.as_millis() as u64);
        self.desk.wakes_at.store(wakes_at, Ordering::Relaxed);
        if now < ready_at {
            return Ok(());
        }
        if let Some(ticket) = self.desk.under_way.swap(0, Ordering::Relaxed).checked_sub(1) {
            self.desk.done.fetch_add(1, Ordering::Relaxed);
            reports.push(Report { ticket: ticket as usize, result: ItemResult::Done });
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.desk.under_way.store(0, Ordering::Relaxed);
    }
}
