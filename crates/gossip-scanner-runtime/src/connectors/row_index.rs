//! Rows by number, and an index that finds them.
//!
//! [`Rows`] walks the items of a manifest and counts its rows. [`RowIndex`] remembers where every
//! so many items one begins. Its size is bounded: when it is full, every second entry is dropped
//! and the distance doubles. So a file of 4 million rows is known at every 64th, one of a billion
//! at every 16 thousandth.

use std::sync::Arc;

use gossip_contracts::connector::ConnectorError;

use super::rows::{Row, RowScanner, RowSyntax};
use super::source_file::SourceFile;

/// Entries of an index at most: a megabyte, whatever the file.
const INDEX_ENTRIES_MAX: usize = 64 * 1024;

/// Items between two entries at first: to scan past so many costs about as much as one read.
const FIRST_STRIDE: u64 = 64;

const _: () = assert!(INDEX_ENTRIES_MAX.is_multiple_of(2), "every second entry is dropped");

/// A row and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberedRow {
    /// Counted from one.
    pub(super) number: u64,
    pub(super) row: Row,
}

/// A walk over the items of a manifest.
pub(super) struct Rows {
    scanner: RowScanner,
    /// The number of the scanner's current row.
    next_number: u64,
    /// Rows with lower numbers are no items.
    first_number: u64,
    /// Found, and put back.
    waiting: Option<NumberedRow>,
}

impl Rows {
    /// From the top of the file, with a buffer of `buffer_len` bytes.
    pub(super) fn new(
        file: Arc<SourceFile>,
        syntax: RowSyntax,
        first_number: u64,
        buffer_len: usize,
    ) -> Self {
        let scanner = RowScanner::new(file, syntax, 0, buffer_len);
        Self { scanner, next_number: 1, first_number, waiting: None }
    }

    /// Returns a number that no item still to come is below.
    pub(super) fn next_number(&self) -> u64 {
        self.waiting.map_or(self.next_number, |row| row.number)
    }

    /// Goes to a row whose place is known.
    pub(super) fn jump(&mut self, number: u64, start: u64) {
        self.scanner.seek(start);
        self.next_number = number;
        self.waiting = None;
    }

    /// Returns the next item, `None` at the end.
    pub(super) fn take(&mut self) -> Result<Option<NumberedRow>, ConnectorError> {
        if let Some(row) = self.waiting.take() {
            return Ok(Some(row));
        }
        while let Some(row) = self.scanner.next_row()? {
            let number = self.next_number;
            self.next_number += 1;
            // Blank rows and the header have numbers, too, so the number of a row is its place in
            // the file.
            if number >= self.first_number && !row.is_blank() {
                return Ok(Some(NumberedRow { number, row }));
            }
        }
        Ok(None)
    }

    /// Returns the row that was just taken.
    pub(super) fn put_back(&mut self, row: NumberedRow) {
        debug_assert!(self.waiting.is_none(), "one item is out at a time");
        self.waiting = Some(row);
    }

    /// Passes the items with numbers below `number`; gives how many.
    pub(super) fn skip_below(&mut self, number: u64) -> Result<u64, ConnectorError> {
        let mut passed = 0;
        while let Some(row) = self.take()? {
            if row.number >= number {
                self.put_back(row);
                break;
            }
            passed += 1;
        }
        Ok(passed)
    }
}

/// Where every so many items one begins.
pub(super) struct RowIndex {
    /// Items from one entry to the next; a power of two.
    stride: u64,
    /// The item at `stride` times its position; numbers and starts increase.
    entries: Vec<IndexEntry>,
    /// Items in all.
    items: u64,
}

#[derive(Clone, Copy)]
pub(super) struct IndexEntry {
    pub(super) number: u64,
    start: u64,
}

impl RowIndex {
    /// Reads all rows.
    pub(super) fn build(mut rows: Rows) -> Result<Self, ConnectorError> {
        let mut index = Self { stride: FIRST_STRIDE, entries: Vec::new(), items: 0 };
        while let Some(NumberedRow { number, row }) = rows.take()? {
            index.note(IndexEntry { number, start: row.start });
        }
        Ok(index)
    }

    pub(super) const fn items(&self) -> u64 {
        self.items
    }

    /// Returns the entries for items with numbers in `first..end`.
    pub(super) fn entries_in(&self, first: u64, end: u64) -> &[IndexEntry] {
        let (low, high) = (self.entries_below(first), self.entries_below(end));
        &self.entries[low..high.max(low)]
    }

    /// Moves `rows` to the last known item that is not behind `number`; gives how many items there
    /// are before that.
    pub(super) fn jump_before(&self, number: u64, rows: &mut Rows) -> u64 {
        // The entry at `number` itself counts, if there is one.
        let known = self.entries_below(number.saturating_add(1));
        let Some(position) = known.checked_sub(1) else {
            return 0;
        };
        let entry = self.entries[position];
        rows.jump(entry.number, entry.start);
        position as u64 * self.stride
    }

    fn entries_below(&self, number: u64) -> usize {
        self.entries.partition_point(|entry| entry.number < number)
    }

    /// Takes the next item, whose ordinal is the number of items so far.
    fn note(&mut self, entry: IndexEntry) {
        if self.items.is_multiple_of(self.stride) {
            if self.entries.len() == INDEX_ENTRIES_MAX {
                self.halve();
            }
            // An item that no longer falls on an entry is left out.
            if self.items.is_multiple_of(self.stride) {
                self.entries.push(entry);
            }
        }
        self.items += 1;
    }

    fn halve(&mut self) {
        let mut position = 0;
        self.entries.retain(|_| {
            position += 1;
            position % 2 == 1
        });
        // Together with the entries, or positions would no longer give the number of items before
        // them.
        self.stride *= 2;
    }
}
