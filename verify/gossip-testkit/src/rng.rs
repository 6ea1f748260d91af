//! The random numbers of tests, benchmarks and simulators.

/// A generator of pseudo-random numbers that is fully determined by its seed (SplitMix64).
///
/// The sequence of a seed never changes: recorded seeds of failures and pinned traces depend on it.
/// It is not for cryptography.
///
/// ```
/// use gossip_testkit::Rng;
///
/// let draw = |seed| Rng::seeded(seed).next_u64();
/// assert_eq!(draw(7), draw(7));
/// assert_ne!(draw(7), draw(8));
/// ```
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Returns a generator that starts at `seed`. Every seed is as good as any other.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number; all 64 bits are usable.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_STEP);
        mix(self.state)
    }

    /// Returns a number less than `bound`. The bias of the remainder is below `bound / 2^64`.
    ///
    /// # Panics
    ///
    /// If `bound` is zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// Returns an index into something of length `len`.
    ///
    /// # Panics
    ///
    /// If `len` is zero.
    pub const fn index(&mut self, len: usize) -> usize {
        (self.next_u64() % len as u64) as usize
    }

    /// Returns `true` in `percent` of 100 draws.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `items`.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn pick<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.index(items.len())]
    }

    /// Puts `items` into a random order; every order is equally likely (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }
}

/// The step of the generator's counter: an odd constant near the golden ratio.
pub const GOLDEN_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Scatters the bits of a number. Hashes of traces use it too, so it never changes.
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
#[path = "rng_tests.rs"]
mod rng_tests;
