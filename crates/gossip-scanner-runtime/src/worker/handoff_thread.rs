//! The thread that carries shards between workers: takes in what is offered, and gives away what an
//! administrator or the end of the worker asks for.
//!
//! ```text
//!   offers to us ─► Inbound ─► inbox ─► a free runner
//!   HandOff, Drain ─► Drain ─► slot: stand still ─► offer, accepted ─► slot: it is gone
//! ```
//!
//! A shard is worked on until its own turn comes; then its runner finishes the items under way and
//! stands still, and the cursor travels with the offer: a planned move redoes nothing. What nobody
//! takes is released with its progress, so a drain ends within [`DRAIN_TICKS`] and a little.
//!
//! A shard that an administrator wants elsewhere stands still before its move begins, because an
//! item may take longer than any offer stands. If nobody takes it, its owner goes on with it.
//!
//! Shards go only to idle workers of the same run, which are known by their names
//! ([`worker_of`]). One that finds no free runner here is released again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gossip_contracts::identity::{LogicalTime, RunId, ShardKey, WorkerId};
use gossip_coordination::protocol::{OFFER_LEASES_MAX, ReleaseMode};
use gossip_coordination::{AcquireScratch, CoordinationFacade, Lease, WorkerEntry, WorkerState};
use gossip_handoff::lease_handoff::{
    DrainEnd, DrainNext, Driver, HandoffConfig, HeldShard, Inbound, InboundNext, Recovery,
    RecoveryNext, WorkerDrain, collect_ended,
};

use super::lease_slot::LeaseSlot;
use super::records::Records;
use super::shard_runner::Rest;
use super::sync::{Mutex, MutexGuard, PoisonError};
use super::{RunWorkerError, WorkerShared};
use crate::observer::Event;
use crate::op_ids::OpIds;
use crate::processor::Broken;
use crate::task::ShardTask;

/// How long a worker that ends tries to give its shards away before it releases them, in ticks: one
/// lease, so that it is not worse than being killed.
const DRAIN_TICKS: u64 = 10_000;

/// How long a shard that has arrived waits for a runner before it is released, in ticks: a claim by
/// somebody else takes about as long.
const INBOX_TICKS: u64 = 1_000;

/// Between two looks after what earlier processes of this name left behind, in ticks.
const UPKEEP_TICKS: u64 = 5_000;

/// How long records of accepted shards are still written when the worker has ended, in ticks.
/// Whoever finds one later ends it just as well.
const FAREWELL_TICKS: u64 = 2_000;

/// The longest time between two steps of the handoff part, in ticks: it polls whether a shard has
/// stopped.
pub const HANDOFF_WAIT_MAX: u64 = 25;

/// Workers look for offers ten times a second, which costs one read each; a source lets them look
/// twice before its shard stands still.
const JOIN: HandoffConfig = HandoffConfig {
    prepare_ticks: 5_000,
    offer_ticks: 3_000,
    finish_ticks: 15_000,
    lead_ticks: 200,
    find_ticks: 100,
    poll_ticks: 5,
    accepts_per_read: 8,
    retry_ticks: 50,
};

const _: () = assert!(JOIN.find_ticks * 2 <= JOIN.lead_ticks);
const _: () = assert!(JOIN.offer_ticks < DRAIN_TICKS);

/// Leases for which an offer stands at most: whoever has short leases is not hurried more than it
/// must be. One that the coordinator finds too long is refused, and then nothing ever moves.
const OFFER_LEASES: u64 = 3;

const _: () = assert!(OFFER_LEASES < OFFER_LEASES_MAX);

/// The settings for a run with leases of `lease` ticks.
pub(super) const fn join(lease: u64) -> HandoffConfig {
    let longest = lease.saturating_mul(OFFER_LEASES);
    let offer_ticks = if longest < JOIN.offer_ticks { longest } else { JOIN.offer_ticks };
    HandoffConfig { offer_ticks, ..JOIN }
}

/// The name of a worker of `run`, from a number that no other process has.
///
/// Its upper half is the same for all workers of the run: that is how they find each other in the
/// registry, which knows workers of all runs.
#[must_use]
pub fn worker_of(run: RunId, number: u64) -> WorkerId {
    WorkerId::from_raw(run.as_raw() << 32 | number & u64::from(u32::MAX))
}

/// Whether two workers are of one run, if both were named by [`worker_of`].
const fn is_colleague(one: WorkerId, other: WorkerId) -> bool {
    one.as_raw() >> 32 == other.as_raw() >> 32
}

/// Shards that have arrived and wait for a runner.
#[derive(Debug, Default)]
pub(super) struct Inbox(Mutex<Vec<(ShardTask, LogicalTime)>>);

impl Inbox {
    /// The shard that has waited longest.
    pub(super) fn take(&self) -> Option<ShardTask> {
        let mut waiting = self.lock();
        (!waiting.is_empty()).then(|| waiting.remove(0).0)
    }

    fn put(&self, task: ShardTask, now: LogicalTime) {
        self.lock().push((task, now));
    }

    /// One that has waited for too long, or all of them if nobody will come.
    fn take_overdue(&self, now: LogicalTime, nobody_comes: bool) -> Option<ShardTask> {
        let mut waiting = self.lock();
        let overdue = |since: LogicalTime| now >= since.saturating_add(INBOX_TICKS);
        let index = waiting.iter().position(|(_, since)| nobody_comes || overdue(*since))?;
        Some(waiting.remove(index).0)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(ShardTask, LogicalTime)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries shards until the worker has ended; does nothing without records.
///
/// A panic in it ends the worker: shards that stand still would wait for it for ever.
pub(super) fn run<B: CoordinationFacade>(shared: &WorkerShared<'_, B>) {
    if catch_unwind(AssertUnwindSafe(|| carry(shared))).is_err() {
        shared.finish(Err(RunWorkerError::Broken(Broken("moving shards panicked".into()))));
    }
}

fn carry<B: CoordinationFacade>(shared: &WorkerShared<'_, B>) {
    let Some(mut handoff) = HandoffThread::new(shared) else { return };
    loop {
        let now = shared.parts.clock.now();
        match handoff.step(now) {
            Rest::No => {}
            Rest::Until(until) => {
                let heard = shared.notify().count();
                let ticks = until.as_raw().saturating_sub(now.as_raw()).min(HANDOFF_WAIT_MAX);
                shared.notify().wait(heard, Duration::from_millis(ticks));
            }
            Rest::Over => return,
        }
    }
}

/// Takes over shards that other workers offer, and hands over those of this one.
pub struct HandoffThread<'c, 'a, B> {
    shared: &'c WorkerShared<'a, B>,
    coordinator: B,
    records: Records<'a>,
    scratch: Box<AcquireScratch>,
    inbound: Inbound,
    recovery: Recovery,
    join: HandoffConfig,
    upkeep_at: LogicalTime,
    /// A shard that an administrator wants elsewhere and that does not stand still yet.
    wanted: Option<(Lease, Option<WorkerId>)>,
    /// What is being given away, and whether it is everything.
    leaving: Option<(WorkerDrain, bool)>,
    /// Shards that were asked to stand still and do not yet, by their leases.
    asked: Vec<Lease>,
    /// When the worker was seen to have ended.
    ended_at: Option<LogicalTime>,
}

impl<'c, 'a, B: CoordinationFacade> HandoffThread<'c, 'a, B> {
    /// Returns the handoff part of a worker, or `None` if its [`Parts`](super::Parts) have no
    /// records of moves. It opens its own coordinator handle and repository.
    pub fn new(shared: &'c WorkerShared<'a, B>) -> Option<Self> {
        let records = Records::new((shared.parts.records?)());
        let (worker, join) = (shared.config.worker, join(shared.config.lease_ticks));
        Some(Self {
            shared,
            coordinator: (shared.parts.coordinator)(),
            records,
            scratch: Box::default(),
            inbound: Inbound::new(worker, join),
            recovery: Recovery::new(worker, join),
            join,
            upkeep_at: LogicalTime::ZERO,
            wanted: None,
            leaving: None,
            asked: Vec::new(),
            ended_at: None,
        })
    }

    /// Advances whatever handoffs are in flight, and searches for new ones.
    pub fn step(&mut self, now: LogicalTime) -> Rest {
        if self.shared.has_ended() {
            return self.farewell(now);
        }
        if let Some(task) = self.shared.inbox.take_overdue(now, self.shared.is_stopping()) {
            self.turn_away(now, &task);
        }
        if self.shared.parts.drain.is_asked()
            && !self.shared.is_releasing()
            && self.leaving.is_none()
        {
            self.begin_drain(now);
        }
        if self.leaving.is_none() {
            self.begin_requested(now);
        }
        let upkeep = self.upkeep(now);
        let leaving = self.leave(now);
        let arriving = self.arrive(now);
        soonest([upkeep, leaving, arriving], now)
    }

    /// Everything is to be given away: to whoever has nothing to do, or to nobody.
    fn begin_drain(&mut self, now: LogicalTime) {
        self.inbound.close();
        if let Some((lease, _)) = self.wanted.take() {
            // It moves with all others, or is released like them.
            self.shared.slots.iter().for_each(|slot| slot.unfreeze(&lease));
        }
        let willing = self.willing(now);
        if willing.is_empty() {
            return self.shared.release_all();
        }
        let holdings = self.shared.slots.iter().filter_map(|slot| slot.begin_move());
        let holdings: Vec<_> =
            holdings.map(|(lease, moves)| HeldShard::working(lease, moves)).collect();
        let deadline = now.saturating_add(DRAIN_TICKS);
        let drain =
            WorkerDrain::new(self.shared.config.worker, holdings, &willing, self.join, deadline);
        self.leaving = Some((drain, true));
    }

    /// An administrator wants a shard elsewhere: first it stands still, and then its move begins.
    fn begin_requested(&mut self, now: LogicalTime) {
        let slots = &self.shared.slots;
        let Some((lease, to)) = self.wanted.clone() else {
            let asked = slots.iter().find_map(LeaseSlot::take_request);
            // While nobody is willing, every renewal brings the request again, until it expires.
            self.wanted = asked.filter(|(_, to)| !self.willing_to_take(*to, now).is_empty());
            if let Some((lease, _)) = &self.wanted {
                self.shared.slots.iter().for_each(|slot| slot.freeze(lease));
                self.shared.notify().wake_all();
            }
            return;
        };
        let is_over = !slots.iter().any(|slot| slot.holds(&lease));
        let is_paused = slots.iter().any(|slot| slot.frozen_at(&lease).is_some());
        if is_over || is_paused {
            self.wanted = None;
        }
        if is_paused {
            let willing = self.willing_to_take(to, now);
            self.begin_move(&lease, &willing, now);
        }
    }

    /// Offers a shard that stands still to the willing, and keeps it if nobody takes it.
    fn begin_move(&mut self, lease: &Lease, willing: &[WorkerEntry], now: LogicalTime) {
        let (slots, me) = (&self.shared.slots, self.shared.config.worker);
        let Some((lease, moves, cursor)) = slots.iter().find_map(|slot| slot.begin_move_of(lease))
        else {
            return;
        };
        let holdings = vec![HeldShard::frozen(lease, moves, cursor, Vec::new())];
        let deadline = now.saturating_add(DRAIN_TICKS);
        let drain = WorkerDrain::new(me, holdings, willing, self.join, deadline);
        self.leaving = Some((drain.keeping(), false));
    }

    /// The worker that was named, if it can have a shard of this one, or whoever has nothing to do.
    fn willing_to_take(&mut self, to: Option<WorkerId>, now: LogicalTime) -> Vec<WorkerEntry> {
        let me = self.shared.config.worker;
        match to {
            Some(to) if to == me || !is_colleague(to, me) => Vec::new(),
            Some(to) => vec![WorkerEntry::heard_of(to, WorkerState::Idle, now)],
            None => self.willing(now),
        }
    }

    /// Idle workers of the run, in an order of our own, so that not all give to the same one.
    fn willing(&mut self, now: LogicalTime) -> Vec<WorkerEntry> {
        let (me, mut workers) = (self.shared.config.worker, Vec::new());
        let tenant = self.shared.config.tenant;
        if self.coordinator.list_workers_into(now, tenant, &mut workers).is_err() {
            return Vec::new();
        }
        workers.retain(|entry| {
            entry.state == WorkerState::Idle && entry.worker != me && is_colleague(entry.worker, me)
        });
        let count = workers.len().max(1) as u64;
        workers.rotate_left((self.shared.config.seed % count) as usize);
        workers
    }

    /// Lets what is being given away go on.
    fn leave(&mut self, now: LogicalTime) -> Rest {
        let Some((mut drain, everything)) = self.leaving.take() else { return Rest::Until(NEVER) };
        self.hear_of_asked(&mut drain, now);
        let tenant = self.shared.config.tenant;
        let (backend, records) = (&mut self.coordinator, &mut self.records);
        let next = drain.step(&mut Driver { tenant, backend, records }, now);
        for (lease, end) in drain.take_ended() {
            // Shards that are gone, or about to be given back, end so too, and do not go on here.
            let stays = || self.shared.slots.iter().any(|slot| slot.keeps(&lease));
            if end == DrainEnd::Finished && !everything && stays() {
                self.shared.parts.observer.observe(Event::Kept { shard: lease.key() });
            }
            self.shared.slots.iter().for_each(|slot| slot.end_move(&lease, end));
            self.shared.notify().wake_all();
        }
        let rest = match next {
            DrainNext::Again => Rest::No,
            DrainNext::Freeze(key) => {
                // One that is gone by now is heard of before the next step.
                if let Some(lease) = drain.leases().find(|lease| lease.key() == key) {
                    self.shared.slots.iter().for_each(|slot| slot.freeze(lease));
                    self.asked.push(lease.clone());
                }
                self.shared.notify().wake_all();
                Rest::No
            }
            DrainNext::Wait(until) => Rest::Until(until),
            DrainNext::Done(_) => {
                if everything {
                    self.shared.release_all();
                }
                return Rest::No;
            }
        };
        self.leaving = Some((drain, everything));
        rest
    }

    /// Tells the drain which shards stand still by now, and which are over.
    fn hear_of_asked(&mut self, drain: &mut WorkerDrain, now: LogicalTime) {
        let slots = &self.shared.slots;
        self.asked.retain(|lease| match slots.iter().find_map(|slot| slot.frozen_at(lease)) {
            Some(cursor) => {
                drain.freeze(now, lease.key(), cursor);
                false
            }
            None => true,
        });
        let over = |lease: &&Lease| !slots.iter().any(|slot| slot.holds(lease));
        let gone: Vec<ShardKey> = drain.leases().filter(over).map(|lease| lease.key()).collect();
        let withdrawn = slots.iter().filter_map(|slot| slot.take_withdrawal());
        for key in gone.into_iter().chain(withdrawn) {
            self.asked.retain(|asked| asked.key() != key);
            drain.finished(key);
        }
    }

    /// Takes in what is offered.
    fn arrive(&mut self, now: LogicalTime) -> Rest {
        let tenant = self.shared.config.tenant;
        let (backend, records) = (&mut self.coordinator, &mut self.records);
        let mut driver = Driver { tenant, backend, records };
        match self.inbound.step(&mut driver, &mut self.scratch, now) {
            InboundNext::Again => Rest::No,
            InboundNext::Wait(until) => Rest::Until(until),
            InboundNext::Live(arrived) => {
                let (config, view) = (&self.shared.config, &arrived.view);
                let shard = view.lease.key();
                let seed = config.seed ^ view.lease.token().as_raw();
                let task = ShardTask::restore(config.task, view, now, seed);
                if shard.run() == config.run {
                    self.shared.parts.observer.observe(Event::Arrived { shard });
                    self.shared.inbox.put(task, now);
                    self.shared.notify().wake_all();
                } else {
                    self.turn_away(now, &task);
                }
                Rest::No
            }
        }
    }

    /// Gives a shard back that nobody here can work on.
    fn turn_away(&mut self, now: LogicalTime, task: &ShardTask) {
        let (tenant, lease) = (self.shared.config.tenant, task.lease());
        let op_id = OpIds::after_panic(lease);
        // If this fails the lease runs out, and somebody claims it then.
        drop(self.coordinator.release(now, tenant, lease, ReleaseMode::Clean, op_id));
    }

    /// Ends what earlier processes of this name left behind.
    fn upkeep(&mut self, now: LogicalTime) -> Rest {
        if now < self.upkeep_at {
            return Rest::Until(self.upkeep_at);
        }
        let tenant = self.shared.config.tenant;
        if self.upkeep_at == LogicalTime::ZERO {
            // Once, at the start. What fails here is done by the next worker that starts.
            drop(collect_ended(&mut self.records, None, now));
        }
        let (backend, records) = (&mut self.coordinator, &mut self.records);
        let mut driver = Driver { tenant, backend, records };
        let is_live = |_: &_| self.leaving.is_some();
        match self.recovery.step(&mut driver, is_live, now) {
            Ok(RecoveryNext::Again) => Rest::No,
            Ok(RecoveryNext::Wait(_)) | Err(_) => {
                self.upkeep_at = now.saturating_add(UPKEEP_TICKS);
                Rest::Until(self.upkeep_at)
            }
        }
    }

    /// Writes down what was accepted, and goes.
    fn farewell(&mut self, now: LogicalTime) -> Rest {
        self.inbound.close();
        let since = *self.ended_at.get_or_insert(now);
        if self.inbound.is_idle() || now >= since.saturating_add(FAREWELL_TICKS) {
            return Rest::Over;
        }
        self.arrive(now)
    }
}

/// No time at all.
const NEVER: LogicalTime = LogicalTime::from_raw(u64::MAX);

/// The shortest of several rests.
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
