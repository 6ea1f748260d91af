//! A bounded range of keys, and the widest ranges.
//!
//! A [`KeyRange`] can be split: both bounds are set, as the root shards of a manifest require, and
//! the start lies below the end. "Scan everything" is [`KeyRange::WIDEST_UTF8`] for text keys and
//! [`KeyRange::WIDEST_BYTES`] for raw ones.

use std::fmt;

use gossip_contracts::coordination::{
    IntoShardSpecRef, MAX_KEY_SIZE, ShardSpec, ShardSpecInputError, ShardSpecRef,
};
use thiserror::Error;

/// A half-open range `[start, end)` with two bounds and at least one key.
///
/// `Debug` shows only lengths.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct KeyRange<'a> {
    /// Not empty, at most [`MAX_KEY_SIZE`] bytes, below `end`.
    start: &'a [u8],
    /// Not empty, at most [`MAX_KEY_SIZE`] bytes.
    end: &'a [u8],
}

impl KeyRange<'static> {
    /// Every non-empty UTF-8 key: `[0x00, 0xFF)`.
    ///
    /// It omits no key. A non-empty key is at least `[0x00]`, and UTF-8 text contains no byte above
    /// `0xF4`, so all text lies below `[0xFF]`.
    pub const WIDEST_UTF8: Self = Self { start: &[0x00], end: &[0xFF] };

    /// Every raw key but one: from `[0x00]` up to [`MAX_KEY_SIZE`] bytes of `0xFF`.
    ///
    /// The smallest key is `[0x00]`: keys are not empty, and it is a prefix of all other keys that
    /// start with that byte. The greatest is [`MAX_KEY_SIZE`] bytes of `0xFF`. An exclusive end is
    /// a key itself, so the greatest key can bound a range but never lie inside it: **exactly that
    /// key falls outside**, here and in every bounded range. Sources that can produce it (none are
    /// known) must reject or shorten it.
    pub const WIDEST_BYTES: Self = Self { start: &[0x00], end: &[0xFF; MAX_KEY_SIZE] };
}

impl<'a> KeyRange<'a> {
    /// Returns the range `[start, end)`.
    ///
    /// # Errors
    /// If a bound is missing, too large, or not in ascending order; sizes are checked first.
    pub fn try_new(start: &'a [u8], end: &'a [u8]) -> Result<Self, KeyRangeError> {
        ShardSpec::validate_ref(ShardSpecRef::new(start, end, &[]))?;
        // An empty bound is valid for a shard, where it means no bound, but a midpoint needs two.
        if start.is_empty() || end.is_empty() {
            return Err(KeyRangeError::Unbounded { start_len: start.len(), end_len: end.len() });
        }
        Ok(Self { start, end })
    }

    /// Returns the range of a shard; its metadata is ignored.
    ///
    /// # Errors
    /// As [`Self::try_new`].
    pub fn try_from_spec(spec: impl IntoShardSpecRef<'a>) -> Result<Self, KeyRangeError> {
        let spec = spec.into_shard_spec_ref();
        Self::try_new(spec.start, spec.end)
    }

    /// Returns the first key of the range.
    pub const fn start(&self) -> &'a [u8] {
        self.start
    }

    /// Returns the first key after the range.
    pub const fn end(&self) -> &'a [u8] {
        self.end
    }

    /// Returns whether `key` lies in the range.
    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.start <= key && key < self.end
    }
}

impl fmt::Debug for KeyRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRange")
            .field("start_len", &self.start.len())
            .field("end_len", &self.end.len())
            .finish_non_exhaustive()
    }
}

/// The bounds do not form a [`KeyRange`].
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum KeyRangeError {
    /// The bounds are not a valid range of any shard.
    #[error(transparent)]
    Invalid(#[from] ShardSpecInputError),
    /// A bound is empty, which means "no bound".
    #[error("range has no bound on one side: start {start_len} bytes, end {end_len} bytes")]
    Unbounded {
        /// Length of the start presented.
        start_len: usize,
        /// Length of the end presented.
        end_len: usize,
    },
}

#[cfg(test)]
#[path = "key_range_tests.rs"]
mod key_range_tests;
