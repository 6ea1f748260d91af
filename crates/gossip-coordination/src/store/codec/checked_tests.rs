//! A verified value is cached unchanged, and no other value is trusted.

use gossip_contracts::identity::RunId;

use super::checked::{VALUE_LEN_MAX, is_known, make_room, remember};
use super::frame::{open, reseal};
use crate::store::key::Key;
use crate::test_fixtures::{RUN, TENANT};

const HEAD: Key = Key::RunHead { tenant: TENANT, run: RUN };
const STONE: Key = Key::Tombstone { tenant: TENANT, run: RUN };

/// The value of another thread, which this one has never hashed.
fn of_another_thread() -> Vec<u8> {
    std::thread::scope(|scope| scope.spawn(|| reseal(&HEAD, b"payload")).join().unwrap())
}

#[test]
fn a_thread_that_plays_many_knows_what_it_sealed() {
    let value = reseal(&HEAD, b"payload");
    assert!(!is_known(&HEAD, &value), "a process remembers what it wrote elsewhere");
    make_room(2);
    let value = reseal(&HEAD, &value);
    assert!(is_known(&HEAD, &value));
}

#[test]
fn a_value_is_known_once_it_was_opened() {
    let value = of_another_thread();
    assert!(!is_known(&HEAD, &value));
    open(&HEAD, &value).unwrap();
    assert!(is_known(&HEAD, &value));
    open(&HEAD, &value).unwrap();
}

#[test]
fn a_known_value_is_unknown_under_any_other_key() {
    let value = reseal(&HEAD, b"payload");
    open(&HEAD, &value).unwrap();
    assert!(!is_known(&STONE, &value));
    let other_run = Key::RunHead { tenant: TENANT, run: RunId::from_raw(99) };
    assert!(!is_known(&other_run, &value));
    assert!(open(&other_run, &value).is_err());
}

#[test]
fn every_flipped_bit_of_a_known_value_is_found() {
    let value = of_another_thread();
    open(&HEAD, &value).unwrap();
    for bit in 0..value.len() * 8 {
        let mut damaged = value.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&HEAD, &damaged).is_err(), "bit {bit}");
    }
    assert!(is_known(&HEAD, &value), "nothing that was refused took its place");
}

#[test]
fn a_value_gives_way_to_the_next_in_its_place() {
    let (first, second) = (b"first!".as_slice(), b"second!".as_slice());
    remember(&HEAD, first);
    remember(&HEAD, second);
    assert!(!is_known(&HEAD, first));
    assert!(is_known(&HEAD, second));
}

#[test]
fn long_values_are_not_kept() {
    let longest = [7; VALUE_LEN_MAX];
    remember(&HEAD, &longest);
    assert!(is_known(&HEAD, &longest));
    let longer = [7; VALUE_LEN_MAX + 1];
    remember(&HEAD, &longer);
    assert!(!is_known(&HEAD, &longer));
}
