//! Measures how evenly uneven work is spread, in virtual time.
//!
//! A [`Case`] is a source, a number of workers and a way to divide the work. [`run`] executes it
//! with the production slots, renewers, split policy and tasks, on the production coordinator over
//! an in-memory store; only threads are replaced by an event queue, and processing by waiting.
//! Nothing of the runtime is modelled separately.
//!
//! Every worker is a process with one slot. The figures include the runtime's waits for polling,
//! requests, the owner's next checkpoint and claims; they do not include store latency.
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
pub use self::virtual_time::run;

/// How work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// This number of shards per worker, divided by a sample of the source; never split.
    Static(usize),
    /// Four shards per worker, divided evenly by bytes; busy ones are split at their middle bytes.
    Bytes,
    /// Four shards per worker, divided by a sample; busy ones are split by the runtime's policy.
    Auto,
}

/// A case of the study.
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

/// Result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Ticks until the last key was processed.
    pub makespan: u64,
    /// Ticks of all keys together.
    pub work: u64,
    /// Number of initial shards.
    pub initial: usize,
    /// Number of splits.
    pub splits: usize,
    /// Work of the heaviest initial shard.
    pub heaviest: u64,
}

impl Outcome {
    /// Returns the makespan relative to perfectly divided work.
    #[must_use]
    pub fn ratio(&self, workers: usize) -> f64 {
        self.makespan as f64 * workers as f64 / self.work as f64
    }

    /// Returns the allowed number of splits: 4 · workers · log₂ (heaviest ÷ mean initial shard),
    /// with a logarithm of at least one, since equal initial shards do not stay equal.
    #[must_use]
    pub fn splits_allowed(&self, workers: usize) -> usize {
        let mean = self.work as f64 / self.initial as f64;
        let halvings = (self.heaviest as f64 / mean).log2().max(1.0);
        (4.0 * workers as f64 * halvings) as usize
    }
}
