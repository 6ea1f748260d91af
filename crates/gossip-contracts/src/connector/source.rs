//! The traits a connector implements, and the body of an item.
//!
//! The promises are numbered in the documentation of [`connector`](super). They are not repeated at
//! every method, and the [`conformance`](super::conformance) suite checks them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use super::capabilities::Capabilities;
use super::error::{ConnectorError, OpenError};
use super::page::{Page, PageItem};
use crate::coordination::{CursorUpdate, ShardSpecRef};

/// Maximum number of bytes that a connector may read into the caller's scratch buffer for one item.
///
/// Rows of manifests are far smaller, and a worker with 64 in-flight items uses at most 64 MiB. A
/// larger body is a reader.
pub const MAX_INLINE_BODY_BYTES: usize = 1024 * 1024;

/// One source of keys, shared by all shards and threads of a process.
pub trait Connector: Send + Sync {
    /// Returns the capabilities of this connector; they never change.
    fn capabilities(&self) -> Capabilities;

    /// Starts to list the keys of `range` that are greater than the key of `from`.
    ///
    /// The metadata of `range` may hold data that the connector stored there when the shard was
    /// created. The token of `from` is the connector's own part: the runtime removes the part it
    /// added.
    ///
    /// # Errors
    ///
    /// If the source cannot be listed at all; see [`ConnectorError::reaction`].
    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError>;

    /// Opens one item by its key and, if the caller still has it, its token.
    ///
    /// The body may borrow from the connector, or from `scratch`, which the connector clears and
    /// fills with at most [`MAX_INLINE_BODY_BYTES`]; a larger body is a reader.
    ///
    /// # Errors
    ///
    /// [`OpenError::Vanished`] for a key that is not in the source, whatever its bytes: a connector
    /// returns it without a lookup if the key cannot exist in its source.
    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError>;

    /// Checks an item that is not opened here: its name is given to a program, which opens it.
    ///
    /// `beside` is an item that was checked right before for the same program, if there is one. It
    /// has the checks in common with this one that concern both, such as those of a directory.
    ///
    /// Opens the item, unless a connector has a cheaper check. A cheaper one may miss that the item
    /// itself is gone or unreadable: the caller opens an item that the program failed on.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    fn check(
        &self,
        item: PageItem<'_>,
        beside: Option<PageItem<'_>>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        let _ = beside;
        self.open(item, scratch).map(drop)
    }

    /// Returns the place by which people know an item whose key is none, such as the commit and the
    /// path of a blob; `None` if the key is the place.
    fn origin(&self, key: &[u8]) -> Option<Origin<'_>> {
        let _ = key;
        None
    }

    /// Returns the exact number of keys in `range` without listing them, or `None` if the connector
    /// cannot count.
    ///
    /// # Errors
    ///
    /// If the source cannot be queried.
    fn count_keys(&self, range: ShardSpecRef<'_>) -> Result<Option<u64>, ConnectorError> {
        let _ = range;
        Ok(None)
    }

    /// Fills an empty `sample` with keys of `range` that show its key density.
    ///
    /// The keys are strictly increasing, spread over the range (not its first keys), and each
    /// represents about as many items as the next. They need not be keys of items: the name of a
    /// directory may represent its content. A sample that holds *every* key is marked exhausted,
    /// which makes splits of small sources exact. Sampling must be cheap: never a full listing of a
    /// huge source.
    ///
    /// # Errors
    ///
    /// If the source cannot be queried.
    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let _ = (range, sample);
        Ok(())
    }
}

/// A listing in progress, from a cursor to the end of one range.
pub trait Enumeration: Send {
    /// Writes the next keys into `page`, which the caller has cleared.
    ///
    /// Pushes until the page is full or the range ends; at the end it marks the page exhausted. Not
    /// called again after that, nor after an error.
    ///
    /// # Errors
    ///
    /// The content of the page must not be used after an error.
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError>;

    /// Returns, after an error that affects only a part of the range, the first key after that
    /// part, so that the rest can be processed. Returns `None` if the error affects everything or
    /// the part is unknown.
    fn behind_failure(&self) -> Option<&[u8]> {
        None
    }

    /// Returns, after such an error, the place that cannot be listed, for messages to the user: the
    /// bytes with which its keys begin, such as a directory with the separator behind it. Returns
    /// `None` if it is unknown.
    fn failed_at(&self) -> Option<&[u8]> {
        None
    }
}

/// Where an item of content comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a path in a revision: there is no third part")]
pub struct Origin<'a> {
    /// The path of the content there.
    pub path: &'a [u8],
    /// The revision in which it is first found; empty if none has it.
    pub revision: &'a str,
}

// Lengths only: paths are user data.
impl fmt::Debug for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("path_len", &self.path.len()).finish_non_exhaustive()
    }
}

/// The content of an item, in memory, in a file or as a reader.
#[expect(
    clippy::exhaustive_enums,
    reason = "every processor must handle each: a body it does not know is one it does not read"
)]
pub enum ItemBody<'a> {
    /// The whole content.
    Bytes(&'a [u8]),
    /// A regular file at its start, for processors that seek or ask for its size.
    File(File),
    /// The content from its start; [`OpenError::from_io`] classifies read errors.
    Reader(Box<dyn Read + Send + 'a>),
}

impl Read for ItemBody<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bytes(bytes) => bytes.read(buffer),
            Self::File(file) => file.read(buffer),
            Self::Reader(reader) => reader.read(buffer),
        }
    }
}

// Only lengths: a body is user data.
impl fmt::Debug for ItemBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.debug_struct("Bytes").field("len", &bytes.len()).finish(),
            Self::File(_) => f.write_str("File"),
            Self::Reader(_) => f.write_str("Reader"),
        }
    }
}
