//! The caller's buffer that one listing call fills.
//!
//! Keys and tokens lie packed in one block, with their ends beside it. All memory is reserved when
//! the page is made and none after: pushing, clearing and reading allocate nothing.
//!
//! A page never sorts, compares or interprets keys; that is the validator's work. It does keep its
//! bounds against any connector, and it remembers the first broken rule, so a connector
//! that ignores the answer of [`Page::push`] is found out.

use std::fmt;
use std::iter::FusedIterator;

use thiserror::Error;

use super::violation::PageViolation;
use crate::coordination::{CursorUpdate, MAX_KEY_SIZE, MAX_TOKEN_SIZE};

/// What the runtime keeps of a cursor's token for itself.
///
/// Beside the connector's token it carries the count and the order-free hash of the keys already
/// covered (for the certificate); the widest such hash in use takes 2 KiB, and this is twice that.
pub const RUNTIME_TOKEN_RESERVE: usize = 4096;

/// The longest token of an item: what a cursor holds, less the runtime's own part.
pub const MAX_CONNECTOR_TOKEN_SIZE: usize = MAX_TOKEN_SIZE - RUNTIME_TOKEN_RESERVE;

/// The most items a page may be made for.
///
/// Items listed ahead of the cursor are listed again after a crash, so a page larger than a few
/// checkpoints buys nothing.
pub const MAX_PAGE_ITEMS: usize = 4096;

/// Items in a page unless the caller says otherwise.
///
/// At 10⁵ keys a second a page lasts 10 ms: the call is paid a hundred times a second, and a drain
/// or a split never waits for long.
pub const DEFAULT_PAGE_ITEMS: usize = 1024;

/// The most bytes of keys and tokens a page may be made for.
///
/// A worker with a page for each of 64 shards stays at 64 MiB even at this limit.
pub const MAX_PAGE_BYTES: usize = 1024 * 1024;

/// Bytes of keys and tokens in a page unless the caller says otherwise: 128 for each item, more
/// than most paths and rows need.
pub const DEFAULT_PAGE_BYTES: usize = 128 * DEFAULT_PAGE_ITEMS;

/// The fewest bytes a page may be made for: with them an empty page takes any one legal item, so a
/// listing can always advance.
pub const MIN_PAGE_BYTES: usize = MAX_KEY_SIZE + MAX_CONNECTOR_TOKEN_SIZE;

const _: () = assert!(RUNTIME_TOKEN_RESERVE < MAX_TOKEN_SIZE);
const _: () = assert!(DEFAULT_PAGE_ITEMS <= MAX_PAGE_ITEMS);
const _: () = assert!(MIN_PAGE_BYTES <= DEFAULT_PAGE_BYTES);
const _: () = assert!(DEFAULT_PAGE_BYTES <= MAX_PAGE_BYTES);
const _: () = assert!(MAX_PAGE_BYTES <= u32::MAX as usize, "ends are kept as u32");

/// How much a page holds, in items and in bytes; whichever is reached first ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// In `1..=MAX_PAGE_ITEMS`.
    items: usize,
    /// In `MIN_PAGE_BYTES..=MAX_PAGE_BYTES`.
    bytes: usize,
}

impl PageLimits {
    /// Limits of the caller's choice.
    ///
    /// # Errors
    ///
    /// Outside `1..=MAX_PAGE_ITEMS` or `MIN_PAGE_BYTES..=MAX_PAGE_BYTES`; items are looked at
    /// first.
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

    /// The most items.
    pub const fn items(&self) -> usize {
        self.items
    }

    /// The most bytes of keys and tokens.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { items: DEFAULT_PAGE_ITEMS, bytes: DEFAULT_PAGE_BYTES }
    }
}

/// Limits that no page may have.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageLimitsError {
    /// No items, or too many.
    #[error("a page of {items} items; 1 to {max} are allowed")]
    Items {
        /// Items asked for.
        items: usize,
        /// [`MAX_PAGE_ITEMS`].
        max: usize,
    },
    /// Fewer bytes than one item may need, or too many.
    #[error("a page of {bytes} bytes; {min} to {max} are allowed")]
    Bytes {
        /// Bytes asked for.
        bytes: usize,
        /// [`MIN_PAGE_BYTES`].
        min: usize,
        /// [`MAX_PAGE_BYTES`].
        max: usize,
    },
}

/// A bounded, reusable run of items, in the order they were pushed.
pub struct Page {
    limits: PageLimits,
    /// Key, token, key, token, …; its capacity is `limits.bytes` from the beginning.
    bytes: Vec<u8>,
    /// One for each item; ends never decrease. Its capacity is `limits.items` from the beginning.
    entries: Vec<Entry>,
    state: State,
}

/// Where one item lies in the packed bytes; it begins where the one before ends.
#[derive(Clone, Copy)]
struct Entry {
    key_end: u32,
    /// Equal to `key_end` when there is no token.
    token_end: u32,
    size_hint: Option<u64>,
}

/// What may still happen to a page before it is cleared.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Items may be pushed.
    Open,
    /// One item was refused and waits for the next page.
    Full,
    /// The range ends with the last item.
    Exhausted,
    /// A rule was broken; the first one stays.
    Faulty(PageViolation),
}

impl Page {
    /// A page that never holds more than `limits`, and reserves that much now.
    pub fn with_limits(limits: PageLimits) -> Self {
        Self {
            limits,
            bytes: Vec::with_capacity(limits.bytes),
            entries: Vec::with_capacity(limits.items),
            state: State::Open,
        }
    }

    /// Forgets all items, the end mark and any fault; keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.state = State::Open;
    }

    /// Appends one item.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] when the item does not fit: return, and push it first next time.
    /// [`PushError::Refused`] when the item, or pushing now, breaks a rule: the page keeps the
    /// fault and the validator will report it, so returning is enough.
    pub fn push(&mut self, item: PageItem<'_>) -> Result<(), PushError> {
        match self.state {
            State::Open => {}
            State::Full => return self.refuse(PageViolation::LimitIgnored { items: self.len() }),
            State::Exhausted => {
                return self.refuse(PageViolation::ItemAfterEnd { items: self.len() });
            }
            State::Faulty(fault) => return Err(PushError::Refused(fault)),
        }
        // Sizes come before room: an item that can never be taken must not be put off to the next
        // page for ever.
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

    /// States that no key of the range lies beyond the last item.
    ///
    /// After a refused item that is untrue, and recorded as a fault.
    pub fn mark_exhausted(&mut self) {
        match self.state {
            State::Open => self.state = State::Exhausted,
            // The item that was refused lies in the range, so the range does not end here.
            State::Full => {
                let items = self.len();
                self.state = State::Faulty(PageViolation::ItemDropped { items });
            }
            State::Exhausted | State::Faulty(_) => {}
        }
    }

    /// The limits this page was made with.
    pub const fn limits(&self) -> PageLimits {
        self.limits
    }

    /// How many items it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds no item.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the range ends with the last item.
    pub const fn is_exhausted(&self) -> bool {
        matches!(self.state, State::Exhausted)
    }

    /// The first rule that was broken while filling it.
    pub const fn fault(&self) -> Option<PageViolation> {
        match self.state {
            State::Faulty(fault) => Some(fault),
            State::Open | State::Full | State::Exhausted => None,
        }
    }

    /// The item at `index`, if there are that many.
    pub fn item(&self, index: usize) -> Option<PageItem<'_>> {
        let entry = self.entries.get(index)?;
        // Only ends are kept: a start kept as well would have to agree with the end before it.
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

    /// The last item, if there is one.
    pub fn last(&self) -> Option<PageItem<'_>> {
        self.item(self.len().checked_sub(1)?)
    }

    /// All items in the order they were pushed.
    pub const fn items(&self) -> PageItems<'_> {
        PageItems { page: self, next: 0 }
    }

    /// The cursor that says "finished up to and including the item at `index`".
    pub fn cursor_at(&self, index: usize) -> Option<CursorUpdate<'_>> {
        let item = self.item(index)?;
        let cursor = CursorUpdate::try_from_parts(Some(item.key), item.token());
        Some(cursor.expect("push has checked that the key is not empty and both are in bounds"))
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

// Numbers only: the bytes are keys.
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

/// Why an item was not taken.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// It does not fit: stop, and begin the next page with it.
    #[error("the page is full")]
    Full,
    /// It breaks a rule, and the page remembers so.
    #[error(transparent)]
    Refused(PageViolation),
}

/// One item as listed: its key, and what the connector knows about it without opening it.
///
/// Unchecked until a page takes it, so that any bytes can be presented.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageItem<'a> {
    key: &'a [u8],
    /// Empty when there is none, as in a cursor.
    token: &'a [u8],
    size_hint: Option<u64>,
}

impl<'a> PageItem<'a> {
    /// An item of which only the key is known.
    pub const fn new(key: &'a [u8]) -> Self {
        Self { key, token: &[], size_hint: None }
    }

    /// Adds the size in bytes that opening it would give, as far as is known now.
    pub const fn with_size_hint(self, size: u64) -> Self {
        Self { size_hint: Some(size), ..self }
    }

    /// Adds the connector's resume state: it makes continuing after this item, and opening it,
    /// cheap. An empty token is none.
    pub const fn with_token(self, token: &'a [u8]) -> Self {
        Self { token, ..self }
    }

    /// The key.
    pub const fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The expected size in bytes.
    pub const fn size_hint(&self) -> Option<u64> {
        self.size_hint
    }

    /// The connector's resume state, never empty.
    pub const fn token(&self) -> Option<&'a [u8]> {
        if self.token.is_empty() { None } else { Some(self.token) }
    }

    /// The size rules, in the order key empty, key too long, token too long.
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

// Lengths only: keys must not reach a log by way of a debug print.
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
