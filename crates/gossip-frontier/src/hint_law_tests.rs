//! Guarantees of hints beyond the matrix of `hint_tests`: canonical bytes, order of errors,
//! redaction.

use std::error::Error;

use gossip_contracts::coordination::ShardSpecInputError;
use proptest::collection::vec;
use proptest::prelude::*;

use super::hint_tests::{MANIFEST, any_hint, encoded, manifest, row_key};
use super::*;
use crate::key_encoding::{KeyBuf, prefix_successor};

#[test]
fn shard_hint_encode_rejects_oversized_prefixes() {
    let max = MAX_METADATA_SIZE;
    let prefix = vec![0; max - 4];
    let refused = ShardHint::Prefix { prefix: &prefix }.encoded_len();
    assert_eq!(refused, Err(ShardEncodeError::HintTooLarge { size: max + 1, max }));
    assert_eq!(prefix_frame_len(max - PREFIX_HEADER_LEN), Ok(max));
    // Beyond the length field; only the length is checked, so no such prefix is allocated.
    let max = u32::MAX as usize;
    let too_large = |size| Err(ShardEncodeError::PrefixTooLarge { size, max });
    assert_eq!(prefix_frame_len(max + 1), too_large(max + 1));
    assert_eq!(prefix_frame_len(usize::MAX), too_large(usize::MAX));
}

#[test]
fn failed_encodings_leave_the_buffer_unchanged() {
    let mut buf = MetadataBuf::default();
    let written = encoded(MANIFEST);
    MANIFEST.encode_into(&mut buf).unwrap();
    manifest(1, 2, 2).encode_into(&mut buf).unwrap_err();
    assert_eq!(buf.bytes[..written.len()], written);
}

#[test]
fn errors_include_their_cause() {
    let error = ShardMetadata::decode(b"\0\0\0\x01\x09").unwrap_err();
    assert_eq!(error.to_string(), "shard metadata is malformed: bad hint");
    assert_eq!(error.source().unwrap().to_string(), "shard hint has unknown tag 0x09");
    let error = ShardMetadata::decode(b"\0").unwrap_err();
    assert_eq!(error.to_string(), "shard metadata is malformed: bad envelope");
    assert!(error.source().is_none());
}

#[test]
fn debug_shows_lengths_only() {
    let prefix = ShardHint::Prefix { prefix: b"secret" };
    assert_eq!(
        format!("{:?}", ShardMetadata::new(prefix, b"hidden!")),
        "ShardMetadata { hint: Prefix { prefix_len: 6 }, connector_extra_len: 7 }"
    );
    assert_eq!(format!("{:?}", ShardHint::Range), "Range");
    assert_eq!(format!("{MANIFEST:?}"), "Manifest { manifest_id: 7, start_row: 10, end_row: 20 }");
    let mut scratch = ShardSpecScratch::new();
    prefix_shard_ref(b"secret", b"hidden", &mut scratch).unwrap();
    let shown = format!("{scratch:?}");
    assert!(shown.contains("KeyBuf { len: 6, .. }"), "{shown}");
    assert!(shown.contains("MetadataBuf { capacity: 16384, .. }"), "{shown}");
}

/// The order of checks of every shard: start, end, metadata, inverted range.
#[test]
fn range_shard_is_checked_in_the_order_of_every_shard() {
    let mut scratch = ShardSpecScratch::new();
    let (key, extra) = (vec![b'k'; MAX_KEY_SIZE + 2], vec![0; MAX_METADATA_SIZE]);
    let too_large = |size| ShardSpecInputError::KeyTooLarge { size, max: MAX_KEY_SIZE };
    let mut check = |start, end, extra, expected| {
        assert_eq!(range_shard_ref(start, end, extra, &mut scratch), Err(expected));
    };
    check(&key, &key[1..], &extra[..], too_large(MAX_KEY_SIZE + 2));
    check(b"z", &key[1..], &extra, too_large(MAX_KEY_SIZE + 1));
    let (size, max) = (MAX_METADATA_SIZE + 5, MAX_METADATA_SIZE);
    check(b"z", b"a", &extra, ShardSpecInputError::MetadataTooLarge { size, max });
    let (start_len, end_len) = (1, 1);
    check(b"z", b"a", b"", ShardSpecInputError::InvertedRange { start_len, end_len });
}

#[test]
fn propagate_hint_on_split_prefix_without_successor_has_no_end() {
    for prefix in [&b"\xFF"[..], b"", &[b'p'; MAX_KEY_SIZE + 1]] {
        let start = [prefix, b"a"].concat();
        let child = propagate_hint_on_split(ShardHint::Prefix { prefix }, &start, b"\xFF\xFF\xFF");
        let boundary = SplitBoundary::End;
        assert_eq!(child, Err(HintPropagationError::InvalidPrefixBoundary { boundary }));
    }
}

#[test]
fn errors_name_the_boundary() {
    let boundary = SplitBoundary::Start;
    let error = HintPropagationError::InvalidManifestBoundary { boundary };
    assert_eq!(error.to_string(), "child start is not a row of its parent");
    let boundary = SplitBoundary::End;
    let error = HintPropagationError::InvalidPrefixBoundary { boundary };
    assert_eq!(error.to_string(), "child end lies outside the prefix of its parent");
}

proptest! {
    /// For any bytes: no panic, and accepted input encodes to the same bytes.
    #[test]
    fn shard_hint_decode_accepts_canonical_bytes_only(
        tag in 0..4_u8,
        len in 0..12_u32,
        rest in vec(any::<u8>(), 0..40),
    ) {
        let bytes = [&[tag][..], &len.to_be_bytes(), &rest].concat();
        if let Ok((hint, consumed)) = ShardHint::decode(&bytes) {
            prop_assert_eq!(encoded(hint), &bytes[..consumed]);
        }
    }

    /// Every truncated frame is rejected, at any length.
    #[test]
    fn shard_hint_decode_rejects_every_truncation(
        hint in any_hint(),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = encoded(hint.as_hint());
        prop_assert!(ShardHint::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn shard_metadata_decode_accepts_canonical_bytes_only(
        hint_len in 0..30_u32,
        tag in 0..4_u8,
        prefix_len in 0..12_u32,
        rest in vec(any::<u8>(), 0..40),
    ) {
        let header = [&hint_len.to_be_bytes()[..], &[tag], &prefix_len.to_be_bytes()].concat();
        let bytes = [&header[..], &rest].concat();
        if let Ok(metadata) = ShardMetadata::decode(&bytes) {
            let mut buf = MetadataBuf::new();
            prop_assert_eq!(metadata.encode_into(&mut buf), Ok(&bytes[..]));
        }
    }

    /// A child of a prefix gets a hint exactly when all of its keys have the prefix.
    #[test]
    fn prefix_children_lie_within_the_prefix(
        prefix in vec(0..4_u8, 1..3),
        start in vec(0..4_u8, 1..4),
        end in vec(0..4_u8, 1..4),
    ) {
        let child = propagate_hint_on_split(ShardHint::Prefix { prefix: &prefix }, &start, &end);
        let mut buf = KeyBuf::new();
        let prefix_end = prefix_successor(&prefix, &mut buf).unwrap();
        let within = prefix[..] <= start[..] && start < end && end[..] <= *prefix_end;
        prop_assert_eq!(child.is_ok(), within);
    }

    /// Both children of a split tile the rows of their parent.
    #[test]
    fn manifest_children_tile_their_parent(
        id: u64,
        start in 0..1000_u64,
        len in 2..1000_u64,
        at: u64,
    ) {
        let (end, cut) = (start + len, start + 1 + at % (len - 1));
        let parent = manifest(id, start, end);
        let keys = [start, cut, end].map(|row| row_key(id, row));
        let child = propagate_hint_on_split(parent, &keys[0], &keys[1]);
        prop_assert_eq!(child, Ok(manifest(id, start, cut)));
        let child = propagate_hint_on_split(parent, &keys[1], &keys[2]);
        prop_assert_eq!(child, Ok(manifest(id, cut, end)));
    }
}
