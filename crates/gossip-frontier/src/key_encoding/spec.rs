//! Shard ranges from typed keys, prefixes and manifest rows.
//!
//! Each constructor has two forms: `*_ref` borrows the caller's buffers, `*_into` copies the result
//! into an arena, for ranges that outlive their buffers. Metadata is stored unchanged; the
//! constructors of [`crate::hint`] also encode a hint into it.

use gossip_contracts::coordination::{
    MAX_KEY_SIZE, ShardArena, ShardSpec, ShardSpecHandle, ShardSpecInputError, ShardSpecRef,
};
use gossip_stdx::SlabFull;
use thiserror::Error;

use super::{KeyBuf, KeyEncoding, ManifestRowKey, prefix_successor};

/// The prefix does not form a bounded range.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PrefixShardError {
    /// Every key starts with the empty prefix, so it has no bounds.
    #[error("prefix is empty")]
    EmptyPrefix,
    /// The prefix is longer than any key.
    #[error("prefix of {size} bytes exceeds the maximum of {max}")]
    PrefixTooLarge {
        /// Length presented.
        size: usize,
        /// [`MAX_KEY_SIZE`].
        max: usize,
    },
    /// All bytes of the prefix are `0xFF`, so no key is greater than all keys that start with it.
    #[error("prefix of only 0xFF bytes has no successor")]
    NoSuccessor,
    /// The derived range is not a valid shard spec.
    #[error("prefix range is not a valid shard")]
    InvalidShardSpec(#[source] ShardSpecInputError),
}

/// A shard could not be stored in the arena.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a shard is built, then stored; no third step can fail"
)]
pub enum ShardIntoError<E> {
    /// The input is invalid; the arena is unchanged.
    #[error("shard could not be built")]
    Build(#[source] E),
    /// The arena has no free slot or not enough bytes.
    #[error("shard arena is full")]
    SlabFull(#[source] SlabFull),
}

/// Returns the range `[encode(start), encode(end))`, borrowing both buffers.
///
/// # Errors
/// If an encoding exceeds [`MAX_KEY_SIZE`], the metadata is too large, or the range is not
/// strictly ascending.
pub fn shard_spec_from_keys_ref<'a>(
    start: &impl KeyEncoding,
    end: &impl KeyEncoding,
    metadata: &'a [u8],
    start_buf: &'a mut KeyBuf,
    end_buf: &'a mut KeyBuf,
) -> Result<ShardSpecRef<'a>, ShardSpecInputError> {
    start.encode_into(start_buf);
    end.encode_into(end_buf);
    validated(ShardSpecRef::new(start_buf.as_bytes(), end_buf.as_bytes(), metadata))
}

/// Builds the range as [`shard_spec_from_keys_ref`] does and stores it in `arena`.
///
/// # Errors
/// As the borrowed form, or if the arena is full.
pub fn shard_spec_from_keys_into(
    start: &impl KeyEncoding,
    end: &impl KeyEncoding,
    metadata: &[u8],
    start_buf: &mut KeyBuf,
    end_buf: &mut KeyBuf,
    arena: &mut ShardArena,
) -> Result<ShardSpecHandle, ShardIntoError<ShardSpecInputError>> {
    let built = shard_spec_from_keys_ref(start, end, metadata, start_buf, end_buf);
    store(built, arena)
}

/// Returns the range `[prefix, prefix_successor(prefix))`: exactly the keys that start with
/// `prefix`.
///
/// # Errors
/// If the prefix is empty, too large or has no successor, in this order; then if the metadata is
/// too large.
pub fn shard_spec_from_prefix_ref<'a>(
    prefix: &'a [u8],
    metadata: &'a [u8],
    end_buf: &'a mut KeyBuf,
) -> Result<ShardSpecRef<'a>, PrefixShardError> {
    let end = prefix_end(prefix, end_buf)?;
    validated(ShardSpecRef::new(prefix, end, metadata)).map_err(PrefixShardError::InvalidShardSpec)
}

/// Builds the range as [`shard_spec_from_prefix_ref`] does and stores it in `arena`.
///
/// # Errors
/// As the borrowed form, or if the arena is full.
pub fn shard_spec_from_prefix_into(
    prefix: &[u8],
    metadata: &[u8],
    end_buf: &mut KeyBuf,
    arena: &mut ShardArena,
) -> Result<ShardSpecHandle, ShardIntoError<PrefixShardError>> {
    store(shard_spec_from_prefix_ref(prefix, metadata, end_buf), arena)
}

/// Returns the rows `start_row..end_row` of one manifest, as a range of [`ManifestRowKey`]s.
///
/// # Errors
/// If `start_row >= end_row` or the metadata is too large.
pub fn shard_spec_from_manifest_range_ref<'a>(
    manifest_id: u64,
    start_row: u64,
    end_row: u64,
    metadata: &'a [u8],
    start_buf: &'a mut KeyBuf,
    end_buf: &'a mut KeyBuf,
) -> Result<ShardSpecRef<'a>, ShardSpecInputError> {
    shard_spec_from_keys_ref(
        &ManifestRowKey::new(manifest_id, start_row),
        &ManifestRowKey::new(manifest_id, end_row),
        metadata,
        start_buf,
        end_buf,
    )
}

/// Builds the range as [`shard_spec_from_manifest_range_ref`] does and stores it in `arena`.
///
/// # Errors
/// As the borrowed form, or if the arena is full.
pub fn shard_spec_from_manifest_range_into(
    manifest_id: u64,
    start_row: u64,
    end_row: u64,
    metadata: &[u8],
    start_buf: &mut KeyBuf,
    end_buf: &mut KeyBuf,
    arena: &mut ShardArena,
) -> Result<ShardSpecHandle, ShardIntoError<ShardSpecInputError>> {
    let built = shard_spec_from_manifest_range_ref(
        manifest_id,
        start_row,
        end_row,
        metadata,
        start_buf,
        end_buf,
    );
    store(built, arena)
}

/// Returns the exclusive end of a prefix range, or the reason why there is none.
pub(crate) fn prefix_end<'b>(
    prefix: &[u8],
    buf: &'b mut KeyBuf,
) -> Result<&'b [u8], PrefixShardError> {
    // The empty prefix has no successor either, but its own error is more specific.
    if prefix.is_empty() {
        return Err(PrefixShardError::EmptyPrefix);
    }
    if prefix.len() > MAX_KEY_SIZE {
        return Err(PrefixShardError::PrefixTooLarge { size: prefix.len(), max: MAX_KEY_SIZE });
    }
    prefix_successor(prefix, buf).ok_or(PrefixShardError::NoSuccessor)
}

/// Returns the spec if it is valid.
pub(crate) fn validated(spec: ShardSpecRef<'_>) -> Result<ShardSpecRef<'_>, ShardSpecInputError> {
    ShardSpec::validate_ref(spec).map(|()| spec)
}

/// Stores a built spec: the second step of every `*_into` constructor.
pub(crate) fn store<E>(
    built: Result<ShardSpecRef<'_>, E>,
    arena: &mut ShardArena,
) -> Result<ShardSpecHandle, ShardIntoError<E>> {
    let spec = built.map_err(ShardIntoError::Build)?;
    arena.alloc_spec(spec).map_err(ShardIntoError::SlabFull)
}
