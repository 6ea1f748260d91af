//! A run over a few keys, on a store in memory, for the tests of this crate.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gossip_contracts::connector::{Connector, MemoryConnector};
use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, TenantId, WorkerId};
use gossip_coordination::store::{
    MapStore, Store as _, StoreConfig, StoreCoordinator, StoreLimits,
};
use gossip_coordination::{
    AcquireScratch, RenewError, RunConfig, RunManagement, SessionState, ShardClaiming, ShardFilter,
    ShardSummary,
};
use gossip_handoff::{Repository, StoreRepository};

use crate::observer::Observer;
use crate::processor::{Inline, ItemResult, Processor};
use crate::task::{ShardTask, StoreAccess, TaskConfig, TaskContext, TaskOutcome, TaskStep};
use crate::throttle::Throttle;
use crate::token::RuntimeToken;

pub(crate) type Coordinator = StoreCoordinator<MapStore>;

pub(crate) const TENANT: TenantId = TenantId::from_bytes([7; 32]);
pub(crate) const RUN: RunId = RunId::from_raw(1);
/// Ticks of a lease.
pub(crate) const LASTS: u64 = 1000;
/// Every key of the tests lies in it.
pub(crate) const ROOT: (&[u8], &[u8]) = (b"a", b"z");

/// Steps within which any task of these tests ends: far above what the longest of them takes.
const MAX_STEPS: usize = 100_000;

pub(crate) fn at(time: u64) -> LogicalTime {
    LogicalTime::from_raw(time)
}

/// A store with one active run of one shard.
pub(crate) struct World {
    store: MapStore,
    pub(crate) now: u64,
    /// How often each key was finished.
    pub(crate) done: Mutex<BTreeMap<Vec<u8>, u32>>,
    next_nonce: AtomicU64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::lasting(LASTS, &[ROOT])
    }

    /// With shards of these ranges, whose leases last so long.
    pub(crate) fn lasting(lease: u64, roots: &[(&[u8], &[u8])]) -> Self {
        let specs = roots.iter().map(|&(start, end)| ShardSpecRef::new(start, end, b""));
        Self::of_specs(lease, &specs.collect::<Vec<_>>())
    }

    /// With these shards, whose leases last so long.
    pub(crate) fn of_specs(lease: u64, roots: &[ShardSpecRef<'_>]) -> Self {
        let store = MapStore::new();
        let world = Self { store, now: 1, done: Mutex::default(), next_nonce: AtomicU64::new(1) };
        let mut admin = world.handle();
        let config = RunConfig::try_new(CursorSemantics::Completed, lease, Some(3)).unwrap();
        admin.create_run(at(1), TENANT, RUN, config).unwrap();
        let shards: Vec<_> = roots
            .iter()
            .zip(1..)
            .map(|(spec, id)| InitialShardInput {
                shard_id: ShardId::from_raw(id),
                spec: *spec,
                cursor: CursorUpdate::initial(),
            })
            .collect();
        admin.register_shards(at(1), TENANT, RUN, &shards, OpId::from_raw(1)).unwrap();
        world
    }

    /// The store itself, for those who see to it that others come between.
    pub(crate) fn store(&self) -> MapStore {
        self.store.another_handle()
    }

    /// A handle of another thread or process.
    pub(crate) fn handle(&self) -> Coordinator {
        let nonce = self.next_nonce.fetch_add(1, Ordering::Relaxed);
        StoreCoordinator::new(self.store.another_handle(), StoreConfig::new(nonce))
    }

    /// The records of handoffs, opened by another thread or process.
    pub(crate) fn records(&self) -> Box<dyn Repository> {
        let nonce = self.next_nonce.fetch_add(1, Ordering::Relaxed);
        Box::new(StoreRepository::new(self.store.another_handle(), TENANT, nonce))
    }

    /// Handles of another store, whose transactions are small.
    pub(crate) fn small_store(&self) -> impl Fn() -> Coordinator + use<> {
        let limits = StoreLimits { txn_ops: 20, ..MapStore::new().limits() };
        let store = MapStore::with_limits(limits);
        let nonce = AtomicU64::new(1000);
        move || {
            let nonce = nonce.fetch_add(1, Ordering::Relaxed);
            StoreCoordinator::new(store.another_handle(), StoreConfig::new(nonce))
        }
    }

    /// Claims a shard as `worker`.
    pub(crate) fn claim(
        &mut self,
        handle: &mut Coordinator,
        config: TaskConfig,
        worker: u64,
    ) -> Option<ShardTask> {
        let mut scratch = Box::<AcquireScratch>::default();
        let (now, worker) = (at(self.now), WorkerId::from_raw(worker));
        let claimed = handle.claim_next_available(now, TENANT, RUN, worker, &mut scratch);
        claimed.ok().map(|acquired| ShardTask::restore(config, SessionState::new(acquired), now, 9))
    }

    /// Claims and works until nothing is left, each shard by its own processor.
    pub(crate) fn work_everything(&mut self, connector: &dyn Connector) -> Vec<TaskOutcome> {
        let mut endings = Vec::new();
        let mut handle = self.handle();
        while let Some(mut task) = self.claim(&mut handle, TaskConfig::default(), 1) {
            endings.push(self.run_to_end(&mut task, &mut handle, connector));
        }
        endings
    }

    /// Steps a task to its end with a processor that notes every key.
    pub(crate) fn run_to_end(
        &mut self,
        task: &mut ShardTask,
        handle: &mut Coordinator,
        connector: &dyn Connector,
    ) -> TaskOutcome {
        let done = std::mem::take(&mut self.done);
        let mut processor = noting(&done);
        let outcome = self.drive(task, handle, connector, &mut processor, &());
        drop(processor);
        self.done = done;
        outcome
    }

    /// Steps a task to its end; waiting moves the clock, and the lease is renewed meanwhile.
    pub(crate) fn drive(
        &mut self,
        task: &mut ShardTask,
        handle: &mut Coordinator,
        connector: &dyn Connector,
        processor: &mut dyn Processor,
        observer: &dyn Observer,
    ) -> TaskOutcome {
        let throttle = Throttle::default();
        for _ in 0..MAX_STEPS {
            let mut context = TaskContext {
                coordinator: handle,
                connector,
                processor,
                throttle: &throttle,
                observer,
                store: StoreAccess::Usable,
            };
            match task.step(at(self.now), &mut context) {
                TaskStep::Continue => {}
                TaskStep::Wait(until) => self.pass_time(until, task, handle),
                TaskStep::Over(outcome) => return outcome,
            }
        }
        panic!("the task does not end");
    }

    /// Lets time pass until `until`, and renews as a worker does: at a third of the lease.
    pub(crate) fn pass_time(
        &mut self,
        until: LogicalTime,
        task: &mut ShardTask,
        handle: &mut Coordinator,
    ) {
        while self.now < until.as_raw() {
            self.now = until.as_raw().min(self.now + LASTS / 3);
            self.renew(task, handle);
        }
    }

    fn renew(&self, task: &mut ShardTask, handle: &mut Coordinator) {
        use gossip_coordination::CoordinationBackend as _;
        match handle.renew(at(self.now), TENANT, task.lease()) {
            Ok(renewed) => task.renewed(renewed.new_deadline),
            // Another renewal follows before the lease ends.
            Err(RenewError::BackendError(_)) => {}
            Err(_) => task.lost(),
        }
    }

    /// All shards, as an operator sees them.
    pub(crate) fn rows(&mut self) -> Vec<ShardSummary> {
        self.list(ShardFilter::all())
    }

    /// The texts of the parked shards.
    pub(crate) fn park_texts(&mut self) -> Vec<Option<Box<str>>> {
        self.list(ShardFilter::parked()).into_iter().map(|row| row.park_context).collect()
    }

    fn list(&mut self, filter: ShardFilter) -> Vec<ShardSummary> {
        let (mut rows, now) = (Vec::new(), at(self.now));
        let mut admin = self.handle();
        admin.list_shards_into(now, TENANT, RUN, filter, &mut rows).unwrap();
        rows
    }

    pub(crate) fn times_done(&self, key: &[u8]) -> u32 {
        self.done.lock().unwrap().get(key).copied().unwrap_or(0)
    }
}

/// A source of the numbers below `count`, as three digits behind a letter.
pub(crate) fn numbered(count: usize) -> MemoryConnector {
    let keys = (0..count).map(|number| (format!("k{number:03}").into_bytes(), Vec::new()));
    MemoryConnector::try_new(keys).unwrap()
}

pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("k{number:03}").into_bytes()
}

/// Opens each item and notes it as done.
pub(crate) fn noting(
    done: &Mutex<BTreeMap<Vec<u8>, u32>>,
) -> Inline<impl FnMut(crate::processor::Work<'_>, &mut Vec<u8>) -> ItemResult> {
    Inline::new(|work, scratch| {
        if let Err(error) = work.open(scratch) {
            return ItemResult::Unopened(error);
        }
        *done.lock().unwrap().entry(work.key().to_vec()).or_default() += 1;
        ItemResult::Done
    })
}

/// How many keys the stored cursor of a shard says it covers, and how many of them unread.
pub(crate) fn counted(row: &ShardSummary) -> (u64, u64) {
    row.token.as_deref().map_or((0, 0), |token| {
        let token = RuntimeToken::decode(token).unwrap();
        (token.accumulator.count(), token.unread)
    })
}
