//! The token of a cursor as the runtime stores it: its own part, then the connector's.
//!
//! ```text
//!  byte   0  version
//!  byte   1  accumulator of the keys of this shard at or below the cursor   (40 bytes)
//!  byte  41  how many of those keys were skipped as unreadable              (8, little-endian)
//!  byte  49  version 2 only: number of findings in them, never 0            (8, little-endian)
//!  then the connector's own token, possibly empty
//! ```
//!
//! A token without findings has version 1: every token has exactly one encoding.
//!
//! The runtime's part is written with every checkpoint, under the same compare-and-swap as the
//! cursor's key, so what it says is exact under crash, split and handoff: the child of a split that
//! contains the cursor inherits key and token, every other child begins with none.
//!
//! This module never interprets the connector's part and never allocates by an untrusted length.

use std::fmt;

use gossip_contracts::connector::{MAX_CONNECTOR_TOKEN_SIZE, RUNTIME_TOKEN_RESERVE};
use thiserror::Error;

use crate::accumulator::{ACCUMULATOR_LEN, Accumulator, AccumulatorError};

/// Bytes of the runtime's part, before the connector's token, if there are no findings.
pub(crate) const RUNTIME_TOKEN_LEN: usize = 1 + ACCUMULATOR_LEN + 8;

/// Bytes of the number of findings.
const FOUND_LEN: usize = 8;

/// The layout without findings.
const VERSION: u8 = 1;

/// The layout with findings.
const VERSION_FOUND: u8 = 2;

const _: () = assert!(RUNTIME_TOKEN_LEN + FOUND_LEN <= RUNTIME_TOKEN_RESERVE);

/// The decoded token of a cursor.
///
/// A cursor without a token means [`RuntimeToken::START`]: no key is covered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RuntimeToken<'a> {
    /// The keys of this shard at or below its cursor.
    pub accumulator: Accumulator,
    /// How many of those keys were skipped as unreadable. Never more than their count.
    pub unread: u64,
    /// How many findings the processor has reported for those keys.
    pub found: u64,
    /// The connector's own token; empty if it has none.
    pub connector: &'a [u8],
}

impl<'a> RuntimeToken<'a> {
    /// The token before the first key.
    pub const START: Self = Self::new(Accumulator::EMPTY, &[]);

    /// Returns a token without unread keys and without findings.
    #[must_use]
    pub const fn new(accumulator: Accumulator, connector: &'a [u8]) -> Self {
        Self { accumulator, unread: 0, found: 0, connector }
    }

    /// Clears `bytes` and writes the token into it.
    ///
    /// # Errors
    ///
    /// Returns an error if the connector's part is too long, or if more keys are unread than
    /// counted; `bytes` is empty then.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) -> Result<(), TokenError> {
        bytes.clear();
        self.check()?;
        // Findings are rare, and every checkpoint pays for the token's length.
        bytes.push(if self.found == 0 { VERSION } else { VERSION_FOUND });
        bytes.extend_from_slice(&self.accumulator.to_bytes());
        bytes.extend_from_slice(&self.unread.to_le_bytes());
        if self.found != 0 {
            bytes.extend_from_slice(&self.found.to_le_bytes());
        }
        bytes.extend_from_slice(self.connector);
        Ok(())
    }

    /// Decodes the output of [`Self::encode_into`].
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are too short, have another version or a broken accumulator,
    /// or break a rule of [`Self::encode_into`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, TokenError> {
        let too_short = |min| TokenError::TooShort { len: bytes.len(), min };
        let (runtime, behind) = bytes
            .split_first_chunk::<RUNTIME_TOKEN_LEN>()
            .ok_or_else(|| too_short(RUNTIME_TOKEN_LEN))?;
        let (&version, rest) = runtime.split_first().expect("the runtime's part is not empty");
        let (found, connector) = match version {
            VERSION => (0, behind),
            VERSION_FOUND => {
                let min = RUNTIME_TOKEN_LEN + FOUND_LEN;
                let (found, connector) =
                    behind.split_first_chunk::<FOUND_LEN>().ok_or_else(|| too_short(min))?;
                (u64::from_le_bytes(*found), connector)
            }
            _ => return Err(TokenError::Version { version, expected: VERSION_FOUND }),
        };
        // The same token with version 1: a second spelling would break comparisons by bytes.
        if found == 0 && version == VERSION_FOUND {
            return Err(TokenError::NothingFound);
        }
        let (accumulator, unread) = rest.split_at(ACCUMULATOR_LEN);
        // The version was checked before, so that a newer layout is not reported as damage.
        let accumulator = Accumulator::try_from_bytes(accumulator)?;
        let unread = u64::from_le_bytes(unread.try_into().expect("the part ends with a number"));
        let token = Self { accumulator, unread, found, connector };
        token.check()?;
        Ok(token)
    }

    fn check(&self) -> Result<(), TokenError> {
        let (size, max) = (self.connector.len(), MAX_CONNECTOR_TOKEN_SIZE);
        if size > max {
            return Err(TokenError::ConnectorTooLong { size, max });
        }
        let (unread, count) = (self.unread, self.accumulator.count());
        if unread > count {
            return Err(TokenError::UnreadExceedsCount { unread, count });
        }
        Ok(())
    }
}

// Lengths and counts only: a connector's token may hold keys.
impl fmt::Debug for RuntimeToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeToken")
            .field("accumulator", &self.accumulator)
            .field("unread", &self.unread)
            .field("found", &self.found)
            .field("connector_len", &self.connector.len())
            .finish()
    }
}

/// Bytes that are no token of the runtime, or parts that cannot be encoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenError {
    /// Shorter than the runtime's part.
    #[error("a token of {len} bytes; the runtime's part alone has {min}")]
    TooShort {
        /// Bytes presented.
        len: usize,
        /// The length of a token without a connector's part.
        min: usize,
    },
    /// Written by another version of the runtime.
    #[error("a token of version {version}; this runtime reads versions up to {expected}")]
    Version {
        /// The version found.
        version: u8,
        /// The last version known here.
        expected: u8,
    },
    /// A token with a field for findings has none.
    #[error("a token of findings without any")]
    NothingFound,
    /// The accumulator is broken.
    #[error(transparent)]
    Accumulator(#[from] AccumulatorError),
    /// The connector's part is longer than a connector's token may be.
    #[error("a connector's token of {size} bytes; at most {max} are allowed")]
    ConnectorTooLong {
        /// Its size.
        size: usize,
        /// [`MAX_CONNECTOR_TOKEN_SIZE`].
        max: usize,
    },
    /// More keys are unread than counted.
    #[error("{unread} keys unread of {count}")]
    UnreadExceedsCount {
        /// Keys said to be unread.
        unread: u64,
        /// Keys at or below the cursor.
        count: u64,
    },
}
