//! Rows as keys: [`ManifestRowKey`] with the source as its only manifest.
//!
//! A row is the offset of a line, the number of a row or an integer. Its key has 16 bytes, and byte
//! order is numeric order. [`Source::key_text`](super::Source::key_text) shows the number.
//!
//! Ranges may be bounded by any bytes; [`ManifestRowKey::at_or_after`] gives them a meaning.

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_frontier::{FixedWidthKey as _, ManifestRowKey, decode_manifest_row_key};

/// The manifest id of every key: a source is one file or one range of integers.
pub(crate) const SOURCE_MANIFEST_ID: u64 = 0;

/// Row keys of a source lie below this row: no shard of rows contains it, as there is no greater
/// row that could be the end of its range.
pub(crate) const ROWS_END: u64 = u64::MAX;

/// Length of every row key.
pub(crate) const ROW_KEY_LEN: usize = ManifestRowKey::ENCODED_LEN;

/// Returns the key of a row.
#[must_use]
pub fn row_key(row: u64) -> [u8; ROW_KEY_LEN] {
    let mut key = [0; ROW_KEY_LEN];
    let rest = ManifestRowKey::new(SOURCE_MANIFEST_ID, row).write_fixed(&mut key);
    debug_assert!(rest.is_some_and(|rest| rest.is_empty()), "the key has its fixed width");
    key
}

/// Returns the row of a key, if it is the key of one.
#[must_use]
pub fn parse_row_key(key: &[u8]) -> Option<u64> {
    decode_manifest_row_key(key).and_then(row_of)
}

/// Returns the first row whose key is not below `bound`, if there is one.
fn first_row(bound: &[u8]) -> Option<u64> {
    ManifestRowKey::at_or_after(bound).and_then(row_of)
}

fn row_of(key: ManifestRowKey) -> Option<u64> {
    (key.manifest_id() == SOURCE_MANIFEST_ID).then(|| key.row())
}

/// Returns the rows whose keys lie in `range` and above the cursor: from the first up to, not
/// including, the second. `None` there means that nothing bounds them.
///
/// The first is `None` if no row is left.
pub(super) fn rows_in(
    range: ShardSpecRef<'_>,
    from: CursorUpdate<'_>,
) -> (Option<u64>, Option<u64>) {
    let end = if range.end.is_empty() { None } else { first_row(range.end) };
    let start = first_row(range.start);
    let after = match from.last_key() {
        None => Some(0),
        Some(key) => match first_row(key) {
            // The cursor's own row is done; one that only sorts above the cursor is not.
            Some(row) if row_key(row)[..] == *key => row.checked_add(1),
            other => other,
        },
    };
    (start.zip(after).map(|(start, after)| start.max(after)), end)
}
