//! Fence epochs and logical time: the two counters that the protocol compares.
//!
//! Neither reads a clock. Time is an argument everywhere, and the caller of the protocol defines
//! its unit. There is no subtraction, because the difference between readings of two machines'
//! clocks has no meaning.

use std::fmt;

use super::{CanonicalBytes, CanonicalHasher};

/// Number of ownership changes of a shard. The higher epoch always wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceEpoch(u64);

impl FenceEpoch {
    /// Never owned. A sentinel: no lease carries it.
    pub const ZERO: Self = Self(0);
    /// The epoch of the first owner.
    pub const INITIAL: Self = Self(1);

    /// Returns the epoch with this number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number of this epoch.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }

    /// Returns the next epoch.
    ///
    /// # Panics
    ///
    /// At `u64::MAX`. A saturated fence would let two owners share one epoch, and a wrapped one
    /// would let the oldest owner win, so there is no safe result; 2⁶⁴ handovers are out of reach
    /// anyway.
    #[must_use]
    #[inline]
    pub const fn increment(self) -> Self {
        match self.checked_increment() {
            Some(next) => next,
            None => panic!("fence epoch exhausted"),
        }
    }

    /// Returns the next epoch, or `None` at `u64::MAX`. For epochs read from untrusted bytes.
    #[must_use]
    #[inline]
    pub const fn checked_increment(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }
}

// The first lease is an ordinary increment; no code path treats it specially.
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
    /// Never. A sentinel: no event has this timestamp.
    pub const ZERO: Self = Self(0);

    /// Returns the time with this number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number of this time.
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }

    /// Returns this time plus `duration`, or `None` beyond `u64::MAX`.
    #[must_use]
    pub const fn checked_add(self, duration: u64) -> Option<Self> {
        match self.0.checked_add(duration) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// Returns this time plus `duration`, saturating at `u64::MAX`: a lease deadline that does not
    /// fit never passes, which is the lease that its caller requested.
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
