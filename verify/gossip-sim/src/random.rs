//! Named random streams, all from one seed.
//!
//! Each use has a stream of its own, identified by name and number. An additional draw from one
//! stream does not shift the others, so a new choice leaves the rest of a simulation unchanged.

/// An odd constant near the golden ratio: the step of a stream's counter.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

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

/// Scatters the bits of a number. Also the step of the trace hash, so it must never change between
/// builds or machines.
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
