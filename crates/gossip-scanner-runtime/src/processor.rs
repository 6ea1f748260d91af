//! What is done with every key.
//!
//! A [`Processor`] belongs to one thread of a worker and serves one shard after another. It is
//! given items in the order of their keys and reports them in any order. *Done* means that the
//! results of the item are durable: the cursor may move past it, and no one will look at the item
//! again.
//!
//! An item may be given more than once: after a crash, and after a lease was lost. Whoever stores
//! results keeps the fence of each and refuses a lower one *for the same key* (DESIGN 7).

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gossip_contracts::connector::{Connector, ItemBody, OpenError, PageItem};
use gossip_contracts::identity::{FenceEpoch, ShardKey};
use thiserror::Error;

/// One item to be processed.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The item's place in its page, by which it is reported.
    pub ticket: usize,
    /// Key, token and size.
    pub item: PageItem<'a>,
    /// The shard it belongs to.
    pub shard: ShardKey,
    /// The fence under which it is processed; goes beside every result.
    pub fence: FenceEpoch,
    /// Where it can be opened.
    pub connector: &'a dyn Connector,
}

impl<'a> Work<'a> {
    /// The key.
    #[must_use]
    pub const fn key(&self) -> &'a [u8] {
        self.item.key()
    }

    /// Opens the item; `scratch` lends the memory for a small body.
    ///
    /// # Errors
    ///
    /// As [`Connector::open`]; report it as [`ItemResult::Unopened`].
    pub fn open<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<ItemBody<'s>, OpenError>
    where
        'a: 's,
    {
        self.connector.open(self.item, scratch)
    }
}

// The ticket and the fence only: the item is the user's.
impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("ticket", &self.ticket)
            .field("item", &self.item)
            .field("shard", &self.shard)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ItemResult {
    /// Its results are durable.
    Done,
    /// Its results are durable, and so many of them are findings: what whoever runs it looks for.
    /// They are counted with the cursor, so each counts once, whatever crashes.
    Found(NonZeroU32),
    /// It could not be opened or read.
    Unopened(OpenError),
    /// It was processed and that failed; another try may succeed.
    Failed(Box<str>),
    /// It was processed and that failed, and would fail again.
    Hopeless(Box<str>),
    /// It was not processed, through no fault of its own: it is given again.
    Undone,
}

/// A report on one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which item.
    pub ticket: usize,
    /// What became of it.
    pub result: ItemResult,
}

/// The processor itself cannot work, whatever the item: the worker stops.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Broken(pub Box<str>);

/// What is done with every key, on one thread.
#[expect(clippy::missing_errors_doc, reason = "every method answers Broken, for one reason")]
pub trait Processor {
    /// How many items may be given and not yet reported; at least one.
    fn capacity(&self) -> usize;

    /// Begins with an item. Called at most [`Self::capacity`] times more than items were reported.
    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken>;

    /// Appends reports, waiting for the first at most `patience`. Nothing more is submitted before
    /// something is reported, so whatever was put off until there is more must be done now.
    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken>;

    /// Forgets what is on its way: the shard was lost. No report of it may come later.
    fn abandon(&mut self);
}

/// A closure as a processor: one item at a time, on the thread of the shard.
pub struct Inline<F> {
    process: F,
    /// The report of the last item, until it is collected.
    report: Option<Report>,
    scratch: Vec<u8>,
}

impl<F> Inline<F>
where
    F: FnMut(Work<'_>, &mut Vec<u8>) -> ItemResult,
{
    /// Calls `process` with every item and a buffer for its body.
    ///
    /// A panic in it is caught and fails that item for good.
    pub const fn new(process: F) -> Self {
        Self { process, report: None, scratch: Vec::new() }
    }
}

impl<F> Processor for Inline<F>
where
    F: FnMut(Work<'_>, &mut Vec<u8>) -> ItemResult,
{
    fn capacity(&self) -> usize {
        1
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let ticket = work.ticket;
        let (process, scratch) = (&mut self.process, &mut self.scratch);
        // Whatever the closure left half done belongs to the item, which is set aside.
        let result = catch_unwind(AssertUnwindSafe(|| process(work, scratch)))
            .unwrap_or_else(|_| ItemResult::Hopeless("the processor panicked".into()));
        self.report = Some(Report { ticket, result });
        Ok(())
    }

    fn collect(&mut self, _patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        reports.extend(self.report.take());
        Ok(())
    }

    fn abandon(&mut self) {
        self.report = None;
    }
}

impl<F> fmt::Debug for Inline<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inline").field("report", &self.report).finish_non_exhaustive()
    }
}
