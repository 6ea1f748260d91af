use std::cmp::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Compares like a database: integers by value, everything else by bytes.
fn compare(a: &ColumnValue, b: &ColumnValue) -> Ordering {
    match (a, b) {
        (ColumnValue::Integer(a), ColumnValue::Integer(b)) => a.cmp(b),
        (ColumnValue::Uuid(a), ColumnValue::Uuid(b)) => a.cmp(b),
        (ColumnValue::Text(a), ColumnValue::Text(b))
        | (ColumnValue::Bytes(a), ColumnValue::Bytes(b)) => a.cmp(b),
        _ => panic!("columns of one table have one kind"),
    }
}

fn compare_rows(a: &[ColumnValue], b: &[ColumnValue]) -> Ordering {
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| compare(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Whether a row is at or behind a place, as a database evaluates the condition.
fn is_behind(row: &[ColumnValue], bound: &ColumnBound) -> bool {
    match compare_rows(row, &bound.values) {
        Ordering::Less => false,
        Ordering::Equal => !bound.is_after,
        Ordering::Greater => true,
    }
}

fn kind() -> impl Strategy<Value = ColumnKind> {
    prop_oneof![
        Just(ColumnKind::Integer),
        Just(ColumnKind::Uuid),
        Just(ColumnKind::Text),
        Just(ColumnKind::Bytes),
    ]
}

/// Values with many equal beginnings, zero bytes and extremes.
fn value(kind: ColumnKind) -> BoxedStrategy<ColumnValue> {
    let byte = || prop_oneof![Just(0), Just(1), Just(2), Just(0xFF), any::<u8>()];
    match kind {
        ColumnKind::Integer => {
            let near = prop_oneof![-2..3_i64, Just(i64::MIN), Just(i64::MAX), any::<i64>()];
            near.prop_map(ColumnValue::Integer).boxed()
        }
        ColumnKind::Uuid => {
            let near = prop::array::uniform16(prop_oneof![Just(0), Just(0xFF), any::<u8>()]);
            near.prop_map(ColumnValue::Uuid).boxed()
        }
        ColumnKind::Text => vec(byte(), 0..5).prop_map(ColumnValue::Text).boxed(),
        ColumnKind::Bytes => vec(byte(), 0..5).prop_map(ColumnValue::Bytes).boxed(),
    }
}

fn row(kinds: &[ColumnKind]) -> Vec<BoxedStrategy<ColumnValue>> {
    kinds.iter().map(|kind| value(*kind)).collect()
}

/// Two rows of one table.
fn two_rows() -> impl Strategy<Value = (Vec<ColumnValue>, Vec<ColumnValue>)> {
    vec(kind(), 1..4).prop_flat_map(|kinds| (row(&kinds), row(&kinds)))
}

/// A row, and bytes that are near keys of its table: a key that is cut, extended or changed.
fn row_and_bytes() -> impl Strategy<Value = (Vec<ColumnKind>, Vec<ColumnValue>, Vec<u8>)> {
    vec(kind(), 1..4).prop_flat_map(|kinds| {
        let near = (row(&kinds), any::<prop::sample::Index>(), any::<u8>(), vec(any::<u8>(), 0..3));
        let near = near.prop_map(|(row, at, byte, behind)| {
            let mut key = encode_columns(&row);
            let at = at.index(key.len());
            match byte % 4 {
                0 => key.truncate(at),
                1 => key[at] = byte,
                2 => key.extend_from_slice(&behind),
                _ => {}
            }
            key
        });
        let bytes = prop_oneof![near, vec(any::<u8>(), 0..12)];
        (Just(kinds.clone()), row(&kinds), bytes)
    })
}

proptest! {
    #[test]
    fn keys_sort_like_their_columns((a, b) in two_rows()) {
        let keys = encode_columns(&a).cmp(&encode_columns(&b));
        prop_assert_eq!(keys, compare_rows(&a, &b));
    }

    #[test]
    fn a_decoded_key_is_the_encoded_one((a, _) in two_rows()) {
        prop_assert_eq!(decode_columns(&encode_columns(&a)), Some(a));
    }

    #[test]
    fn bytes_that_decode_are_encoded_to_the_same((_, _, bytes) in row_and_bytes()) {
        if let Some(values) = decode_columns(&bytes) {
            prop_assert_eq!(encode_columns(&values), bytes);
        }
    }

    #[test]
    fn a_row_is_behind_bytes_exactly_if_its_key_is_not_below_them(
        (kinds, row, bytes) in row_and_bytes(),
    ) {
        let bound = column_bound(&kinds, &bytes);
        prop_assert!(bound.values.len() <= kinds.len());
        let mut pairs = bound.values.iter().zip(&kinds);
        prop_assert!(pairs.all(|(value, kind)| value.kind() == *kind));
        prop_assert_eq!(is_behind(&row, &bound), encode_columns(&row) >= bytes);
    }

    #[test]
    fn no_text_lies_between_bytes_and_the_text_above(
        bytes in vec(prop_oneof![Just(0), any::<u8>()], 0..6),
        text in any::<String>(),
    ) {
        let text = text.replace('\0', "");
        let above = text_at_or_above(&bytes);
        if let Some(above) = &above {
            prop_assert!(above.as_bytes() >= &*bytes);
            prop_assert!(!above.contains('\0'));
        }
        let is_at_or_above = above.is_some_and(|above| text >= above);
        prop_assert_eq!(text.as_bytes() >= &*bytes, is_at_or_above);
    }

    /// The same law where texts may contain zero bytes.
    #[test]
    fn a_text_with_zeros_is_on_the_right_side(
        bytes in vec(prop_oneof![Just(0), Just(b'a'), any::<u8>()], 0..5),
        text in "[\u{0}a\u{7f}\u{80}\u{ffff}]{0,4}",
    ) {
        let above = utf8_at_or_above(&bytes);
        if let Some(above) = &above {
            prop_assert!(above.as_bytes() >= &*bytes);
        }
        let is_at_or_above = above.is_some_and(|above| text >= above);
        prop_assert_eq!(text.as_bytes() >= &*bytes, is_at_or_above);
    }

    #[test]
    fn a_text_near_the_bytes_is_on_the_right_side(
        text in "[a\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}]{0,3}",
        cut in any::<prop::sample::Index>(),
        change in any::<u8>(),
        other in "[a\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}]{0,3}",
    ) {
        let mut bytes = other.into_bytes();
        bytes.push(change);
        bytes.truncate(cut.index(bytes.len()) + 1);
        let above = text_at_or_above(&bytes);
        let is_at_or_above = above.is_some_and(|above| text >= above);
        prop_assert_eq!(text.as_bytes() >= &*bytes, is_at_or_above);
    }
}

#[test]
fn encodings_are_as_documented() {
    let check = |value: ColumnValue, bytes: &[u8]| assert_eq!(encode_columns(&[value]), bytes);
    check(ColumnValue::Integer(-1), &[0x10, 0x7F, 255, 255, 255, 255, 255, 255, 255]);
    check(ColumnValue::Integer(1), &[0x10, 0x80, 0, 0, 0, 0, 0, 0, 1]);
    check(ColumnValue::Text(b"a\0b".to_vec()), &[0x30, b'a', 0, 0xFF, b'b', 0, 1]);
    check(ColumnValue::Bytes(vec![]), &[0x40, 0, 1]);
    assert_eq!(encode_columns(&[ColumnValue::Uuid([7; 16])])[..3], [0x20, 7, 7]);
}

#[test]
fn bytes_that_are_no_key_are_not_decoded() {
    for bytes in [&b""[..], &[0x10, 1], &[0x30, b'a'], &[0x30, 0, 2], &[0x99], &[0x20; 16]] {
        assert_eq!(decode_columns(bytes), None);
    }
}

#[test]
fn debug_shows_no_value() {
    let shown =
        format!("{:?}", [ColumnValue::Integer(4711), ColumnValue::Text(b"secret".to_vec())]);
    assert_eq!(shown, "[Integer, Text(6 bytes)]");
}
