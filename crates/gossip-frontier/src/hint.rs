//! Routing hints inside shard metadata: wire format, shards built with them, and splits.
//!
//! A hint describes the origin of a shard's range, so that a connector can list by prefix or by row
//! number instead of comparing every key. It is part of the metadata, before the connector's bytes,
//! which this module copies and never interprets.
//!
//! ```text
//! hint      Range     00
//!           Prefix    01 | prefix_len: u32 | prefix
//!           Manifest  02 | manifest_id: u64 | start_row: u64 | end_row: u64
//! metadata  (empty)                          a Range hint without connector bytes
//!           hint_len: u32 | hint | connector_extra
//! ```
//!
//! All integers are big-endian. The format deliberately has no version byte: an unknown tag is
//! rejected, and the format is extended only by new tags.
//!
//! Nothing here allocates on the heap: encoders write into buffers of the caller, decoders borrow
//! their input. Decoders trust no input: a length is compared with the remaining bytes before use.
//!
//! # Invariants
//!
//! * A `Manifest` hint on the wire has `start_row < end_row`; encoder and decoder both check it.
//! * Encoding is canonical, and decoding returns the encoded value. The one exception is empty
//!   metadata, a second encoding of the plain `Range` hint that the encoder never produces.
//! * A failed encoding leaves its buffer unchanged.

#[cfg(test)]
#[path = "hint_law_tests.rs"]
mod hint_law_tests;
#[cfg(test)]
#[path = "hint_tests.rs"]
mod hint_tests;
mod propagate;
mod shard;

use std::fmt;

use gossip_contracts::coordination::{IntoShardSpecRef, MAX_KEY_SIZE, MAX_METADATA_SIZE};
use thiserror::Error;

pub use propagate::{HintPropagationError, SplitBoundary, propagate_hint_on_split};
pub use shard::{
    ShardSpecScratch, manifest_shard_into, manifest_shard_ref, prefix_shard_into, prefix_shard_ref,
    range_shard_into, range_shard_ref,
};

// Stored in shard metadata: these numbers never change, and new hints use new numbers.
const TAG_RANGE: u8 = 0x00;
const TAG_PREFIX: u8 = 0x01;
const TAG_MANIFEST: u8 = 0x02;

/// Width of the length fields of a prefix and of a hint.
const LEN_SIZE: usize = size_of::<u32>();
/// Only a tag.
const RANGE_FRAME_LEN: usize = 1;
/// Tag and length, before the bytes of the prefix.
const PREFIX_HEADER_LEN: usize = 1 + LEN_SIZE;
/// Tag and three integers.
const MANIFEST_FRAME_LEN: usize = 1 + 3 * size_of::<u64>();

// The sizes in the documentation of the wire format.
const _: () = assert!(PREFIX_HEADER_LEN == 5 && MANIFEST_FRAME_LEN == 25);
// Every hint whose prefix is a valid key fits, with space left for the connector.
const _: () = assert!(LEN_SIZE + PREFIX_HEADER_LEN + MAX_KEY_SIZE < MAX_METADATA_SIZE);
// A length field can represent the length of any metadata.
const _: () = assert!(MAX_METADATA_SIZE <= u32::MAX as usize);

/// The origin of a shard's range.
///
/// `Debug` shows only the length of a prefix.
#[derive(Clone, Copy, Eq, PartialEq)]
#[non_exhaustive]
pub enum ShardHint<'a> {
    /// Any range of bytes; nothing more is known.
    Range,
    /// All keys that start with a prefix.
    Prefix {
        /// The common prefix of all keys of the shard.
        prefix: &'a [u8],
    },
    /// The rows `start_row..end_row` of one manifest.
    Manifest {
        /// The manifest.
        manifest_id: u64,
        /// First row of the shard.
        start_row: u64,
        /// First row after the shard, greater than `start_row`.
        end_row: u64,
    },
}

impl<'a> ShardHint<'a> {
    /// Decodes one hint from the front of `data`; also returns the number of bytes consumed.
    ///
    /// # Errors
    /// If the frame is empty, has an unknown tag, is truncated, or contains no rows.
    pub fn decode(data: &'a [u8]) -> Result<(Self, usize), ShardHintDecodeError> {
        let (&tag, body) = data.split_first().ok_or(ShardHintDecodeError::EmptyData)?;
        match tag {
            TAG_RANGE => Ok((Self::Range, RANGE_FRAME_LEN)),
            TAG_PREFIX => Self::decode_prefix(body),
            TAG_MANIFEST => Self::decode_manifest(body),
            // Not read as `Range`: a connector of an older version would list the shard in another
            // way than its creator.
            unknown => Err(ShardHintDecodeError::UnknownTag(unknown)),
        }
    }

    /// Returns the length of the encoded hint, after checking that it can be encoded.
    ///
    /// # Errors
    /// If a prefix is too long for its length field or for metadata, or there are no rows.
    pub fn encoded_len(&self) -> Result<usize, ShardEncodeError> {
        match *self {
            Self::Range => Ok(RANGE_FRAME_LEN),
            Self::Prefix { prefix } => prefix_frame_len(prefix.len()),
            // A decoder would reject these rows, so an encoder must not produce them.
            Self::Manifest { start_row, end_row, .. } if start_row >= end_row => {
                Err(ShardEncodeError::InvertedManifestRows { start_row, end_row })
            }
            Self::Manifest { .. } => Ok(MANIFEST_FRAME_LEN),
        }
    }

    /// Writes the hint into `buf` and returns the written part.
    ///
    /// # Errors
    /// As [`Self::encoded_len`].
    pub fn encode_into<'b>(&self, buf: &'b mut MetadataBuf) -> Result<&'b [u8], ShardEncodeError> {
        // All checks are done before the first byte is written.
        let frame = &mut buf.bytes[..self.encoded_len()?];
        self.write(frame);
        Ok(frame)
    }

    /// Writes the hint into `out`, which is [`Self::encoded_len`] bytes long.
    fn write(&self, out: &mut [u8]) {
        match *self {
            Self::Range => out[0] = TAG_RANGE,
            Self::Prefix { prefix } => {
                out[0] = TAG_PREFIX;
                write_len(&mut out[1..PREFIX_HEADER_LEN], prefix.len());
                out[PREFIX_HEADER_LEN..].copy_from_slice(prefix);
            }
            Self::Manifest { manifest_id, start_row, end_row } => {
                out[0] = TAG_MANIFEST;
                out[1..9].copy_from_slice(&manifest_id.to_be_bytes());
                out[9..17].copy_from_slice(&start_row.to_be_bytes());
                out[17..25].copy_from_slice(&end_row.to_be_bytes());
            }
        }
    }

    fn decode_prefix(body: &'a [u8]) -> Result<(Self, usize), ShardHintDecodeError> {
        let truncated = |expected_min| ShardHintDecodeError::TruncatedPrefix {
            expected_min,
            actual: 1 + body.len(),
        };
        let (len, rest) = split_len(body).ok_or_else(|| truncated(PREFIX_HEADER_LEN))?;
        // Saturates only where `usize` has 32 bits; the frame is truncated there as well.
        let frame_len = PREFIX_HEADER_LEN.saturating_add(len);
        let prefix = rest.get(..len).ok_or_else(|| truncated(frame_len))?;
        Ok((Self::Prefix { prefix }, frame_len))
    }

    /// Decodes a manifest hint from the bytes after its tag, and returns it with the length of its
    /// frame. Fails if the bytes are too few or the rows are empty or reversed; further bytes are
    /// ignored.
    fn decode_manifest(body: &'a [u8]) -> Result<(Self, usize), ShardHintDecodeError> {
        let truncated = || ShardHintDecodeError::TruncatedManifest {
            expected_min: MANIFEST_FRAME_LEN,
            actual: 1 + body.len(),
        };
        let (manifest_id, rest) = split_u64(body).ok_or_else(truncated)?;
        let (start_row, rest) = split_u64(rest).ok_or_else(truncated)?;
        // Bytes after the hint belong to the enclosing frame.
        let (end_row, _) = split_u64(rest).ok_or_else(truncated)?;
        if start_row >= end_row {
            return Err(ShardHintDecodeError::InvertedManifestRows { start_row, end_row });
        }
        let hint = Self::Manifest { manifest_id, start_row, end_row };
        Ok((hint, MANIFEST_FRAME_LEN))
    }
}

impl fmt::Debug for ShardHint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Range => f.write_str("Range"),
            Self::Prefix { prefix } => {
                f.debug_struct("Prefix").field("prefix_len", &prefix.len()).finish()
            }
            Self::Manifest { manifest_id, start_row, end_row } => f
                .debug_struct("Manifest")
                .field("manifest_id", &manifest_id)
                .field("start_row", &start_row)
                .field("end_row", &end_row)
                .finish(),
        }
    }
}

/// The content of shard metadata: a hint, and connector bytes that are passed through unchanged.
///
/// `Debug` shows only the length of the connector's bytes.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct ShardMetadata<'a> {
    /// The origin of the range.
    pub hint: ShardHint<'a>,
    /// The connector's bytes; never interpreted here.
    pub connector_extra: &'a [u8],
}

impl<'a> ShardMetadata<'a> {
    /// Returns metadata of a hint and connector bytes.
    pub const fn new(hint: ShardHint<'a>, connector_extra: &'a [u8]) -> Self {
        Self { hint, connector_extra }
    }

    /// Returns metadata of a hint without connector bytes.
    pub const fn from_hint(hint: ShardHint<'a>) -> Self {
        Self::new(hint, &[])
    }

    /// Decodes the metadata of a shard. Empty metadata is a [`ShardHint::Range`] without connector
    /// bytes.
    ///
    /// # Errors
    /// If non-empty input does not match the wire format.
    pub fn decode(metadata: &'a [u8]) -> Result<Self, ShardMetadataDecodeError> {
        // Shards of programs that know no hints have empty metadata.
        if metadata.is_empty() {
            return Ok(Self::from_hint(ShardHint::Range));
        }
        let (hint_len, rest) = split_len(metadata).ok_or(ShardMetadataDecodeError::ENVELOPE)?;
        let (frame, connector_extra) =
            rest.split_at_checked(hint_len).ok_or(ShardMetadataDecodeError::ENVELOPE)?;
        let (hint, consumed) = ShardHint::decode(frame).map_err(ShardMetadataDecodeError::hint)?;
        // A hint shorter than its declared length would hide bytes that are never read.
        if consumed != hint_len {
            return Err(ShardMetadataDecodeError::ENVELOPE);
        }
        Ok(Self::new(hint, connector_extra))
    }

    /// Returns the length of the encoded metadata, after checking that it can be encoded.
    ///
    /// # Errors
    /// As [`ShardHint::encoded_len`]; then if the whole exceeds [`MAX_METADATA_SIZE`].
    pub fn encoded_len(&self) -> Result<usize, ShardEncodeError> {
        envelope_len(self.hint.encoded_len()?, self.connector_extra.len())
    }

    /// Writes the metadata into `buf` and returns the written part.
    ///
    /// # Errors
    /// As [`Self::encoded_len`].
    pub fn encode_into<'b>(&self, buf: &'b mut MetadataBuf) -> Result<&'b [u8], ShardEncodeError> {
        // All checks are done here, so a failure leaves the buffer as it was.
        let size = self.encoded_len()?;
        let hint_len = size - LEN_SIZE - self.connector_extra.len();
        let envelope = &mut buf.bytes[..size];
        let (len, rest) = envelope.split_at_mut(LEN_SIZE);
        let (hint, extra) = rest.split_at_mut(hint_len);
        write_len(len, hint_len);
        self.hint.write(hint);
        extra.copy_from_slice(self.connector_extra);
        Ok(envelope)
    }
}

impl fmt::Debug for ShardMetadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardMetadata")
            .field("hint", &self.hint)
            .field("connector_extra_len", &self.connector_extra.len())
            .finish()
    }
}

/// A reusable buffer for one encoded hint or metadata.
///
/// It has the maximum size of metadata and is stored inline: create one per thread and reuse it.
pub struct MetadataBuf {
    bytes: [u8; Self::CAPACITY],
}

impl MetadataBuf {
    /// Metadata that passes [`ShardMetadata::encoded_len`] fits.
    pub const CAPACITY: usize = MAX_METADATA_SIZE;

    /// Returns an empty scratch buffer.
    pub const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY] }
    }
}

impl Default for MetadataBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MetadataBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataBuf").field("capacity", &Self::CAPACITY).finish_non_exhaustive()
    }
}

/// Decodes the whole metadata of a shard.
///
/// # Errors
/// As [`ShardMetadata::decode`].
pub fn decode_metadata<'a>(
    spec: impl IntoShardSpecRef<'a>,
) -> Result<ShardMetadata<'a>, ShardMetadataDecodeError> {
    ShardMetadata::decode(spec.into_shard_spec_ref().metadata)
}

/// Decodes the hint of a shard. The rest of the metadata is checked as well.
///
/// # Errors
/// As [`ShardMetadata::decode`].
pub fn decode_hint<'a>(
    spec: impl IntoShardSpecRef<'a>,
) -> Result<ShardHint<'a>, ShardMetadataDecodeError> {
    decode_metadata(spec).map(|metadata| metadata.hint)
}

/// Decodes the connector's bytes of a shard. The rest of the metadata is checked as well.
///
/// # Errors
/// As [`ShardMetadata::decode`].
pub fn decode_connector_extra<'a>(
    spec: impl IntoShardSpecRef<'a>,
) -> Result<&'a [u8], ShardMetadataDecodeError> {
    decode_metadata(spec).map(|metadata| metadata.connector_extra)
}

/// The bytes are not a valid hint.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ShardHintDecodeError {
    /// There is no tag.
    #[error("shard hint is empty")]
    EmptyData,
    /// The tag is unknown.
    #[error("shard hint has unknown tag {0:#04x}")]
    UnknownTag(u8),
    /// A prefix frame is shorter than its header, or than the length its header declares.
    #[error("prefix hint needs {expected_min} bytes, {actual} given")]
    TruncatedPrefix {
        /// Minimum length of the frame, as far as known.
        expected_min: usize,
        /// Bytes present.
        actual: usize,
    },
    /// A manifest frame is shorter than its fixed length.
    #[error("manifest hint needs {expected_min} bytes, {actual} given")]
    TruncatedManifest {
        /// Length of the frame.
        expected_min: usize,
        /// Bytes present.
        actual: usize,
    },
    /// There are no rows: the start row is not below the end row.
    #[error("manifest hint has start row {start_row} not below end row {end_row}")]
    InvertedManifestRows {
        /// First row declared.
        start_row: u64,
        /// End row declared.
        end_row: u64,
    },
}

/// The bytes are not valid shard metadata.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("shard metadata is malformed: {}", if self.hint_error.is_some() { "bad hint" } else { "bad envelope" })]
pub struct ShardMetadataDecodeError {
    /// The error of the hint; `None` if the envelope around it is invalid: a short length field, a
    /// length beyond the input, or a hint that does not fill its declared length.
    #[source]
    pub(crate) hint_error: Option<ShardHintDecodeError>,
}

impl ShardMetadataDecodeError {
    const ENVELOPE: Self = Self { hint_error: None };

    const fn hint(error: ShardHintDecodeError) -> Self {
        Self { hint_error: Some(error) }
    }
}

/// A hint or metadata cannot be encoded.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ShardEncodeError {
    /// The length of the prefix does not fit into its field.
    #[error("prefix of {size} bytes exceeds its length field, which ends at {max}")]
    PrefixTooLarge {
        /// Length presented.
        size: usize,
        /// Largest length that the field can represent.
        max: usize,
    },
    /// The hint alone exceeds the maximum size of metadata.
    #[error("shard hint of {size} bytes exceeds the maximum of {max}")]
    HintTooLarge {
        /// Length of the encoded hint.
        size: usize,
        /// [`MAX_METADATA_SIZE`].
        max: usize,
    },
    /// Hint, framing and connector bytes together exceed the maximum size of metadata.
    #[error("shard metadata of {size} bytes exceeds the maximum of {max}")]
    MetadataTooLarge {
        /// Length of the encoded metadata.
        size: usize,
        /// [`MAX_METADATA_SIZE`].
        max: usize,
    },
    /// There are no rows: the start row is not below the end row.
    #[error("manifest hint has start row {start_row} not below end row {end_row}")]
    InvertedManifestRows {
        /// First row presented.
        start_row: u64,
        /// End row presented.
        end_row: u64,
    },
}

/// Returns the length of a prefix frame. Takes a length so that its limits can be tested without 4
/// GiB.
fn prefix_frame_len(prefix_len: usize) -> Result<usize, ShardEncodeError> {
    if u32::try_from(prefix_len).is_err() {
        let max = u32::MAX as usize;
        return Err(ShardEncodeError::PrefixTooLarge { size: prefix_len, max });
    }
    let size = PREFIX_HEADER_LEN.saturating_add(prefix_len);
    if size > MAX_METADATA_SIZE {
        return Err(ShardEncodeError::HintTooLarge { size, max: MAX_METADATA_SIZE });
    }
    Ok(size)
}

/// Returns the length of metadata whose hint fits on its own.
fn envelope_len(hint_len: usize, extra_len: usize) -> Result<usize, ShardEncodeError> {
    // The connector's bytes may be as long as any slice.
    let size = (LEN_SIZE + hint_len).saturating_add(extra_len);
    if size > MAX_METADATA_SIZE {
        return Err(ShardEncodeError::MetadataTooLarge { size, max: MAX_METADATA_SIZE });
    }
    Ok(size)
}

fn write_len(out: &mut [u8], len: usize) {
    let len = u32::try_from(len).expect("metadata is shorter than 2^32 bytes");
    out.copy_from_slice(&len.to_be_bytes());
}

fn split_len(data: &[u8]) -> Option<(usize, &[u8])> {
    let (len, rest) = data.split_first_chunk()?;
    // Where `usize` is narrower than the field, such a length exceeds any input.
    let len = usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX);
    Some((len, rest))
}

fn split_u64(data: &[u8]) -> Option<(u64, &[u8])> {
    let (value, rest) = data.split_first_chunk()?;
    Some((u64::from_be_bytes(*value), rest))
}
