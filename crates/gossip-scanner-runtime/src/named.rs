//! A processor whose items have names.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::connectors::ItemNames;
use crate::processor::{Broken, Processor, Report, Silence, Work};

/// Adds the names of items to a processor, for the records of those that fail and for findings.
pub struct Named<'a> {
    inner: Box<dyn Processor + 'a>,
    names: Arc<ItemNames>,
}

impl<'a> Named<'a> {
    /// Returns `inner` with `names`.
    #[must_use]
    pub fn new(inner: Box<dyn Processor + 'a>, names: Arc<ItemNames>) -> Self {
        Self { inner, names }
    }
}

impl Processor for Named<'_> {
    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        self.inner.submit(work)
    }

    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        self.inner.collect(patience, reports)
    }

    fn opens_items(&self) -> bool {
        self.inner.opens_items()
    }

    fn silence(&mut self) -> Option<Silence> {
        self.inner.silence()
    }

    fn place(&self, key: &[u8]) -> Option<Box<str>> {
        self.inner.place(key).or_else(|| self.names.place(key))
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }
}

impl fmt::Debug for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").field("names", &self.names).finish_non_exhaustive()
    }
}
