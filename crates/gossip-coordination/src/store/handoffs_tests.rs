//! What the repository of `gossip-handoff` relies on; its own suite runs on every store.

use super::engine::{Store, StoreLimits};
use super::handoffs::{
    HandoffWrite, MovePage, SaveHandoffError, forget_handoff, list_handoffs, list_moves,
    load_handoff, save_handoff,
};
use super::{Fault, MapStore, fly};
use crate::handoff::HandoffId;
use crate::test_fixtures::TENANT;

const MOVE: HandoffId = HandoffId::from_raw(5);

fn write(payload: &[u8], expected: Option<u64>, mark: u64) -> HandoffWrite<'_> {
    let (tenant, handoff, parties) = (TENANT, MOVE, [1, 2]);
    HandoffWrite { tenant, handoff, payload, parties, is_over: false, expected, mark }
}

fn save(store: &mut MapStore, write: HandoffWrite<'_>) -> Result<u64, SaveHandoffError> {
    let limits = store.limits();
    fly(store, save_handoff(limits, write))
}

fn payload(store: &mut MapStore) -> Option<Vec<u8>> {
    fly(store, load_handoff(TENANT, MOVE)).unwrap().map(|stored| stored.payload)
}

fn found(store: &mut MapStore, party: u64) -> usize {
    fly(store, list_moves(StoreLimits::GENEROUS, TENANT, party, None, 10)).unwrap().found.len()
}

#[test]
fn a_save_whose_reply_is_lost_is_reported_as_it_ended() {
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        let mut store = MapStore::new();
        store.inject(fault);
        let first = save(&mut store, write(b"one", None, 1)).unwrap();
        store.inject(fault);
        let second = save(&mut store, write(b"two", Some(first), 2)).unwrap();
        assert!(second > first);
        assert_eq!(payload(&mut store), Some(b"two".to_vec()));
    }
}

#[test]
fn the_same_bytes_of_another_are_no_sign_of_ones_own() {
    let mut store = MapStore::new();
    let first = save(&mut store, write(b"one", None, 1)).unwrap();
    let mut other = store.another_handle();
    save(&mut other, write(b"two", Some(first), 7)).unwrap();
    store.inject(Fault::LoseRequest);
    let late = save(&mut store, write(b"two", Some(first), 8));
    assert_eq!(late, Err(SaveHandoffError::Conflict));
}

#[test]
fn both_parties_find_a_move_until_it_is_over() {
    let mut store = MapStore::new();
    let first = save(&mut store, write(b"one", None, 1)).unwrap();
    assert_eq!([1, 2, 3].map(|party| found(&mut store, party)), [1, 1, 0]);
    let over = HandoffWrite { is_over: true, ..write(b"two", Some(first), 2) };
    let second = save(&mut store, over).unwrap();
    assert_eq!([1, 2, 3].map(|party| found(&mut store, party)), [0, 0, 0]);
    assert_eq!(payload(&mut store), Some(b"two".to_vec()));
    let forgotten = fly(&mut store, forget_handoff(TENANT, MOVE, first));
    assert_eq!(forgotten, Err(SaveHandoffError::Conflict));
    store.inject(Fault::LoseReply);
    assert_eq!(fly(&mut store, forget_handoff(TENANT, MOVE, second)), Ok(()));
    assert_eq!(payload(&mut store), None);
}

#[test]
fn one_number_for_both_parties_is_one_entry() {
    let mut store = MapStore::new();
    let write = HandoffWrite { parties: [4, 4], ..write(b"one", None, 1) };
    let first = save(&mut store, write).unwrap();
    assert_eq!(found(&mut store, 4), 1);
    let over = HandoffWrite { is_over: true, expected: Some(first), mark: 2, ..write };
    save(&mut store, over).unwrap();
    assert_eq!(found(&mut store, 4), 0);
}

/// More records than one read holds, so that the listing continues after each page.
#[test]
fn all_records_of_a_tenant_are_listed_by_the_page() {
    let mut store = MapStore::new();
    for raw in 0..20 {
        let (handoff, is_over) = (HandoffId::from_raw(raw), raw % 2 == 0);
        save(&mut store, HandoffWrite { handoff, is_over, ..write(b"one", None, raw) }).unwrap();
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let flight = list_handoffs(StoreLimits::GENEROUS, TENANT, after, 11);
        let page = fly(&mut store, flight).unwrap();
        assert!(page.found.len() <= 11 && page.damaged.is_empty());
        seen.extend(page.found.iter().map(|stored| stored.handoff.as_raw()));
        after = page.more;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
}

#[test]
fn page_of_no_records_is_empty() {
    let mut store = MapStore::new();
    save(&mut store, write(b"one", None, 1)).unwrap();
    let limits = StoreLimits::GENEROUS;
    let moves = fly(&mut store, list_moves(limits, TENANT, 1, None, 0)).unwrap();
    let all = fly(&mut store, list_handoffs(limits, TENANT, None, 0)).unwrap();
    assert_eq!((moves, all), (MovePage::default(), MovePage::default()));
}
