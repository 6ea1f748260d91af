//! `Debug` of byte strings that must stay secret: their length and nothing else.

use std::fmt;

/// Stands in for a key, token or metadata in `Debug` output: `[12 bytes]`.
pub(crate) struct ByteLen(pub(crate) usize);

impl ByteLen {
    /// The length of `bytes`; the bytes themselves are not kept.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.len())
    }
}

impl fmt::Debug for ByteLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0)
    }
}
