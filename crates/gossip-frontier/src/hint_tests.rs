//! The wire format of hints, shards built with them, and hints across splits.

use gossip_contracts::coordination::{ShardArena, ShardSpec, ShardSpecInputError, ShardSpecRef};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::key_encoding::{KeyBuf, KeyEncoding, ManifestRowKey, PrefixShardError, ShardIntoError};

pub(super) const MANIFEST: ShardHint<'static> = manifest(7, 10, 20);

pub(super) const fn manifest(manifest_id: u64, start_row: u64, end_row: u64) -> ShardHint<'static> {
    ShardHint::Manifest { manifest_id, start_row, end_row }
}

pub(super) fn encoded(hint: ShardHint<'_>) -> Vec<u8> {
    hint.encode_into(&mut MetadataBuf::new()).unwrap().to_vec()
}

pub(super) fn row_key(manifest_id: u64, row: u64) -> Vec<u8> {
    let mut buf = KeyBuf::new();
    ManifestRowKey::new(manifest_id, row).encode_into(&mut buf);
    buf.as_bytes().to_vec()
}

/// Owns the bytes that a hint borrows.
#[derive(Clone, Debug)]
pub(super) enum OwnedHint {
    Range,
    Prefix(Vec<u8>),
    Manifest(u64, u64, u64),
}

impl OwnedHint {
    pub(super) fn as_hint(&self) -> ShardHint<'_> {
        match *self {
            Self::Range => ShardHint::Range,
            Self::Prefix(ref prefix) => ShardHint::Prefix { prefix },
            Self::Manifest(id, start_row, end_row) => manifest(id, start_row, end_row),
        }
    }
}

pub(super) fn any_hint() -> impl Strategy<Value = OwnedHint> {
    let rows = (any::<u64>(), 0..u64::MAX).prop_flat_map(|(id, start)| {
        (start + 1..=u64::MAX).prop_map(move |end| OwnedHint::Manifest(id, start, end))
    });
    prop_oneof![Just(OwnedHint::Range), vec(any::<u8>(), 0..200).prop_map(OwnedHint::Prefix), rows,]
}

mod frames {
    use super::*;

    fn assert_round_trip(hint: ShardHint<'_>, bytes: &[u8]) {
        assert_eq!(hint.encoded_len(), Ok(bytes.len()));
        assert_eq!(encoded(hint), bytes);
        assert_eq!(ShardHint::decode(bytes), Ok((hint, bytes.len())));
    }

    #[test]
    fn shard_hint_range_roundtrip() {
        assert_round_trip(ShardHint::Range, &[0x00]);
    }

    #[test]
    fn shard_hint_prefix_roundtrip() {
        let hint = ShardHint::Prefix { prefix: b"ab" };
        assert_round_trip(hint, &[0x01, 0, 0, 0, 2, b'a', b'b']);
        assert_round_trip(ShardHint::Prefix { prefix: b"" }, &[0x01, 0, 0, 0, 0]);
        let longest = vec![0xFF; MAX_METADATA_SIZE - PREFIX_HEADER_LEN];
        let hint = ShardHint::Prefix { prefix: &longest };
        assert_round_trip(hint, &encoded(hint));
    }

    #[test]
    fn shard_hint_manifest_roundtrip() {
        let bytes =
            [0x02, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 20];
        assert_round_trip(MANIFEST, &bytes);
        let extreme = manifest(u64::MAX, 0, u64::MAX);
        assert_round_trip(extreme, &encoded(extreme));
    }

    proptest! {
        #[test]
        fn shard_hint_proptest_roundtrip(hint in any_hint(), trailing in vec(any::<u8>(), 0..20)) {
            let hint = hint.as_hint();
            let mut bytes = encoded(hint);
            let len = bytes.len();
            prop_assert_eq!(hint.encoded_len(), Ok(len));
            bytes.extend(trailing);
            prop_assert_eq!(ShardHint::decode(&bytes), Ok((hint, len)));
        }
    }

    #[test]
    fn shard_hint_decode_rejects_empty_data() {
        assert_eq!(ShardHint::decode(b""), Err(ShardHintDecodeError::EmptyData));
    }

    #[test]
    fn shard_hint_decode_rejects_unknown_tag() {
        for tag in 0x03..=0xFF {
            let refused = ShardHint::decode(&[tag, 0, 0, 0, 0]).unwrap_err();
            assert_eq!(refused, ShardHintDecodeError::UnknownTag(tag));
        }
    }

    #[test]
    fn shard_hint_decode_rejects_truncated_prefix_header() {
        for actual in 1..PREFIX_HEADER_LEN {
            let refused = ShardHint::decode(&[0x01, 0, 0, 0][..actual]).unwrap_err();
            let expected = ShardHintDecodeError::TruncatedPrefix { expected_min: 5, actual };
            assert_eq!(refused, expected);
        }
    }

    #[test]
    fn shard_hint_decode_rejects_truncated_prefix_payload() {
        let refused = ShardHint::decode(&[0x01, 0, 0, 0, 3, b'a', b'b']).unwrap_err();
        let expected = ShardHintDecodeError::TruncatedPrefix { expected_min: 8, actual: 7 };
        assert_eq!(refused, expected);
        // A forged length costs nothing.
        let refused = ShardHint::decode(&[0x01, 0xFF, 0xFF, 0xFF, 0xFF]).unwrap_err();
        let expected_min = 5 + u32::MAX as usize;
        assert_eq!(refused, ShardHintDecodeError::TruncatedPrefix { expected_min, actual: 5 });
    }

    #[test]
    fn shard_hint_decode_rejects_truncated_manifest() {
        let bytes = encoded(MANIFEST);
        for actual in 1..bytes.len() {
            let refused = ShardHint::decode(&bytes[..actual]).unwrap_err();
            let expected = ShardHintDecodeError::TruncatedManifest { expected_min: 25, actual };
            assert_eq!(refused, expected);
        }
    }

    /// Returns a manifest frame that the encoder would not write.
    fn raw_manifest(manifest_id: u64, start_row: u64, end_row: u64) -> Vec<u8> {
        let mut bytes = vec![0x02];
        for field in [manifest_id, start_row, end_row] {
            bytes.extend(field.to_be_bytes());
        }
        bytes
    }

    fn assert_decode_inverted(start_row: u64, end_row: u64) {
        let refused = ShardHint::decode(&raw_manifest(7, start_row, end_row)).map(|_| ());
        let expected = ShardHintDecodeError::InvertedManifestRows { start_row, end_row };
        assert_eq!(refused, Err(expected));
    }

    fn assert_encode_inverted(start_row: u64, end_row: u64) {
        let hint = manifest(7, start_row, end_row);
        let expected = ShardEncodeError::InvertedManifestRows { start_row, end_row };
        assert_eq!(hint.encoded_len(), Err(expected));
        assert_eq!(hint.encode_into(&mut MetadataBuf::new()), Err(expected));
    }

    #[test]
    fn shard_hint_decode_rejects_inverted_manifest_rows() {
        assert_decode_inverted(20, 10);
    }

    #[test]
    fn shard_hint_decode_rejects_equal_manifest_rows() {
        assert_decode_inverted(10, 10);
        assert_decode_inverted(u64::MAX, u64::MAX);
    }

    #[test]
    fn shard_hint_encode_rejects_inverted_manifest_rows() {
        assert_encode_inverted(20, 10);
    }

    #[test]
    fn shard_hint_encode_rejects_equal_manifest_rows() {
        assert_encode_inverted(0, 0);
        assert_encode_inverted(u64::MAX, u64::MAX);
    }

    #[test]
    fn shard_hint_decode_rejects_raw_inverted_manifest() {
        // A valid frame whose two row fields are swapped on the wire.
        let mut bytes = encoded(MANIFEST);
        let (start, end) = bytes[9..].split_at_mut(8);
        start.swap_with_slice(end);
        let expected = ShardHintDecodeError::InvertedManifestRows { start_row: 20, end_row: 10 };
        assert_eq!(ShardHint::decode(&bytes), Err(expected));
    }

    #[test]
    fn shard_hint_decode_returns_consumed_length_with_trailing_bytes() {
        let hints = [ShardHint::Range, ShardHint::Prefix { prefix: b"p/" }, MANIFEST];
        for (hint, len) in hints.into_iter().zip([1, 7, 25]) {
            let bytes = [&encoded(hint)[..], b"trailing"].concat();
            assert_eq!(ShardHint::decode(&bytes), Ok((hint, len)));
        }
    }
}

mod metadata {
    use super::*;

    fn encoded(metadata: ShardMetadata<'_>) -> Vec<u8> {
        metadata.encode_into(&mut MetadataBuf::new()).unwrap().to_vec()
    }

    const ENVELOPE: Result<ShardMetadata<'static>, ShardMetadataDecodeError> =
        Err(ShardMetadataDecodeError { hint_error: None });

    #[test]
    fn shard_metadata_encode_decode_roundtrip() {
        let metadata = ShardMetadata::new(ShardHint::Prefix { prefix: b"p" }, b"extra");
        let bytes = encoded(metadata);
        assert_eq!(bytes, b"\0\0\0\x06\x01\0\0\0\x01pextra");
        assert_eq!(metadata.encoded_len(), Ok(bytes.len()));
        assert_eq!(ShardMetadata::decode(&bytes), Ok(metadata));
        let alone = ShardMetadata::from_hint(ShardHint::Range);
        assert_eq!(encoded(alone), [0, 0, 0, 1, 0]);
        assert_eq!(ShardMetadata::decode(&encoded(alone)), Ok(alone));
    }

    proptest! {
        #[test]
        fn shard_metadata_proptest_roundtrip(
            hint in any_hint(),
            extra in vec(any::<u8>(), 0..300),
        ) {
            let metadata = ShardMetadata::new(hint.as_hint(), &extra);
            let bytes = encoded(metadata);
            prop_assert_eq!(metadata.encoded_len(), Ok(bytes.len()));
            prop_assert_eq!(ShardMetadata::decode(&bytes), Ok(metadata));
        }
    }

    #[test]
    fn shard_metadata_decode_empty_defaults_to_range_hint() {
        let plain = ShardMetadata::new(ShardHint::Range, b"");
        assert_eq!(ShardMetadata::decode(b""), Ok(plain));
    }

    #[test]
    fn shard_metadata_decode_rejects_non_empty_non_conforming_input() {
        // Too short for the length field.
        for bytes in [&b"\0"[..], b"\0\0", b"\0\0\0"] {
            assert_eq!(ShardMetadata::decode(bytes), ENVELOPE);
        }
        // A length beyond the input.
        assert_eq!(ShardMetadata::decode(b"\0\0\0\x02\0"), ENVELOPE);
        assert_eq!(ShardMetadata::decode(b"\xFF\xFF\xFF\xFF\0"), ENVELOPE);
        // A hint that does not consume its declared length.
        assert_eq!(ShardMetadata::decode(b"\0\0\0\x02\0\0"), ENVELOPE);
        // A valid envelope around an invalid hint.
        let hint = |error| Err(ShardMetadataDecodeError { hint_error: Some(error) });
        let empty = hint(ShardHintDecodeError::EmptyData);
        assert_eq!(ShardMetadata::decode(b"\0\0\0\0"), empty);
        assert_eq!(ShardMetadata::decode(b"\0\0\0\0extra"), empty);
        let unknown = hint(ShardHintDecodeError::UnknownTag(9));
        assert_eq!(ShardMetadata::decode(b"\0\0\0\x01\x09"), unknown);
        // Bytes after the declared hint do not complete it.
        let truncated = ShardHintDecodeError::TruncatedPrefix { expected_min: 5, actual: 2 };
        assert_eq!(ShardMetadata::decode(b"\0\0\0\x02\x01\0\0\0\0"), hint(truncated));
    }

    #[test]
    fn shard_metadata_encode_rejects_oversized_payload() {
        let max = MAX_METADATA_SIZE;
        let extra = vec![7; max];
        let fits = ShardMetadata::new(ShardHint::Range, &extra[..max - 5]);
        assert_eq!(encoded(fits).len(), max);
        let oversized = ShardMetadata::new(ShardHint::Range, &extra[..max - 4]);
        let refused = ShardEncodeError::MetadataTooLarge { size: max + 1, max };
        assert_eq!(oversized.encoded_len(), Err(refused));
        assert_eq!(oversized.encode_into(&mut MetadataBuf::new()), Err(refused));
        // The hint fits alone, but not together with its length field.
        let prefix = &extra[..max - PREFIX_HEADER_LEN];
        let refused = ShardMetadata::from_hint(ShardHint::Prefix { prefix }).encoded_len();
        assert_eq!(refused, Err(ShardEncodeError::MetadataTooLarge { size: max + 4, max }));
        // An error of the hint is reported before an error of the whole.
        let refused = ShardMetadata::new(manifest(1, 2, 2), &extra).encoded_len();
        let rows = ShardEncodeError::InvertedManifestRows { start_row: 2, end_row: 2 };
        assert_eq!(refused, Err(rows));
    }
}

mod shards {
    use super::*;

    /// Checks a borrowed shard and its stored copy against their inputs.
    fn assert_decodes(spec: ShardSpecRef<'_>, hint: ShardHint<'_>, extra: &[u8]) {
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!(decode_metadata(spec), Ok(ShardMetadata::new(hint, extra)));
        assert_eq!(decode_hint(spec), Ok(hint));
        assert_eq!(decode_connector_extra(spec), Ok(extra));
        let owned = ShardSpec::try_from(spec).unwrap();
        assert_eq!(decode_metadata(&owned), decode_metadata(spec));
    }

    #[test]
    fn range_shard_roundtrip_with_decode_helpers() {
        let (mut scratch, mut arena) =
            (ShardSpecScratch::new(), ShardArena::with_capacity(1, 4096));
        let handle = range_shard_into(b"a", b"m", b"extra", &mut scratch, &mut arena).unwrap();
        let spec = range_shard_ref(b"a", b"m", b"extra", &mut scratch).unwrap();
        assert_eq!((spec.start, spec.end), (&b"a"[..], &b"m"[..]));
        assert_decodes(spec, ShardHint::Range, b"extra");
        assert_eq!(arena.view_spec(handle), spec);
    }

    #[test]
    fn prefix_shard_roundtrip_with_decode_helpers() {
        let (mut scratch, mut arena) =
            (ShardSpecScratch::new(), ShardArena::with_capacity(1, 4096));
        let handle = prefix_shard_into(b"logs/", b"extra", &mut scratch, &mut arena).unwrap();
        let spec = prefix_shard_ref(b"logs/", b"extra", &mut scratch).unwrap();
        assert_eq!((spec.start, spec.end), (&b"logs/"[..], &b"logs0"[..]));
        assert_decodes(spec, ShardHint::Prefix { prefix: b"logs/" }, b"extra");
        assert_eq!(arena.view_spec(handle), spec);
    }

    #[test]
    fn manifest_shard_roundtrip_with_decode_helpers() {
        let (mut scratch, mut arena) =
            (ShardSpecScratch::new(), ShardArena::with_capacity(1, 4096));
        let handle = manifest_shard_into(7, 10, 20, b"extra", &mut scratch, &mut arena).unwrap();
        let spec = manifest_shard_ref(7, 10, 20, b"extra", &mut scratch).unwrap();
        assert_eq!((spec.start, spec.end), (&row_key(7, 10)[..], &row_key(7, 20)[..]));
        assert_decodes(spec, MANIFEST, b"extra");
        assert_eq!(arena.view_spec(handle), spec);
    }

    fn assert_prefix_refused(prefix: &[u8], expected: PrefixShardError) {
        let (mut scratch, mut arena) =
            (ShardSpecScratch::new(), ShardArena::with_capacity(1, 4096));
        assert_eq!(prefix_shard_ref(prefix, b"", &mut scratch), Err(expected.clone()));
        let stored = prefix_shard_into(prefix, b"", &mut scratch, &mut arena);
        assert_eq!(stored, Err(ShardIntoError::Build(expected)));
        assert_eq!(arena.live_specs(), 0);
    }

    #[test]
    fn prefix_shard_rejects_oversized_prefix_with_prefix_too_large() {
        let size = MAX_KEY_SIZE + 1;
        let expected = PrefixShardError::PrefixTooLarge { size, max: MAX_KEY_SIZE };
        assert_prefix_refused(&vec![b'p'; size], expected);
        // Larger than any metadata: still reported as an error of the prefix.
        let size = 2 * MAX_METADATA_SIZE;
        let expected = PrefixShardError::PrefixTooLarge { size, max: MAX_KEY_SIZE };
        assert_prefix_refused(&vec![b'p'; size], expected);
    }

    #[test]
    fn prefix_shard_rejects_all_ff_prefix() {
        assert_prefix_refused(&[0xFF], PrefixShardError::NoSuccessor);
        assert_prefix_refused(&[0xFF; MAX_KEY_SIZE], PrefixShardError::NoSuccessor);
    }

    #[test]
    fn prefix_shard_rejects_empty_prefix() {
        assert_prefix_refused(b"", PrefixShardError::EmptyPrefix);
    }

    proptest! {
        #[test]
        fn prefix_shard_contains_all_keys_with_prefix(
            prefix in vec(prop_oneof![Just(0xFF), any::<u8>()], 1..10),
            rest in vec(prop_oneof![Just(0xFF), any::<u8>()], 0..40),
            other in vec(any::<u8>(), 1..10),
        ) {
            let mut scratch = ShardSpecScratch::new();
            if let Ok(spec) = prefix_shard_ref(&prefix, b"", &mut scratch) {
                prop_assert!(spec.contains_key(&[&prefix[..], &rest].concat()));
                prop_assert_eq!(spec.contains_key(&other), other.starts_with(&prefix));
            } else {
                prop_assert!(prefix.iter().all(|&byte| byte == 0xFF));
            }
        }
    }

    #[test]
    fn decode_helpers_propagate_malformed_metadata_errors() {
        let check = |metadata: &[u8], error| {
            let spec = ShardSpecRef::new(b"a", b"b", metadata);
            assert_eq!(decode_metadata(spec), Err(error));
            assert_eq!(decode_hint(spec), Err(error));
            assert_eq!(decode_connector_extra(spec), Err(error));
        };
        check(b"\0\0", ShardMetadataDecodeError { hint_error: None });
        let unknown = ShardHintDecodeError::UnknownTag(0x55);
        check(b"\0\0\0\x01\x55tail", ShardMetadataDecodeError { hint_error: Some(unknown) });
    }

    #[test]
    fn range_shard_rejects_oversized_metadata() {
        let (mut scratch, mut arena) =
            (ShardSpecScratch::new(), ShardArena::with_capacity(1, 4096));
        let max = MAX_METADATA_SIZE;
        let extra = vec![0; max];
        let refused = ShardSpecInputError::MetadataTooLarge { size: max + 5, max };
        assert_eq!(range_shard_ref(b"a", b"b", &extra, &mut scratch), Err(refused));
        let stored = range_shard_into(b"a", b"b", &extra, &mut scratch, &mut arena);
        assert_eq!(stored, Err(ShardIntoError::Build(refused)));
        // The other two constructors report the same in their own error types.
        let refused = ShardSpecInputError::MetadataTooLarge { size: max + 29, max };
        assert_eq!(manifest_shard_ref(1, 2, 3, &extra, &mut scratch), Err(refused));
        let refused = ShardSpecInputError::MetadataTooLarge { size: max + 10, max };
        let expected = Err(PrefixShardError::InvalidShardSpec(refused));
        assert_eq!(prefix_shard_ref(b"p", &extra, &mut scratch), expected);
    }

    /// Of two faults the first in the order of checks of every shard is reported: the size of a
    /// bound, the size of the metadata, the inverted range.
    #[test]
    fn range_shard_reports_the_first_of_two_faults() {
        let mut scratch = ShardSpecScratch::new();
        let extra = vec![0; MAX_METADATA_SIZE];
        let long = vec![b'k'; MAX_KEY_SIZE + 1];
        let mut refused =
            |start, end, extra| range_shard_ref(start, end, extra, &mut scratch).unwrap_err();
        assert_eq!(refused(&long, b"z", &extra), LONG_KEY);
        assert_eq!(refused(b"a", &long, &extra), LONG_KEY);
        assert_eq!(refused(&long, b"a", b""), LONG_KEY);
        assert_eq!(refused(b"b", b"a", &extra), oversized(5));
        assert_eq!(refused(b"a", b"a", &extra), oversized(5));
    }

    /// An invalid prefix has no range, so no error of the range can be reported.
    #[test]
    fn prefix_shard_reports_the_first_of_two_faults() {
        let mut scratch = ShardSpecScratch::new();
        let extra = vec![0; MAX_METADATA_SIZE];
        let mut refused =
            |prefix: &[u8]| prefix_shard_ref(prefix, &extra, &mut scratch).unwrap_err();
        assert_eq!(refused(b""), PrefixShardError::EmptyPrefix);
        assert_eq!(refused(b"\xFF"), PrefixShardError::NoSuccessor);
        let (size, max) = (MAX_KEY_SIZE + 1, MAX_KEY_SIZE);
        let too_large = PrefixShardError::PrefixTooLarge { size, max };
        assert_eq!(refused(&vec![0xFF; size]), too_large);
    }

    #[test]
    fn manifest_shard_reports_the_first_of_two_faults() {
        let (mut scratch, mut arena) =
            (ShardSpecScratch::new(), ShardArena::with_capacity(1, 4096));
        let extra = vec![0; MAX_METADATA_SIZE];
        for (start_row, end_row) in [(20, 10), (10, 10), (u64::MAX, 0)] {
            let spec = manifest_shard_ref(7, start_row, end_row, &extra, &mut scratch);
            assert_eq!(spec, Err(oversized(29)));
            let stored =
                manifest_shard_into(7, start_row, end_row, &extra, &mut scratch, &mut arena);
            assert_eq!(stored, Err(ShardIntoError::Build(oversized(29))));
        }
        // With metadata just small enough, the rows are reported.
        let fits = &extra[29..];
        let spec = manifest_shard_ref(7, 20, 10, fits, &mut scratch);
        assert!(matches!(spec, Err(ShardSpecInputError::InvertedRange { .. })));
    }

    const LONG_KEY: ShardSpecInputError =
        ShardSpecInputError::KeyTooLarge { size: MAX_KEY_SIZE + 1, max: MAX_KEY_SIZE };

    /// Returns the error for connector bytes that fill all metadata, with `framing` bytes around
    /// them.
    fn oversized(framing: usize) -> ShardSpecInputError {
        let max = MAX_METADATA_SIZE;
        let size = max + framing;
        ShardSpecInputError::MetadataTooLarge { size, max }
    }

    #[test]
    fn manifest_shard_rejects_inverted_rows() {
        let (mut scratch, mut arena) =
            (ShardSpecScratch::new(), ShardArena::with_capacity(1, 4096));
        let refused = ShardSpecInputError::InvertedRange { start_len: 16, end_len: 16 };
        for (start_row, end_row) in [(20, 10), (10, 10), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            let spec = manifest_shard_ref(7, start_row, end_row, b"", &mut scratch);
            assert_eq!(spec, Err(refused));
            let stored = manifest_shard_into(7, start_row, end_row, b"", &mut scratch, &mut arena);
            assert_eq!(stored, Err(ShardIntoError::Build(refused)));
        }
    }
}

mod propagation {
    use super::*;

    fn propagate(
        parent: ShardHint<'_>,
        start: &[u8],
        end: &[u8],
    ) -> Result<ShardHint<'static>, HintPropagationError> {
        propagate_hint_on_split(parent, start, end)
    }

    #[test]
    fn propagate_hint_on_split_range_stays_range() {
        for (start, end) in [(&b"a"[..], &b"m"[..]), (b"", b""), (b"z", b"a")] {
            assert_eq!(propagate(ShardHint::Range, start, end), Ok(ShardHint::Range));
        }
    }

    const PREFIX: ShardHint<'static> = ShardHint::Prefix { prefix: b"logs/" };

    fn assert_prefix_refused(start: &[u8], end: &[u8], boundary: SplitBoundary) {
        let expected = HintPropagationError::InvalidPrefixBoundary { boundary };
        assert_eq!(propagate(PREFIX, start, end), Err(expected));
    }

    #[test]
    fn propagate_hint_on_split_prefix_demotes_to_range() {
        // The whole, the first, a middle and the last part.
        let parts: [(&[u8], &[u8]); 4] = [
            (b"logs/", b"logs0"),
            (b"logs/", b"logs/m"),
            (b"logs/a", b"logs/m"),
            (b"logs/m", b"logs0"),
        ];
        for (start, end) in parts {
            assert_eq!(propagate(PREFIX, start, end), Ok(ShardHint::Range));
        }
    }

    #[test]
    fn propagate_hint_on_split_prefix_rejects_out_of_range_start() {
        for start in [&b""[..], b"a", b"logs", b"logs.", b"logs0", b"z"] {
            assert_prefix_refused(start, b"logs/z", SplitBoundary::Start);
        }
        // Both bounds are invalid: the start is reported first.
        assert_prefix_refused(b"a", b"z", SplitBoundary::Start);
    }

    #[test]
    fn propagate_hint_on_split_prefix_rejects_out_of_range_end() {
        for end in [&b"logs0\0"[..], b"z", b""] {
            assert_prefix_refused(b"logs/a", end, SplitBoundary::End);
        }
        // Inside the prefix, but not above the start.
        assert_prefix_refused(b"logs/m", b"logs/m", SplitBoundary::End);
        assert_prefix_refused(b"logs/m", b"logs/a", SplitBoundary::End);
    }

    #[test]
    fn propagate_hint_on_split_manifest_adjusts_child_rows() {
        let child = propagate(MANIFEST, &row_key(7, 12), &row_key(7, 15));
        assert_eq!(child, Ok(manifest(7, 12, 15)));
        let child = propagate(MANIFEST, &row_key(7, 10), &row_key(7, 15));
        assert_eq!(child, Ok(manifest(7, 10, 15)));
    }

    #[test]
    fn propagate_hint_on_split_manifest_child_end_at_parent_end() {
        let child = propagate(MANIFEST, &row_key(7, 15), &row_key(7, 20));
        assert_eq!(child, Ok(manifest(7, 15, 20)));
        let widest = manifest(u64::MAX, 0, u64::MAX);
        let last =
            propagate(widest, &row_key(u64::MAX, u64::MAX - 1), &row_key(u64::MAX, u64::MAX));
        assert_eq!(last, Ok(manifest(u64::MAX, u64::MAX - 1, u64::MAX)));
    }

    fn assert_manifest_refused(start: &[u8], end: &[u8], expected: HintPropagationError) {
        assert_eq!(propagate(MANIFEST, start, end), Err(expected));
    }

    const BAD_START: HintPropagationError =
        HintPropagationError::InvalidManifestBoundary { boundary: SplitBoundary::Start };
    const BAD_END: HintPropagationError =
        HintPropagationError::InvalidManifestBoundary { boundary: SplitBoundary::End };

    #[test]
    fn propagate_hint_on_split_manifest_rejects_non_manifest_boundaries() {
        for start in [&b""[..], b"path/to/file", &[0; 15], &[0; 17]] {
            assert_manifest_refused(start, &row_key(7, 15), BAD_START);
        }
        // Both bounds are invalid: the start is reported first.
        assert_manifest_refused(b"a", b"b", BAD_START);
    }

    #[test]
    fn propagate_hint_on_split_manifest_rejects_manifest_id_mismatch() {
        let expected = HintPropagationError::ManifestIdMismatch { parent: 7, child: 8 };
        assert_manifest_refused(&row_key(8, 12), &row_key(7, 15), expected);
        // The manifest is checked before the row.
        assert_manifest_refused(&row_key(8, 99), &row_key(7, 15), expected);
    }

    #[test]
    fn propagate_hint_on_split_manifest_rejects_out_of_parent_bounds() {
        for row in [0, 9, 21, u64::MAX] {
            assert_manifest_refused(&row_key(7, row), &row_key(7, 15), BAD_START);
        }
        assert_manifest_refused(&row_key(7, 12), &row_key(7, 9), BAD_END);
    }

    #[test]
    fn propagate_hint_on_split_manifest_rejects_empty_child_range() {
        for (start_row, end_row) in [(15, 15), (15, 12), (20, 20), (10, 10)] {
            let expected = HintPropagationError::EmptyManifestRange { start_row, end_row };
            assert_manifest_refused(&row_key(7, start_row), &row_key(7, end_row), expected);
        }
    }

    #[test]
    fn propagate_hint_on_split_manifest_rejects_non_manifest_end_boundary() {
        for end in [&b""[..], b"path/to/file", &[0; 15], &[0xFF; 17]] {
            assert_manifest_refused(&row_key(7, 12), end, BAD_END);
        }
    }

    #[test]
    fn propagate_hint_on_split_manifest_rejects_end_manifest_id_mismatch() {
        let expected = HintPropagationError::ManifestIdMismatch { parent: 7, child: 8 };
        assert_manifest_refused(&row_key(7, 12), &row_key(8, 0), expected);
    }

    #[test]
    fn propagate_hint_on_split_manifest_rejects_end_row_beyond_parent() {
        for row in [21, u64::MAX] {
            assert_manifest_refused(&row_key(7, 12), &row_key(7, row), BAD_END);
        }
    }
}
