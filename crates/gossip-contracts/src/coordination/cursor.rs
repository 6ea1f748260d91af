//! Cursors: how far a shard has been scanned.
//!
//! A cursor is an optional *last key*, which the coordinator compares, and an optional *token*,
//! which only the connector interprets. [`CursorUpdate`] borrows both, [`Cursor`] owns them.
//!
//! # Invariants
//! - A present last key is never empty, so the empty key cannot be mistaken for "no progress".
//! - A present token is never empty, and there is no token without a last key.
//! - Cursors built by a `try_*` constructor respect [`MAX_KEY_SIZE`] and [`MAX_TOKEN_SIZE`]. The
//!   panicking constructors are for literals and for bytes already checked; they skip the sizes.
//!
//! # Progress
//!
//! | old key | new key | result |
//! |---|---|---|
//! | none | none or any | [`CursorAdvance::Forward`] |
//! | `a` | `b >= a` | [`CursorAdvance::Forward`] |
//! | `a` | `b < a` | [`CursorAdvance::Regression`] |
//! | `a` | none | [`CursorAdvance::ResetToNone`] |
//!
//! "None to none" passes this comparison; `checkpoint` and `complete` reject a missing key by a
//! rule of their own.

use std::fmt;

use thiserror::Error;

use super::byte_len::ByteLen;

/// Maximum length of a key, for range bounds and cursors alike.
///
/// Fits the longest path that common file systems accept, and keeps fixed scratch buffers small.
pub const MAX_KEY_SIZE: usize = 4 * 1024;

/// Maximum length of a connector token. Fits a signed continuation token with a wide margin.
pub const MAX_TOKEN_SIZE: usize = 16 * 1024;

// Canonical encoding and the slab both hold lengths as u32.
const _: () = assert!(MAX_KEY_SIZE > 0 && MAX_KEY_SIZE <= u32::MAX as usize);
const _: () = assert!(MAX_TOKEN_SIZE > 0 && MAX_TOKEN_SIZE <= u32::MAX as usize);

/// A borrowed cursor: a worker's report, or the content of a record.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CursorUpdate<'a> {
    /// The last key done. Never `Some` of an empty slice.
    last_key: Option<&'a [u8]>,
    /// The connector's resume state. Never `Some` of an empty slice, nor present without a key.
    token: Option<&'a [u8]>,
}

impl<'a> CursorUpdate<'a> {
    /// Returns a cursor without progress.
    #[must_use]
    pub const fn initial() -> Self {
        Self { last_key: None, token: None }
    }

    /// Returns a cursor at `last_key`, which is done. Does not check its size.
    ///
    /// # Panics
    /// If `last_key` is empty.
    #[must_use]
    pub const fn with_last_key(last_key: &'a [u8]) -> Self {
        Self::new(last_key, &[])
    }

    /// Returns a cursor with a resume token; an empty token means none. Does not check sizes.
    ///
    /// # Panics
    /// If `last_key` is empty.
    #[must_use]
    #[inline]
    pub const fn new(last_key: &'a [u8], token: &'a [u8]) -> Self {
        assert!(!last_key.is_empty(), "a cursor key is not empty");
        let token = if token.is_empty() { None } else { Some(token) };
        Self { last_key: Some(last_key), token }
    }

    /// Returns a cursor as [`Self::with_last_key`] does, after checking the key.
    ///
    /// # Errors
    /// As [`Self::try_new`].
    #[inline]
    pub const fn try_with_last_key(last_key: &'a [u8]) -> Result<Self, CursorInputError> {
        Self::try_new(last_key, &[])
    }

    /// Returns a cursor as [`Self::new`] does, after checking both parts.
    ///
    /// # Errors
    /// In this order: an empty key, a key that is too large, a token that is too large.
    #[inline]
    pub const fn try_new(last_key: &'a [u8], token: &'a [u8]) -> Result<Self, CursorInputError> {
        if last_key.is_empty() {
            return Err(CursorInputError::EmptyLastKey);
        }
        if last_key.len() > MAX_KEY_SIZE {
            return Err(CursorInputError::KeyTooLarge { size: last_key.len(), max: MAX_KEY_SIZE });
        }
        if token.len() > MAX_TOKEN_SIZE {
            return Err(CursorInputError::TokenTooLarge { size: token.len(), max: MAX_TOKEN_SIZE });
        }
        Ok(Self::new(last_key, token))
    }

    /// Returns a cursor from two optional parts, as decoders and connectors hold them.
    ///
    /// # Errors
    /// As [`Self::try_new`]. A non-empty token without a key is [`CursorInputError::EmptyLastKey`].
    #[inline]
    pub const fn try_from_parts(
        last_key: Option<&'a [u8]>,
        token: Option<&'a [u8]>,
    ) -> Result<Self, CursorInputError> {
        match (last_key, token) {
            (None, None | Some([])) => Ok(Self::initial()),
            (None, Some(_)) => Err(CursorInputError::EmptyLastKey),
            (Some(last_key), None) => Self::try_with_last_key(last_key),
            (Some(last_key), Some(token)) => Self::try_new(last_key, token),
        }
    }

    /// Returns the last key done, if any.
    #[must_use]
    pub const fn last_key(&self) -> Option<&'a [u8]> {
        self.last_key
    }

    /// Returns the connector's resume state, if any.
    #[must_use]
    pub const fn token(&self) -> Option<&'a [u8]> {
        self.token
    }

    /// Returns whether there is no progress.
    #[must_use]
    pub const fn is_initial(&self) -> bool {
        self.last_key.is_none()
    }
}

impl fmt::Debug for CursorUpdate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_cursor(f, "CursorUpdate", *self)
    }
}

/// An owned cursor, for use beyond the life of the buffer that a cursor was read from.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Never `Some` of an empty slice.
    last_key: Option<Box<[u8]>>,
    /// Never `Some` of an empty slice, nor present without a key.
    token: Option<Box<[u8]>>,
}

impl Cursor {
    /// Returns a cursor without progress.
    #[must_use]
    pub const fn initial() -> Self {
        Self { last_key: None, token: None }
    }

    /// Returns a cursor as [`CursorUpdate::with_last_key`] does.
    ///
    /// # Panics
    /// If `last_key` is empty.
    #[must_use]
    pub fn with_last_key(last_key: &[u8]) -> Self {
        CursorUpdate::with_last_key(last_key).into()
    }

    /// Returns a cursor as [`CursorUpdate::new`] does.
    ///
    /// # Panics
    /// If `last_key` is empty.
    #[must_use]
    pub fn new(last_key: &[u8], token: &[u8]) -> Self {
        CursorUpdate::new(last_key, token).into()
    }

    /// Returns a cursor as [`CursorUpdate::try_with_last_key`] does.
    ///
    /// # Errors
    /// As [`CursorUpdate::try_new`].
    pub fn try_with_last_key(last_key: &[u8]) -> Result<Self, CursorInputError> {
        CursorUpdate::try_with_last_key(last_key).map(Self::from)
    }

    /// Returns a cursor as [`CursorUpdate::try_new`] does.
    ///
    /// # Errors
    /// As [`CursorUpdate::try_new`].
    pub fn try_new(last_key: &[u8], token: &[u8]) -> Result<Self, CursorInputError> {
        CursorUpdate::try_new(last_key, token).map(Self::from)
    }

    /// Returns a cursor as [`CursorUpdate::try_from_parts`] does.
    ///
    /// # Errors
    /// As [`CursorUpdate::try_from_parts`].
    pub fn try_from_parts(
        last_key: Option<&[u8]>,
        token: Option<&[u8]>,
    ) -> Result<Self, CursorInputError> {
        CursorUpdate::try_from_parts(last_key, token).map(Self::from)
    }

    /// Returns the borrowed form of this cursor.
    #[must_use]
    pub fn as_update(&self) -> CursorUpdate<'_> {
        CursorUpdate { last_key: self.last_key(), token: self.token() }
    }

    /// Returns the last key done, if any.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.last_key.as_deref()
    }

    /// Returns the connector's resume state, if any.
    #[must_use]
    pub(crate) fn token(&self) -> Option<&[u8]> {
        self.token.as_deref()
    }

    /// Returns whether there is no progress.
    #[must_use]
    pub const fn is_initial(&self) -> bool {
        self.last_key.is_none()
    }
}

impl From<CursorUpdate<'_>> for Cursor {
    fn from(update: CursorUpdate<'_>) -> Self {
        Self { last_key: update.last_key.map(Box::from), token: update.token.map(Box::from) }
    }
}

impl From<&CursorUpdate<'_>> for Cursor {
    fn from(update: &CursorUpdate<'_>) -> Self {
        Self::from(*update)
    }
}

impl<'a> From<&'a Cursor> for CursorUpdate<'a> {
    fn from(cursor: &'a Cursor) -> Self {
        cursor.as_update()
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_cursor(f, "Cursor", self.as_update())
    }
}

/// The bytes do not form a valid cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CursorInputError {
    /// The key is present but empty, or a token came without a key.
    #[error("a cursor key is at least 1 byte long, this one has none")]
    EmptyLastKey,
    /// The key exceeds [`MAX_KEY_SIZE`].
    #[error("a cursor key of {size} bytes exceeds the limit of {max}")]
    KeyTooLarge {
        /// Length presented.
        size: usize,
        /// Length allowed.
        max: usize,
    },
    /// The token exceeds [`MAX_TOKEN_SIZE`].
    #[error("a cursor token of {size} bytes exceeds the limit of {max}")]
    TokenTooLarge {
        /// Length presented.
        size: usize,
        /// Length allowed.
        max: usize,
    },
}

/// The relation of a new cursor to the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the table in the module documentation is complete")]
pub enum CursorAdvance {
    /// Ahead of the old key, or equal to it (a retry).
    Forward,
    /// Behind the old key.
    Regression,
    /// The old cursor had a key and the new one has none.
    ResetToNone,
}

/// Compares two last keys. Tokens are not compared: they are opaque and have no order.
#[must_use]
pub fn check_cursor_advance(old: Option<&[u8]>, new: Option<&[u8]>) -> CursorAdvance {
    match (old, new) {
        (None, _) => CursorAdvance::Forward,
        (Some(_), None) => CursorAdvance::ResetToNone,
        (Some(old), Some(new)) if new < old => CursorAdvance::Regression,
        // Equal keys: a retry of a checkpoint whose reply was lost.
        (Some(_), Some(_)) => CursorAdvance::Forward,
    }
}

/// Position of a key relative to a half-open range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "absent, inside, below and above are all cases")]
pub enum CursorBounds {
    /// There is no key.
    NoKey,
    /// `start <= key < end`.
    InBounds,
    /// `key < start`.
    BelowRange,
    /// `end <= key`.
    AboveRange,
}

/// Returns the position of `key` relative to `[start, end)`; an empty bound is unbounded.
#[must_use]
pub fn check_cursor_bounds(key: Option<&[u8]>, start: &[u8], end: &[u8]) -> CursorBounds {
    let Some(key) = key else {
        return CursorBounds::NoKey;
    };
    // An empty start needs no special case: no key is smaller than the empty one.
    if key < start {
        CursorBounds::BelowRange
    } else if !end.is_empty() && key >= end {
        CursorBounds::AboveRange
    } else {
        CursorBounds::InBounds
    }
}

fn fmt_cursor(f: &mut fmt::Formatter<'_>, name: &str, cursor: CursorUpdate<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("last_key", &cursor.last_key.map(ByteLen::of))
        .field("token", &cursor.token.map(ByteLen::of))
        .finish()
}
