//! The user's sink, and the record of its effects.
//!
//! The sink decides by fences alone, as a user's does: it keeps the fence of the last accepted
//! result of each key and refuses a lower one (DESIGN 7). It judges nothing. Every write becomes an
//! [`Effect`], from which the oracle judges the workers and the sink alike.

/// A write that reached the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) shard: u64,
    pub(super) fence: u64,
    /// The number of the key.
    pub(super) key: usize,
    /// The true time.
    pub(super) at: u64,
    /// Whether the sink accepted it.
    pub(super) taken: bool,
}

/// The sink.
#[derive(Debug)]
pub(super) struct UserSink {
    /// Fence of the last accepted result of each key; zero for none.
    fences: Vec<u64>,
}

impl UserSink {
    pub(super) fn new(keys: usize) -> Self {
        Self { fences: vec![0; keys] }
    }

    /// Accepts a result unless one under a higher fence was accepted.
    pub(super) fn write(&mut self, key: usize, fence: u64) -> bool {
        let taken = fence >= self.fences[key];
        if taken {
            self.fences[key] = fence;
        }
        taken
    }
}
