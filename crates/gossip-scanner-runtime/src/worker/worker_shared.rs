//! What the threads of a worker share, and how they begin and end.

use std::fmt;

use gossip_contracts::connector::Connector;
use gossip_coordination::CoordinationFacade;
use gossip_handoff::Repository;

use super::handoff_thread::{self, Inbox};
use super::lease_slot::LeaseSlot;
use super::notify::Notify;
use super::quarantine::Quarantine;
use super::sharing::Sharing;
use super::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, PoisonError, thread};
use super::{Finish, MAX_THREADS, RunWorkerError, WorkerConfig, renewer, shard_runner};
use crate::clock::Clock;
use crate::observer::Observer;
use crate::processor::{Broken, Processor};
use crate::task::ResultCache;
use crate::throttle::Throttle;

/// Tells a worker to stop, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    asked: AtomicBool,
    notify: Notify,
}

impl Drain {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the worker to finish the items under way, record progress and give its shards back.
    pub fn ask(&self) {
        self.0.asked.store(true, Ordering::SeqCst);
        self.0.notify.wake_all();
    }

    /// Whether somebody has asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }
}

/// What a worker is made of, besides its settings.
#[derive(Clone, Copy)]
pub struct Parts<'a, B> {
    /// Makes a coordinator handle for one thread.
    pub coordinator: &'a (dyn Fn() -> B + Sync),
    /// The source.
    pub connector: &'a dyn Connector,
    /// Makes the processor of one thread, by its number.
    pub processor: &'a (dyn Fn(usize) -> Box<dyn Processor + 'a> + Sync),
    /// Opens the records of planned moves. Without it the worker neither takes shards from others
    /// nor hands its own over, and a drain releases them.
    pub records: Option<&'a (dyn Fn() -> Box<dyn Repository + 'a> + Sync)>,
    /// The time.
    pub clock: &'a dyn Clock,
    /// Tells it to stop.
    pub drain: &'a Drain,
    /// Is told what happens.
    pub observer: &'a dyn Observer,
}

impl<B> fmt::Debug for Parts<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("drain", self.drain).finish_non_exhaustive()
    }
}

/// Works on a run until it is settled, or until it is told to stop.
///
/// # Errors
///
/// [`RunWorkerError`]. The shards were given back, unless it is the store that failed.
pub fn work<B>(config: &WorkerConfig, parts: Parts<'_, B>) -> Result<Finish, RunWorkerError>
where
    B: CoordinationFacade,
{
    let shared = WorkerShared::new(config, parts);
    let (shared, runners_done) = (&shared, &AtomicBool::new(false));
    thread::scope(|scope| {
        let renewer = scope.spawn(|| renewer::run(shared, runners_done));
        let handoff = scope.spawn(|| handoff_thread::run(shared));
        let runners: Vec<_> = (0..shared.slots.len())
            .map(|number| scope.spawn(move || shard_runner::run(shared, number)))
            .collect();
        for runner in runners {
            // A runner catches what its shards throw; what is left is our own bug.
            if runner.join().is_err() {
                shared
                    .finish(Err(RunWorkerError::Broken(Broken("a worker thread panicked".into()))));
            }
        }
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
    /// One for each runner.
    pub(super) slots: Vec<LeaseSlot>,
    /// Who may claim what.
    pub(super) quarantine: Quarantine,
    /// Shards that have arrived from other workers.
    pub(super) inbox: Inbox,
    /// What is known of items of shards that were split off.
    pub(super) result_cache: Arc<ResultCache>,
    /// Whether a worker that drains has given away what it could.
    pub(super) releasing: AtomicBool,
    /// How many runners have a shard.
    pub(super) busy: AtomicUsize,
    /// How many shards this worker has set aside.
    pub(super) parked: AtomicUsize,
    /// What is known of the shards of others.
    pub(super) sharing: Sharing,
    /// How the worker ends; the first to say so decides.
    pub(super) end: Mutex<Option<Result<Finish, RunWorkerError>>>,
}

impl<'a, B> WorkerShared<'a, B> {
    /// Returns the shared state of a worker that has not started.
    pub fn new(config: &WorkerConfig, parts: Parts<'a, B>) -> Self {
        let threads = config.threads.clamp(1, MAX_THREADS);
        // Without records nothing is given away: it is let go at once.
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
            releasing,
            busy: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            sharing,
            end: Mutex::new(None),
        }
    }

    /// Ends the worker, unless it has ended.
    pub(super) fn finish(&self, end: Result<Finish, RunWorkerError>) {
        let mut decided = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        decided.get_or_insert(end);
        drop(decided);
        self.notify().wake_all();
    }

    /// Ends the worker. Called when every runner is over; a worker that has no result by then has
    /// drained.
    pub fn shut_down(&self) {
        self.finish(Ok(Finish::Drained));
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

    /// Whether no more shards are claimed.
    pub(super) fn is_stopping(&self) -> bool {
        self.parts.drain.is_asked() || self.has_ended()
    }

    /// Whether shards are given back.
    pub(super) fn is_releasing(&self) -> bool {
        (self.parts.drain.is_asked() && self.releasing.load(Ordering::SeqCst)) || self.has_ended()
    }

    /// Nothing more is given away: a worker that drains gives back what it has.
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
