//! The thread that keeps the leases of a worker alive, and hears what others want of it.

use std::time::Duration;

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{
    CoordinationFacade, Lease, WORKER_ENTRY_TTL, WorkerError as RegistryError, WorkerState,
};

use super::WorkerShared;
use super::sync::{AtomicBool, Instant, Ordering};

/// A lease is renewed this many times in its life, so that two lost renewals lose nothing.
const RENEWALS_PER_LEASE: u64 = 3;

/// The shortest time between renewals, in ticks, whatever the lease.
const RENEW_SHORTEST: u64 = 10;

/// The longest time between two rounds, however long the lease: the registry forgets a worker that
/// it does not hear of, and two lost heartbeats are not to do that.
const ROUND_LONGEST: u64 = WORKER_ENTRY_TTL / 3;

const _: () = assert!(RENEW_SHORTEST < ROUND_LONGEST);

/// The shortest time after which the registry hears that a worker is idle, or not any more: one
/// with many small shards changes all the time.
const STATE_SHORTEST: Duration = Duration::from_millis(500);

/// Renews until every runner has gone home. A worker that has ended still has shards until then, with
/// items under way.
pub(super) fn run<B: CoordinationFacade>(shared: &WorkerShared<'_, B>, runners_done: &AtomicBool) {
    let mut renewer = Renewer::new(shared);
    while !runners_done.load(Ordering::SeqCst) {
        let ticks = renewer.round(shared.parts.clock.now());
        rest(&renewer, runners_done, Duration::from_millis(ticks));
    }
}

/// Renews all leases of a worker, sends its heartbeats and receives requests of administrators.
pub struct Renewer<'c, 'a, B> {
    shared: &'c WorkerShared<'a, B>,
    coordinator: B,
    /// What the registry was last told; `None` if it does not know the worker.
    said: Option<WorkerState>,
}

impl<'c, 'a, B: CoordinationFacade> Renewer<'c, 'a, B> {
    /// Returns the renewer of a worker. It opens its own coordinator handle.
    pub fn new(shared: &'c WorkerShared<'a, B>) -> Self {
        Self { shared, coordinator: (shared.parts.coordinator)(), said: None }
    }

    /// Renews every lease once. Returns after how many ticks the next round is due.
    pub fn round(&mut self, now: LogicalTime) -> u64 {
        renew(self.shared, &mut self.coordinator, now);
        self.said = heartbeat(self.shared, &mut self.coordinator, now, self.said);
        (self.shared.config.lease_ticks / RENEWALS_PER_LEASE).clamp(RENEW_SHORTEST, ROUND_LONGEST)
    }

    /// Returns whether the next round is due early, because the worker became idle or busy and the
    /// last round was `since` ago.
    pub fn has_news(&self, since: Duration) -> bool {
        since >= STATE_SHORTEST && self.said != Some(state(self.shared))
    }
}

/// Waits for one period, until the runners have gone home, or until the registry should hear that the
/// worker is idle or not any more. Other rings are not for the renewer.
fn rest<B: CoordinationFacade>(
    renewer: &Renewer<'_, '_, B>,
    runners_done: &AtomicBool,
    period: Duration,
) {
    let (begun, shared) = (Instant::now(), renewer.shared);
    while !runners_done.load(Ordering::SeqCst) {
        if renewer.has_news(begun.elapsed()) {
            return;
        }
        let Some(left) = period.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
            return;
        };
        let heard = shared.notify().count();
        if runners_done.load(Ordering::SeqCst) {
            return;
        }
        shared.notify().wait(heard, left);
    }
}

fn renew<B: CoordinationFacade>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut B,
    now: LogicalTime,
) {
    let held = shared.slots.iter().filter_map(|slot| Some((slot, slot.lease()?)));
    let (slots, leases): (Vec<_>, Vec<Lease>) = held.unzip();
    if leases.is_empty() {
        return;
    }
    let mut results = Vec::with_capacity(leases.len());
    coordinator.renew_many(now, shared.config.tenant, &leases, &mut results);
    for ((slot, lease), result) in slots.iter().zip(&leases).zip(&results) {
        slot.renewed(lease, now, result);
    }
}

/// A worker is idle while it has room for a shard.
fn state<B>(shared: &WorkerShared<'_, B>) -> WorkerState {
    if shared.is_stopping() {
        WorkerState::Draining
    } else if shared.busy.load(Ordering::SeqCst) == shared.slots.len() {
        WorkerState::Working
    } else {
        WorkerState::Idle
    }
}

/// Says what the worker is doing. It is advice, so a failure waits for the next time.
fn heartbeat<B: CoordinationFacade>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut B,
    now: LogicalTime,
    said: Option<WorkerState>,
) -> Option<WorkerState> {
    let (tenant, worker) = (shared.config.tenant, shared.config.worker);
    let state = state(shared);
    if said.is_none() {
        coordinator.register_worker(now, tenant, worker).ok()?;
    }
    match coordinator.heartbeat(now, tenant, worker, state) {
        Ok(()) => Some(state),
        // Forgotten after a long silence: registers again, at once.
        Err(RegistryError::NotRegistered) => {
            coordinator.register_worker(now, tenant, worker).ok()?;
            coordinator.heartbeat(now, tenant, worker, state).ok().map(|()| state)
        }
        Err(_) => said,
    }
}
