//! Successors of keys and prefixes.

use proptest::prelude::*;
use rstest::rstest;

use super::{MAX_KEY_SIZE, key_successor_into, prefix_successor_into};

fn key_successor(key: &[u8]) -> Option<Vec<u8>> {
    let mut out = [0xAA; MAX_KEY_SIZE];
    key_successor_into(key, &mut out).map(|len| out[..len].to_vec())
}

fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut out = [0xAA; MAX_KEY_SIZE];
    prefix_successor_into(prefix, &mut out).map(|len| out[..len].to_vec())
}

#[rstest]
#[case::empty(b"", Some(b"\0".as_slice()))]
#[case::short(b"ab", Some(b"ab\0".as_slice()))]
#[case::all_ones(b"\xff", Some(b"\xff\0".as_slice()))]
fn key_successor_appends_a_zero(#[case] key: &[u8], #[case] successor: Option<&[u8]>) {
    assert_eq!(key_successor(key).as_deref(), successor);
}

#[rstest]
#[case::plain(b"ab", Some(b"ac".as_slice()))]
#[case::carry(b"a\xff\xff", Some(b"b".as_slice()))]
#[case::empty(b"", None)]
#[case::all_ones(b"\xff\xff", None)]
fn prefix_successor_increments_the_last_byte_it_can(
    #[case] prefix: &[u8],
    #[case] successor: Option<&[u8]>,
) {
    assert_eq!(prefix_successor(prefix).as_deref(), successor);
}

#[test]
fn at_the_size_limit_the_key_successor_is_the_prefix_successor() {
    let mut key = vec![b'k'; MAX_KEY_SIZE];
    assert_eq!(key_successor(&key[1..]).unwrap().len(), MAX_KEY_SIZE);
    assert_eq!(key_successor(&key), prefix_successor(&key));
    key[MAX_KEY_SIZE - 1] = 0xFF;
    assert_eq!(key_successor(&key).unwrap().len(), MAX_KEY_SIZE - 1);
}

#[test]
fn the_largest_key_and_oversized_keys_have_no_successor() {
    assert_eq!(key_successor(&[0xFF; MAX_KEY_SIZE]), None);
    assert_eq!(key_successor(&[b'k'; MAX_KEY_SIZE + 1]), None);
    assert_eq!(prefix_successor(&[b'k'; MAX_KEY_SIZE + 1]), None);
}

proptest! {
    #[test]
    fn no_key_lies_between_a_key_and_its_successor(
        key in prop::collection::vec(any::<u8>(), 0..5),
        other in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        let successor = key_successor(&key).unwrap();
        prop_assert!(key < successor);
        prop_assert!(other <= key || successor <= other);
    }

    #[test]
    fn prefix_successor_bounds_exactly_the_keys_with_the_prefix(
        prefix in prop::collection::vec(prop_oneof![Just(0xFF_u8), any::<u8>()], 1..4),
        other in prop::collection::vec(prop_oneof![Just(0xFF_u8), any::<u8>()], 0..6),
    ) {
        if let Some(successor) = prefix_successor(&prefix) {
            let inside = prefix <= other && other < successor;
            prop_assert_eq!(inside, other.starts_with(&prefix));
        } else {
            prop_assert!(prefix.iter().all(|byte| *byte == 0xFF));
        }
    }
}
