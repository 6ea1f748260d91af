//! The contract between sources of keys and the runtime that works through them.
//!
//! A **connector** makes one source (a file tree, the rows of a manifest, a range of integers) look
//! like an ordered set of byte keys. The runtime asks it for two things and no more: *which keys
//! lie in this shard's range after this cursor*, and *give me the item behind this key*.
//!
//! This module never reads a source, a clock or a thread; it holds the traits, the buffer that
//! crosses them, the check of what came back, and the suite that every connector must pass.
//!
//! # The picture
//!
//! ```text
//!  shard's range + cursor                        caller's Page (reused)
//!        │                                              │
//!        ▼                                              ▼
//!  Connector::enumerate ──► Box<dyn Enumeration> ──► next_page ──► PageValidator ──► runtime
//!        │ &self, once per lease        &mut self, once per page      refuses, by number only
//!        └─ Connector::open(item) ──► ItemBody     &self, from any thread, in any order
//! ```
//!
//! [`CheckedEnumeration`] is the middle of that picture in one value, and is what the runtime
//! holds.
//!
//! # What a connector promises
//!
//! 1. **Byte order.** Keys of one enumeration are strictly increasing as unsigned bytes.
//! 2. **Range.** A key `k` is listed iff it is in the source, `range.contains_key(k)` and `k` is
//!    greater than the cursor's key. The start is included, the end is not, either may be empty
//!    (unbounded), and neither need be a key: splits cut at any bytes. A cursor outside the range
//!    is not an error; the rule above says what it means.
//! 3. **Bounded pages.** It pushes until the page says [`PushError::Full`], keeps that one item for
//!    the next page and returns. The memory is the caller's and never grows.
//! 4. **Progress.** A page holds an item or is marked exhausted. An empty page that promises more
//!    would leave nobody able to tell slow from stuck.
//! 5. **The key decides, the token helps.** An item's token makes resuming and opening cheap (a
//!    file offset, say). Resuming without it, or with one that cannot be read (an older version
//!    wrote it), gives the same keys. A token is not state of the process: it must work after a
//!    restart.
//! 6. **Nothing is dropped in silence.** What cannot be listed is an error, or better an item whose
//!    opening fails, so that one unreadable directory does not hide its neighbours.
//! 7. **Independence.** Enumerations and openings on one connector do not disturb one another.
//! 8. **No key bytes in errors.** By type: errors of this module hold numbers only.
//!
//! # Why the shapes are what they are
//!
//! - **`Connector: Send + Sync` with `&self`**, because one connector serves all shards of a
//!   process on all of its threads. It is object safe: a run picks its connector at run time from a
//!   URL.
//! - **A handle per enumeration**, not a stateless `enumerate(&self, range, cursor, page)`.
//!   Directories come unsorted: a stateless call would read and sort a directory of 10⁶ files once
//!   per page of 10³, which is quadratic; the handle does it once per lease. It costs one box per
//!   lease and nothing per page. It owns what it needs (`'static`), so that it can lie beside its
//!   shard and move between threads; connectors share their own state by `Arc`.
//! - **A handle serves one range.** When a split narrows the shard, drop it and open another from
//!   the last key of the last page. After an error it is spent as well: retrying means opening
//!   anew.
//! - **Blocking**, because every source we have is: files. The runtime gives it a thread and keeps
//!   leases alive from another.
//! - **`open` takes the item and a scratch buffer**: with its token a row of a manifest is one
//!   seek, and a small body is read into the caller's memory without allocating. Any number of
//!   items of a page may be open at once, which is what completion out of order needs.
//! - **A page remembers refusals.** A connector that ignores a [`PushError`] is found out all the
//!   same: the page keeps the first fault until it is cleared, which is its caller's business, and
//!   the validator reports it. One that clears the page itself loses keys, which the suite finds.
//! - **Sampling fills a [`Page`] too**, so that keys have one bounded container.
//!
//! # What the runtime does
//!
//! | what came back | reaction |
//! |---|---|
//! | [`PageViolation`] | park the shard as poisoned: the connector or its source breaks its word |
//! | [`ConnectorError`] | [`ConnectorError::reaction`]: retry with backoff, or park with a cause |
//! | [`OpenError`] | [`OpenError::reaction`]: retry, skip the item (gone or unread), or park |
//! | retries used up | park the shard for too many errors |
//!
//! The table of each error is a `match` without a catch-all, and a test prints it.

mod capabilities;
pub mod conformance;
mod error;
mod memory;
mod page;
mod source;
mod validator;
mod violation;

#[cfg(test)]
mod error_tests;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod validator_tests;

pub use self::capabilities::{Capabilities, SeekCost};
pub use self::error::{ConnectorError, OpenError, ParkCause, Reaction};
pub use self::memory::{MemoryConnector, MemoryConnectorError, Spoil};
pub use self::page::{
    DEFAULT_PAGE_BYTES, DEFAULT_PAGE_ITEMS, MAX_CONNECTOR_TOKEN_SIZE, MAX_PAGE_BYTES,
    MAX_PAGE_ITEMS, MIN_PAGE_BYTES, Page, PageItem, PageItems, PageLimits, PageLimitsError,
    PushError, RUNTIME_TOKEN_RESERVE,
};
pub use self::source::{Connector, Enumeration, ItemBody, MAX_INLINE_BODY_BYTES};
pub use self::validator::{CheckedEnumeration, PageError, PageValidator};
pub use self::violation::PageViolation;
/// The owned cursor, under the name that connectors use; it converts to and from
/// [`CursorUpdate`](crate::coordination::CursorUpdate).
pub use crate::coordination::Cursor;
