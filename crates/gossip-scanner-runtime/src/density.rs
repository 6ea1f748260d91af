//! The distribution of a source's keys, from a bounded sample.
//!
//! A [`Density`] is a measure of ranges: how many of some sampled keys lie in one. It is made once
//! and never changes, so whatever is measured with it grows exactly when the measured set grows.
//! That is what makes progress monotone: cursors only move forward, and a split, a move, a pause or
//! an unparking changes no shard's covered keys.
//!
//! It never lists a source (a connector's sample is bounded by contract) and depends only on the
//! connector's answers.

use std::fmt;

use gossip_contracts::connector::{
    Connector, ConnectorError, MAX_PAGE_BYTES, MAX_PAGE_ITEMS, Page, PageLimits,
};
use gossip_contracts::coordination::ShardSpecRef;

/// Keys in a sample: each represents a four-thousandth of the source. More would not fit into a
/// page.
const LOOK_KEYS: usize = 4096;

const _: () = assert!(LOOK_KEYS <= MAX_PAGE_ITEMS);

/// A measure of the key ranges of one source.
#[derive(Default)]
pub struct Density {
    /// In strictly increasing order.
    keys: Vec<Box<[u8]>>,
    /// Whether these are all the keys there are.
    is_all: bool,
    /// All keys of the source, if the connector can count.
    total: Option<u64>,
}

impl Density {
    /// Samples the keys of `root`.
    ///
    /// A source that can neither count nor sample gives an empty measure.
    ///
    /// # Errors
    ///
    /// Returns an error if the source cannot be read.
    pub fn look(connector: &dyn Connector, root: ShardSpecRef<'_>) -> Result<Self, ConnectorError> {
        let limits = PageLimits::try_new(LOOK_KEYS, MAX_PAGE_BYTES);
        let mut sample = Page::with_limits(limits.expect("constants within the limits of a page"));
        connector.sample_keys(root, &mut sample)?;
        let total = connector.count_keys(root)?;
        Ok(Self::of_sample(&sample, total))
    }

    /// Returns the measure of a sample and the range it was taken from.
    pub(crate) fn of_sample(sample: &Page, total: Option<u64>) -> Self {
        // A sample out of order is no measure. The listing reports the connector's fault.
        if sample.fault().is_some() || !sample.items().is_sorted_by(|a, b| a.key() < b.key()) {
            return Self { total, ..Self::default() };
        }
        let keys: Vec<Box<[u8]>> = sample.items().map(|item| item.key().into()).collect();
        let is_all = sample.is_exhausted();
        // An exhausted sample has all keys, so their number is exact.
        let seen = u64::try_from(keys.len()).unwrap_or(u64::MAX);
        Self { keys, is_all, total: total.or_else(|| is_all.then_some(seen)) }
    }

    /// Returns the number of all keys of the source, if it is known exactly.
    #[must_use]
    pub const fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns the measure of everything: the number of sampled keys.
    #[must_use]
    pub(crate) const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether the measure is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the measure of `[start, end)`; an empty end means no end.
    #[must_use]
    pub(crate) fn between(&self, start: &[u8], end: &[u8]) -> usize {
        // Measured in sampled keys and not in bytes, because keys are not spread evenly over bytes.
        let end = if end.is_empty() { self.keys.len() } else { self.below(end) };
        end.saturating_sub(self.below(start))
    }

    /// Returns the measure of `[start, last]`, including the last key.
    #[must_use]
    pub(crate) fn through(&self, start: &[u8], last: &[u8]) -> usize {
        let end = self.keys.partition_point(|key| **key <= *last);
        end.saturating_sub(self.below(start))
    }

    /// Returns the same sample of a source that cannot count.
    #[cfg(test)]
    pub(crate) const fn forget_total(&mut self) {
        self.total = None;
    }

    /// Returns the measure of everything before `bound`.
    pub(crate) fn below(&self, bound: &[u8]) -> usize {
        self.keys.partition_point(|key| **key < *bound)
    }
}

// Numbers only.
impl fmt::Debug for Density {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Density")
            .field("keys", &self.keys.len())
            .field("is_all", &self.is_all)
            .field("total", &self.total)
            .finish()
    }
}
