//! The store keeps the contract of an engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gossip_contracts::identity::{RunId, TenantId};
use gossip_coordination::store::{
    Answer, CommitOutcome, Key, KeyRange, MapStore, Read, Store, StoreLimits, Txn, Versioned,
};
use gossip_coordination::{InfraError, StoreRefusal};
use proptest::prelude::*;

use crate::SqliteStore;
use crate::test_support::{Scratch, TENANT, applied, commit, key, put, stored};

#[test]
fn a_commit_whose_compares_hold_does_everything_at_one_revision() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    applied(&mut store, put(1, b"one"));
    let mut txn = Txn::new();
    txn.expect(key(1), stored(&mut store, 1).as_ref());
    txn.expect(key(2), None);
    txn.put(key(1), b"uno".to_vec());
    txn.put(key(2), b"two".to_vec());
    let revision = applied(&mut store, txn);
    for (number, bytes) in [(1, b"uno"), (2, b"two")] {
        let value = stored(&mut store, number).unwrap();
        assert_eq!((value.revision, &value.bytes[..]), (revision, &bytes[..]));
    }
}

#[test]
fn a_commit_whose_compares_fail_returns_the_stored_values() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    let stale = {
        applied(&mut store, put(1, b"one"));
        stored(&mut store, 1)
    };
    applied(&mut store, put(1, b"uno"));
    let now = stored(&mut store, 1);
    let mut txn = put(3, b"three");
    txn.expect(key(1), stale.as_ref());
    txn.expect(key(2), stale.as_ref());
    let Ok(CommitOutcome::Conflict(conflict)) = commit(&mut store, txn) else { panic!("applied") };
    assert_eq!(conflict.found(), [(key(1), now.clone()), (key(2), None)]);
    let mut txn = put(3, b"three");
    txn.expect(key(1), None);
    let Ok(CommitOutcome::Conflict(conflict)) = commit(&mut store, txn) else { panic!("applied") };
    assert_eq!(conflict.found(), [(key(1), now.clone())]);
    let mut txn = put(3, b"three");
    txn.expect_empty(KeyRange::runs_of(TENANT));
    let Ok(CommitOutcome::Conflict(conflict)) = commit(&mut store, txn) else { panic!("applied") };
    assert_eq!(conflict.found(), [(key(1), now)]);
    assert_eq!(stored(&mut store, 3), None);
}

#[test]
fn value_compare_sees_the_writes_of_its_own_call() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    let expecting = |number, value: &[u8]| {
        let mut txn = put(number, b"x");
        txn.expect_value(key(1), Arc::new(value.to_vec()));
        txn
    };
    let txns = vec![
        expecting(2, b"one"),
        put(1, b"one"),
        expecting(3, b"one"),
        expecting(4, b"one"),
        put(1, b"two"),
        expecting(5, b"one"),
        expecting(6, b"two"),
    ];
    let outcomes = store.commit(txns).into_iter();
    let applied: Vec<bool> =
        outcomes.map(|it| matches!(it, Ok(CommitOutcome::Applied { .. }))).collect();
    assert_eq!(applied, [false, true, true, true, true, false, true]);
}

#[test]
fn a_revision_that_no_store_counts_up_to_is_a_conflict() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    applied(&mut store, put(1, b"one"));
    for revision in [i64::MAX.cast_unsigned(), u64::MAX] {
        let mut txn = put(1, b"two");
        txn.expect_revision(key(1), Some(revision));
        let outcome = commit(&mut store, txn);
        assert!(matches!(outcome, Ok(CommitOutcome::Conflict(_))), "{outcome:?}");
    }
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"one");
}

#[test]
fn transactions_of_one_call_are_independent_and_see_those_before_them() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    let absent = |number, value: &[u8]| {
        let mut txn = put(number, value);
        txn.expect(key(number), None);
        txn
    };
    let outcomes = store.commit(vec![absent(1, b"a"), absent(1, b"b"), absent(2, b"c")]);
    assert!(matches!(outcomes[0], Ok(CommitOutcome::Applied { .. })));
    let Ok(CommitOutcome::Conflict(conflict)) = &outcomes[1] else { panic!("applied twice") };
    assert_eq!(conflict.found()[0].1.as_ref().unwrap().bytes, b"a");
    assert!(matches!(outcomes[2], Ok(CommitOutcome::Applied { .. })));
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"a");
}

#[test]
fn what_a_group_looked_at_follows_what_it_writes() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    let first = applied(&mut store, put(1, b"one"));
    let at = |number: u64, revision: u64| {
        let mut txn = put(number, b"x");
        txn.expect_revision(key(1), Some(revision));
        txn
    };
    // Looks at the first key, changes it, and looks at it again, old and new, three times over.
    let group = vec![at(2, first), at(1, first), at(3, first), at(1, first + 1), at(4, first + 2)];
    let outcomes = store.commit(group);
    let is_applied: Vec<bool> = outcomes
        .iter()
        .map(|outcome| matches!(outcome, Ok(CommitOutcome::Applied { .. })))
        .collect();
    assert_eq!(is_applied, [true, true, false, true, true], "{outcomes:?}");
    assert_eq!(stored(&mut store, 1).unwrap().revision, first + 2);
}

#[test]
fn scans_are_ordered_bounded_and_counted() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    for number in [3, 1, 2] {
        applied(&mut store, put(number, b"x"));
    }
    let range = KeyRange::runs_of(TENANT);
    let reads = vec![
        Read::Scan { range, limit: 2 },
        Read::Scan { range: range.after(&key(2)), limit: 9 },
        Read::Count(range),
        Read::Count(KeyRange::workers_of(TENANT)),
        Read::ScanFirst { ranges: vec![KeyRange::workers_of(TENANT), range], limit: 2 },
        Read::ScanFirst { ranges: vec![range.after(&key(2)), range], limit: 2 },
        Read::ScanFirst { ranges: vec![KeyRange::workers_of(TENANT)], limit: 2 },
    ];
    let answers = store.read(reads).unwrap();
    let keys = |answer: &Answer| match answer {
        Answer::Page(page) => page.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(keys(&answers[0]), [key(1), key(2)]);
    assert_eq!(keys(&answers[1]), [key(3)]);
    assert_eq!(answers[2..4], [Answer::Count(3), Answer::Count(0)]);
    assert_eq!(keys(&answers[4]), [key(1), key(2)]);
    assert_eq!(keys(&answers[5]), [key(3)]);
    assert_eq!(keys(&answers[6]), []);
    assert_eq!(store.read(Vec::new()), Ok(Vec::new()));
}

/// An entry is moved between two ranges, in one transaction each time, while both are searched. The
/// empty ranges between them make the search long enough to be overtaken by a move.
#[test]
fn a_single_search_of_several_ranges_sees_one_snapshot() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let tenant = |number: u8| TenantId::from_bytes([number; 32]);
    let entry = |number| Key::RunHead { tenant: tenant(number), run: RunId::from_raw(1) };
    let mut first = Txn::new();
    first.put(entry(1), b"x".to_vec());
    applied(&mut database.store(), first);
    let is_over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut store = database.store();
            for turn in 0.. {
                let (from, to) = if turn % 2 == 0 { (1, 255) } else { (255, 1) };
                let mut txn = Txn::new();
                txn.delete(entry(from));
                txn.put(entry(to), b"x".to_vec());
                applied(&mut store, txn);
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let mut store = database.store();
        let search = || {
            let ranges = (1..=255).map(|number| KeyRange::runs_of(tenant(number))).collect();
            let answers = store.read(vec![Read::ScanFirst { ranges, limit: 1 }]).unwrap();
            matches!(&answers[..], [Answer::Page(page)] if page.len() == 1)
        };
        let found: Vec<bool> = std::iter::repeat_with(search).take(1000).collect();
        is_over.store(true, Ordering::SeqCst);
        found
    });
    assert!(found.iter().all(|found| *found), "the entry was always in one of the ranges");
}

#[test]
fn a_page_is_never_longer_than_the_limit() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    let page = store.limits().page;
    let txns = (0..page as u64 + 5).map(|number| put(number, b"")).collect();
    assert!(store.commit(txns).iter().all(Result::is_ok));
    let range = KeyRange::runs_of(TENANT);
    let answers = store.read(vec![Read::Scan { range, limit: usize::MAX }]).unwrap();
    let [Answer::Page(rows)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(rows.len(), page);
}

#[test]
fn a_transaction_beyond_the_limits_is_refused_and_its_neighbours_are_not() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    let StoreLimits { txn_ops, txn_bytes, .. } = store.limits();
    let mut many = Txn::new();
    (0..=txn_ops as u64).for_each(|number| many.put(key(number + 10), Vec::new()));
    let large = put(5, &vec![0; txn_bytes]);
    let outcomes = store.commit(vec![put(1, b"a"), many, large, put(2, b"b")]);
    let too_large = |outcome: &Result<CommitOutcome, InfraError>| {
        matches!(outcome, Err(InfraError::Refused { why: StoreRefusal::TooLarge, .. }))
    };
    assert!(too_large(&outcomes[1]) && too_large(&outcomes[2]));
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok());
    assert_eq!(stored(&mut store, 5), None);
    assert!(stored(&mut store, 2).is_some());
}

#[test]
fn the_largest_transaction_fits() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    let mut txn = Txn::new();
    let count = store.limits().txn_ops as u64;
    let each =
        store.limits().txn_bytes / store.limits().txn_ops - key(0).to_bytes().as_bytes().len();
    (0..count).for_each(|number| txn.put(key(number), vec![1; each]));
    applied(&mut store, txn);
    assert_eq!(stored(&mut store, count - 1).unwrap().bytes.len(), each);
}

#[test]
fn what_a_file_cannot_promise_is_refused() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    assert_eq!(store.binding(), None);
    let mut txn = Txn::new();
    txn.bind(key(1), b"while I live".to_vec());
    let refused = commit(&mut store, txn).unwrap_err();
    assert!(matches!(refused, InfraError::Refused { why: StoreRefusal::Unusable, .. }));
    assert_eq!(stored(&mut store, 1), None);
}

#[test]
fn everything_is_there_when_the_file_is_opened_again() {
    let scratch = Scratch::on_disk();
    let revision = applied(&mut scratch.database_with(<_>::default()).store(), put(1, b"kept"));
    let mut store = scratch.database().store();
    let value = stored(&mut store, 1).unwrap();
    assert_eq!((value.revision, &value.bytes[..]), (revision, &b"kept"[..]));
}

#[test]
fn callers_are_committed_together_and_each_is_answered() {
    const CALLERS: u64 = 16;
    const COMMITS: u64 = 40;
    let scratch = Scratch::on_disk();
    let database = scratch.database_with(<_>::default());
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let mut store = database.store();
            scope.spawn(move || {
                let mut last = 0;
                for nth in 0..COMMITS {
                    let mut txn = put(caller, &nth.to_be_bytes());
                    txn.expect(key(caller), stored(&mut store, caller).as_ref());
                    let revision = applied(&mut store, txn);
                    assert!(revision > last);
                    last = revision;
                }
            });
        }
    });
    let mut store = database.store();
    for caller in 0..CALLERS {
        assert_eq!(stored(&mut store, caller).unwrap().bytes, (COMMITS - 1).to_be_bytes());
    }
}

/// A key of a tenant that only one case of a property has.
fn tenant_key(tenant: u64, number: u64) -> Key {
    let mut name = [1; 32];
    name[..8].copy_from_slice(&tenant.to_be_bytes());
    Key::RunHead { tenant: TenantId::from_bytes(name), run: RunId::from_raw(number) }
}

fn fresh_tenant() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn get(store: &mut impl Store, key: Key) -> Option<Versioned> {
    match store.read(vec![Read::Get(key)]).unwrap().pop() {
        Some(Answer::Value(value)) => value,
        other => panic!("{other:?}"),
    }
}

/// One write of a drawn transaction: which key, and a length to put, or none to delete.
type Drawn = BTreeMap<u64, Option<u8>>;

fn drawn() -> impl Strategy<Value = Drawn> {
    proptest::collection::btree_map(0..5_u64, proptest::option::of(0..40_u8), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn revisions_of_a_key_rise_also_across_its_deletion(
        txns in proptest::collection::vec(drawn(), 1..30),
    ) {
        thread_local! {
            static HOUSE: (Scratch, SqliteStore) = {
                let scratch = Scratch::new();
                let store = scratch.database().store();
                (scratch, store)
            };
        }
        let mut store = HOUSE.with(|(_, store)| store.clone());
        let tenant = fresh_tenant();
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for drawn in txns {
            let mut txn = Txn::new();
            for (number, len) in &drawn {
                match len {
                    Some(len) => txn.put(tenant_key(tenant, *number), vec![0; usize::from(*len)]),
                    None => txn.delete(tenant_key(tenant, *number)),
                }
            }
            let existed: Vec<u64> = drawn.keys().copied()
                .filter(|number| get(&mut store, tenant_key(tenant, *number)).is_some()).collect();
            let revision = applied(&mut store, txn);
            for (number, len) in drawn {
                let value = get(&mut store, tenant_key(tenant, number));
                prop_assert_eq!(value.map(|it| it.revision), len.map(|_| revision));
                // Deleting an absent key changes nothing, so it has no revision.
                if len.is_some() || existed.contains(&number) {
                    let before = last.insert(number, revision);
                    prop_assert!(before.is_none_or(|before| before < revision));
                }
            }
        }
    }

    #[test]
    fn outcomes_are_those_of_the_model_store(
        steps in proptest::collection::vec(
            (drawn(), 0..5_u64, any::<bool>(), any::<bool>()),
            1..30,
        ),
    ) {
        thread_local! {
            static HOUSE: (Scratch, SqliteStore) = {
                let scratch = Scratch::new();
                let store = scratch.database().store();
                (scratch, store)
            };
        }
        let mut ours = HOUSE.with(|(_, store)| store.clone());
        let (mut model, tenant) = (MapStore::new(), fresh_tenant());
        // What each side knew of the compared keys a step ago, which is stale now and then.
        let mut known = BTreeMap::new();
        for (drawn, compared, is_stale, wants_empty) in steps {
            let now = (get(&mut ours, tenant_key(tenant, compared)),
                get(&mut model, tenant_key(tenant, compared)));
            let old = known.insert(compared, now.clone()).unwrap_or_default();
            let (our_view, model_view) = if is_stale { old } else { now };
            let build = |view: &Option<Versioned>| {
                let mut txn = Txn::new();
                let key = tenant_key(tenant, compared);
                match view {
                    // Half of the keys are compared by value.
                    Some(Versioned { bytes, .. }) if compared % 2 == 1 => {
                        txn.expect_value(key, Arc::new(bytes.clone()));
                    }
                    Some(_) | None => txn.expect(key, view.as_ref()),
                }
                if wants_empty && compared == 0 {
                    let Key::RunHead { tenant, .. } = tenant_key(tenant, 0) else { unreachable!() };
                    txn.expect_empty(KeyRange::runs_of(tenant));
                }
                for (number, len) in &drawn {
                    match len {
                        Some(len) => {
                            txn.put(tenant_key(tenant, *number), vec![*len; usize::from(*len)]);
                        }
                        None => txn.delete(tenant_key(tenant, *number)),
                    }
                }
                txn
            };
            let shown = |outcome: Result<CommitOutcome, InfraError>| match outcome {
                Ok(CommitOutcome::Conflict(conflict)) => {
                    let found = conflict.found().iter();
                    Some(found.map(|(key, value)| (*key, value.clone().map(|it| it.bytes)))
                        .collect::<Vec<_>>())
                }
                Ok(CommitOutcome::Applied { .. }) => None,
                other => panic!("{other:?}"),
            };
            let outcome = shown(commit(&mut ours, build(&our_view)));
            prop_assert_eq!(outcome, shown(commit(&mut model, build(&model_view))));
            for number in 0..5 {
                let bytes = |value: Option<Versioned>| value.map(|it| it.bytes);
                prop_assert_eq!(bytes(get(&mut ours, tenant_key(tenant, number))),
                    bytes(get(&mut model, tenant_key(tenant, number))));
            }
        }
    }
}
