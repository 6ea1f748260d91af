//! Validates every page before the runtime uses it.
//!
//! A [`PageValidator`] follows one listing of one range across all of its pages. It never repairs,
//! sorts or drops: a page is valid, or the first broken rule is reported by number and the shard is
//! parked. A rejected page leaves the validator unchanged. Checking allocates nothing.

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

/// The constraints on the pages of one listing, and its position.
pub struct PageValidator {
    start: Box<[u8]>,
    /// Empty if unbounded.
    end: Box<[u8]>,
    /// Every later key must be greater: the last key seen, or the cursor's. Empty before the first;
    /// no valid key is empty. Its capacity fits the longest key from construction.
    last_key: Vec<u8>,
    exhausted: bool,
}

impl PageValidator {
    /// Starts to follow a listing of `range` after `from`.
    ///
    /// Sizes and order of the bounds are not checked here: a range that contains no key rejects
    /// every item.
    pub fn new(range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> Self {
        let mut last_key = Vec::with_capacity(MAX_KEY_SIZE);
        last_key.extend_from_slice(from.last_key().unwrap_or_default());
        Self { start: range.start.into(), end: range.end.into(), last_key, exhausted: false }
    }

    /// Checks the next page and records its last key.
    ///
    /// # Errors
    ///
    /// The first rule broken: a page after the end; the page's own fault; neither item nor end;
    /// then for each item the range, a repeated key, the order.
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

    /// Returns whether the last page was marked as the end of the range.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    fn check_items(&self, page: &Page) -> Result<(), PageViolation> {
        let mut previous: &[u8] = &self.last_key;
        // Since keys increase, checking the first and last key against the range would be enough.
        // Checking each costs two more comparisons, and reports exactly the item that is outside.
        for (index, item) in page.items().enumerate() {
            self.check_range(index, item)?;
            check_order(index, item, previous)?;
            previous = item.key();
        }
        Ok(())
    }

    /// Fails if the key of `item`, number `index` of its page, lies outside the range.
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
        // An empty last page leaves the key unchanged: no further page is requested.
        if let Some(item) = page.last() {
            debug_assert!(item.key() > &*self.last_key, "check_items has checked the order");
            debug_assert!(item.key().len() <= self.last_key.capacity(), "otherwise this allocates");
            self.last_key.clear();
            self.last_key.extend_from_slice(item.key());
        }
        self.exhausted = page.is_exhausted();
    }
}

// Only lengths: keys must not reach a log through debug output.
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

/// A listing whose every page is validated. The runtime holds one per shard.
///
/// It ends with the first error. To resume, open another from the last cursor.
pub struct CheckedEnumeration {
    enumeration: Box<dyn Enumeration>,
    validator: PageValidator,
    /// Set by the first error; after that the enumeration is not called again.
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

    /// Clears `page`, fills it and validates it. After the end of the range it returns empty
    /// exhausted pages without calling the connector.
    ///
    /// # Errors
    ///
    /// Every call after an error returns the same error. The page is then empty.
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
        // A partial page must not be mistaken for a whole one: its cursor would skip the missing
        // part.
        if let Err(error) = filled {
            page.clear();
            self.failed = Some(error);
        }
        debug_assert!(filled.is_err() || !page.is_empty() || page.is_exhausted());
        filled
    }

    /// Returns the first key after the failed part of the range, as reported by the connector
    /// ([`Enumeration::behind_failure`]). A connector that broke a rule is not queried.
    #[must_use]
    pub fn behind_failure(&self) -> Option<&[u8]> {
        match self.failed {
            Some(PageError::Connector(_)) => self.enumeration.behind_failure(),
            Some(PageError::Violation(_)) | None => None,
        }
    }

    /// Returns the place that cannot be listed, as reported by the connector
    /// ([`Enumeration::failed_at`]). A connector that broke a rule is not queried.
    #[must_use]
    pub fn failed_at(&self) -> Option<&[u8]> {
        match self.failed {
            Some(PageError::Connector(_)) => self.enumeration.failed_at(),
            Some(PageError::Violation(_)) | None => None,
        }
    }

    fn fill(&mut self, page: &mut Page) -> Result<(), PageError> {
        // Nothing prevents a connector from replacing the caller's page by a larger one.
        let limits = page.limits();
        self.enumeration.next_page(page)?;
        if page.limits() != limits {
            return Err(PageViolation::PageReplaced { items: page.len() }.into());
        }
        Ok(self.validator.check(page)?)
    }
}

// Only lengths: keys must not reach a log through debug output.
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
    /// The connector broke a rule of the contract.
    #[error(transparent)]
    Violation(#[from] PageViolation),
}

impl PageError {
    /// Returns the runtime's reaction for the shard.
    pub const fn reaction(&self) -> Reaction {
        match self {
            Self::Connector(error) => error.reaction(),
            Self::Violation(_) => Reaction::Park(ParkCause::Poisoned),
        }
    }
}
