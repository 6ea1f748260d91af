use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_frontier::{KeyBuf, KeyEncoding as _, ManifestRowKey};
use proptest::prelude::*;

use super::row_keys::*;

#[test]
fn only_keys_of_rows_parse() {
    for row in [0, 42, u64::MAX] {
        assert_eq!(parse_row_key(&row_key(row)), Some(row));
    }
    let other_manifest = [[0, 0, 0, 0, 0, 0, 0, 1], [0; 8]].concat();
    for bad in [&b""[..], b"42", &[0; 15], &[0; 17], &other_manifest] {
        assert_eq!(parse_row_key(bad), None);
    }
}

#[test]
fn after_the_greatest_row_nothing_is_left() {
    let last = row_key(u64::MAX);
    let range = ShardSpecRef::new(b"", b"", b"");
    assert_eq!(rows_in(range, CursorUpdate::with_last_key(&last)), (None, None));
}

/// An end beyond the source's rows does not bound them, and a start there leaves none.
#[test]
fn bounds_of_another_manifest_lie_after_every_row() {
    let next = [[0, 0, 0, 0, 0, 0, 0, 1], [0; 8]].concat();
    let before = ShardSpecRef::new(b"", &next, b"");
    assert_eq!(rows_in(before, CursorUpdate::initial()), (Some(0), None));
    let behind = ShardSpecRef::new(&next, b"", b"");
    assert_eq!(rows_in(behind, CursorUpdate::initial()), (None, None));
}

#[test]
fn bounds_between_two_rows_are_rounded_up() {
    let above = |row| [&row_key(row)[..], b"\0"].concat();
    let (start, end) = (above(3), above(9));
    let range = ShardSpecRef::new(&start, &end, b"");
    assert_eq!(rows_in(range, CursorUpdate::initial()), (Some(4), Some(10)));
    let at_row = row_key(6);
    assert_eq!(rows_in(range, CursorUpdate::with_last_key(&at_row)), (Some(7), Some(10)));
    assert_eq!(rows_in(range, CursorUpdate::with_last_key(&above(6))), (Some(7), Some(10)));
}

proptest! {
    #[test]
    fn keys_are_those_of_the_shared_encoding(row: u64) {
        let mut buf = KeyBuf::new();
        ManifestRowKey::new(SOURCE_MANIFEST_ID, row).encode_into(&mut buf);
        prop_assert_eq!(buf.as_bytes(), row_key(row));
    }
}
