//! The lines of a file.
//!
//! The key of a line is the byte offset at which it begins ([`row_key`]), so two equal lines are
//! two items, a listing starts at any key with one seek, and a file of any size is sampled with a
//! bounded number of short reads. The body is the line without its line feed, and without a
//! carriage return before that. Empty lines are items; a line feed at the end of the file begins no
//! further line.
//!
//! Lines may be of any length: none is ever held whole beyond what a body may be inline. A file
//! that is changed is [`ConnectorError::SourceChanged`], for a listing and for an item: a line is
//! never taken for gone, and other content at its place is never taken for it. Lines are not
//! counted, as that would mean to read everything.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, Page, PageItem,
    SeekCost,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

use super::row_keys::{ROW_KEY_LEN, parse_row_key, row_key, rows_in};
use super::rows::{ROW_BUFFER_LEN, Row, RowScanner, RowSyntax, SCAN_BUFFER_LEN};
use super::source_file::SourceFile;
use super::spread::push_spread;

/// Places of a file that a sample looks at, at most: a thousand short reads take milliseconds, and
/// no more cuts than that are made at once.
const LOOK_PLACES_MAX: usize = 1024;

/// How far a sample looks for the beginning of a line; longer lines are passed over.
const LOOK_LINE_BYTES: usize = 4 * 1024;

/// A part of a file up to this size is read whole by a sample, which is then exact.
const LOOK_WHOLE_BYTES: u64 = 256 * 1024;

/// The lines of one file.
pub struct LineFile {
    file: Arc<SourceFile>,
    syntax: RowSyntax,
}

/// What ends an item of a [`LineFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each is a scheme of its own")]
pub enum LineEnd {
    /// A line feed; a carriage return before it is no content.
    Feed,
    /// A zero byte, which no path contains.
    Nul,
}

impl LineEnd {
    /// Returns the byte.
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Feed => b'\n',
            Self::Nul => 0,
        }
    }
}

impl LineFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    ///
    /// It does not exist, may not be read, or is no regular file.
    pub fn open(path: &Path) -> Result<Self, ConnectorError> {
        Self::open_with(path, LineEnd::Feed)
    }

    /// As [`Self::open`], with another end of items.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub(crate) fn open_with(path: &Path, end: LineEnd) -> Result<Self, ConnectorError> {
        let syntax = match end {
            LineEnd::Feed => RowSyntax::Lines,
            LineEnd::Nul => RowSyntax::Nul,
        };
        Ok(Self { file: Arc::new(SourceFile::open(path)?), syntax })
    }

    /// Returns a source over the lines of `bytes`, for a list that is in memory already.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { file: Arc::new(SourceFile::from_bytes(bytes)), syntax: RowSyntax::Lines }
    }

    fn scanner(&self, next: u64, buffer_len: usize) -> RowScanner {
        RowScanner::new(Arc::clone(&self.file), self.syntax, next, buffer_len)
    }

    /// Returns the offsets that keys of `range` above the cursor may have, `[first, end)`.
    fn offsets(&self, range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> (u64, u64) {
        let (first, end) = rows_in(range, from);
        let end = end.unwrap_or(u64::MAX).min(self.file.len());
        (first.unwrap_or(u64::MAX).min(end), end)
    }

    /// Returns the body of the line that begins at the offset in `key`.
    ///
    /// [`OpenError::Vanished`] if the key is not an offset or no line begins there.
    fn body_at<'a>(
        &'a self,
        key: &[u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let start = parse_row_key(key).ok_or(OpenError::Vanished)?;
        // The line that holds the byte before must end here. Otherwise the offset lies within a
        // line, and the rest of it would pass for an item that no listing has.
        let mut scanner = self.scanner(start.saturating_sub(1), ROW_BUFFER_LEN);
        if start > 0 && scanner.next_row()?.is_none_or(|before| before.next != start) {
            return Err(OpenError::Vanished);
        }
        let row = scanner.next_row()?.ok_or(OpenError::Vanished)?;
        self.file.body(row.start, row.end, scratch)
    }

    /// Returns the beginnings of lines in `first..end` near `places` evenly spaced offsets, in
    /// ascending order and each once.
    ///
    /// There are fewer than `places` if several offsets lie in one line or if no line begins within
    /// [`LOOK_LINE_BYTES`] of an offset.
    fn look(&self, first: u64, end: u64, places: usize) -> Result<Vec<u64>, ConnectorError> {
        let mut scanner = self.scanner(first, LOOK_LINE_BYTES);
        let mut starts = Vec::with_capacity(places);
        for place in 0..places as u64 {
            // The product of distance and place may not fit in 64 bits.
            let offset = u128::from(end - first) * u128::from(place) / places as u128;
            let offset = first + u64::try_from(offset).expect("at most the distance itself");
            // Two offsets within one long line find the same next line, and the last ones may find
            // a line after the range.
            let found = first_line_near(&mut scanner, offset)?;
            let is_new =
                |start: &u64| *start < end && starts.last().is_none_or(|last| last < start);
            starts.extend(found.filter(is_new));
        }
        Ok(starts)
    }

    /// Every beginning of a line in `first..end`.
    fn all_starts(&self, first: u64, end: u64) -> Result<Vec<u64>, ConnectorError> {
        let mut lines = Lines::new(self, first, end)?;
        let mut starts = Vec::new();
        while let Some(row) = lines.take()? {
            starts.push(row.start);
        }
        Ok(starts)
    }
}

impl Connector for LineFile {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_sizes().with_samples().with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        self.file.check_unchanged()?;
        let (first, end) = self.offsets(range, from);
        Ok(Box::new(Lines::new(self, first, end)?))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let opened = self.body_at(item.key(), scratch);
        // After the read and not before: a change before or during the read is detected, so the
        // body is of the file that was listed.
        self.file.check_unchanged()?;
        opened
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let (first, end) = self.offsets(range, CursorUpdate::initial());
        // A small part is read whole: that costs no more than many short reads, and the sample is
        // exact.
        if end - first <= LOOK_WHOLE_BYTES {
            let starts = self.all_starts(first, end)?;
            let count = starts.len() as u64;
            push_spread(count, count, sample, |index| {
                row_key(starts[usize::try_from(index).expect("an index of this list")])
            });
            return Ok(());
        }
        let limits = sample.limits();
        let places = limits.items().min(limits.bytes() / ROW_KEY_LEN).min(LOOK_PLACES_MAX);
        for start in self.look(first, end, places)? {
            let pushed = sample.push(PageItem::new(&row_key(start)));
            debug_assert!(pushed.is_ok(), "the sample was empty and so many keys fit");
        }
        Ok(())
    }
}

// Numbers only.
impl fmt::Debug for LineFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineFile").field("len", &self.file.len()).finish()
    }
}

struct Lines {
    file: Arc<SourceFile>,
    scanner: RowScanner,
    /// Offsets at or above this are not listed.
    end: u64,
    /// Found, and not yet taken by a page.
    waiting: Option<Row>,
}

impl Lines {
    /// Returns the lines that begin at `first` or above and below `end`.
    fn new(lines: &LineFile, first: u64, end: u64) -> Result<Self, ConnectorError> {
        let file = Arc::clone(&lines.file);
        let mut scanner = lines.scanner(first, SCAN_BUFFER_LEN);
        // `first` may lie within a line that begins before it and belongs to another shard. The
        // line that holds the byte before is skipped, so the next one begins at `first` or above.
        if 0 < first && first < end {
            scanner.seek(first - 1);
            scanner.next_row()?;
        }
        Ok(Self { file, scanner, end, waiting: None })
    }

    fn take(&mut self) -> Result<Option<Row>, ConnectorError> {
        if let Some(row) = self.waiting.take() {
            return Ok(Some(row));
        }
        if self.scanner.position() >= self.end {
            return Ok(None);
        }
        self.scanner.next_row()
    }
}

impl Enumeration for Lines {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while let Some(row) = self.take()? {
            let key = row_key(row.start);
            let item = PageItem::new(&key).with_size_hint(row.end - row.start);
            if page.push(item).is_err() {
                // The page is full. The scanner has passed the row, so it is kept for the next
                // page.
                self.waiting = Some(row);
                return self.file.check_unchanged();
            }
        }
        page.mark_exhausted();
        // After the read: a file that was cut short ends early, and the missing lines must not pass
        // for a complete listing.
        self.file.check_unchanged()
    }
}

/// Returns the offset of the first line that begins at `offset` or above; `None` if no line ends
/// within the scanner's buffer.
fn first_line_near(scanner: &mut RowScanner, offset: u64) -> Result<Option<u64>, ConnectorError> {
    let Some(before) = offset.checked_sub(1) else {
        return Ok(Some(0));
    };
    scanner.seek(before);
    scanner.end_of_row_within_buffer()
}
