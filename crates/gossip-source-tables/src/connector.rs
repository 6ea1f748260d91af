//! The connector over any table: pages, bodies and samples.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError};

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, MAX_INLINE_BODY_BYTES,
    OpenError, Page, PageItem, SeekCost,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_frontier::{ColumnKind, ColumnValue, decode_columns};

use crate::batch::{BATCH_ROWS, Batch, Batches, Row};
use crate::span::Span;

/// A part of a table with fewer keys is sampled whole, so that the sample is exact.
const SAMPLE_WHOLE_ROWS: usize = 4096;

/// One table of one database.
pub(crate) trait Table: Send + Sync + 'static {
    /// Whether the next rows are read while the last ones are processed: worth it where a server
    /// does the work.
    const READS_AHEAD: bool;

    /// Returns the kinds of the columns of its key.
    fn kinds(&self) -> &[ColumnKind];

    /// Reads the first `limit` rows of a span, by one statement.
    fn read(&self, span: Span, limit: usize, wanted: Wanted) -> Reading;

    /// Reads one row as JSON; `None` if there is none.
    fn row(&self, key: Vec<ColumnValue>) -> Result<Option<Vec<u8>>, OpenError>;

    /// Returns keys that are spread over the rows of a large span, in any order.
    fn probe(&self, span: &Span) -> Result<Vec<Vec<u8>>, ConnectorError>;
}

/// Which part of the rows is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Keys,
    Rows,
}

/// Rows that are there, or are on their way.
pub(crate) enum Reading {
    Ready(Result<Vec<Row>, ConnectorError>),
    Later(Receiver<Result<Vec<Row>, ConnectorError>>),
}

impl Reading {
    fn wait(self) -> Result<Vec<Row>, ConnectorError> {
        match self {
            Self::Ready(rows) => rows,
            Self::Later(rows) => rows.recv().unwrap_or_else(|RecvError| {
                let kind = std::io::ErrorKind::BrokenPipe;
                Err(ConnectorError::Unavailable { kind })
            }),
        }
    }
}

/// A connector over a table.
pub(crate) struct TableConnector<T> {
    table: Arc<T>,
    batches: Arc<Batches>,
}

impl<T: Table> TableConnector<T> {
    pub(crate) fn new(table: T) -> Self {
        Self { table: Arc::new(table), batches: Arc::default() }
    }
}

impl<T: Table> Connector for TableConnector<T> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_samples().with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let span = Span::of(self.table.kinds(), range, from);
        Ok(Box::new(Rows {
            table: Arc::clone(&self.table),
            batches: Arc::clone(&self.batches),
            ended: span.is_empty(),
            span,
            batch: Arc::default(),
            before: Arc::default(),
            next: 0,
            ahead: None,
        }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        if self.batches.copy(item.key(), scratch) {
            return Ok(ItemBody::Bytes(scratch));
        }
        let columns = decode_columns(item.key()).ok_or(OpenError::Vanished)?;
        // A key of another table.
        if !columns.iter().map(ColumnValue::kind).eq(self.table.kinds().iter().copied()) {
            return Err(OpenError::Vanished);
        }
        let body = self.table.row(columns)?.ok_or(OpenError::Vanished)?;
        if body.len() > MAX_INLINE_BODY_BYTES {
            return Ok(ItemBody::Reader(Box::new(Cursor::new(body))));
        }
        *scratch = body;
        Ok(ItemBody::Bytes(scratch))
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let span = Span::of(self.table.kinds(), range, CursorUpdate::initial());
        if span.is_empty() {
            sample.mark_exhausted();
            return Ok(());
        }
        let first = self.table.read(span.clone(), SAMPLE_WHOLE_ROWS, Wanted::Keys).wait()?;
        if first.len() < SAMPLE_WHOLE_ROWS {
            let keys: Vec<_> = first.into_iter().map(|row| row.key).collect();
            push_spread(&keys, true, sample);
            return Ok(());
        }
        let mut keys = self.table.probe(&span)?;
        let is_inside =
            |key: &[u8]| key >= range.start && (range.end.is_empty() || key < range.end);
        keys.retain(|key| is_inside(key));
        // Never empty: the first key shows that there are rows.
        keys.extend(first.into_iter().take(1).map(|row| row.key));
        keys.sort_unstable();
        keys.dedup();
        push_spread(&keys, false, sample);
        Ok(())
    }
}

/// Fills a sample with keys that are spread evenly over these, as many as fit.
fn push_spread(keys: &[Vec<u8>], are_all: bool, sample: &mut Page) {
    let limits = sample.limits();
    let longest = keys.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let wanted = keys.len().min(limits.items()).min(limits.bytes() / longest);
    for slot in 0..wanted {
        if sample.push(PageItem::new(&keys[slot * keys.len() / wanted])).is_err() {
            // A key that no cursor can hold: its shard is parked when it is listed.
            return;
        }
    }
    if are_all && wanted == keys.len() {
        sample.mark_exhausted();
    }
}

struct Rows<T> {
    table: Arc<T>,
    batches: Arc<Batches>,
    /// The rows behind the batch.
    span: Span,
    batch: Arc<Batch>,
    /// The batch before: some of its items may not have been opened yet.
    before: Arc<Batch>,
    /// The next row of the batch.
    next: usize,
    /// The batch behind, on its way.
    ahead: Option<Reading>,
    /// Whether nothing is behind the batch.
    ended: bool,
}

impl<T: Table> Rows<T> {
    /// Replaces the batch by the one behind it, and starts to read the next one.
    fn advance(&mut self) -> Result<(), ConnectorError> {
        let reading = self.ahead.take().unwrap_or_else(|| self.read());
        let rows = reading.wait()?;
        self.ended = rows.len() < BATCH_ROWS;
        if let Some(last) = rows.last().filter(|_| !self.ended) {
            self.span = self.span.behind(self.table.kinds(), &last.key);
            self.ahead = T::READS_AHEAD.then(|| self.read());
        }
        let batch = Arc::new(Batch { rows });
        self.batches.add(&batch);
        self.before = std::mem::replace(&mut self.batch, batch);
        self.next = 0;
        Ok(())
    }

    fn read(&self) -> Reading {
        self.table.read(self.span.clone(), BATCH_ROWS, Wanted::Rows)
    }
}

impl<T: Table> Enumeration for Rows<T> {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        loop {
            while let Some(row) = self.batch.rows.get(self.next) {
                let item = PageItem::new(&row.key);
                let item = match row.len {
                    Some(len) => item.with_size_hint(len),
                    None => item,
                };
                // Full or faulty, the answer is the same: `next` still names the row.
                if page.push(item).is_err() {
                    return Ok(());
                }
                self.next += 1;
            }
            if self.ended {
                page.mark_exhausted();
                return Ok(());
            }
            self.advance()?;
        }
    }
}
