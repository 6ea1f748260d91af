//! The traits a connector implements, and the body of an item.
//!
//! The promises are numbered in the documentation of [`connector`](super); they are not repeated
//! at every method, and the [`conformance`](super::conformance) suite checks them.

use std::fmt;
use std::io::{self, Read};

use super::capabilities::Capabilities;
use super::error::{ConnectorError, OpenError};
use super::page::{Page, PageItem};
use crate::coordination::{CursorUpdate, ShardSpecRef};

/// The most a connector may read into the caller's scratch buffer for one item.
///
/// Rows of manifests are far below it, and a worker with 64 items in flight stays at 64 MiB.
/// A larger body is a reader.
pub const MAX_INLINE_BODY_BYTES: usize = 1024 * 1024;

/// One source of keys, shared by all shards and threads of a process.
pub trait Connector: Send + Sync {
    /// What this connector can do beyond listing and opening; constant over its life.
    fn capabilities(&self) -> Capabilities;

    /// Begins to list the keys of `range` that are greater than the key of `from`.
    ///
    /// The metadata of `range` may hold what the connector put there when the shard was made. The
    /// token of `from` is the connector's own part: the runtime strips what it added.
    ///
    /// # Errors
    ///
    /// When the source cannot be listed at all; see [`ConnectorError::reaction`].
    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError>;

    /// Opens one item, by its key and, if the caller still has it, its token.
    ///
    /// The body may borrow from the connector, or from `scratch`, which the connector clears and
    /// fills with at most [`MAX_INLINE_BODY_BYTES`]; a larger body is a reader.
    ///
    /// # Errors
    ///
    /// A key that is not in the source is [`OpenError::Vanished`], whatever its bytes: a connector
    /// answers so by itself for a key that its source could not even look up.
    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError>;

    /// Counts the keys of `range`, exactly and without listing them; `None` if it cannot.
    ///
    /// # Errors
    ///
    /// When the source cannot be asked.
    fn count_keys(&self, range: ShardSpecRef<'_>) -> Result<Option<u64>, ConnectorError> {
        let _ = range;
        Ok(None)
    }

    /// Fills an empty `sample` with keys of `range` that show where its keys are dense.
    ///
    /// In strictly increasing order, spread over the range (not its first keys), each standing for
    /// about as many items as the next. They need not be keys of items: the name of a directory may
    /// stand for what lies beneath. A sample that holds *every* key is marked exhausted, which
    /// makes cuts of small sources exact. A look must stay cheap: never a full listing of a huge
    /// source.
    ///
    /// # Errors
    ///
    /// When the source cannot be asked.
    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let _ = (range, sample);
        Ok(())
    }
}

/// One listing on its way, from a cursor to the end of one range.
pub trait Enumeration: Send {
    /// Writes the next keys into `page`, which the caller has cleared.
    ///
    /// Pushes until the page is full or the range ends; at the end it marks the page exhausted. Not
    /// called again after that, nor after an error.
    ///
    /// # Errors
    ///
    /// What is in the page is then not to be used.
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError>;

    /// After an error that concerns only a part of the range: the first key behind that part, so
    /// that what follows need not wait for it. `None` if it concerns everything, or nobody knows.
    fn behind_failure(&self) -> Option<&[u8]> {
        None
    }
}

/// The content of an item, either in memory or to be read.
#[expect(
    clippy::exhaustive_enums,
    reason = "in memory or to be read: every processor must handle both, and there is no third"
)]
pub enum ItemBody<'a> {
    /// The whole content.
    Bytes(&'a [u8]),
    /// The content from its beginning; [`OpenError::from_io`] sorts what reading may answer.
    Reader(Box<dyn Read + Send + 'a>),
}

impl Read for ItemBody<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bytes(bytes) => bytes.read(buffer),
            Self::Reader(reader) => reader.read(buffer),
        }
    }
}

// Lengths only: a body is what the user wants kept.
impl fmt::Debug for ItemBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.debug_struct("Bytes").field("len", &bytes.len()).finish(),
            Self::Reader(_) => f.write_str("Reader"),
        }
    }
}
