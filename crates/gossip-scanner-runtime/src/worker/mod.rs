//! A worker: one process that goes through shards of one run until there is nothing left to do.
//!
//! ```text
//!   slot 0 ─┐  each: own coordinator handle, own processor
//!   slot 1 ─┼─ claim ─► ShardTask, stepped ─► next claim
//!   slot n ─┘
//!   renewer ── all leases at a third of their time, heartbeats, requests ─► seats
//! ```
//!
//! A worker ends when the run is settled, when it is told to drain, or when it cannot go on. It
//! always gives its shards back with their progress, except when the store does not answer: then
//! the leases run out.
//!
//! Threads share the death of their process, so a shard on its last chance is worked on while the
//! others rest (`quarantine.rs`).
//!
//! # Never
//! - takes a lost shard for an error: somebody else goes on with it;
//! - lets a panic out of a shard: the shard is parked, and the others go on;
//! - reads a clock or draws a random number of its own: both are arguments.

mod bell;
mod claiming;
mod porter;
mod quarantine;
mod records;
mod renewer;
mod seat;
mod sharing;
mod slot;

#[cfg(test)]
mod again_tests;
#[cfg(test)]
mod moves_tests;
#[cfg(test)]
mod poison_tests;
#[cfg(test)]
mod worker_tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gossip_contracts::connector::Connector;
use gossip_contracts::identity::{RunId, TenantId, WorkerId};
use gossip_coordination::{CoordinationFacade, InfraError, RunStatus};
use gossip_handoff::Repository;
use thiserror::Error;

use self::bell::Bell;
use self::porter::Porch;
pub use self::porter::worker_of;
#[cfg(any(test, feature = "sim"))]
pub(crate) use self::porter::{NAP_LONGEST as PORTER_NAP_LONGEST, Porter};
use self::quarantine::Quarantine;
#[cfg(any(test, feature = "skew", feature = "sim"))]
pub(crate) use self::renewer::Renewer;
use self::seat::Seat;
use self::sharing::Sharing;
#[cfg(any(test, feature = "sim"))]
pub(crate) use self::slot::NAP_LONGEST as SLOT_NAP_LONGEST;
#[cfg(any(test, feature = "skew", feature = "sim"))]
pub(crate) use self::slot::{Rest, Slot};
use crate::clock::Clock;
use crate::observer::Observer;
use crate::processor::{Broken, Processor};
use crate::task::{Leftovers, TaskConfig};
use crate::throttle::{Limits, Throttle};

/// The most threads of one worker: each may hold a page and a handler.
pub const MAX_THREADS: usize = 256;

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Whose run.
    pub tenant: TenantId,
    /// Which run.
    pub run: RunId,
    /// The worker's name; no two processes share one.
    pub worker: WorkerId,
    /// How long a lease of this run lasts, in ticks.
    pub lease_ticks: u64,
    /// Shards at once; at least one, at most [`MAX_THREADS`].
    pub threads: usize,
    /// How each shard is worked on.
    pub task: TaskConfig,
    /// How fast items may be started.
    pub limits: Limits,
    /// Stop when this worker has set more shards aside: something is wrong with more than keys.
    pub max_parked: usize,
    /// Whether this worker asks busy ones, itself included, to share when it has nothing to do.
    pub auto_split: bool,
    /// What the jitter is drawn from.
    pub seed: u64,
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each has an exit code of its own")]
pub enum Finish {
    /// Every shard is done, and so is the run.
    Complete,
    /// Every shard is done or set aside.
    Incomplete {
        /// How many are set aside.
        parked: u64,
    },
    /// The run was ended by somebody.
    RunOver(RunStatus),
    /// The worker was told to stop; progress is recorded.
    Drained,
}

impl Finish {
    /// How a run with this status has ended.
    #[must_use]
    pub const fn of_run(status: RunStatus) -> Self {
        match status {
            RunStatus::Done => Self::Complete,
            RunStatus::Initializing
            | RunStatus::Active
            | RunStatus::Failed
            | RunStatus::Cancelled => Self::RunOver(status),
        }
    }
}

/// Why a worker could not go on. What was finished is recorded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerError {
    /// The tenant has no such run.
    #[error("no such run")]
    RunNotFound,
    /// The store does not answer, or says no.
    #[error("the store failed: {0}")]
    Store(InfraError),
    /// The processor cannot work.
    #[error("{0}")]
    Broken(Broken),
    /// Too much was set aside.
    #[error("{parked} shards were set aside, more than the {max} allowed")]
    TooManyParked {
        /// How many.
        parked: usize,
        /// How many are allowed.
        max: usize,
    },
}

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
        crew.go_home();
        drop((renewer, porter));
    });
    crew.ended()
}

/// What the threads of a worker share.
pub(crate) struct Crew<'a, B> {
    config: WorkerConfig,
    parts: Parts<'a, B>,
    throttle: Throttle,
    /// One for each slot.
    seats: Vec<Seat>,
    /// Who may claim what.
    quarantine: Quarantine,
    /// Shards that have arrived from other workers.
    porch: Porch,
    /// What is known of items of shards that were split off.
    leftovers: Arc<Leftovers>,
    /// Whether a worker that drains has given away what it could.
    let_go: AtomicBool,
    /// How many slots have a shard.
    busy: AtomicUsize,
    /// How many shards this worker has set aside.
    parked: AtomicUsize,
    /// What is known of the shards of others.
    sharing: Sharing,
    /// How the worker ends; the first to say so decides.
    end: Mutex<Option<Result<Finish, WorkerError>>>,
}

impl<'a, B> Crew<'a, B> {
    pub(crate) fn new(config: &WorkerConfig, parts: Parts<'a, B>) -> Self {
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
            leftovers: Arc::default(),
            let_go,
            busy: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            sharing,
            end: Mutex::new(None),
        }
    }

    /// Ends the worker, unless it has ended.
    fn finish(&self, end: Result<Finish, WorkerError>) {
        let mut decided = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        decided.get_or_insert(end);
        drop(decided);
        self.bell().ring();
    }

    /// Every slot is over: if nobody has said how the worker ends, it has drained.
    pub(crate) fn go_home(&self) {
        self.finish(Ok(Finish::Drained));
    }

    /// How the worker ended.
    pub(crate) fn ended(&self) -> Result<Finish, WorkerError> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        end.unwrap_or(Ok(Finish::Drained))
    }

    /// Whether no more shards are claimed.
    fn is_stopping(&self) -> bool {
        self.parts.drain.is_asked() || self.has_ended()
    }

    /// Whether shards are given back.
    fn is_let_go(&self) -> bool {
        (self.parts.drain.is_asked() && self.let_go.load(Ordering::SeqCst)) || self.has_ended()
    }

    /// Nothing more is given away: a worker that drains gives back what it has.
    fn let_go(&self) {
        self.let_go.store(true, Ordering::SeqCst);
        self.bell().ring();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.parts.drain.0.bell
    }
}
