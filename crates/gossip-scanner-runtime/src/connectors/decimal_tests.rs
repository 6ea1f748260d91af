use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use proptest::collection::vec;
use proptest::prelude::*;

use super::decimal::*;

#[test]
fn keys_are_read_by_people() {
    assert_eq!(number_key(0), *b"00000000000000000000");
    assert_eq!(number_key(42), *b"00000000000000000042");
    assert_eq!(number_key(u64::MAX), *b"18446744073709551615");
}

#[test]
fn only_keys_of_numbers_parse() {
    assert_eq!(parse_number_key(b"00000000000000000042"), Some(42));
    assert_eq!(parse_number_key(b"18446744073709551615"), Some(u64::MAX));
    for bad in [
        &b""[..],
        b"42",
        b"000000000000000000042",
        b"0000000000000000004x",
        b"+0000000000000000042",
        b"18446744073709551616",
        b"99999999999999999999",
    ] {
        assert_eq!(parse_number_key(bad), None);
    }
}

#[test]
fn no_key_lies_above_the_greatest() {
    assert_eq!(lower_bound(b"18446744073709551615"), Some(u64::MAX));
    assert_eq!(lower_bound(b"18446744073709551615\0"), None);
    assert_eq!(lower_bound(b"2"), None);
    assert_eq!(lower_bound(b""), Some(0));
}

#[test]
fn after_the_greatest_key_nothing_is_left() {
    let last = number_key(u64::MAX);
    let range = ShardSpecRef::new(b"", b"", b"");
    assert_eq!(numbers_in(range, CursorUpdate::with_last_key(&last)), (None, None));
}

proptest! {
    #[test]
    fn byte_order_is_numeric_order(a: u64, b: u64) {
        prop_assert_eq!(number_key(a).cmp(&number_key(b)), a.cmp(&b));
    }

    #[test]
    fn keys_parse_back(number: u64) {
        prop_assert_eq!(parse_number_key(&number_key(number)), Some(number));
    }

    /// For bytes near keys as well as for any: a key cut off or with something behind it.
    #[test]
    fn the_lower_bound_is_the_first_key_not_below(
        number: u64,
        cut in 0..=NUMBER_KEY_LEN,
        tail in vec(any::<u8>(), 0..3),
    ) {
        let bound = [&number_key(number)[..cut], &tail].concat();
        match lower_bound(&bound) {
            None => prop_assert!(number_key(u64::MAX)[..] < bound[..]),
            Some(first) => {
                prop_assert!(number_key(first)[..] >= bound[..]);
                let is_below = |number| number_key(number)[..] < bound[..];
                prop_assert!(first.checked_sub(1).is_none_or(is_below));
            }
        }
    }
}
