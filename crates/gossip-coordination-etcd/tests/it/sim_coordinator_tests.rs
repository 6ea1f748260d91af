//! The coordinator over the model of etcd is held to everything that the one in memory is held to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gossip_conformance::blocking::Blocking;
use gossip_conformance::concurrent_repairs::check_concurrent_repairs;
use gossip_conformance::damage::{check_damaged_shards, check_repairs};
use gossip_conformance::testscript::{ScriptBackend, WorldSettings};
use gossip_conformance::{Ability, ConformanceTarget, RaceJob, Settings, check_sequences, run_all};
use gossip_coordination::store::{AsyncStoreCoordinator, StoreConfig, StoreCoordinator};
use gossip_coordination::{CollectEvents, EventCollector, StateTransitionEvent};
use gossip_coordination_etcd::{EtcdConfig, EtcdStore, RETRIES_MAX};
use gossip_testkit_etcd::sim_etcd_kv::{Fault, FaultRates, SimEtcdKv, Target};
use gossip_testkit_etcd::{SimEtcdCoordinator, SimStore};

use crate::golden;

fn config() -> EtcdConfig {
    let config = EtcdConfig::new(["model:2379"], "sim").expect("the usual settings work");
    // Where a third of all requests is lost, a few in a row are nothing.
    EtcdConfig { max_clock_skew: Duration::ZERO, retries: RETRIES_MAX, ..config }
}

/// Limits of one more handle.
fn limits(settings: Settings, nonce: u64) -> StoreConfig {
    settings.limit(StoreConfig::new(nonce))
}

/// The coordinator over a model with faults that happen by themselves, the same in every run.
pub(crate) struct OnModel {
    faults: FaultRates,
    handle_count: AtomicU64,
}

impl OnModel {
    pub(crate) fn new(faults: FaultRates) -> Self {
        Self { faults, handle_count: AtomicU64::new(0) }
    }

    /// A nonce for each handle.
    fn nonce(&self) -> u64 {
        (1 + self.handle_count.fetch_add(1, Ordering::Relaxed)) << 32
    }
}

impl ConformanceTarget for OnModel {
    type Backend = SimEtcdCoordinator;

    fn name(&self) -> &str {
        "the model of etcd"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> SimEtcdCoordinator {
        let (kv, limits) = (SimEtcdKv::new(), limits(settings, self.nonce()));
        let mut store = SimStore::new(kv.clone(), &config()).expect("the usual settings work");
        settings.allot(&mut store);
        kv.inject_randomly(limits.nonce, self.faults);
        store.coordinator(limits)
    }

    fn with_events<R>(
        &self,
        backend: &mut SimEtcdCoordinator,
        call: impl FnOnce(&mut SimEtcdCoordinator) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, backend: &SimEtcdCoordinator) -> Option<SimEtcdCoordinator> {
        let config = StoreConfig { nonce: self.nonce(), ..backend.config() };
        Some(backend.store().coordinator(config))
    }

    fn sibling_handle(&self, backend: &SimEtcdCoordinator) -> Option<SimEtcdCoordinator> {
        let config = StoreConfig { nonce: self.nonce(), ..backend.config() };
        let (store, process) = (backend.store().clone(), backend.process_state());
        Some(StoreCoordinator::sharing(store, config, &process))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    }

    fn lose_next_reply(&self, backend: &mut SimEtcdCoordinator) -> bool {
        backend.store().store().kv().inject(0, Target::Write, Fault::LoseReply);
        true
    }

    fn split_children_max(&self) -> usize {
        self.fresh(Settings::default()).split_children_max()
    }
}

#[test]
fn damage_to_one_shard_in_the_model_leaves_the_others_alone() {
    let target = OnModel::new(FaultRates::default());
    check_damaged_shards(|| target.fresh(Settings::default()));
    check_repairs(|| target.fresh(Settings::default()));
    check_concurrent_repairs(|| {
        let store = target.fresh(Settings::default()).store().clone();
        [store.clone(), store]
    });
}

#[test]
fn the_coordinator_over_the_model_conforms() {
    let target = OnModel::new(FaultRates::default());
    let ran = run_all(&target, &mut |_| ());
    println!("{ran} cases");
    check_sequences(&target, 0..40, 120);
}

/// One write in three loses its way or its reply, and leases vanish: the answers are the same.
#[test]
fn sequences_over_a_faulty_model_are_answered_as_the_model_of_the_protocol_answers() {
    let faults = FaultRates { lose_request: 150, lose_reply: 150, refuse: 50, expire_leases: 20 };
    check_sequences(&OnModel::new(faults), 100..140, 120);
}

/// The asynchronous coordinator over a model without faults, polled by a thread that waits.
struct OnAsyncModel {
    handles: OnModel,
}

impl OnAsyncModel {
    fn new() -> Self {
        Self { handles: OnModel::new(FaultRates::default()) }
    }
}

/// The asynchronous coordinator over the model.
type AsyncModel = Blocking<AsyncStoreCoordinator<EtcdStore<SimEtcdKv>>>;

impl ConformanceTarget for OnAsyncModel {
    type Backend = AsyncModel;

    fn name(&self) -> &str {
        "the model of etcd, asynchronous"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> AsyncModel {
        let kv = SimEtcdKv::new();
        settings.allot(&mut SimStore::new(kv.clone(), &config()).expect("the usual settings work"));
        let store = EtcdStore::without_tasks(kv, &config());
        let store = store.expect("the usual settings work");
        Blocking::new(AsyncStoreCoordinator::new(store, limits(settings, self.handles.nonce())))
    }

    fn with_events<R>(
        &self,
        backend: &mut AsyncModel,
        call: impl FnOnce(&mut AsyncModel) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let result = backend.with_events(&mut events, call);
        (result, Some(events.drain()))
    }

    fn another_handle(&self, backend: &AsyncModel) -> Option<AsyncModel> {
        let coordinator = backend.get_ref();
        let config = StoreConfig { nonce: self.handles.nonce(), ..coordinator.config() };
        let store = coordinator.store().clone();
        Some(Blocking::new(AsyncStoreCoordinator::new(store, config)))
    }

    fn sibling_handle(&self, backend: &AsyncModel) -> Option<AsyncModel> {
        let coordinator = backend.get_ref();
        let config = StoreConfig { nonce: self.handles.nonce(), ..coordinator.config() };
        let (store, process) = (coordinator.store().clone(), coordinator.process_state());
        Some(Blocking::new(AsyncStoreCoordinator::sharing(store, config, &process)))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        self.handles.race(jobs);
    }

    fn lose_next_reply(&self, backend: &mut AsyncModel) -> bool {
        backend.get_ref().store().kv().inject(0, Target::Write, Fault::LoseReply);
        true
    }

    fn split_children_max(&self) -> usize {
        self.handles.split_children_max()
    }
}

#[test]
fn the_asynchronous_coordinator_over_the_model_conforms() {
    let target = OnAsyncModel::new();
    run_all(&target, &mut |_| ());
    check_sequences(&target, 500..520, 120);
}

/// Scripts over the model.
struct Scripts;

impl ScriptBackend for Scripts {
    type Coordinator = SimEtcdCoordinator;

    fn start(&mut self, settings: WorldSettings) -> Option<SimEtcdCoordinator> {
        let config = golden::configure(config(), settings)?;
        let mut store = SimStore::new(SimEtcdKv::new(), &config).expect("valid settings");
        settings.allot(&mut store);
        Some(store.coordinator(StoreConfig { nonce: 1 << 32, ..config.store_config() }))
    }

    fn observe<R>(
        coordinator: &mut SimEtcdCoordinator,
        call: impl FnOnce(&mut SimEtcdCoordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

#[test]
fn golden_scripts_over_the_model_are_answered_as_written() {
    golden::check(|| Scripts);
}

/// Scripts of tasks over the model.
struct AsyncScripts;

impl ScriptBackend for AsyncScripts {
    type Coordinator = AsyncModel;

    fn start(&mut self, settings: WorldSettings) -> Option<AsyncModel> {
        let config = golden::configure(config(), settings)?;
        let kv = SimEtcdKv::new();
        settings.allot(&mut SimStore::new(kv.clone(), &config).expect("valid settings"));
        let store = EtcdStore::without_tasks(kv, &config).expect("valid settings");
        let config = StoreConfig { nonce: 1 << 32, ..config.store_config() };
        Some(Blocking::new(AsyncStoreCoordinator::new(store, config)))
    }

    fn observe<R>(
        coordinator: &mut AsyncModel,
        call: impl FnOnce(&mut AsyncModel) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let (result, events) = OnAsyncModel::new().with_events(coordinator, call);
        (result, events.unwrap_or_default())
    }
}

#[test]
fn golden_scripts_of_tasks_over_the_model_are_answered_as_written() {
    golden::check(|| AsyncScripts);
}
