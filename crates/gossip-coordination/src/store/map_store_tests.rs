//! The model store keeps the contract of an engine, and a transaction its own.

use std::sync::Arc;

use gossip_contracts::identity::{RunId, TenantId};

use super::{
    Answer, CommitOutcome, Fault, Key, KeyRange, MapStore, Read, Store, StoreLimits, Txn, Versioned,
};
use crate::{InfraError, StoreRefusal};

const TENANT: TenantId = TenantId::from_bytes([3; 32]);

const fn key(run: u64) -> Key {
    Key::RunHead { tenant: TENANT, run: RunId::from_raw(run) }
}

fn put(run: u64, value: &[u8]) -> Txn {
    let mut txn = Txn::new();
    txn.put(key(run), value.to_vec());
    txn
}

fn stored(store: &mut MapStore, run: u64) -> Option<Versioned> {
    match read(store, Read::Get(key(run))) {
        Answer::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

fn read(store: &mut MapStore, read: Read) -> Answer {
    store.read(vec![read]).unwrap().pop().unwrap()
}

/// Commits one transaction.
fn commit(store: &mut MapStore, txn: Txn) -> Result<CommitOutcome, InfraError> {
    store.commit(vec![txn]).pop().unwrap()
}

fn applied(outcome: Result<CommitOutcome, InfraError>) -> bool {
    matches!(outcome, Ok(CommitOutcome::Applied { .. }))
}

/// The key and the value of a conflict.
fn conflict(outcome: Result<CommitOutcome, InfraError>) -> (Key, Option<Vec<u8>>) {
    let Ok(CommitOutcome::Conflict(conflict)) = outcome else { panic!("{outcome:?}") };
    let value = conflict.found()[0].1.as_ref().map(|value| value.bytes.clone());
    (conflict.key(), value)
}

#[test]
fn a_commit_whose_compares_hold_does_everything() {
    let mut store = MapStore::new();
    assert!(applied(commit(&mut store, put(1, b"one"))));
    let before = stored(&mut store, 1);
    let mut txn = Txn::new();
    txn.expect(key(1), before.as_ref());
    txn.expect(key(2), None);
    txn.delete(key(1));
    txn.put(key(2), b"two".to_vec());
    assert!(applied(commit(&mut store, txn)));
    assert_eq!(stored(&mut store, 1), None);
    assert_eq!(stored(&mut store, 2).unwrap().bytes, b"two");
}

#[test]
fn a_commit_whose_compare_fails_does_nothing_and_names_the_key() {
    let mut store = MapStore::new();
    commit(&mut store, put(1, b"one")).unwrap();
    let before = stored(&mut store, 1);
    commit(&mut store, put(1, b"one")).unwrap();
    let mut txn = put(3, b"three");
    txn.expect(key(1), before.as_ref());
    assert_eq!(conflict(commit(&mut store, txn)), (key(1), Some(b"one".to_vec())));
    let mut txn = put(3, b"three");
    txn.expect(key(1), None);
    assert_eq!(conflict(commit(&mut store, txn)), (key(1), Some(b"one".to_vec())));
    let mut txn = put(3, b"three");
    txn.expect_empty(KeyRange::runs_of(TENANT));
    assert_eq!(conflict(commit(&mut store, txn)), (key(1), Some(b"one".to_vec())));
    assert_eq!(stored(&mut store, 3), None);
}

#[test]
fn a_revision_never_comes_back() {
    let mut store = MapStore::new();
    commit(&mut store, put(1, b"one")).unwrap();
    let before = stored(&mut store, 1);
    let mut delete = Txn::new();
    delete.delete(key(1));
    commit(&mut store, delete).unwrap();
    commit(&mut store, put(1, b"one")).unwrap();
    assert_ne!(stored(&mut store, 1), before);
}

#[test]
fn faults_are_what_they_are_called() {
    let mut store = MapStore::new();
    let mut other = store.another_handle();
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Fail] {
        store.inject(fault);
    }
    assert_eq!(commit(&mut store, put(1, b"one")), Ok(CommitOutcome::Unknown));
    assert_eq!(stored(&mut other, 1), None);
    assert_eq!(commit(&mut store, put(1, b"one")), Ok(CommitOutcome::Unknown));
    assert!(stored(&mut other, 1).is_some());
    assert!(commit(&mut store, put(2, b"two")).is_err());
    assert_eq!(stored(&mut other, 2), None);
    store.inject(Fault::Conflict);
    let mut txn = put(2, b"two");
    txn.expect(key(2), None);
    assert_eq!(conflict(commit(&mut store, txn.clone())), (key(2), None));
    assert!(applied(commit(&mut store, txn)));
    assert_eq!((store.commit_count(), other.commit_count()), (5, 0));
}

#[test]
fn a_conflict_without_read_back_has_a_key_and_no_value() {
    let mut store = MapStore::new();
    assert!(applied(commit(&mut store, put(1, b"one"))));
    let mut txn = put(2, b"two");
    txn.expect(key(3), None);
    txn.expect(key(1), None);
    txn.skip_read_back();
    let Ok(CommitOutcome::Conflict(conflict)) = commit(&mut store, txn) else {
        panic!("a key is there that should not");
    };
    assert_eq!((conflict.key(), conflict.found()), (key(3), [].as_slice()));
    assert_eq!(stored(&mut store, 2), None);
}

fn bind(run: u64) -> Txn {
    let mut txn = Txn::new();
    txn.bind(key(run), b"bound".to_vec());
    txn
}

#[test]
fn bound_keys_vanish_with_their_process() {
    let mut store = MapStore::new().with_bindings();
    let mut other = store.another_handle();
    assert_eq!(MapStore::new().binding(), None);
    let before = store.binding();
    store.commit(vec![bind(1), bind(2), bind(3), put(4, b"put")]);
    // The last writer of a key owns its binding.
    other.commit(vec![bind(2), put(3, b"put")]);
    store.end_process();
    let left = [1, 2, 3, 4].map(|run| stored(&mut other, run).is_some());
    assert_eq!((left, store.binding()), ([false, true, true, true], before));
    store.revoke_bindings();
    assert!(store.binding() > before, "it noticed");
    other.end_process();
    assert_eq!(stored(&mut store, 2), None);
}

#[test]
fn scans_are_ordered_bounded_and_counted() {
    let mut store = MapStore::with_limits(StoreLimits { page: 2, ..StoreLimits::GENEROUS });
    for run in [3, 1, 2] {
        commit(&mut store, put(run, b"x")).unwrap();
    }
    let range = KeyRange::runs_of(TENANT);
    let Answer::Page(page) = read(&mut store, Read::Scan { range, limit: 9 }) else { panic!() };
    assert_eq!(page.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key(1), key(2)]);
    let rest = Read::Scan { range: range.after(&key(2)), limit: 9 };
    let Answer::Page(rest) = read(&mut store, rest) else { panic!() };
    assert_eq!(rest[0].0, key(3));
    assert_eq!(read(&mut store, Read::Count(range)), Answer::Count(3));
    // Of several ranges the first that has a key is read, and no other.
    let (none, last) = (KeyRange::workers_of(TENANT), range.after(&key(2)));
    let first_of = |ranges| Read::ScanFirst { ranges, limit: 9 };
    assert_eq!(read(&mut store, first_of(vec![none, range, last])), Answer::Page(page));
    assert_eq!(read(&mut store, first_of(vec![last, range])), Answer::Page(rest));
    assert_eq!(read(&mut store, first_of(vec![none])), Answer::Page(Vec::new()));
}

#[test]
fn a_transaction_counts_what_engines_bound() {
    let mut txn = put(1, b"12345");
    txn.expect(key(1), None);
    txn.expect(key(2), None);
    let key_len = key(1).to_bytes().as_bytes().len();
    assert_eq!((txn.op_count(), txn.byte_count()), (2, key_len + 5));
    let small = StoreLimits { txn_ops: 1, ..StoreLimits::GENEROUS };
    assert!(!small.admit(&txn) && StoreLimits::GENEROUS.admit(&txn));
    assert!(commit(&mut MapStore::with_limits(small), txn).is_err());
}

#[test]
fn a_read_of_too_many_questions_is_refused() {
    let mut store = MapStore::with_limits(StoreLimits { txn_ops: 2, ..StoreLimits::GENEROUS });
    assert!(store.read(vec![Read::Get(key(1)); 2]).is_ok());
    assert!(matches!(
        store.read(vec![Read::Get(key(1)); 3]),
        Err(InfraError::Refused { why: StoreRefusal::TooLarge, .. })
    ));
}

#[test]
#[should_panic(expected = "a transaction writes a key once")]
fn a_key_is_written_once() {
    let mut txn = put(1, b"one");
    txn.delete(key(1));
}

#[test]
fn values_are_shown_by_their_length_only() {
    let shown =
        format!("{:?} {:?}", put(1, b"secret"), Versioned { revision: 1, bytes: vec![7; 3] });
    assert!(!shown.contains("115") && shown.contains("6 bytes"), "{shown}");
}

#[test]
fn value_compare_holds_at_any_revision_and_for_that_value_only() {
    let mut store = MapStore::new();
    let expecting = |value: &[u8]| {
        let mut txn = put(2, b"two");
        txn.expect_value(key(1), Arc::new(value.to_vec()));
        txn
    };
    assert_eq!(conflict(commit(&mut store, expecting(b"one"))), (key(1), None), "it is absent");
    assert!(applied(commit(&mut store, put(1, b"one"))));
    assert!(applied(commit(&mut store, put(1, b"one"))));
    assert!(applied(commit(&mut store, expecting(b"one"))));
    let lost = conflict(commit(&mut store, expecting(b"on")));
    assert_eq!(lost, (key(1), Some(b"one".to_vec())));
}

#[test]
fn restored_store_has_the_values_and_the_revisions_of_its_backup() {
    let mut store = MapStore::new();
    assert!(applied(commit(&mut store, put(1, b"one"))));
    let (backup, before) = (store.backup(), stored(&mut store, 1));
    assert!(applied(commit(&mut store, put(1, b"two"))));
    let later = stored(&mut store, 1);
    store.restore(&backup);
    assert_eq!(stored(&mut store, 1), before);
    assert!(applied(commit(&mut store, put(1, b"three"))));
    let repeated = stored(&mut store, 1);
    let revision = |value: Option<Versioned>| value.map(|value| value.revision);
    assert_eq!(revision(repeated), revision(later));
}
