//! The check of every page before the runtime believes it.
//!
//! A [`PageValidator`] follows one listing of one range across all of its pages. It never repairs,
//! sorts or drops: a page is right, or the first broken rule is named by number and the shard is
//! parked. A refused page leaves the validator as it was. Checking allocates nothing.

use std::cmp::Ordering;
use std::fmt;

use thiserror::Error;

use super::error::{ConnectorError, ParkCause, Reaction};
use super::page::{Page, PageItem};
use super::source::{Connector, Enumeration};
use super::violation::PageViolation;
use crate::coordination::{
    CursorBounds, CursorUpdate, MAX_KEY_SIZE, ShardSpecRef, check_cursor_bounds,
};

/// What must hold of the pages of one listing, and how far it has come.
pub struct PageValidator {
    start: Box<[u8]>,
    /// Empty when unbounded.
    end: Box<[u8]>,
    /// The key below which nothing may come any more: the last one seen, or the cursor's. Empty
    /// before the first, which no key is. Its capacity takes the longest key from the beginning.
    last_key: Vec<u8>,
    exhausted: bool,
}

impl PageValidator {
    /// Begins to follow a listing of `range` after `from`.
    ///
    /// Sizes and order of the bounds are not checked here: a range that contains no key refuses
    /// every item.
    pub fn new(range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> Self {
        let mut last_key = Vec::with_capacity(MAX_KEY_SIZE);
        last_key.extend_from_slice(from.last_key().unwrap_or_default());
        Self { start: range.start.into(), end: range.end.into(), last_key, exhausted: false }
    }

    /// Checks the next page and remembers where it ends.
    ///
    /// # Errors
    ///
    /// The first rule broken: a page after the end; the page's own fault; neither item nor end;
    /// then item by item the range, a repeated key, the order.
    pub fn check(&mut self, page: &Page) -> Result<(), PageViolation> {
        if self.exhausted {
            return Err(PageViolation::PageAfterEnd { items: page.len() });
        }
        if let Some(fault) = page.fault() {
            return Err(fault);
        }
        if page.is_empty() && !page.is_exhausted() {
            return Err(PageViolation::NotAdvancing);
        }
        self.check_items(page)?;
        self.advance(page);
        Ok(())
    }

    /// Whether the last page was marked as the end of the range.
    pub const fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    fn check_items(&self, page: &Page) -> Result<(), PageViolation> {
        let mut previous: &[u8] = &self.last_key;
        // Keys that increase need their range checked at both ends only. Checking each costs two
        // more comparisons, and names the very item that is outside.
        for (index, item) in page.items().enumerate() {
            self.check_range(index, item)?;
            check_order(index, item, previous)?;
            previous = item.key();
        }
        Ok(())
    }

    fn check_range(&self, index: usize, item: PageItem<'_>) -> Result<(), PageViolation> {
        let key_len = item.key().len();
        match check_cursor_bounds(Some(item.key()), &self.start, &self.end) {
            CursorBounds::NoKey | CursorBounds::InBounds => Ok(()),
            CursorBounds::BelowRange => {
                Err(PageViolation::BelowRange { index, key_len, start_len: self.start.len() })
            }
            CursorBounds::AboveRange => {
                Err(PageViolation::AboveRange { index, key_len, end_len: self.end.len() })
            }
        }
    }

    fn advance(&mut self, page: &Page) {
        // An empty last page leaves the key as it is: nothing may be asked of the listing any more.
        if let Some(item) = page.last() {
            debug_assert!(item.key() > &*self.last_key, "check_items has seen the order");
            debug_assert!(item.key().len() <= self.last_key.capacity(), "else this allocates");
            self.last_key.clear();
            self.last_key.extend_from_slice(item.key());
        }
        self.exhausted = page.is_exhausted();
    }
}

// Lengths only: keys must not reach a log by way of a debug print.
impl fmt::Debug for PageValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageValidator")
            .field("start_len", &self.start.len())
            .field("end_len", &self.end.len())
            .field("last_key_len", &self.last_key.len())
            .field("exhausted", &self.exhausted)
            .finish()
    }
}

fn check_order(index: usize, item: PageItem<'_>, previous: &[u8]) -> Result<(), PageViolation> {
    let (key_len, previous_len) = (item.key().len(), previous.len());
    match item.key().cmp(previous) {
        Ordering::Greater => Ok(()),
        Ordering::Equal => Err(PageViolation::DuplicateKey { index, key_len }),
        Ordering::Less => Err(PageViolation::OutOfOrder { index, key_len, previous_len }),
    }
}

/// A listing whose every page is checked: what the runtime holds beside a shard.
///
/// It ends with the first error. To go on, open another from the last cursor.
pub struct CheckedEnumeration {
    enumeration: Box<dyn Enumeration>,
    validator: PageValidator,
    /// Set by the first error; a spent listing is not asked again.
    failed: Option<PageError>,
}

impl CheckedEnumeration {
    /// Opens a listing of `range` after `from`.
    ///
    /// # Errors
    ///
    /// As [`Connector::enumerate`].
    pub fn open(
        connector: &dyn Connector,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Self, ConnectorError> {
        let enumeration = connector.enumerate(range, from)?;
        Ok(Self { enumeration, validator: PageValidator::new(range, from), failed: None })
    }

    /// Clears `page`, fills it and checks it. At the end of the range it gives empty exhausted
    /// pages, without asking the connector.
    ///
    /// # Errors
    ///
    /// The same one again if asked again. The page is then empty: nothing of it may be used.
    pub fn next_page(&mut self, page: &mut Page) -> Result<(), PageError> {
        page.clear();
        if self.validator.is_exhausted() {
            page.mark_exhausted();
            return Ok(());
        }
        let filled = match self.failed {
            Some(error) => Err(error),
            None => self.fill(page),
        };
        // Half a page must not be mistaken for a whole one: its cursor would skip the other half.
        if let Err(error) = filled {
            page.clear();
            self.failed = Some(error);
        }
        debug_assert!(filled.is_err() || !page.is_empty() || page.is_exhausted());
        filled
    }

    /// Where the range may go on behind what failed, as the connector says
    /// ([`Enumeration::behind_failure`]). A connector that broke its word is not asked.
    #[must_use]
    pub fn behind_failure(&self) -> Option<&[u8]> {
        match self.failed {
            Some(PageError::Connector(_)) => self.enumeration.behind_failure(),
            Some(PageError::Violation(_)) | None => None,
        }
    }

    fn fill(&mut self, page: &mut Page) -> Result<(), PageError> {
        // The page is lent, and nothing keeps a connector from putting a larger one in its place.
        let limits = page.limits();
        self.enumeration.next_page(page)?;
        if page.limits() != limits {
            return Err(PageViolation::PageReplaced { items: page.len() }.into());
        }
        Ok(self.validator.check(page)?)
    }
}

// Lengths only: keys must not reach a log by way of a debug print.
impl fmt::Debug for CheckedEnumeration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedEnumeration")
            .field("validator", &self.validator)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Why there is no next page.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageError {
    /// The source failed.
    #[error(transparent)]
    Connector(#[from] ConnectorError),
    /// The connector broke its word.
    #[error(transparent)]
    Violation(#[from] PageViolation),
}

impl PageError {
    /// What the runtime does with the shard.
    pub const fn reaction(&self) -> Reaction {
        match self {
            Self::Connector(error) => error.reaction(),
            Self::Violation(_) => Reaction::Park(ParkCause::Poisoned),
        }
    }
}
