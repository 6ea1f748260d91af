//! Where the rows of a file begin and end.
//!
//! A row ends at a line feed, or at the end of the file; one carriage return before the line feed
//! belongs to the ending. In CSV a line feed inside quotes is content: a field that begins with `"`
//! continues to the next single `"`, and `""` in it means one.
//!
//! Scanning keeps one buffer of fixed size, however long a row is.

use std::sync::Arc;

use gossip_contracts::connector::ConnectorError;

use super::source_file::SourceFile;

/// Bytes read at a time by a listing: enough to make the call cheap, and small beside a page.
pub(super) const SCAN_BUFFER_LEN: usize = 64 * 1024;

/// Bytes read at a time where one row is wanted: it is short, as a rule.
pub(super) const ROW_BUFFER_LEN: usize = 4 * 1024;

/// How rows are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowSyntax {
    /// Every line feed ends a row.
    Lines,
    /// Every zero byte does; anything else is content.
    Nul,
    /// A line feed outside quotes does.
    Csv,
}

/// Finds the end of one row after another in bytes given piece by piece.
#[derive(Clone, Copy)]
pub(super) struct RowSplitter {
    syntax: RowSyntax,
    state: CsvState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CsvState {
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quote inside quotes: the end of the field, or the first half of `""`.
    QuoteInQuoted,
}

impl RowSplitter {
    /// At the beginning of a row.
    pub(super) const fn new(syntax: RowSyntax) -> Self {
        Self { syntax, state: CsvState::FieldStart }
    }

    /// Takes bytes of the row; gives the index behind its line feed if it ends in them. What comes
    /// after belongs to the next row, for which the splitter is ready then.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let end = match self.syntax {
            // Not the state machine: without quotes every line feed counts, and this scans many
            // bytes at once.
            RowSyntax::Lines => memchr::memchr(b'\n', bytes)?,
            RowSyntax::Nul => memchr::memchr(0, bytes)?,
            RowSyntax::Csv => bytes.iter().position(|byte| self.ends_row(*byte))?,
        };
        self.state = CsvState::FieldStart;
        Some(end + 1)
    }

    /// Returns whether the file may end here: not inside quotes.
    pub(super) fn may_end(&self) -> bool {
        self.state != CsvState::Quoted
    }

    fn ends_row(&mut self, byte: u8) -> bool {
        use CsvState::{FieldStart, QuoteInQuoted, Quoted, Unquoted};
        self.state = match (self.state, byte) {
            (Quoted, b'"') => QuoteInQuoted,
            (Quoted, _) | (FieldStart | QuoteInQuoted, b'"') => Quoted,
            (FieldStart | Unquoted | QuoteInQuoted, b'\n') => return true,
            (FieldStart | Unquoted | QuoteInQuoted, b',') => FieldStart,
            // A quote in the middle of a field that began without one is content.
            (FieldStart | Unquoted | QuoteInQuoted, _) => Unquoted,
        };
        false
    }
}

/// Where one row lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Its first byte.
    pub(super) start: u64,
    /// Behind its last byte, without what ends it.
    pub(super) end: u64,
    /// Where the next row begins; above `start`.
    pub(super) next: u64,
}

impl Row {
    pub(super) const fn is_blank(&self) -> bool {
        self.start == self.end
    }
}

/// Walks the rows of a file from a place where one begins.
pub(super) struct RowScanner {
    file: Arc<SourceFile>,
    syntax: RowSyntax,
    /// The first `filled` bytes are those of the file from `offset` on.
    buffer: Box<[u8]>,
    filled: usize,
    offset: u64,
    /// Where the next row begins.
    next: u64,
}

impl RowScanner {
    /// Begins at `next`, with a buffer of `buffer_len` bytes, or of fewer for a smaller file.
    pub(super) fn new(
        file: Arc<SourceFile>,
        syntax: RowSyntax,
        next: u64,
        buffer_len: usize,
    ) -> Self {
        // A small file needs no buffer larger than itself.
        let buffer_len = buffer_len.min(usize::try_from(file.len()).unwrap_or(usize::MAX));
        let buffer = vec![0; buffer_len].into_boxed_slice();
        Self { file, syntax, buffer, filled: 0, offset: next, next }
    }

    /// Continues at another place.
    pub(super) const fn seek(&mut self, next: u64) {
        self.next = next;
    }

    /// Returns where the next row begins.
    pub(super) const fn position(&self) -> u64 {
        self.next
    }

    /// Returns where the row after the next one begins, if one buffer's worth of bytes is enough to
    /// tell.
    pub(super) fn end_of_row_within_buffer(&mut self) -> Result<Option<u64>, ConnectorError> {
        let (start, syntax) = (self.next, self.syntax);
        let bytes = self.bytes_at(start)?;
        Ok(RowSplitter::new(syntax).feed(bytes).map(|behind| start + behind as u64))
    }

    /// Returns the next row, `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or it ends inside quotes: [`ConnectorError::Malformed`] with the
    /// offset of the row.
    pub(super) fn next_row(&mut self) -> Result<Option<Row>, ConnectorError> {
        let start = self.next;
        let mut splitter = RowSplitter::new(self.syntax);
        let (mut position, mut before) = (start, 0);
        loop {
            let bytes = self.bytes_at(position)?;
            let Some(last) = bytes.last() else {
                return self.last_row(start, position, &splitter);
            };
            if let Some(behind) = splitter.feed(bytes) {
                // The carriage return may be the last byte of the previous buffer.
                let before = if behind > 1 { bytes[behind - 2] } else { before };
                let next = position + behind as u64;
                let is_text = self.syntax != RowSyntax::Nul;
                let carriage_return = u64::from(is_text && before == b'\r');
                self.next = next;
                return Ok(Some(Row { start, end: next - 1 - carriage_return, next }));
            }
            before = *last;
            position += bytes.len() as u64;
        }
    }

    /// Returns the remaining row when the file ended at `position`.
    fn last_row(
        &mut self,
        start: u64,
        position: u64,
        splitter: &RowSplitter,
    ) -> Result<Option<Row>, ConnectorError> {
        if !splitter.may_end() {
            return Err(ConnectorError::Malformed { position: start });
        }
        self.next = position;
        let rest = Row { start, end: position, next: position };
        Ok((position > start).then_some(rest))
    }

    /// Some bytes of the file from `position` on; none at its end.
    fn bytes_at(&mut self, position: u64) -> Result<&[u8], ConnectorError> {
        let behind = self.offset + self.filled as u64;
        if position < self.offset || position >= behind {
            // Bytes that were appended since belong to another state of the file.
            let left = self.file.len().saturating_sub(position);
            let wanted = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.offset = position;
            // Before the read: if it fails, the buffer must not be taken for bytes at the new
            // offset.
            self.filled = 0;
            let read = self.file.read_up_to(&mut self.buffer[..wanted], position);
            self.filled = read.map_err(|error| ConnectorError::from_io(&error))?;
        }
        let inside = usize::try_from(position - self.offset).expect("inside the buffer");
        Ok(&self.buffer[inside..self.filled])
    }
}
