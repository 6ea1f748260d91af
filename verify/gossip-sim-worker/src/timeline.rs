//! A queue of who does something when, for workers in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Who acts when. Those of one instant act in their own order.
#[derive(Debug)]
pub(crate) struct Timeline<A>(BinaryHeap<Reverse<(u64, A)>>);

impl<A: Ord> Timeline<A> {
    pub(crate) const fn new() -> Self {
        Self(BinaryHeap::new())
    }

    /// Lets `who` act at `at`.
    pub(crate) fn push(&mut self, at: u64, who: A) {
        self.0.push(Reverse((at, who)));
    }

    /// Who acts next, and when.
    pub(crate) fn pop(&mut self) -> Option<(u64, A)> {
        self.0.pop().map(|Reverse(next)| next)
    }
}
