//! Side records: failures and results, stored in the commit that they describe.
//!
//! A lease holder passes side records with the operation that moves its cursor or ends its shard.
//! They are written if the operation is executed, in the same commit and without a compare; a
//! refused operation and a replay write none. No rule of the protocol reads them, and they are no
//! parameter of the operation: a retry under the same operation id may carry them again or not.
//!
//! # Numbers
//!
//! The caller makes the numbers, so that writing a record again is harmless: a failure has the hash
//! of its item's key, a result block a number that follows from the cursor before it. The fence
//! protects them as it protects the cursor.

use std::fmt;

use gossip_contracts::coordination::MAX_KEY_SIZE;
use gossip_contracts::identity::{CanonicalHasher, Domain, LogicalTime, RunId, ShardId, ShardKey};
use thiserror::Error;

/// Maximum side records of one operation: with the other writes of a checkpoint and an event they
/// fit the transactions of every engine, however small these are set.
pub const SIDE_RECORDS_MAX: usize = 14;

/// Maximum bytes of the side records of one operation: with the shard they stay below the 1.5 MiB
/// that an engine accepts in one request.
pub const SIDE_RECORD_BYTES_MAX: usize = 1 << 20;

/// Maximum failure records of a run: a list that a person reads, and with 4 KiB of stderr each at
/// most 100 MiB of a store. Further failures are parked without a record.
///
/// Each process counts the stored records again after every `FAILURES_PER_COUNT` of its own, so
/// that no counter is shared: concurrent processes may exceed the limit by that many each.
pub const FAILURE_RECORDS_MAX: u64 = 10_000;

/// Failure records that a process writes before it counts those of the run again.
pub(crate) const FAILURES_PER_COUNT: u64 = 64;

/// Maximum bytes of the end of a command's error output: the message of most programs and the frame
/// of a stack trace that matters.
pub const FAILURE_STDERR_MAX: usize = 4 << 10;

/// Maximum bytes of the place of an item, and of the message: enough for a path of usual length and
/// for what a shard that is parked says ([`PARK_CONTEXT_MAX`](crate::PARK_CONTEXT_MAX)).
pub const FAILURE_TEXT_MAX: usize = 1 << 10;

/// Maximum bytes of the name of a host: the limit of DNS and of Linux.
pub const HOST_NAME_MAX: usize = 255;

/// Maximum bytes of one result block: a page of blocks stays small in memory.
pub const RESULT_BLOCK_MAX: usize = 64 << 10;

/// Fixed bytes of a stored record besides its texts, and its key.
const RECORD_OVERHEAD: usize = 256;

/// Why an item has a failure record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(clippy::exhaustive_enums, reason = "DESIGN Q36: an item fails or cannot be read")]
pub enum FailureKind {
    /// Its handler failed for good; its shard is parked.
    Failed = 0,
    /// It could not be read; the cursor has passed it.
    Unread = 1,
}

impl FailureKind {
    /// Every kind, in the order of its number.
    pub(crate) const ALL: [Self; 2] = [Self::Failed, Self::Unread];

    /// The kind stored under `number`, if there is one.
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a process exits or is killed")]
pub enum ExitCause {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
}

/// A failed or unread item.
///
/// User data of the tenant: it may quote keys and the output of the user's program, and is shown to
/// the same tenant only.
#[derive(Clone, PartialEq, Eq)]
pub struct FailureRecord {
    /// The key of the item; never empty.
    pub key: Box<[u8]>,
    /// The item as the user knows it, such as `urls.txt:2`; empty if only its key is known.
    pub place: Box<str>,
    /// Why there is a record.
    pub kind: FailureKind,
    /// How the command ended, if a command was run.
    pub exit: Option<ExitCause>,
    /// How often it was tried.
    pub tries: u32,
    /// When it failed for good.
    pub at: LogicalTime,
    /// The host of the worker; may be empty.
    pub host: Box<str>,
    /// The process id of the worker; zero if unknown.
    pub pid: u32,
    /// Why it failed.
    pub message: Box<str>,
    /// The end of the command's error output.
    pub stderr: Box<[u8]>,
}

impl FailureRecord {
    /// Cuts every text that is longer than its limit: texts at a character, stderr at its
    /// beginning.
    #[must_use]
    pub fn cut(mut self) -> Self {
        let text = |text: &mut Box<str>, max: usize| {
            // Half a character would make the text invalid UTF-8, which a decoder refuses.
            let end = text.floor_char_boundary(max);
            if end < text.len() {
                *text = text[..end].into();
            }
        };
        text(&mut self.place, FAILURE_TEXT_MAX);
        text(&mut self.message, FAILURE_TEXT_MAX);
        text(&mut self.host, HOST_NAME_MAX);
        // The end is kept, because programs write their error last.
        let excess = self.stderr.len().saturating_sub(FAILURE_STDERR_MAX);
        if excess > 0 {
            self.stderr = self.stderr[excess..].into();
        }
        self
    }

    /// Returns the number of the record in its shard. The same item has the same number, so its
    /// record is replaced and never doubled.
    pub(crate) fn number(&self) -> u64 {
        // A hash, because a key is longer than a number; the record holds the key itself.
        let mut hasher = CanonicalHasher::for_domain(Domain::FAILURE_NUMBER_V1);
        hasher.finalize_64_with(&self.key)
    }

    fn is_bounded(&self) -> bool {
        !self.key.is_empty()
            && self.key.len() <= MAX_KEY_SIZE
            && self.place.len() <= FAILURE_TEXT_MAX
            && self.message.len() <= FAILURE_TEXT_MAX
            && self.host.len() <= HOST_NAME_MAX
            && self.stderr.len() <= FAILURE_STDERR_MAX
    }

    const fn byte_count(&self) -> usize {
        let texts = self.place.len() + self.message.len() + self.host.len();
        self.key.len() + texts + self.stderr.len()
    }
}

/// Lengths and numbers only: the record quotes keys and output.
impl fmt::Debug for FailureRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureRecord")
            .field("kind", &self.kind)
            .field("exit", &self.exit)
            .field("tries", &self.tries)
            .field("byte_count", &self.byte_count())
            .finish_non_exhaustive()
    }
}

/// A block of results of a shard. The content belongs to the caller.
#[derive(Clone, PartialEq, Eq)]
pub struct ResultBlock {
    /// Its number in the shard. Blocks are listed in the order of their numbers.
    pub number: u64,
    /// The content, at most [`RESULT_BLOCK_MAX`] bytes.
    pub content: Box<[u8]>,
}

/// Number and length only: results quote the user's data.
impl fmt::Debug for ResultBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResultBlock({}, {} bytes)", self.number, self.content.len())
    }
}

/// A record that is stored in the commit of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SideRecord {
    /// A failed or unread item.
    Failure(FailureRecord),
    /// A block of results.
    Results(ResultBlock),
}

impl SideRecord {
    /// Returns the kind of the record.
    #[must_use]
    pub const fn kind(&self) -> SideRecordKind {
        match self {
            Self::Failure(_) => SideRecordKind::Failure,
            Self::Results(_) => SideRecordKind::Results,
        }
    }

    /// Returns about how many bytes a store needs for the record.
    #[must_use]
    pub const fn stored_len(&self) -> usize {
        let content = match self {
            Self::Failure(failure) => failure.byte_count(),
            Self::Results(block) => block.content.len(),
        };
        content + RECORD_OVERHEAD
    }

    /// Returns the id of the record in its run.
    pub(crate) fn id(&self, shard: ShardId) -> SideRecordId {
        let number = match self {
            Self::Failure(failure) => failure.number(),
            Self::Results(block) => block.number,
        };
        SideRecordId { group: shard.as_raw(), number }
    }
}

/// The kinds of side records that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SideRecordKind {
    /// [`SideRecord::Failure`].
    Failure,
    /// [`SideRecord::Results`].
    Results,
}

/// The position of a side record among those of its kind and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_structs, reason = "the two numbers of a stored key")]
pub struct SideRecordId {
    /// The shard.
    pub group: u64,
    /// The number in the group.
    pub number: u64,
}

impl SideRecordId {
    /// Returns the shard of a record of `run`.
    #[must_use]
    pub const fn shard(self, run: RunId) -> ShardKey {
        ShardKey::new(run, ShardId::from_raw(self.group))
    }

    /// Returns the last id of the same group, with which a listing continues behind the group.
    #[must_use]
    pub const fn last_of_group(self) -> Self {
        Self { group: self.group, number: u64::MAX }
    }
}

/// A listed side record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "an id and its record")]
pub struct StoredSideRecord {
    /// Its position.
    pub id: SideRecordId,
    /// The record.
    pub record: SideRecord,
}

/// The side records of one operation, within their limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct SideRecords<'a>(&'a [SideRecord]);

impl<'a> SideRecords<'a> {
    /// No records.
    pub const NONE: SideRecords<'static> = SideRecords(&[]);

    /// Checks the limits of one operation.
    ///
    /// # Errors
    ///
    /// [`SideRecordsError`], the first limit that is exceeded.
    pub fn try_new(records: &'a [SideRecord]) -> Result<Self, SideRecordsError> {
        if records.len() > SIDE_RECORDS_MAX {
            return Err(SideRecordsError::TooMany { count: records.len() });
        }
        // With the fixed parts of each record, which the engine counts as well.
        let bytes: usize = records.iter().map(SideRecord::stored_len).sum();
        if bytes > SIDE_RECORD_BYTES_MAX {
            return Err(SideRecordsError::TooLong { bytes });
        }
        let bounded = |record: &SideRecord| match record {
            SideRecord::Failure(failure) => failure.is_bounded(),
            SideRecord::Results(block) => block.content.len() <= RESULT_BLOCK_MAX,
        };
        if !records.iter().all(bounded) {
            return Err(SideRecordsError::RecordTooLong);
        }
        // A transaction writes a key once.
        let id = |record: &SideRecord| (record.kind(), record.id(ShardId::from_raw(0)));
        let doubled = |at: usize| records[..at].iter().any(|other| id(other) == id(&records[at]));
        if (0..records.len()).any(doubled) {
            return Err(SideRecordsError::Doubled);
        }
        Ok(Self(records))
    }

    /// Returns the records.
    #[must_use]
    pub const fn as_slice(&self) -> &'a [SideRecord] {
        self.0
    }
}

/// Side records that no operation may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SideRecordsError {
    /// More than [`SIDE_RECORDS_MAX`].
    #[error("{count} side records exceed the {SIDE_RECORDS_MAX} of one operation")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// More bytes than [`SIDE_RECORD_BYTES_MAX`].
    #[error("side records of {bytes} bytes exceed the {SIDE_RECORD_BYTES_MAX} of one operation")]
    TooLong {
        /// How many.
        bytes: usize,
    },
    /// A text or a block is longer than its limit, or a failure names no item.
    #[error("a text of a side record exceeds its limit")]
    RecordTooLong,
    /// Two records have the same number.
    #[error("two side records have the same number")]
    Doubled,
}
