use proptest::collection::vec;
use proptest::prelude::*;

use crate::accumulator::*;

fn accumulator_of<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Accumulator {
    let mut accumulator = Accumulator::EMPTY;
    keys.into_iter().for_each(|key| accumulator.add(key));
    accumulator
}

/// Pinned, because stored cursors and certificates contain these bytes. A change needs a new domain
/// version.
#[test]
fn the_bytes_of_one_key_are_pinned() {
    let digest = blake3::derive_key("gossip/certificate/v1/item", b"\x03\0\0\0key");
    let accumulator = accumulator_of([&b"key"[..]]);
    assert_eq!(accumulator.sum_bytes(), digest);
    assert_eq!(accumulator.to_bytes()[..8], 1_u64.to_le_bytes());
    assert_eq!(accumulator.to_bytes()[8..], digest);
}

#[test]
fn nothing_is_forty_zero_bytes() {
    assert_eq!(Accumulator::EMPTY.to_bytes(), [0; ACCUMULATOR_LEN]);
    assert_eq!(Accumulator::default(), Accumulator::EMPTY);
    assert!(Accumulator::EMPTY.is_empty());
}

/// A plain exclusive-or would lose a key that is listed twice.
#[test]
fn a_key_added_twice_counts_twice() {
    let twice = accumulator_of([&b"a"[..], b"a"]);
    assert_eq!(twice.count(), 2);
    assert_ne!(twice.sum_bytes(), Accumulator::EMPTY.sum_bytes());
    assert_ne!(twice.sum_bytes(), accumulator_of([&b"a"[..]]).sum_bytes());
}

#[test]
fn a_count_stays_at_its_top() {
    let sum = accumulator_of([&b"a"[..]]).sum_bytes();
    let mut full = Accumulator::try_from_parts(u64::MAX, &sum).unwrap();
    full.add(b"b");
    assert_eq!(full.count(), u64::MAX);
}

#[test]
fn other_lengths_are_refused() {
    for len in [0, 1, ACCUMULATOR_LEN - 1, ACCUMULATOR_LEN + 1] {
        let refused = Accumulator::try_from_bytes(&vec![0; len]);
        assert_eq!(refused, Err(AccumulatorError::Length { len, expected: ACCUMULATOR_LEN }));
    }
}

#[test]
fn a_hash_of_nothing_is_refused() {
    let mut bytes = accumulator_of([&b"a"[..]]).to_bytes();
    bytes[..8].fill(0);
    assert_eq!(Accumulator::try_from_bytes(&bytes), Err(AccumulatorError::SumOfNothing));
}

#[test]
fn debug_shows_the_count_only() {
    let shown = format!("{:?}", accumulator_of([&b"canary"[..]]));
    assert_eq!(shown, "Accumulator { count: 1, .. }");
}

proptest! {
    #[test]
    fn the_order_of_keys_does_not_matter(
        (keys, shuffled) in vec(vec(any::<u8>(), 0..20), 0..20)
            .prop_flat_map(|keys| (Just(keys.clone()), Just(keys).prop_shuffle())),
    ) {
        let slices = |keys: &[Vec<u8>]| accumulator_of(keys.iter().map(Vec::as_slice));
        prop_assert_eq!(slices(&keys), slices(&shuffled));
    }

    #[test]
    fn parts_merge_into_the_whole(
        keys in vec(vec(any::<u8>(), 0..20), 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let (left, right) = keys.split_at(cut.index(keys.len() + 1));
        let mut merged = accumulator_of(left.iter().map(Vec::as_slice));
        merged.merge(&accumulator_of(right.iter().map(Vec::as_slice)));
        prop_assert_eq!(merged, accumulator_of(keys.iter().map(Vec::as_slice)));
    }

    #[test]
    fn different_sets_differ(
        keys in prop::collection::btree_set(vec(any::<u8>(), 0..20), 1..20),
        lost in any::<prop::sample::Index>(),
    ) {
        let lost = keys.iter().nth(lost.index(keys.len()));
        let rest = accumulator_of(keys.iter().filter(|key| Some(*key) != lost).map(Vec::as_slice));
        let whole = accumulator_of(keys.iter().map(Vec::as_slice));
        prop_assert_ne!(rest.sum_bytes(), whole.sum_bytes());
    }

    #[test]
    fn bytes_read_back(keys in vec(vec(any::<u8>(), 0..20), 0..20)) {
        let accumulator = accumulator_of(keys.iter().map(Vec::as_slice));
        prop_assert_eq!(Accumulator::try_from_bytes(&accumulator.to_bytes()), Ok(accumulator));
    }
}
