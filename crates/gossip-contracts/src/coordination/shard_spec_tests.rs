//! Shard specs: the order of checks, membership, conversions.

use proptest::prelude::*;
use rstest::rstest;

use super::{
    CursorSemantics, IntoShardSpecRef, MAX_KEY_SIZE, MAX_METADATA_SIZE, ShardSpec,
    ShardSpecInputError, ShardSpecRef,
};

static LONG_START: [u8; MAX_KEY_SIZE + 1] = [b'z'; MAX_KEY_SIZE + 1];
static LONG_END: [u8; MAX_KEY_SIZE + 2] = [b'a'; MAX_KEY_SIZE + 2];
static LONG_METADATA: [u8; MAX_METADATA_SIZE + 1] = [b'm'; MAX_METADATA_SIZE + 1];

/// Sizes differ, so the error shows which bound was rejected.
const START_TOO_LARGE: ShardSpecInputError =
    ShardSpecInputError::KeyTooLarge { size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE };
const END_TOO_LARGE: ShardSpecInputError =
    ShardSpecInputError::KeyTooLarge { size: MAX_KEY_SIZE + 2, max: MAX_KEY_SIZE };
const METADATA_TOO_LARGE: ShardSpecInputError =
    ShardSpecInputError::MetadataTooLarge { size: MAX_METADATA_SIZE + 1, max: MAX_METADATA_SIZE };

#[rstest]
#[case::bounded(b"a", b"b", b"m")]
#[case::open_start(b"", b"b", b"")]
#[case::open_end(b"b", b"", b"")]
#[case::everything(b"", b"", b"")]
#[case::largest(&LONG_END[2..], &LONG_START[1..], &LONG_METADATA[1..])]
fn valid_specs_are_kept_as_given(
    #[case] start: &[u8],
    #[case] end: &[u8],
    #[case] metadata: &[u8],
) {
    let owned = ShardSpec::try_new(start, end, metadata).unwrap();
    assert_eq!((owned.start(), owned.end(), owned.metadata()), (start, end, metadata));
    assert_eq!(owned.as_spec_ref(), ShardSpecRef::new(start, end, metadata));
    assert_eq!(ShardSpec::try_from(owned.as_spec_ref()), Ok(owned.clone()));
    assert_eq!(ShardSpec::new(start, end, metadata), owned);
}

#[test]
fn owned_and_borrowed_specs_convert_to_the_same_reference() {
    fn via<'a>(spec: impl IntoShardSpecRef<'a>) -> ShardSpecRef<'a> {
        spec.into_shard_spec_ref()
    }
    let owned = ShardSpec::new(b"a", b"b", b"m");
    assert_eq!(via(&owned), ShardSpecRef::new(b"a", b"b", b"m"));
    assert_eq!(via(owned.as_spec_ref()), via(&owned));
}

#[rstest]
#[case::start(&LONG_START, b"", b"", START_TOO_LARGE)]
#[case::end(b"", &LONG_END, b"", END_TOO_LARGE)]
#[case::metadata(b"a", b"b", &LONG_METADATA, METADATA_TOO_LARGE)]
#[case::inverted(b"bb", b"a", b"", ShardSpecInputError::InvertedRange { start_len: 2, end_len: 1 })]
#[case::equal(b"a", b"a", b"", ShardSpecInputError::InvertedRange { start_len: 1, end_len: 1 })]
// Two rules fail: the earlier one is reported.
#[case::start_before_end(&LONG_START, &LONG_END, b"", START_TOO_LARGE)]
#[case::start_before_metadata(&LONG_START, b"", &LONG_METADATA, START_TOO_LARGE)]
#[case::start_before_inverted(&LONG_START, b"a", b"", START_TOO_LARGE)]
#[case::end_before_metadata(b"", &LONG_END, &LONG_METADATA, END_TOO_LARGE)]
#[case::end_before_inverted(b"z", &LONG_END, b"", END_TOO_LARGE)]
#[case::metadata_before_inverted(b"b", b"a", &LONG_METADATA, METADATA_TOO_LARGE)]
fn invalid_specs_are_rejected_in_order(
    #[case] start: &[u8],
    #[case] end: &[u8],
    #[case] metadata: &[u8],
    #[case] error: ShardSpecInputError,
) {
    let spec = ShardSpecRef::new(start, end, metadata);
    assert_eq!(ShardSpec::validate_ref(spec), Err(error));
    assert_eq!(spec.validate(), Err(error));
    assert_eq!(ShardSpec::try_new(start, end, metadata), Err(error));
    assert_eq!(ShardSpec::try_from(spec), Err(error));
}

#[test]
#[should_panic(expected = "invalid shard spec: the range start (1 bytes) is not below its end")]
fn literal_constructor_panics_on_an_invalid_spec() {
    let _ = ShardSpec::new(b"b", b"a", b"");
}

#[rstest]
#[case::at_start(b"b", b"d", b"b", true)]
#[case::inside(b"b", b"d", b"c", true)]
#[case::at_end(b"b", b"d", b"d", false)]
#[case::below(b"b", b"d", b"a\xff", false)]
#[case::open_start(b"", b"d", b"\0", true)]
#[case::open_end(b"b", b"", b"\xff", true)]
#[case::everything(b"", b"", b"x", true)]
#[case::empty_key_below_a_start(b"b", b"d", b"", false)]
#[case::empty_key_in_open_start(b"", b"d", b"", true)]
fn membership_table(
    #[case] start: &[u8],
    #[case] end: &[u8],
    #[case] key: &[u8],
    #[case] inside: bool,
) {
    assert_eq!(ShardSpecRef::new(start, end, b"m").contains_key(key), inside);
    assert_eq!(ShardSpec::new(start, end, b"m").contains_key(key), inside);
}

#[test]
fn cursor_semantics_round_trip_through_their_numbers() {
    for semantics in [CursorSemantics::Completed, CursorSemantics::Dispatched] {
        assert_eq!(CursorSemantics::from_u8(semantics.as_u8()), Some(semantics));
    }
    assert!((2..=u8::MAX).all(|number| CursorSemantics::from_u8(number).is_none()));
}

proptest! {
    #[test]
    fn an_inverted_range_contains_no_key(
        start in prop::collection::vec(any::<u8>(), 1..4),
        end in prop::collection::vec(any::<u8>(), 1..4),
        key in prop::collection::vec(any::<u8>(), 0..5),
    ) {
        let spec = ShardSpecRef::new(&start, &end, b"");
        prop_assert_eq!(spec.validate().is_err(), start >= end);
        if spec.validate().is_err() {
            prop_assert!(!spec.contains_key(&key));
        }
    }
}
