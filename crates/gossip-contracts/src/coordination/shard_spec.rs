//! Shard specs: a key range and the connector's metadata for it.
//!
//! A range is half-open, `[start, end)`, in the byte order of keys. An empty `start` means "from
//! the first key", an empty `end` means "past the last". Metadata is opaque here; it is hashed with
//! the range, so two specs that differ only in metadata are different payloads.
//!
//! [`ShardSpecRef`] borrows its bytes and is *unvalidated by design*: it can hold any input, so
//! that a validator can inspect it. [`ShardSpec`] owns its bytes and is always valid.
//!
//! # Order of checks
//! Start size, end size, metadata size, then the inverted range. Sizes are checked first so that
//! keys of unbounded length are never compared.

use std::fmt;

use thiserror::Error;

use super::byte_len::ByteLen;
use super::cursor::{CursorBounds, MAX_KEY_SIZE, check_cursor_bounds};

/// Maximum length of metadata. Equal to that of a token, since connectors store similar data in
/// both.
pub const MAX_METADATA_SIZE: usize = 16 * 1024;

// Canonical encoding and the slab both hold lengths as u32.
const _: () = assert!(MAX_METADATA_SIZE > 0 && MAX_METADATA_SIZE <= u32::MAX as usize);

/// A borrowed, possibly invalid shard spec. The fields are public because it guarantees nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ShardSpecRef<'a> {
    /// First key of the range; empty is unbounded.
    pub start: &'a [u8],
    /// First key past the range; empty is unbounded.
    pub end: &'a [u8],
    /// The connector's metadata.
    pub metadata: &'a [u8],
}

impl<'a> ShardSpecRef<'a> {
    /// Creates a spec from its parts without checks.
    #[must_use]
    pub const fn new(start: &'a [u8], end: &'a [u8], metadata: &'a [u8]) -> Self {
        Self { start, end, metadata }
    }

    /// Checks the spec, as [`ShardSpec::validate_ref`] does.
    ///
    /// # Errors
    /// As [`ShardSpec::validate_ref`].
    pub fn validate(self) -> Result<(), ShardSpecInputError> {
        ShardSpec::validate_ref(self)
    }

    /// Returns whether `key` lies in `[start, end)`.
    #[must_use]
    pub fn contains_key(self, key: &[u8]) -> bool {
        check_cursor_bounds(Some(key), self.start, self.end) == CursorBounds::InBounds
    }

    /// Returns whether no key can lie in the range: both bounds are set and `start >= end`.
    pub(crate) fn is_inverted(self) -> bool {
        !self.start.is_empty() && !self.end.is_empty() && self.start >= self.end
    }
}

impl fmt::Debug for ShardSpecRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_spec(f, "ShardSpecRef", *self)
    }
}

/// An owned shard spec, valid from construction.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ShardSpec {
    /// At most [`MAX_KEY_SIZE`] bytes, and below `end` unless one of the two is empty.
    start: Box<[u8]>,
    /// At most [`MAX_KEY_SIZE`] bytes.
    end: Box<[u8]>,
    /// At most [`MAX_METADATA_SIZE`] bytes.
    metadata: Box<[u8]>,
}

impl ShardSpec {
    /// Creates a spec from parts that are known to be valid.
    ///
    /// # Panics
    /// If the parts are invalid; use [`Self::try_new`] for untrusted input.
    #[must_use]
    pub fn new(start: &[u8], end: &[u8], metadata: &[u8]) -> Self {
        match Self::try_new(start, end, metadata) {
            Ok(spec) => spec,
            Err(error) => panic!("invalid shard spec: {error}"),
        }
    }

    /// Validates the parts and copies them.
    ///
    /// # Errors
    /// As [`Self::validate_ref`].
    pub fn try_new(start: &[u8], end: &[u8], metadata: &[u8]) -> Result<Self, ShardSpecInputError> {
        Self::validate_ref(ShardSpecRef::new(start, end, metadata))?;
        Ok(Self { start: start.into(), end: end.into(), metadata: metadata.into() })
    }

    /// Checks that a spec is valid, without copying it.
    ///
    /// # Errors
    /// The first rule broken, in the order of the module documentation.
    pub fn validate_ref(spec: ShardSpecRef<'_>) -> Result<(), ShardSpecInputError> {
        for bound in [spec.start, spec.end] {
            if bound.len() > MAX_KEY_SIZE {
                let size = bound.len();
                return Err(ShardSpecInputError::KeyTooLarge { size, max: MAX_KEY_SIZE });
            }
        }
        if spec.metadata.len() > MAX_METADATA_SIZE {
            let size = spec.metadata.len();
            return Err(ShardSpecInputError::MetadataTooLarge { size, max: MAX_METADATA_SIZE });
        }
        if spec.is_inverted() {
            let (start_len, end_len) = (spec.start.len(), spec.end.len());
            return Err(ShardSpecInputError::InvertedRange { start_len, end_len });
        }
        Ok(())
    }

    /// Returns the borrowed form of this spec.
    #[must_use]
    pub fn as_spec_ref(&self) -> ShardSpecRef<'_> {
        ShardSpecRef::new(&self.start, &self.end, &self.metadata)
    }

    /// Returns the first key of the range; empty if unbounded.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// Returns the first key past the range; empty if unbounded.
    #[must_use]
    pub fn end(&self) -> &[u8] {
        &self.end
    }

    /// Returns the connector's metadata.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// Returns whether `key` lies in `[start, end)`.
    #[must_use]
    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.as_spec_ref().contains_key(key)
    }
}

impl TryFrom<ShardSpecRef<'_>> for ShardSpec {
    type Error = ShardSpecInputError;

    fn try_from(spec: ShardSpecRef<'_>) -> Result<Self, Self::Error> {
        Self::try_new(spec.start, spec.end, spec.metadata)
    }
}

impl fmt::Debug for ShardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_spec(f, "ShardSpec", self.as_spec_ref())
    }
}

/// Lets a function accept an owned or a borrowed spec.
pub trait IntoShardSpecRef<'a> {
    /// Returns the borrowed form. Free of cost; validates nothing.
    fn into_shard_spec_ref(self) -> ShardSpecRef<'a>;
}

impl<'a> IntoShardSpecRef<'a> for ShardSpecRef<'a> {
    fn into_shard_spec_ref(self) -> Self {
        self
    }
}

impl<'a> IntoShardSpecRef<'a> for &'a ShardSpec {
    fn into_shard_spec_ref(self) -> ShardSpecRef<'a> {
        self.as_spec_ref()
    }
}

/// The parts do not form a valid shard spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShardSpecInputError {
    /// Both bounds are set and the start does not precede the end.
    #[error("the range start ({start_len} bytes) is not below its end ({end_len} bytes)")]
    InvertedRange {
        /// Length of the start.
        start_len: usize,
        /// Length of the end.
        end_len: usize,
    },
    /// A bound exceeds [`MAX_KEY_SIZE`].
    #[error("a range bound of {size} bytes exceeds the limit of {max}")]
    KeyTooLarge {
        /// Length presented.
        size: usize,
        /// Length allowed.
        max: usize,
    },
    /// The metadata exceeds [`MAX_METADATA_SIZE`].
    #[error("shard metadata of {size} bytes exceeds the limit of {max}")]
    MetadataTooLarge {
        /// Length presented.
        size: usize,
        /// Length allowed.
        max: usize,
    },
}

/// When a cursor may move past a key. A label for sinks and operators: the coordinator enforces
/// progress and bounds identically for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "persisted; a third variant would be a new format")]
#[repr(u8)]
pub enum CursorSemantics {
    /// After the results of every key up to it are durable.
    Completed = 0,
    /// After every key up to it has been durably dispatched, finished or not.
    Dispatched = 1,
}

// Stored in records and hashed: these numbers never change.
const _: () = assert!(CursorSemantics::Completed.as_u8() == 0);
const _: () = assert!(CursorSemantics::Dispatched.as_u8() == 1);

impl CursorSemantics {
    /// Returns the variant stored as `value`, or `None` for an unassigned number.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::Completed),
            1 => Some(Self::Dispatched),
            _ => None,
        }
    }

    /// Returns the stored number.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

fn fmt_spec(f: &mut fmt::Formatter<'_>, name: &str, spec: ShardSpecRef<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("start", &ByteLen::of(spec.start))
        .field("end", &ByteLen::of(spec.end))
        .field("metadata", &ByteLen::of(spec.metadata))
        .finish()
}
