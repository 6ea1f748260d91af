//! The repositories of `gossip-handoff` pass the conformance suite.

use gossip_contracts::identity::TenantId;
use gossip_coordination::store::{MapStore, StoreLimits};
use gossip_handoff::{MemoryRepository, StoreRepository};
use gossip_sim_handoff::conformance::{RepositoryTarget, check};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);

struct Memory(MemoryRepository);

impl RepositoryTarget for Memory {
    type Handle = MemoryRepository;

    fn handle(&self) -> MemoryRepository {
        self.0.clone()
    }
}

struct Map(MapStore);

impl RepositoryTarget for Map {
    type Handle = StoreRepository<MapStore>;

    fn handle(&self) -> Self::Handle {
        StoreRepository::new(self.0.another_handle(), TENANT, fresh_nonce())
    }
}

/// Returns a unique nonce.
fn fresh_nonce() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn memory_conforms() {
    check(&Memory(MemoryRepository::new()));
}

#[test]
fn a_store_conforms() {
    check(&Map(MapStore::new()));
}

#[test]
fn a_store_with_small_transactions_conforms() {
    // As small as those of etcd.
    let limits = StoreLimits { txn_ops: 128, txn_bytes: 1 << 20, page: 1_000 };
    check(&Map(MapStore::with_limits(limits)));
}
