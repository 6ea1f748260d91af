//! The thread that keeps the leases of a worker alive, and hears what others want of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{CoordinationFacade, Lease, WorkerError as RegistryError, WorkerState};

use super::Crew;

/// A lease is renewed this many times in its life, so that two lost renewals lose nothing.
const RENEWALS_PER_LEASE: u64 = 3;

/// The shortest time between renewals, in ticks, whatever the lease.
const RENEW_SHORTEST: u64 = 10;

/// Renews until every slot has gone home. A worker that has ended still has shards until then, with
/// items under way.
pub(super) fn run<B: CoordinationFacade>(crew: &Crew<'_, B>, gone_home: &AtomicBool) {
    let mut coordinator = (crew.parts.coordinator)();
    let period = (crew.config.lease_ticks / RENEWALS_PER_LEASE).max(RENEW_SHORTEST);
    let mut said = None;
    while !gone_home.load(Ordering::SeqCst) {
        let now = crew.parts.clock.now();
        renew(crew, &mut coordinator, now);
        said = heartbeat(crew, &mut coordinator, now, said);
        split_for_others(crew, &mut coordinator, now);
        rest(crew, gone_home, Duration::from_millis(period));
    }
}

/// Waits for one period, or until the slots have gone home. Other rings are not for the renewer: a
/// worker with many small shards rings all the time.
fn rest<B>(crew: &Crew<'_, B>, gone_home: &AtomicBool, period: Duration) {
    let begun = Instant::now();
    while !gone_home.load(Ordering::SeqCst) {
        let Some(left) = period.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
            return;
        };
        let heard = crew.bell().heard();
        if gone_home.load(Ordering::SeqCst) {
            return;
        }
        crew.bell().wait(heard, left);
    }
}

fn renew<B: CoordinationFacade>(crew: &Crew<'_, B>, coordinator: &mut B, now: LogicalTime) {
    let held = crew.seats.iter().filter_map(|seat| Some((seat, seat.lease()?)));
    let (seats, leases): (Vec<_>, Vec<Lease>) = held.unzip();
    if leases.is_empty() {
        return;
    }
    let mut results = Vec::with_capacity(leases.len());
    coordinator.renew_many(now, crew.config.tenant, &leases, &mut results);
    for ((seat, lease), result) in seats.iter().zip(&leases).zip(&results) {
        seat.renewed(lease, now, result);
    }
}

/// Says what the worker is doing. It is advice, so a failure waits for the next time.
fn heartbeat<B: CoordinationFacade>(
    crew: &Crew<'_, B>,
    coordinator: &mut B,
    now: LogicalTime,
    said: Option<WorkerState>,
) -> Option<WorkerState> {
    let (tenant, worker) = (crew.config.tenant, crew.config.worker);
    let state = if crew.is_stopping() {
        WorkerState::Draining
    } else if crew.busy.load(Ordering::SeqCst) > 0 {
        WorkerState::Working
    } else {
        WorkerState::Idle
    };
    if said.is_none() {
        coordinator.register_worker(now, tenant, worker).ok()?;
    }
    match coordinator.heartbeat(now, tenant, worker, state) {
        Ok(()) => Some(state),
        // Forgotten after a long silence: registers again.
        Err(RegistryError::NotRegistered) => None,
        Err(_) => said,
    }
}

/// Splits a shard if another worker has nothing to do.
fn split_for_others<B: CoordinationFacade>(
    crew: &Crew<'_, B>,
    coordinator: &mut B,
    now: LogicalTime,
) {
    let all_busy = crew.busy.load(Ordering::SeqCst) == crew.seats.len();
    if !crew.config.auto_split || !all_busy {
        return;
    }
    let mut workers = Vec::new();
    if coordinator.list_workers_into(now, crew.config.tenant, &mut workers).is_err() {
        return;
    }
    if workers.iter().any(|entry| entry.state == WorkerState::Idle) {
        crew.ask_split();
    }
}
