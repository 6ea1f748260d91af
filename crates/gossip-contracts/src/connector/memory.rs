//! A source held in memory: the reference for connector authors, and a test double for the runtime.
//!
//! It implements every promise of the contract in the simplest way, and can be made to misbehave
//! item by item ([`Spoil`]). It is not meant for production: all of its items are in memory.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::capabilities::{Capabilities, SeekCost};
use super::error::{ConnectorError, OpenError};
use super::page::{Page, PageItem};
use super::source::{Connector, Enumeration, ItemBody};
use crate::coordination::{CursorUpdate, MAX_KEY_SIZE, ShardSpecRef};

/// A connector over given keys and bodies.
///
/// Clones and open enumerations share the items. A change through [`MemoryConnector::spoil`] is
/// visible only to operations started later on the changed value.
#[derive(Clone)]
pub struct MemoryConnector {
    /// Strictly increasing keys, each non-empty and at most [`MAX_KEY_SIZE`] long.
    items: Arc<Vec<MemoryItem>>,
}

#[derive(Clone)]
struct MemoryItem {
    key: Box<[u8]>,
    body: Result<Box<[u8]>, OpenError>,
}

impl MemoryConnector {
    /// Creates a connector over these keys and bodies, given in any order.
    ///
    /// # Errors
    ///
    /// Keys that no cursor can hold, in the order given; then duplicate keys.
    pub fn try_new<K, B>(
        items: impl IntoIterator<Item = (K, B)>,
    ) -> Result<Self, MemoryConnectorError>
    where
        K: Into<Box<[u8]>>,
        B: Into<Box<[u8]>>,
    {
        let items = items.into_iter().map(|(key, body)| (key.into(), Ok(body.into())));
        let mut items: Vec<_> = items.map(|(key, body)| MemoryItem { key, body }).collect();
        for (index, item) in items.iter().enumerate() {
            check_key_size(index, &item.key)?;
        }
        items.sort_by(|a, b| a.key.cmp(&b.key));
        if let Some(index) = items.windows(2).position(|pair| pair[0].key == pair[1].key) {
            return Err(MemoryConnectorError::DuplicateKey { index });
        }
        Ok(Self { items: Arc::new(items) })
    }

    /// Applies to one item a change that may happen in a real source; returns `false` if there is
    /// no such item.
    pub fn spoil(&mut self, key: &[u8], spoil: Spoil) -> bool {
        let Ok(index) = self.position(key) else {
            return false;
        };
        let items = Arc::make_mut(&mut self.items);
        match spoil {
            Spoil::Vanish => drop(items.remove(index)),
            Spoil::Change => items[index].body = Err(OpenError::Changed),
            Spoil::Deny => items[index].body = Err(OpenError::PermissionDenied),
        }
        true
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn position(&self, key: &[u8]) -> Result<usize, usize> {
        self.items.binary_search_by(|item| (*item.key).cmp(key))
    }

    /// Returns the index of the first key that is not below `key`.
    fn lower_bound(&self, key: &[u8]) -> usize {
        self.items.partition_point(|item| *item.key < *key)
    }

    /// Returns the indices of the keys in `range`; the first never lies above the last.
    fn indices(&self, range: ShardSpecRef<'_>) -> (usize, usize) {
        let start = self.lower_bound(range.start);
        let end = if range.end.is_empty() { self.len() } else { self.lower_bound(range.end) };
        (start, end.max(start))
    }

    /// Returns the index of the first key above the cursor's.
    ///
    /// The token names it, and is used only if the key before it is the cursor's.
    fn resume_index(&self, from: CursorUpdate<'_>) -> usize {
        let Some(last_key) = from.last_key() else {
            return 0;
        };
        let hinted = from.token().and_then(read_token);
        let previous = hinted.and_then(|next| self.items.get(next.checked_sub(1)?));
        match (hinted, previous) {
            (Some(next), Some(item)) if *item.key == *last_key => next,
            // The source has changed since, or the token is not from this connector.
            (_, _) => self.items.partition_point(|item| *item.key <= *last_key),
        }
    }
}

impl Connector for MemoryConnector {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_sizes().with_counts().with_samples().with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        // Both bounds apply: the cursor may lie below, inside or above the range.
        let (start, end) = self.indices(range);
        let next = start.max(self.resume_index(from));
        Ok(Box::new(MemoryEnumeration { items: Arc::clone(&self.items), next, end }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        _scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let index = self.position(item.key()).map_err(|_| OpenError::Vanished)?;
        match &self.items[index].body {
            Ok(body) => Ok(ItemBody::Bytes(body)),
            Err(error) => Err(*error),
        }
    }

    fn count_keys(&self, range: ShardSpecRef<'_>) -> Result<Option<u64>, ConnectorError> {
        let (start, end) = self.indices(range);
        Ok(Some((end - start) as u64))
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let (start, end) = self.indices(range);
        let items = &self.items[start..end];
        let mut wanted = items.len().min(sample.limits().items());
        // Long keys fill the bytes before the items are reached. One key always fits, so the loop
        // ends.
        while !push_spread(items, wanted, sample) {
            wanted /= 2;
        }
        if wanted == items.len() {
            sample.mark_exhausted();
        }
        Ok(())
    }
}

// Numbers only.
impl fmt::Debug for MemoryConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryConnector").field("items", &self.len()).finish()
    }
}

struct MemoryEnumeration {
    items: Arc<Vec<MemoryItem>>,
    /// May lie beyond `end` if the cursor does.
    next: usize,
    end: usize,
}

impl Enumeration for MemoryEnumeration {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        while self.next < self.end {
            let token = write_token(self.next + 1);
            let item = self.items[self.next].as_page_item().with_token(&token);
            // Full and faulty are handled alike: `next` still names the item, and the page has
            // recorded the fault.
            if page.push(item).is_err() {
                return Ok(());
            }
            self.next += 1;
        }
        page.mark_exhausted();
        Ok(())
    }
}

impl MemoryItem {
    fn as_page_item(&self) -> PageItem<'_> {
        let body_len = self.body.as_ref().map_or(0, |body| body.len());
        PageItem::new(&self.key).with_size_hint(body_len as u64)
    }
}

/// Pushes `wanted` of the items at even distances; returns `false` if they do not fit.
fn push_spread(items: &[MemoryItem], wanted: usize, sample: &mut Page) -> bool {
    sample.clear();
    let mut chosen = (0..wanted).map(|i| &items[i * items.len() / wanted]);
    chosen.all(|item| sample.push(item.as_page_item()).is_ok())
}

/// Encodes the index of the next item, which is the whole state of a listing.
const fn write_token(next: usize) -> [u8; 8] {
    (next as u64).to_be_bytes()
}

fn read_token(token: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_be_bytes(token.try_into().ok()?)).ok()
}

fn check_key_size(index: usize, key: &[u8]) -> Result<(), MemoryConnectorError> {
    match key.len() {
        0 => Err(MemoryConnectorError::EmptyKey { index }),
        1..=MAX_KEY_SIZE => Ok(()),
        size => Err(MemoryConnectorError::KeyTooLarge { index, size, max: MAX_KEY_SIZE }),
    }
}

/// A change to an item between listing and opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spoil {
    /// The item is removed from the source.
    Vanish,
    /// The item becomes something else under the same key.
    Change,
    /// Access to the item is denied.
    Deny,
}

impl Spoil {
    /// Every variant, for tests that iterate over them.
    pub(crate) const ALL: [Self; 3] = [Self::Vanish, Self::Change, Self::Deny];

    /// Returns the error that opening the item must return.
    pub(crate) const fn expected_error(self) -> OpenError {
        match self {
            Self::Vanish => OpenError::Vanished,
            Self::Change => OpenError::Changed,
            Self::Deny => OpenError::PermissionDenied,
        }
    }
}

/// The keys cannot be those of a source.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryConnectorError {
    /// An empty key.
    #[error("item {index} has an empty key")]
    EmptyKey {
        /// Index of the item, in the order given.
        index: usize,
    },
    /// A key no cursor can hold.
    #[error("item {index} has a key of {size} bytes; at most {max} are allowed")]
    KeyTooLarge {
        /// Index of the item, in the order given.
        index: usize,
        /// Size of its key.
        size: usize,
        /// [`MAX_KEY_SIZE`].
        max: usize,
    },
    /// A duplicate key.
    #[error("items {index} and {index} + 1 in key order have the same key")]
    DuplicateKey {
        /// Index of the first of the two, in key order.
        index: usize,
    },
}
