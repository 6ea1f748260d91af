//! Where entries stand in the claim index: by time, and among those of one time in scattered order.
//!
//! Free shards all stand at time zero. In the order of their ids no narrow range is known to hold
//! some of them, and a wide one costs as much as it holds on some engines, whatever the limit. So
//! the last part of a claim key is not the id but its *place*: a fixed bijection that spreads ids
//! evenly over all 64-bit numbers. Any interval of places holds its share of the free shards.
//!
//! # Invariants
//! - Places are persisted: neither the constants nor the steps ever change.
//! - Every number is the place of exactly one id.

use gossip_contracts::identity::{LogicalTime, ShardId};

/// Odd, so that multiplying by it can be undone. Spreads consecutive ids.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Odd as well. Spreads what the first left in the low half.
const MIX: u64 = 0xD6E8_FEB8_6659_FD93;
const UNSPREAD: u64 = inverse(SPREAD);
const UNMIX: u64 = inverse(MIX);

/// How far high bits are folded down; twice as far leaves nothing, so folding undoes itself.
const FOLD: u32 = u64::BITS / 2;

const _: () = assert!(SPREAD.wrapping_mul(UNSPREAD) == 1 && MIX.wrapping_mul(UNMIX) == 1);

/// The place of a shard among those of one time.
#[must_use]
pub const fn scatter(shard: ShardId) -> u64 {
    mixed(shard.as_raw())
}

/// The shard whose place is `scatter`.
#[must_use]
pub const fn unscatter(place: u64) -> ShardId {
    let low = place.wrapping_mul(UNMIX);
    ShardId::from_raw((low ^ (low >> FOLD)).wrapping_mul(UNSPREAD))
}

/// A number that looks drawn at random, and no other number gives.
pub(super) const fn mixed(number: u64) -> u64 {
    let spread = number.wrapping_mul(SPREAD);
    (spread ^ (spread >> FOLD)).wrapping_mul(MIX)
}

/// What undoes multiplying by the odd number `of`: each step doubles the bits that are right.
const fn inverse(of: u64) -> u64 {
    let mut found = of;
    let mut step = 0;
    while step < 5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(of.wrapping_mul(found)));
        step += 1;
    }
    found
}

/// Where an entry of the claim index stands: its time in the high half, its shard's place in the
/// low one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimSpot(u128);

impl ClaimSpot {
    /// Behind every entry.
    pub const LAST: Self = Self(u128::MAX);

    /// The spot of `scatter` at time `at`.
    #[must_use]
    pub const fn new(at: LogicalTime, place: u64) -> Self {
        Self((at.as_raw() as u128) << u64::BITS | place as u128)
    }

    /// The first spot of a time.
    #[must_use]
    pub const fn first_at(at: LogicalTime) -> Self {
        Self::new(at, 0)
    }

    /// The last spot of a time.
    #[must_use]
    pub const fn last_at(at: LogicalTime) -> Self {
        Self::new(at, u64::MAX)
    }

    /// When.
    #[must_use]
    pub const fn at(self) -> LogicalTime {
        LogicalTime::from_raw((self.0 >> u64::BITS) as u64)
    }

    /// Where among those of the same time.
    #[must_use]
    pub const fn place(self) -> u64 {
        self.0 as u64
    }

    /// How far behind `earlier` it lies.
    #[must_use]
    pub const fn behind(self, earlier: Self) -> u128 {
        self.0.saturating_sub(earlier.0)
    }

    /// The spot `distance` further on, at most the last.
    #[must_use]
    pub const fn plus(self, distance: u128) -> Self {
        Self(self.0.saturating_add(distance))
    }
}
