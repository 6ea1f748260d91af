//! What the threads of a worker share, and how they begin and end.

use std::fmt;

use gossip_contracts::connector::Connector;
use gossip_coordination::CoordinationFacade;
use gossip_handoff::Repository;

use super::bell::Bell;
use super::porter::{self, Porch};
use super::quarantine::Quarantine;
use super::seat::Seat;
use super::sharing::Sharing;
use super::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, PoisonError, thread};
use super::{Finish, MAX_THREADS, WorkerConfig, WorkerError, renewer, slot};
use crate::clock::Clock;
use crate::observer::Observer;
use crate::processor::{Broken, Processor};
use crate::task::Remnants;
use crate::throttle::Throttle;

/// Tells a worker to stop, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    asked: AtomicBool,
    bell: Bell,
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
        self.0.bell.ring();
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
/// [`WorkerError`]. The shards were given back, unless it is the store that failed.
pub fn work<B>(config: &WorkerConfig, parts: Parts<'_, B>) -> Result<Finish, WorkerError>
where
    B: CoordinationFacade,
{
    let crew = Crew::new(config, parts);
    let (crew, gone_home) = (&crew, &AtomicBool::new(false));
    thread::scope(|scope| {
        let renewer = scope.spawn(|| renewer::run(crew, gone_home));
        let porter = scope.spawn(|| porter::run(crew));
        let slots: Vec<_> = (0..crew.seats.len())
            .map(|number| scope.spawn(move || slot::run(crew, number)))
            .collect();
        for slot in slots {
            // A slot catches what its shards throw; what is left is our own bug.
            if slot.join().is_err() {
                crew.finish(Err(WorkerError::Broken(Broken("a worker thread panicked".into()))));
            }
        }
        gone_home.store(true, Ordering::SeqCst);
        crew.shut_down();
        drop((renewer, porter));
    });
    crew.ended()
}

/// State that the parts of one worker share.
pub struct Crew<'a, B> {
    pub(super) config: WorkerConfig,
    pub(super) parts: Parts<'a, B>,
    pub(super) throttle: Throttle,
    /// One for each slot.
    pub(super) seats: Vec<Seat>,
    /// Who may claim what.
    pub(super) quarantine: Quarantine,
    /// Shards that have arrived from other workers.
    pub(super) porch: Porch,
    /// What is known of items of shards that were split off.
    pub(super) remnants: Arc<Remnants>,
    /// Whether a worker that drains has given away what it could.
    pub(super) let_go: AtomicBool,
    /// How many slots have a shard.
    pub(super) busy: AtomicUsize,
    /// How many shards this worker has set aside.
    pub(super) parked: AtomicUsize,
    /// What is known of the shards of others.
    pub(super) sharing: Sharing,
    /// How the worker ends; the first to say so decides.
    pub(super) end: Mutex<Option<Result<Finish, WorkerError>>>,
}

impl<'a, B> Crew<'a, B> {
    /// Returns the shared state of a worker that has not started.
    pub fn new(config: &WorkerConfig, parts: Parts<'a, B>) -> Self {
        let threads = config.threads.clamp(1, MAX_THREADS);
        // Without records nothing is given away: it is let go at once.
        let let_go = AtomicBool::new(parts.records.is_none());
        let sharing = Sharing::new(config.seed, parts.clock.now());
        Self {
            config: config.clone(),
            parts,
            throttle: Throttle::new(config.limits),
            seats: (0..threads).map(|_| Seat::default()).collect(),
            quarantine: Quarantine::new(threads),
            porch: Porch::default(),
            remnants: Arc::default(),
            let_go,
            busy: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            sharing,
            end: Mutex::new(None),
        }
    }

    /// Ends the worker, unless it has ended.
    pub(super) fn finish(&self, end: Result<Finish, WorkerError>) {
        let mut decided = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        decided.get_or_insert(end);
        drop(decided);
        self.bell().ring();
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
    /// The first [`WorkerError`] that ended it.
    pub fn ended(&self) -> Result<Finish, WorkerError> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        end.unwrap_or(Ok(Finish::Drained))
    }

    /// Whether no more shards are claimed.
    pub(super) fn is_stopping(&self) -> bool {
        self.parts.drain.is_asked() || self.has_ended()
    }

    /// Whether shards are given back.
    pub(super) fn is_let_go(&self) -> bool {
        (self.parts.drain.is_asked() && self.let_go.load(Ordering::SeqCst)) || self.has_ended()
    }

    /// Nothing more is given away: a worker that drains gives back what it has.
    pub(super) fn let_go(&self) {
        self.let_go.store(true, Ordering::SeqCst);
        self.bell().ring();
    }

    /// Returns whether the worker has a result, so that its parts finish.
    pub fn has_ended(&self) -> bool {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns how often waiting parts were notified. When the number rises, every part that waits
    /// must be stepped, except the renewer, which has [`Renewer::has_news`](super::Renewer).
    pub fn notifications(&self) -> u64 {
        self.bell().heard()
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.parts.drain.0.bell
    }
}
