//! A connector over anything that iterates over its keys in order, from a position.
//!
//! It applies ranges, cursors and pages, so that a source needs two functions: one that lists keys
//! and one that reads an item. A source with more to offer, such as samples, sizes or tokens that
//! make opening cheap, implements [`Connector`] itself.

use std::fmt;

use super::capabilities::{Capabilities, SeekCost};
use super::error::{ConnectorError, OpenError};
use super::page::{Page, PageItem};
use super::source::{Connector, Enumeration, ItemBody};
use crate::coordination::{CursorUpdate, ShardSpecRef};

/// Keys in the order of their bytes. After an error nothing more is read.
pub type KeyIterator = Box<dyn Iterator<Item = Result<Vec<u8>, ConnectorError>> + Send>;

/// A source that lists its keys in the order of their bytes.
pub trait SortedKeys: Send + Sync {
    /// Returns the keys at or above `start`, ascending, without repetition. An empty `start` is
    /// below every key.
    ///
    /// Called once per lease and when a shard is resumed, so it should find `start` without reading
    /// what precedes it.
    ///
    /// # Errors
    ///
    /// The source cannot be listed.
    fn keys_from(&self, start: &[u8]) -> Result<KeyIterator, ConnectorError>;

    /// Appends the content of an item to `body`, which is empty.
    ///
    /// # Errors
    ///
    /// [`OpenError::Vanished`] if no item has this key; otherwise why it cannot be read.
    fn read(&self, key: &[u8], body: &mut Vec<u8>) -> Result<(), OpenError>;
}

/// The connector of [`SortedKeys`].
///
/// ```
/// use gossip_contracts::connector::{
///     ConnectorError, KeyIterator, OpenError, SortedConnector, SortedKeys,
/// };
///
/// struct Letters;
///
/// impl SortedKeys for Letters {
///     fn keys_from(&self, start: &[u8]) -> Result<KeyIterator, ConnectorError> {
///         let start = start.to_vec();
///         let letters = (b'a'..=b'z').map(|letter| vec![letter]);
///         Ok(Box::new(letters.filter(move |key| *key >= start).map(Ok)))
///     }
///
///     fn read(&self, key: &[u8], body: &mut Vec<u8>) -> Result<(), OpenError> {
///         let [letter @ b'a'..=b'z'] = key else { return Err(OpenError::Vanished) };
///         body.push(letter.to_ascii_uppercase());
///         Ok(())
///     }
/// }
///
/// let connector = SortedConnector::new(Letters);
/// ```
#[derive(Clone)]
pub struct SortedConnector<S> {
    source: S,
}

impl<S: SortedKeys> SortedConnector<S> {
    /// Returns a connector over a source.
    pub const fn new(source: S) -> Self {
        Self { source }
    }
}

impl<S: SortedKeys> Connector for SortedConnector<S> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let after = from.last_key().filter(|last| *last >= range.start);
        let keys = self.source.keys_from(after.unwrap_or(range.start))?;
        let (after, end) = (after.map(<[u8]>::to_vec), range.end.to_vec());
        Ok(Box::new(SortedEnumeration { keys, after, end, held: None }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        scratch.clear();
        self.source.read(item.key(), scratch)?;
        Ok(ItemBody::Bytes(scratch))
    }
}

// The source may show keys.
impl<S> fmt::Debug for SortedConnector<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedConnector").finish_non_exhaustive()
    }
}

struct SortedEnumeration {
    keys: KeyIterator,
    /// The key of the cursor, until a greater one was listed.
    after: Option<Vec<u8>>,
    /// Keys at or above are not listed, unless it is empty.
    end: Vec<u8>,
    /// A key that the last page had no room for.
    held: Option<Vec<u8>>,
}

impl Enumeration for SortedEnumeration {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while let Some(key) = self.held.take().map(Ok).or_else(|| self.keys.next()) {
            let key = key?;
            // Only the first keys can be at or below the cursor. A later one is left to the
            // validator, which reports it: dropped here, a source out of order would lose keys.
            if self.after.as_ref().is_some_and(|after| key <= *after) {
                continue;
            }
            self.after = None;
            if !self.end.is_empty() && key >= self.end {
                break;
            }
            if page.push(PageItem::new(&key)).is_err() {
                self.held = Some(key);
                return Ok(());
            }
        }
        page.mark_exhausted();
        Ok(())
    }
}

#[cfg(test)]
#[path = "sorted_tests.rs"]
mod tests;
