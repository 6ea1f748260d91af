//! The processor: what a worker does with every key.
//!
//! A [`Processor`] belongs to one thread of a worker and serves one shard after another. It
//! receives items in the order of their keys and reports them in any order. *Done* means that the
//! results of the item are durable: the cursor may move past it, and the item is not read again.
//!
//! An item may be submitted more than once: after a crash and after a lost lease. A sink that
//! stores the fence with each result and refuses a lower one *for the same key* is exact (DESIGN
//! 7).

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use gossip_contracts::connector::{Connector, ItemBody, OpenError, PageItem};
use gossip_contracts::identity::{FenceEpoch, ShardKey};
use memchr::memmem;
use thiserror::Error;

use crate::command_finding::CommandFinding;

/// One item to process.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The index of the item in its page; reports name it.
    pub ticket: usize,
    /// Key, token and size.
    pub item: PageItem<'a>,
    /// The shard it belongs to.
    pub shard: ShardKey,
    /// The fence under which it is processed; store it with every result.
    pub fence: FenceEpoch,
    /// The connector that opens it.
    pub connector: &'a dyn Connector,
}

impl<'a> Work<'a> {
    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> &'a [u8] {
        self.item.key()
    }

    /// Opens the item; a small body is read into `scratch`.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Connector::open`]; report it as [`ItemResult::Unopened`].
    pub fn open<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<ItemBody<'s>, OpenError>
    where
        'a: 's,
    {
        self.connector.open(self.item, scratch)
    }
}

// Ticket and fence only: keys are the user's data and must not reach a log.
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

/// The result of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ItemResult {
    /// Its results are durable.
    Done,
    /// Its results are durable, and this many of them are findings. Findings are counted with the
    /// cursor, so a crash neither loses nor repeats one in the count.
    Found(NonZeroU32),
    /// Its results, which the checkpoint that passes the item stores in the same commit: exactly
    /// once, whatever crashes. They are listed by [`for_each_result`](crate::for_each_result).
    Results {
        /// How many of them are findings.
        findings: u32,
        /// The results, at most [`ITEM_RESULTS_MAX`](crate::ITEM_RESULTS_MAX) bytes; with more the
        /// item fails.
        content: Box<[u8]>,
    },
    /// Its command succeeded and found something, which is stored as [`Self::Results`] are.
    CommandFound(Box<CommandFinding>),
    /// It could not be opened or read.
    Unopened(OpenError),
    /// Processing failed; another try may succeed.
    Failed(ItemFailure),
    /// Processing failed, and would fail again.
    Hopeless(ItemFailure),
    /// It was not processed, for a reason that is not its own; it is submitted again.
    Undone,
}

/// Why processing an item failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemFailure {
    /// The cause in words, on one line.
    pub message: Box<str>,
    /// How the command of the item ended; `None` if no command ended, as for a closure, a timeout,
    /// or a program that keeps running.
    pub status: Option<CommandStatus>,
    /// The end of what the command wrote to standard error, at most [`Self::STDERR_MAX`] bytes;
    /// empty if it wrote nothing or its output was not captured.
    pub stderr: Box<[u8]>,
}

impl ItemFailure {
    /// Maximum number of bytes of standard error that are kept: the end of most backtraces. A run
    /// stores so much for each failed item.
    pub const STDERR_MAX: usize = 4096;

    /// Returns a failure with a message and nothing else.
    #[must_use]
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), status: None, stderr: Box::default() }
    }

    /// Returns the failure with the end of standard error, and with a hint if that shows that the
    /// command asked for a terminal.
    pub(crate) fn with_stderr(self, stderr: Vec<u8>) -> Self {
        let asked = TERMINAL_WORDS.iter().any(|words| memmem::find(&stderr, words).is_some());
        let message = match asked {
            true => format!("{}; it asked for a terminal, and commands have none", self.message),
            false => self.message.into(),
        };
        Self { message: message.into(), status: self.status, stderr: stderr.into() }
    }
}

/// What programs write that cannot open the terminal: shells, `ssh`, `sudo`, `git` and `gpg`.
const TERMINAL_WORDS: [&[u8]; 5] =
    [b"/dev/tty", b"a terminal is required", b"no tty present", b"not a tty", b"no terminal"];

impl From<&str> for ItemFailure {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for ItemFailure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

/// How a command ended that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a process ends in no other way")]
pub enum CommandStatus {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// The report of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The ticket of the item.
    pub ticket: usize,
    /// The result of the item.
    pub result: ItemResult,
}

/// The processor is unusable, whatever the item: the worker stops, and no item is recorded as
/// failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "each has an exit code of its own")]
pub enum Broken {
    /// The command does not exist or may not be executed.
    #[error("{0}")]
    NotExecutable(Box<str>),
    /// Standard output or standard error of this process is a pipe that is not read any more.
    #[error("output closed: the reader of the pipe has exited")]
    OutputClosed,
    /// A drain was requested, and the handler neither replied nor exited.
    #[error("the handler did not reply after the request to stop, and was killed")]
    NoReply,
    /// A command that shares the terminal was ended from there, and so is this process.
    #[error("the command was interrupted")]
    Interrupted,
    /// Any other reason.
    #[error("{0}")]
    Failed(Box<str>),
}

/// A processor that has items and has reported none for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silence {
    /// The ticket of the item that waits longest.
    pub ticket: usize,
    /// For how long.
    pub lasted: Duration,
    /// Whether the handler has never replied.
    pub is_first: bool,
}

/// Processes every key, on one thread.
#[expect(clippy::missing_errors_doc, reason = "every method answers Broken, for one reason")]
pub trait Processor {
    /// Returns how many items may be submitted and not yet reported; at least one.
    fn capacity(&self) -> usize;

    /// Starts an item. Called at most [`Self::capacity`] times more often than items were reported.
    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken>;

    /// Appends reports; waits at most `patience` for the first. No item is submitted before one is
    /// reported, so items that were delayed to fill a batch must be processed now.
    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken>;

    /// Returns whether it opens every item, so that it notices one that is gone or unreadable. An
    /// item that another processor fails on is opened by its caller, which then knows the cause.
    fn opens_items(&self) -> bool {
        true
    }

    /// Returns that the processor has been silent for so long that the user should see it; once for
    /// each silence.
    fn silence(&mut self) -> Option<Silence> {
        None
    }

    /// Returns the item with this key as the user knows it, such as `urls.txt:2`, for its failure
    /// record or finding; `None` if only the key is known. Called for failed and unread items and
    /// for those whose command found something.
    fn place(&self, _key: &[u8]) -> Option<Box<str>> {
        None
    }

    /// Drops all submitted items, because the lease was lost. No report of them may follow.
    fn abandon(&mut self);
}

/// A closure as a processor: one item at a time, on the thread of the shard.
pub struct Inline<F> {
    process: F,
    /// How many items are processed before their reports are collected; at least one.
    batch: usize,
    /// The reports of the items since the last collection.
    reports: Vec<Report>,
    /// When the first of them was started.
    begun: Option<Instant>,
    /// Whether the batch has taken its time, so that no item is added to it.
    is_over: bool,
    scratch: Vec<u8>,
}

/// How long items are added to a batch of a closure: requests and the lease are looked at between
/// two batches. A batch of slow items is one item.
pub(crate) const INLINE_BATCH_TIME: Duration = Duration::from_millis(1);

/// The clock is read after the first items of a batch, and then after so many: items that become
/// slow within a batch are at most so many more.
const CLOCK_EVERY: usize = 8;

impl<F> Inline<F>
where
    F: FnMut(Work<'_>, &mut Vec<u8>) -> ItemResult,
{
    /// Returns a processor that calls `process` with every item and a buffer for its body.
    ///
    /// A panic in it is caught and fails that item for good.
    pub const fn new(process: F) -> Self {
        Self {
            process,
            batch: 1,
            reports: Vec::new(),
            begun: None,
            is_over: false,
            scratch: Vec::new(),
        }
    }

    /// Returns the processor with batches of at most `batch` items, if they take no longer than a
    /// millisecond: what a worker does between two batches costs more than a trivial item.
    #[must_use]
    pub fn with_batch(self, batch: usize) -> Self {
        Self { batch: batch.max(1), ..self }
    }
}

impl<F> Processor for Inline<F>
where
    F: FnMut(Work<'_>, &mut Vec<u8>) -> ItemResult,
{
    fn capacity(&self) -> usize {
        if self.is_over { self.reports.len().max(1) } else { self.batch }
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let ticket = work.ticket;
        let (process, scratch) = (&mut self.process, &mut self.scratch);
        let begun = (self.batch > 1).then(|| *self.begun.get_or_insert_with(Instant::now));
        // State that the closure left inconsistent belongs to the failed item.
        let result = catch_unwind(AssertUnwindSafe(|| process(work, scratch)))
            .unwrap_or_else(|_| ItemResult::Hopeless("the processor panicked".into()));
        self.reports.push(Report { ticket, result });
        let count = self.reports.len();
        // Not after every item: reading the clock takes longer than a trivial one.
        if count.is_power_of_two() || count.is_multiple_of(CLOCK_EVERY) {
            self.is_over = begun.is_some_and(|begun| begun.elapsed() >= INLINE_BATCH_TIME);
        }
        Ok(())
    }

    fn collect(&mut self, _patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        reports.append(&mut self.reports);
        (self.begun, self.is_over) = (None, false);
        Ok(())
    }

    fn abandon(&mut self) {
        self.reports.clear();
        (self.begun, self.is_over) = (None, false);
    }
}

impl<F> fmt::Debug for Inline<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inline").field("reports", &self.reports.len()).finish_non_exhaustive()
    }
}
