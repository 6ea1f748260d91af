//! Restores a record whose change panicked.
//!
//! `evolve` asserts before, while and after it changes a record, so that a wrong rule stores
//! nothing. A store changes a decoded copy, which a panic drops. Here the record itself is changed,
//! and the caller may catch the panic and continue, as a worker does: it parks the shard. So the
//! parts that the change may touch are copied first and written back if it panics.
//!
//! The copies are on the stack or in a buffer that is reused: a change without a panic allocates
//! nothing, except for a copy of the key in a pending split request.

use gossip_contracts::coordination::{CursorUpdate, PooledSpawned, ShardSpecRef};
use gossip_contracts::identity::{FenceEpoch, ShardId};

use crate::handoff::{HandoffId, Offer};
use crate::lease::{LeaseHolder, OpLog, OpLogMark, OpSequence};
use crate::pool::{OpLogSlot, RecordPool};
use crate::protocol::ShardChange;
use crate::record::{ParkReason, Rare, ShardRecord, ShardStatus};
use crate::request::PendingRequest;

/// A record that is being changed. Dropped before [`Undo::keep`], it writes the old values back.
pub(super) struct Undo<'a> {
    pub(super) record: &'a mut ShardRecord,
    pub(super) pool: &'a mut RecordPool,
    saved: Saved<'a>,
    is_kept: bool,
}

impl<'a> Undo<'a> {
    /// Copies what `change` may touch; `buffer` receives the bytes.
    // Inlined because most callers pass a constant kind of change, so only its copies remain.
    #[inline(always)]
    pub(super) fn new(
        record: &'a mut ShardRecord,
        pool: &'a mut RecordPool,
        buffer: &'a mut Vec<u8>,
        change: &ShardChange<'_>,
    ) -> Self {
        let saved = Saved {
            fence_epoch: record.fence_epoch,
            lease: record.lease,
            attempts: record.attempts,
            acquire_count: record.acquire_count,
            status: record.status,
            park_reason: record.park_reason,
            rare: record.rare.as_deref().map(SavedRare::of),
            op_log: record.op_log,
            log: SavedLog::of(pool.logs.get(record.op_log), change),
            bytes: SavedBytes::of(record, pool, buffer, change),
        };
        Self { record, pool, saved, is_kept: false }
    }

    /// Keeps the change.
    #[inline(always)]
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Undo<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.is_kept {
            self.saved.restore(self.record, self.pool);
        }
    }
}

/// The values of a record before a change.
struct Saved<'a> {
    fence_epoch: FenceEpoch,
    lease: Option<LeaseHolder>,
    attempts: u32,
    acquire_count: u32,
    status: ShardStatus,
    park_reason: Option<ParkReason>,
    rare: Option<SavedRare>,
    op_log: OpLogSlot,
    log: SavedLog,
    bytes: SavedBytes<'a>,
}

impl Saved<'_> {
    /// Writes the old values back.
    ///
    /// It runs while a panic unwinds, so it must not panic: what cannot be written stays as it is.
    /// Nothing can fail in practice, because the new values are freed before the old ones, which
    /// were there before, are stored.
    #[cold]
    #[inline(never)]
    fn restore(&mut self, record: &mut ShardRecord, pool: &mut RecordPool) {
        record.fence_epoch = self.fence_epoch;
        record.lease = self.lease;
        record.attempts = self.attempts;
        record.acquire_count = self.acquire_count;
        record.status = self.status;
        record.park_reason = self.park_reason;
        self.restore_log(record, pool);
        self.restore_rare(record, pool);
        self.bytes.restore(record, pool);
    }

    fn restore_log(&self, record: &mut ShardRecord, pool: &mut RecordPool) {
        if self.op_log == OpLogSlot::NONE {
            // Without a log before, one that the change allocated for its entry must be freed.
            pool.logs.free(std::mem::replace(&mut record.op_log, OpLogSlot::NONE));
            return;
        }
        match self.log {
            SavedLog::None => {}
            SavedLog::Sequence(sequence) => {
                pool.logs.get_mut(&mut record.op_log).set_sequence_unchecked(sequence);
            }
            SavedLog::Entry(mark) => pool.logs.get_mut(&mut record.op_log).restore(mark),
        }
    }

    fn restore_rare(&mut self, record: &mut ShardRecord, pool: &mut RecordPool) {
        let Some(saved) = self.rare.take() else {
            // The record had no rare part before, so the change has allocated this one.
            if let Some(rare) = record.rare.take() {
                rare.spawned.free(&mut pool.bytes);
            }
            return;
        };
        // No change removes the rare part. An assertion here could abort the process.
        let Some(rare) = record.rare.as_deref_mut() else { return };
        rare.offer = saved.offer;
        rare.request = saved.request;
        rare.last_handoff = saved.last_handoff;
        rare.park_context = saved.park_context;
        // A split only appends ids, so the old ones are the first.
        let ids: Vec<ShardId> = rare.spawned.iter(&pool.bytes).take(saved.spawned_count).collect();
        // Freed first, so that the old ids fit even if the pool was full.
        std::mem::replace(&mut rare.spawned, PooledSpawned::empty()).free(&mut pool.bytes);
        if let Ok(spawned) = PooledSpawned::from_ids(&ids, &mut pool.bytes) {
            rare.spawned = spawned;
        }
    }
}

/// The part of the log that a change overwrites. No more is read: the log lies apart from the
/// record, and each cache line of it may be a miss.
enum SavedLog {
    None,
    /// A grant restarts the sequence.
    Sequence(OpSequence),
    Entry(OpLogMark),
}

impl SavedLog {
    #[inline(always)]
    fn of(log: &OpLog, change: &ShardChange<'_>) -> Self {
        match (change, change.entry()) {
            (ShardChange::Grant { .. }, _) => Self::Sequence(log.sequence()),
            (_, Some(_)) => Self::Entry(log.mark()),
            (_, None) => Self::None,
        }
    }
}

/// The rare parts that a change may touch; the lineage never changes.
struct SavedRare {
    offer: Option<Offer>,
    request: Option<PendingRequest>,
    last_handoff: Option<HandoffId>,
    park_context: Option<Box<str>>,
    spawned_count: usize,
}

impl SavedRare {
    fn of(rare: &Rare) -> Self {
        Self {
            offer: rare.offer,
            request: rare.request.clone(),
            last_handoff: rare.last_handoff,
            park_context: rare.park_context.clone(),
            spawned_count: rare.spawned.len(),
        }
    }
}

/// The bytes that a change overwrites.
enum SavedBytes<'a> {
    None,
    /// Key and token, and the length of the key.
    Cursor(&'a [u8], usize),
    /// Start, end and metadata, and the lengths of the first two.
    Spec(&'a [u8], [usize; 2]),
}

impl<'a> SavedBytes<'a> {
    #[inline(always)]
    fn of(
        record: &ShardRecord,
        pool: &RecordPool,
        buffer: &'a mut Vec<u8>,
        change: &ShardChange<'_>,
    ) -> Self {
        buffer.clear();
        match change {
            ShardChange::Advance { .. }
            | ShardChange::Complete { .. }
            | ShardChange::Offer { cursor: Some(_), .. } => {
                let (bytes, key_len) = record.cursor.packed(&pool.bytes);
                buffer.extend_from_slice(bytes);
                Self::Cursor(buffer, key_len)
            }
            ShardChange::Shrink { .. } => {
                let (bytes, lens) = record.spec.packed(&pool.bytes);
                buffer.extend_from_slice(bytes);
                Self::Spec(buffer, lens)
            }
            ShardChange::Grant { .. }
            | ShardChange::Confirm { .. }
            | ShardChange::Renew { .. }
            | ShardChange::Park { .. }
            | ShardChange::Replace { .. }
            | ShardChange::Unpark { .. }
            | ShardChange::Release { .. }
            | ShardChange::Offer { cursor: None, .. }
            | ShardChange::Withdraw { .. }
            | ShardChange::Request { .. }
            | ShardChange::Revoke { .. } => Self::None,
        }
    }

    fn restore(&self, record: &mut ShardRecord, pool: &mut RecordPool) {
        let written = match *self {
            Self::None => Ok(()),
            Self::Cursor(bytes, key_len) => {
                let (key, token) = bytes.split_at(key_len);
                let cursor = match key {
                    // The initial cursor has no key, and `new` would panic on an empty one.
                    [] => CursorUpdate::initial(),
                    key => CursorUpdate::new(key, token),
                };
                record.cursor.update(cursor, &mut pool.bytes)
            }
            Self::Spec(bytes, [start, end]) => {
                let (start, rest) = bytes.split_at(start);
                let (end, metadata) = rest.split_at(end);
                record.spec.replace(ShardSpecRef::new(start, end, metadata), &mut pool.bytes)
            }
        };
        // Not in release builds: a second panic while the first unwinds aborts the process.
        debug_assert!(written.is_ok(), "bytes that were stored before fit again");
    }
}
