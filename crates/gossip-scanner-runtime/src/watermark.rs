//! How far a shard has come when its items finish out of order.
//!
//! A [`ItemWatermark`] follows the items of one page by their index. Items are started in order and
//! finish in any; the mark stands behind the last item of the *finished prefix*, so that a cursor
//! at the mark never covers an item that is still on its way. Whatever finished beyond it is done
//! again after a crash; whoever starts items bounds it ([`ItemWatermark::ahead`]).
//!
//! It knows no keys, no clock and no coordinator, and allocates only when a page is larger than
//! every page before.
//!
//! # Invariants
//!
//! `mark <= started <= len`; every item below the mark is settled; the item at the mark, if there
//! is one, is not.

use std::num::NonZeroU32;
use std::ops::Range;

/// What became of an item, as far as the cursor is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "covered, passed over, or not there: no other")]
pub enum Settled {
    /// It was processed, and its results are durable.
    Done,
    /// So too, and so much was found in it.
    Found(NonZeroU32),
    /// It is no longer in the source.
    Gone,
    /// It is there and could not be read.
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
    /// How many are started and not settled.
    in_flight: usize,
}

impl ItemWatermark {
    /// Begins a page of `len` items.
    ///
    /// # Panics
    ///
    /// If items of the page before are still on their way: their reports would be taken for those
    /// of the new ones.
    pub fn begin(&mut self, len: usize) {
        assert!(self.in_flight == 0, "a page ends before the next begins");
        self.items.clear();
        self.items.resize(len, None);
        (self.mark, self.started) = (0, 0);
    }

    /// Forgets the page and whatever is on its way.
    pub fn abandon(&mut self) {
        self.in_flight = 0;
        self.begin(0);
    }

    /// Ends the page behind the last item that was started. Whatever is on its way stays so.
    pub fn cut_short(&mut self) {
        self.items.truncate(self.started);
    }

    /// Starts the next item and tells its index; `None` if all were started.
    pub fn start(&mut self) -> Option<usize> {
        let index = self.next()?;
        self.started += 1;
        self.in_flight += 1;
        Some(index)
    }

    /// The index that [`Self::start`] would give.
    #[must_use]
    pub fn next(&self) -> Option<usize> {
        (self.started < self.items.len()).then_some(self.started)
    }

    /// The last index that was started.
    #[must_use]
    pub const fn last_started(&self) -> Option<usize> {
        self.started.checked_sub(1)
    }

    /// Settles the item at `index`; `false` if it was not on its way.
    ///
    /// A handler may report what nobody asked it for, so that is no panic.
    pub fn settle(&mut self, index: usize, settled: Settled) -> bool {
        if index >= self.started || self.items[index].is_some() {
            return false;
        }
        self.items[index] = Some(settled);
        self.in_flight -= 1;
        true
    }

    /// Moves the mark over everything that is settled in one piece; tells which items it passed.
    pub fn advance(&mut self) -> Range<usize> {
        let from = self.mark;
        let settled = self.items[from..].iter().take_while(|item| item.is_some()).count();
        self.mark += settled;
        from..self.mark
    }

    /// What became of the item at `index`, if it is settled.
    #[must_use]
    pub fn settled(&self, index: usize) -> Option<Settled> {
        self.items.get(index).copied().flatten()
    }

    /// The first index that is not settled; the length of the page if all are.
    #[must_use]
    pub const fn mark(&self) -> usize {
        self.mark
    }

    /// How many items were started and lie behind the mark, settled or not.
    #[must_use]
    pub const fn ahead(&self) -> usize {
        self.started - self.mark
    }

    /// How many items are on their way.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether the item at `index` is on its way.
    #[must_use]
    pub fn is_in_flight(&self, index: usize) -> bool {
        index < self.started && self.settled(index).is_none()
    }

    /// Whether every item is settled and the mark has passed it.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.mark == self.items.len()
    }
}
