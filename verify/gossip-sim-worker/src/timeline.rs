//! The event queue of workers in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Participants by the time of their next step. Participants with equal times run in their order.
#[derive(Debug)]
pub(crate) struct Timeline<A>(BinaryHeap<Reverse<(u64, A)>>);

impl<A: Ord> Timeline<A> {
    pub(crate) const fn new() -> Self {
        Self(BinaryHeap::new())
    }

    /// Schedules `who` at `at`.
    pub(crate) fn push(&mut self, at: u64, who: A) {
        self.0.push(Reverse((at, who)));
    }

    /// Returns the next participant and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, A)> {
        self.0.pop().map(|Reverse(next)| next)
    }
}
