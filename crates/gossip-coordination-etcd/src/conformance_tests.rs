//! The coordinators on real etcd are held to everything that the one in memory is held to.

use std::sync::LazyLock;

use gossip_coordination::conformance::{
    ConformanceTarget, RaceJob, Settings, check_sequences, run_all,
};
use gossip_coordination::store::{AsyncStoreCoordinator, StoreConfig, StoreCoordinator};
use gossip_coordination::testscript::{ScriptBackend, WorldSettings, check_scripts};
use gossip_coordination::{Blocking, EventCollector, StateTransitionEvent};
use tokio::runtime::{Builder, Runtime};

use crate::lossy_kv::LossyKv;
use crate::real_servers::Servers;
use crate::{
    BlockingStore, EtcdConfig, EtcdCoordinator, EtcdStore, GrpcClient, another_blocking_handle,
};

type Store = EtcdStore<LossyKv<GrpcClient>>;

/// Limits of one more handle.
fn limits(config: &EtcdConfig, settings: Settings) -> StoreConfig {
    StoreConfig {
        max_shards_per_tenant: settings.max_shards_per_tenant,
        max_total_shards: settings.max_total_shards,
        claim_cooldown_interval: settings.claim_cooldown_interval,
        ..config.store_config()
    }
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
struct OnBlocking(Servers);

impl ConformanceTarget for OnBlocking {
    type Backend = StoreCoordinator<BlockingStore<Store>>;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn fresh(&self, settings: Settings) -> Self::Backend {
        let config = self.0.config();
        let (kv, of_store) = (LossyKv::new(self.0.client()), config.clone());
        let store = BlockingStore::start(async move { EtcdStore::start(kv, &of_store) });
        let store = store.expect("a thread").expect("valid settings");
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

    fn fresh(&self, settings: Settings) -> Self::Backend {
        let _runtime = RUNTIME.enter();
        let config = self.0.config();
        let store = EtcdStore::start(LossyKv::new(self.0.client()), &config);
        let store = store.expect("valid settings");
        Blocking::new(AsyncStoreCoordinator::new(store, limits(&config, settings)))
    }

    fn with_events<R>(
        &self,
        backend: &mut Self::Backend,
        call: impl FnOnce(&mut Self::Backend) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        backend.get_mut().collect_events(Some(EventCollector::new()));
        let result = call(backend);
        let events = backend.get_mut().collect_events(None);
        (result, events.map(|mut events| events.drain()))
    }

    fn another_handle(&self, backend: &Self::Backend) -> Option<Self::Backend> {
        let nonce = self.0.config().store_config().nonce;
        let config = StoreConfig { nonce, ..backend.get_ref().config() };
        let store = backend.get_ref().store().clone();
        Some(Blocking::new(AsyncStoreCoordinator::new(store, config)))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        race(jobs, || std::mem::forget(RUNTIME.enter()));
    }

    fn lose_next_reply(&self, backend: &mut Self::Backend) -> bool {
        backend.get_ref().store().kv().lose_next_reply();
        true
    }

    fn split_children_max(&self) -> usize {
        self.fresh(Settings::default()).get_ref().split_children_max()
    }
}

#[test]
fn the_blocking_coordinator_on_one_server_conforms() {
    let ran = run_all(&OnBlocking(Servers::Single), &mut |_| ());
    println!("{ran} cases");
    check_sequences(&OnBlocking(Servers::Single), 0..4, 120);
}

#[test]
fn the_blocking_coordinator_on_three_servers_conforms() {
    run_all(&OnBlocking(Servers::Three), &mut |_| ());
}

#[test]
fn the_asynchronous_coordinator_on_one_server_conforms() {
    let _runtime = RUNTIME.enter();
    run_all(&OnAsync(Servers::Single), &mut |_| ());
    check_sequences(&OnAsync(Servers::Single), 10..14, 120);
}

#[test]
fn the_asynchronous_coordinator_on_three_servers_conforms() {
    let _runtime = RUNTIME.enter();
    run_all(&OnAsync(Servers::Three), &mut |_| ());
}

/// Scripts through the public coordinator.
struct Scripts {
    servers: Servers,
    /// One connection for all scripts.
    first: Option<EtcdCoordinator>,
}

impl ScriptBackend for Scripts {
    type Coordinator = EtcdCoordinator;

    /// There is no slab to fill, so scripts that fill one are not played.
    fn start(&mut self, settings: WorldSettings) -> Option<EtcdCoordinator> {
        if settings.slab_bytes.is_some() {
            return None;
        }
        let mut config = self.servers.config();
        let per_tenant = settings.max_shards_per_tenant;
        config.max_shards_per_tenant = per_tenant.unwrap_or(config.max_shards_per_tenant);
        config.max_total_shards = settings.max_total_shards.unwrap_or(config.max_total_shards);
        config.claim_cooldown =
            std::time::Duration::from_millis(settings.claim_cooldown.unwrap_or(0));
        let coordinator = config.connect_blocking().expect("our own server answers");
        self.first.get_or_insert_with(|| another_blocking_handle(&coordinator));
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

fn check_golden_scripts(servers: Servers) {
    let mut scripts = Scripts { servers, first: None };
    let report = check_scripts(&mut scripts, false).expect("the scripts lie beside the sources");
    let failures = report.failures.join("\n");
    println!("{} played, {} skipped", report.files.len(), report.skipped.len());
    assert!(failures.is_empty(), "{failures}");
    assert!(report.skipped.iter().all(|name| name.contains("slab")), "{:?}", report.skipped);
}

#[test]
fn golden_scripts_on_one_server_are_answered_as_written() {
    check_golden_scripts(Servers::Single);
}

#[test]
fn golden_scripts_on_three_servers_are_answered_as_written() {
    check_golden_scripts(Servers::Three);
}
