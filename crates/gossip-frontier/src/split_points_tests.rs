//! Properties of splits: parts tile, points ascend strictly inside, and parts are as even as
//! stated.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::key_encoding::{KeyEncoding, ManifestRowKey, decode_manifest_row_key, key_successor};

fn any_key(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    let digit =
        prop_oneof![Just(0x00), Just(0x01), Just(0x80), Just(0xFE), Just(0xFF), any::<u8>()];
    vec(digit, len)
}

/// Yields two different keys of up to `len` bytes in order.
fn any_bounds(len: usize) -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    (any_key(1..=len), any_key(1..=len)).prop_filter_map("equal bounds", |(a, b)| match a.cmp(&b) {
        std::cmp::Ordering::Less => Some((a, b)),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some((b, a)),
    })
}

fn range<'a>(start: &'a [u8], end: &'a [u8]) -> KeyRange<'a> {
    KeyRange::try_new(start, end).unwrap()
}

fn even(start: &[u8], end: &[u8], parts: usize) -> Vec<Vec<u8>> {
    let mut bufs = vec![KeyBuf::new(); parts - 1];
    let points = split_points(range(start, end), parts, &mut bufs).unwrap();
    points.iter().map(|point| point.to_vec()).collect()
}

fn dense(start: &[u8], end: &[u8], parts: usize, sample: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut sample: Vec<&[u8]> = sample.iter().map(Vec::as_slice).collect();
    let points = split_points_by_density(range(start, end), parts, &mut sample).unwrap();
    points.iter().map(|point| point.to_vec()).collect()
}

/// Asserts strictly ascending points strictly inside, hence parts that tile the range.
fn assert_tiles(start: &[u8], points: &[Vec<u8>], end: &[u8]) {
    let bounds: Vec<&[u8]> =
        [start].into_iter().chain(points.iter().map(Vec::as_slice)).chain([end]).collect();
    assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
    assert!(bounds.iter().all(|bound| bound.len() <= MAX_KEY_SIZE));
}

/// Returns the number of keys in the range, at most `at_most`.
fn count_keys(start: &[u8], end: &[u8], at_most: usize) -> usize {
    let mut key = start.to_vec();
    let mut count = 1;
    while count < at_most {
        match key_successor(&key, &mut KeyBuf::new()) {
            Some(next) if next < end => key = next.to_vec(),
            _ => return count,
        }
        count += 1;
    }
    count
}

mod even_cuts {
    use super::*;

    /// Returns the first `digits` digits of a key that has no more, as an integer.
    fn value(key: &[u8], digits: usize) -> u128 {
        assert!(key.len() <= digits && digits <= 16);
        let mut bytes = [0; 16];
        bytes[16 - digits..][..key.len()].copy_from_slice(key);
        u128::from_be_bytes(bytes)
    }

    proptest! {
        #[test]
        fn even_parts_tile_the_range((start, end) in any_bounds(20), parts in 1..=20_usize) {
            let points = even(&start, &end, parts);
            assert_tiles(&start, &points, &end);
        }

        /// Fewer points are returned only if the range contains fewer keys than parts.
        #[test]
        fn even_points_are_as_many_as_the_keys_allow(
            (start, end) in any_bounds(6),
            parts in 1..=40_usize,
        ) {
            let keys = count_keys(&start, &end, parts);
            prop_assert_eq!(even(&start, &end, parts).len(), parts.min(keys) - 1);
        }

        /// The stated bound: a share differs from `1 / parts` by less than 2^-54.
        #[test]
        fn even_shares_differ_by_less_than_two_to_the_minus_54(
            (start, end) in any_bounds(6),
            parts in 2..=MAX_SPLIT_CHILDREN,
        ) {
            // Six digits of the bounds and nine of precision are exact in 16.
            let digits = 16;
            let bounds: Vec<u128> = [start.clone()]
                .into_iter()
                .chain(even(&start, &end, parts))
                .chain([end.clone()])
                .map(|bound| value(&bound, digits))
                .collect();
            let width = bounds[bounds.len() - 1] - bounds[0];
            // Spellings of one fraction are split by counting, not by width.
            prop_assume!(width > 0);
            prop_assert_eq!(bounds.len(), parts + 1);
            for part in bounds.windows(2) {
                let share = part[1] - part[0];
                let mean = width / parts as u128;
                prop_assert!(share.abs_diff(mean) <= (width >> 54) + 1, "{share} of {width}");
            }
        }

        /// Thousands of equal bytes before the bounds diverge change only the common prefix.
        #[test]
        fn a_common_prefix_is_kept_in_every_point(
            (start, end) in any_bounds(6),
            parts in 1..=20_usize,
            stem_len in 1..4000_usize,
        ) {
            let stem = vec![b's'; stem_len];
            let stemmed = |key: &[u8]| [&stem[..], key].concat();
            let points = even(&stemmed(&start), &stemmed(&end), parts);
            let expected: Vec<_> = even(&start, &end, parts).iter().map(|p| stemmed(p)).collect();
            prop_assert_eq!(points, expected);
        }

        /// Where keys have the maximum length, all of them are still found and counted evenly.
        #[test]
        fn keys_of_full_size_are_split_evenly(
            (start, end) in any_bounds(3),
            parts in 1..=20_usize,
        ) {
            let stem = vec![b's'; MAX_KEY_SIZE - 3];
            let (start, end) = ([&stem[..], &start].concat(), [&stem[..], &end].concat());
            let points = even(&start, &end, parts);
            assert_tiles(&start, &points, &end);
            let keys = count_keys(&start, &end, parts);
            prop_assert_eq!(points.len(), parts.min(keys) - 1);
        }

        #[test]
        fn even_points_do_not_end_in_zero((start, end) in any_bounds(6), parts in 1..=20_usize) {
            prop_assume!(value(&start, 16) < value(&end, 16));
            for point in even(&start, &end, parts) {
                prop_assert!(point.last() != Some(&0));
            }
        }
    }

    #[test]
    fn even_points_of_simple_ranges_are_round() {
        assert_eq!(even(b"a", b"e", 4), [b"b", b"c", b"d"]);
        assert_eq!(even(b"a", b"b", 2), [b"a\x80"]);
        assert_eq!(even(b"\x00", b"\xFF", 2), [b"\x7F\x80"]);
        assert_eq!(even(b"k/a", b"k/c", 2), [b"k/b"]);
        assert!(even(b"a", b"z", 1).is_empty());
    }

    #[test]
    fn the_widest_ranges_can_be_split() {
        for range in [KeyRange::WIDEST_UTF8, KeyRange::WIDEST_BYTES] {
            let points = even(range.start(), range.end(), MAX_SPLIT_CHILDREN);
            assert_eq!(points.len(), SPLIT_POINTS_MAX);
            assert_tiles(range.start(), &points, range.end());
        }
    }

    /// 0.1FFF…FF against 0.2: the bounds differ in their second digit, but the difference starts
    /// 4000 digits later.
    #[test]
    fn a_run_of_ff_in_the_start_is_skipped() {
        let mut start = vec![b'a', 0x01];
        start.resize(4000, 0xFF);
        let end = [b'a', 0x02];
        let points = even(&start, &end, 8);
        assert_eq!(points.len(), 7);
        assert_tiles(&start, &points, &end);
        assert!(points.iter().all(|point| point.len() > 4000 && point.len() <= 4009));
        // At full size there is no digit after the run, and no key.
        start.resize(MAX_KEY_SIZE, 0xFF);
        assert!(even(&start, &end, 8).is_empty());
    }

    #[test]
    fn adjacent_bounds_have_no_point() {
        assert!(even(b"a", b"a\0", MAX_SPLIT_CHILDREN).is_empty());
        let mut end = [0xFF; MAX_KEY_SIZE];
        let start = {
            end[MAX_KEY_SIZE - 1] = 0xFD;
            end
        };
        end[MAX_KEY_SIZE - 1] = 0xFE;
        assert!(even(&start, &end, 2).is_empty());
    }

    /// `a` and `a` with zeros are one fraction; the keys between them are counted.
    #[test]
    fn spellings_of_one_fraction_are_split_by_counting() {
        let end = |zeros: usize| [&b"a"[..], &vec![0; zeros]].concat();
        assert_eq!(even(b"a", &end(3), 10), [end(1), end(2)]);
        assert_eq!(even(b"a", &end(8), 4), [end(2), end(4), end(6)]);
        let points = even(b"a", &end(MAX_KEY_SIZE - 1), MAX_SPLIT_CHILDREN);
        assert_eq!(points.len(), SPLIT_POINTS_MAX);
        let sizes: BTreeSet<usize> = [vec![b'a']]
            .into_iter()
            .chain(points)
            .chain([end(MAX_KEY_SIZE - 1)])
            .collect::<Vec<_>>()
            .windows(2)
            .map(|part| part[1].len() - part[0].len())
            .collect();
        assert!(sizes.is_subset(&BTreeSet::from([15, 16])), "{sizes:?}");
    }

    /// The maximum number of counted keys: 255 units, and a fraction with all its spellings.
    #[test]
    fn the_longest_count_stays_within_its_limit() {
        let mut end = vec![0; MAX_KEY_SIZE];
        end[0] = b'a';
        end[MAX_KEY_SIZE - 1] = 0xFF;
        let keys = count_keys(b"a", &end, usize::MAX);
        assert_eq!(keys, MAX_KEY_SIZE + 254);
        let points = even(b"a", &end, MAX_SPLIT_CHILDREN);
        assert_eq!(points.len(), SPLIT_POINTS_MAX);
        assert_tiles(b"a", &points, &end);
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let wanted = range(b"a", b"z");
        let mut bufs = vec![KeyBuf::new(); 300];
        let mut check = |parts, available: usize, error| {
            let refused = split_points(wanted, parts, &mut bufs[..available]).unwrap_err();
            assert_eq!(refused, error);
        };
        let max = MAX_SPLIT_CHILDREN;
        check(0, 300, SplitPointsError::ZeroParts);
        check(257, 300, SplitPointsError::TooManyParts { requested: 257, max });
        check(usize::MAX, 300, SplitPointsError::TooManyParts { requested: usize::MAX, max });
        check(5, 3, SplitPointsError::TooFewBuffers { needed: 4, available: 3 });
        check(2, 0, SplitPointsError::TooFewBuffers { needed: 1, available: 0 });
    }
}

mod density_cuts {
    use super::*;

    /// Yields keys from a small alphabet, so that samples contain duplicates.
    fn any_sample() -> impl Strategy<Value = Vec<Vec<u8>>> {
        vec(vec(b'a'..=b'e', 0..3), 0..24)
    }

    fn inside(start: &[u8], end: &[u8], sample: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let wanted = range(start, end);
        let mut keys: Vec<_> = sample.iter().filter(|k| wanted.contains_key(k)).cloned().collect();
        keys.sort();
        keys
    }

    /// Returns the number of sampled keys in each part.
    fn part_sizes(keys: &[Vec<u8>], points: &[Vec<u8>]) -> Vec<usize> {
        let cuts: Vec<usize> = [0]
            .into_iter()
            .chain(points.iter().map(|point| keys.partition_point(|key| key < point)))
            .chain([keys.len()])
            .collect();
        cuts.windows(2).map(|cut| cut[1] - cut[0]).collect()
    }

    /// Returns the smallest largest part of any split into at most `parts` parts, by trying all of
    /// them.
    fn best_largest(runs: &[usize], parts: usize) -> usize {
        let total: usize = runs.iter().sum();
        if parts == 1 || runs.len() <= 1 {
            return total;
        }
        (1..=runs.len())
            .map(|first| {
                let head: usize = runs[..first].iter().sum();
                head.max(best_largest(&runs[first..], parts - 1))
            })
            .min()
            .unwrap()
    }

    fn run_lengths(keys: &[Vec<u8>]) -> Vec<usize> {
        keys.chunk_by(|a, b| a == b).map(<[_]>::len).collect()
    }

    proptest! {
        #[test]
        fn dense_parts_tile_the_range(sample in any_sample(), parts in 1..=8_usize) {
            let points = dense(b"b", b"dd", parts, &sample);
            assert_tiles(b"b", &points, b"dd");
        }

        #[test]
        fn dense_points_are_as_many_as_the_sample_allows(
            sample in any_sample(),
            parts in 1..=8_usize,
        ) {
            let different: BTreeSet<_> = inside(b"b", b"dd", &sample).into_iter().collect();
            let expected = parts.min(different.len()).saturating_sub(1);
            prop_assert_eq!(dense(b"b", b"dd", parts, &sample).len(), expected);
        }

        #[test]
        fn no_split_has_a_smaller_largest_part(sample in any_sample(), parts in 1..=6_usize) {
            let keys = inside(b"a", b"z", &sample);
            let sizes = part_sizes(&keys, &dense(b"a", b"z", parts, &sample));
            let best = best_largest(&run_lengths(&keys), parts);
            prop_assert_eq!(sizes.iter().max(), Some(&best));
        }

        #[test]
        fn every_dense_part_holds_a_sampled_key(sample in any_sample(), parts in 1..=8_usize) {
            let keys = inside(b"a", b"z", &sample);
            prop_assume!(!keys.is_empty());
            let sizes = part_sizes(&keys, &dense(b"a", b"z", parts, &sample));
            prop_assert!(sizes.iter().all(|&size| size > 0), "{sizes:?}");
        }

        #[test]
        fn distinct_keys_are_split_into_parts_that_differ_by_one(
            sample in proptest::collection::btree_set(vec(any::<u8>(), 1..6), 1..600),
            parts in 1..=MAX_SPLIT_CHILDREN,
        ) {
            let keys: Vec<Vec<u8>> = sample.into_iter().filter(|key| key[0] < 0xFF).collect();
            prop_assume!(!keys.is_empty());
            let sizes = part_sizes(&keys, &dense(b"\0", b"\xFF", parts, &keys));
            let parts = parts.min(keys.len());
            let mean = keys.len() / parts..=keys.len().div_ceil(parts);
            prop_assert!(sizes.iter().all(|size| mean.contains(size)), "{sizes:?}");
            prop_assert_eq!(sizes.len(), parts);
        }

        /// The documented bound for samples with repeated keys.
        #[test]
        fn the_largest_part_exceeds_the_mean_by_less_than_the_most_frequent_key(
            sample in vec(vec(b'a'..=b'z', 1..2), 1..400),
            parts in 1..=40_usize,
        ) {
            let keys = inside(b"a", b"{", &sample);
            let sizes = part_sizes(&keys, &dense(b"a", b"{", parts, &sample));
            let frequent = run_lengths(&keys).into_iter().max().unwrap();
            let bound = keys.len().div_ceil(parts) + frequent - 1;
            prop_assert!(sizes.iter().all(|&size| size <= bound), "{sizes:?} {bound}");
        }

        #[test]
        fn the_order_of_the_sample_does_not_matter(
            (sample, shuffled) in any_sample()
                .prop_flat_map(|sample| (Just(sample.clone()), Just(sample).prop_shuffle())),
            parts in 1..=8_usize,
        ) {
            prop_assert_eq!(
                dense(b"a", b"z", parts, &sample),
                dense(b"a", b"z", parts, &shuffled)
            );
        }

        #[test]
        fn dense_points_are_keys_of_the_sample(sample in any_sample(), parts in 1..=8_usize) {
            for point in dense(b"a", b"z", parts, &sample) {
                prop_assert!(sample.contains(&point));
            }
        }
    }

    /// One frequent key fills the first part; the others share the rest evenly.
    #[test]
    fn keys_after_a_frequent_one_are_shared_evenly() {
        let mut keys = vec![b"a".to_vec(); 10];
        keys.extend((b'b'..=b'k').map(|byte| vec![byte]));
        let sizes = part_sizes(&keys, &dense(b"a", b"z", 3, &keys));
        assert_eq!(sizes, [10, 5, 5]);
    }

    #[test]
    fn a_split_of_manifest_rows_falls_on_a_row() {
        let row = |row| {
            let mut buf = KeyBuf::new();
            ManifestRowKey::new(7, row).encode_into(&mut buf);
            buf.as_bytes().to_vec()
        };
        let sample: Vec<_> = (0..100).map(|i| row(i * i)).collect();
        let points = dense(&row(0), &row(10_000), 4, &sample);
        let rows: Vec<_> = points.iter().filter_map(|p| decode_manifest_row_key(p)).collect();
        assert_eq!(rows.iter().map(|key| key.row()).collect::<Vec<_>>(), [625, 2500, 5625]);
    }

    #[test]
    fn samples_with_nothing_to_split_yield_no_point() {
        let none: [Vec<u8>; 0] = [];
        let one = [b"m".to_vec(), b"m".to_vec()];
        let outside = [b"".to_vec(), b"A".to_vec(), b"z".to_vec(), b"zz".to_vec()];
        for sample in [&none[..], &one, &outside] {
            assert!(dense(b"a", b"z", 4, sample).is_empty());
        }
        // The start itself is a key of the range, but not a point: it bounds the first part.
        let at_start = [b"a".to_vec(), b"m".to_vec()];
        assert_eq!(dense(b"a", b"z", 4, &at_start), [b"m"]);
    }

    #[test]
    fn invalid_samples_are_rejected_unchanged() {
        let oversized = vec![b'm'; MAX_KEY_SIZE + 1];
        let mut sample: [&[u8]; 3] = [b"c", &oversized, b"b"];
        let refused = split_points_by_density(range(b"a", b"z"), 2, &mut sample).unwrap_err();
        let size = MAX_KEY_SIZE + 1;
        assert_eq!(refused, SplitPointsError::SampleKeyTooLarge { size, max: MAX_KEY_SIZE });
        assert_eq!(sample, [b"c", &oversized[..], b"b"]);
        let mut check = |parts, error| {
            let refused = split_points_by_density(range(b"a", b"z"), parts, &mut sample);
            assert_eq!(refused.unwrap_err(), error);
        };
        check(0, SplitPointsError::ZeroParts);
        check(257, SplitPointsError::TooManyParts { requested: 257, max: 256 });
    }

    #[test]
    fn debug_shows_the_number_of_points() {
        let mut sample: [&[u8]; 2] = [b"secret", b"hidden"];
        let points = split_points_by_density(range(b"a", b"z"), 2, &mut sample).unwrap();
        assert_eq!(format!("{points:?}"), "SplitPoints { len: 1, .. }");
    }
}
