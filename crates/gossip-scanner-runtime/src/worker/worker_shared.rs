//! State that the threads of a worker share, and how the threads start and stop.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gossip_contracts::connector::Connector;
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::{CollectEvents, CoordinationFacade};
use gossip_handoff::Repository;

use super::damaged::DamageReports;
use super::handoff_thread::{self, Inbox};
use super::lease_slot::LeaseSlot;
use super::notify::Notify;
use super::orphans::Orphans;
use super::parked_retry::ParkedRetry;
use super::quarantine::Quarantine;
use super::sharing::Sharing;
use super::store_health::{Part, StoreHealth};
use super::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, PoisonError, thread};
use super::{Finish, MAX_THREADS, RunWorkerError, WorkerConfig, renewer, shard_runner};
use crate::clock::Clock;
use crate::host::{Host, ProcessName};
use crate::monitored::{Monitored, StoreReport};
use crate::observed::Observed;
use crate::observer::{Event, Observer};
use crate::processor::Processor;
use crate::task::{ResultCache, StoreAccess};
use crate::throttle::Throttle;
use crate::wall_time::WallTime;

/// Requests a drain of a worker, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    asked: AtomicBool,
    notify: Notify,
}

impl Drain {
    /// Returns a drain that was not requested.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a drain: the worker finishes its in-flight items, checkpoints, and hands off or
    /// releases its shards.
    pub fn ask(&self) {
        self.0.asked.store(true, Ordering::SeqCst);
        self.0.notify.wake_all();
    }

    /// Returns whether a drain was requested.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }
}

/// The collaborators of a worker; its settings are in [`WorkerConfig`].
#[derive(Clone, Copy)]
pub struct Parts<'a, B> {
    /// Opens a coordinator handle for one thread.
    pub coordinator: &'a (dyn Fn() -> B + Sync),
    /// The source.
    pub connector: &'a dyn Connector,
    /// Creates the processor of one thread, given the thread's number.
    pub processor: &'a (dyn Fn(usize) -> Box<dyn Processor + 'a> + Sync),
    /// Opens the repository of handoff records. Without it the worker neither accepts shards from
    /// other workers nor hands its own off, and a drain releases them.
    pub records: Option<&'a (dyn Fn() -> Box<dyn Repository + 'a> + Sync)>,
    /// The source of the current time. All parts of the worker are stepped with its worker time.
    pub clock: &'a dyn Clock,
    /// Looks up the processes of other workers; `&()` looks nothing up.
    pub host: &'a dyn Host,
    /// Requests the drain of this worker.
    pub drain: &'a Drain,
    /// Receives the events of this worker.
    pub observer: &'a dyn Observer,
}

impl<B> fmt::Debug for Parts<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("drain", self.drain).finish_non_exhaustive()
    }
}

/// Runs a worker until the run is settled or a drain is finished.
///
/// The observer also receives the events of the kernel ([`Observed`]).
///
/// # Errors
///
/// Returns the first [`RunWorkerError`]. The worker has released its shards, unless the store
/// failed; then their leases expire.
pub fn work<B>(config: &WorkerConfig, parts: Parts<'_, B>) -> Result<Finish, RunWorkerError>
where
    B: CoordinationFacade + CollectEvents,
{
    let coordinator = || Observed::new((parts.coordinator)(), parts.observer);
    // Closures, because these functions are asked for shorter lives than those of `parts`.
    let processor = |number| (parts.processor)(number) as Box<dyn Processor + '_>;
    let records = parts.records.map(|open| move || open() as Box<dyn Repository + '_>);
    let shared = WorkerShared::new(
        config,
        Parts {
            coordinator: &coordinator,
            connector: parts.connector,
            processor: &processor,
            records: records.as_ref().map(|open| open as _),
            clock: parts.clock,
            host: parts.host,
            drain: parts.drain,
            observer: parts.observer,
        },
    );
    let (shared, runners_done) = (&shared, &AtomicBool::new(false));
    thread::scope(|scope| {
        let renewer =
            scope.spawn(|| shared.contain("renewer thread", || renewer::run(shared, runners_done)));
        let handoff =
            scope.spawn(|| shared.contain("handoff thread", || handoff_thread::run(shared)));
        let runners: Vec<_> = (0..shared.slots.len())
            .map(|number| {
                let run = move || shard_runner::run(shared, number);
                scope.spawn(move || shared.contain("shard thread", run))
            })
            .collect();
        for runner in runners {
            drop(runner.join());
        }
        // The order matters: the renewer checks this flag after it read the notification count, so
        // the notification of `shut_down` cannot be lost between its check and its wait.
        runners_done.store(true, Ordering::SeqCst);
        shared.shut_down();
        drop((renewer, handoff));
    });
    shared.ended()
}

/// State that the parts of one worker share.
pub struct WorkerShared<'a, B> {
    pub(super) config: WorkerConfig,
    pub(super) parts: Parts<'a, B>,
    pub(super) throttle: Throttle,
    /// One for each runner, by its number.
    pub(super) slots: Vec<LeaseSlot>,
    /// Decides which runner may claim a shard on its last attempt.
    pub(super) quarantine: Quarantine,
    /// Shards accepted from other workers that no runner has taken yet.
    pub(super) inbox: Inbox,
    /// Results of items whose range was split off their shard.
    pub(super) result_cache: Arc<ResultCache>,
    /// The process that failure records name.
    pub(super) process: Arc<ProcessName>,
    /// Whether a draining worker releases the shards that it still holds.
    pub(super) releasing: AtomicBool,
    /// How many runners hold a shard, or are about to claim one after another.
    pub(super) busy: AtomicUsize,
    /// How many shards this worker has parked.
    pub(super) parked: AtomicUsize,
    /// Damaged shards that were reported.
    pub(super) damage_reports: DamageReports,
    /// The retries of shards that are parked for a reason that may pass.
    pub(super) parked_retry: ParkedRetry,
    /// What this worker has learned about shards that can be split.
    pub(super) sharing: Sharing,
    /// Whether the store is usable.
    pub(super) store: StoreHealth,
    /// Whether a shard could not be released because the store was unusable.
    pub(super) unsaved: AtomicBool,
    /// When this worker looks for leases of workers that are gone.
    pub(super) orphans: Orphans,
    /// The result of the worker; the first one is kept.
    pub(super) end: Mutex<Option<Result<Finish, RunWorkerError>>>,
}

impl<'a, B> WorkerShared<'a, B> {
    /// Returns the shared state of a worker that has not started.
    pub fn new(config: &WorkerConfig, parts: Parts<'a, B>) -> Self {
        let threads = config.threads.clamp(1, MAX_THREADS);
        // Without handoff records there is nothing to offer, so a drain releases shards at once.
        let releasing = AtomicBool::new(parts.records.is_none());
        let sharing = Sharing::new(config.seed, parts.clock.now());
        Self {
            config: config.clone(),
            parts,
            throttle: Throttle::new(config.limits),
            slots: (0..threads).map(|_| LeaseSlot::default()).collect(),
            quarantine: Quarantine::new(threads),
            inbox: Inbox::default(),
            result_cache: Arc::default(),
            process: Arc::new(ProcessName::current()),
            releasing,
            busy: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            damage_reports: DamageReports::default(),
            parked_retry: ParkedRetry::default(),
            sharing,
            store: StoreHealth::new(config.seed),
            unsaved: AtomicBool::new(false),
            orphans: Orphans::new(config.seed),
            end: Mutex::new(None),
        }
    }

    /// Runs one thread of the worker. If it panics, the worker drains: without renewals the leases
    /// of the other threads would expire, and without the handoff thread frozen shards would wait
    /// for ever.
    fn contain(&self, thread: &'static str, run: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.finish(Err(RunWorkerError::Panicked { thread }));
        }
    }

    /// Sets the result of the worker, unless it has one, and wakes all threads.
    pub(super) fn finish(&self, end: Result<Finish, RunWorkerError>) {
        let mut decided = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        decided.get_or_insert(end);
        // The lock is released first: a woken thread takes it to read the result.
        drop(decided);
        self.notify().wake_all();
    }

    /// Ends the worker. Called when every runner is over; a worker that has no result by then has
    /// drained.
    pub fn shut_down(&self) {
        let unsaved = self.unsaved.load(Ordering::SeqCst) || self.store.is_silent();
        self.finish(Ok(if unsaved { Finish::DrainedUnsaved } else { Finish::Drained }));
    }

    /// Opens a coordinator handle for one part of the worker. It takes and returns worker time.
    pub(super) fn coordinator(&self) -> Monitored<WallTime<'a, B>> {
        let (handle, clock) = ((self.parts.coordinator)(), self.parts.clock);
        Monitored::new(WallTime::new(handle, clock, self.config.lease_ticks))
    }

    /// Returns whether the store may be used at `now`.
    pub(super) fn store_access(&self, now: LogicalTime) -> StoreAccess {
        self.store.access(now, self.is_releasing())
    }

    /// Applies what the store did in the step of `part` that began at `begun`. Ends the worker if
    /// the store has been unusable for longer than it waits.
    pub(super) fn report(&self, part: Part, begun: LogicalTime, report: StoreReport) {
        // A call may have taken as long as its timeout.
        let now = || begun.max(self.parts.clock.now());
        match report {
            // It could have retried what failed, and had nothing to retry.
            StoreReport::Unused if self.store_access(begun) == StoreAccess::Retry => {
                if self.store.gave_up(part) {
                    self.notify().wake_all();
                }
            }
            StoreReport::Unused => {}
            StoreReport::Answered => {
                let Some(ended) = self.store.answered(part, now()) else { return };
                if ended.is_news {
                    let after = Duration::from_millis(ended.ticks);
                    self.parts.observer.observe(Event::StoreUsable { after });
                }
                self.notify().wake_all();
            }
            StoreReport::Failed(error) => {
                let outage = self.store.failed(part, begun, now());
                let patience = self.config.store_patience.checked_sub(outage.ticks);
                match patience.filter(|left| *left > 0) {
                    Some(left) if outage.is_news => {
                        let patience = Duration::from_millis(left);
                        self.parts
                            .observer
                            .observe(Event::StoreUnusable { error: &error, patience });
                    }
                    // A drain does not wait, so it does not run out of patience either.
                    None if !self.is_stopping() => {
                        let waited = Duration::from_millis(outage.ticks);
                        self.finish(Err(RunWorkerError::StoreUnusable { error, waited }));
                    }
                    Some(_) | None => {}
                }
            }
        }
    }

    /// Returns how the worker ended.
    ///
    /// # Errors
    ///
    /// The first [`RunWorkerError`] that ended it.
    pub fn ended(&self) -> Result<Finish, RunWorkerError> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        end.unwrap_or(Ok(Finish::Drained))
    }

    /// Returns whether runners must not claim more shards.
    pub(super) fn is_stopping(&self) -> bool {
        self.parts.drain.is_asked() || self.has_ended()
    }

    /// Returns whether runners must release their shards.
    pub(super) fn is_releasing(&self) -> bool {
        (self.parts.drain.is_asked() && self.releasing.load(Ordering::SeqCst)) || self.has_ended()
    }

    /// Makes a draining worker release every shard that it still holds.
    pub(super) fn release_all(&self) {
        self.releasing.store(true, Ordering::SeqCst);
        self.notify().wake_all();
    }

    /// Returns whether the worker has a result, so that its parts finish.
    pub fn has_ended(&self) -> bool {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns how often waiting parts were notified. When the number rises, every part that waits
    /// must be stepped, except the renewer, which has [`Renewer::has_news`](super::Renewer).
    pub fn notifications(&self) -> u64 {
        self.notify().count()
    }

    pub(crate) fn notify(&self) -> &Notify {
        &self.parts.drain.0.notify
    }
}
