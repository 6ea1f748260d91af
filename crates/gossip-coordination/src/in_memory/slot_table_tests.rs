//! The table of places beside a plain map, with hashes as bad as they can be.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::slot_table::SlotTable;
use super::table::Slot;

/// Few homes and fewer tags, so that buckets overflow and tags lie.
fn bad_hash(slot: Slot) -> u64 {
    u64::from(slot.0 % 3) | (u64::from(slot.0 % 2) << 56)
}

/// Spreads over homes and tags.
fn good_hash(slot: Slot) -> u64 {
    (u64::from(slot.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn check(steps: Vec<(u32, bool)>, hash: fn(Slot) -> u64) {
    let (mut table, mut model) = (SlotTable::default(), BTreeMap::new());
    for (number, wanted) in steps {
        let slot = Slot(number);
        match (wanted, model.contains_key(&number)) {
            (true, false) => {
                table.insert(hash(slot), slot, hash);
                model.insert(number, slot);
            }
            (false, _) => {
                table.remove(hash(slot), |other| other == slot);
                model.remove(&number);
            }
            (true, true) => {}
        }
        assert_eq!(table.len(), model.len());
    }
    for number in 0..SLOTS {
        let found = table.find(hash(Slot(number)), |other| other == Slot(number));
        assert_eq!(found, model.get(&number).copied());
    }
}

const SLOTS: u32 = 120;

proptest! {
    #[test]
    fn a_table_finds_what_a_map_finds(
        steps in prop::collection::vec((0..SLOTS, any::<bool>()), 0..600),
    ) {
        check(steps.clone(), bad_hash);
        check(steps, good_hash);
    }
}

#[test]
fn nothing_is_found_in_an_empty_table() {
    let mut table = SlotTable::default();
    assert_eq!(table.find(7, |_| true), None);
    table.remove(7, |_| true);
    assert_eq!(table.len(), 0);
}

#[test]
fn room_that_was_reserved_is_used() {
    let mut table = SlotTable::default();
    table.reserve(100, good_hash);
    let never = |_: Slot| -> u64 { unreachable!("a table with room does not grow") };
    (0..100).for_each(|number| table.insert(good_hash(Slot(number)), Slot(number), never));
    assert_eq!(table.len(), 100);
}

#[test]
fn a_removed_slot_is_not_probed_again() {
    let (mut table, slot) = (SlotTable::default(), Slot(1));
    for tag in 0..=u8::MAX {
        let hash = u64::from(tag) << 56;
        table.insert(0, slot, |_| 0);
        table.insert(hash, Slot(2), |_| 0);
        table.remove(0, |other| other == slot);
        assert_eq!(table.find(hash, |other| other == slot), None);
        table.remove(hash, |other| other == Slot(2));
    }
}

#[test]
fn emptied_buckets_end_a_probe() {
    let mut table = SlotTable::default();
    (0..SLOTS).for_each(|number| table.insert(bad_hash(Slot(number)), Slot(number), bad_hash));
    (0..SLOTS).for_each(|number| table.remove(bad_hash(Slot(number)), |slot| slot.0 == number));
    assert_eq!(table.passed(), 0);
}
