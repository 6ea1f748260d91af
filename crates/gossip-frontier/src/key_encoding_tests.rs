//! Properties of key encoding and key arithmetic.

use std::error::Error;

use gossip_contracts::coordination::{MAX_METADATA_SIZE, ShardArena, ShardSpecInputError};
use proptest::collection::vec;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// Yields keys over few byte values, so that carries, equal prefixes and runs of 0xFF are common.
fn any_key(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    let digit =
        prop_oneof![Just(0x00), Just(0x01), Just(0x80), Just(0xFE), Just(0xFF), any::<u8>()];
    vec(digit, len)
}

fn encoded(key: &impl KeyEncoding) -> Vec<u8> {
    let mut buf = KeyBuf::new();
    key.encode_into(&mut buf);
    buf.as_bytes().to_vec()
}

fn prefix_successor_of(prefix: &[u8]) -> Option<Vec<u8>> {
    prefix_successor(prefix, &mut KeyBuf::new()).map(<[u8]>::to_vec)
}

fn key_successor_of(key: &[u8]) -> Option<Vec<u8>> {
    key_successor(key, &mut KeyBuf::new()).map(<[u8]>::to_vec)
}

fn midpoint_of(a: &[u8], b: &[u8]) -> Option<Vec<u8>> {
    byte_midpoint(a, b, &mut KeyBuf::new()).map(<[u8]>::to_vec)
}

mod keys {
    use super::*;

    proptest! {
        #[test]
        fn path_key_encoding_preserves_logical_order(a in ".{1,40}", b in ".{1,40}") {
            let (a, b) = (PathKey::new(&a), PathKey::new(&b));
            prop_assert_eq!(a.cmp(&b), encoded(&a).cmp(&encoded(&b)));
        }

        #[test]
        fn manifest_row_key_encoding_preserves_logical_order(
            a in any::<(u64, u64)>(),
            b in any::<(u64, u64)>(),
            same_manifest in any::<bool>(),
        ) {
            let b = if same_manifest { (a.0, b.1) } else { b };
            let (key_a, key_b) = (ManifestRowKey::new(a.0, a.1), ManifestRowKey::new(b.0, b.1));
            prop_assert_eq!(a.cmp(&b), encoded(&key_a).cmp(&encoded(&key_b)));
            prop_assert_eq!(a.cmp(&b), key_a.cmp(&key_b));
        }

        #[test]
        fn manifest_row_key_encode_decode_roundtrip(manifest_id: u64, row: u64) {
            let key = ManifestRowKey::new(manifest_id, row);
            prop_assert_eq!(decode_manifest_row_key(&encoded(&key)), Some(key));
        }

        #[test]
        fn byte_path_key_encoding_preserves_logical_order(a in any_key(1..9), b in any_key(1..9)) {
            let (a, b) = (BytePathKey::try_new(&a).unwrap(), BytePathKey::try_new(&b).unwrap());
            prop_assert_eq!(a.cmp(&b), encoded(&a).cmp(&encoded(&b)));
        }

        /// A tree holds names of both kinds, and its keys must have one order.
        #[test]
        fn byte_paths_sort_among_utf8_paths_by_their_bytes(a in ".{1,9}", b in any_key(1..9)) {
            let (text, bytes) = (PathKey::new(&a), BytePathKey::try_new(&b).unwrap());
            prop_assert_eq!(encoded(&BytePathKey::from(text)), encoded(&text));
            prop_assert_eq!(encoded(&text).cmp(&encoded(&bytes)), a.as_bytes().cmp(&b));
        }

        /// For bytes near row keys as well as for any: a key cut off, or with bytes after it.
        #[test]
        fn at_or_after_is_the_first_row_key_not_below_the_bound(
            row in any_key(ManifestRowKey::ENCODED_LEN),
            cut in 0..=ManifestRowKey::ENCODED_LEN,
            tail in any_key(0..3),
        ) {
            let bound = [&row[..cut], &tail].concat();
            let number = |key: ManifestRowKey| u128::from_be_bytes(
                encoded(&key).try_into().unwrap(),
            );
            match ManifestRowKey::at_or_after(&bound) {
                None => prop_assert!(bound[..] > [0xFF; ManifestRowKey::ENCODED_LEN][..]),
                Some(first) => {
                    prop_assert!(encoded(&first) >= bound);
                    let before = number(first).checked_sub(1);
                    prop_assert!(before.is_none_or(|key| key.to_be_bytes()[..] < bound[..]));
                }
            }
        }
    }

    #[test]
    fn at_or_after_of_a_row_key_is_that_key_and_of_its_successor_the_next_row() {
        let key = ManifestRowKey::new(7, 41);
        assert_eq!(ManifestRowKey::at_or_after(&encoded(&key)), Some(key));
        let next = ManifestRowKey::at_or_after(&key_successor_of(&encoded(&key)).unwrap());
        assert_eq!(next, Some(ManifestRowKey::new(7, 42)));
        let last = key_successor_of(&encoded(&ManifestRowKey::new(7, u64::MAX))).unwrap();
        assert_eq!(ManifestRowKey::at_or_after(&last), Some(ManifestRowKey::new(8, 0)));
        assert_eq!(ManifestRowKey::at_or_after(b""), Some(ManifestRowKey::new(0, 0)));
        assert_eq!(ManifestRowKey::at_or_after(&[0xFF; 17]), None);
    }

    #[test]
    fn byte_path_key_uses_identity_encoding_and_refuses_what_path_key_refuses() {
        for path in [&b"a/b"[..], b"\xFF/\x00", "caf\u{e9}".as_bytes(), &[b'p'; MAX_KEY_SIZE]] {
            let key = BytePathKey::try_new(path).unwrap();
            assert_eq!((encoded(&key), key.as_bytes()), (path.to_vec(), path));
        }
        let too_large = KeyInputError::TooLarge { size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE };
        assert_eq!(BytePathKey::try_new(b""), Err(KeyInputError::Empty));
        assert_eq!(BytePathKey::try_new(&[0xFF; MAX_KEY_SIZE + 1]), Err(too_large));
    }

    #[test]
    fn path_key_uses_identity_utf8_encoding() {
        // Separators, case and normalisation form are unchanged.
        for path in ["a/b", "A\\B", "//x/../y", "cafe\u{301}", "caf\u{e9}", "\0"] {
            assert_eq!(encoded(&PathKey::new(path)), path.as_bytes());
            assert_eq!(PathKey::new(path).as_str(), path);
        }
    }

    #[test]
    #[should_panic(expected = "path key is empty")]
    fn path_key_new_rejects_empty_path() {
        PathKey::new("");
    }

    #[test]
    #[should_panic(expected = "path key of 4097 bytes exceeds the maximum of 4096")]
    fn path_key_new_rejects_oversized_path() {
        PathKey::new(&"p".repeat(MAX_KEY_SIZE + 1));
    }

    #[test]
    fn path_key_new_accepts_path_at_max_size() {
        let path = "p".repeat(MAX_KEY_SIZE);
        assert_eq!(encoded(&PathKey::new(&path)).len(), MAX_KEY_SIZE);
    }

    #[test]
    fn path_key_try_new_fails_where_new_panics() {
        let oversized = "é".repeat(MAX_KEY_SIZE / 2) + "x";
        let too_large = KeyInputError::TooLarge { size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE };
        assert_eq!(PathKey::try_new(""), Err(KeyInputError::Empty));
        assert_eq!(PathKey::try_new(&oversized), Err(too_large));
        assert_eq!(PathKey::try_new("a").map(|key| encoded(&key)), Ok(b"a".to_vec()));
    }

    #[test]
    fn manifest_row_key_is_fixed_width_and_decodes() {
        let key = ManifestRowKey::new(1, 0x0203);
        let bytes = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 3];
        assert_eq!(encoded(&key), bytes);
        assert_eq!(decode_manifest_row_key(&bytes), Some(key));
        assert_eq!((key.manifest_id(), key.row()), (1, 0x0203));
        for edge in [(0, 0), (0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            let key = ManifestRowKey::new(edge.0, edge.1);
            assert_eq!(encoded(&key).len(), ManifestRowKey::ENCODED_LEN);
            assert_eq!(decode_manifest_row_key(&encoded(&key)), Some(key));
        }
    }

    #[test]
    fn decode_manifest_row_key_rejects_non_fixed_width_inputs() {
        for len in (0..40).filter(|&len| len != ManifestRowKey::ENCODED_LEN) {
            assert_eq!(decode_manifest_row_key(&vec![0; len]), None, "{len} bytes");
        }
    }

    #[test]
    fn key_encoding_returns_encoded_bytes() {
        let mut buf = KeyBuf::new();
        PathKey::new("a-long-path").encode_into(&mut buf);
        assert_eq!(buf.as_bytes(), b"a-long-path");
        // A second, shorter key replaces the first one entirely.
        PathKey::new("b").encode_into(&mut buf);
        assert_eq!(buf.as_bytes(), b"b");
        assert_eq!((buf.len(), buf.is_empty()), (1, false));
    }
}

mod key_buf {
    use super::*;

    #[test]
    fn holds_one_byte_more_than_a_key() {
        let mut buf = KeyBuf::default();
        assert!(buf.is_empty());
        buf.copy_from_slice(&[7; KeyBuf::CAPACITY]);
        assert_eq!((buf.len(), KeyBuf::CAPACITY), (4097, 4097));
        assert_eq!(buf.clone().as_bytes(), [7; KeyBuf::CAPACITY]);
    }

    #[test]
    fn try_copy_from_slice_keeps_the_key_on_error() {
        let mut buf = KeyBuf::new();
        buf.copy_from_slice(b"kept");
        let refused = buf.try_copy_from_slice(&[0; KeyBuf::CAPACITY + 1]);
        assert_eq!(refused, Err(KeyInputError::TooLarge { size: 4098, max: 4097 }));
        assert_eq!(buf.as_bytes(), b"kept");
        assert_eq!(buf.try_copy_from_slice(b""), Ok(()));
        assert!(buf.is_empty());
    }

    #[test]
    #[should_panic(expected = "key of 4098 bytes exceeds the maximum of 4097")]
    fn copy_from_slice_panics_above_capacity() {
        KeyBuf::new().copy_from_slice(&[0; KeyBuf::CAPACITY + 1]);
    }

    #[test]
    fn debug_shows_lengths_only() {
        let mut buf = KeyBuf::new();
        buf.copy_from_slice(b"secret");
        assert_eq!(format!("{buf:?}"), "KeyBuf { len: 6, .. }");
        assert_eq!(format!("{:?}", PathKey::new("secret")), "PathKey { len: 6, .. }");
    }
}

mod successors {
    use super::*;

    proptest! {
        #[test]
        fn prefix_successor_is_strictly_greater(prefix in any_key(0..20)) {
            match prefix_successor_of(&prefix) {
                Some(successor) => prop_assert!(successor > prefix),
                None => prop_assert!(prefix.iter().all(|&byte| byte == 0xFF)),
            }
        }

        /// Every key with the prefix lies below the successor, and every key from the prefix up to
        /// the successor has the prefix: the bound is exact.
        #[test]
        fn prefix_successor_is_upper_bound_for_prefixed_keys(
            prefix in any_key(1..12),
            rest in any_key(0..12),
            other in any_key(0..12),
        ) {
            if let Some(successor) = prefix_successor_of(&prefix) {
                let key = [&prefix[..], &rest].concat();
                prop_assert!(key < successor);
                let below = prefix <= other && other < successor;
                prop_assert_eq!(below, other.starts_with(&prefix));
            }
        }

        #[test]
        fn key_successor_is_strictly_greater(key in any_key(0..20)) {
            prop_assert!(key_successor_of(&key).unwrap() > key);
        }

        #[test]
        fn key_successor_none_only_when_expected(
            // Each part is at its limit in half of the cases, so that all are at once in one of
            // eight.
            len in prop_oneof![Just(MAX_KEY_SIZE), 4090_usize..4100],
            fill in prop_oneof![Just(0xFF), any::<u8>()],
            last in prop_oneof![Just(0xFF), any::<u8>()],
        ) {
            let mut key = vec![fill; len];
            key[len - 1] = last;
            let largest = len == MAX_KEY_SIZE && key.iter().all(|&byte| byte == 0xFF);
            let expected = len <= MAX_KEY_SIZE && !largest;
            prop_assert_eq!(key_successor_of(&key).is_some(), expected);
        }

        #[test]
        fn key_successor_appends_zero_when_below_max(key in any_key(0..300)) {
            let appended = [&key[..], &[0]].concat();
            prop_assert_eq!(key_successor_of(&key), Some(appended));
        }

        #[test]
        fn key_successor_delegates_to_prefix_successor_at_max(tail in any_key(1..20)) {
            let mut key = vec![b'k'; MAX_KEY_SIZE - tail.len()];
            key.extend(&tail);
            prop_assert_eq!(key_successor_of(&key), prefix_successor_of(&key));
        }

        /// No key lies between a key and its successor.
        #[test]
        fn key_successor_is_the_smallest_greater_key(key in any_key(0..8), other in any_key(0..8)) {
            let successor = key_successor_of(&key).unwrap();
            prop_assert!(other <= key || other >= successor);
        }
    }

    #[test]
    fn prefix_successor_basic() {
        let full = [0xFF; MAX_KEY_SIZE];
        let mut nearly_full = full;
        nearly_full[0] = 0xFE;
        assert_eq!(prefix_successor_of(b"abc"), Some(b"abd".to_vec()));
        assert_eq!(prefix_successor_of(b"a\xFF\xFF"), Some(b"b".to_vec()));
        assert_eq!(prefix_successor_of(b"\x00"), Some(b"\x01".to_vec()));
        assert_eq!(prefix_successor_of(b"\xFF\x00\xFF"), Some(b"\xFF\x01".to_vec()));
        assert_eq!(prefix_successor_of(&nearly_full), Some(vec![0xFF]));
        assert_eq!(prefix_successor_of(b""), None);
        assert_eq!(prefix_successor_of(b"\xFF"), None);
        assert_eq!(prefix_successor_of(&full), None);
        assert_eq!(prefix_successor_of(&[b'a'; MAX_KEY_SIZE + 1]), None);
    }

    #[test]
    fn none_leaves_the_buffer_empty() {
        let mut buf = KeyBuf::new();
        buf.copy_from_slice(b"stale");
        assert_eq!(prefix_successor(b"\xFF", &mut buf), None);
        assert!(buf.is_empty());
        buf.copy_from_slice(b"stale");
        assert_eq!(key_successor(&[0xFF; MAX_KEY_SIZE], &mut buf), None);
        assert!(buf.is_empty());
        buf.copy_from_slice(b"stale");
        assert_eq!(byte_midpoint(b"a", b"a\0", &mut buf), None);
        assert!(buf.is_empty());
    }
}

mod midpoint {
    use super::*;

    /// Returns whether a key lies between: the smallest candidate is the successor.
    fn has_interior(a: &[u8], b: &[u8]) -> bool {
        a < b && key_successor_of(a).is_some_and(|successor| successor[..] < *b)
    }

    proptest! {
        #[test]
        fn byte_midpoint_is_strictly_between_when_present(
            a in any_key(16),
            b in any_key(16),
        ) {
            match midpoint_of(&a, &b) {
                Some(middle) => prop_assert!(a < middle && middle < b),
                None => prop_assert!(!has_interior(&a, &b)),
            }
        }

        #[test]
        fn byte_midpoint_different_lengths_strictly_between(
            a in any_key(0..24),
            b in any_key(0..24),
        ) {
            match midpoint_of(&a, &b) {
                Some(middle) => prop_assert!(a < middle && middle < b),
                None => prop_assert!(!has_interior(&a, &b)),
            }
        }

        /// Compares with plain integer arithmetic: where the halved sum lies inside, it is the
        /// result.
        #[test]
        fn byte_midpoint_is_the_halved_sum(a in any_key(0..9), b in any_key(0..9)) {
            let width = a.len().max(b.len());
            let value = |key: &[u8]| {
                let mut bytes = [0; 16];
                bytes[16 - width..][..key.len()].copy_from_slice(key);
                u128::from_be_bytes(bytes)
            };
            let halved = u128::midpoint(value(&a), value(&b)).to_be_bytes()[16 - width..].to_vec();
            if a < halved && halved < b {
                prop_assert_eq!(midpoint_of(&a, &b), Some(halved));
            }
        }

        #[test]
        fn byte_midpoint_finds_every_key_at_max_size(a in any_key(1..4), b in any_key(1..4)) {
            let stem = vec![b's'; MAX_KEY_SIZE - 3];
            let (a, b) = ([&stem[..], &a].concat(), [&stem[..], &b].concat());
            match midpoint_of(&a, &b) {
                Some(middle) => {
                    prop_assert!(a < middle && middle < b);
                    prop_assert!(middle.len() <= MAX_KEY_SIZE);
                }
                None => prop_assert!(!has_interior(&a, &b)),
            }
        }
    }

    #[test]
    fn byte_midpoint_output_respects_max_key_size() {
        // The sum carries into the one byte that a buffer has beyond a key.
        let a = [0xF0; MAX_KEY_SIZE];
        let b = [0xFF; MAX_KEY_SIZE];
        let middle = midpoint_of(&a, &b).unwrap();
        assert_eq!(middle.len(), MAX_KEY_SIZE);
        assert!(a[..] < middle[..] && middle[..] < b[..]);
        // No key lies between adjacent keys of full size.
        let mut neighbour = b;
        neighbour[MAX_KEY_SIZE - 1] = 0xFE;
        assert_eq!(midpoint_of(&neighbour, &b), None);
    }

    #[test]
    fn byte_midpoint_rejects_oversized_inputs() {
        let oversized = [b'b'; MAX_KEY_SIZE + 1];
        assert_eq!(midpoint_of(b"a", &oversized), None);
        assert_eq!(midpoint_of(&oversized, b"c"), None);
        // Without a check, these would not fit into the buffer: the first because its sum carries.
        assert_eq!(midpoint_of(&[0xF0; MAX_KEY_SIZE + 1], b"\xFF"), None);
        assert_eq!(midpoint_of(&[b'b'; MAX_KEY_SIZE + 2], b"c"), None);
        assert_eq!(midpoint_of(b"a", &[b'b'; MAX_KEY_SIZE + 2]), None);
    }

    #[rstest]
    #[case::even_sum(b"a", b"c", Some(&b"b"[..]))]
    #[case::odd_sum_rounds_down(b"a", b"d", Some(&b"b"[..]))]
    #[case::neighbours_fall_back_to_the_successor(b"a", b"b", Some(&b"a\0"[..]))]
    #[case::empty_start(b"", b"\x02", Some(&b"\x01"[..]))]
    #[case::nothing_fits(b"a", b"a\0", None)]
    #[case::equal(b"a", b"a", None)]
    #[case::inverted(b"b", b"a", None)]
    #[case::end_is_a_longer_key(b"\xFF", b"\xFF\x80", Some(&b"\xFF\x40"[..]))]
    fn byte_midpoint_edge_cases(
        #[case] a: &[u8],
        #[case] b: &[u8],
        #[case] expected: Option<&[u8]>,
    ) {
        assert_eq!(midpoint_of(a, b).as_deref(), expected);
    }

    /// Regression: a sum that carried kept its leading zero, which put the midpoint below both
    /// bounds. Half of 0x80FF + 0x8101 is 0x8100, not 0x008100.
    #[test]
    fn byte_midpoint_carry_regression() {
        let middle = midpoint_of(&[0x80, 0xFF], &[0x81, 0x01]);
        assert_eq!(middle, Some(vec![0x81, 0x00]));
        // The carry crosses every digit of the sum.
        let middle = midpoint_of(&[0x7F, 0xFF, 0xFF], &[0x80, 0x00, 0x01]);
        assert_eq!(middle, Some(vec![0x80, 0x00, 0x00]));
    }
}

mod specs {
    use super::*;

    /// Encodes its bytes unchecked, as a careless implementation might.
    struct RawKey(Vec<u8>);

    impl KeyEncoding for RawKey {
        fn encode_into(&self, buf: &mut KeyBuf) {
            buf.copy_from_slice(&self.0);
        }
    }

    fn arena() -> ShardArena {
        ShardArena::with_capacity(2, 64 * 1024)
    }

    proptest! {
        #[test]
        fn shard_spec_from_prefix_produces_valid_half_open_range(
            prefix in any_key(0..20),
            rest in any_key(0..20),
        ) {
            let mut end_buf = KeyBuf::new();
            match shard_spec_from_prefix_ref(&prefix, b"meta", &mut end_buf) {
                Ok(spec) => {
                    prop_assert_eq!(spec.validate(), Ok(()));
                    prop_assert_eq!((spec.start, spec.metadata), (&prefix[..], &b"meta"[..]));
                    prop_assert!(spec.contains_key(&prefix));
                    prop_assert!(spec.contains_key(&[&prefix[..], &rest].concat()));
                    prop_assert!(!spec.contains_key(spec.end));
                }
                Err(PrefixShardError::EmptyPrefix) => prop_assert!(prefix.is_empty()),
                Err(error) => {
                    prop_assert_eq!(error, PrefixShardError::NoSuccessor);
                    prop_assert!(prefix.iter().all(|&byte| byte == 0xFF));
                }
            }
        }

        #[test]
        fn shard_spec_from_manifest_range_rejects_inverted_or_degenerate(
            manifest_id: u64,
            start_row: u64,
            end_row: u64,
            degenerate: bool,
        ) {
            let end_row = if degenerate { start_row } else { end_row };
            let (mut start, mut end) = (KeyBuf::new(), KeyBuf::new());
            let spec = shard_spec_from_manifest_range_ref(
                manifest_id, start_row, end_row, b"", &mut start, &mut end,
            );
            if start_row < end_row {
                let first = encoded(&ManifestRowKey::new(manifest_id, start_row));
                prop_assert!(spec.unwrap().contains_key(&first));
            } else {
                let refused = ShardSpecInputError::InvertedRange { start_len: 16, end_len: 16 };
                prop_assert_eq!(spec, Err(refused));
            }
        }
    }

    #[rstest]
    #[case(PrefixShardError::EmptyPrefix, "empty")]
    #[case(PrefixShardError::PrefixTooLarge { size: 5000, max: 4096 }, "5000 bytes exceeds the maximum of 4096")]
    #[case(PrefixShardError::NoSuccessor, "no successor")]
    fn prefix_shard_error_display_contains(#[case] error: PrefixShardError, #[case] text: &str) {
        assert!(error.to_string().contains(text), "{error}");
    }

    #[test]
    fn prefix_shard_error_source_delegates_for_invalid_shard_spec() {
        let oversized = vec![0; MAX_METADATA_SIZE + 1];
        let mut end_buf = KeyBuf::new();
        let error = shard_spec_from_prefix_ref(b"p", &oversized, &mut end_buf).unwrap_err();
        let reason = ShardSpecInputError::MetadataTooLarge {
            size: MAX_METADATA_SIZE + 1,
            max: MAX_METADATA_SIZE,
        };
        let source = error.source().unwrap().downcast_ref::<ShardSpecInputError>();
        assert_eq!(source, Some(&reason));
        assert_eq!(error, PrefixShardError::InvalidShardSpec(reason));
        assert!(PrefixShardError::NoSuccessor.source().is_none());
    }

    #[test]
    fn shard_spec_from_keys_surfaces_oversized_encoded_boundary() {
        let oversized = RawKey(vec![b'z'; MAX_KEY_SIZE + 1]);
        let small = RawKey(b"a".to_vec());
        let (mut start, mut end) = (KeyBuf::new(), KeyBuf::new());
        let refused =
            ShardSpecInputError::KeyTooLarge { size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE };
        for (from, to) in [(&small, &oversized), (&oversized, &small)] {
            let spec = shard_spec_from_keys_ref(from, to, b"", &mut start, &mut end);
            assert_eq!(spec, Err(refused));
            let stored =
                shard_spec_from_keys_into(from, to, b"", &mut start, &mut end, &mut arena());
            assert_eq!(stored, Err(ShardIntoError::Build(refused)));
        }
    }

    #[test]
    fn prefix_errors_come_in_order() {
        let mut end_buf = KeyBuf::new();
        let mut check = |prefix: &[u8], expected| {
            let spec = shard_spec_from_prefix_ref(prefix, b"", &mut end_buf);
            assert_eq!(spec, Err(expected));
        };
        check(b"", PrefixShardError::EmptyPrefix);
        // All 0xFF as well, but the size is checked first.
        let too_large =
            PrefixShardError::PrefixTooLarge { size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE };
        check(&[0xFF; MAX_KEY_SIZE + 1], too_large);
        check(&[0xFF; MAX_KEY_SIZE], PrefixShardError::NoSuccessor);
    }

    #[test]
    fn into_forms_store_the_spec_of_the_ref_forms() {
        let (mut start, mut end) = (KeyBuf::new(), KeyBuf::new());
        let mut arena = ShardArena::with_capacity(3, 4096);
        let (from, to) = (PathKey::new("a"), PathKey::new("b"));
        let keys = shard_spec_from_keys_into(&from, &to, b"m", &mut start, &mut end, &mut arena);
        let prefix = shard_spec_from_prefix_into(b"p/", b"m", &mut end, &mut arena);
        let rows =
            shard_spec_from_manifest_range_into(7, 1, 9, b"m", &mut start, &mut end, &mut arena);
        let stored = |handle| arena.view_spec(handle);

        let lent = shard_spec_from_keys_ref(&from, &to, b"m", &mut start, &mut end);
        assert_eq!(stored(keys.unwrap()), lent.unwrap());
        let lent = shard_spec_from_prefix_ref(b"p/", b"m", &mut end);
        assert_eq!(stored(prefix.unwrap()), lent.unwrap());
        let lent = shard_spec_from_manifest_range_ref(7, 1, 9, b"m", &mut start, &mut end);
        assert_eq!(stored(rows.unwrap()), lent.unwrap());
    }

    #[test]
    fn into_forms_surface_a_full_arena() {
        let mut arena = ShardArena::with_capacity(1, 4096);
        let mut end = KeyBuf::new();
        shard_spec_from_prefix_into(b"a", b"", &mut end, &mut arena).unwrap();
        let full = shard_spec_from_prefix_into(b"b", b"", &mut end, &mut arena).unwrap_err();
        assert!(matches!(full, ShardIntoError::SlabFull(_)));
        assert!(full.source().is_some());
    }
}
