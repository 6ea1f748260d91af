//! The thread that renews the leases of a worker and receives the requests that come with them.

use std::time::Duration;

use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{
    CoordinationFacade, Lease, RunManagement as _, ShardClaiming as _, WORKER_ENTRY_TTL,
    WorkerEntry, WorkerError as RegistryError, WorkerLabel, WorkerProcess, WorkerState,
};

use super::WorkerShared;
use super::handoff_thread::is_same_run;
use super::lease_slot::LeaseSlot;
use super::sync::{AtomicBool, Instant, Ordering};
use crate::monitored::Monitored;
use crate::task::StoreAccess;
use crate::wall_time::WallTime;

/// How often a lease is renewed within its duration, so that two failed renewals do not lose it.
const RENEWALS_PER_LEASE: u64 = 3;

/// The shortest time between two rounds, in ticks, however short the lease.
const RENEW_SHORTEST: u64 = 10;

/// The longest time between two rounds, however long the lease: the registry drops a worker without
/// heartbeats, and two lost heartbeats must not cause that.
const ROUND_LONGEST: u64 = WORKER_ENTRY_TTL / 3;

const _: () = assert!(RENEW_SHORTEST < ROUND_LONGEST);

/// The shortest time between two changes of state in the registry: a worker with many small shards
/// becomes idle and busy all the time.
const STATE_SHORTEST: Duration = Duration::from_millis(500);

/// How often a store that counts changes is read: a shard that another process has split off or
/// released waits for so long.
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// Early renewals fetch the requests of idle workers. They take at most one part in so many of the
/// time, because they may bring nothing. One that takes long has waited for other writers.
const EARLY_SHARE: u32 = 50;

/// The longest time between two early renewals, however long they take.
const EARLY_LONGEST: Duration = Duration::from_secs(1);

const _: () = assert!(WATCH_EVERY.as_millis() < EARLY_LONGEST.as_millis());

/// The shortest time between two changes of state in the registry of a store that counts changes.
const WATCHED_STATE_SHORTEST: Duration = Duration::from_millis(50);

/// Renews until every runner has stopped. A worker that has ended still holds shards with in-flight
/// items until then, so their leases must stay valid.
pub(super) fn run<B: CoordinationFacade>(shared: &WorkerShared<'_, B>, runners_done: &AtomicBool) {
    let mut renewer = Renewer::new(shared);
    while !runners_done.load(Ordering::SeqCst) {
        let ticks = renewer.round(shared.parts.clock.now());
        rest(&mut renewer, runners_done, Duration::from_millis(ticks));
    }
}

/// Renews all leases of a worker, sends its heartbeats and receives requests of administrators.
pub struct Renewer<'c, 'a, B> {
    shared: &'c WorkerShared<'a, B>,
    coordinator: Monitored<WallTime<'a, B>>,
    /// Whether the store failed in the last round.
    has_failed: bool,
    /// The state that the registry has; `None` if the worker is not registered.
    reported: Option<WorkerState>,
    /// The process with which the worker is registered.
    process: Option<WorkerProcess>,
    /// Whether the worker was ever registered.
    has_registered: bool,
    /// The changes of the store when they were last looked at; `None` if it does not count them.
    changes: Option<u64>,
    /// When a round last renewed all leases.
    renewed_at: Option<LogicalTime>,
    /// When the leases were last renewed because another worker was idle, and how long after that
    /// they are not.
    renewed_early: Option<Instant>,
    early_pause: Duration,
}

impl<'c, 'a, B: CoordinationFacade> Renewer<'c, 'a, B> {
    /// Returns the renewer of a worker. It opens its own coordinator handle.
    pub fn new(shared: &'c WorkerShared<'a, B>) -> Self {
        let (coordinator, has_failed) = (shared.coordinator(), false);
        Self {
            shared,
            coordinator,
            has_failed,
            reported: None,
            process: None,
            has_registered: false,
            changes: None,
            renewed_at: None,
            renewed_early: None,
            early_pause: WATCH_EVERY,
        }
    }

    /// Returns whether the store counts changes, and wakes the idle runners if it has changed: a
    /// shard may have become free. If another worker is idle, the leases are renewed early, because
    /// its request comes with the answer.
    fn watch(&mut self, now: LogicalTime) -> bool {
        let changes = self.coordinator.change_count();
        if changes.is_none() || changes == self.changes {
            return changes.is_some();
        }
        self.changes = changes;
        let shared = self.shared;
        let busy = shared.busy.load(Ordering::SeqCst);
        if busy < shared.slots.len() {
            shared.notify().wake_all();
        }
        let is_early = self.renewed_early.is_some_and(|at| at.elapsed() < self.early_pause);
        if busy > 0 && !is_early && !self.has_failed {
            self.renew_for_idle(now);
        }
        true
    }

    /// If another worker is idle, renews the leases and has progress stored.
    fn renew_for_idle(&mut self, now: LogicalTime) {
        let begun = Instant::now();
        if self.is_other_idle(now) {
            self.shared.slots.iter().for_each(LeaseSlot::save_soon);
            renew(self.shared, &mut self.coordinator, now);
            // The commit of the renewal is no news for this worker.
            self.changes = self.coordinator.change_count();
        }
        self.renewed_early = Some(Instant::now());
        self.early_pause = (begun.elapsed() * EARLY_SHARE).clamp(WATCH_EVERY, EARLY_LONGEST);
    }

    /// Returns whether another worker of the run has a thread without a shard.
    fn is_other_idle(&mut self, now: LogicalTime) -> bool {
        let (config, mut workers) = (&self.shared.config, Vec::new());
        let listed = self.coordinator.list_workers_into(now, config.tenant, &mut workers);
        let is_idle = |entry: &WorkerEntry| {
            let is_other = entry.worker != config.worker;
            is_other && entry.state == WorkerState::Idle && is_same_run(entry.worker, config.worker)
        };
        listed.is_ok() && workers.iter().any(is_idle)
    }

    /// Sends a heartbeat, and renews every lease once, unless that was done less than half a period
    /// ago. Returns after how many ticks from the end of this call the next round is due.
    ///
    /// If the store failed in the last round, it waits like the other parts of the worker. If only
    /// other parts failed, it continues, because the leases depend on it.
    pub fn round(&mut self, now: LogicalTime) -> u64 {
        let shared = self.shared;
        if let Some(ticks) = self.wait(now) {
            return ticks;
        }
        let period = period(shared.config.lease_ticks);
        let is_recent = |at: &LogicalTime| now.as_raw().saturating_sub(at.as_raw()) < period / 2;
        let renewed_at = match self.renewed_at.filter(is_recent) {
            Some(renewed_at) => renewed_at,
            None => {
                renew(shared, &mut self.coordinator, now);
                now
            }
        };
        // After failed renewals a heartbeat fails too, or is answered and hides that they failed.
        if !self.coordinator.has_failed() {
            // The process that ends commands may be started after this worker.
            let process = shared.parts.host.process().map(|process| self.labelled(process));
            if process != self.process {
                (self.process, self.reported) = (process, None);
            }
            self.reported = self.heartbeat(now);
        }
        self.has_failed = self.coordinator.has_failed();
        self.renewed_at = Some(renewed_at).filter(|_| !self.has_failed);
        shared.report(shared.slots.len(), now, self.coordinator.take_report());
        let ticks = self.wait(now).map_or(period, |retry| retry.min(period));
        // A renewal extends the lease from its request on. A period counted from the reply would
        // leave too little time for the next one after a reply that took long.
        let spent = shared.parts.clock.now().as_raw().saturating_sub(renewed_at.as_raw());
        ticks.saturating_sub(spent).max(RENEW_SHORTEST)
    }

    /// Adds how many items this worker processes at a time.
    fn labelled(&self, process: WorkerProcess) -> WorkerProcess {
        let jobs = u16::try_from(self.shared.config.threads).unwrap_or(u16::MAX);
        let label = process.label.map(|label| WorkerLabel { jobs, ..label });
        WorkerProcess { label, ..process }
    }

    /// Reports the worker's state to the registry. It is advisory, so a failure waits for the next
    /// round. Returns the state that the registry has.
    fn heartbeat(&mut self, now: LogicalTime) -> Option<WorkerState> {
        let (tenant, worker) = (self.shared.config.tenant, self.shared.config.worker);
        let (state, process) = (state(self.shared), self.process);
        let coordinator = &mut self.coordinator;
        if self.reported.is_none() {
            coordinator.register_worker(now, tenant, worker, process).ok()?;
            // A new entry is idle, so a heartbeat would change nothing.
            if !std::mem::replace(&mut self.has_registered, true) && state == WorkerState::Idle {
                return Some(state);
            }
        }
        match coordinator.heartbeat(now, tenant, worker, state) {
            Ok(()) => Some(state),
            // The registry dropped the entry after a long pause of this process: register again at
            // once.
            Err(RegistryError::NotRegistered) => {
                coordinator.register_worker(now, tenant, worker, process).ok()?;
                coordinator.heartbeat(now, tenant, worker, state).ok().map(|()| state)
            }
            Err(_) => self.reported,
        }
    }

    /// Returns how long the renewer waits for the store, in ticks, if it does.
    fn wait(&self, now: LogicalTime) -> Option<u64> {
        match self.shared.store.access(now, false) {
            StoreAccess::Wait(until) if self.has_failed => {
                Some(until.as_raw().saturating_sub(now.as_raw()))
            }
            StoreAccess::Wait(_) | StoreAccess::Retry | StoreAccess::Usable => None,
            StoreAccess::Last => None,
        }
    }

    /// Returns whether the next round is due early, because the worker became idle or busy and that
    /// or the last round was `since` ago, or to find out whether the store is usable again.
    pub fn has_news(&self, since: Duration) -> bool {
        let is_new = since >= self.state_shortest() && self.is_state_new();
        // No other worker has a use for the state of a process that is about to exit.
        (is_new && !self.shared.has_ended()) || self.shared.store.needs_probe()
    }

    fn is_state_new(&self) -> bool {
        self.reported != Some(state(self.shared))
    }

    const fn state_shortest(&self) -> Duration {
        if self.changes.is_some() { WATCHED_STATE_SHORTEST } else { STATE_SHORTEST }
    }
}

/// Returns how many ticks lie between two renewals of a lease.
pub(super) fn period(lease_ticks: u64) -> u64 {
    (lease_ticks / RENEWALS_PER_LEASE).clamp(RENEW_SHORTEST, ROUND_LONGEST)
}

/// Waits until the next round is due, the runners have stopped, or the registry's state is out of
/// date, and meanwhile watches a store that counts changes. It ignores other notifications.
fn rest<B: CoordinationFacade>(
    renewer: &mut Renewer<'_, '_, B>,
    runners_done: &AtomicBool,
    period: Duration,
) {
    let (begun, shared) = (Instant::now(), renewer.shared);
    let mut changed: Option<Instant> = None;
    while !runners_done.load(Ordering::SeqCst) {
        let is_watched = renewer.watch(shared.parts.clock.now());
        // An entry that could not be made is tried again with the next renewal.
        let is_new = renewer.reported.is_some() && renewer.is_state_new();
        changed = is_new.then(|| changed.unwrap_or_else(Instant::now));
        // A change is reported to a server when it has lasted: at the end of a run no worker has a
        // use for it.
        let since = if is_watched { Some(begun) } else { changed };
        if renewer.has_news(since.map_or(Duration::ZERO, |since| since.elapsed())) {
            return;
        }
        let Some(remaining) =
            period.checked_sub(begun.elapsed()).filter(|remaining| !remaining.is_zero())
        else {
            return;
        };
        let seen = shared.notify().count();
        // The runners may have stopped before the count was read. Without a second check the
        // notification would be missed, and the thread would sleep for a whole period after
        // shutdown.
        if runners_done.load(Ordering::SeqCst) {
            return;
        }
        let shortest = match changed {
            _ if is_watched => WATCH_EVERY,
            Some(_) => renewer.state_shortest(),
            None => remaining,
        };
        shared.notify().wait(seen, remaining.min(shortest));
    }
}

/// Renews the leases of all slots in one call, and delivers each result to its slot.
fn renew<B>(
    shared: &WorkerShared<'_, B>,
    coordinator: &mut impl CoordinationFacade,
    now: LogicalTime,
) {
    // The leases are copied: the store call below must not hold the locks that runners need.
    let held = shared.slots.iter().filter_map(|slot| Some((slot, slot.lease()?)));
    let (slots, leases): (Vec<_>, Vec<Lease>) = held.unzip();
    if leases.is_empty() {
        return;
    }
    let mut results = Vec::with_capacity(leases.len());
    coordinator.renew_many(now, shared.config.tenant, &leases, &mut results);
    for ((slot, lease), result) in slots.iter().zip(&leases).zip(&results) {
        slot.renewed(lease, result);
    }
}

/// Returns the state for the registry. A worker is idle while at least one runner has nothing to
/// claim.
fn state<B>(shared: &WorkerShared<'_, B>) -> WorkerState {
    if shared.is_stopping() {
        WorkerState::Draining
    } else if shared.busy.load(Ordering::SeqCst) == shared.slots.len() {
        WorkerState::Working
    } else {
        WorkerState::Idle
    }
}
