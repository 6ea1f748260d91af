//! Bounds of ranges; the widest ranges omit exactly the documented keys.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn widest_utf8_range_contains_every_text(key in "\\PC{1,40}|[\\x00-\\x20]{1,4}") {
        prop_assert!(KeyRange::WIDEST_UTF8.contains_key(key.as_bytes()));
    }

    #[test]
    fn widest_byte_range_contains_every_key_but_the_greatest(
        mut key in vec(prop_oneof![Just(0xFF), any::<u8>()], 1..40),
        stretch: bool,
    ) {
        if stretch {
            // Runs of 0xFF up to the maximum size are where the bound could be wrong.
            key.resize(MAX_KEY_SIZE, 0xFF);
        }
        let greatest = key == [0xFF; MAX_KEY_SIZE];
        prop_assert_eq!(KeyRange::WIDEST_BYTES.contains_key(&key), !greatest);
    }
}

#[test]
fn widest_utf8_range_contains_the_extremes_of_text() {
    let range = KeyRange::WIDEST_UTF8;
    assert!(range.contains_key(b"\0"));
    assert!(range.contains_key("\u{10FFFF}".repeat(MAX_KEY_SIZE / 4).as_bytes()));
    // Not UTF-8: it lies outside.
    assert!(!range.contains_key(b"\xFF"));
}

#[test]
fn widest_byte_range_omits_exactly_the_greatest_key() {
    let range = KeyRange::WIDEST_BYTES;
    assert!(range.contains_key(b"\0"));
    assert!(range.contains_key(&[0xFF; MAX_KEY_SIZE - 1]));
    assert!(!range.contains_key(&[0xFF; MAX_KEY_SIZE]));
    assert!(!range.contains_key(b""));
}

#[test]
fn widest_ranges_obey_the_rules_of_every_range() {
    for range in [KeyRange::WIDEST_UTF8, KeyRange::WIDEST_BYTES] {
        assert_eq!(KeyRange::try_new(range.start(), range.end()), Ok(range));
    }
}

#[test]
fn try_new_rejects_missing_oversized_and_inverted_bounds() {
    let oversized = [b'x'; MAX_KEY_SIZE + 1];
    let size = MAX_KEY_SIZE + 1;
    let too_large = ShardSpecInputError::KeyTooLarge { size, max: MAX_KEY_SIZE };
    let inverted = ShardSpecInputError::InvertedRange { start_len: 1, end_len: 1 };
    let unbounded = |start_len, end_len| KeyRangeError::Unbounded { start_len, end_len };
    let check = |start: &[u8], end: &[u8], error| {
        assert_eq!(KeyRange::try_new(start, end), Err(error));
        let spec = ShardSpecRef::new(start, end, b"ignored");
        assert_eq!(KeyRange::try_from_spec(spec), Err(error));
    };
    check(b"", b"z", unbounded(0, 1));
    check(b"a", b"", unbounded(1, 0));
    check(b"", b"", unbounded(0, 0));
    check(b"", &oversized, too_large.into());
    check(&oversized, b"z", too_large.into());
    check(b"b", b"a", inverted.into());
    check(b"a", b"a", inverted.into());
}

#[test]
fn debug_shows_lengths_only() {
    let range = KeyRange::try_new(b"secret", b"secret2").unwrap();
    assert_eq!(format!("{range:?}"), "KeyRange { start_len: 6, end_len: 7, .. }");
}
