//! The side records of a task: what its next checkpoint stores beside the cursor.
//!
//! Items report in any order. What an item leaves behind is kept with its index until the watermark
//! passes it, and then waits for the checkpoint that stores the cursor behind it. So a record is
//! stored exactly once: in the commit of that cursor.
//!
//! # Invariants
//! - The records that wait for a checkpoint fit one operation. The watermark stops before an item
//!   whose records do not fit, until a checkpoint was stored.
//! - While records wait, the cursor in memory is ahead of the stored one, or an item is about to be
//!   parked.

use std::collections::BTreeMap;
use std::fmt;

use gossip_coordination::{
    FailureRecord, RESULT_BLOCK_MAX, ResultBlock, SIDE_RECORD_BYTES_MAX, SIDE_RECORDS_MAX,
    SideRecord, SideRecords,
};

use crate::results::{self, ITEM_RESULTS_MAX};

/// Records from which a checkpoint is due: a busy task then seldom stops for want of room.
const RECORDS_DUE: usize = SIDE_RECORDS_MAX / 2;

/// Bytes from which a checkpoint is due.
const BYTES_DUE: usize = SIDE_RECORD_BYTES_MAX / 4;

/// One place is kept for the failure of an item that is parked behind the others.
const RECORDS_PASSED_MAX: usize = SIDE_RECORDS_MAX - 1;

/// Bytes for the same.
const BYTES_PASSED_MAX: usize = SIDE_RECORD_BYTES_MAX - (16 << 10);

const _: () = assert!(ITEM_RESULTS_MAX.div_ceil(results::CHUNK_MAX) < RECORDS_PASSED_MAX);
const _: () = assert!(ITEM_RESULTS_MAX + RECORDS_PASSED_MAX * (8 << 10) < BYTES_PASSED_MAX);

/// Bytes of results behind an unfinished item from which no further item is started: at most a few
/// items with the longest results, for each job.
const AHEAD_BYTES_MAX: usize = 4 << 20;

/// Maximum bytes of the record of an item that could not be read.
const UNREAD_BYTES: usize = 12 << 10;

/// What an item leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Its results.
    Results(Box<[u8]>),
    /// It could not be read.
    Unread(Box<FailureRecord>),
}

impl Left {
    const fn byte_count(&self) -> usize {
        match self {
            Self::Results(content) => content.len(),
            // Bounded by the number of items of a page.
            Self::Unread(_) => 0,
        }
    }

    /// Returns about how many bytes it holds in memory.
    pub(crate) const fn held_bytes(&self) -> usize {
        match self {
            Self::Results(content) => content.len(),
            Self::Unread(_) => UNREAD_BYTES,
        }
    }
}

/// The records of one task.
#[derive(Default)]
pub(super) struct TaskRecords {
    /// Of settled items that the watermark has not passed, by the index in the page.
    ahead: BTreeMap<usize, Left>,
    /// Bytes of the results among them.
    ahead_bytes: usize,
    /// Of passed items.
    passed: Vec<SideRecord>,
    /// Whether the last of `passed` is a block that takes more entries.
    is_open: bool,
    /// About how many bytes `passed` needs in a store.
    bytes: usize,
    /// Whether the watermark stopped for want of room.
    is_full: bool,
}

impl TaskRecords {
    /// Keeps what the item at `index` left until the watermark passes it.
    pub(super) fn leave(&mut self, index: usize, left: Left) {
        self.ahead_bytes += left.byte_count();
        self.ahead.insert(index, left);
    }

    /// Returns what the item at `index` left.
    pub(super) fn left_by(&self, index: usize) -> Option<&Left> {
        self.ahead.get(&index)
    }

    /// Passes the item at `index`: its records are stored with the next checkpoint. Returns `false`
    /// if they do not fit; the item must not be passed then.
    ///
    /// `ordinal` is the number of keys that the cursor covers before the item. Under one cursor it
    /// never falls, so it orders the results of a shard.
    pub(super) fn pass(&mut self, index: usize, ordinal: u64, key: &[u8]) -> bool {
        if self.ahead.is_empty() {
            return true;
        }
        let Some(left) = self.ahead.get(&index) else { return true };
        let (records, bytes) = match left {
            Left::Results(content) => {
                let entry = results::entry_len(key, content);
                (entry.div_ceil(results::CHUNK_MAX) + 1, entry + (4 << 10))
            }
            Left::Unread(_) => (1, UNREAD_BYTES),
        };
        // Estimated before the entries are made: they hold a copy of the results.
        self.is_full = self.passed.len() + records > RECORDS_PASSED_MAX
            || self.bytes + bytes > BYTES_PASSED_MAX;
        if self.is_full {
            assert!(!self.passed.is_empty(), "the records of one item fit one operation");
            return false;
        }
        self.ahead_bytes -= left.byte_count();
        match self.ahead.remove(&index) {
            Some(Left::Results(content)) => self.add_results(ordinal, key, &content),
            Some(Left::Unread(failure)) => self.add(SideRecord::Failure(*failure)),
            None => {}
        }
        true
    }

    /// Adds a record to those that the next operation stores.
    pub(super) fn add(&mut self, record: SideRecord) {
        self.bytes += record.stored_len();
        self.is_open = false;
        self.passed.push(record);
    }

    fn add_results(&mut self, ordinal: u64, key: &[u8], content: &[u8]) {
        for entry in results::entries(ordinal, key, content) {
            if let Some(SideRecord::Results(block)) =
                self.passed.last_mut().filter(|_| self.is_open)
                && block.content.len() + entry.bytes.len() <= RESULT_BLOCK_MAX
            {
                self.bytes += entry.bytes.len();
                let mut longer = std::mem::take(&mut block.content).into_vec();
                // Small results share a block, since each block is a key of its own in the commit.
                longer.extend_from_slice(&entry.bytes);
                block.content = longer.into();
                continue;
            }
            self.add(SideRecord::Results(ResultBlock {
                number: entry.number,
                content: entry.bytes.into(),
            }));
            self.is_open = true;
        }
    }

    /// Returns the records for an operation. They stay until [`Self::stored`].
    pub(super) fn for_operation(&mut self) -> Vec<SideRecord> {
        // A retry must not carry a block under the same number with more entries: the first try may
        // have been applied.
        self.is_open = false;
        self.passed.clone()
    }

    /// Forgets the records: an operation has stored them.
    pub(super) fn stored(&mut self) {
        self.passed.clear();
        (self.bytes, self.is_full, self.is_open) = (0, false, false);
    }

    /// Returns whether a checkpoint is due, because of many records or because the watermark
    /// waits for it.
    pub(super) const fn is_due(&self) -> bool {
        self.is_full || self.passed.len() >= RECORDS_DUE || self.bytes >= BYTES_DUE
    }

    /// Returns whether no record waits for a checkpoint.
    pub(super) const fn is_stored(&self) -> bool {
        self.passed.is_empty() && !self.is_full
    }

    /// Returns whether another item may be started: results of finished items wait in memory.
    pub(super) const fn has_room_ahead(&self) -> bool {
        self.ahead_bytes < AHEAD_BYTES_MAX
    }

    /// Drops what items of the page left: they are listed again.
    pub(super) fn forget_page(&mut self) {
        self.ahead.clear();
        self.ahead_bytes = 0;
        self.is_full = false;
    }
}

/// Numbers only: the records quote the user's data.
impl fmt::Debug for TaskRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRecords")
            .field("ahead", &self.ahead.len())
            .field("passed", &self.passed.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Returns `records` as those of one operation.
pub(super) fn checked(records: &[SideRecord]) -> SideRecords<'_> {
    SideRecords::try_new(records).expect("a task keeps within the limits of one operation")
}
