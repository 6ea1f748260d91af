//! The contract between sources of keys and the runtime that processes them.
//!
//! A **connector** presents one source (a file tree, the rows of a manifest, a range of integers)
//! as an ordered set of byte keys. The runtime makes two kinds of requests: *list the keys in this
//! shard's range after this cursor*, and *open the item with this key*.
//!
//! This module never reads a source or a clock and starts no thread. It contains the traits, the
//! page buffer they exchange, the validator of pages, and the suite that every connector must pass.
//!
//! # Data flow
//!
//! ```text
//!  shard's range + cursor                        caller's Page (reused)
//!        │                                              │
//!        ▼                                              ▼
//!  Connector::enumerate ──► Box<dyn Enumeration> ──► next_page ──► PageValidator ──► runtime
//!        │ &self, once per lease        &mut self, once per page      rejects, by number only
//!        └─ Connector::open(item) ──► ItemBody     &self, from any thread, in any order
//! ```
//!
//! [`CheckedEnumeration`] combines the enumeration and its validator in one value, which the
//! runtime holds.
//!
//! # What a connector promises
//!
//! 1. **Byte order.** Keys of one enumeration are strictly increasing as unsigned bytes.
//! 2. **Range.** A key `k` is listed iff it is in the source, `range.contains_key(k)` and `k` is
//!    greater than the cursor's key. The start is included, the end is not, either may be empty
//!    (unbounded), and neither need be a key: splits can occur at any bytes. A cursor outside the
//!    range is not an error; the rule above defines its meaning.
//! 3. **Bounded pages.** It pushes until the page returns [`PushError::Full`], keeps that one item
//!    for the next page and returns. The memory is the caller's and never grows.
//! 4. **Progress.** A page holds an item or is marked exhausted. After an empty page that is not
//!    exhausted, a slow listing could not be distinguished from a stuck one.
//! 5. **The key decides, the token helps.** An item's token makes resuming and opening cheap (a
//!    file offset, for example). Resuming without it, or with an unreadable one (written by an
//!    older version), yields the same keys. A token is not process state: it must work after a
//!    restart.
//! 6. **Nothing is dropped silently.** A part that cannot be listed is an error, or better an item
//!    whose opening fails, so that one unreadable directory does not hide its neighbours.
//! 7. **Independence.** Enumerations and openings on one connector do not affect one another.
//! 8. **No key bytes in errors.** By type: errors of this module hold numbers only.
//!
//! # Design decisions
//!
//! - **`Connector: Send + Sync` with `&self`**, because one connector serves all shards of a
//!   process on all of its threads. It is object safe: a run picks its connector at run time from a
//!   URL.
//! - **A handle per enumeration**, not a stateless `enumerate(&self, range, cursor, page)`.
//!   Directories come unsorted: a stateless call would read and sort a directory of 10⁶ files once
//!   per page of 10³, which is quadratic; the handle does it once per lease. It costs one box per
//!   lease and nothing per page. It owns its state (`'static`), so that it can be stored with its
//!   shard and move between threads; connectors share their own state by `Arc`.
//! - **A handle serves one range.** When a split narrows the shard, drop the handle and open
//!   another from the last key of the last page. After an error a handle is finished as well: to
//!   retry, open a new one.
//! - **Blocking**, because every present source is: files. The runtime gives it a thread and renews
//!   leases from another.
//! - **`open` takes the item and a scratch buffer**: with its token a row of a manifest is one
//!   seek, and a small body is read into the caller's memory without allocating. Any number of
//!   items of a page may be open at once, which out-of-order completion needs.
//! - **A page records rejected pushes.** A connector that ignores a [`PushError`] is still
//!   detected: the page keeps the first fault until its caller clears it, and the validator reports
//!   it. A connector that clears the page itself loses keys, which the suite detects.
//! - **Sampling fills a [`Page`] too**, so that there is only one bounded container of keys.
//!
//! # Reactions of the runtime
//!
//! | result | reaction |
//! |---|---|
//! | [`PageViolation`] | park the shard as poisoned: the connector or its source broke the contract |
//! | [`ConnectorError`] | [`ConnectorError::reaction`]: retry with backoff, or park with a cause |
//! | [`OpenError`] | [`OpenError::reaction`]: retry, skip the item (gone or unread), or park |
//! | retries exhausted | park the shard for too many errors |
//!
//! The table of each error is a `match` without a catch-all arm, and a test prints it.

mod capabilities;
pub mod conformance;
mod error;
mod memory;
mod page;
mod sorted;
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
pub use self::error::{ConnectorError, ListingProblem, OpenError, ParkCause, Reaction};
pub use self::memory::{MemoryConnector, MemoryConnectorError, Spoil};
pub use self::page::{
    DEFAULT_PAGE_ITEMS, MAX_CONNECTOR_TOKEN_SIZE, MAX_PAGE_BYTES, MAX_PAGE_ITEMS, MIN_PAGE_BYTES,
    Page, PageItem, PageItems, PageLimits, PageLimitsError, PushError, RUNTIME_TOKEN_RESERVE,
};
pub use self::sorted::{KeyIterator, SortedConnector, SortedKeys};
pub use self::source::{Connector, Enumeration, ItemBody, MAX_INLINE_BODY_BYTES, Origin};
pub use self::validator::{CheckedEnumeration, PageError, PageValidator};
pub use self::violation::PageViolation;
/// The owned cursor, re-exported under the name that connectors use; it converts to and from
/// [`CursorUpdate`](crate::coordination::CursorUpdate).
pub use crate::coordination::Cursor;
