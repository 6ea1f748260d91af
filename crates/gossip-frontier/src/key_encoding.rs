//! Typed keys as ordered bytes, and arithmetic on the bytes.
//!
//! A connector guarantees one property of its keys through [`KeyEncoding`]: logical order is byte
//! order. [`PathKey`] and [`BytePathKey`] implement it for paths, [`ManifestRowKey`] for rows of a
//! manifest.
//! [`prefix_successor`], [`key_successor`] and [`byte_midpoint`] compute bounds from bounds, and
//! the `shard_spec_from_*` functions turn typed bounds into validated shard ranges.
//!
//! Nothing here normalises: no separator rewriting, no Unicode normalisation, no case folding.
//! Nothing here allocates on the heap: results are written into a [`KeyBuf`] of the caller, or,
//! by the `*_into` forms, copied into a preallocated [`ShardArena`].
//!
//! # Invariants
//!
//! * An arithmetic result is at most [`MAX_KEY_SIZE`] bytes long, and strictly between the given
//!   bounds.
//! * A function that returns `None` leaves its buffer empty, so a stale key cannot be mistaken for
//!   a result.
//!
//! [`ShardArena`]: gossip_contracts::coordination::ShardArena

mod arithmetic;
#[cfg(test)]
#[path = "key_encoding_tests.rs"]
mod key_encoding_tests;
mod spec;

use std::fmt;

use gossip_contracts::coordination::MAX_KEY_SIZE;
use thiserror::Error;

pub use arithmetic::{byte_midpoint, key_successor, prefix_successor};
pub use spec::{
    PrefixShardError, ShardIntoError, shard_spec_from_keys_into, shard_spec_from_keys_ref,
    shard_spec_from_manifest_range_into, shard_spec_from_manifest_range_ref,
    shard_spec_from_prefix_into, shard_spec_from_prefix_ref,
};
pub(crate) use spec::{prefix_end, store, validated};

/// A key type whose byte encoding sorts like its values.
///
/// The whole system depends on two guarantees, which are not checked at run time:
///
/// 1. **Order**: `a < b` implies `encode(a) < encode(b)`, bytes compared lexicographically.
///    Cursor monotonicity, range membership and split planning depend on it.
/// 2. **Canonicality**: equal keys encode to equal bytes, on every call.
///
/// An implementation that breaks either silently corrupts range boundaries. Test it with property
/// tests like `path_key_encoding_preserves_logical_order`.
pub trait KeyEncoding: Sized {
    /// Writes the complete encoding of this key into `buf`, replacing its content.
    ///
    /// The encoding is at most [`KeyBuf::CAPACITY`] bytes, which [`KeyBuf::copy_from_slice`]
    /// enforces. An encoding longer than [`MAX_KEY_SIZE`] is rejected later, when a shard is built
    /// from it.
    fn encode_into(&self, buf: &mut KeyBuf);
}

/// The bytes are not a valid key.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum KeyInputError {
    /// The key is empty. Empty bytes mean "no bound", never a key.
    #[error("key is empty")]
    Empty,
    /// The key exceeds the capacity of its destination.
    #[error("key of {size} bytes exceeds the maximum of {max}")]
    TooLarge {
        /// Length presented.
        size: usize,
        /// Largest length accepted.
        max: usize,
    },
}

/// A fixed-capacity stack buffer for one key and the arithmetic on it.
///
/// `Debug` shows only the length: keys are user data.
#[derive(Clone)]
pub struct KeyBuf {
    /// The first `len` bytes are the key; the rest is scratch space of unspecified content.
    bytes: [u8; Self::CAPACITY],
    /// At most [`Self::CAPACITY`].
    len: usize,
}

impl KeyBuf {
    /// One byte more than a key may have: the sum inside [`byte_midpoint`] can carry into it.
    pub const CAPACITY: usize = MAX_KEY_SIZE + 1;

    /// Returns an empty buffer.
    pub const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    /// Replaces the content by `key`.
    ///
    /// # Panics
    ///
    /// If `key` is longer than [`Self::CAPACITY`]; [`Self::try_copy_from_slice`] does not panic.
    #[track_caller]
    pub fn copy_from_slice(&mut self, key: &[u8]) {
        if let Err(error) = self.try_copy_from_slice(key) {
            panic!("{error}");
        }
    }

    /// Replaces the content by `key`.
    ///
    /// # Errors
    /// [`KeyInputError::TooLarge`] if `key` is longer than [`Self::CAPACITY`]; the content is
    /// unchanged.
    pub fn try_copy_from_slice(&mut self, key: &[u8]) -> Result<(), KeyInputError> {
        if key.len() > Self::CAPACITY {
            return Err(KeyInputError::TooLarge { size: key.len(), max: Self::CAPACITY });
        }
        // The bytes behind the key keep their old content, which `len` hides. Clearing them would
        // cost more than most keys.
        self.resize(key.len()).copy_from_slice(key);
        Ok(())
    }

    /// Returns the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the length of the key in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer holds no key.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets `write` write a key to the front and return its length; `None` leaves the buffer empty.
    fn write_key(
        &mut self,
        write: impl FnOnce(&mut [u8; MAX_KEY_SIZE]) -> Option<usize>,
    ) -> Option<&[u8]> {
        // First, so that a failed attempt leaves no key that could be taken for a result.
        self.clear();
        let out = self.bytes.first_chunk_mut().expect("a buffer is larger than a key");
        self.len = write(out)?;
        Some(self.as_bytes())
    }

    /// Removes the key.
    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }

    /// Sets the length of the key to `len` and returns its bytes for overwriting.
    ///
    /// Bytes beyond the old length are unspecified until written.
    pub(crate) fn resize(&mut self, len: usize) -> &mut [u8] {
        self.len = len;
        &mut self.bytes[..len]
    }
}

impl Default for KeyBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A UTF-8 path, encoded as its own bytes.
///
/// UTF-8 sorts by code point, so the order of `str` *is* byte order and the identity preserves it.
/// Two spellings of one file are two keys: normalise before constructing.
///
/// `Debug` shows only the length.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PathKey<'a> {
    /// Between 1 and [`MAX_KEY_SIZE`] bytes.
    path: &'a str,
}

impl<'a> PathKey<'a> {
    /// Creates a key from a trusted path.
    ///
    /// # Panics
    ///
    /// If `path` is empty or longer than [`MAX_KEY_SIZE`]; [`Self::try_new`] does not panic.
    #[track_caller]
    pub fn new(path: &'a str) -> Self {
        match Self::try_new(path) {
            Ok(key) => key,
            Err(error) => panic!("path {error}"),
        }
    }

    /// Creates a key from any path.
    ///
    /// # Errors
    /// If `path` is empty or longer than [`MAX_KEY_SIZE`].
    pub const fn try_new(path: &'a str) -> Result<Self, KeyInputError> {
        match check_path_len(path.len()) {
            Ok(()) => Ok(Self { path }),
            Err(error) => Err(error),
        }
    }

    /// Returns the path as given.
    pub const fn as_str(&self) -> &'a str {
        self.path
    }
}

impl KeyEncoding for PathKey<'_> {
    fn encode_into(&self, buf: &mut KeyBuf) {
        // No normalisation here: it could change the order in which the source lists its paths.
        buf.copy_from_slice(self.path.as_bytes());
    }
}

impl fmt::Debug for PathKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathKey").field("len", &self.path.len()).finish_non_exhaustive()
    }
}

/// A path whose names need not be UTF-8, encoded as its own bytes.
///
/// The order of byte slices *is* byte order. A path that is UTF-8 has the same encoding as its
/// [`PathKey`], so both kinds of keys can be mixed in one tree and sort together. Paths come from
/// outside the program, so there is no constructor that panics.
///
/// `Debug` shows only the length.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BytePathKey<'a> {
    /// Between 1 and [`MAX_KEY_SIZE`] bytes.
    path: &'a [u8],
}

impl<'a> BytePathKey<'a> {
    /// Creates a key from any path.
    ///
    /// # Errors
    /// If `path` is empty or longer than [`MAX_KEY_SIZE`].
    pub const fn try_new(path: &'a [u8]) -> Result<Self, KeyInputError> {
        match check_path_len(path.len()) {
            Ok(()) => Ok(Self { path }),
            Err(error) => Err(error),
        }
    }

    /// Returns the path as given.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.path
    }
}

impl<'a> From<PathKey<'a>> for BytePathKey<'a> {
    fn from(key: PathKey<'a>) -> Self {
        Self { path: key.path.as_bytes() }
    }
}

impl KeyEncoding for BytePathKey<'_> {
    fn encode_into(&self, buf: &mut KeyBuf) {
        buf.copy_from_slice(self.path);
    }
}

impl fmt::Debug for BytePathKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BytePathKey").field("len", &self.path.len()).finish_non_exhaustive()
    }
}

const fn check_path_len(len: usize) -> Result<(), KeyInputError> {
    match len {
        0 => Err(KeyInputError::Empty),
        1..=MAX_KEY_SIZE => Ok(()),
        size => Err(KeyInputError::TooLarge { size, max: MAX_KEY_SIZE }),
    }
}

/// One row of one manifest: two big-endian `u64`, 16 bytes, no delimiter and no varint.
///
/// Byte order is tuple order, first by manifest, then by row. All values are valid. The row
/// `u64::MAX` can be a bound, but not a member of a range from the row constructors, such as
/// [`shard_spec_from_manifest_range_ref`]: their end is a row of the same manifest, and none is
/// greater.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ManifestRowKey {
    // The derived order compares the fields in this order, as the encoding does.
    manifest_id: u64,
    row: u64,
}

impl ManifestRowKey {
    /// Length of every encoded row key.
    pub const ENCODED_LEN: usize = 2 * size_of::<u64>();

    /// Returns the key of row `row` in manifest `manifest_id`.
    pub const fn new(manifest_id: u64, row: u64) -> Self {
        Self { manifest_id, row }
    }

    /// Returns the first row key that is not below `bound`, in byte order; `None` if there is none.
    ///
    /// A range may be bounded by any bytes. All keys of a manifest are row keys, so this bound
    /// contains the same keys as the given one and can be split by rows.
    pub fn at_or_after(bound: &[u8]) -> Option<Self> {
        let mut first = [0; Self::ENCODED_LEN];
        let kept = bound.len().min(Self::ENCODED_LEN);
        first[..kept].copy_from_slice(&bound[..kept]);
        let mut first = u128::from_be_bytes(first);
        // Padding with zeros gives the smallest key with these bytes in front, but a key sorts
        // below every longer bound that starts with it.
        if bound.len() > Self::ENCODED_LEN {
            first = first.checked_add(1)?;
        }
        decode_manifest_row_key(&first.to_be_bytes())
    }

    /// Returns the manifest.
    pub const fn manifest_id(self) -> u64 {
        self.manifest_id
    }

    /// Returns the row within the manifest.
    pub const fn row(self) -> u64 {
        self.row
    }
}

impl KeyEncoding for ManifestRowKey {
    fn encode_into(&self, buf: &mut KeyBuf) {
        let (manifest, row) = buf.resize(Self::ENCODED_LEN).split_at_mut(size_of::<u64>());
        manifest.copy_from_slice(&self.manifest_id.to_be_bytes());
        row.copy_from_slice(&self.row.to_be_bytes());
    }
}

/// Decodes a row key from exactly [`ManifestRowKey::ENCODED_LEN`] bytes.
pub fn decode_manifest_row_key(key: &[u8]) -> Option<ManifestRowKey> {
    // Both conversions fail on another length, so longer keys that begin with a row key are no
    // rows.
    let (manifest_id, row) = key.split_first_chunk()?;
    let row = row.try_into().ok()?;
    Some(ManifestRowKey::new(u64::from_be_bytes(*manifest_id), u64::from_be_bytes(row)))
}
