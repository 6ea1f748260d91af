//! A run as its store shows it, read from time to time by a thread of its own, so that a slow store
//! does not stop the painter.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gossip::coordination::{GetRunError, RunManagement as _, RunStatus, WorkerEntry};
use gossip::identity::{LogicalTime, RunId, TenantId, WorkerId};
use gossip::runtime::{
    Clock as _, Density, Host as _, Presence, Progress, ProgressMeter, RunLook, Slice, SliceState,
    SystemClock, SystemHost,
};
use gossip::store::{Backend, Coordinator};

use crate::progress::holder_text;
use crate::screen::map::{Range, Rest};
use crate::screen::view::{Stall, Worker};

/// Minimum interval between two reads of the run, as a time and as a multiple of the duration of a
/// read: reading takes at most a twentieth of the time, however many shards there are.
const READ_EVERY: Duration = Duration::from_secs(1);
const READ_SHARE: u32 = 20;

/// The rate is that of this time before now: an average since the start would hide for minutes that
/// the work has stopped.
pub(crate) const RATE_WINDOW: Duration = Duration::from_secs(10);

/// A lease with less than this part of its duration left was not renewed in time: it is renewed
/// after a third, and half a period is granted for slowness.
const OVERDUE_SHARE: u64 = 2;

/// Workers whose number, and so whose colour, is remembered.
const WORKERS_MAX: usize = 1_000;

/// The last read of a run.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: RunStatus,
    pub(crate) progress: Progress,
    /// Keys per second of the whole run; `None` until two reads show it.
    pub(crate) rate: Option<f64>,
    pub(crate) ranges: Vec<Range>,
    /// How many workers have held a lease of the run in any snapshot.
    pub(crate) workers_seen: usize,
    holders: Vec<Holder>,
}

/// A lease holder.
#[derive(Clone, Debug)]
struct Holder {
    number: usize,
    name: String,
    shards: usize,
    /// When the last of its leases ends, if it does not renew them.
    overdue: Option<Instant>,
    is_gone: bool,
}

impl Snapshot {
    /// Returns the lease holders; the time that stalled ones have left counts down between reads.
    pub(crate) fn workers(&self, now: Instant) -> Vec<Worker> {
        let worker = |holder: &Holder| Worker {
            number: holder.number,
            name: holder.name.clone(),
            shards: holder.shards,
            stalled: holder.overdue.map(|until| Stall {
                left: until.saturating_duration_since(now),
                is_gone: holder.is_gone,
            }),
        };
        self.holders.iter().map(worker).collect()
    }
}

/// The newest snapshot, shared with the thread that reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest(Arc<Mutex<Option<Arc<Snapshot>>>>);

impl Latest {
    pub(crate) fn get(&self) -> Option<Arc<Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, snapshot: Snapshot) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
    }
}

/// Reads a run again and again.
pub(crate) struct Overview {
    coordinator: Coordinator,
    tenant: TenantId,
    run: RunId,
    meter: ProgressMeter,
    numbers: Numbers,
    rate: Rate,
    /// The lease duration of the run, in ticks; 0 until it was read.
    lease: u64,
    entries: Vec<WorkerEntry>,
}

impl Overview {
    /// Returns an overview of a run; `own` is the worker of this process, if it works on the run.
    pub(crate) fn new(
        backend: &Backend,
        tenant: TenantId,
        run: RunId,
        density: Density,
        own: Option<WorkerId>,
    ) -> Self {
        Self {
            coordinator: backend.coordinator(),
            tenant,
            run,
            meter: ProgressMeter::new(density),
            numbers: Numbers::new(own),
            rate: Rate::default(),
            lease: 0,
            entries: Vec::new(),
        }
    }

    /// Reads the run once. Returns the snapshot, and the time after which the next read is due.
    ///
    /// The cost grows with the number of shards and of workers.
    pub(crate) fn read(&mut self) -> (Result<Snapshot, GetRunError>, Duration) {
        let started = Instant::now();
        let snapshot = self.take();
        (snapshot, READ_EVERY.max(started.elapsed() * READ_SHARE))
    }

    fn take(&mut self) -> Result<Snapshot, GetRunError> {
        // Once: the configuration of a run does not change.
        if self.lease == 0 {
            let record = self.coordinator.get_run(self.tenant, self.run)?;
            self.lease = record.config().lease_duration();
        }
        let now = SystemClock::new().now();
        let look = RunLook::take(&mut self.coordinator, now, self.tenant, self.run)?;
        let progress = self.meter.observe(&look);
        let slices = self.meter.slices(&look);
        // The registry is read only if there is another worker to name.
        if slices.iter().any(|slice| slice.holder.is_some_and(|it| !self.numbers.is_own(it))) {
            self.entries.clear();
            // All entries that are stored: a lease may last longer than the entry of its holder.
            // Without them other workers have no names.
            let listed = self.coordinator.list_workers_into(
                LogicalTime::ZERO,
                self.tenant,
                &mut self.entries,
            );
            drop(listed);
        }
        let holders = self.holders(&slices, now);
        let ranges = slices.iter().map(|slice| self.range(slice, &holders)).collect();
        let rate = self.rate.at(Instant::now(), progress.keys);
        let workers_seen = self.numbers.known.len();
        Ok(Snapshot { status: look.status, progress, rate, ranges, workers_seen, holders })
    }

    fn holders(&mut self, slices: &[Slice], now: LogicalTime) -> Vec<Holder> {
        let mut leases: BTreeMap<WorkerId, (usize, LogicalTime)> = BTreeMap::new();
        for slice in slices {
            let (Some(holder), Some(ends)) = (slice.holder, slice.lease_ends) else { continue };
            let (shards, last) = leases.entry(holder).or_insert((0, ends));
            // The last deadline: renewals come in turns, and a worker that lives has renewed one
            // of them.
            (*shards, *last) = (*shards + 1, ends.max(*last));
        }
        let mut holders: Vec<Holder> = Vec::with_capacity(leases.len());
        for (worker, (shards, ends)) in leases {
            let number = self.numbers.of(worker);
            let entry = self.entries.iter().find(|entry| entry.worker == worker);
            let process = entry.and_then(|entry| entry.process);
            let presence =
                process.map_or(Presence::Unknown, |process| SystemHost.presence(&process));
            // A deadline that lies further ahead is void a lease after the last renewal.
            let left = ends.as_raw().saturating_sub(now.as_raw()).min(self.lease);
            let is_gone = matches!(presence, Presence::Gone | Presence::Ending);
            let is_overdue = is_gone || left < self.lease / OVERDUE_SHARE;
            let is_own = self.numbers.is_own(worker);
            holders.push(Holder {
                number,
                name: match process {
                    _ if is_own => "this worker".to_owned(),
                    Some(process) => holder_text(worker, Some(&process)),
                    // The second half differs between the workers of a run.
                    None => format!("worker {:08x}", worker.as_raw() & 0xffff_ffff),
                },
                shards,
                // This process knows that it is alive, whatever its leases say.
                overdue: (is_overdue && !is_own)
                    .then(|| Instant::now() + Duration::from_millis(left)),
                is_gone,
            });
        }
        holders.sort_by_key(|holder| holder.number);
        holders
    }

    fn range(&self, slice: &Slice, holders: &[Holder]) -> Range {
        let rest = match (slice.state, slice.holder) {
            (SliceState::Leased, Some(worker)) => {
                let number = self.numbers.known(worker);
                match holders.iter().find(|holder| holder.number == number) {
                    Some(holder) if holder.overdue.is_some() => Rest::Stalled,
                    _ => Rest::Leased(number),
                }
            }
            (SliceState::Parked | SliceState::Damaged, _) => Rest::Failed,
            (SliceState::Done | SliceState::Leased | SliceState::Waiting, _) => Rest::Waiting,
        };
        Range { from: slice.from, covered: slice.covered, to: slice.to, rest }
    }
}

/// Numbers of workers, in the order in which they were first seen.
#[derive(Debug)]
struct Numbers {
    own: Option<WorkerId>,
    known: BTreeMap<WorkerId, usize>,
}

impl Numbers {
    fn new(own: Option<WorkerId>) -> Self {
        Self { own, known: own.map(|own| (own, 0)).into_iter().collect() }
    }

    fn is_own(&self, worker: WorkerId) -> bool {
        self.own == Some(worker)
    }

    fn of(&mut self, worker: WorkerId) -> usize {
        let next = self.known.len();
        // Known ones keep their numbers, so that no colour changes while a user looks.
        if next >= WORKERS_MAX {
            return self.known(worker);
        }
        *self.known.entry(worker).or_insert(next)
    }

    fn known(&self, worker: WorkerId) -> usize {
        self.known.get(&worker).copied().unwrap_or(WORKERS_MAX)
    }
}

/// A rate over the last [`RATE_WINDOW`].
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// Times and counts, oldest first.
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Adds a count and returns the keys per second; `None` for the first one.
    pub(crate) fn at(&mut self, now: Instant, keys: u64) -> Option<f64> {
        self.samples.push_back((now, keys));
        // One sample from before the window stays, so that the window is always spanned.
        let is_outside = |(time, _): &(Instant, u64)| *time + RATE_WINDOW <= now;
        while self.samples.get(1).is_some_and(is_outside) {
            self.samples.pop_front();
        }
        let (since, before) = *self.samples.front()?;
        let seconds = now.duration_since(since).as_secs_f64();
        (seconds > 0.0).then(|| keys.saturating_sub(before) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        let started = Instant::now();
        let mut rate = Rate::default();
        let mut at = |seconds, keys| rate.at(started + Duration::from_secs(seconds), keys);
        assert_eq!(at(0, 0), None);
        assert_eq!(at(5, 500), Some(100.0));
        assert_eq!(at(10, 1000), Some(100.0));
        // Nothing was done for ten seconds.
        assert_eq!(at(20, 1000), Some(0.0));
    }

    #[test]
    fn workers_keep_their_number() {
        let worker = WorkerId::from_raw;
        let mut numbers = Numbers::new(Some(worker(7)));
        assert_eq!([7, 3, 5, 3, 7].map(|id| numbers.of(worker(id))), [0, 1, 2, 1, 0]);
    }
}
