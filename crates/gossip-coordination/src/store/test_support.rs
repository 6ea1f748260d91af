//! What tests do to a store behind the back of its coordinators.

use gossip_contracts::identity::TenantId;

use super::{
    Allotment, Answer, AsyncStore, CommitOutcome, Key, MapStore, Read, Store, StoreCoordinator,
    StoreLimits, Txn, fly, set_allotment,
};
use crate::error::InfraError;

/// Puts bytes under a key, whatever they say.
pub(super) fn overwrite(handle: &mut StoreCoordinator<MapStore>, key: Key, bytes: Vec<u8>) {
    let mut txn = Txn::new();
    txn.put(key, bytes);
    handle.store_mut().commit(vec![txn]).remove(0).unwrap();
}

/// The bytes under a key, which is there.
pub(super) fn stored(handle: &mut StoreCoordinator<MapStore>, key: Key) -> Vec<u8> {
    match handle.store_mut().read(vec![Read::Get(key)]).unwrap().remove(0) {
        Answer::Value(Some(value)) => value.bytes,
        other => panic!("{other:?}"),
    }
}

/// Writes how many shards a tenant may have, as an operator does.
pub(super) fn allot(store: &mut MapStore, tenant: TenantId, max_shards: u64) {
    fly(store, set_allotment(tenant, Some(Allotment::of_shards(max_shards)))).unwrap();
}

/// The model store as an asynchronous one that is ready at once.
pub(crate) struct AsyncMap(pub(crate) MapStore);

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
