//! Shards built together with the hint that describes them.

use gossip_contracts::coordination::{
    ShardArena, ShardSpec, ShardSpecHandle, ShardSpecInputError, ShardSpecRef,
};

use super::{
    MANIFEST_FRAME_LEN, MetadataBuf, ShardEncodeError, ShardHint, ShardMetadata, envelope_len,
};
use crate::key_encoding::{
    KeyBuf, KeyEncoding, ManifestRowKey, PrefixShardError, ShardIntoError, prefix_end, store,
    validated,
};

/// Scratch space for building one shard at a time: two bounds and the metadata.
///
/// A borrowed shard aliases it; the borrow checker ends that borrow before the next use.
#[derive(Debug, Default)]
pub struct ShardSpecScratch {
    start: KeyBuf,
    end: KeyBuf,
    metadata: MetadataBuf,
}

impl ShardSpecScratch {
    /// Returns empty scratch space of about 24 KiB, stored inline.
    pub const fn new() -> Self {
        Self { start: KeyBuf::new(), end: KeyBuf::new(), metadata: MetadataBuf::new() }
    }
}

/// Builds a shard `[start, end)` with a [`ShardHint::Range`].
///
/// # Errors
/// If the start, the end or the metadata is too large, or the range is inverted, in this order.
pub fn range_shard_ref<'a>(
    start: &'a [u8],
    end: &'a [u8],
    connector_extra: &[u8],
    scratch: &'a mut ShardSpecScratch,
) -> Result<ShardSpecRef<'a>, ShardSpecInputError> {
    let metadata = ShardMetadata::new(ShardHint::Range, connector_extra);
    hinted(start, end, metadata, &mut scratch.metadata)
}

/// Builds a shard as [`range_shard_ref`] does and stores it in `arena`.
///
/// # Errors
/// As the borrowed form, or if the arena is full.
pub fn range_shard_into(
    start: &[u8],
    end: &[u8],
    connector_extra: &[u8],
    scratch: &mut ShardSpecScratch,
    arena: &mut ShardArena,
) -> Result<ShardSpecHandle, ShardIntoError<ShardSpecInputError>> {
    store(range_shard_ref(start, end, connector_extra, scratch), arena)
}

/// Builds a shard of all keys that start with `prefix`, with a [`ShardHint::Prefix`].
///
/// # Errors
/// If the prefix is empty, too large or has no successor, or the metadata is too large, in this
/// order.
pub fn prefix_shard_ref<'a>(
    prefix: &'a [u8],
    connector_extra: &[u8],
    scratch: &'a mut ShardSpecScratch,
) -> Result<ShardSpecRef<'a>, PrefixShardError> {
    let end = prefix_end(prefix, &mut scratch.end)?;
    let metadata = ShardMetadata::new(ShardHint::Prefix { prefix }, connector_extra);
    hinted(prefix, end, metadata, &mut scratch.metadata).map_err(PrefixShardError::InvalidShardSpec)
}

/// Builds a shard as [`prefix_shard_ref`] does and stores it in `arena`.
///
/// # Errors
/// As the borrowed form, or if the arena is full.
pub fn prefix_shard_into(
    prefix: &[u8],
    connector_extra: &[u8],
    scratch: &mut ShardSpecScratch,
    arena: &mut ShardArena,
) -> Result<ShardSpecHandle, ShardIntoError<PrefixShardError>> {
    store(prefix_shard_ref(prefix, connector_extra, scratch), arena)
}

/// Builds a shard of the rows `start_row..end_row` of one manifest, with a [`ShardHint::Manifest`].
///
/// # Errors
/// If the metadata is too large, or `start_row >= end_row`, in this order.
pub fn manifest_shard_ref<'a>(
    manifest_id: u64,
    start_row: u64,
    end_row: u64,
    connector_extra: &[u8],
    scratch: &'a mut ShardSpecScratch,
) -> Result<ShardSpecRef<'a>, ShardSpecInputError> {
    let ShardSpecScratch { start, end, metadata } = scratch;
    ManifestRowKey::new(manifest_id, start_row).encode_into(start);
    ManifestRowKey::new(manifest_id, end_row).encode_into(end);
    let hint = ShardHint::Manifest { manifest_id, start_row, end_row };
    let contents = ShardMetadata::new(hint, connector_extra);
    hinted(start.as_bytes(), end.as_bytes(), contents, metadata)
}

/// Builds a shard as [`manifest_shard_ref`] does and stores it in `arena`.
///
/// # Errors
/// As the borrowed form, or if the arena is full.
pub fn manifest_shard_into(
    manifest_id: u64,
    start_row: u64,
    end_row: u64,
    connector_extra: &[u8],
    scratch: &mut ShardSpecScratch,
    arena: &mut ShardArena,
) -> Result<ShardSpecHandle, ShardIntoError<ShardSpecInputError>> {
    let built = manifest_shard_ref(manifest_id, start_row, end_row, connector_extra, scratch);
    store(built, arena)
}

/// Encodes the metadata and combines it with the bounds.
fn hinted<'a>(
    start: &'a [u8],
    end: &'a [u8],
    metadata: ShardMetadata<'_>,
    buf: &'a mut MetadataBuf,
) -> Result<ShardSpecRef<'a>, ShardSpecInputError> {
    match metadata.encode_into(buf) {
        Ok(encoded) => validated(ShardSpecRef::new(start, end, encoded)),
        // The error of the encoder is not passed on, because a shard reports oversized bounds
        // first.
        Err(error) => Err(first_refusal(start, end, metadata, error)),
    }
}

/// Returns the error of a shard whose metadata could not be encoded.
///
/// Shards are checked in a fixed order (oversized bounds, oversized metadata, inverted range), so a
/// caller receives the same error whether or not this function encoded the metadata.
fn first_refusal(
    start: &[u8],
    end: &[u8],
    metadata: ShardMetadata<'_>,
    error: ShardEncodeError,
) -> ShardSpecInputError {
    let bounds = ShardSpec::validate_ref(ShardSpecRef::new(start, end, &[]));
    if let Err(oversized @ ShardSpecInputError::KeyTooLarge { .. }) = bounds {
        return oversized;
    }
    match first_encode_error(metadata, error) {
        ShardEncodeError::PrefixTooLarge { size, max }
        | ShardEncodeError::HintTooLarge { size, max }
        | ShardEncodeError::MetadataTooLarge { size, max } => {
            ShardSpecInputError::MetadataTooLarge { size, max }
        }
        ShardEncodeError::InvertedManifestRows { .. } => {
            ShardSpecInputError::InvertedRange { start_len: start.len(), end_len: end.len() }
        }
    }
}

/// Returns the error that a shard reports: the encoder checks rows first, a shard sizes first.
fn first_encode_error(metadata: ShardMetadata<'_>, error: ShardEncodeError) -> ShardEncodeError {
    match error {
        ShardEncodeError::InvertedManifestRows { .. } => {
            let size = envelope_len(MANIFEST_FRAME_LEN, metadata.connector_extra.len());
            size.err().unwrap_or(error)
        }
        ShardEncodeError::PrefixTooLarge { .. }
        | ShardEncodeError::HintTooLarge { .. }
        | ShardEncodeError::MetadataTooLarge { .. } => error,
    }
}
