//! `Debug` output of byte strings that must stay secret: only their length.

use std::fmt;

/// Replaces a key, token or metadata in `Debug` output: `[12 bytes]`.
pub(crate) struct ByteLen(pub(crate) usize);

impl ByteLen {
    /// Returns the length of `bytes`; the bytes themselves are not stored.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.len())
    }
}

impl fmt::Debug for ByteLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0)
    }
}
