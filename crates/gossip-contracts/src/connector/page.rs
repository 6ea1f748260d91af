//! The caller's buffer that one listing call fills.
//!
//! Keys and tokens are packed in one block, with their end offsets in a second one. All memory is
//! reserved when the page is created: pushing, clearing and reading allocate nothing.
//!
//! A page never sorts, compares or interprets keys; the validator does. It enforces its limits
//! against any connector and records the first broken rule, so that a connector which ignores the
//! result of [`Page::push`] is detected.

use std::fmt;
use std::iter::FusedIterator;

use thiserror::Error;

use super::violation::PageViolation;
use crate::coordination::{CursorUpdate, MAX_KEY_SIZE, MAX_TOKEN_SIZE};

/// Bytes of a cursor's token that are reserved for the runtime.
///
/// Besides the connector's token, the cursor carries the count and the order-independent hash of
/// the keys already covered (for the certificate); the widest such hash in use takes 2 KiB, and
/// this is twice that.
pub const RUNTIME_TOKEN_RESERVE: usize = 4096;

/// Maximum length of an item's token: the limit of a cursor's token less the runtime's reserve.
pub const MAX_CONNECTOR_TOKEN_SIZE: usize = MAX_TOKEN_SIZE - RUNTIME_TOKEN_RESERVE;

/// Maximum number of items of a page.
///
/// Items listed beyond the cursor are listed again after a crash, so a page larger than a few
/// checkpoints has no benefit.
pub const MAX_PAGE_ITEMS: usize = 4096;

/// Default number of items of a page.
///
/// At 10⁵ keys per second a page lasts 10 ms: the cost of a call is paid a hundred times a second,
/// and a drain or a split never waits long.
pub const DEFAULT_PAGE_ITEMS: usize = 1024;

/// Maximum number of key and token bytes of a page.
///
/// A worker with a page for each of 64 shards uses at most 64 MiB.
pub const MAX_PAGE_BYTES: usize = 1024 * 1024;

/// Default number of key and token bytes of a page: 128 for each item, more than most paths and
/// rows need.
pub(crate) const DEFAULT_PAGE_BYTES: usize = 128 * DEFAULT_PAGE_ITEMS;

/// Minimum number of bytes of a page: an empty page then accepts any one valid item, so a listing
/// can always advance.
pub const MIN_PAGE_BYTES: usize = MAX_KEY_SIZE + MAX_CONNECTOR_TOKEN_SIZE;

const _: () = assert!(RUNTIME_TOKEN_RESERVE < MAX_TOKEN_SIZE);
const _: () = assert!(DEFAULT_PAGE_ITEMS <= MAX_PAGE_ITEMS);
const _: () = assert!(MIN_PAGE_BYTES <= DEFAULT_PAGE_BYTES);
const _: () = assert!(DEFAULT_PAGE_BYTES <= MAX_PAGE_BYTES);
const _: () = assert!(MAX_PAGE_BYTES <= u32::MAX as usize, "end offsets are stored as u32");

/// The capacity of a page in items and in bytes; the limit reached first ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// In `1..=MAX_PAGE_ITEMS`.
    items: usize,
    /// In `MIN_PAGE_BYTES..=MAX_PAGE_BYTES`.
    bytes: usize,
}

impl PageLimits {
    /// Creates limits from the given numbers.
    ///
    /// # Errors
    ///
    /// If the numbers lie outside `1..=MAX_PAGE_ITEMS` or `MIN_PAGE_BYTES..=MAX_PAGE_BYTES`; items
    /// are checked first.
    pub const fn try_new(items: usize, bytes: usize) -> Result<Self, PageLimitsError> {
        if items < 1 || items > MAX_PAGE_ITEMS {
            return Err(PageLimitsError::Items { items, max: MAX_PAGE_ITEMS });
        }
        if bytes < MIN_PAGE_BYTES || bytes > MAX_PAGE_BYTES {
            let (min, max) = (MIN_PAGE_BYTES, MAX_PAGE_BYTES);
            return Err(PageLimitsError::Bytes { bytes, min, max });
        }
        Ok(Self { items, bytes })
    }

    /// Returns the maximum number of items.
    pub const fn items(&self) -> usize {
        self.items
    }

    /// Returns the maximum number of key and token bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { items: DEFAULT_PAGE_ITEMS, bytes: DEFAULT_PAGE_BYTES }
    }
}

/// The limits are invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageLimitsError {
    /// No items, or too many.
    #[error("a page of {items} items; 1 to {max} are allowed")]
    Items {
        /// Items requested.
        items: usize,
        /// [`MAX_PAGE_ITEMS`].
        max: usize,
    },
    /// Fewer bytes than one item may need, or too many.
    #[error("a page of {bytes} bytes; {min} to {max} are allowed")]
    Bytes {
        /// Bytes requested.
        bytes: usize,
        /// [`MIN_PAGE_BYTES`].
        min: usize,
        /// [`MAX_PAGE_BYTES`].
        max: usize,
    },
}

/// A bounded, reusable sequence of items, in the order they were pushed.
pub struct Page {
    limits: PageLimits,
    /// Key, token, key, token, …; its capacity is `limits.bytes` from construction.
    bytes: Vec<u8>,
    /// One for each item; ends never decrease. Its capacity is `limits.items` from construction.
    entries: Vec<Entry>,
    state: State,
}

/// The position of one item in the packed bytes; it starts where the previous one ends.
#[derive(Clone, Copy)]
struct Entry {
    key_end: u32,
    /// Equal to `key_end` if there is no token.
    token_end: u32,
    size_hint: Option<u64>,
}

/// The operations that a page accepts until it is cleared.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Items may be pushed.
    Open,
    /// One item did not fit and must start the next page.
    Full,
    /// The range ends with the last item.
    Exhausted,
    /// A rule was broken; the first fault is kept.
    Faulty(PageViolation),
}

impl Page {
    /// Creates a page with these limits and reserves its memory.
    pub fn with_limits(limits: PageLimits) -> Self {
        Self {
            limits,
            bytes: Vec::with_capacity(limits.bytes),
            entries: Vec::with_capacity(limits.items),
            state: State::Open,
        }
    }

    /// Removes all items, the end mark and any fault; keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.state = State::Open;
    }

    /// Appends one item.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] if the item does not fit: return, and push it first in the next page.
    /// [`PushError::Refused`] if the item, or pushing now, breaks a rule: the page records the
    /// fault and the validator reports it, so returning is enough.
    pub fn push(&mut self, item: PageItem<'_>) -> Result<(), PushError> {
        match self.state {
            State::Open => {}
            State::Full => return self.refuse(PageViolation::LimitIgnored { items: self.len() }),
            State::Exhausted => {
                return self.refuse(PageViolation::ItemAfterEnd { items: self.len() });
            }
            State::Faulty(fault) => return Err(PushError::Refused(fault)),
        }
        // Sizes are checked before the remaining capacity: an item that is never valid must not be
        // deferred to the next page forever.
        if let Err(fault) = item.check_sizes(self.len()) {
            return self.refuse(fault);
        }
        if !self.has_room_for(item) {
            self.state = State::Full;
            return Err(PushError::Full);
        }
        self.store(item);
        Ok(())
    }

    /// Marks the page exhausted: no key of the range follows the last item.
    ///
    /// After an item that did not fit, that is wrong and recorded as a fault.
    pub fn mark_exhausted(&mut self) {
        match self.state {
            State::Open => self.state = State::Exhausted,
            // The item that did not fit lies in the range, so the range does not end here.
            State::Full => {
                let items = self.len();
                self.state = State::Faulty(PageViolation::ItemDropped { items });
            }
            State::Exhausted | State::Faulty(_) => {}
        }
    }

    /// Returns the limits of this page.
    pub const fn limits(&self) -> PageLimits {
        self.limits
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the page holds no item.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether the range ends with the last item.
    pub const fn is_exhausted(&self) -> bool {
        matches!(self.state, State::Exhausted)
    }

    /// Returns the first rule that was broken while filling the page.
    pub const fn fault(&self) -> Option<PageViolation> {
        match self.state {
            State::Faulty(fault) => Some(fault),
            State::Open | State::Full | State::Exhausted => None,
        }
    }

    /// Returns the item at `index`, if there is one.
    pub fn item(&self, index: usize) -> Option<PageItem<'_>> {
        let entry = self.entries.get(index)?;
        // Only end offsets are stored: a stored start would have to match the previous end.
        let start = match index.checked_sub(1) {
            Some(previous) => self.entries[previous].token_end as usize,
            None => 0,
        };
        let (key_end, token_end) = (entry.key_end as usize, entry.token_end as usize);
        Some(PageItem {
            key: &self.bytes[start..key_end],
            token: &self.bytes[key_end..token_end],
            size_hint: entry.size_hint,
        })
    }

    /// Returns the last item, if there is one.
    pub(crate) fn last(&self) -> Option<PageItem<'_>> {
        self.item(self.len().checked_sub(1)?)
    }

    /// Returns an iterator over the items in the order they were pushed.
    pub const fn items(&self) -> PageItems<'_> {
        PageItems { page: self, next: 0 }
    }

    /// Returns the cursor that marks the items up to and including `index` as finished.
    pub fn cursor_at(&self, index: usize) -> Option<CursorUpdate<'_>> {
        let item = self.item(index)?;
        let cursor = CursorUpdate::try_from_parts(Some(item.key), item.token());
        Some(cursor.expect("push checked that the key is not empty and both sizes are valid"))
    }

    fn refuse(&mut self, fault: PageViolation) -> Result<(), PushError> {
        self.state = State::Faulty(fault);
        Err(PushError::Refused(fault))
    }

    fn has_room_for(&self, item: PageItem<'_>) -> bool {
        let bytes_free = self.limits.bytes - self.bytes.len();
        self.entries.len() < self.limits.items && item.key.len() + item.token.len() <= bytes_free
    }

    fn store(&mut self, item: PageItem<'_>) {
        self.bytes.extend_from_slice(item.key);
        let key_end = self.end();
        self.bytes.extend_from_slice(item.token);
        let token_end = self.end();
        self.entries.push(Entry { key_end, token_end, size_hint: item.size_hint });
        debug_assert!(self.bytes.len() <= self.limits.bytes);
        debug_assert!(self.entries.len() <= self.limits.items);
    }

    fn end(&self) -> u32 {
        u32::try_from(self.bytes.len()).expect("MAX_PAGE_BYTES fits in u32")
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::with_limits(PageLimits::default())
    }
}

impl<'a> IntoIterator for &'a Page {
    type Item = PageItem<'a>;
    type IntoIter = PageItems<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.items()
    }
}

// Only numbers: the bytes are keys.
impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("items", &self.entries.len())
            .field("bytes", &self.bytes.len())
            .field("limits", &self.limits)
            .field("state", &self.state)
            .finish()
    }
}

/// Why an item was not accepted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// The item does not fit: stop, and start the next page with it.
    #[error("the page is full")]
    Full,
    /// The item breaks a rule, and the page records that.
    #[error(transparent)]
    Refused(PageViolation),
}

/// One listed item: its key, and the connector's knowledge of it without opening it.
///
/// Unvalidated until a page accepts it, so that any bytes can be passed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageItem<'a> {
    key: &'a [u8],
    /// Empty if there is none, as in a cursor.
    token: &'a [u8],
    size_hint: Option<u64>,
}

impl<'a> PageItem<'a> {
    /// Returns an item with only a key.
    pub const fn new(key: &'a [u8]) -> Self {
        Self { key, token: &[], size_hint: None }
    }

    /// Adds the size in bytes that opening the item would yield, as far as is known now.
    pub const fn with_size_hint(self, size: u64) -> Self {
        Self { size_hint: Some(size), ..self }
    }

    /// Adds the connector's resume state, which makes resuming after this item and opening it
    /// cheap. An empty token means none.
    pub const fn with_token(self, token: &'a [u8]) -> Self {
        Self { token, ..self }
    }

    /// Returns the key.
    pub const fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Returns the expected size in bytes.
    pub const fn size_hint(&self) -> Option<u64> {
        self.size_hint
    }

    /// Returns the connector's resume state, never empty.
    pub const fn token(&self) -> Option<&'a [u8]> {
        if self.token.is_empty() { None } else { Some(self.token) }
    }

    /// Checks the sizes, in this order: key empty, key too long, token too long.
    const fn check_sizes(&self, index: usize) -> Result<(), PageViolation> {
        let (key_len, token_len) = (self.key.len(), self.token.len());
        if key_len == 0 {
            return Err(PageViolation::EmptyKey { index });
        }
        if key_len > MAX_KEY_SIZE {
            return Err(PageViolation::KeyTooLarge { index, size: key_len, max: MAX_KEY_SIZE });
        }
        if token_len > MAX_CONNECTOR_TOKEN_SIZE {
            let max = MAX_CONNECTOR_TOKEN_SIZE;
            return Err(PageViolation::TokenTooLarge { index, size: token_len, max });
        }
        Ok(())
    }
}

// Only lengths: keys must not reach a log through debug output.
impl fmt::Debug for PageItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageItem")
            .field("key_len", &self.key.len())
            .field("token_len", &self.token.len())
            .field("size_hint", &self.size_hint)
            .finish()
    }
}

/// The items of a page, in order.
#[derive(Clone, Debug)]
pub struct PageItems<'a> {
    page: &'a Page,
    next: usize,
}

impl<'a> Iterator for PageItems<'a> {
    type Item = PageItem<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.page.item(self.next)?;
        self.next += 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.page.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for PageItems<'_> {}
impl FusedIterator for PageItems<'_> {}
