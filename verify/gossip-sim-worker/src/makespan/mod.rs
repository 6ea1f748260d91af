//! How evenly uneven work is spread, in virtual time.
//!
//! A [`Case`] is a source, a number of workers and a way to cut. [`play`] runs it: the worker's own
//! slots and renewers, its split policy and its tasks, on the production coordinator over a store
//! in memory; only threads are replaced by a queue of times, and processing by waiting. Nothing of
//! the runtime is modelled a second time.
//!
//! Every worker is a process of one slot. What it costs to poll, to ask, to wait for the owner's
//! next checkpoint and to claim is in the figures, because those waits are the runtime's own; the
//! time that a store takes to answer is not.
//!
//! The same case gives the same outcome, to the tick.

mod connector;
mod sources;
mod table;
mod virtual_time;

#[cfg(test)]
mod makespan_tests;

pub use self::sources::Shape;
pub use self::table::{Plan, table};
pub use self::virtual_time::play;

/// How work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// So many shards for each worker, cut by a look at the source; never split.
    Static(usize),
    /// Four for each worker, cut evenly by bytes; busy ones are split at the middle of their bytes.
    Bytes,
    /// Four for each worker, cut by a look at the source; busy ones are split as the runtime does.
    Auto,
}

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Where the keys are and what each costs.
    pub shape: Shape,
    /// How many keys there are.
    pub keys: usize,
    /// How many workers; at least one.
    pub workers: usize,
    /// How work is divided.
    pub way: Way,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Ticks until the last key was done.
    pub makespan: u64,
    /// Ticks of all keys together.
    pub work: u64,
    /// How many shards the run began with.
    pub initial: usize,
    /// How often a shard was split.
    pub splits: usize,
    /// The work of the heaviest of the first shards.
    pub heaviest: u64,
}

impl Outcome {
    /// The makespan as a multiple of what perfectly divided work would take.
    #[must_use]
    pub fn ratio(&self, workers: usize) -> f64 {
        self.makespan as f64 * workers as f64 / self.work as f64
    }

    /// How many splits are allowed: 4 · workers · log₂ (heaviest ÷ mean first shard), the logarithm
    /// taken as one at least, since shards that begin equal do not end so.
    #[must_use]
    pub fn splits_allowed(&self, workers: usize) -> usize {
        let mean = self.work as f64 / self.initial as f64;
        let halvings = (self.heaviest as f64 / mean).log2().max(1.0);
        (4.0 * workers as f64 * halvings) as usize
    }
}
