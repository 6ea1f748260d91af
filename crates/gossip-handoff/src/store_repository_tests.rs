use std::collections::BTreeSet;

use gossip_contracts::identity::{LogicalTime, TenantId};
use gossip_coordination::store::{
    CommitOutcome, Fault, HandoffWrite, Key, MapStore, Store, Txn, fly, save_handoff,
};

use crate::repository::UNREADABLE_MAX;
use crate::store_repository::handoff_id;
use crate::{
    InProgress, InvalidRecord, Machine, Phase, Record, RecordId, Repository, RepositoryError,
    StoreRepository, UnknownPhase, Version,
};

const TENANT: TenantId = TenantId::from_bytes([7; 32]);

fn machine(id: &str) -> Machine {
    let id = RecordId::new(id).unwrap();
    Machine::new(id, "shard", "a", "b", LogicalTime::from_raw(1)).unwrap()
}

#[test]
fn a_lost_reply_is_resolved() {
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        let mut records = StoreRepository::new(MapStore::new(), TENANT, 1);
        let mut machine = machine("lost");
        records.store.inject(fault);
        let first = records.save(&machine.record(), None).unwrap();
        machine.serialize(b"state").unwrap();
        records.store.inject(fault);
        records.save(&machine.record(), Some(first)).unwrap();
        assert_eq!(records.get(&machine.record().id).unwrap().record.state, Phase::Serialize);
    }
}

#[test]
fn of_two_saves_of_equal_bytes_over_one_version_one_succeeds() {
    let mut one = StoreRepository::new(MapStore::new(), TENANT, 1);
    let mut other = StoreRepository::new(one.store.another_handle(), TENANT, 2);
    let mut machine = machine("same");
    let first = one.save(&machine.record(), None).unwrap();
    machine.rollback("both say so").unwrap();
    other.save(&machine.record(), Some(first)).unwrap();
    // The stored bytes equal its own, but the other handle wrote them.
    one.store.inject(Fault::LoseRequest);
    let late = one.save(&machine.record(), Some(first));
    assert_eq!(late, Err(RepositoryError::VersionConflict));
}

#[test]
fn a_store_failure_is_reported_without_names() {
    let mut records = StoreRepository::new(MapStore::new(), TENANT, 1);
    records.store.inject_always(Some(Fault::Fail));
    let RepositoryError::Store(error) =
        records.save(&machine("a-secret-name").record(), None).unwrap_err()
    else {
        panic!("the store failed");
    };
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn a_stored_unknown_phase_is_rejected() {
    let mut store = MapStore::new();
    let record = machine("strange").record();
    let mut payload = record.to_bytes();
    payload[0] = 42;
    let write = HandoffWrite {
        tenant: TENANT,
        handoff: handoff_id(&record.id),
        payload: &payload,
        parties: [1, 2],
        is_over: false,
        expected: None,
        mark: 1,
    };
    let limits = store.limits();
    fly(&mut store, save_handoff(limits, write)).unwrap();
    let mut records = StoreRepository::new(store, TENANT, 1);
    let unknown = InvalidRecord::UnknownPhase(UnknownPhase(42));
    assert_eq!(records.get(&record.id), Err(RepositoryError::Invalid(unknown)));
}

#[test]
fn tenants_do_not_see_each_others_moves() {
    let mut records = StoreRepository::new(MapStore::new(), TENANT, 1);
    records.save(&machine("mine").record(), None).unwrap();
    let other = TenantId::from_bytes([8; 32]);
    let mut others = StoreRepository::new(records.store.another_handle(), other, 2);
    assert_eq!(others.in_progress("a"), Ok(Vec::new()));
    assert_eq!(others.get(&machine("mine").record().id), Err(RepositoryError::RecordNotFound));
}

/// Overwrites a stored record with invalid bytes.
fn damage(store: &mut MapStore, id: &RecordId) {
    let mut txn = Txn::new();
    txn.put(Key::Handoff { tenant: TENANT, handoff: handoff_id(id) }, b"no record".to_vec());
    let outcomes = store.commit(vec![txn]);
    assert!(matches!(outcomes[..], [Ok(CommitOutcome::Applied { .. })]));
}

/// Saves a record with a phase that only a newer version has.
fn make_newer(store: &mut MapStore, record: &Record, version: Version) {
    let mut payload = record.to_bytes();
    payload[0] = 42;
    let write = HandoffWrite {
        tenant: TENANT,
        handoff: handoff_id(&record.id),
        payload: &payload,
        parties: [1, 2],
        is_over: false,
        expected: Some(version.as_raw()),
        mark: 7,
    };
    let limits = store.limits();
    fly(store, save_handoff(limits, write)).unwrap();
}

/// Returns the readable and the unreadable records of all pages of `limit`.
fn all_pages(
    mut page: impl FnMut(Option<&RecordId>) -> InProgress,
) -> (BTreeSet<String>, BTreeSet<u64>) {
    let (mut found, mut unreadable, mut after) = (BTreeSet::new(), BTreeSet::new(), None);
    loop {
        let page = page(after.as_ref());
        found.extend(page.found.iter().map(|stored| stored.record.id.as_str().to_owned()));
        unreadable.extend(page.unreadable.iter().map(|number| number.as_raw()));
        after = page.next;
        if after.is_none() {
            return (found, unreadable);
        }
    }
}

#[test]
fn an_unreadable_record_is_reported_beside_the_readable_ones() {
    let mut records = StoreRepository::new(MapStore::new(), TENANT, 1);
    let (mut good, mut bad) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..20 {
        let record = machine(&format!("move-{number}")).record();
        let version = records.save(&record, None).unwrap();
        match number {
            3 | 4 | 11..16 => damage(&mut records.store, &record.id),
            7 => make_newer(&mut records.store, &record, version),
            _ => {
                good.insert(record.id.as_str().to_owned());
                continue;
            }
        }
        bad.insert(handoff_id(&record.id).as_raw());
    }
    for limit in [1, 2, 3, 64] {
        let listed = all_pages(|after| records.in_progress_page("a", after, limit).unwrap());
        assert_eq!(listed, (good.clone(), bad.clone()), "pages of {limit}");
        let listed = all_pages(|after| records.page(after, limit).unwrap());
        assert_eq!(listed, (good.clone(), bad.clone()), "pages of {limit}");
    }
    assert_eq!(records.in_progress("b").unwrap().len(), good.len());
}

#[test]
fn a_page_reports_at_most_unreadable_max_records() {
    let mut records = StoreRepository::new(MapStore::new(), TENANT, 1);
    for number in 0..=UNREADABLE_MAX {
        let record = machine(&format!("move-{number}")).record();
        records.save(&record, None).unwrap();
        damage(&mut records.store, &record.id);
    }
    for page in [records.in_progress_page("a", None, 5), records.page(None, 5)] {
        let page = page.unwrap();
        assert_eq!((page.found.len(), page.unreadable.len()), (0, UNREADABLE_MAX));
        assert_eq!(page.next, None);
    }
}
