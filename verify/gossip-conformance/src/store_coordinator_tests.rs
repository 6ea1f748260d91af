//! Runs on the coordinator over the model store all tests of the in-memory coordinator.

use gossip_coordination::store::{
    Answer, AsyncStore, AsyncStoreCoordinator, CommitOutcome, Fault, MapStore, Read, Store,
    StoreConfig, StoreCoordinator, StoreLimits, Txn,
};
use gossip_coordination::{CollectEvents, EventCollector, InfraError, StateTransitionEvent};

use crate::blocking::Blocking;
use crate::testscript::{ScriptBackend, WorldSettings, check_scripts, is_for_memory_only};
use crate::watches::check_void_deadlines;
use crate::{Ability, ConformanceTarget, RaceJob, Settings, check_sequences, run_all};

type Coordinator = StoreCoordinator<MapStore>;

/// The coordinator over an in-memory store, with a fault injected into its commits.
pub(super) struct OverMap {
    pub(super) always: Option<Fault>,
    binds: bool,
}

pub(super) const PLAIN: OverMap = OverMap { always: None, binds: false };
const BINDING: OverMap = OverMap { always: None, binds: true };

/// A store that binds keys, or does not.
fn map_store(binds: bool) -> MapStore {
    if binds { MapStore::new().with_bindings() } else { MapStore::new() }
}

fn config(settings: Settings, nonce: u64) -> StoreConfig {
    settings.limit(StoreConfig::new(nonce))
}

/// A nonce for each handle.
fn next_nonce() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) << 32
}

impl ConformanceTarget for OverMap {
    type Backend = Coordinator;

    fn name(&self) -> &str {
        "the coordinator over a map"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> Coordinator {
        let mut store = map_store(self.binds);
        settings.allot(&mut store);
        store.inject_always(self.always);
        StoreCoordinator::new(store, config(settings, next_nonce()))
    }

    fn with_events<R>(
        &self,
        backend: &mut Coordinator,
        call: impl FnOnce(&mut Coordinator) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, backend: &Coordinator) -> Option<Coordinator> {
        let mut store = backend.store().another_handle();
        store.inject_always(self.always);
        let config = StoreConfig { nonce: next_nonce(), ..backend.config() };
        Some(StoreCoordinator::new(store, config))
    }

    fn sibling_handle(&self, backend: &Coordinator) -> Option<Coordinator> {
        let mut store = backend.store().another_handle();
        store.inject_always(self.always);
        let config = StoreConfig { nonce: next_nonce(), ..backend.config() };
        Some(StoreCoordinator::sharing(store, config, &backend.process_state()))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    }

    fn lose_next_reply(&self, backend: &mut Coordinator) -> bool {
        backend.store_mut().inject(Fault::LoseReply);
        true
    }
}

#[test]
fn the_coordinator_over_a_map_conforms() {
    for target in [PLAIN, BINDING] {
        let ran = run_all(&target, &mut |_| ());
        println!("{ran} cases");
    }
}

#[test]
fn random_sequences_over_a_map_are_answered_as_the_model_answers() {
    check_sequences(&PLAIN, 0..30, 120);
    check_sequences(&BINDING, 30..60, 120);
}

/// The suite passes although every commit reply is lost.
#[test]
fn sequences_whose_every_reply_is_lost_are_answered_as_the_model_answers() {
    let always = Some(Fault::LoseReply);
    check_sequences(&OverMap { always, ..PLAIN }, 100..130, 120);
    check_sequences(&OverMap { always, ..BINDING }, 130..160, 120);
}

/// Runs scripts on the coordinator over a map.
struct Scripts;

impl ScriptBackend for Scripts {
    type Coordinator = Coordinator;

    fn start(&mut self, settings: WorldSettings) -> Option<Coordinator> {
        if !settings.fit_a_store() {
            return None;
        }
        let config = settings.limit(StoreConfig::new(next_nonce()));
        let mut store = MapStore::new();
        settings.allot(&mut store);
        Some(StoreCoordinator::new(store, config))
    }

    fn observe<R>(
        coordinator: &mut Coordinator,
        call: impl FnOnce(&mut Coordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

#[test]
fn golden_scripts_over_a_map_are_answered_as_written() {
    play_all(&mut Scripts);
}

/// Runs every script except those that need a slab or a limit on all shards.
fn play_all(backend: &mut impl ScriptBackend) {
    let report = check_scripts(backend, false).expect("the scripts are readable");
    let failures = report.failures.join("\n");
    println!("{} run, {} skipped", report.files.len(), report.skipped.len());
    assert!(failures.is_empty(), "{failures}");
    assert!(report.skipped.iter().all(|name| is_for_memory_only(name)), "{:?}", report.skipped);
}

/// The model store as an asynchronous store that is always ready.
pub(super) struct AsyncMap(pub(super) MapStore);

impl AsyncStore for AsyncMap {
    async fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError> {
        self.0.read(reads)
    }

    async fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>> {
        self.0.commit(txns)
    }

    async fn wait(&mut self, ticks: u64) {
        self.0.wait(ticks);
    }

    fn limits(&self) -> StoreLimits {
        self.0.limits()
    }

    fn binding(&self) -> Option<u64> {
        self.0.binding()
    }
}

/// The asynchronous coordinator over the model store.
struct OverAsyncMap;

impl ConformanceTarget for OverAsyncMap {
    type Backend = Blocking<AsyncStoreCoordinator<AsyncMap>>;

    fn name(&self) -> &str {
        "the asynchronous coordinator over a map"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        let (config, mut store) = (config(settings, next_nonce()), map_store(true));
        settings.allot(&mut store);
        Blocking::new(AsyncStoreCoordinator::new(AsyncMap(store), config))
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
        let coordinator = backend.get_ref();
        let store = AsyncMap(coordinator.store().0.another_handle());
        let config = StoreConfig { nonce: next_nonce(), ..coordinator.config() };
        Some(Blocking::new(AsyncStoreCoordinator::new(store, config)))
    }

    fn sibling_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let coordinator = backend.get_ref();
        let store = AsyncMap(coordinator.store().0.another_handle());
        let config = StoreConfig { nonce: next_nonce(), ..coordinator.config() };
        let process = coordinator.process_state();
        Some(Blocking::new(AsyncStoreCoordinator::sharing(store, config, &process)))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        PLAIN.race(jobs);
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.get_mut().store_mut().0.inject(Fault::LoseReply);
        true
    }
}

#[test]
fn the_asynchronous_coordinator_over_a_map_conforms() {
    run_all(&OverAsyncMap, &mut |_| ());
    check_sequences(&OverAsyncMap, 500..510, 120);
}

/// Runs scripts on the asynchronous coordinator over a map.
struct AsyncScripts;

impl ScriptBackend for AsyncScripts {
    type Coordinator = Blocking<AsyncStoreCoordinator<AsyncMap>>;

    fn start(&mut self, settings: WorldSettings) -> Option<Self::Coordinator> {
        if !settings.fit_a_store() {
            return None;
        }
        let config = settings.limit(StoreConfig::new(next_nonce()));
        let mut store = map_store(true);
        settings.allot(&mut store);
        Some(Blocking::new(AsyncStoreCoordinator::new(AsyncMap(store), config)))
    }

    fn observe<R>(
        coordinator: &mut Self::Coordinator,
        call: impl FnOnce(&mut Self::Coordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let (result, events) = OverAsyncMap.with_events(coordinator, call);
        (result, events.unwrap_or_default())
    }
}

#[test]
fn golden_scripts_of_tasks_over_a_map_are_answered_as_written() {
    play_all(&mut AsyncScripts);
}

#[test]
fn damage_to_one_shard_leaves_the_others_alone() {
    let small = StoreLimits { page: 2, ..MapStore::new().limits() };
    let stores: [fn(StoreLimits) -> MapStore; 3] = [
        |_| map_store(false),
        |_| map_store(true),
        |small| MapStore::with_limits(small).with_bindings(),
    ];
    for store in stores {
        let fresh =
            || StoreCoordinator::new(store(small), config(Settings::default(), next_nonce()));
        crate::damage::check_damaged_shards(fresh);
        crate::damage::check_repairs(fresh);
        crate::concurrent_repairs::check_concurrent_repairs(|| {
            let store = store(small);
            [store.another_handle(), store]
        });
    }
}

#[test]
fn far_deadlines_become_void_with_and_without_owner_keys() {
    for binds in [false, true] {
        let store = map_store(binds);
        check_void_deadlines(|process| {
            let config = StoreConfig { max_clock_skew: 20, ..StoreConfig::new(next_nonce()) };
            StoreCoordinator::sharing(store.another_handle(), config, process)
        });
    }
}
