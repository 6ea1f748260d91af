//! The thread that hands shards off: it accepts offers of other workers, and offers shards of its
//! own when an administrator requests it or the worker drains.
//!
//! ```text
//!   offers to us ─► Inbound ─► inbox ─► a free runner
//!   HandOff, drain ─► WorkerDrain ─► slot: freeze ─► offer, accepted ─► slot: moved
//! ```
//!
//! A shard is processed until its own handoff begins. Then its runner finishes the in-flight items
//! and freezes the shard. The cursor travels with the offer, so a planned handoff repeats no item.
//! A shard that no worker accepts is released with its progress, so a drain ends soon after
//! [`DRAIN_TICKS`].
//!
//! A shard whose handoff an administrator requested is frozen before the handoff begins, because
//! one item may take longer than an offer is valid. If no worker accepts it, its holder continues
//! it.
//!
//! Shards are offered only to idle workers of the same run, recognized by their ids
//! ([`worker_of`]), and accepted only while a runner is free. An accepted shard whose runner has
//! claimed another one meanwhile is released again.

use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, RunId, ShardKey, WorkerId};
use gossip_coordination::protocol::{OFFER_LEASES_MAX, ReleaseMode};
use gossip_coordination::{
    AcquireScratch, CoordinationFacade, Lease, RunManagement as _, SessionState, WorkerEntry,
    WorkerSession, WorkerState,
};
use gossip_handoff::lease_handoff::{
    DrainEnd, DrainNext, Driver, HandoffConfig, HeldShard, Inbound, InboundNext, Recovery,
    RecoveryNext, WorkerDrain, collect_ended,
};

use super::WorkerShared;
use super::lease_slot::LeaseSlot;
use super::records::Records;
use super::shard_runner::Rest;
use super::sync::{Mutex, MutexGuard, Ordering, PoisonError};
use crate::monitored::Monitored;
use crate::observer::Event;
use crate::op_ids::OpIds;
use crate::task::StoreAccess;
use crate::wall_time::WallTime;

/// How long a draining worker tries to hand its shards off before it releases them, in ticks: one
/// lease, so that draining is not slower than being killed.
const DRAIN_TICKS: u64 = 10_000;

/// How long an accepted shard waits for a runner before it is released, in ticks: about the time
/// that a claim by another worker takes.
const INBOX_TICKS: u64 = 1_000;

/// The interval between recoveries of handoffs that earlier processes with this id left unfinished,
/// in ticks.
const RECOVERY_TICKS: u64 = 5_000;

/// The time from the start to the first recovery, in ticks: nothing waits for the records, and a
/// process that lives for seconds need not read them.
const RECOVERY_FIRST_TICKS: u64 = 15_000;

/// How long a worker that has ended still writes the records of accepted shards, in ticks. Recovery
/// completes the ones that remain.
const FINISH_TICKS: u64 = 2_000;

/// The longest time between two steps of the handoff part, in ticks: it polls whether a shard is
/// frozen.
pub const HANDOFF_WAIT_MAX: u64 = 25;

/// Workers search for offers ten times a second, which costs one read each. A source lets them
/// search twice before its shard freezes.
const HANDOFF: HandoffConfig = HandoffConfig {
    prepare_ticks: 5_000,
    offer_ticks: 3_000,
    finish_ticks: 15_000,
    lead_ticks: 200,
    find_ticks: 100,
    poll_ticks: 5,
    accepts_per_read: 8,
    retry_ticks: 50,
};

const _: () = assert!(HANDOFF.find_ticks * 2 <= HANDOFF.lead_ticks);
const _: () = assert!(HANDOFF.offer_ticks < DRAIN_TICKS);

/// Maximum duration of an offer, in leases, so that offers of runs with short leases are not
/// needlessly short. The coordinator refuses longer offers, and then no handoff would ever succeed.
const OFFER_LEASES: u64 = 3;

const _: () = assert!(OFFER_LEASES < OFFER_LEASES_MAX);

/// Returns the handoff settings for a run with leases of `lease` ticks.
pub(super) const fn handoff_config(lease: u64) -> HandoffConfig {
    let longest = lease.saturating_mul(OFFER_LEASES);
    let offer_ticks = if longest < HANDOFF.offer_ticks { longest } else { HANDOFF.offer_ticks };
    HandoffConfig { offer_ticks, ..HANDOFF }
}

/// Returns the id of a worker of `run`, from a number that is unique among its processes.
///
/// The upper half is the same for all workers of the run. They find each other by it in the
/// registry, which lists the workers of all runs.
#[must_use]
pub fn worker_of(run: RunId, number: u64) -> WorkerId {
    WorkerId::from_raw(run.as_raw() << 32 | number & u64::from(u32::MAX))
}

/// Returns whether two workers belong to one run, if both ids come from [`worker_of`].
pub(super) const fn is_same_run(one: WorkerId, other: WorkerId) -> bool {
    one.as_raw() >> 32 == other.as_raw() >> 32
}

/// Accepted shards that wait for a runner.
#[derive(Debug, Default)]
pub(super) struct Inbox(Mutex<Vec<(SessionState, LogicalTime)>>);

impl Inbox {
    /// Removes and returns the shard that has waited longest.
    pub(super) fn take(&self) -> Option<SessionState> {
        let mut waiting = self.lock();
        (!waiting.is_empty()).then(|| waiting.remove(0).0)
    }

    fn len(&self) -> usize {
        self.lock().len()
    }

    fn put(&self, session: SessionState, now: LogicalTime) {
        self.lock().push((session, now));
    }

    /// Removes and returns a shard that has waited too long, or any if the runners are stopping.
    fn take_overdue(&self, now: LogicalTime, stopping: bool) -> Option<SessionState> {
        let mut waiting = self.lock();
        let overdue = |since: LogicalTime| now >= since.saturating_add(INBOX_TICKS);
        let index = waiting.iter().position(|(_, since)| stopping || overdue(*since))?;
        Some(waiting.remove(index).0)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(SessionState, LogicalTime)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs handoffs until the worker has ended. Does nothing without handoff records.
pub(super) fn run<B: CoordinationFacade>(shared: &WorkerShared<'_, B>) {
    let Some(mut handoff) = HandoffThread::new(shared) else { return };
    loop {
        let now = shared.parts.clock.now();
        match handoff.step(now) {
            Rest::No => {}
            Rest::Until(until) => {
                // A notification before this count is missed. `HANDOFF_WAIT_MAX` bounds the delay.
                let seen = shared.notify().count();
                let ticks = until.as_raw().saturating_sub(now.as_raw()).min(HANDOFF_WAIT_MAX);
                shared.notify().wait(seen, Duration::from_millis(ticks));
            }
            Rest::Over => return,
        }
    }
}

/// Takes over shards that other workers offer, and hands over those of this one.
pub struct HandoffThread<'c, 'a, B> {
    shared: &'c WorkerShared<'a, B>,
    coordinator: Monitored<WallTime<'a, B>>,
    records: Records<'a>,
    scratch: Box<AcquireScratch>,
    inbound: Inbound,
    recovery: Recovery,
    config: HandoffConfig,
    /// From when on offers are searched for: a runner that is free claims a shard first.
    inbound_from: LogicalTime,
    /// When the next recovery is due.
    recovery_at: LogicalTime,
    /// Whether records of ended handoffs were collected.
    has_collected: bool,
    /// A shard whose handoff was requested and that is not frozen yet, with the requested target.
    requested: Option<(Lease, Option<WorkerId>)>,
    /// The handoffs in flight, and whether they are the worker's drain.
    outbound: Option<(WorkerDrain, bool)>,
    /// Leases that were asked to freeze and are not frozen yet.
    freezing: Vec<Lease>,
    /// When this thread first saw that the worker has ended.
    ended_at: Option<LogicalTime>,
}

impl<'c, 'a, B: CoordinationFacade> HandoffThread<'c, 'a, B> {
    /// Returns the handoff part of a worker, or `None` if its [`Parts`](super::Parts) have no
    /// records of moves. It opens its own coordinator handle and repository.
    pub fn new(shared: &'c WorkerShared<'a, B>) -> Option<Self> {
        let records = Records::new((shared.parts.records?)());
        let (worker, config) = (shared.config.worker, handoff_config(shared.config.lease_ticks));
        let begun = shared.parts.clock.now();
        Some(Self {
            shared,
            coordinator: shared.coordinator(),
            records,
            scratch: Box::default(),
            inbound: Inbound::new(worker, config),
            recovery: Recovery::new(worker, config),
            config,
            inbound_from: begun.saturating_add(HANDOFF.find_ticks),
            recovery_at: begun.saturating_add(RECOVERY_FIRST_TICKS),
            has_collected: false,
            requested: None,
            outbound: None,
            freezing: Vec::new(),
            ended_at: None,
        })
    }

    /// Advances the handoffs in flight, starts new ones, and accepts offers of other workers.
    ///
    /// Returns when the next step is due: at once, at a time, or never, because the worker has
    /// ended and the records of its accepted shards are written. It does not wait.
    pub fn step(&mut self, now: LogicalTime) -> Rest {
        let rest = self.act(now);
        let report = self.coordinator.take_report() + self.records.take_report();
        self.shared.report(self.shared.slots.len() + 1, now, report);
        rest
    }

    fn act(&mut self, now: LogicalTime) -> Rest {
        if self.shared.has_ended() {
            return self.finish_accepted(now);
        }
        if self.shared.parts.drain.is_asked()
            && !self.shared.is_releasing()
            && self.outbound.is_none()
        {
            self.begin_drain(now);
        }
        if let StoreAccess::Wait(until) = self.shared.store.access(now, false) {
            return Rest::Until(until);
        }
        if let Some(session) = self.shared.inbox.take_overdue(now, self.shared.is_stopping()) {
            self.release_accepted(now, session);
        }
        if self.outbound.is_none() {
            self.begin_requested(now);
        }
        let recovery = self.recover(now);
        let outbound = self.step_outbound(now);
        let inbound = self.step_inbound(now);
        soonest([recovery, outbound, inbound], now)
    }

    /// Starts to hand off every shard of this worker to the idle workers of the run. Releases all
    /// shards if there are no such workers or the store is unusable. No offers are accepted from
    /// here on.
    fn begin_drain(&mut self, now: LogicalTime) {
        self.inbound.close();
        if let Some((lease, _)) = self.requested.take() {
            // Once the request is dropped, nothing would continue a shard that it froze. The shard
            // is processed until the drain freezes it in turn, or is released with the others.
            self.shared.slots.iter().for_each(|slot| slot.unfreeze(&lease));
        }
        let is_unusable = self.shared.store.is_unusable();
        let targets = if is_unusable { Vec::new() } else { self.targets(now) };
        if targets.is_empty() {
            return self.shared.release_all();
        }
        let shards = self.shared.slots.iter().filter_map(|slot| slot.begin_move());
        let shards: Vec<_> =
            shards.map(|(lease, moves)| HeldShard::working(lease, moves)).collect();
        let deadline = now.saturating_add(DRAIN_TICKS);
        let drain =
            WorkerDrain::new(self.shared.config.worker, shards, &targets, self.config, deadline);
        self.outbound = Some((drain, true));
    }

    /// Advances a handoff that an administrator requested: freezes the shard, and when a later call
    /// finds it frozen, offers it.
    ///
    /// Takes the next request if none is in progress. Drops one for which there is no target, or
    /// whose lease has ended.
    fn begin_requested(&mut self, now: LogicalTime) {
        let slots = &self.shared.slots;
        let Some((lease, to)) = self.requested.clone() else {
            let asked = slots.iter().find_map(LeaseSlot::take_request);
            // A request without a target is dropped here and is not lost: every renewal delivers it
            // again until it expires.
            self.requested = asked.filter(|(_, to)| !self.targets_of(*to, now).is_empty());
            if let Some((lease, _)) = &self.requested {
                self.shared.slots.iter().for_each(|slot| slot.freeze(lease));
                self.shared.notify().wake_all();
            }
            return;
        };
        let is_over = !slots.iter().any(|slot| slot.holds(&lease));
        let is_frozen = slots.iter().any(|slot| slot.frozen_at(&lease).is_some());
        if is_over || is_frozen {
            self.requested = None;
        }
        if is_frozen {
            let targets = self.targets_of(to, now);
            self.begin_move(&lease, &targets, now);
        }
    }

    /// Offers a frozen shard to `targets`; its runner continues it if none accepts.
    ///
    /// Does nothing if the lease is lost or no longer frozen.
    fn begin_move(&mut self, lease: &Lease, targets: &[WorkerEntry], now: LogicalTime) {
        let (slots, me) = (&self.shared.slots, self.shared.config.worker);
        let Some((lease, moves, cursor)) = slots.iter().find_map(|slot| slot.begin_move_of(lease))
        else {
            return;
        };
        let shards = vec![HeldShard::frozen(lease, moves, cursor, Vec::new())];
        let deadline = now.saturating_add(DRAIN_TICKS);
        let drain = WorkerDrain::new(me, shards, targets, self.config, deadline);
        self.outbound = Some((drain.keeping(), false));
    }

    /// Returns the named worker, if it may receive a shard of this one, or else all idle workers.
    fn targets_of(&mut self, to: Option<WorkerId>, now: LogicalTime) -> Vec<WorkerEntry> {
        let me = self.shared.config.worker;
        match to {
            Some(to) if to == me || !is_same_run(to, me) => Vec::new(),
            Some(to) => vec![WorkerEntry::heard_of(to, WorkerState::Idle, now)],
            None => self.targets(now),
        }
    }

    /// Returns the other idle workers of the run; none if the list cannot be read. The order
    /// differs between sources, so that not all of them offer to the same target.
    fn targets(&mut self, now: LogicalTime) -> Vec<WorkerEntry> {
        let (me, mut workers) = (self.shared.config.worker, Vec::new());
        let tenant = self.shared.config.tenant;
        if self.coordinator.list_workers_into(now, tenant, &mut workers).is_err() {
            return Vec::new();
        }
        workers.retain(|entry| {
            entry.state == WorkerState::Idle && entry.worker != me && is_same_run(entry.worker, me)
        });
        let count = workers.len().max(1) as u64;
        workers.rotate_left((self.shared.config.seed % count) as usize);
        workers
    }

    /// Advances the handoffs in flight, and delivers the ends of finished ones to their runners.
    ///
    /// Returns when the next step is due. When the drain of the worker is done, the shards that it
    /// did not hand off are released.
    fn step_outbound(&mut self, now: LogicalTime) -> Rest {
        let Some((mut drain, is_drain)) = self.outbound.take() else { return Rest::Until(NEVER) };
        self.update_frozen(&mut drain, now);
        let tenant = self.shared.config.tenant;
        let (backend, records) = (&mut self.coordinator, &mut self.records);
        let next = drain.step(&mut Driver { tenant, backend, records }, now);
        for (lease, end) in drain.take_ended() {
            // `Finished` also ends the handoff of a shard that was lost or is about to be released.
            // Only a shard that its runner continues is reported as kept.
            let stays = || self.shared.slots.iter().any(|slot| slot.keeps(&lease));
            if end == DrainEnd::Finished && !is_drain && stays() {
                self.shared.parts.observer.observe(Event::Kept { shard: lease.key() });
            }
            self.shared.slots.iter().for_each(|slot| slot.end_move(&lease, end));
            self.shared.notify().wake_all();
        }
        let rest = match next {
            DrainNext::Again => Rest::No,
            DrainNext::Freeze(key) => {
                // A lease that has ended since is not in the list; `update_frozen` removes its
                // handoff before the next step.
                if let Some(lease) = drain.leases().find(|lease| lease.key() == key) {
                    self.shared.slots.iter().for_each(|slot| slot.freeze(lease));
                    self.freezing.push(lease.clone());
                }
                self.shared.notify().wake_all();
                Rest::No
            }
            DrainNext::Wait(until) => Rest::Until(until),
            DrainNext::Done(_) => {
                if is_drain {
                    self.shared.release_all();
                }
                return Rest::No;
            }
        };
        self.outbound = Some((drain, is_drain));
        rest
    }

    /// Reports to the drain which shards have frozen since the last call, and at which cursor, and
    /// for which the handoff is over: their lease has ended or an administrator withdrew it.
    fn update_frozen(&mut self, drain: &mut WorkerDrain, now: LogicalTime) {
        let slots = &self.shared.slots;
        self.freezing.retain(|lease| match slots.iter().find_map(|slot| slot.frozen_at(lease)) {
            Some(cursor) => {
                drain.freeze(now, lease.key(), cursor);
                false
            }
            None => true,
        });
        // A shard may end while it is being frozen, and is then never frozen. Without this check
        // the drain would wait for it until its deadline.
        let over = |lease: &&Lease| !slots.iter().any(|slot| slot.holds(lease));
        let gone: Vec<ShardKey> = drain.leases().filter(over).map(|lease| lease.key()).collect();
        let withdrawn = slots.iter().filter_map(|slot| slot.take_withdrawal());
        for key in gone.into_iter().chain(withdrawn) {
            self.freezing.retain(|asked| asked.key() != key);
            drain.finished(key);
        }
    }

    /// Accepts shards that other workers offer, and puts them into the inbox for a free runner.
    ///
    /// Returns when the next step is due. A shard of another run is released at once.
    fn step_inbound(&mut self, now: LogicalTime) -> Rest {
        // Without a free runner an accepted shard would wait here, and be released without a
        // holder. Its source can continue it.
        let busy = self.shared.busy.load(Ordering::SeqCst) + self.shared.inbox.len();
        if busy >= self.shared.slots.len() {
            self.inbound_from = now.saturating_add(self.config.find_ticks);
        }
        self.inbound.set_capacity(now >= self.inbound_from);
        let tenant = self.shared.config.tenant;
        let (backend, records) = (&mut self.coordinator, &mut self.records);
        let mut driver = Driver { tenant, backend, records };
        match self.inbound.step(&mut driver, &mut self.scratch, now) {
            InboundNext::Again => Rest::No,
            InboundNext::Wait(until) => Rest::Until(until),
            InboundNext::Live(arrived) => {
                let (config, session) = (&self.shared.config, SessionState::new(arrived.view));
                let shard = session.lease().key();
                // Worker ids of two runs may collide in their upper half, so an offer may belong to
                // another run.
                if shard.run() == config.run {
                    self.shared.parts.observer.observe(Event::Arrived { shard });
                    self.shared.inbox.put(session, now);
                    self.shared.notify().wake_all();
                } else {
                    self.release_accepted(now, session);
                }
                Rest::No
            }
        }
    }

    /// Releases a shard that no runner of this worker can process.
    fn release_accepted(&mut self, now: LogicalTime, session: SessionState) {
        let op_id = OpIds::of(session.lease().clone()).fresh();
        let session = WorkerSession::attach(&mut self.coordinator, session);
        // If the release fails, the lease expires and another worker claims the shard.
        drop(session.release(now, ReleaseMode::Clean, op_id));
    }

    /// Completes handoffs that earlier processes with this id left unfinished.
    ///
    /// Returns when the next step is due. After an error it tries again after [`RECOVERY_TICKS`].
    fn recover(&mut self, now: LogicalTime) -> Rest {
        if now < self.recovery_at {
            return Rest::Until(self.recovery_at);
        }
        let tenant = self.shared.config.tenant;
        if !std::mem::replace(&mut self.has_collected, true) {
            // Once per process. If it fails, the next worker that starts does it: records of ended
            // handoffs only take space.
            drop(collect_ended(&mut self.records, None, now));
        }
        let (backend, records) = (&mut self.coordinator, &mut self.records);
        let mut driver = Driver { tenant, backend, records };
        let is_live = |_: &_| self.outbound.is_some();
        match self.recovery.step(&mut driver, is_live, now) {
            Ok(RecoveryNext::Again) => Rest::No,
            Ok(RecoveryNext::Wait(_)) | Err(_) => {
                self.recovery_at = now.saturating_add(RECOVERY_TICKS);
                Rest::Until(self.recovery_at)
            }
        }
    }

    /// Writes the records of accepted shards. Returns [`Rest::Over`] when they are written, the
    /// store is unusable, or [`FINISH_TICKS`] have passed.
    fn finish_accepted(&mut self, now: LogicalTime) -> Rest {
        self.inbound.close();
        let since = *self.ended_at.get_or_insert(now);
        let is_late = now >= since.saturating_add(FINISH_TICKS) || self.shared.store.is_unusable();
        if self.inbound.is_idle() || is_late {
            return Rest::Over;
        }
        self.step_inbound(now)
    }
}

/// A time that is never reached.
const NEVER: LogicalTime = LogicalTime::from_raw(u64::MAX);

/// Returns the shortest of several rests; [`Rest::No`] if one of them is over at `now`.
fn soonest(rests: [Rest; 3], now: LogicalTime) -> Rest {
    let until = rests.into_iter().map(|rest| match rest {
        Rest::No | Rest::Over => now,
        Rest::Until(until) => until,
    });
    match until.min() {
        Some(until) if until > now => Rest::Until(until),
        Some(_) | None => Rest::No,
    }
}
