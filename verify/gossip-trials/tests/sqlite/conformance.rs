//! Runs the whole suite with several processes on one file.
//!
//! A backend has three handles, used round-robin, and the store of each handle is in a separate
//! process. An operation thus shares only the file with the previous one, and races are between
//! processes. `conformance_round_robin_tests.rs` shows that the suite detects a process that trusts
//! its own cache.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gossip_conformance::remote::{Carrier, RemoteStore, from_line, to_line};
use gossip_conformance::round_robin::RoundRobin;
use gossip_conformance::{Ability, ConformanceTarget, RaceJob, Settings, check_sequences, run_all};
use gossip_coordination::store::{StoreConfig, StoreCoordinator, StoreLimits, fresh_nonce};
use gossip_coordination::{CollectEvents, EventCollector, StateTransitionEvent};
use gossip_coordination_sqlite::{SqliteDatabase, SqliteOptions};

use crate::support::{PROCESSES, Process, Scratch};

/// Processes, and the file that handles share; it is closed with the last of them.
struct File {
    processes: Arc<Vec<Mutex<Process>>>,
    number: u64,
    limits: StoreLimits,
}

impl File {
    fn ask(&self, process: usize, request: &str) -> String {
        let line = format!("{} {request}", self.number);
        self.processes[process].lock().unwrap().answer(line.trim_end())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        (0..PROCESSES).for_each(|process| drop(self.ask(process, "")));
    }
}

/// The carrier of one handle to its process.
struct Line {
    file: Arc<File>,
    process: usize,
    /// Shared by the handles of one backend: the next commit of any of them loses its reply.
    loses_next: Arc<AtomicBool>,
}

impl Carrier for Line {
    fn carry(&mut self, request: Vec<u8>) -> Vec<u8> {
        from_line(&self.file.ask(self.process, &to_line(&request)))
            .expect("the reply is a valid line")
    }

    /// A tick is a millisecond, as for a store of this process.
    fn wait(&mut self, ticks: u64) {
        std::thread::sleep(Duration::from_millis(ticks));
    }

    fn limits(&self) -> StoreLimits {
        self.file.limits
    }

    fn loses_reply(&mut self) -> bool {
        self.loses_next.swap(false, Ordering::Relaxed)
    }
}

type Backend = RoundRobin<RemoteStore<Line>>;

/// A handle for each process.
fn backend(file: &Arc<File>, config: StoreConfig) -> Backend {
    let loses_next = Arc::new(AtomicBool::new(false));
    let handle = |process| {
        let (file, loses_next) = (Arc::clone(file), Arc::clone(&loses_next));
        let store = RemoteStore::new(Line { file, process, loses_next });
        StoreCoordinator::new(store, StoreConfig { nonce: fresh_nonce(), ..config })
    };
    RoundRobin::new((0..PROCESSES).map(handle).collect())
}

/// SQLite files, each used by all processes.
struct Processes {
    processes: Arc<Vec<Mutex<Process>>>,
    limits: StoreLimits,
    files: AtomicU64,
    /// Removed after the processes have ended.
    _scratch: Scratch,
}

impl Processes {
    fn start(name: &str) -> Self {
        let scratch = Scratch::in_memory(name);
        let start = |_| Mutex::new(Process::start("serve", scratch.path()));
        let processes = Arc::new((0..PROCESSES).map(start).collect());
        let probe = scratch.path().join("limits.db");
        let database = SqliteDatabase::open(probe, SqliteOptions::default()).unwrap();
        let limits = gossip_coordination::store::Store::limits(&database.store());
        Self { processes, limits, files: AtomicU64::new(0), _scratch: scratch }
    }
}

impl ConformanceTarget for Processes {
    type Backend = Backend;

    fn name(&self) -> &str {
        "SQLite by processes in turn"
    }

    fn lacks(&self) -> &'static [Ability] {
        // Processes do not share a cooldown.
        &[Ability::TotalLimit, Ability::Siblings]
    }

    fn fresh(&self, settings: Settings) -> Backend {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let file = File { processes: Arc::clone(&self.processes), number, limits: self.limits };
        let (file, loses_next) = (Arc::new(file), Arc::new(AtomicBool::new(false)));
        let line = Line { file: Arc::clone(&file), process: 0, loses_next };
        settings.allot(&mut RemoteStore::new(line));
        backend(&file, settings.limit(StoreConfig::new(fresh_nonce())))
    }

    fn with_events<R>(
        &self,
        backend: &mut Backend,
        call: impl FnOnce(&mut Backend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, known: &Backend) -> Option<Backend> {
        let handle = &known.handles()[0];
        Some(backend(&handle.store().carrier().file, handle.config()))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    }

    fn lose_next_reply(&self, backend: &mut Backend) -> bool {
        backend.handles()[0].store().carrier().loses_next.store(true, Ordering::Relaxed);
        true
    }
}

#[test]
fn processes_in_turn_conform() {
    let ran = run_all(&Processes::start("conformance"), &mut |_| ());
    println!("{ran} cases");
}

#[test]
fn sequences_by_processes_in_turn_are_answered_as_the_model_answers() {
    check_sequences(&Processes::start("sequences"), 800..810, 120);
}
