//! Round-robin handles conform, also behind a carrier, and the suite detects the bug that they are
//! meant for: a process that caches reads as if it were the only one.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gossip_coordination::store::{
    Answer, CommitOutcome, Key, MapStore, ProcessState, Read, Store, StoreConfig, StoreCoordinator,
    StoreLimits, Txn, Versioned,
};
use gossip_coordination::{CollectEvents, EventCollector, InfraError, StateTransitionEvent};

use crate::remote::{Carrier, RemoteStore, from_line, serve, to_line};
use crate::round_robin::RoundRobin;
use crate::{Ability, ConformanceTarget, RaceJob, Settings, check_sequences, run_all};

/// Number of handles: more than one, so that they differ, and few, so that each is used again.
const HANDLES: u64 = 3;

/// A simulated process: a store behind a carrier.
struct Process {
    store: MapStore,
    /// The cached reads of this process, if it is the mutant.
    memory: Option<BTreeMap<Vec<u8>, Option<Versioned>>>,
    /// Shared by the handles of one backend.
    loses_next: Arc<AtomicBool>,
}

impl Store for Process {
    /// The mutant: a key is read from the store only once.
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        let fresh = self.store.read(reads.clone())?;
        let Some(memory) = &mut self.memory else { return Ok(fresh) };
        let remembered = |(read, fresh): (&Read, Answer)| match (read, fresh) {
            (Read::Get(key @ Key::ShardHot { .. }), Answer::Value(value)) => {
                let key = key.to_bytes().as_bytes().to_vec();
                Answer::Value(memory.entry(key).or_insert(value).clone())
            }
            (_, fresh) => fresh,
        };
        Ok(reads.iter().zip(fresh).map(remembered).collect())
    }

    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.store.commit(txns)
    }

    fn wait(&mut self, ticks: u64) {
        self.store.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }
}

impl Carrier for Process {
    fn carry(&mut self, request: Vec<u8>) -> Vec<u8> {
        let request = from_line(&to_line(&request)).expect("a line");
        serve(self, &request).expect("a request")
    }

    fn wait(&mut self, ticks: u64) {
        self.store.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    fn loses_reply(&mut self) -> bool {
        self.loses_next.swap(false, Ordering::Relaxed)
    }
}

/// Backends of handles that take turns.
struct Turns {
    /// Whether each process remembers what it reads, which is a bug.
    remembers: bool,
    /// Whether the handles remember together, as those of one process do.
    shares: bool,
}

impl Turns {
    fn on(&self, store: &MapStore, config: StoreConfig) -> RoundRobin<RemoteStore<Process>> {
        let loses_next = Arc::new(AtomicBool::new(false));
        let shared = ProcessState::default();
        RoundRobin::new(
            (0..HANDLES)
                .map(|number| {
                    let memory = self.remembers.then(BTreeMap::new);
                    let process = Process {
                        store: store.clone(),
                        memory,
                        loses_next: Arc::clone(&loses_next),
                    };
                    let config = StoreConfig { nonce: config.nonce + number, ..config };
                    let store = RemoteStore::new(process);
                    match self.shares {
                        true => StoreCoordinator::sharing(store, config, &shared),
                        false => StoreCoordinator::new(store, config),
                    }
                })
                .collect(),
        )
    }
}

impl ConformanceTarget for Turns {
    type Backend = RoundRobin<RemoteStore<Process>>;

    fn name(&self) -> &str {
        "handles that take turns"
    }

    fn lacks(&self) -> &'static [Ability] {
        // Each backend is several processes, between which a cooldown is not shared.
        &[Ability::TotalLimit, Ability::Siblings]
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        let mut store = MapStore::new();
        settings.allot(&mut store);
        self.on(&store, settings.limit(StoreConfig::new(1)))
    }

    fn with_events<R>(
        &self,
        backend: &mut Self::Backend,
        call: impl FnOnce(&mut Self::Backend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let last = &backend.handles()[backend.handles().len() - 1];
        let config = last.config();
        let config = StoreConfig { nonce: config.nonce + 1, ..config };
        Some(self.on(&last.store().carrier().store, config))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.handles()[0].store().carrier().loses_next.store(true, Ordering::Relaxed);
        true
    }
}

#[test]
fn handles_that_take_turns_conform() {
    for shares in [false, true] {
        let turns = Turns { remembers: false, shares };
        run_all(&turns, &mut |_| ());
        check_sequences(&turns, 300..320, 120);
    }
}

#[test]
fn a_process_that_believes_its_memory_does_not_conform() {
    let believer = Turns { remembers: true, shares: false };
    let ended = catch_unwind(AssertUnwindSafe(|| run_all(&believer, &mut |_| ())));
    assert!(ended.is_err());
}
