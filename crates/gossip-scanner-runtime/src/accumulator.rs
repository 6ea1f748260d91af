//! A count and a hash of the covered keys, in forty bytes.
//!
//! An [`Accumulator`] is a count and an order-free hash of a multiset of keys: each key is hashed
//! by BLAKE3 in a domain of its own, the digest is read as four numbers, and those are added lane
//! by lane, wrapping. So keys may be added in any order, and the accumulators of parts merge into
//! that of the whole. It travels in the runtime's part of a shard's cursor token and so is exactly
//! as durable as the cursor: it covers the keys of the shard up to the cursor, no more.
//!
//! It never stores a key, and no key can be removed from it.
//!
//! Equal accumulators show equal sets of keys, against every bug and every error of a source, and
//! against anyone who cannot choose the keys. Someone who may choose thousands of keys freely can
//! find another set with the same sum in far fewer than 2¹²⁸ steps (the generalised birthday attack
//! on sums); lanes of two kilobytes would stop that, at fifty times the size of each checkpoint. A
//! signed certificate does not help there, as the source itself was chosen.

use std::fmt;

use gossip_contracts::identity::{CanonicalHasher, Domain};
use thiserror::Error;

/// Bytes of an accumulator: the count, then the lanes, all little-endian.
pub(crate) const ACCUMULATOR_LEN: usize = 8 + 8 * LANES;

/// Numbers in a digest of BLAKE3.
const LANES: usize = 4;

// The lanes take a digest whole, as the hasher gives it.
const _: () = assert!(8 * LANES == size_of::<[u8; 32]>());

/// A count and an order-free hash of a multiset of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Accumulator {
    /// How many keys were added, with repetitions.
    count: u64,
    /// Lane-wise wrapping sum of the keys' digests; all zero while the count is zero.
    sum: [u64; LANES],
}

impl Accumulator {
    /// The accumulator of no keys.
    pub const EMPTY: Self = Self { count: 0, sum: [0; LANES] };

    /// Adds one key.
    pub fn add(&mut self, key: &[u8]) {
        let mut hasher = CanonicalHasher::for_domain(Domain::CERTIFICATE_ITEM_V1);
        // In a domain of its own: the digest of a key elsewhere must not be a summand here.
        hasher.write_bytes_prefixed(key);
        let digest = hasher.finalize_32();
        self.merge(&Self { count: 1, sum: lanes_of(&digest) });
    }

    /// Adds all keys of `other`.
    ///
    /// The count saturates: one that wrapped would look plausible.
    pub const fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        let mut lane = 0;
        while lane < LANES {
            self.sum[lane] = self.sum[lane].wrapping_add(other.sum[lane]);
            lane += 1;
        }
    }

    /// Returns how many keys were added.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether no key was added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the hash without the count, as a certificate writes it.
    #[must_use]
    pub(crate) fn sum_bytes(&self) -> [u8; 8 * LANES] {
        let mut bytes = [0; 8 * LANES];
        for (chunk, lane) in bytes.chunks_exact_mut(8).zip(self.sum) {
            chunk.copy_from_slice(&lane.to_le_bytes());
        }
        bytes
    }

    /// Returns the encoding in its fixed width.
    #[must_use]
    pub(crate) fn to_bytes(self) -> [u8; ACCUMULATOR_LEN] {
        let mut bytes = [0; ACCUMULATOR_LEN];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sum_bytes());
        bytes
    }

    /// Decodes the output of [`Self::to_bytes`].
    ///
    /// # Errors
    ///
    /// Returns an error for another length, and for a non-zero hash with a count of zero.
    pub(crate) fn try_from_bytes(bytes: &[u8]) -> Result<Self, AccumulatorError> {
        let len = bytes.len();
        let wrong_length = AccumulatorError::Length { len, expected: ACCUMULATOR_LEN };
        let bytes: &[u8; ACCUMULATOR_LEN] = bytes.try_into().map_err(|_| wrong_length)?;
        let (count, sum) = bytes.split_at(8);
        let sum = sum.try_into().expect("an accumulator less its count is the lanes");
        Self::try_from_parts(number(count), sum)
    }

    /// Combines a count and the output of [`Self::sum_bytes`].
    ///
    /// # Errors
    ///
    /// Returns an error for a non-zero hash with a count of zero.
    pub(crate) fn try_from_parts(
        count: u64,
        sum: &[u8; 8 * LANES],
    ) -> Result<Self, AccumulatorError> {
        let accumulator = Self { count, sum: lanes_of(sum) };
        // No sequence of additions produces it, so it is damage or forgery.
        if count == 0 && accumulator != Self::EMPTY {
            return Err(AccumulatorError::SumOfNothing);
        }
        Ok(accumulator)
    }
}

impl Default for Accumulator {
    fn default() -> Self {
        Self::EMPTY
    }
}

// The count only: the hash of a single key would let anyone test guesses of it.
impl fmt::Debug for Accumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accumulator").field("count", &self.count).finish_non_exhaustive()
    }
}

/// Bytes that are not an accumulator.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccumulatorError {
    /// Not the fixed width.
    #[error("an accumulator of {len} bytes instead of {expected}")]
    Length {
        /// Bytes presented.
        len: usize,
        /// The length of an encoding.
        expected: usize,
    },
    /// The count is zero and the hash is not.
    #[error("an accumulator that counts no keys has the hash of some")]
    SumOfNothing,
}

fn lanes_of(digest: &[u8; 8 * LANES]) -> [u64; LANES] {
    let mut lanes = [0; LANES];
    for (lane, chunk) in lanes.iter_mut().zip(digest.chunks_exact(8)) {
        *lane = number(chunk);
    }
    lanes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("callers cut eight bytes"))
}
