//! Exponential backoff with jitter from a seed.
//!
//! Waits double from a first one up to a longest one. Each is drawn from the upper half of its
//! span, so that workers that failed together do not retry together. The numbers come from a seed,
//! so a simulation is reproducible.

/// A sequence of waits, in ticks.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: u64,
    longest: u64,
    /// The number of waits since the last success.
    failures: u32,
    /// State of the generator.
    dice: u64,
}

impl Backoff {
    /// Returns a backoff of about `first` ticks at first and `longest` at most.
    #[must_use]
    pub(crate) const fn new(first: u64, longest: u64, seed: u64) -> Self {
        Self { first, longest, failures: 0, dice: seed }
    }

    /// Returns the next wait.
    pub(crate) fn wait(&mut self) -> u64 {
        let doubled = self.first.checked_shl(self.failures).unwrap_or(u64::MAX);
        // A shift may lose bits without overflowing its width.
        let grown = if self.failures >= self.first.leading_zeros() { u64::MAX } else { doubled };
        self.failures = self.failures.saturating_add(1);
        self.jitter(grown.min(self.longest))
    }

    /// Returns a random duration between half of `span` and `span`.
    pub(crate) fn jitter(&mut self, span: u64) -> u64 {
        let half = span / 2;
        span - half + self.roll() % half.saturating_add(1)
    }

    /// Starts again at the first wait, because the last try succeeded.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// SplitMix64: enough to spread waits.
    const fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.dice;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
