//! A range of integers: the source without a source.
//!
//! An integer is a row of its source ([`row_key`]), and its body is the number as decimal text.
//! Everything is computed: seeking, counting and sampling cost nothing. Negative numbers and
//! [`ROWS_END`] are not supported.

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, Page, PageItem,
    SeekCost,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

use super::row_keys::{ROWS_END, parse_row_key, row_key, rows_in};
use super::spread::push_spread;

/// The integers from a first one up to, not including, an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerRange {
    first: u64,
    /// At least `first`; equal means no integers.
    end: u64,
}

impl IntegerRange {
    /// Returns the integers `first..end`; none if `end` is not above `first`.
    #[must_use]
    pub fn new(first: u64, end: u64) -> Self {
        Self { first, end: end.max(first) }
    }

    /// Returns the integers `first..=last`; without integers if `last` is below `first`. `None` if
    /// `last` is [`ROWS_END`], which cannot be a row.
    #[must_use]
    pub(crate) fn inclusive(first: u64, last: u64) -> Option<Self> {
        (last < ROWS_END).then(|| Self::new(first, last + 1))
    }

    /// Returns the first integer, if there is one; where it would be otherwise.
    #[must_use]
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// Returns the last integer, if there is one.
    #[must_use]
    pub(crate) const fn last(&self) -> Option<u64> {
        if self.end == self.first { None } else { Some(self.end - 1) }
    }

    /// Returns the part of this range that lies in a shard behind its cursor, as `[first, end)`.
    fn part(&self, range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> (u64, u64) {
        let (first, end) = rows_in(range, from);
        let end = end.map_or(self.end, |end| self.end.min(end));
        // No row at or above the start: the part is empty, and empty at its end.
        let first = first.map_or(end, |first| first.max(self.first));
        (first.min(end), end)
    }
}

impl Connector for IntegerRange {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_sizes().with_counts().with_samples().with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let (next, end) = self.part(range, from);
        Ok(Box::new(Integers { next, end }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let number = parse_row_key(item.key()).ok_or(OpenError::Vanished)?;
        // A key of another range over the same manifest id.
        if number < self.first || number >= self.end {
            return Err(OpenError::Vanished);
        }
        scratch.clear();
        scratch.extend_from_slice(number.to_string().as_bytes());
        Ok(ItemBody::Bytes(scratch))
    }

    fn count_keys(&self, range: ShardSpecRef<'_>) -> Result<Option<u64>, ConnectorError> {
        let (first, end) = self.part(range, CursorUpdate::initial());
        Ok(Some(end - first))
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let (first, end) = self.part(range, CursorUpdate::initial());
        push_spread(end - first, end - first, sample, |index| row_key(first + index));
        Ok(())
    }
}

struct Integers {
    /// At most `end`.
    next: u64,
    end: u64,
}

impl Enumeration for Integers {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while self.next < self.end {
            let digits = u64::from(self.next.checked_ilog10().unwrap_or(0)) + 1;
            // Full or faulty, the answer is the same: `next` still names the item.
            if page.push(PageItem::new(&row_key(self.next)).with_size_hint(digits)).is_err() {
                return Ok(());
            }
            self.next += 1;
        }
        page.mark_exhausted();
        Ok(())
    }
}
