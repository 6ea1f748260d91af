//! Manifests: the rows of a JSON Lines or CSV file, by number.
//!
//! The key of a row is its number, counted from one as editors and spreadsheets do
//! ([`row_key`]), so equal rows are different items. The body is the row as written in the file,
//! without what ends it. Rows of no bytes are numbered and are no items.
//!
//! - **JSON Lines**: a row is a line. Opening one that is no JSON text is
//!   [`OpenError::Malformed`]; one too long to be inline is given unchecked.
//! - **CSV**: a row may hold line feeds inside quotes. Unless the file has no header, its first
//!   row names the columns and is no item. Fields are separated by commas and otherwise left
//!   alone. A file that ends inside quotes is [`ConnectorError::Malformed`], with the offset of the
//!   row in question.
//!
//! Numbers cannot be found without counting, and quotes cannot be understood from the middle, so
//! the first use of a manifest **reads the file once** and keeps a [`RowIndex`] of bounded size.
//! After that counts and samples are exact, and a seek reads a short way from a known row. Resuming
//! with a token needs no index. A file that is changed meanwhile is
//! [`ConnectorError::SourceChanged`], for a listing and for an item: no row is ever taken for gone.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, Page, PageItem,
    SeekCost,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

use super::row_index::{RowIndex, Rows};
use super::row_keys::{parse_row_key, row_key, rows_in};
use super::rows::{ROW_BUFFER_LEN, RowSyntax, SCAN_BUFFER_LEN};
use super::source_file::{SourceFile, Stamp};
use super::spread::push_spread;

/// Up to so many rows a sample reads one by one; of more it takes those that the index knows.
const LOOK_ROWS_MAX: u64 = 16 * 1024;

/// The rows of one file.
pub struct Manifest {
    file: Arc<SourceFile>,
    format: ManifestFormat,
    /// Built by the first caller that needs it. A failure is not cached: another try may succeed.
    index: Mutex<Option<Arc<RowIndex>>>,
}

/// How the rows of a manifest are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestFormat {
    /// One JSON text a line.
    JsonLines,
    /// Comma-separated values with quotes.
    Csv {
        /// Whether the first row names the columns.
        header: bool,
    },
}

impl ManifestFormat {
    const fn syntax(self) -> RowSyntax {
        match self {
            Self::JsonLines => RowSyntax::Lines,
            Self::Csv { .. } => RowSyntax::Csv,
        }
    }

    /// Returns the number of the first row that may be an item.
    const fn first_number(self) -> u64 {
        match self {
            Self::JsonLines | Self::Csv { header: false } => 1,
            Self::Csv { header: true } => 2,
        }
    }
}

impl Manifest {
    /// Opens the file at `path`.
    ///
    /// # Errors
    ///
    /// It does not exist, may not be read, or is no regular file.
    pub fn open(path: &Path, format: ManifestFormat) -> Result<Self, ConnectorError> {
        let file = Arc::new(SourceFile::open(path)?);
        Ok(Self { file, format, index: Mutex::new(None) })
    }

    /// Returns a source over the rows of `bytes`, for a manifest that is in memory already.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], format: ManifestFormat) -> Self {
        let file = Arc::new(SourceFile::from_bytes(bytes));
        Self { file, format, index: Mutex::new(None) }
    }

    /// Returns the index, which takes one reading of the file the first time.
    fn index(&self) -> Result<Arc<RowIndex>, ConnectorError> {
        // Held while reading: two threads that both need it shall not both read the file. A panic
        // inside leaves no index, which is a right state.
        let mut slot = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = &*slot {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(RowIndex::build(self.rows_from_the_top(SCAN_BUFFER_LEN))?);
        *slot = Some(Arc::clone(&index));
        Ok(index)
    }

    fn rows_from_the_top(&self, buffer_len: usize) -> Rows {
        let file = Arc::clone(&self.file);
        Rows::new(file, self.format.syntax(), self.format.first_number(), buffer_len)
    }

    /// Returns a walk that begins with the first item whose number is not below `number`.
    ///
    /// `token` is believed if it is of this file and of a row that is not behind `number`.
    fn rows_at(
        &self,
        number: u64,
        token: Option<RowToken>,
        buffer_len: usize,
    ) -> Result<Rows, ConnectorError> {
        let mut rows = self.rows_from_the_top(buffer_len);
        match token {
            Some(token) => rows.jump(token.number, token.start),
            None => drop(self.index()?.jump_before(number, &mut rows)),
        }
        rows.skip_below(number)?;
        Ok(rows)
    }

    /// Returns the token, if it is of this very file and of the row with this key.
    fn token_of(&self, key: &[u8], token: Option<&[u8]>) -> Option<RowToken> {
        let token = RowToken::read(token?, self.file.stamp())?;
        (Some(token.number) == parse_row_key(key)).then_some(token)
    }

    fn body_of<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let number = parse_row_key(item.key()).ok_or(OpenError::Vanished)?;
        let token = self.token_of(item.key(), item.token());
        let mut rows = self.rows_at(number, token, ROW_BUFFER_LEN)?;
        let found = rows.take()?.filter(|row| row.number == number).ok_or(OpenError::Vanished)?;
        let body = self.file.body(found.row.start, found.row.end, scratch)?;
        match (self.format, &body) {
            (ManifestFormat::JsonLines, ItemBody::Bytes(row)) if !is_json(row) => {
                Err(OpenError::Malformed)
            }
            (ManifestFormat::JsonLines | ManifestFormat::Csv { .. }, _) => Ok(body),
        }
    }

    /// Returns how many items there are with numbers below `number`.
    fn items_below(&self, number: u64) -> Result<u64, ConnectorError> {
        let mut rows = self.rows_from_the_top(ROW_BUFFER_LEN);
        let known = self.index()?.jump_before(number, &mut rows);
        Ok(known + rows.skip_below(number)?)
    }

    /// Returns the number of items with numbers in `first..end`, `None` meaning no end.
    fn count(&self, first: u64, end: Option<u64>) -> Result<u64, ConnectorError> {
        let below_end = match end {
            Some(end) => self.items_below(end)?,
            None => self.index()?.items(),
        };
        Ok(below_end.saturating_sub(self.items_below(first)?))
    }

    /// Numbers of items in `first..end`, all if they are few, else such as the index knows.
    fn look(&self, first: u64, end: u64, count: u64) -> Result<Vec<u64>, ConnectorError> {
        if count > LOOK_ROWS_MAX {
            let index = self.index()?;
            return Ok(index.entries_in(first, end).iter().map(|entry| entry.number).collect());
        }
        let mut rows = self.rows_at(first, None, SCAN_BUFFER_LEN)?;
        let mut numbers = Vec::new();
        while let Some(row) = rows.take()?.filter(|row| row.number < end) {
            numbers.push(row.number);
        }
        Ok(numbers)
    }
}

impl Connector for Manifest {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_sizes().with_counts().with_samples().with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        self.file.check_unchanged()?;
        let (first, end) = rows_in(range, from);
        let (file, end) = (Arc::clone(&self.file), end.unwrap_or(u64::MAX));
        let Some(first) = first.filter(|first| *first < end) else {
            let rows = self.rows_from_the_top(ROW_BUFFER_LEN);
            return Ok(Box::new(ManifestRows { file, rows, end: 0 }));
        };
        let key = from.last_key().unwrap_or_default();
        // A cursor far below the range has a token too, and it would lead the long way.
        let near = parse_row_key(key).and_then(|row| row.checked_add(1)) == Some(first);
        let token = self.token_of(key, from.token()).filter(|_| near);
        let rows = self.rows_at(first, token, SCAN_BUFFER_LEN)?;
        Ok(Box::new(ManifestRows { file, rows, end }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let opened = self.body_of(item, scratch);
        // After the read and not before: a change before or during the read is detected, so the
        // body is of the file that was listed.
        self.file.check_unchanged()?;
        opened
    }

    fn count_keys(&self, range: ShardSpecRef<'_>) -> Result<Option<u64>, ConnectorError> {
        let (first, end) = rows_in(range, CursorUpdate::initial());
        match first {
            Some(first) => Ok(Some(self.count(first, end)?)),
            None => Ok(Some(0)),
        }
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let (first, end) = rows_in(range, CursorUpdate::initial());
        let first = first.unwrap_or(u64::MAX);
        let count = self.count(first, end)?;
        let numbers = self.look(first, end.unwrap_or(u64::MAX), count)?;
        push_spread(numbers.len() as u64, count, sample, |index| {
            row_key(numbers[usize::try_from(index).expect("an index of this list")])
        });
        Ok(())
    }
}

// Numbers only.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest")
            .field("format", &self.format)
            .field("len", &self.file.len())
            .finish_non_exhaustive()
    }
}

struct ManifestRows {
    file: Arc<SourceFile>,
    rows: Rows,
    /// Numbers at or above this are not listed.
    end: u64,
}

impl Enumeration for ManifestRows {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        // No row is read behind the last of the range.
        while self.rows.next_number() < self.end {
            let Some(found) = self.rows.take()?.filter(|found| found.number < self.end) else {
                break;
            };
            let (key, row) = (row_key(found.number), found.row);
            let token = RowToken { number: found.number, start: row.start };
            let token = token.write(self.file.stamp());
            let item = PageItem::new(&key).with_token(&token).with_size_hint(row.end - row.start);
            if page.push(item).is_err() {
                self.rows.put_back(found);
                return self.file.check_unchanged();
            }
        }
        page.mark_exhausted();
        // After the read: a file that was cut short ends early, and the missing rows must not pass
        // for a complete listing.
        self.file.check_unchanged()
    }
}

/// Where a row begins: what a token of a manifest says, beside which file it is of.
#[derive(Clone, Copy)]
struct RowToken {
    number: u64,
    start: u64,
}

impl RowToken {
    /// Four numbers, big-endian: row, offset, and the file's size and time of change.
    fn write(self, stamp: Stamp) -> [u8; 32] {
        let mut bytes = [0; 32];
        let numbers = [self.number, self.start, stamp.len, stamp.modified];
        for (chunk, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            chunk.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Reads a token, unless it is of another file or of another state of it.
    fn read(bytes: &[u8], stamp: Stamp) -> Option<Self> {
        let bytes: &[u8; 32] = bytes.try_into().ok()?;
        let mut numbers = bytes.chunks_exact(8).map(|chunk| {
            u64::from_be_bytes(chunk.try_into().expect("chunks of exactly eight bytes"))
        });
        let token = Self { number: numbers.next()?, start: numbers.next()? };
        let same = numbers.next()? == stamp.len && numbers.next()? == stamp.modified;
        same.then_some(token)
    }
}

/// Returns whether these bytes are one JSON text.
fn is_json(row: &[u8]) -> bool {
    // The parser skips what it is not asked for without looking whether it is text.
    let text = std::str::from_utf8(row);
    text.is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}
