//! The one reader of the store, on a thread of its own.
//!
//! Browsers never cause a read: they are answered from [`State`](crate::state::State). A client
//! that looks at a run only moves it to the front of the queue. Every request keeps the
//! [pace](crate::pace), and reading a run takes at most a twentieth of the time.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gossip::coordination::store::{StoreConfig, StoreCoordinator, fresh_nonce};
use gossip::coordination::{
    GetRunError, InfraError, RunManagement as _, RunRecord, RunStatus, WorkerEntry, WorkerError,
    WorkerState,
};
use gossip::identity::{LogicalTime, RunId, TenantId};
use gossip::runtime::{
    Clock as _, Density, Host as _, Job, Presence, RunLook, SystemClock, SystemHost, worker_of,
};
use gossip::sources::{KeyFormat, Source};

use crate::events::{Events, Moved};
use crate::follow::{At, Follower};
use crate::pace::PacedStore;
use crate::state::{RunState, Shared, State, Warning, add};
use crate::wire::{Lane, RunSummary, RunView, StoreHealth, UNREADABLE, WorkerRow, Workers};

pub(crate) type Coordinator = StoreCoordinator<PacedStore>;

/// Intervals of the lists.
const ACTIVE_EVERY: Duration = Duration::from_secs(1);
const ALL_EVERY: Duration = Duration::from_secs(10);
const WORKERS_EVERY: Duration = Duration::from_secs(2);

/// Minimum interval between two reads of a run, and as a multiple of the duration of a read.
const READ_EVERY: Duration = Duration::from_secs(1);
const READ_SHARE: u32 = 20;

/// Waits after a failure.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Time between two reads of a run that caused a panic.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// Runs per page of a listing, and runs that are kept: the newest ids beyond are not shown.
const PAGE: usize = 256;
const RUNS_MAX: usize = 10_000;

/// Runs that are followed at once: each costs at most about three megabytes.
const FOLLOWED_MAX: usize = 16;

/// Returns a handle for reads that keep the pace.
pub(crate) fn coordinator(shared: &Shared) -> (Coordinator, u64) {
    let (backend, opened) = shared.backend();
    let store = PacedStore { store: backend.store(), pace: Arc::clone(&shared.pace) };
    (StoreCoordinator::new(store, StoreConfig::new(fresh_nonce())), opened)
}

/// A run in the queue.
#[derive(Debug)]
struct Queued {
    due: Instant,
    status: Option<RunStatus>,
    /// Whether it was listed as unfinished.
    is_active: bool,
    /// Whether its record was damaged at the last read.
    is_unreadable: bool,
}

/// Why a read ended early.
enum Stop {
    /// The store cannot be read.
    Store(String),
    /// The record of this run cannot be read.
    Run,
    /// The run was deleted.
    Gone,
}

impl From<InfraError> for Stop {
    fn from(error: InfraError) -> Self {
        match error.cause() {
            InfraError::Corruption { .. } if error.is_of_record() || error.is_of_shard() => {
                Self::Run
            }
            _ => Self::Store(error.to_string()),
        }
    }
}

impl From<GetRunError> for Stop {
    fn from(error: GetRunError) -> Self {
        match error {
            GetRunError::BackendError(error) => error.into(),
            _ => Self::Gone,
        }
    }
}

/// Reads the store until `stop`.
pub(crate) struct Sampler {
    shared: Arc<Shared>,
    tenant: TenantId,
    coordinator: Coordinator,
    /// How often the store had been opened when the handle was made.
    opened: u64,
    queue: BTreeMap<RunId, Queued>,
    followers: BTreeMap<RunId, Follower>,
    lanes: BTreeMap<RunId, Vec<Lane>>,
    entries: Vec<WorkerEntry>,
    active_due: Instant,
    all_due: Instant,
    workers_due: Instant,
    second: (Instant, u64),
    /// Runs read so far.
    reads: u64,
    /// Whether the store could not be read, and is opened again.
    is_lost: bool,
}

impl Sampler {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (coordinator, opened) = coordinator(&shared);
        let now = Instant::now();
        Self {
            tenant: shared.options.tenant,
            shared,
            coordinator,
            opened,
            queue: BTreeMap::new(),
            followers: BTreeMap::new(),
            lanes: BTreeMap::new(),
            entries: Vec::new(),
            active_due: now,
            all_due: now,
            workers_due: now,
            second: (now, 0),
            reads: 0,
            is_lost: false,
        }
    }

    pub(crate) fn run(mut self) {
        let mut retry = RETRY_FIRST;
        while !self.shared.stop.load(Ordering::SeqCst) {
            // The only reader must survive a bug in the reading of one run: without it every page
            // stays as it is.
            let is_read = catch_unwind(AssertUnwindSafe(|| self.turn())).unwrap_or_else(|_| {
                self.recover();
                false
            });
            if is_read {
                retry = RETRY_FIRST;
            } else {
                std::thread::sleep(retry);
                retry = (retry * 2).min(RETRY_LONGEST);
            }
        }
    }

    /// Does the due reads, and notes whether the store can be read.
    fn turn(&mut self) -> bool {
        if self.is_lost {
            // A failure here is that of the step.
            drop(self.shared.reopen());
        }
        match self.step() {
            Ok(is_idle) => {
                self.is_lost = false;
                self.note_store(None);
                if is_idle {
                    self.shared.sleep(Duration::from_millis(100));
                }
                true
            }
            Err(why) => {
                self.is_lost = true;
                self.note_store(Some(why));
                false
            }
        }
    }

    /// Continues after a panic. A run whose read panicked is shown as unreadable, and tried again
    /// when it is due, so that others are read.
    fn recover(&mut self) {
        let failed = self.shared.note_panic();
        self.shared.warn(Warning::Sampler, Some(&failed));
        let reading = self.shared.write().reading.take();
        if let Some((run, _)) = reading {
            self.note_unreadable(run);
            if let Some(queued) = self.queue.get_mut(&run) {
                queued.due = Instant::now() + AFTER_PANIC;
            }
        }
        // What the handle remembers may be half changed.
        (self.coordinator, self.opened) = coordinator(&self.shared);
    }

    /// Does the due reads. Returns whether there were none.
    fn step(&mut self) -> Result<bool, String> {
        // An open file can be read after it was deleted or replaced, and would show a store that
        // no worker uses.
        self.shared.access.check()?;
        let (_, opened) = self.shared.backend();
        if opened != self.opened {
            (self.coordinator, self.opened) = coordinator(&self.shared);
        }
        let now = Instant::now();
        if now >= self.all_due {
            self.list_all()?;
            // From the end of the listing: one that takes longer than its interval must not follow
            // itself at once.
            self.all_due = Instant::now() + ALL_EVERY;
        }
        if now >= self.active_due {
            self.list_active()?;
            self.active_due = Instant::now() + ACTIVE_EVERY;
        }
        if now >= self.workers_due {
            self.list_workers()?;
            self.workers_due = Instant::now() + WORKERS_EVERY;
        }
        let Some(run) = self.next_run() else { return Ok(true) };
        self.read_run(run)?;
        Ok(false)
    }

    fn list_all(&mut self) -> Result<(), String> {
        let (mut runs, mut after) = (Vec::new(), None);
        loop {
            let before = runs.len();
            let listed = self.coordinator.list_runs_into(self.tenant, after, PAGE, &mut runs);
            listed.map_err(|error| error.to_string())?;
            if runs.len() - before < PAGE || runs.len() >= RUNS_MAX {
                break;
            }
            after = runs.last().copied();
        }
        // Bounded, because each run that is shown takes memory in this process.
        runs.truncate(RUNS_MAX);
        let gone: Vec<RunId> =
            // The listing is in the order of ids.
            self.queue.keys().filter(|run| runs.binary_search(run).is_err()).copied().collect();
        for run in gone {
            self.forget(run);
        }
        self.enqueue(&runs, false);
        let mut state = self.shared.write();
        state.is_listed = true;
        Ok(())
    }

    fn list_active(&mut self) -> Result<(), String> {
        let mut runs = Vec::new();
        let listed = self.coordinator.list_active_runs_into(self.tenant, None, PAGE, &mut runs);
        match listed.map_err(Stop::from) {
            Ok(()) => self.shared.warn(Warning::Runs, None),
            // The other runs are listed all the same. The read of its run shows which one it is.
            Err(Stop::Run | Stop::Gone) => {
                self.shared.warn(Warning::Runs, Some("a record of a run is damaged"));
            }
            Err(Stop::Store(why)) => return Err(why),
        }
        if self.queue.len() < RUNS_MAX {
            self.enqueue(&runs, true);
        }
        Ok(())
    }

    fn enqueue(&mut self, runs: &[RunId], is_active: bool) {
        let due = Instant::now();
        for run in runs {
            let new = Queued { due, status: None, is_active, is_unreadable: false };
            // A known run keeps its due time: a listing must not move it to the front.
            self.queue.entry(*run).or_insert(new).is_active |= is_active;
        }
    }

    /// Removes a run that was deleted.
    fn forget(&mut self, run: RunId) {
        self.queue.remove(&run);
        self.followers.remove(&run);
        self.lanes.remove(&run);
        if self.shared.write().runs.remove(&run).is_some() {
            let gone = format!("{{\"run\":\"{:016x}\"}}", run.as_raw());
            self.shared.hub.publish("gone", None, &gone);
        }
    }

    fn list_workers(&mut self) -> Result<(), String> {
        self.entries.clear();
        // All entries that are stored: a lease may last longer than the entry of its holder.
        let listed =
            self.coordinator.list_workers_into(LogicalTime::ZERO, self.tenant, &mut self.entries);
        if let Err(WorkerError::BackendError(error)) = listed {
            match Stop::from(error) {
                Stop::Store(why) => return Err(why),
                Stop::Run | Stop::Gone => {
                    self.shared.warn(Warning::Workers, Some("a record of a worker is damaged"));
                }
            }
        } else {
            self.shared.warn(Warning::Workers, None);
        }
        let workers = Workers { workers: self.worker_rows(SystemClock::new().now()) };
        let mut state = self.shared.write();
        if state.workers != workers {
            let json = serde_json::to_string(&workers).expect("numbers and words are JSON");
            state.workers = workers;
            drop(state);
            self.shared.hub.publish("workers", None, &json);
        }
        Ok(())
    }

    fn worker_rows(&self, now: LogicalTime) -> Vec<WorkerRow> {
        let lanes = || {
            self.lanes.iter().flat_map(|(run, lanes)| lanes.iter().map(move |lane| (*run, lane)))
        };
        let mut rows: BTreeMap<String, WorkerRow> = BTreeMap::new();
        for entry in &self.entries {
            let id = format!("{:016x}", entry.worker.as_raw());
            // A worker that still holds a lease is shown although its entry has expired: it may
            // only be silent.
            let held = lanes().find(|(_, lane)| lane.worker == id);
            if held.is_none() && !entry.is_live_at(now) {
                continue;
            }
            let process = entry.process;
            let label = process.and_then(|process| process.label);
            let unfinished = self.queue.iter().filter(|(_, it)| it.status.is_none_or(is_open));
            let run = unfinished
                .map(|(run, _)| *run)
                // The upper half of a worker's id is that of its run.
                .find(|run| entry.worker == worker_of(*run, entry.worker.as_raw()));
            rows.insert(
                id.clone(),
                WorkerRow {
                    worker: id,
                    host: label.map(|label| label.host.as_str().to_owned()),
                    pid: process.map(|process| process.process.pid),
                    version: label.map(|label| label.version.as_str().to_owned()),
                    state: state_word(entry, now),
                    jobs: label.map(|label| label.jobs),
                    run: run.map(|run| format!("{:016x}", run.as_raw())),
                    shards: held.map_or(0, |(_, lane)| lane.shards),
                    rate: held.and_then(|(_, lane)| lane.rate),
                    is_slow: held.is_some_and(|(_, lane)| lane.is_slow),
                    last_seen: Some(entry.last_seen().as_raw()),
                },
            );
        }
        for (run, lane) in lanes() {
            rows.entry(lane.worker.clone()).or_insert_with(|| WorkerRow {
                worker: lane.worker.clone(),
                host: None,
                pid: None,
                version: None,
                state: "unknown",
                jobs: None,
                run: Some(format!("{:016x}", run.as_raw())),
                shards: lane.shards,
                rate: lane.rate,
                is_slow: lane.is_slow,
                last_seen: None,
            });
        }
        rows.into_values().collect()
    }

    /// Returns the run to read next: one that a client looks at, or the one that is due first.
    fn next_run(&self) -> Option<RunId> {
        let now = Instant::now();
        let is_due = |run: &RunId| self.queue.get(run).is_some_and(|queued| queued.due <= now);
        // One that cannot be read is tried again when it is due, like all others.
        let is_readable =
            |run: &RunId| self.queue.get(run).is_some_and(|queued| !queued.is_unreadable);
        let is_unseen =
            |run: &RunId| self.followers.get(run).is_none_or(|follower| !follower.is_seeded);
        let wanted = self.shared.wanted();
        // A finished run that is followed does not change.
        let is_useful = |run: &&RunId| is_unseen(run) && is_readable(run) || is_due(run);
        if let Some(run) = wanted.iter().find(is_useful) {
            return Some(*run);
        }
        let due = self.queue.iter().filter(|(_, queued)| queued.due <= now);
        // In turns: neither do thousands of finished runs delay the unfinished ones after a start,
        // nor do many unfinished ones hide the finished.
        let is_turn = self.reads.is_multiple_of(2);
        let place = |queued: &Queued| {
            let is_open = queued.status.map_or(queued.is_active, is_open);
            (is_turn != is_open, queued.due)
        };
        due.min_by_key(|(_, queued)| place(queued)).map(|(run, _)| *run)
    }

    fn read_run(&mut self, run: RunId) -> Result<(), String> {
        let started = Instant::now();
        self.reads += 1;
        self.shared.write().reading = Some((run, self.shared.pace.counted().rows));
        let read = self.try_read(run);
        self.shared.write().reading = None;
        match read {
            Ok(()) => {}
            Err(Stop::Store(why)) => return Err(why),
            Err(Stop::Gone) => {
                self.forget(run);
                return Ok(());
            }
            Err(Stop::Run) => self.note_unreadable(run),
        }
        // In proportion to the read, so that a run with many shards takes no larger share of the
        // store.
        let wait = READ_EVERY.max(started.elapsed() * READ_SHARE);
        if let Some(queued) = self.queue.get_mut(&run) {
            let is_over = queued.status.is_some_and(RunStatus::is_terminal);
            // A finished run does not change; its deletion is noticed by the listing.
            let wait = if is_over { Duration::from_secs(365 * 86_400) } else { wait };
            queued.due = Instant::now() + wait;
        }
        Ok(())
    }

    fn try_read(&mut self, run: RunId) -> Result<(), Stop> {
        // First, because a run that is gone or damaged needs no read of its shards.
        let record = self.coordinator.get_run(self.tenant, run)?;
        let clock = SystemClock::new();
        let look = RunLook::take(&mut self.coordinator, clock.now(), self.tenant, run)?;
        let at = At { now: clock.now(), instant: Instant::now() };
        let job = job_of(&look);
        let summary = self.summary(&record, &look, job.as_ref());
        // Taken out for the read: if it panics, a follower that is half changed must not stay.
        let mut follower = match self.followers.remove(&run) {
            Some(follower) => follower,
            None => {
                // The total of a finished run is the number of its keys.
                let density = match &job {
                    Some(job) if !look.status.is_terminal() => self.shared.access.density(job),
                    Some(_) | None => Density::default(),
                };
                Follower::new(run, density, record.config().lease_duration())
            }
        };
        // A finished run that no client looks at needs no history; a start reads thousands of them.
        let is_of_use = !look.status.is_terminal() || self.shared.wanted().contains(&run);
        if is_of_use && !follower.is_seeded {
            follower.seed(&self.moved(run)?);
        }
        let view = follower.observe(&look, at, &self.entries, summary);
        let newest = view.marks.iter().filter(|mark| mark.at == view.at).count();
        for mark in view.marks.iter().rev().take(newest) {
            let counters = &self.shared.counters;
            add(if mark.kind == "handoff" { &counters.handoffs } else { &counters.takeovers });
        }
        self.lanes.insert(run, view.workers.clone());
        if view.workers.is_empty() {
            self.lanes.remove(&run);
        }
        if let Some(queued) = self.queue.get_mut(&run) {
            queued.status = Some(look.status);
            queued.is_unreadable = false;
        }
        self.publish(run, &view, &follower, job.as_ref());
        self.keep(follower);
        Ok(())
    }

    /// Reads the leases that changed hands before the server followed the run.
    fn moved(&mut self, run: RunId) -> Result<Vec<Moved>, Stop> {
        match Events::read(&mut self.coordinator, self.tenant, run).map_err(Stop::from) {
            Ok(events) => Ok(events.moved()),
            // A damaged event does not make the run unreadable.
            Err(Stop::Run) => Ok(Vec::new()),
            Err(error @ (Stop::Store(_) | Stop::Gone)) => Err(error),
        }
    }

    fn publish(&self, run: RunId, view: &RunView, follower: &Follower, job: Option<&Job>) {
        let json: Arc<str> =
            serde_json::to_string(view).expect("numbers and words are JSON").into();
        let source = job.and_then(|job| Source::restore(&job.source, job.options).ok());
        let entry = RunState {
            summary: view.summary.clone(),
            view: Some(Arc::clone(&json)),
            history: follower.history(),
            parked: follower.parked.clone().into(),
            format: source.map_or(KeyFormat::Bytes, |source| source.key_format()),
        };
        let mut state = self.shared.write();
        let before = state.runs.insert(run, entry);
        drop(state);
        // The list is sent to every browser, so only if its row has changed.
        if before.is_none_or(|before| before.summary != view.summary) {
            let summary = serde_json::to_string(&view.summary).expect("numbers are JSON");
            self.shared.hub.publish("runs", None, &summary);
        }
        self.shared.hub.publish("run", Some(run), &json);
    }

    /// Keeps a follower if there is room, or if its run matters more than another.
    fn keep(&mut self, follower: Follower) {
        let wanted = self.shared.wanted();
        let weight = |run: RunId| {
            let queued = self.queue.get(&run).and_then(|queued| queued.status);
            (wanted.contains(&run), queued.is_none_or(is_open), run)
        };
        let run = follower.run();
        self.followers.insert(run, follower);
        if self.followers.len() <= FOLLOWED_MAX {
            return;
        }
        // Finished runs that no client looks at go first: their view can be read again at any
        // time.
        let least = self.followers.keys().copied().min_by_key(|run| weight(*run));
        let Some(least) = least else { return };
        self.followers.remove(&least);
        if let Some(dropped) = self.shared.write().runs.get_mut(&least) {
            dropped.view = None;
            dropped.history = (Vec::new(), Duration::ZERO);
            dropped.parked = Arc::default();
        }
    }

    fn summary(&self, record: &RunRecord, look: &RunLook, job: Option<&Job>) -> RunSummary {
        RunSummary {
            run: format!("{:016x}", record.run().as_raw()),
            name: record.config().name().map(|name| name.to_string()),
            status: status_word(look).to_owned(),
            is_over: look.status.is_terminal(),
            source: job.map(|job| job.source.to_string_lossy().into_owned()),
            command: job.map(|job| self.shared.access.command(job)),
            created_at: record.created_at().as_raw(),
            completed_at: record.completed_at().map(LogicalTime::as_raw),
            ..RunSummary::default()
        }
    }

    /// Shows a run whose record cannot be read as such, in place of the view that was read before.
    fn note_unreadable(&mut self, run: RunId) {
        self.followers.remove(&run);
        self.lanes.remove(&run);
        if let Some(queued) = self.queue.get_mut(&run) {
            (queued.status, queued.is_unreadable) = (None, true);
        }
        let mut state = self.shared.write();
        let entry = state.runs.entry(run).or_insert_with(|| RunState {
            summary: RunSummary::default(),
            view: None,
            history: (Vec::new(), Duration::ZERO),
            parked: Arc::default(),
            format: KeyFormat::Bytes,
        });
        // An old view would look current, while the run may have changed since.
        entry.view = None;
        if entry.summary.status == UNREADABLE {
            return;
        }
        entry.summary.run = format!("{:016x}", run.as_raw());
        UNREADABLE.clone_into(&mut entry.summary.status);
        entry.summary.rate = None;
        let summary = serde_json::to_string(&entry.summary).expect("numbers are JSON");
        drop(state);
        self.shared.hub.publish("runs", None, &summary);
    }

    /// Notes whether the store can be read.
    fn note_store(&mut self, error: Option<String>) {
        let counted = self.shared.pace.counted();
        let is_known = error.is_none() && self.shared.read().store.is_readable;
        // At most once a second, but at once if the store has failed or has recovered.
        if is_known && self.second.0.elapsed() < Duration::from_secs(1) {
            return;
        }
        let elapsed = self.second.0.elapsed().as_secs_f64().max(1.0);
        let rate = (counted.requests - self.second.1) as f64 / elapsed;
        self.second = (Instant::now(), counted.requests);
        // Read again, because a newer program may upgrade the store while this one runs.
        let format = error.is_none().then(|| self.shared.backend().0.format().ok()).flatten();
        let mut state = self.shared.write();
        let State { runs, store, .. } = &mut *state;
        let now = SystemClock::new().now().as_raw();
        let next = StoreHealth {
            place: store.place.clone(),
            is_readable: error.is_none(),
            last_read: if error.is_none() { Some(now) } else { store.last_read },
            format: format.or(store.format),
            runs: runs.len() as u64,
            runs_unfinished: runs.values().filter(|run| !run.summary.is_over).count() as u64,
            requests: counted.requests,
            errors: counted.errors,
            requests_per_second: rate.ceil() as u64,
            latency_median_us: counted.latency_median,
            latency_p99_us: counted.latency_p99,
            error,
            warnings: self.shared.warnings(),
        };
        *store = next;
        let json = serde_json::to_string(&*store).expect("numbers and words are JSON");
        drop(state);
        self.shared.hub.publish("store", None, &json);
    }
}

const fn is_open(status: RunStatus) -> bool {
    !status.is_terminal()
}

/// Returns the source and command of a run, if its shards describe them.
fn job_of(look: &RunLook) -> Option<Job> {
    let rows = look.shards();
    let row = rows.iter().find(|row| row.damage.is_none_or(|damage| damage.has_range()))?;
    Job::of_shard(&row.metadata).ok()
}

/// Returns the status of a run in one word, as `gossip run list` shows it.
fn status_word(look: &RunLook) -> &'static str {
    use gossip::Totals;
    use gossip::coordination::{
        RunProgress, RunTerminalEvaluation, ShardStatus, evaluate_run_terminal,
    };
    let totals = Totals::of(look.shards());
    let is_active = |row: &&gossip::coordination::ShardSummary| {
        row.damage.is_none() && row.status == ShardStatus::Active
    };
    let progress = RunProgress {
        active: look.shards().iter().filter(is_active).count() as u64,
        parked: totals.parked,
        damaged: totals.damaged,
        ..RunProgress::default()
    };
    match look.status {
        RunStatus::Initializing => "initializing",
        RunStatus::Active if look.paused => "paused",
        RunStatus::Active => match evaluate_run_terminal(&progress) {
            RunTerminalEvaluation::HasFailures => "incomplete",
            RunTerminalEvaluation::StillActive | RunTerminalEvaluation::AllDone => "active",
        },
        RunStatus::Done if totals.unread > 0 || totals.damaged > 0 => "incomplete",
        RunStatus::Done => "done",
        RunStatus::Failed => "failed",
        RunStatus::Cancelled => "cancelled",
    }
}

fn state_word(entry: &WorkerEntry, now: LogicalTime) -> &'static str {
    match (entry.process.map(|process| SystemHost.presence(&process)), entry.state) {
        (Some(Presence::Gone), _) => "gone",
        (Some(Presence::Ending), _) => "ending",
        _ if !entry.is_live_at(now) => "silent",
        (_, WorkerState::Working) => "working",
        (_, WorkerState::Idle) => "idle",
        (_, WorkerState::Draining) => "draining",
        // The coordinator's enum may grow.
        _ => "other",
    }
}
