//! The rules of a page, as the ways to break them.

use thiserror::Error;

/// A page that a connector must not return; the shard is parked as poisoned.
///
/// Indices count the items of the page from zero; sizes are in bytes; no byte of a key is shown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageViolation {
    /// A page after the one that was marked exhausted.
    #[error("a page of {items} items after the end of the range")]
    PageAfterEnd {
        /// Items in the extra page.
        items: usize,
    },
    /// An item was pushed after the page was marked exhausted.
    #[error("an item after the end mark of a page of {items} items")]
    ItemAfterEnd {
        /// Items in the page.
        items: usize,
    },
    /// An item was pushed after the page had returned that it is full.
    #[error("an item after a page of {items} items was full")]
    LimitIgnored {
        /// Items in the page.
        items: usize,
    },
    /// Marked exhausted although an item did not fit: that item would be lost.
    #[error("the end mark on a page of {items} items after another did not fit")]
    ItemDropped {
        /// Items in the page.
        items: usize,
    },
    /// The caller's page was replaced by one with other limits.
    #[error("a page of {items} items in place of the caller's page")]
    PageReplaced {
        /// Items in the page that came back.
        items: usize,
    },
    /// Neither an item nor the end: the listing would never advance.
    #[error("an empty page that is not the last")]
    NotAdvancing,
    /// An empty key, which no cursor can hold.
    #[error("item {index} has an empty key")]
    EmptyKey {
        /// Index of the item.
        index: usize,
    },
    /// A key longer than a cursor can hold.
    #[error("item {index} has a key of {size} bytes; at most {max} are allowed")]
    KeyTooLarge {
        /// Index of the item.
        index: usize,
        /// Size of its key.
        size: usize,
        /// [`MAX_KEY_SIZE`](crate::coordination::MAX_KEY_SIZE).
        max: usize,
    },
    /// A token longer than a connector may use.
    #[error("item {index} has a token of {size} bytes; at most {max} are allowed")]
    TokenTooLarge {
        /// Index of the item.
        index: usize,
        /// Size of its token.
        size: usize,
        /// [`MAX_CONNECTOR_TOKEN_SIZE`](super::MAX_CONNECTOR_TOKEN_SIZE).
        max: usize,
    },
    /// A key below the start of the range.
    #[error("item {index} ({key_len} bytes) lies below the range's start ({start_len} bytes)")]
    BelowRange {
        /// Index of the item.
        index: usize,
        /// Size of its key.
        key_len: usize,
        /// Size of the start.
        start_len: usize,
    },
    /// A key at or above the end of the range.
    #[error("item {index} ({key_len} bytes) is not below the range's end ({end_len} bytes)")]
    AboveRange {
        /// Index of the item.
        index: usize,
        /// Size of its key.
        key_len: usize,
        /// Size of the end.
        end_len: usize,
    },
    /// The key equals that of the previous item, or of the cursor.
    #[error("item {index} ({key_len} bytes) has the same key as the previous one")]
    DuplicateKey {
        /// Index of the item.
        index: usize,
        /// Size of its key.
        key_len: usize,
    },
    /// The key is smaller than that of the previous item, or of the cursor.
    #[error("item {index} ({key_len} bytes) sorts below the previous one ({previous_len} bytes)")]
    OutOfOrder {
        /// Index of the item.
        index: usize,
        /// Size of its key.
        key_len: usize,
        /// Size of the previous key.
        previous_len: usize,
    },
}
