//! The format of a store, and its announcement. `crates/gossip-cli/tests/upgrade.rs` tests two
//! formats with two programs.

use super::codec::FORMAT_FIRST;
use super::core::encoded;
use super::*;
use crate::test_fixtures::{RUN, TENANT, at, op, register_two_shards, worker};
use crate::{InfraError, RunManagement as _};

fn write(store: &mut MapStore, key: Key, bytes: Vec<u8>) {
    let mut txn = Txn::new();
    txn.put(key, bytes);
    assert!(matches!(store.commit(vec![txn])[0], Ok(CommitOutcome::Applied { .. })));
}

#[test]
fn store_without_a_schema_record_has_the_first_format() {
    let mut store = MapStore::new();
    assert_eq!(fly(&mut store, load_store_format()).unwrap(), FORMAT_FIRST);
}

#[test]
fn announced_format_is_the_newest_and_lost_replies_do_not_matter() {
    let mut store = MapStore::new();
    store.inject(Fault::LoseReply);
    fly(&mut store, announce_format()).unwrap();
    assert_eq!(fly(&mut store, load_store_format()).unwrap(), FORMAT_VERSION);
}

#[test]
fn newer_format_is_read_and_never_lowered() {
    let mut store = MapStore::new();
    let newer = FORMAT_VERSION + 3;
    write(&mut store, Key::SchemaVersion, encoded(|out| encode_schema(newer, out)));
    fly(&mut store, announce_format()).unwrap();
    assert_eq!(fly(&mut store, load_store_format()).unwrap(), newer);
}

#[test]
fn format_below_the_first_is_damage() {
    let mut store = MapStore::new();
    write(&mut store, Key::SchemaVersion, encoded(|out| encode_schema(FORMAT_FIRST - 1, out)));
    let read = fly(&mut store, load_store_format());
    assert!(matches!(read, Err(InfraError::Corruption { .. })), "{read:?}");
}

/// The records of the newest format are left alone, and an unreadable one does not end the pass.
#[test]
fn upgrade_of_the_newest_format_rewrites_nothing_and_counts_damage() {
    let mut coordinator = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    register_two_shards(&mut coordinator);
    coordinator.pause_run(at(2), TENANT, RUN, op(20)).unwrap();
    let damaged = Key::Worker { tenant: TENANT, worker: worker(9) };
    write(coordinator.store_mut(), damaged, vec![2, 10]);
    let (mut rest, mut pages, mut unreadable) = (Some(KeyRange::all_tenants()), 0, 0);
    while let Some(range) = rest {
        let page = fly(coordinator.store_mut(), upgrade_page(range, 3)).unwrap();
        assert_eq!((page.rewritten, page.left), (0, 0));
        unreadable += page.unreadable;
        (rest, pages) = (page.rest, pages + 1);
    }
    assert!(pages > 2 && unreadable == 1, "{pages} pages, {unreadable} unreadable");
}
