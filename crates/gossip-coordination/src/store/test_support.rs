//! What tests do to a store behind the back of its coordinators.

use super::{Answer, Key, MapStore, Read, Store, StoreCoordinator, Txn};

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
