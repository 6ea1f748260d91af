//! The simulation: processes, store, sink, messages in flight, and time.
//!
//! The simulator takes the next event, applies it, polls the process that it wakes, and schedules
//! the next request of that process. There is one queue. Events at the same instant are ordered by
//! process, so that one tenant never changes the order of another's events. Rules are checked by
//! the oracle only; the simulation stops at the first violation.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use gossip_contracts::identity::TenantId;
use gossip_coordination::AcquireScratch;
use gossip_coordination::store::{Allotment, Key, Read, Txn, encode_allotment, make_room};

use super::audit::Torn;
use super::context::{Phase, Shared};
use super::damage::{Evidence, Halves};
use super::disk::Disk;
use super::faults::{Dice, FaultKind, FaultTally, Place};
use super::keyspace::Keyspace;
use super::messages::UserWorkerState;
use super::op::Op;
use super::oracle::{Limits, Oracle, Rule, Violation};
use super::pairs::Turns;
use super::plan::Plan;
use super::pools::Pool;
use super::port::{Reply, SimStore, SinkWrite};
use super::random::Stream;
use super::report::{Coverage, Failure, Report};
use super::user_worker::{ResultSink, Trial};
use super::worker::Handle;

/// Shard quota of a tenant, small enough to be reached.
pub(super) const SHARDS_PER_TENANT: u32 = 48;

/// Maximum lease duration of a run in ticks.
pub(super) const LEASE_TICKS_MAX: u64 = 300;

/// Ticks within which everything must finish after the last fault: twenty of the longest leases. An
/// offer may have to expire (four leases) and then a lease, a shard may be parked and unparked, and
/// then a few workers process a few hundred keys. The maximum seen was 2,594. Clocks stay wrong, so
/// the difference between them is added.
pub(super) const CALM_TICKS_MAX: u64 = 20 * LEASE_TICKS_MAX;

/// Number of processes whose verified values a simulator thread caches: the workers of a typical
/// simulation.
const PROCESSES_REMEMBERED: usize = 8;

/// A simulated process between two events.
pub(super) struct Process {
    pub(super) tenant: u32,
    pub(super) role: Role,
    /// Its worker id.
    pub(super) name: u64,
    /// Number of starts.
    pub(super) life: u32,
    pub(super) program: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Present for a user worker.
    pub(super) user_worker: Option<UserWorkerState>,
    pub(super) store: SimStore,
    /// Number of the pending request.
    pub(super) exchange: u64,
    /// Number of events scheduled for it.
    pub(super) scheduled: u64,
    pub(super) paused_until: u64,
    pub(super) requests_cut_until: u64,
    pub(super) replies_cut_until: u64,
    pub(super) throttled_until: u64,
    /// Whether it is throttled and no request was rejected yet.
    pub(super) throttle: bool,
    /// The partition that has lost no message yet.
    pub(super) cut: Option<FaultKind>,
    /// The pause that has delayed nothing yet.
    pub(super) pause: Option<FaultKind>,
    /// Whether it restarts with the same worker id.
    pub(super) keeps_name: bool,
    /// Stream of the last fault opportunity: its die, and then the draws of the fault. Each
    /// opportunity has its own substream of `fate`, so that a disabled kind does not shift the
    /// others.
    pub(super) luck: Stream,
    /// Parent of the substreams; never drawn from.
    pub(super) fate: Stream,
    pub(super) latency: Stream,
    /// Number of fault opportunities.
    pub(super) chances: u64,
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Worker,
    Admin,
    /// Runs only while it shares the id of another worker.
    Twin,
}

/// A request to the store.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Read(Vec<Read>),
    Commit(Vec<Txn>),
}

/// The sender of a request, and which of its requests it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) process: u32,
    pub(super) life: u32,
    pub(super) exchange: u64,
    /// Whether the request is duplicated.
    pub(super) doubled: bool,
}

/// An event.
#[derive(Debug)]
pub(super) enum EventKind {
    /// A request reaches the store.
    Arrive { from: Sender, op: Option<Rc<Op>>, request: Request },
    /// Results reach the sink.
    Sink { from: Sender, write: SinkWrite },
    /// A reply reaches its process, with what it shows about damaged values.
    Reply { to: Sender, reply: Reply, evidence: Option<Box<Evidence>> },
    /// A process is restarted.
    Start(u32),
    /// A twin stops.
    Stop(u32),
    /// The store expires the keys of a dead process.
    Vanish { process: u32, life: u32 },
}

/// The time and process of an event. The order of events is the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: u64,
    process: u32,
    /// Number of the event for its process; unique.
    number: u64,
    /// Index of the event's content in [`Agenda::contents`].
    place: u32,
}

/// The event queue. The heap moves small entries, and the contents stay in place.
#[derive(Debug, Default)]
struct Agenda {
    queue: BinaryHeap<Reverse<Event>>,
    /// Empty at the indexes in `free`.
    contents: Vec<Option<EventKind>>,
    free: Vec<u32>,
}

impl Agenda {
    fn push(&mut self, at: u64, process: u32, number: u64, what: EventKind) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.contents.push(None);
            u32::try_from(self.contents.len() - 1).expect("there are few events")
        });
        self.contents[place as usize] = Some(what);
        self.queue.push(Reverse(Event { at, process, number, place }));
    }

    fn pop(&mut self) -> Option<(u64, u32, EventKind)> {
        let Reverse(Event { at, process, place, .. }) = self.queue.pop()?;
        self.free.push(place);
        let what = self.contents[place as usize].take().expect("a queued event has its content");
        Some((at, process, what))
    }
}

/// Ticks after which a user worker that returned is restarted.
const RETURNS_AFTER: u64 = 40;

/// A simulation.
pub(super) struct World {
    pub(super) plan: Plan,
    /// The user worker; the simulator's own if absent.
    pub(super) trial: Option<Trial>,
    pub(super) user_sink: Option<Box<dyn ResultSink>>,
    pub(super) shared: Rc<RefCell<Shared>>,
    pub(super) disk: Disk,
    pub(super) processes: Vec<Process>,
    /// Claim buffers. A reused one may hold old contents, as in production.
    pub(super) scratches: Pool<Box<AcquireScratch>>,
    pub(super) handles: Pool<Handle>,
    pub(super) dice: [Dice; 3],
    pub(super) tally: FaultTally,
    /// Numbers of the injected faults.
    pub(super) injected: Vec<u64>,
    pub(super) leaderless_until: u64,
    /// Whether the leader is gone and no request has failed yet.
    pub(super) leader_lost: bool,
    /// The reply to a request that was answered immediately.
    pub(super) at_once: Option<Reply>,
    pub(super) damaged_reads: u64,
    pub(super) torn: Vec<Torn>,
    pub(super) halves: Vec<Halves>,
    /// A panic while the shared state was borrowed, so that it could not be recorded there.
    panic: Option<Violation>,
    agenda: Agenda,
    pub(super) now: u64,
    /// The true time, as the monotonic clock of every process.
    pub(super) ticks: Arc<AtomicU64>,
    calm_since: Option<u64>,
    /// The difference between clocks when faults stopped.
    clock_spread: u64,
}

impl World {
    pub(super) fn new(plan: Plan, keys: Rc<Keyspace>, trial: Option<Trial>) -> Self {
        make_room(PROCESSES_REMEMBERED);
        let tenants: Vec<TenantId> =
            (1..=plan.tenants as u8).map(|it| TenantId::from_bytes([it; 32])).collect();
        let limits = Limits { per_tenant: SHARDS_PER_TENANT };
        let oracle = Oracle::new(keys, plan.tenants, limits);
        let per_tenant = tenants.len();
        let shared = Shared {
            oracle,
            now: 0,
            phase: Phase::Faulty,
            clocks: Vec::new(),
            tenants,
            names: vec![Vec::new(); per_tenant],
            directory: vec![Vec::new(); per_tenant],
            tidy: vec![false; per_tenant],
            board: vec![VecDeque::new(); per_tenant],
            ops: 0,
            ops_excused: 0,
            op_count: 0,
            coverage: Coverage::default(),
            hash: plan.seed,
            tenant_hashes: vec![0; per_tenant],
            turns: Turns::default(),
            current: Vec::new(),
            violation: None,
            corruption_reported: 0,
            older_reported: 0,
            trace: plan.trace.then(Vec::new),
            bug: plan.bug,
            compares_tenants: plan.paired_until.is_some(),
        };
        let dice = [Place::Message, Place::Commit, Place::Read]
            .map(|place| Dice::new(place, plan.faults, plan.roughness));
        let mut world = Self {
            shared: Rc::new(RefCell::new(shared)),
            disk: match plan.paired_until {
                Some(_) => Disk::with_long_memory(),
                None => Disk::default(),
            },
            processes: Vec::new(),
            scratches: Pool::default(),
            handles: Pool::default(),
            dice,
            tally: FaultTally::default(),
            injected: Vec::new(),
            leaderless_until: 0,
            leader_lost: false,
            at_once: None,
            damaged_reads: 0,
            torn: Vec::new(),
            halves: Vec::new(),
            panic: None,
            agenda: Agenda::default(),
            now: 0,
            ticks: Arc::default(),
            calm_since: None,
            clock_spread: 0,
            user_sink: trial.as_ref().and_then(Trial::sink),
            trial,
            plan,
        };
        world.write_quotas();
        world.populate();
        world
    }

    /// Writes the quota of each tenant, as an operator does beforehand.
    fn write_quotas(&mut self) {
        let tenants = self.shared.borrow().tenants.clone();
        for tenant in tenants {
            let mut bytes = Vec::new();
            encode_allotment(tenant, Allotment::of_shards(SHARDS_PER_TENANT.into()), &mut bytes);
            self.disk.prepare(Key::Allotment { tenant }, bytes);
        }
    }

    /// Runs the simulation to its end and returns the report.
    ///
    /// # Errors
    ///
    /// Returns the broken rule, with the trace if the plan asks for one.
    pub(super) fn run(mut self) -> Result<Report, Failure> {
        self.run_to_end();
        // The borrower of the shared state is gone by now.
        if let Some(violation) = self.panic.take() {
            self.shared.borrow_mut().judge(Err(violation));
        }
        self.audit();
        self.report()
    }

    /// Runs to the end.
    fn run_to_end(&mut self) {
        self.run_until(|_| false);
    }

    /// Runs until `stop` returns true.
    pub(super) fn run_until(&mut self, stop: impl Fn(&Self) -> bool) {
        while let Some((at, process, what)) = self.agenda.pop() {
            if self.plan.paired_until.is_some_and(|until| at >= until) {
                break;
            }
            self.now = at;
            self.shared.borrow_mut().now = at;
            self.ticks.store(at, Ordering::Relaxed);
            self.apply_event(process, what);
            if self.is_over() || stop(self) {
                break;
            }
        }
        // Programs may hold borrowed state, and are not polled any more.
        self.processes.iter_mut().for_each(|process| process.program = None);
        self.restore_for_audit();
    }

    /// Advances the phase. Returns whether the simulation is over.
    fn is_over(&mut self) -> bool {
        if self.panic.is_some() {
            return true;
        }
        let (phase, ops, done, failed) = {
            let shared = self.shared.borrow();
            let invited = |tenant: u32| self.plan.alone.is_none_or(|alone| alone == tenant);
            let is_done = |tenant: u32| {
                let tidy = shared.tidy[tenant as usize];
                tidy && shared.directory[tenant as usize].is_empty() || !invited(tenant)
            };
            let done =
                (0..self.plan.tenants).all(|tenant| is_done(tenant) || self.is_blocked(tenant));
            (shared.phase, shared.ops, done, shared.violation.is_some())
        };
        if failed {
            return true;
        }
        if self.plan.paired_until.is_some() {
            return false;
        }
        match (phase, self.calm_since) {
            (Phase::Faulty, _) => {
                if ops < self.plan.operations {
                    return false;
                }
                self.calm_down();
                // A simulation that need not finish would only poll until the limit.
                self.shared.borrow().oracle.is_suspended(Rule::NeverFinishes)
            }
            (Phase::Calm, Some(since)) if !done => {
                let late = self.now - since > self.plan.calm_ticks + self.clock_spread;
                if late {
                    let mut shared = self.shared.borrow_mut();
                    let why = "unfinished shards are left long after the last fault";
                    let verdict = shared.oracle.require(false, Rule::NeverFinishes, why);
                    shared.judge(verdict);
                }
                late
            }
            (Phase::Calm, _) => true,
        }
    }

    /// Stops injecting faults and ends partitions and pauses. Damage stays, and clocks stay wrong.
    fn calm_down(&mut self) {
        self.shared.borrow_mut().phase = Phase::Calm;
        self.calm_since = Some(self.now);
        // A plan without a calm phase ends at once.
        self.clock_spread = if self.plan.calm_ticks > 0 { self.clock_spread() } else { 0 };
        self.leaderless_until = 0;
        for number in 0..self.processes.len() {
            let process = &mut self.processes[number];
            (process.paused_until, process.requests_cut_until) = (0, 0);
            (process.replies_cut_until, process.throttled_until) = (0, 0);
        }
    }

    /// Returns the difference between the fastest and the slowest clock. A lease that was granted
    /// under the fastest one expires so much later for the slowest.
    fn clock_spread(&self) -> u64 {
        let shared = self.shared.borrow();
        let readings = shared.clocks.iter().map(|clock| clock.read(self.now));
        let (low, high) =
            readings.fold((u64::MAX, 0), |(low, high), it| (low.min(it), high.max(it)));
        high.saturating_sub(low)
    }

    pub(super) fn is_faulty(&self) -> bool {
        self.calm_since.is_none()
    }

    /// Schedules an event for a process.
    pub(super) fn schedule(&mut self, after: u64, process: u32, what: EventKind) {
        let counter = &mut self.processes[process as usize].scheduled;
        *counter += 1;
        let (at, number) = (self.now + after, *counter);
        self.agenda.push(at, process, number, what);
    }

    fn apply_event(&mut self, process: u32, what: EventKind) {
        match what {
            EventKind::Reply { to, reply, evidence } => self.receive_reply(to, reply, evidence),
            EventKind::Arrive { from, op, request } => self.arrive(from, op, request),
            EventKind::Sink { from, write } => self.sink(from, write),
            EventKind::Start(process) => self.start(process),
            EventKind::Stop(process) => self.stop(process),
            EventKind::Vanish { process, life } => {
                self.disk.vanish(bound_number(process, life));
            }
        }
        self.shared.borrow_mut().note(u64::from(process), self.now);
    }

    fn receive_reply(&mut self, to: Sender, reply: Reply, evidence: Option<Box<Evidence>>) {
        let now = self.now;
        let process = &mut self.processes[to.process as usize];
        // The transport delivers a reply only to the incarnation that sent the request.
        if process.life != to.life || process.exchange != to.exchange || process.program.is_none() {
            return;
        }
        if process.paused_until > now {
            let after = process.paused_until - now;
            if let Some(kind) = process.pause.take() {
                self.count_fault(kind);
            }
            return self.schedule(after, to.process, EventKind::Reply { to, reply, evidence });
        }
        self.deliver(to.process, reply, evidence);
        self.poll(to.process);
    }

    /// Polls a process and sends its next request; repeats if the reply is immediate.
    pub(super) fn poll(&mut self, number: u32) {
        loop {
            let Some(mut program) = self.processes[number as usize].program.take() else { return };
            self.brief(number);
            let mut context = Context::from_waker(Waker::noop());
            let polled = catch_unwind(AssertUnwindSafe(|| program.as_mut().poll(&mut context)));
            self.read_messages(number);
            match polled {
                Ok(Poll::Ready(())) => return self.schedule_return(number),
                Ok(Poll::Pending) => {
                    let process = &mut self.processes[number as usize];
                    process.program = Some(program);
                    let Some(asked) = process.store.asked() else {
                        return self.awaits_foreign_future();
                    };
                    self.send(number, asked);
                }
                Err(panic) => return self.panicked(&crate::model::panic_message(&*panic)),
            }
            let Some(reply) = self.at_once.take() else { return };
            self.deliver(number, reply, None);
        }
    }

    /// Schedules the restart of a user worker that returned.
    fn schedule_return(&mut self, number: u32) {
        let process = &self.processes[number as usize];
        if process.user_worker.is_some() && process.role == Role::Worker {
            self.schedule(RETURNS_AFTER, number, EventKind::Start(number));
        }
    }

    pub(super) fn panicked(&mut self, message: &str) {
        let violation = Violation { rule: Rule::Panicked, why: message.to_owned() };
        match self.shared.try_borrow_mut() {
            Ok(mut shared) => shared.judge(Err(violation)),
            Err(_) => self.panic = Some(violation),
        }
    }

    /// Delivers a reply to its process.
    fn deliver(&mut self, number: u32, reply: Reply, evidence: Option<Box<Evidence>>) {
        let process = &mut self.processes[number as usize];
        // A second reply to the same request is dropped.
        process.exchange += 1;
        let mut shared = self.shared.borrow_mut();
        shared.add_trace(|| format!("p{number} receives {}", reply.summary()));
        if let Some(op) = &shared.current[number as usize] {
            if let Some(evidence) = evidence {
                evidence.note(op);
            }
            op.unsure.set(op.unsure.get() || reply.is_unsure());
        }
        process.store.reply(reply);
    }

    fn report(self) -> Result<Report, Failure> {
        let shared = &mut *self.shared.borrow_mut();
        if let Some(violation) = shared.violation.take() {
            let trace = shared.trace.take().unwrap_or_default();
            let (operations, injected) = (shared.ops, self.injected);
            return Err(Failure { violation, trace, operations, injected });
        }
        let over = shared.oracle.runs.iter().filter(|run| run.is_over()).count();
        Ok(Report {
            worlds: 1,
            operations: shared.ops,
            operations_excused: shared.ops_excused,
            commits: shared.oracle.commits,
            ticks: self.now,
            faults: self.tally,
            stale: shared.oracle.stale,
            unjudged: shared.oracle.unjudged.get(),
            true_time: shared.oracle.true_time,
            coverage: std::mem::take(&mut shared.coverage),
            damaged_reads: self.damaged_reads,
            corruption_reported: shared.corruption_reported,
            older_reported: shared.older_reported,
            runs_finished: over as u64,
            calm_ticks_max: match shared.oracle.is_suspended(Rule::NeverFinishes) {
                true => 0,
                false => self.calm_since.map_or(0, |since| self.now - since),
            },
            trace_hash: shared.hash,
            tenant_hashes: std::mem::take(&mut shared.tenant_hashes),
            turns: shared.turns,
        })
    }
}

/// Returns the number that the keys of a process are bound to, for one incarnation.
pub(super) const fn bound_number(process: u32, life: u32) -> u32 {
    process << 20 | life & 0xF_FFFF
}
