//! The rules of a page, as the ways to break them.

use thiserror::Error;

/// A page that a connector must not give; the shard is parked as poisoned.
///
/// Indices count the items of the page from zero; sizes are in bytes; no byte of a key is shown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageViolation {
    /// A page after the one that was marked exhausted.
    #[error("a page of {items} items after the end of the range")]
    PageAfterEnd {
        /// Items in the superfluous page.
        items: usize,
    },
    /// An item pushed after the page was marked exhausted.
    #[error("an item after the end mark of a page of {items} items")]
    ItemAfterEnd {
        /// Items in the page.
        items: usize,
    },
    /// An item pushed after the page had said that it is full.
    #[error("an item after a page of {items} items was full")]
    LimitIgnored {
        /// Items in the page.
        items: usize,
    },
    /// Marked exhausted although an item was refused for lack of room: that item would be lost.
    #[error("the end mark on a page of {items} items that had refused another")]
    ItemDropped {
        /// Items in the page.
        items: usize,
    },
    /// The caller's page came back with other limits than it was lent with.
    #[error("a page of {items} items in place of the one that was lent")]
    PageReplaced {
        /// Items in the page that came back.
        items: usize,
    },
    /// No item and no end: whoever asks again may ask for ever.
    #[error("an empty page that is not the last")]
    NotAdvancing,
    /// A key without bytes, which no cursor can hold.
    #[error("item {index} has an empty key")]
    EmptyKey {
        /// Which item.
        index: usize,
    },
    /// A key longer than a cursor can hold.
    #[error("item {index} has a key of {size} bytes; at most {max} are allowed")]
    KeyTooLarge {
        /// Which item.
        index: usize,
        /// Size of its key.
        size: usize,
        /// [`MAX_KEY_SIZE`](crate::coordination::MAX_KEY_SIZE).
        max: usize,
    },
    /// A token longer than a connector may use.
    #[error("item {index} has a token of {size} bytes; at most {max} are allowed")]
    TokenTooLarge {
        /// Which item.
        index: usize,
        /// Size of its token.
        size: usize,
        /// [`MAX_CONNECTOR_TOKEN_SIZE`](super::MAX_CONNECTOR_TOKEN_SIZE).
        max: usize,
    },
    /// A key below the start of the range.
    #[error("item {index} ({key_len} bytes) lies below the range's start ({start_len} bytes)")]
    BelowRange {
        /// Which item.
        index: usize,
        /// Size of its key.
        key_len: usize,
        /// Size of the start.
        start_len: usize,
    },
    /// A key at or above the end of the range.
    #[error("item {index} ({key_len} bytes) is not below the range's end ({end_len} bytes)")]
    AboveRange {
        /// Which item.
        index: usize,
        /// Size of its key.
        key_len: usize,
        /// Size of the end.
        end_len: usize,
    },
    /// The key of the item before, or of the cursor, once more.
    #[error("item {index} ({key_len} bytes) has the same key as the one before")]
    DuplicateKey {
        /// Which item.
        index: usize,
        /// Size of its key.
        key_len: usize,
    },
    /// A key smaller than that of the item before, or of the cursor.
    #[error("item {index} ({key_len} bytes) sorts below the one before ({previous_len} bytes)")]
    OutOfOrder {
        /// Which item.
        index: usize,
        /// Size of its key.
        key_len: usize,
        /// Size of the key before.
        previous_len: usize,
    },
}
