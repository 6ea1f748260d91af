//! Processes: start, crash, restart, and the worker ids they use.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gossip_contracts::identity::WorkerId;
use gossip_coordination::store::{ProcessState, StoreConfig};

use super::admin::Admin;
use super::context::{Clock, Cx};
use super::faults::FaultKind;
use super::messages::UserWorkerState;
use super::port::SimStore;
use super::random::{Stream, mix};
use super::user_coordinator::SimCoordinator;
use super::user_worker::{SimWorker, SimWorld, Trial};
use super::worker::{Handle, Worker};
use super::world::{EventKind, Process, Role, World};

/// Maximum ticks between the crash and the restart of a process.
const DEATH_MAX: u64 = 60;

/// Ticks after which the store expires the keys of a dead process.
const NOTICED_AFTER: u64 = 100;

/// Maximum lifetime of a twin in ticks.
const TWIN_TICKS_MAX: u64 = 600;

/// Maximum initial clock error in ticks.
const SKEW_MAX: u64 = 300;

/// Maximum clock drift in thousandths.
pub(super) const DRIFT_MAX: u64 = 30;

/// Ticks after its deadline for which the lease of a live holder is respected.
pub(super) const CLOCK_SKEW_HONOURED: u64 = 40;

impl World {
    /// Creates the processes of every tenant and starts them.
    pub(super) fn populate(&mut self) {
        for tenant in 0..self.plan.tenants {
            for role in std::iter::once(Role::Admin)
                .chain((0..self.plan.workers).map(|_| Role::Worker))
                .chain(std::iter::once(Role::Twin))
            {
                self.add_process(tenant, role);
            }
        }
        for number in 0..self.processes.len() as u32 {
            let process = &self.processes[number as usize];
            let is_started = self.plan.alone.is_none_or(|alone| alone == process.tenant);
            if is_started && process.role != Role::Twin {
                self.schedule(0, number, EventKind::Start(number));
            }
        }
    }

    fn add_process(&mut self, tenant: u32, role: Role) {
        let number = self.processes.len() as u64;
        let seed = self.plan.seed;
        let name = number + 1;
        let store = SimStore::new(None, self.plan.store_limits());
        self.processes.push(Process {
            tenant,
            role,
            name,
            life: 0,
            program: None,
            user_worker: None,
            store,
            exchange: 0,
            scheduled: 0,
            paused_until: 0,
            requests_cut_until: 0,
            replies_cut_until: 0,
            throttled_until: 0,
            throttle: false,
            cut: None,
            pause: None,
            keeps_name: false,
            luck: Stream::named(seed, "luck", number),
            fate: Stream::named(seed, "fate", number),
            latency: Stream::named(seed, "latency", number),
            chances: 0,
        });
        let mut shared = self.shared.borrow_mut();
        shared.clocks.push(Clock::default());
        shared.current.push(None);
        if role == Role::Worker {
            shared.names[tenant as usize].push(name);
        }
    }

    /// Starts a process with a new coordinator with an empty cache.
    pub(super) fn start(&mut self, number: u32) {
        let binding = self.plan.binds.then_some(1);
        let limits = self.plan.store_limits();
        let process = &mut self.processes[number as usize];
        if process.program.is_some() {
            return;
        }
        process.life += 1;
        process.exchange += 1;
        let keeps_name = std::mem::take(&mut process.keeps_name);
        process.store = SimStore::new(binding, limits);
        let life = u64::from(process.life);
        let (role, tenant, name) = (process.role, process.tenant, process.name);
        let store = process.store.clone();
        if keeps_name && self.is_faulty() {
            self.count_fault(FaultKind::SameName);
        }
        // A restarted process finds the clock of its machine as it was.
        if life == 1 {
            self.set_clock(number);
        }
        let nonce = mix(self.plan.seed ^ mix(u64::from(number) << 32 | life));
        let config = StoreConfig { max_clock_skew: CLOCK_SKEW_HONOURED, ..StoreConfig::new(nonce) };
        let ours = store.clone();
        let ticks = Arc::clone(&self.ticks);
        // A restarted process has watched nothing.
        let state = ProcessState::default().watching(move || ticks.load(Ordering::Relaxed));
        let make_handle = |unused: Option<Handle>| match unused {
            Some(handle) => handle.anew(ours, config, &state),
            None => Handle::sharing(ours, config, &state),
        };
        let cx = Cx {
            shared: Rc::clone(&self.shared),
            store,
            process: number,
            tenant,
            tenant_id: self.shared.borrow().tenants[tenant as usize],
            worker: WorkerId::from_raw(name),
            choices: RefCell::new(Stream::named(self.plan.seed, "choices", nonce)),
            oddities: RefCell::new(Stream::named(self.plan.seed, "oddities", nonce)),
        };
        let program: Pin<Box<dyn Future<Output = ()>>> = match (role, self.trial.clone()) {
            (Role::Admin, _) => {
                let handle = self.handles.take(make_handle);
                Box::pin(Admin { cx, handle, sequence: life << 32 }.run())
            }
            (Role::Worker | Role::Twin, Some(trial)) => {
                self.start_user_worker(number, cx, make_handle(None), &trial)
            }
            (Role::Worker | Role::Twin, None) => {
                let handle = self.handles.take(make_handle);
                let scratch = self.scratches.take(Option::unwrap_or_default);
                Box::pin(Worker { cx, handle, scratch, held: Vec::new() }.run())
            }
        };
        self.processes[number as usize].program = Some(program);
        self.poll(number);
    }

    /// Starts a user worker.
    fn start_user_worker(
        &mut self,
        number: u32,
        cx: Cx,
        handle: Handle,
        trial: &Trial,
    ) -> Pin<Box<dyn Future<Output = ()>>> {
        let (tenant, worker) = (cx.tenant_id, cx.worker);
        let (store, choices) = (cx.store.clone(), cx.choices.borrow().clone());
        let keys = Rc::clone(&cx.shared.borrow().oracle.keys);
        self.processes[number as usize].user_worker = Some(UserWorkerState::new(cx));
        // The worker may read its clock before its first await.
        self.brief(number);
        let coordinator = SimCoordinator::new(handle, store.clone());
        let world = SimWorld { store, keys, tenant, worker, choices };
        trial.start(SimWorker { coordinator, world })
    }

    fn set_clock(&mut self, number: u32) {
        let mut clock = Clock::default();
        let process = &self.processes[number as usize];
        let mut luck =
            Stream::named(self.plan.seed, "clock", number.into()).fork(process.life.into());
        let (skew, drift) = (luck.below(2 * SKEW_MAX), luck.below(2 * DRIFT_MAX));
        if self.is_faulty() && self.plan.faults.has(FaultKind::ClockSkew) {
            clock.offset = skew as i64 - SKEW_MAX as i64;
        }
        if self.is_faulty() && self.plan.faults.has(FaultKind::ClockDrift) {
            clock.drift = drift as i64 - DRIFT_MAX as i64;
        }
        if clock.offset != 0 {
            self.count_fault(FaultKind::ClockSkew);
        }
        if clock.drift != 0 {
            self.count_fault(FaultKind::ClockDrift);
        }
        self.shared.borrow_mut().clocks[number as usize] = clock;
    }

    /// Kills a process. Its sent messages stay in flight. Returns the ticks until its restart, if
    /// it is restarted.
    pub(super) fn crash(&mut self, number: u32) -> u64 {
        let process = &mut self.processes[number as usize];
        process.program = None;
        let (life, dead) = (process.life, 1 + process.luck.below(DEATH_MAX));
        let comes_back = process.role != Role::Twin;
        let renamed = process.role == Role::Worker && process.luck.one_in(2);
        self.shared.borrow_mut().add_trace(|| format!("p{number} dies"));
        self.schedule(NOTICED_AFTER, number, EventKind::Vanish { process: number, life });
        if !comes_back {
            return dead;
        }
        if renamed || !self.plan.faults.has(FaultKind::SameName) {
            self.rename(number);
        } else {
            // The id of an administrator has no meaning.
            let process = &mut self.processes[number as usize];
            process.keeps_name = process.role == Role::Worker;
        }
        self.schedule(dead, number, EventKind::Start(number));
        dead
    }

    /// Gives a process a new worker id. Offers to the old id find no destination from now on.
    fn rename(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        if process.role != Role::Worker {
            return;
        }
        let old = process.name;
        process.name = old + 1_000;
        let names = &mut self.shared.borrow_mut().names[process.tenant as usize];
        names.iter_mut().filter(|name| **name == old).for_each(|name| *name = process.name);
    }

    /// Starts a second process with the id of a worker.
    pub(super) fn make_twin(&mut self, number: u32) {
        let (tenant, role, name) = {
            let it = &self.processes[number as usize];
            (it.tenant, it.role, it.name)
        };
        let twin =
            self.processes.iter().position(|it| it.tenant == tenant && it.role == Role::Twin);
        let Some(twin) = twin.filter(|_| role == Role::Worker) else { return };
        if self.processes[twin].program.is_some() {
            return;
        }
        self.processes[twin].name = name;
        let twin = twin as u32;
        self.schedule(1, twin, EventKind::Start(twin));
        self.count_fault(FaultKind::Twin);
        let ends = 2 + self.processes[twin as usize].luck.below(TWIN_TICKS_MAX);
        self.schedule(ends, twin, EventKind::Stop(twin));
    }

    /// Stops a twin. Its leases expire.
    pub(super) fn stop(&mut self, number: u32) {
        if self.processes[number as usize].program.is_some() {
            self.crash(number);
        }
    }
}
