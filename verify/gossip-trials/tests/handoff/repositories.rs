//! Runs the repository suite on every real store and on the etcd model.

use std::path::PathBuf;
use std::time::Duration;

use gossip_contracts::identity::TenantId;
use gossip_coordination::store::{Store, fresh_nonce};
use gossip_coordination_etcd::{EtcdConfig, RETRIES_MAX};
use gossip_coordination_sqlite::{SqliteDatabase, SqliteOptions};
use gossip_handoff::StoreRepository;
use gossip_sim_handoff::conformance::{RepositoryTarget, check};
use gossip_testkit::test_support::{EtcdServer, TestDirectory};
use gossip_testkit_etcd::SimStore;
use gossip_testkit_etcd::sim_etcd_kv::{FaultRates, SimEtcdKv};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);

/// Repositories over the stores that `open` returns.
struct Over<F>(F);

impl<S: Store, F: Fn() -> S> RepositoryTarget for Over<F> {
    type Handle = StoreRepository<S>;

    fn handle(&self) -> Self::Handle {
        StoreRepository::new((self.0)(), TENANT, fresh_nonce())
    }
}

fn file(name: &str) -> (TestDirectory, PathBuf) {
    let directory = TestDirectory::new(name);
    let path = directory.path().join("moves.db");
    (directory, path)
}

#[test]
fn records_in_sqlite_conform() {
    let (_directory, path) = file("handoff-sqlite");
    let database = SqliteDatabase::open(&path, SqliteOptions::default()).unwrap();
    check(&Over(|| database.store()));
}

#[test]
fn records_in_modelled_etcd_conform() {
    let config = EtcdConfig::new(["model:2379"], "sim").unwrap();
    let kv = SimEtcdKv::new();
    check(&Over(|| SimStore::new(kv.clone(), &config).unwrap()));
}

#[test]
fn records_in_modelled_etcd_conform_although_requests_and_replies_are_lost() {
    let config = EtcdConfig::new(["model:2379"], "sim").unwrap();
    let config = EtcdConfig { retries: RETRIES_MAX, ..config };
    let rates = FaultRates { lose_request: 150, lose_reply: 150, ..FaultRates::default() };
    for seed in 0..20 {
        let kv = SimEtcdKv::new();
        kv.inject_randomly(seed, rates);
        check(&Over(|| SimStore::new(kv.clone(), &config).unwrap()));
    }
}

#[test]
fn records_in_real_etcd_conform() {
    let server = EtcdServer::single();
    let config = EtcdConfig::new([server.endpoint().trim_start_matches("http://")], "moves");
    let config = EtcdConfig { max_clock_skew: Duration::ZERO, ..config.unwrap() };
    let coordinator = config.connect_blocking().unwrap();
    check(&Over(|| coordinator.store().clone()));
}
