//! Manifests: every rule, every order between two rules, and the overlap property.

use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;

use super::ManifestValidationError::{
    CursorKeyTooLarge, CursorOutOfBounds, CursorTokenTooLarge, DerivedRootId, DuplicateIds, Empty,
    InvalidSpec, OverlappingRanges, TooManyShards, UnboundedRange,
};
use super::{
    CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, MAX_KEY_SIZE, MAX_METADATA_SIZE,
    MAX_TOKEN_SIZE, ManifestValidationError, ShardSpecInputError, ShardSpecRef, validate_manifest,
};
use crate::identity::ShardId;

static LONG_KEY: [u8; MAX_KEY_SIZE + 1] = [b'k'; MAX_KEY_SIZE + 1];
static LONG_TOKEN: [u8; MAX_TOKEN_SIZE + 1] = [b't'; MAX_TOKEN_SIZE + 1];
static LONG_METADATA: [u8; MAX_METADATA_SIZE + 1] = [b'm'; MAX_METADATA_SIZE + 1];

type Row = InitialShardInput<'static>;

const fn id(raw: u64) -> ShardId {
    ShardId::from_raw(raw)
}

const fn row(raw: u64, start: &'static [u8], end: &'static [u8]) -> Row {
    row_at(raw, start, end, CursorUpdate::initial())
}

const fn row_at(
    raw: u64,
    start: &'static [u8],
    end: &'static [u8],
    cursor: CursorUpdate<'static>,
) -> Row {
    InitialShardInput { shard_id: id(raw), spec: ShardSpecRef::new(start, end, b""), cursor }
}

/// The faults: each row breaks one rule. Rows 2 to 9 are disjoint unless noted.
const GOOD: Row = row(1, b"a", b"b");
const TWIN: Row = row(1, b"y", b"z");
const UNBOUNDED: Row = row(2, b"c", b"");
const INVERTED: Row = row(3, b"e", b"d");
const OVERLAPPING: Row = row(4, b"aa", b"ab");
const LONG_CURSOR: Row = row_at(5, b"g", b"h", CursorUpdate::with_last_key(&LONG_KEY));
const OUTSIDE: Row = row_at(6, b"i", b"j", CursorUpdate::with_last_key(b"j"));
const DERIVED: Row = row(ShardId::DERIVED_BIT | 7, b"k", b"l");
const LONG_TOKEN_ROW: Row = row_at(8, b"m", b"n", CursorUpdate::new(b"m", &LONG_TOKEN));

const INVERTED_RANGE: ManifestValidationError = InvalidSpec {
    shard_id: id(3),
    reason: ShardSpecInputError::InvertedRange { start_len: 1, end_len: 1 },
};
const OVERLAP: ManifestValidationError = OverlappingRanges { shard_a: id(1), shard_b: id(4) };
const KEY_TOO_LARGE: ManifestValidationError =
    CursorKeyTooLarge { shard_id: id(5), size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE };
const DERIVED_ID: ManifestValidationError =
    DerivedRootId { shard_id: id(ShardId::DERIVED_BIT | 7) };
const TOKEN_TOO_LARGE: ManifestValidationError =
    CursorTokenTooLarge { shard_id: id(8), size: MAX_TOKEN_SIZE + 1, max: MAX_TOKEN_SIZE };

#[rstest]
#[case::one(&[GOOD])]
#[case::gaps_and_any_order(&[row(9, b"x", b"y"), GOOD, row(4, b"g", b"h")])]
#[case::touching(&[row(2, b"b", b"c"), GOOD])]
#[case::at_its_start(&[row_at(2, b"b", b"c", CursorUpdate::with_last_key(b"b"))])]
#[case::inside(&[row_at(2, b"b", b"c", CursorUpdate::new(b"bz", b"token"))])]
#[case::largest_root_id(&[row(ShardId::DERIVED_BIT - 1, b"a", b"b"), row(0, b"b", b"c")])]
fn good_manifests_are_accepted(#[case] rows: &[Row]) {
    assert_eq!(validate_manifest(rows), Ok(()));
}

#[test]
fn the_largest_cursor_is_accepted() {
    let (key, token) = (&LONG_KEY[1..], &LONG_TOKEN[1..]);
    let largest = row_at(2, b"k", b"l", CursorUpdate::new(key, token));
    assert_eq!(validate_manifest(&[largest]), Ok(()));
}

#[rstest]
#[case::empty(&[], Empty)]
#[case::twins(&[GOOD, TWIN], DuplicateIds { shard_id: id(1) })]
#[case::open_end(&[GOOD, UNBOUNDED], UnboundedRange { shard_id: id(2) })]
#[case::open_start(&[GOOD, row(2, b"", b"a")], UnboundedRange { shard_id: id(2) })]
#[case::inverted(&[GOOD, INVERTED], INVERTED_RANGE)]
#[case::overlap(&[OVERLAPPING, GOOD], OVERLAP)]
#[case::same_range(&[GOOD, row(4, b"a", b"b")], OVERLAP)]
#[case::long_key(&[GOOD, LONG_CURSOR], KEY_TOO_LARGE)]
#[case::cursor_at_end(&[GOOD, OUTSIDE], CursorOutOfBounds { shard_id: id(6) })]
#[case::cursor_below(
    &[row_at(6, b"i", b"j", CursorUpdate::with_last_key(b"h"))],
    CursorOutOfBounds { shard_id: id(6) })]
#[case::derived(&[GOOD, DERIVED], DERIVED_ID)]
#[case::long_token(&[GOOD, LONG_TOKEN_ROW], TOKEN_TOO_LARGE)]
fn bad_manifests_are_refused(#[case] rows: &[Row], #[case] error: ManifestValidationError) {
    assert_eq!(validate_manifest(rows), Err(error));
}

/// Every order between two of rules 3 to 10, with the later fault in the earlier row, so that a
/// row-by-row validator would fail too.
#[test]
fn of_two_faults_the_earlier_rule_is_reported() {
    let faults: [(&[Row], ManifestValidationError); 8] = [
        (&[TWIN], DuplicateIds { shard_id: id(1) }),
        (&[UNBOUNDED], UnboundedRange { shard_id: id(2) }),
        (&[INVERTED], INVERTED_RANGE),
        (&[OVERLAPPING], OVERLAP),
        (&[LONG_CURSOR], KEY_TOO_LARGE),
        (&[OUTSIDE], CursorOutOfBounds { shard_id: id(6) }),
        (&[DERIVED], DERIVED_ID),
        (&[LONG_TOKEN_ROW], TOKEN_TOO_LARGE),
    ];
    for (earlier, (first, error)) in faults.iter().enumerate() {
        for (second, _) in &faults[earlier + 1..] {
            let rows = [*second, &[GOOD], *first].concat();
            assert_eq!(validate_manifest(&rows), Err(*error));
        }
    }
}

#[test]
fn every_size_limit_of_a_spec_is_reported() {
    let too_long = [
        (ShardSpecRef::new(&LONG_KEY, b"z", b""), "start"),
        (ShardSpecRef::new(b"a", &LONG_KEY, b""), "end"),
        (ShardSpecRef::new(b"a", b"b", &LONG_METADATA), "metadata"),
    ];
    for (spec, part) in too_long {
        let reason = spec.validate().unwrap_err();
        let error = InvalidSpec { shard_id: id(1), reason };
        let rows = [InitialShardInput { spec, ..GOOD }];
        assert_eq!(validate_manifest(&rows), Err(error), "{part}");
    }
}

/// One row whose cursor key exceeds the limit and is also out of bounds.
#[test]
fn key_size_is_checked_before_bounds_within_a_row() {
    assert!(!LONG_CURSOR.spec.contains_key(&LONG_KEY));
    assert_eq!(validate_manifest(&[LONG_CURSOR]), Err(KEY_TOO_LARGE));
}

/// Returns a row for each pair of adjacent bounds.
fn rows_of<'a>(bounds: &'a [[u8; 4]]) -> Vec<InitialShardInput<'a>> {
    let pairs = bounds.windows(2).zip(0..);
    let row = |(pair, raw): (&'a [[u8; 4]], u64)| InitialShardInput {
        shard_id: id(raw),
        spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
        cursor: CursorUpdate::initial(),
    };
    pairs.map(row).collect()
}

fn bounds(count: usize) -> Vec<[u8; 4]> {
    (1..=count as u32 + 1).map(u32::to_be_bytes).collect()
}

#[test]
fn the_largest_manifest_is_accepted_and_one_more_row_is_not() {
    let bounds = bounds(MAX_INITIAL_SHARDS + 1);
    let mut rows = rows_of(&bounds);
    rows.reverse();
    assert_eq!(validate_manifest(&rows[1..]), Ok(()));
    let count = MAX_INITIAL_SHARDS + 1;
    let too_many = TooManyShards { count, max: MAX_INITIAL_SHARDS };
    assert_eq!(validate_manifest(&rows), Err(too_many));
    // The count is checked before any other rule, even if all rows are equal.
    assert_eq!(validate_manifest(&vec![UNBOUNDED; count]), Err(too_many));
}

/// Yields disjoint, bounded ranges with distinct root ids, in any order.
fn disjoint() -> impl Strategy<Value = Vec<(u64, Vec<u8>, Vec<u8>)>> {
    let keys = prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 4..24);
    let picks = prop::collection::vec(any::<bool>(), 24);
    (keys, picks).prop_flat_map(|(keys, picks)| {
        let keys: Vec<_> = keys.into_iter().collect();
        let pairs = keys.windows(2).zip(0..).zip(picks);
        // Omitting some ranges makes gaps; the first two are kept, so that there are neighbours.
        let kept = pairs.filter(|((_, index), pick)| *pick || *index < 2);
        let rows: Vec<_> = kept
            .map(|((pair, index), _)| (index * 7 % 64, pair[0].clone(), pair[1].clone()))
            .collect();
        Just(rows).prop_shuffle()
    })
}

fn borrow(rows: &[(u64, Vec<u8>, Vec<u8>)]) -> Vec<InitialShardInput<'_>> {
    rows.iter()
        .map(|(raw, start, end)| InitialShardInput {
            shard_id: id(*raw),
            spec: ShardSpecRef::new(start, end, b"metadata"),
            cursor: CursorUpdate::initial(),
        })
        .collect()
}

proptest! {
    #[test]
    fn disjoint_ranges_are_accepted_in_any_order(rows in disjoint()) {
        prop_assert_eq!(validate_manifest(&borrow(&rows)), Ok(()));
    }

    #[test]
    fn a_range_extended_into_its_right_neighbour_is_rejected(rows in disjoint(), pick: Index) {
        let mut rows = rows;
        rows.sort_by(|a, b| a.1.cmp(&b.1));
        let left = pick.index(rows.len() - 1);
        rows[left].2 = rows[left + 1].1.clone();
        rows[left].2.push(0);
        let (shard_a, shard_b) = (id(rows[left].0), id(rows[left + 1].0));
        let overlap = OverlappingRanges { shard_a, shard_b };
        prop_assert_eq!(validate_manifest(&borrow(&rows)), Err(overlap));
    }

    /// Compares with the definition, pair by pair.
    #[test]
    fn exactly_the_disjoint_manifests_are_accepted(
        ranges in prop::collection::vec((b'a'..b'h', 1_u8..4), 1..5),
    ) {
        let rows: Vec<_> = ranges
            .iter()
            .zip(0..)
            .map(|((start, width), raw)| (raw, vec![*start], vec![*start + *width]))
            .collect();
        let apart = |a: &(u64, Vec<u8>, Vec<u8>), b: &(u64, Vec<u8>, Vec<u8>)| {
            a.0 == b.0 || a.2 <= b.1 || b.2 <= a.1
        };
        let disjoint = rows.iter().all(|a| rows.iter().all(|b| apart(a, b)));
        prop_assert_eq!(validate_manifest(&borrow(&rows)).is_ok(), disjoint);
    }

    #[test]
    fn a_repeated_id_is_rejected_for_any_ranges(rows in disjoint(), a: Index, b: Index) {
        let mut rows = rows;
        let (a, b) = (a.index(rows.len()), b.index(rows.len()));
        prop_assume!(a != b);
        rows[a].0 = rows[b].0;
        let shard_id = id(rows[a].0);
        prop_assert_eq!(validate_manifest(&borrow(&rows)), Err(DuplicateIds { shard_id }));
    }
}
