//! The coordinators on a real server are held to everything that the one in memory is held to.

use std::sync::LazyLock;
use std::time::Duration;

use gossip_conformance::blocking::Blocking;
use gossip_conformance::damage::{check_damaged_shards, check_repairs};
use gossip_conformance::testscript::{
    ScriptBackend, WorldSettings, check_scripts, is_for_memory_only,
};
use gossip_conformance::watches::check_void_deadlines;
use gossip_conformance::{Ability, ConformanceTarget, RaceJob, Settings, check_sequences, run_all};
use gossip_coordination::store::{
    AsyncStoreCoordinator, StoreConfig, StoreCoordinator, fresh_nonce,
};
use gossip_coordination::{CollectEvents, EventCollector, StateTransitionEvent};
use gossip_coordination_postgres::{
    AsyncPostgresCoordinator, BlockingStore, PostgresConfig, PostgresCoordinator, PostgresStore,
};
use tokio::runtime::{Builder, Runtime};

use crate::lossy_store::LossyStore;
use crate::message_proxy::MessageProxy;
use crate::real_server::config;
use crate::store_pool::{Pool, Pooled};

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
#[derive(Default)]
pub(crate) struct OnBlocking {
    /// Whether statements are sent as through a pooler.
    pub(crate) is_pooled: bool,
    /// What connections go through.
    pub(crate) proxy: Option<MessageProxy>,
}

impl ConformanceTarget for OnBlocking {
    type Backend = StoreCoordinator<LossyStore<BlockingStore>>;

    fn name(&self) -> &str {
        "PostgreSQL"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        static POOL: Pool<BlockingStore> = Pool::new();
        let (mut store, config) = if self.is_pooled || self.proxy.is_some() {
            let mut config = PostgresConfig { is_pooled: self.is_pooled, ..config() };
            config.port = self.proxy.as_ref().map_or(config.port, MessageProxy::port);
            (LossyStore::new(connect(&config)), config)
        } else {
            let (pooled, taken) = POOL.take(connect);
            (LossyStore::of_pool(pooled.store, taken), pooled.config)
        };
        settings.allot(&mut store);
        StoreCoordinator::new(store, settings.limit(config.store_config()))
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
        let config = StoreConfig { nonce: fresh_nonce(), ..backend.config() };
        Some(StoreCoordinator::new(backend.store().clone(), config))
    }

    fn sibling_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let config = StoreConfig { nonce: fresh_nonce(), ..backend.config() };
        let process = backend.process_state();
        Some(StoreCoordinator::sharing(backend.store().clone(), config, &process))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        race(jobs, || ());
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.store().lose_next_reply();
        true
    }
}

fn connect(config: &PostgresConfig) -> BlockingStore {
    BlockingStore::connect(config).expect("our own server answers")
}

fn connect_async(config: &PostgresConfig) -> PostgresStore {
    RUNTIME.block_on(PostgresStore::connect(config)).expect("our own server answers")
}

/// Where the asynchronous coordinators run.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread")
});

fn enter_runtime() {
    std::mem::forget(RUNTIME.enter());
}

/// The asynchronous coordinator.
struct OnAsync;

impl ConformanceTarget for OnAsync {
    type Backend = Blocking<AsyncStoreCoordinator<LossyStore<PostgresStore>>>;

    fn name(&self) -> &str {
        "PostgreSQL, asynchronous"
    }

    fn lacks(&self) -> &'static [Ability] {
        &[Ability::TotalLimit]
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        static POOL: Pool<PostgresStore> = Pool::new();
        let (pooled, taken) = POOL.take(connect_async);
        let mut store = LossyStore::of_pool(pooled.store, taken);
        RUNTIME.block_on(settings.allot_async(&mut store));
        let config = settings.limit(pooled.config.store_config());
        Blocking::new(AsyncStoreCoordinator::new(store, config))
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
        let config = StoreConfig { nonce: fresh_nonce(), ..backend.get_ref().config() };
        let store = backend.get_ref().store().clone();
        Some(Blocking::new(AsyncStoreCoordinator::new(store, config)))
    }

    fn sibling_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let coordinator = backend.get_ref();
        let config = StoreConfig { nonce: fresh_nonce(), ..coordinator.config() };
        let (store, process) = (coordinator.store().clone(), coordinator.process_state());
        Some(Blocking::new(AsyncStoreCoordinator::sharing(store, config, &process)))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        race(jobs, enter_runtime);
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.get_ref().store().lose_next_reply();
        true
    }
}

#[test]
fn the_blocking_coordinator_conforms() {
    let target = OnBlocking::default();
    println!("{} cases", run_all(&target, &mut |_| ()));
    check_sequences(&target, 0..4, 120);
}

#[test]
fn the_asynchronous_coordinator_conforms() {
    let _runtime = RUNTIME.enter();
    println!("{} cases", run_all(&OnAsync, &mut |_| ()));
    check_sequences(&OnAsync, 10..14, 120);
}

#[test]
fn the_coordinator_conforms_without_prepared_statements() {
    check_sequences(&OnBlocking { is_pooled: true, proxy: None }, 20..24, 120);
}

#[test]
fn damage_to_one_shard_leaves_the_others_alone() {
    let target = OnBlocking::default();
    check_damaged_shards(|| target.fresh(Settings::default()));
    check_repairs(|| target.fresh(Settings::default()));
}

/// Each handle has connections of its own, as another process has.
#[test]
fn far_deadlines_become_void() {
    let config = config();
    check_void_deadlines(|process| {
        let of_handle = StoreConfig { nonce: fresh_nonce(), ..config.store_config() };
        StoreCoordinator::sharing(connect(&config), of_handle, process)
    });
}

/// Returns the configuration of a coordinator as a script asks for; `None` if a store cannot have
/// it.
fn configure(settings: WorldSettings, config: &PostgresConfig) -> Option<StoreConfig> {
    let claim_cooldown = Duration::from_millis(settings.claim_cooldown.unwrap_or(0));
    let config = PostgresConfig { claim_cooldown, ..config.clone() };
    settings.fit_a_store().then(|| config.store_config())
}

/// Scripts through the public coordinator, one after the other in one schema.
struct Scripts(Pooled<BlockingStore>);

impl ScriptBackend for Scripts {
    type Coordinator = PostgresCoordinator;

    fn start(&mut self, settings: WorldSettings) -> Option<PostgresCoordinator> {
        let config = configure(settings, &self.0.config)?;
        self.0.empty();
        let mut store = self.0.store.clone();
        settings.allot(&mut store);
        Some(StoreCoordinator::new(store, config))
    }

    fn observe<R>(
        coordinator: &mut PostgresCoordinator,
        call: impl FnOnce(&mut PostgresCoordinator) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        let mut events = EventCollector::new();
        let result = coordinator.with_events(&mut events, call);
        (result, events.drain())
    }
}

/// Scripts through the public coordinator of tasks.
struct AsyncScripts(Pooled<PostgresStore>);

impl ScriptBackend for AsyncScripts {
    type Coordinator = Blocking<AsyncPostgresCoordinator>;

    fn start(&mut self, settings: WorldSettings) -> Option<Self::Coordinator> {
        let config = configure(settings, &self.0.config)?;
        self.0.empty();
        let mut store = self.0.store.clone();
        RUNTIME.block_on(settings.allot_async(&mut store));
        Some(Blocking::new(AsyncStoreCoordinator::new(store, config)))
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

fn run_scripts(backend: &mut impl ScriptBackend) {
    let report = check_scripts(backend, false).expect("the scripts can be read");
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    let unexpected: Vec<_> =
        report.skipped.iter().filter(|name| !is_for_memory_only(name)).collect();
    assert!(unexpected.is_empty(), "skipped: {unexpected:?}");
    println!("{} scripts", report.files.len());
}

#[test]
fn golden_scripts_are_answered_as_written() {
    run_scripts(&mut Scripts(Pooled::connect(connect)));
}

#[test]
fn golden_scripts_of_tasks_are_answered_as_written() {
    run_scripts(&mut AsyncScripts(Pooled::connect(connect_async)));
}
