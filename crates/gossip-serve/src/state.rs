//! What the server knows: written by the sampler, read by the handlers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use gossip::identity::RunId;
use gossip::sources::KeyFormat;
use gossip::store::Backend;

use crate::access::{Access, ServeOptions};
use crate::events::EventCache;
use crate::follow::Parked;
use crate::hub::Hub;
use crate::pace::Pace;
use crate::wire::{RunSummary, StoreHealth, Workers};

/// A run that nothing asked for in this time is not read first any more.
pub(crate) const WANTED_FOR: Duration = Duration::from_secs(20);

/// Runs that are remembered as asked for: as many as are followed, or they would displace each
/// other. Further ones are read in their turn.
const WANTED_MAX: usize = 16;

/// A run as the sampler read it last.
#[derive(Clone, Debug)]
pub(crate) struct RunState {
    pub(crate) summary: RunSummary,
    /// The whole run as JSON; absent until its shards were read, and of runs that are not followed.
    pub(crate) view: Option<Arc<str>>,
    /// The columns of its history as JSON, and the time between them.
    pub(crate) history: (Vec<Arc<str>>, Duration),
    pub(crate) parked: Arc<[Parked]>,
    pub(crate) format: KeyFormat,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) runs: BTreeMap<RunId, RunState>,
    /// Whether the list of runs has been read once.
    pub(crate) is_listed: bool,
    pub(crate) workers: Workers,
    pub(crate) store: StoreHealth,
    /// The run whose shards are being read, and how many values had been read before.
    pub(crate) reading: Option<(RunId, u64)>,
}

/// What may be missing although the store can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Warning {
    /// The list of unfinished runs.
    Runs,
    /// The registry of workers.
    Workers,
    /// The thread that reads the store.
    Sampler,
    /// The thread that answers requests.
    Desk,
}

impl Warning {
    /// Returns the part that is concerned.
    const fn of(self) -> &'static str {
        match self {
            Self::Runs => "list of unfinished runs",
            Self::Workers => "registry of workers",
            Self::Sampler => "reader of the store",
            Self::Desk => "requests to the store",
        }
    }
}

/// Counters for `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) actions: AtomicU64,
    pub(crate) streams: AtomicU64,
    pub(crate) resyncs: AtomicU64,
    pub(crate) takeovers: AtomicU64,
    pub(crate) handoffs: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) refused_connections: AtomicU64,
}

/// Adds one.
pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Shared by the sampler, the desk and the handlers.
pub(crate) struct Shared {
    pub(crate) access: Arc<dyn Access>,
    pub(crate) options: ServeOptions,
    pub(crate) pace: Arc<Pace>,
    pub(crate) hub: Hub,
    pub(crate) counters: Counters,
    state: RwLock<State>,
    /// The open store, and how often it was opened.
    backend: Mutex<(Arc<Backend>, u64)>,
    /// Runs that a client looks at, and since when the last request is past.
    wanted: Mutex<BTreeMap<RunId, Instant>>,
    wake: Condvar,
    /// Whether the server ends.
    pub(crate) stop: AtomicBool,
    pub(crate) events: EventCache,
    warnings: Mutex<BTreeMap<Warning, String>>,
}

impl Shared {
    pub(crate) fn new(
        access: Arc<dyn Access>,
        options: ServeOptions,
        backend: Backend,
        epoch: u64,
    ) -> Self {
        let store = StoreHealth { place: access.place(), ..StoreHealth::default() };
        Self {
            access,
            options,
            pace: Arc::default(),
            hub: Hub::new(epoch),
            counters: Counters::default(),
            state: RwLock::new(State { store, ..State::default() }),
            backend: Mutex::new((Arc::new(backend), 0)),
            wanted: Mutex::default(),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            events: EventCache::default(),
            warnings: Mutex::default(),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open store, and a number that changes when it is opened again.
    pub(crate) fn backend(&self) -> (Arc<Backend>, u64) {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the store again.
    pub(crate) fn reopen(&self) -> Result<(), String> {
        // Opened before the lock is taken: it may take seconds, and requests use the old one
        // meanwhile.
        let opened = Arc::new(self.access.open()?);
        let mut backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
        *backend = (opened, backend.1 + 1);
        Ok(())
    }

    /// Sets or clears a warning. `what` has nothing secret.
    pub(crate) fn warn(&self, about: Warning, what: Option<&str>) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            Some(what) => warnings.insert(about, format!("{}: {what}", about.of())),
            None => warnings.remove(&about),
        };
    }

    /// Counts a panic of a thread of the server, and returns the text of the warning. The message
    /// of the panic was printed by the hook, and may have what a client must not read.
    pub(crate) fn note_panic(&self) -> String {
        let count = self.counters.panics.fetch_add(1, Ordering::Relaxed) + 1;
        format!("failed in the server, see its standard error (failures since its start: {count})")
    }

    /// Returns the warnings in sentences.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.values().cloned().collect()
    }

    /// Notes that a client looks at a run, so that it is read before others.
    pub(crate) fn want(&self, run: RunId) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        // A known run is renewed although the list is full.
        if wanted.len() < WANTED_MAX || wanted.contains_key(&run) {
            wanted.insert(run, Instant::now());
        }
        drop(wanted);
        self.wake.notify_all();
    }

    /// Returns the runs that clients look at.
    pub(crate) fn wanted(&self) -> Vec<RunId> {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.retain(|_, at| at.elapsed() < WANTED_FOR);
        wanted.keys().copied().collect()
    }

    /// Waits at most `limit`, or until a client asks for a run.
    pub(crate) fn sleep(&self, limit: Duration) {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.wake.wait_timeout(wanted, limit));
    }
}
