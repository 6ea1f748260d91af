//! Positions in the claim index: ordered by time, and scattered among entries of equal time.
//!
//! All free shards are indexed at time zero. If they were ordered by id, no narrow range would be
//! known to hold any of them, and on some engines a wide range costs as much as it holds, whatever
//! the limit. The last part of a claim key is therefore the shard's *place*: a fixed bijection that
//! spreads ids evenly over all 64-bit numbers. Any interval of places holds its share of the free
//! shards.
//!
//! # Invariants
//! - Places are persisted: neither the constants nor the steps may ever change.

use gossip_contracts::identity::{LogicalTime, ShardId};

/// Odd, so that the multiplication is invertible. Spreads consecutive ids.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Odd as well. Mixes the low half, which the first step leaves regular.
const MIX: u64 = 0xD6E8_FEB8_6659_FD93;
const UNSPREAD: u64 = inverse(SPREAD);
const UNMIX: u64 = inverse(MIX);

/// Shift of the xor-fold. Half of the width, so that folding is its own inverse.
const FOLD: u32 = u64::BITS / 2;

const _: () = assert!(SPREAD.wrapping_mul(UNSPREAD) == 1 && MIX.wrapping_mul(UNMIX) == 1);

/// Returns the place of a shard among those of equal time.
#[must_use]
pub(super) const fn scatter(shard: ShardId) -> u64 {
    mixed(shard.as_raw())
}

/// Returns the shard at `place`; the inverse of [`scatter`].
#[must_use]
pub(super) const fn unscatter(place: u64) -> ShardId {
    // The steps of `mixed` in reverse order; a fold by half of the width undoes itself.
    let low = place.wrapping_mul(UNMIX);
    ShardId::from_raw((low ^ (low >> FOLD)).wrapping_mul(UNSPREAD))
}

/// Mixes the bits of `number` by a bijection.
pub(super) const fn mixed(number: u64) -> u64 {
    let spread = number.wrapping_mul(SPREAD);
    // Each step is invertible, so no two ids share a place.
    (spread ^ (spread >> FOLD)).wrapping_mul(MIX)
}

/// Returns the multiplicative inverse of the odd number `of`, by Newton's iteration.
const fn inverse(of: u64) -> u64 {
    let mut found = of;
    let mut step = 0;
    // Any odd number is its own inverse modulo 8; each step doubles the 3 correct bits.
    while step < 5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(of.wrapping_mul(found)));
        step += 1;
    }
    found
}

/// The position of an entry in the claim index: its time in the high half, its shard's place in
/// the low half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimSpot(u128);

impl ClaimSpot {
    /// A position after every entry.
    pub(crate) const LAST: Self = Self(u128::MAX);

    /// Creates the position of `place` at time `at`.
    #[must_use]
    pub(crate) const fn new(at: LogicalTime, place: u64) -> Self {
        Self((at.as_raw() as u128) << u64::BITS | place as u128)
    }

    /// Returns the first position of a time.
    #[must_use]
    pub const fn first_at(at: LogicalTime) -> Self {
        Self::new(at, 0)
    }

    /// Returns the last position of a time.
    #[must_use]
    pub(crate) const fn last_at(at: LogicalTime) -> Self {
        Self::new(at, u64::MAX)
    }

    /// Returns the time.
    #[must_use]
    pub(crate) const fn at(self) -> LogicalTime {
        LogicalTime::from_raw((self.0 >> u64::BITS) as u64)
    }

    /// Returns the place among entries of equal time.
    #[must_use]
    pub(crate) const fn place(self) -> u64 {
        self.0 as u64
    }

    /// Returns the distance from `earlier`, or zero.
    #[must_use]
    pub(crate) const fn behind(self, earlier: Self) -> u128 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the position `distance` later, at most the last.
    #[must_use]
    pub(crate) const fn plus(self, distance: u128) -> Self {
        Self(self.0.saturating_add(distance))
    }
}
