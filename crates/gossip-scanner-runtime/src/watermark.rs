//! The finished prefix of a page whose items finish out of order.
//!
//! An [`ItemWatermark`] tracks the items of one page by their index. Items start in order and
//! finish in any order. The mark is the end of the *finished prefix*, so a cursor at the mark never
//! covers an item in flight. Items that finished beyond the mark are repeated after a crash; the
//! caller bounds their number ([`ItemWatermark::ahead`]).
//!
//! It has no keys, no clock and no coordinator, and allocates only when a page is larger than every
//! page before.
//!
//! # Invariants
//!
//! `mark <= started <= len`; every item below the mark is settled; the item at the mark, if there
//! is one, is not.

use std::num::NonZeroU32;
use std::ops::Range;

/// The final state of an item, as far as the cursor is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It was processed, and its results are durable.
    Done,
    /// It was processed, its results are durable, and this many findings are among them.
    Found(NonZeroU32),
    /// It is no longer in the source.
    Gone,
    /// It exists and could not be read.
    Unread,
}

/// The finished prefix of one page.
#[derive(Debug, Default)]
pub struct ItemWatermark {
    /// One for each item of the page; `None` while the item is not settled.
    items: Vec<Option<Settled>>,
    /// The first index that is not settled.
    mark: usize,
    /// The first index that was not started.
    started: usize,
    /// How many items are started and not settled.
    pub(crate) in_flight: usize,
}

impl ItemWatermark {
    /// Starts a page of `len` items.
    ///
    /// # Panics
    ///
    /// Panics if items of the previous page are in flight: their reports would be credited to items
    /// of the new one.
    pub(crate) fn begin(&mut self, len: usize) {
        assert!(self.in_flight == 0, "a page ends before the next begins");
        self.items.clear();
        self.items.resize(len, None);
        (self.mark, self.started) = (0, 0);
    }

    /// Drops the page and its in-flight items.
    pub(crate) fn abandon(&mut self) {
        // Before `begin`, which asserts that no item is in flight.
        self.in_flight = 0;
        self.begin(0);
    }

    /// Ends the page after the last started item. In-flight items stay in flight.
    pub(crate) fn cut_short(&mut self) {
        self.items.truncate(self.started);
    }

    /// Starts the next item. Returns its index, or `None` if all items were started.
    pub(crate) fn start(&mut self) -> Option<usize> {
        let index = self.next()?;
        self.started += 1;
        self.in_flight += 1;
        Some(index)
    }

    /// Returns the index that [`Self::start`] would return.
    #[must_use]
    pub(crate) fn next(&self) -> Option<usize> {
        (self.started < self.items.len()).then_some(self.started)
    }

    /// Returns the last started index.
    #[must_use]
    pub(crate) const fn last_started(&self) -> Option<usize> {
        self.started.checked_sub(1)
    }

    /// Settles the item at `index`. Returns `false` if it was not in flight.
    ///
    /// A handler may report an item that was never submitted, so this does not panic.
    pub(crate) fn settle(&mut self, index: usize, settled: Settled) -> bool {
        // A second report of an item must not count it as finished twice.
        if index >= self.started || self.items[index].is_some() {
            return false;
        }
        self.items[index] = Some(settled);
        self.in_flight -= 1;
        true
    }

    /// Moves the mark over the finished prefix, as far as `pass` admits each item and its state.
    /// Returns the items that it passed.
    pub(crate) fn advance(&mut self, mut pass: impl FnMut(usize, Settled) -> bool) -> Range<usize> {
        let from = self.mark;
        // Items that finished behind the first unfinished one wait: a cursor past it would cover
        // it.
        while let Some(settled) = self.settled(self.mark)
            && pass(self.mark, settled)
        {
            self.mark += 1;
        }
        from..self.mark
    }

    /// Returns the state of the item at `index`, if it is settled.
    #[must_use]
    pub(crate) fn settled(&self, index: usize) -> Option<Settled> {
        self.items.get(index).copied().flatten()
    }

    /// Returns the first index that is not settled; the length of the page if all are.
    #[must_use]
    pub(crate) const fn mark(&self) -> usize {
        self.mark
    }

    /// Returns how many items from the mark on were started, settled or not.
    #[must_use]
    pub(crate) const fn ahead(&self) -> usize {
        self.started - self.mark
    }

    /// Returns whether the item at `index` is in flight.
    #[must_use]
    pub(crate) fn is_in_flight(&self, index: usize) -> bool {
        index < self.started && self.settled(index).is_none()
    }

    /// Returns whether every item is settled and the mark has passed it.
    #[must_use]
    pub(crate) fn is_finished(&self) -> bool {
        self.mark == self.items.len()
    }
}
