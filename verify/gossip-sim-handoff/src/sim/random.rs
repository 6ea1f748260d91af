//! Pseudo-random numbers from a seed.

use gossip_testkit::GOLDEN_STEP;
pub(super) use gossip_testkit::mix;

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Returns a number below `bound`, which is not zero.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_STEP);
        ((mix(self.0) as u128 * bound as u128) >> 64) as u64
    }

    /// Returns true once in `bound` draws on average.
    pub(super) const fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    /// Returns an index into a non-empty list of `len`.
    pub(super) const fn place(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}
