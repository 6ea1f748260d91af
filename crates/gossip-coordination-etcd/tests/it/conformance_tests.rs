//! The coordinators on real etcd are held to everything that the one in memory is held to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use gossip_conformance::blocking::Blocking;
use gossip_conformance::concurrent_repairs::check_concurrent_repairs;
use gossip_conformance::damage::{check_damaged_shards, check_repairs};
use gossip_conformance::testscript::{ScriptBackend, WorldSettings};
use gossip_conformance::watches::check_void_deadlines;
use gossip_conformance::{
    Ability, ConformanceTarget, RaceJob, Settings, all_cases, check_sequences,
};
use gossip_coordination::store::{AsyncStoreCoordinator, StoreConfig, StoreCoordinator};
use gossip_coordination::{CollectEvents, EventCollector, StateTransitionEvent};
use gossip_coordination_etcd::{
    AsyncEtcdCoordinator, BlockingStore, EtcdConfig, EtcdCoordinator, EtcdStore, GrpcClient,
};
use tokio::runtime::{Builder, Runtime};

use crate::golden;
use crate::lossy_kv::LossyKv;
use crate::real_servers::Servers;

type Store = EtcdStore<LossyKv<GrpcClient>>;

/// Limits of one more handle.
fn limits(config: &EtcdConfig, settings: Settings) -> StoreConfig {
    settings.limit(config.store_config())
}

fn race(jobs: Vec<RaceJob<'_>>, enter: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for job in jobs {
            let enter = &enter;
            scope.spawn(move || {
                enter();
                job();
            });
        }
    });
}

/// The blocking coordinator.
pub(crate) struct OnBlocking(pub(crate) Servers);

impl ConformanceTarget for OnBlocking {
    type Backend = StoreCoordinator<BlockingStore<Store>>;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        let config = self.0.config();
        let (kv, of_store) = (LossyKv::new(self.0.client()), config.clone());
        let store = BlockingStore::start(async move { EtcdStore::start(kv, &of_store) });
        let mut store = store.expect("a thread").expect("valid settings");
        settings.allot(&mut store);
        StoreCoordinator::new(store, limits(&config, settings))
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
        let nonce = self.0.config().store_config().nonce;
        let config = StoreConfig { nonce, ..backend.config() };
        Some(StoreCoordinator::new(backend.store().clone(), config))
    }

    fn sibling_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let nonce = self.0.config().store_config().nonce;
        let config = StoreConfig { nonce, ..backend.config() };
        let process = backend.process_state();
        Some(StoreCoordinator::sharing(backend.store().clone(), config, &process))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        race(jobs, || ());
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.store().store().kv().lose_next_reply();
        true
    }

    fn split_children_max(&self) -> usize {
        self.fresh(Settings::default()).split_children_max()
    }
}

/// Where the asynchronous coordinators run.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread")
});

/// The asynchronous coordinator.
struct OnAsync(Servers);

impl ConformanceTarget for OnAsync {
    type Backend = Blocking<AsyncStoreCoordinator<Store>>;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        let _runtime = RUNTIME.enter();
        let config = self.0.config();
        let store = EtcdStore::start(LossyKv::new(self.0.client()), &config);
        let mut store = store.expect("valid settings");
        RUNTIME.block_on(settings.allot_async(&mut store));
        Blocking::new(AsyncStoreCoordinator::new(store, limits(&config, settings)))
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
        let nonce = self.0.config().store_config().nonce;
        let config = StoreConfig { nonce, ..backend.get_ref().config() };
        let store = backend.get_ref().store().clone();
        Some(Blocking::new(AsyncStoreCoordinator::new(store, config)))
    }

    fn sibling_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let (coordinator, nonce) = (backend.get_ref(), self.0.config().store_config().nonce);
        let config = StoreConfig { nonce, ..coordinator.config() };
        let (store, process) = (coordinator.store().clone(), coordinator.process_state());
        Some(Blocking::new(AsyncStoreCoordinator::sharing(store, config, &process)))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        race(jobs, enter_runtime);
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.get_ref().store().kv().lose_next_reply();
        true
    }

    fn split_children_max(&self) -> usize {
        self.fresh(Settings::default()).get_ref().split_children_max()
    }
}

/// Cases at a time: most of each is waiting for a disk.
const CASE_THREADS: usize = 6;

/// As `run_all`, several cases at a time.
fn run_all_at_once<T: ConformanceTarget + Sync>(target: &T, enter: impl Fn() + Sync) {
    let cases = all_cases::<T>();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..CASE_THREADS {
            scope.spawn(|| {
                enter();
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = catch_unwind(AssertUnwindSafe(|| (case.run)(target)));
                    if outcome.is_err() {
                        let name = format!("{}::{}", case.topic, case.name);
                        failures.lock().expect("the lock is not poisoned").push(name);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("the lock is not poisoned");
    assert!(failures.is_empty(), "failed on {}: {failures:?}", target.name());
    println!("{} cases on {}", cases.len(), target.name());
}

fn enter_runtime() {
    std::mem::forget(RUNTIME.enter());
}

#[test]
fn the_blocking_coordinator_on_one_server_conforms() {
    run_all_at_once(&OnBlocking(Servers::Single), || ());
    check_sequences(&OnBlocking(Servers::Single), 0..4, 120);
}

#[test]
fn damage_to_one_shard_on_a_server_leaves_the_others_alone() {
    let target = OnBlocking(Servers::Single);
    check_damaged_shards(|| target.fresh(Settings::default()));
    check_repairs(|| target.fresh(Settings::default()));
    check_concurrent_repairs(|| {
        let store = target.fresh(Settings::default()).store().clone();
        [store.clone(), store]
    });
}

/// Each handle has a connection and an owner lease of its own, as another process has.
#[test]
fn far_deadlines_on_a_server_become_void() {
    let config = Servers::Single.config();
    check_void_deadlines(|process| {
        let of_store = config.clone();
        let kv = LossyKv::new(Servers::Single.client());
        let store = BlockingStore::start(async move { EtcdStore::start(kv, &of_store) });
        let store = store.expect("a thread").expect("valid settings");
        let nonce = Servers::Single.config().store_config().nonce;
        let config = StoreConfig { nonce, ..config.store_config() };
        StoreCoordinator::sharing(store, config, process)
    });
}

#[test]
fn the_blocking_coordinator_on_three_servers_conforms() {
    run_all_at_once(&OnBlocking(Servers::Three), || ());
}

#[test]
fn the_asynchronous_coordinator_on_one_server_conforms() {
    let _runtime = RUNTIME.enter();
    run_all_at_once(&OnAsync(Servers::Single), enter_runtime);
    check_sequences(&OnAsync(Servers::Single), 10..14, 120);
}

#[test]
fn the_asynchronous_coordinator_on_three_servers_conforms() {
    run_all_at_once(&OnAsync(Servers::Three), enter_runtime);
}

/// Scripts through the public coordinator.
#[derive(Clone, Copy)]
struct Scripts(Servers);

impl ScriptBackend for Scripts {
    type Coordinator = EtcdCoordinator;

    fn start(&mut self, settings: WorldSettings) -> Option<EtcdCoordinator> {
        let config = golden::configure(self.0.config(), settings)?;
        let mut coordinator = config.connect_blocking().expect("our own server answers");
        settings.allot(coordinator.store_mut());
        Some(coordinator)
    }

    fn observe<R>(
        coordinator: &mut EtcdCoordinator,
        call: impl FnOnce(&mut EtcdCoordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

/// Scripts through the public coordinator of tasks.
struct AsyncScripts(Servers);

impl ScriptBackend for AsyncScripts {
    type Coordinator = Blocking<AsyncEtcdCoordinator>;

    fn start(&mut self, settings: WorldSettings) -> Option<Self::Coordinator> {
        let config = golden::configure(self.0.config(), settings)?;
        let coordinator = RUNTIME.block_on(async {
            let mut coordinator = config.connect().await.expect("our own server answers");
            settings.allot_async(coordinator.store_mut()).await;
            coordinator
        });
        Some(Blocking::new(coordinator))
    }

    fn observe<R>(
        coordinator: &mut Self::Coordinator,
        call: impl FnOnce(&mut Self::Coordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let _runtime = RUNTIME.enter();
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

// Each coordinator and each cluster plays every script, and not all four pairs: both coordinators
// commit through the same store, and the cluster is below it.

#[test]
fn golden_scripts_of_tasks_on_one_server_are_answered_as_written() {
    golden::check(|| AsyncScripts(Servers::Single));
}

#[test]
fn golden_scripts_on_three_servers_are_answered_as_written() {
    golden::check(|| Scripts(Servers::Three));
}
