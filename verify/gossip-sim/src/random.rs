//! Named random streams, all from one seed.
//!
//! Each use has a stream of its own, identified by name and number. An additional draw from one
//! stream does not shift the others, so a new choice leaves the rest of a simulation unchanged.

use gossip_testkit::GOLDEN_STEP as STEP;
pub use gossip_testkit::mix;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(u64);

impl Stream {
    /// Returns the stream of that name and number.
    #[must_use]
    pub fn named(seed: u64, name: &str, number: u64) -> Self {
        let mut state = mix(seed ^ STEP);
        for byte in name.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        Self(mix(state ^ mix(number)))
    }

    /// Returns the substream of that number. Draws from it do not shift this stream.
    pub(super) const fn fork(&self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number.wrapping_add(STEP))))
    }

    /// Returns the next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns a number below `bound`, which must not be zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.draw() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `bound` draws.
    pub const fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}
