//! A range of integers: the source without a source.
//!
//! The item of a number is its key ([`number_key`]) and its body is the number as plain decimal
//! text. Everything is computed: seeking, counting and sampling cost nothing. Negative numbers are
//! not supported.

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, Page, PageItem,
    SeekCost,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

use super::decimal::{number_key, numbers_in, parse_number_key};
use super::spread::push_spread;

/// The integers from a first one up to, not including, an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerRange {
    first: u64,
    /// At least `first`; equal means no integers. One more than any number, so 2⁶⁴ − 1 itself can
    /// be the last.
    end: u128,
}

impl IntegerRange {
    /// Returns the integers `first..end`; none if `end` is not above `first`.
    #[must_use]
    pub fn new(first: u64, end: u64) -> Self {
        Self { first, end: u128::from(end.max(first)) }
    }

    /// Returns the integers `first..=last`; none if `last` is below `first`.
    #[must_use]
    pub fn inclusive(first: u64, last: u64) -> Self {
        Self { first, end: (u128::from(last) + 1).max(u128::from(first)) }
    }

    /// Returns the first integer, if there is one; where it would be otherwise.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Returns the last integer, if there is one.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        if self.end == u128::from(self.first) {
            return None;
        }
        Some(u64::try_from(self.end - 1).expect("the end is at most one above the last number"))
    }

    /// Returns the part of this range that lies in a shard behind its cursor, as `[first, end)`.
    fn part(&self, range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> (u128, u128) {
        let (first, end) = numbers_in(range, from);
        let end = end.map_or(self.end, |end| self.end.min(u128::from(end)));
        let first = first.map_or(end, |first| u128::from(first.max(self.first)));
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
        let number = parse_number_key(item.key()).ok_or(OpenError::Vanished)?;
        if number < self.first || u128::from(number) >= self.end {
            return Err(OpenError::Vanished);
        }
        scratch.clear();
        scratch.extend_from_slice(number.to_string().as_bytes());
        Ok(ItemBody::Bytes(scratch))
    }

    fn count_keys(&self, range: ShardSpecRef<'_>) -> Result<Option<u64>, ConnectorError> {
        let (first, end) = self.part(range, CursorUpdate::initial());
        // Only the range of all 2⁶⁴ integers has a count that is no number of 64 bits.
        Ok(Some(u64::try_from(end - first).unwrap_or(u64::MAX)))
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let (first, end) = self.part(range, CursorUpdate::initial());
        let count = end - first;
        push_spread(count, count, sample, |index| number_key(number(first + index)));
        Ok(())
    }
}

struct Integers {
    /// At most `end`.
    next: u128,
    end: u128,
}

impl Enumeration for Integers {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while self.next < self.end {
            let number = number(self.next);
            let digits = u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
            // Full or faulty, the answer is the same: `next` still names the item.
            if page.push(PageItem::new(&number_key(number)).with_size_hint(digits)).is_err() {
                return Ok(());
            }
            self.next += 1;
        }
        page.mark_exhausted();
        Ok(())
    }
}

/// Returns a number of the range, which is below its end.
fn number(wide: u128) -> u64 {
    u64::try_from(wide).expect("below an end that is at most 2⁶⁴")
}
