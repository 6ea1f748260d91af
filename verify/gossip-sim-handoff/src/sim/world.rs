//! One world: a disk, a clock, some workers and an administrator, driven by a seed.
//!
//! A step is one action of one participant. Between the read and the commit of an operation other
//! participants may act, too: [`SimStore::commit`] runs them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::store::{
    Answer, CommitOutcome, Read, Store, StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, InfraError, Lease, RunConfig, RunManagement,
};

use super::actor::Actor;
use super::bugs::Bug;
use super::disk::{Disk, key_of};
use super::oracle::Event;
use super::random::Random;
use super::tally::Faults;
use super::{Outcome, Plan};

pub(super) const TENANT: TenantId = TenantId::from_bytes([7; 32]);
pub(super) const RUN: RunId = RunId::from_raw(1);

/// Ticks of a lease.
pub(super) const LEASE: u64 = 24;
/// Maximum number of workers: two for a handoff, one for a second handoff, one that only claims.
pub(super) const WORKERS_MAX: usize = 4;
/// Maximum number of initial shards.
const SHARDS_MAX: u64 = 3;
/// Keys per shard; all keys of a world are bits of one number.
const KEYS_EACH: u8 = 8;
/// Steps of a world: enough for one handoff up to several overlapping ones.
const STEPS: std::ops::Range<u64> = 20..61;
/// Rounds within which a world without faults settles: an offer and two leases end, a shard is
/// acquired, handed off once more by a drain and processed, and every record is recovered.
const SETTLE_ROUNDS: u64 = 40;
/// Ticks of such a round.
const SETTLE_TICKS: u64 = 8;
/// Maximum nesting of interleaved operations.
const DEPTH_MAX: u32 = 2;
/// Steps after which a delayed request is lost. The log of a shard evicts after sixteen operations
/// (the limit that [`lease_handoff`](gossip_handoff::lease_handoff) states), so no delay outlasts
/// it here.
const DELAY_MAX: u64 = 12;

const _: () = assert!((SHARDS_MAX as u8) * KEYS_EACH < 64);

/// Start time of a world.
const START: u64 = 10;

/// The initial state of a world with a number of shards; created once and cloned per schedule.
pub(super) struct Base {
    disk: Disk,
    leases: Vec<Lease>,
}

impl Base {
    pub(super) fn new(shards: u64) -> Self {
        let world = World::empty(Disk::default(), Random::new(shards), None, &[]);
        let mut admin = StoreCoordinator::new(SimStore::new(&world, ADMIN), StoreConfig::new(1));
        let edges: Vec<_> = (0..=shards as u8).map(|nth| key_of(nth * KEYS_EACH)).collect();
        let roots: Vec<_> = (0..shards)
            .zip(edges.windows(2))
            .map(|(nth, edges)| InitialShardInput {
                shard_id: ShardId::from_raw(nth),
                spec: ShardSpecRef::new(&edges[0], &edges[1], b""),
                cursor: CursorUpdate::initial(),
            })
            .collect();
        let config = RunConfig::try_new(CursorSemantics::Completed, LEASE, Some(30));
        let (now, op) = (LogicalTime::from_raw(1), OpId::from_raw(1));
        let config = config.expect("good settings");
        let made = admin.create_run_with_shards(now, TENANT, RUN, config, &roots, op);
        made.expect("a valid manifest");
        let now = LogicalTime::from_raw(START);
        let mut acquire = |nth: u64| {
            let (key, mut scratch) =
                (ShardKey::new(RUN, ShardId::from_raw(nth)), AcquireScratch::new());
            let by = WorkerId::from_raw(1);
            let got = admin.acquire_and_restore_into(now, TENANT, key, by, &mut scratch);
            got.expect("the shard is free").lease
        };
        let leases = (0..shards).map(&mut acquire).collect();
        let disk = world.disk.borrow().clone();
        Self { disk, leases }
    }

    /// Returns the initial states of all worlds.
    pub(super) fn all() -> Vec<Self> {
        (1..=SHARDS_MAX).map(Self::new).collect()
    }
}

/// Index of the administrator among the participants.
const ADMIN: usize = WORKERS_MAX;

/// Why a participant cannot use the disk.
#[derive(Debug, Default)]
struct Line {
    /// All replies are lost until the operation has ended.
    is_silent: Cell<bool>,
    /// The process has ended.
    is_dead: Cell<bool>,
}

/// Large reusable buffers, one per nesting depth.
pub(super) type Scratches = RefCell<Vec<Box<AcquireScratch>>>;

/// State of a world.
pub(super) struct World {
    pub(super) disk: RefCell<Disk>,
    pub(super) random: RefCell<Random>,
    pub(super) bug: Option<Bug>,
    now: Cell<u64>,
    /// Clock offset of each worker.
    ahead: Vec<u64>,
    lines: [Line; WORKERS_MAX + 1],
    /// The workers; an acting worker is not in its slot.
    slots: RefCell<Vec<Option<Box<Actor>>>>,
    scratches: Scratches,
    /// Delayed and duplicated requests with their step.
    letters: RefCell<Vec<(Txn, u64)>>,
    step: Cell<u64>,
    depth: Cell<u32>,
    is_faulty: Cell<bool>,
    pub(super) faults: Cell<Faults>,
    /// Number of handles created so far, used as a unique number.
    handles: Cell<u64>,
}

/// Runs the schedule of `plan`.
pub(super) fn run(bases: &[Base], scratches: &Scratches, plan: Plan) -> Outcome {
    let mut random = Random::new(plan.seed);
    let base = &bases[random.place(bases.len())];
    let workers = 2 + random.place(WORKERS_MAX - 1);
    // Clocks differ by at most a few ticks; in most worlds they agree.
    let is_skewed = random.one_in(4);
    let mut ahead = |_: usize| if is_skewed { random.below(6) } else { 0 };
    let ahead: Vec<u64> = (0..workers).map(&mut ahead).collect();
    let mut disk = base.disk.clone();
    if is_skewed {
        disk.oracle_mut().skew();
    }
    if plan.is_traced {
        disk.tell();
    }
    let world = World::empty(disk, random, plan.bug, &ahead);
    world.count(|faults| faults.skewed += u64::from(is_skewed));
    world.is_faulty.set(true);
    world.scratches.swap(scratches);
    let first = Actor::new(&world, 0, &base.leases);
    let others = (1..workers).map(|place| Actor::new(&world, place, &[]));
    *world.slots.borrow_mut() =
        std::iter::once(first).chain(others).map(|actor| Some(Box::new(actor))).collect();
    world.run();
    let rounds = world.settle();
    // The workers hold references to the world, so they are dropped first.
    world.slots.borrow_mut().clear();
    world.scratches.swap(scratches);
    let mut disk = world.disk.borrow_mut();
    Outcome {
        broken: disk.broken(),
        steps: world.step.get(),
        rounds,
        trace: disk.trace(),
        races: disk.oracle().races(),
        faults: world.faults.get(),
        events: disk.take_events(),
    }
}

impl World {
    fn empty(disk: Disk, random: Random, bug: Option<Bug>, ahead: &[u64]) -> Rc<Self> {
        Rc::new(Self {
            disk: RefCell::new(disk),
            random: RefCell::new(random),
            bug,
            now: Cell::new(START),
            ahead: ahead.to_vec(),
            lines: Default::default(),
            slots: RefCell::default(),
            scratches: RefCell::default(),
            letters: RefCell::default(),
            step: Cell::new(0),
            depth: Cell::new(0),
            is_faulty: Cell::new(false),
            faults: Cell::default(),
            handles: Cell::new(1),
        })
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    pub(super) fn one_in(&self, bound: u64) -> bool {
        self.random.borrow_mut().one_in(bound)
    }

    /// Returns the time of a worker's clock.
    pub(super) fn now(&self, place: usize) -> LogicalTime {
        LogicalTime::from_raw(self.now.get() + self.ahead.get(place).copied().unwrap_or(0))
    }

    pub(super) fn worker_count(&self) -> usize {
        self.ahead.len()
    }

    /// Returns whether faults are injected.
    pub(super) fn is_faulty(&self) -> bool {
        self.is_faulty.get()
    }

    pub(super) fn is_dead(&self, place: usize) -> bool {
        self.lines[place].is_dead.get()
    }

    /// Runs a closure with a scratch buffer.
    pub(super) fn with_scratch<T>(&self, use_it: impl FnOnce(&mut AcquireScratch) -> T) -> T {
        let mut scratch = self.scratches.borrow_mut().pop().unwrap_or_default();
        let used = use_it(&mut scratch);
        self.scratches.borrow_mut().push(scratch);
        used
    }

    /// Returns a unique number for a handle.
    pub(super) fn fresh_nonce(&self) -> u64 {
        self.handles.set(self.handles.get() + 1);
        self.handles.get()
    }

    /// Records a processed key, unless the worker's process has ended.
    pub(super) fn did(&self, place: usize, shard: u64, fence: u64, key: u8) {
        if !self.is_dead(place) {
            self.disk.borrow_mut().observe(Event::Did { shard, fence, key });
        }
    }

    pub(super) fn count(&self, add: impl Fn(&mut Faults)) {
        let mut faults = self.faults.get();
        add(&mut faults);
        self.faults.set(faults);
    }

    fn is_broken(&self) -> bool {
        self.disk.borrow().broken().is_some()
    }

    /// Runs the steps with faults.
    fn run(self: &Rc<Self>) {
        let steps = STEPS.start + self.below(STEPS.end - STEPS.start);
        while self.step.get() < steps && !self.is_broken() {
            self.step.set(self.step.get() + 1);
            match self.below(100) {
                0..83 => self.act(None),
                83..93 => self.now.set(self.now.get() + 1 + self.below(3)),
                93..94 => {
                    self.now.set(self.now.get() + LEASE);
                    self.count(|faults| faults.jumps += 1);
                }
                94..96 => self.deliver(),
                96..98 => self.administer(),
                _ => self.crash(),
            }
        }
    }

    /// Runs an action of one worker other than `but`.
    fn act(self: &Rc<Self>, but: Option<usize>) {
        let place = self.random.borrow_mut().place(self.worker_count());
        if Some(place) == but {
            return;
        }
        let Some(mut actor) = self.slots.borrow_mut()[place].take() else { return };
        let times = 1 + self.below(4);
        for _ in 0..times {
            self.lines[place].is_silent.set(false);
            actor.act(self);
            if self.is_dead(place) || self.is_broken() {
                break;
            }
        }
        self.put_back(place, actor);
    }

    /// Puts a worker back into its slot, or a new process with the same id if it has ended.
    fn put_back(self: &Rc<Self>, place: usize, actor: Box<Actor>) {
        let actor = if self.is_dead(place) {
            drop(actor);
            self.lines[place].is_dead.set(false);
            self.lines[place].is_silent.set(false);
            Box::new(Actor::new(self, place, &[]))
        } else {
            actor
        };
        self.slots.borrow_mut()[place] = Some(actor);
    }

    fn crash(self: &Rc<Self>) {
        let place = self.random.borrow_mut().place(self.worker_count());
        let Some(actor) = self.slots.borrow_mut()[place].take() else { return };
        self.lines[place].is_dead.set(true);
        self.count(|faults| faults.crashes += 1);
        self.put_back(place, actor);
    }

    /// Delivers a delayed or duplicated request, or drops it if it is too old.
    fn deliver(&self) {
        let step = self.step.get();
        self.letters.borrow_mut().retain(|(_, since)| step < since + DELAY_MAX);
        let count = self.letters.borrow().len();
        if count > 0 {
            let place = self.random.borrow_mut().place(count);
            let (txn, _) = self.letters.borrow_mut().swap_remove(place);
            self.disk.borrow_mut().apply(&txn);
        }
    }

    /// Unparks parked shards, or sometimes cancels the run.
    fn administer(self: &Rc<Self>) {
        let parked = self.disk.borrow().oracle().parked().next();
        let cancels = parked.is_none() && self.one_in(4);
        let nonce = self.fresh_nonce();
        let store = SimStore::new(self, ADMIN);
        self.lines[ADMIN].is_silent.set(false);
        let mut admin = StoreCoordinator::new(store, StoreConfig::new(nonce));
        let (now, op) = (self.now(ADMIN), OpId::from_raw(nonce));
        if let Some(shard) = parked {
            let key = ShardKey::new(RUN, ShardId::from_raw(shard));
            // The administrator ignores a lost race or a lost reply.
            let _result = admin.unpark_shard(now, TENANT, key, op);
        } else if cancels && admin.cancel_run(now, TENANT, RUN, op).is_ok() {
            self.disk.borrow_mut().observe(Event::Cancelled);
        }
    }

    /// Runs without faults until the world settles; returns the number of rounds.
    fn settle(self: &Rc<Self>) -> u64 {
        self.is_faulty.set(false);
        self.lines.iter().for_each(|line| line.is_silent.set(false));
        for round in 0..SETTLE_ROUNDS {
            if self.is_broken() || self.is_at_rest() {
                return round;
            }
            self.now.set(self.now.get() + SETTLE_TICKS);
            // Delayed requests still arrive.
            self.deliver();
            if self.disk.borrow().oracle().parked().next().is_some() {
                self.administer();
            }
            for place in 0..self.worker_count() {
                let Some(mut actor) = self.slots.borrow_mut()[place].take() else { continue };
                self.lines[place].is_silent.set(false);
                actor.settle(self);
                self.put_back(place, actor);
            }
        }
        let is_cancelled = self.is_cancelled();
        let idle = self.slots.borrow().iter().flatten().all(|actor| actor.is_idle());
        let mut disk = self.disk.borrow_mut();
        let rest = disk.oracle().rest(is_cancelled);
        disk.judge(rest);
        disk.judge(if idle { Ok(()) } else { Err(super::Broken::MoveLeftOver) });
        SETTLE_ROUNDS
    }

    fn is_at_rest(self: &Rc<Self>) -> bool {
        let disk = self.disk.borrow();
        let is_over = disk.oracle().rest(disk.oracle().is_cancelled()).is_ok();
        is_over && self.slots.borrow().iter().flatten().all(|actor| actor.is_idle())
    }

    fn is_cancelled(self: &Rc<Self>) -> bool {
        let store = SimStore::new(self, ADMIN);
        let mut admin = StoreCoordinator::new(store, StoreConfig::new(self.fresh_nonce()));
        admin.get_run(TENANT, RUN).is_ok_and(|run| run.status().is_terminal())
    }

    /// Runs other participants while `place` waits for its commit.
    fn meanwhile(self: &Rc<Self>, place: usize) {
        if self.depth.get() < DEPTH_MAX && self.one_in(8) {
            self.depth.set(self.depth.get() + 1);
            self.count(|faults| faults.meanwhile += 1);
            self.act(Some(place));
            self.depth.set(self.depth.get() - 1);
        }
    }
}

/// The disk, as used by one participant.
#[derive(Clone)]
pub(super) struct SimStore {
    world: Rc<World>,
    place: usize,
}

impl SimStore {
    pub(super) fn new(world: &Rc<World>, place: usize) -> Self {
        Self { world: Rc::clone(world), place }
    }

    fn fall_silent(&self) {
        self.world.lines[self.place].is_silent.set(true);
        self.world.count(|faults| faults.silences += 1);
    }

    fn apply(&self, txn: &Txn) -> CommitOutcome {
        self.world.disk.borrow_mut().apply(txn)
    }

    fn keep(&self, txn: &Txn) {
        self.world.letters.borrow_mut().push((txn.clone(), self.world.step.get()));
    }

    /// Applies a fault to a commit.
    fn mishap(&self, txn: &Txn) -> CommitOutcome {
        let world = &self.world;
        match world.below(8) {
            0 | 1 => world.count(|faults| faults.lost_requests += 1),
            2 | 3 => {
                self.apply(txn);
                world.count(|faults| faults.lost_replies += 1);
            }
            4 => {
                self.keep(txn);
                self.fall_silent();
                world.count(|faults| faults.delayed += 1);
            }
            5 => {
                self.keep(txn);
                world.count(|faults| faults.doubled += 1);
                return self.apply(txn);
            }
            6 => {
                self.apply(txn);
                self.fall_silent();
            }
            _ => {
                if world.one_in(2) {
                    self.apply(txn);
                }
                self.fall_silent();
                if world.one_in(2) && self.place != ADMIN {
                    world.lines[self.place].is_dead.set(true);
                    world.count(|faults| faults.crashes += 1);
                }
            }
        }
        CommitOutcome::Unknown
    }
}

impl Store for SimStore {
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let (world, line) = (&self.world, &self.world.lines[self.place]);
        if world.is_faulty.get() && !line.is_silent.get() && world.one_in(60) {
            self.fall_silent();
        }
        if line.is_silent.get() {
            let (operation, message) = ("sim.read", "no reply".to_owned());
            return Err(InfraError::Transient { operation, message });
        }
        Ok(world.disk.borrow().read(reads))
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        let world = Rc::clone(&self.world);
        if world.is_faulty.get() {
            world.meanwhile(self.place);
        }
        let outcome = |txn: &Txn| {
            if world.lines[self.place].is_silent.get() {
                return Ok(CommitOutcome::Unknown);
            }
            let is_bad = world.is_faulty.get() && world.one_in(14);
            Ok(if is_bad { self.mishap(txn) } else { self.apply(txn) })
        };
        txns.iter().map(outcome).collect()
    }

    fn wait(&mut self, _: u64) {}

    fn limits(&self) -> StoreLimits {
        StoreLimits::GENEROUS
    }
}
