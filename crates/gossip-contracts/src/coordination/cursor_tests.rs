//! Cursors: constructors, their order of checks, progress and bounds.

use proptest::prelude::*;
use rstest::rstest;

use super::{
    Cursor, CursorAdvance, CursorBounds, CursorInputError, CursorUpdate, MAX_KEY_SIZE,
    MAX_TOKEN_SIZE, check_cursor_advance, check_cursor_bounds,
};

static LONG_KEY: [u8; MAX_KEY_SIZE + 1] = [b'k'; MAX_KEY_SIZE + 1];
static LONG_TOKEN: [u8; MAX_TOKEN_SIZE + 1] = [b't'; MAX_TOKEN_SIZE + 1];
const KEY_TOO_LARGE: CursorInputError =
    CursorInputError::KeyTooLarge { size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE };
const TOKEN_TOO_LARGE: CursorInputError =
    CursorInputError::TokenTooLarge { size: MAX_TOKEN_SIZE + 1, max: MAX_TOKEN_SIZE };

#[test]
fn initial_cursor_has_nothing() {
    assert!(CursorUpdate::initial().is_initial());
    assert_eq!(CursorUpdate::initial().last_key(), None);
    assert_eq!(CursorUpdate::initial().token(), None);
    assert_eq!(CursorUpdate::default(), CursorUpdate::initial());
    assert!(Cursor::initial().is_initial());
    assert_eq!(Cursor::default(), Cursor::initial());
}

#[rstest]
#[case::key_only(b"k", b"", None)]
#[case::key_and_token(b"k", b"t", Some(b"t".as_slice()))]
fn an_empty_token_is_none(#[case] key: &[u8], #[case] token: &[u8], #[case] kept: Option<&[u8]>) {
    let cursor = CursorUpdate::new(key, token);
    assert_eq!((cursor.last_key(), cursor.token()), (Some(key), kept));
    assert!(!cursor.is_initial());
    assert_eq!(CursorUpdate::try_new(key, token), Ok(cursor));
    assert_eq!(CursorUpdate::try_from_parts(Some(key), Some(token)), Ok(cursor));
}

#[test]
fn the_largest_key_and_token_are_accepted() {
    let (key, token) = (&LONG_KEY[1..], &LONG_TOKEN[1..]);
    let cursor = CursorUpdate::try_new(key, token).unwrap();
    assert_eq!((cursor.last_key(), cursor.token()), (Some(key), Some(token)));
}

#[rstest]
#[case::empty_key(Some(b"".as_slice()), None, CursorInputError::EmptyLastKey)]
#[case::token_without_key(None, Some(b"t".as_slice()), CursorInputError::EmptyLastKey)]
#[case::long_key(Some(LONG_KEY.as_slice()), None, KEY_TOO_LARGE)]
#[case::long_token(Some(b"k".as_slice()), Some(LONG_TOKEN.as_slice()), TOKEN_TOO_LARGE)]
// Both rules fail: the earlier one is reported.
#[case::empty_key_before_long_token(
    Some(b"".as_slice()), Some(LONG_TOKEN.as_slice()), CursorInputError::EmptyLastKey)]
#[case::no_key_before_long_token(
    None, Some(LONG_TOKEN.as_slice()), CursorInputError::EmptyLastKey)]
#[case::long_key_before_long_token(
    Some(LONG_KEY.as_slice()), Some(LONG_TOKEN.as_slice()), KEY_TOO_LARGE)]
fn bad_parts_are_refused_in_order(
    #[case] key: Option<&[u8]>,
    #[case] token: Option<&[u8]>,
    #[case] error: CursorInputError,
) {
    assert_eq!(CursorUpdate::try_from_parts(key, token), Err(error));
    assert_eq!(Cursor::try_from_parts(key, token), Err(error));
    if let Some(key) = key {
        assert_eq!(CursorUpdate::try_new(key, token.unwrap_or_default()), Err(error));
        assert_eq!(Cursor::try_new(key, token.unwrap_or_default()), Err(error));
    }
    if let (Some(key), None) = (key, token) {
        assert_eq!(CursorUpdate::try_with_last_key(key), Err(error));
        assert_eq!(Cursor::try_with_last_key(key), Err(error));
    }
}

#[rstest]
#[case::nothing(None, None)]
#[case::empty_token_alone(None, Some(b"".as_slice()))]
fn parts_without_content_are_the_initial_cursor(
    #[case] key: Option<&[u8]>,
    #[case] token: Option<&[u8]>,
) {
    assert_eq!(CursorUpdate::try_from_parts(key, token), Ok(CursorUpdate::initial()));
}

#[test]
#[should_panic(expected = "a cursor key is not empty")]
fn literal_constructor_panics_on_an_empty_key() {
    let _ = CursorUpdate::with_last_key(b"");
}

#[test]
#[should_panic(expected = "a cursor key is not empty")]
fn literal_constructor_panics_on_an_empty_key_with_a_token() {
    let _ = Cursor::new(b"", b"t");
}

#[test]
fn literal_constructors_skip_sizes() {
    let cursor = CursorUpdate::new(&LONG_KEY, &LONG_TOKEN);
    assert_eq!(cursor.last_key().map(<[u8]>::len), Some(MAX_KEY_SIZE + 1));
    assert_eq!(cursor.token().map(<[u8]>::len), Some(MAX_TOKEN_SIZE + 1));
    assert_eq!(Cursor::with_last_key(&LONG_KEY).last_key(), Some(LONG_KEY.as_slice()));
}

#[rstest]
#[case::none_to_none(None, None, CursorAdvance::Forward)]
#[case::first_progress(None, Some(b"a".as_slice()), CursorAdvance::Forward)]
#[case::forward(Some(b"a".as_slice()), Some(b"b".as_slice()), CursorAdvance::Forward)]
#[case::longer_is_forward(Some(b"a".as_slice()), Some(b"a\0".as_slice()), CursorAdvance::Forward)]
#[case::retry(Some(b"a".as_slice()), Some(b"a".as_slice()), CursorAdvance::Forward)]
#[case::back(Some(b"b".as_slice()), Some(b"a".as_slice()), CursorAdvance::Regression)]
#[case::shorter_is_back(Some(b"ab".as_slice()), Some(b"a".as_slice()), CursorAdvance::Regression)]
#[case::unsigned(Some(b"\xff".as_slice()), Some(b"\x7f".as_slice()), CursorAdvance::Regression)]
#[case::reset(Some(b"a".as_slice()), None, CursorAdvance::ResetToNone)]
fn progress_table(
    #[case] old: Option<&[u8]>,
    #[case] new: Option<&[u8]>,
    #[case] expected: CursorAdvance,
) {
    assert_eq!(check_cursor_advance(old, new), expected);
}

#[rstest]
#[case::no_key(None, b"b", b"d", CursorBounds::NoKey)]
#[case::below(Some(b"a".as_slice()), b"b", b"d", CursorBounds::BelowRange)]
#[case::at_start(Some(b"b".as_slice()), b"b", b"d", CursorBounds::InBounds)]
#[case::inside(Some(b"c".as_slice()), b"b", b"d", CursorBounds::InBounds)]
#[case::last(Some(b"c\xff".as_slice()), b"b", b"d", CursorBounds::InBounds)]
#[case::at_end(Some(b"d".as_slice()), b"b", b"d", CursorBounds::AboveRange)]
#[case::above(Some(b"e".as_slice()), b"b", b"d", CursorBounds::AboveRange)]
#[case::open_start(Some(b"\0".as_slice()), b"", b"d", CursorBounds::InBounds)]
#[case::open_end(Some(b"\xff\xff".as_slice()), b"b", b"", CursorBounds::InBounds)]
#[case::open_end_below(Some(b"a".as_slice()), b"b", b"", CursorBounds::BelowRange)]
#[case::open(Some(b"x".as_slice()), b"", b"", CursorBounds::InBounds)]
#[case::no_key_in_open_range(None, b"", b"", CursorBounds::NoKey)]
fn bounds_table(
    #[case] key: Option<&[u8]>,
    #[case] start: &[u8],
    #[case] end: &[u8],
    #[case] expected: CursorBounds,
) {
    assert_eq!(check_cursor_bounds(key, start, end), expected);
}

proptest! {
    #[test]
    fn owned_and_borrowed_cursors_convert_without_loss(
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        token in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
    ) {
        let (key, token) = (key.as_deref(), token.as_deref());
        let borrowed = CursorUpdate::try_from_parts(key, token);
        let owned = Cursor::try_from_parts(key, token);
        prop_assert_eq!(owned.as_ref().map(CursorUpdate::from), borrowed.as_ref().copied());
        if let (Ok(borrowed), Ok(owned)) = (borrowed, owned) {
            prop_assert_eq!(owned.last_key(), key);
            prop_assert_eq!(owned.token(), token.filter(|token| !token.is_empty()));
            prop_assert_eq!(owned.is_initial(), borrowed.is_initial());
            prop_assert_eq!(Cursor::from(&borrowed), owned);
        }
    }

    #[test]
    fn advance_is_forward_exactly_when_the_key_does_not_decrease(
        old in prop::collection::vec(any::<u8>(), 1..6),
        new in prop::collection::vec(any::<u8>(), 1..6),
    ) {
        let forward = check_cursor_advance(Some(&old), Some(&new)) == CursorAdvance::Forward;
        prop_assert_eq!(forward, old <= new);
    }
}
