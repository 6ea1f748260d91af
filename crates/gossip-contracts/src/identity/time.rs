//! Fence epochs and logical time: the two counters that the protocol compares.
//!
//! Neither reads a clock. Time is an argument everywhere; whoever drives the protocol decides what
//! one unit means, and there is no subtraction, because the distance between two readings of
//! different machines says nothing.

use std::fmt;

use super::{CanonicalBytes, CanonicalHasher};

/// How many times ownership of a shard has changed hands. Higher wins, always.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceEpoch(u64);

impl FenceEpoch {
    /// Nobody has ever owned this. A sentinel: no lease carries it.
    pub const ZERO: Self = Self(0);
    /// The epoch of the first owner.
    pub const INITIAL: Self = Self(1);

    /// The epoch with this number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number of this epoch.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }

    /// The next epoch.
    ///
    /// # Panics
    ///
    /// At `u64::MAX`. A saturated fence would let two owners share one epoch, and wrapping would
    /// let the oldest owner win, so there is no safe answer; 2⁶⁴ handovers are out of reach anyway.
    #[must_use]
    #[inline]
    pub const fn increment(self) -> Self {
        match self.checked_increment() {
            Some(next) => next,
            None => panic!("fence epoch exhausted"),
        }
    }

    /// The next epoch, or nothing at `u64::MAX`: for epochs read from bytes nobody vouches for.
    #[must_use]
    #[inline]
    pub const fn checked_increment(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }
}

// The first lease is an increment like any other; no code path needs to know it is the first.
const _: () = assert!(FenceEpoch::ZERO.increment().0 == FenceEpoch::INITIAL.0);

impl fmt::Debug for FenceEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FenceEpoch({})", self.0)
    }
}

impl fmt::Display for FenceEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl CanonicalBytes for FenceEpoch {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u64(self.0);
    }
}

/// A reading of the caller's clock, in the caller's unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalTime(u64);

impl LogicalTime {
    /// Never. A sentinel: nothing that happened is stamped with it.
    pub const ZERO: Self = Self(0);

    /// The time with this number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number of this time.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }

    /// This time plus `duration`, or nothing beyond `u64::MAX`.
    #[must_use]
    pub const fn checked_add(self, duration: u64) -> Option<Self> {
        match self.0.checked_add(duration) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// This time plus `duration`, and `u64::MAX` beyond it: a lease deadline that does not fit is
    /// one that never passes, which is what its caller asked for.
    #[must_use]
    pub const fn saturating_add(self, duration: u64) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl fmt::Debug for LogicalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogicalTime({})", self.0)
    }
}

impl fmt::Display for LogicalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl CanonicalBytes for LogicalTime {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_u64(self.0);
    }
}
