//! Where the variable-size parts of shard records live.
//!
//! A [`ShardRecord`](crate::ShardRecord) is small and of fixed size; its keys, metadata and cursor
//! are blocks of one [`ByteSlab`], and its operation log is a slot of [`OpLogPool`], taken when the
//! first operation is remembered. A million idle shards therefore pay for no log at all, and a
//! change of a record in the steady state touches no heap.
//!
//! The slab has a hard ceiling, which is the back-pressure of the error model. The log pool grows,
//! but never beyond one log for each shard, and the number of shards is limited elsewhere.

use std::fmt;

use gossip_stdx::{ByteSlab, SlabTooLarge, prefetch};

use crate::lease::OpLog;

/// Logs are allocated this many at a time, so that growing never moves one (576 KiB a chunk, whose
/// pages are touched when a log is first used). Large, so that the list of chunks of a million logs
/// stays in the nearest cache.
const LOGS_PER_CHUNK: usize = 1 << 10;

/// Bytes and operation logs of a set of records.
pub struct RecordPool {
    pub(crate) bytes: ByteSlab,
    pub(crate) logs: OpLogPool,
}

impl RecordPool {
    /// A pool whose records may hold up to `byte_capacity` bytes together.
    ///
    /// # Panics
    ///
    /// If `byte_capacity` exceeds what a [`ByteSlab`] can address;
    /// [`try_new`](Self::try_new) refuses instead.
    #[must_use]
    pub fn new(byte_capacity: usize) -> Self {
        Self::try_new(byte_capacity).expect("a slab that can be addressed")
    }

    /// A pool whose records may hold up to `byte_capacity` bytes together.
    ///
    /// # Errors
    ///
    /// [`SlabTooLarge`] if a [`ByteSlab`] cannot address so many.
    pub fn try_new(byte_capacity: usize) -> Result<Self, SlabTooLarge> {
        Ok(Self { bytes: ByteSlab::try_new(byte_capacity)?, logs: OpLogPool::default() })
    }

    /// Drops every record of the pool; their slots become invalid.
    pub(crate) fn discard(&mut self) {
        self.bytes.clear();
        self.logs = OpLogPool::default();
    }

    /// The slab that holds keys, metadata and cursors.
    #[must_use]
    pub const fn bytes(&self) -> &ByteSlab {
        &self.bytes
    }

    /// Bytes of heap held by the pool, the slab included.
    #[must_use]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.logs.chunks.len() * LOGS_PER_CHUNK * size_of::<OpLog>()
    }
}

/// Sizes only: the pool holds the logs of every tenant.
impl fmt::Debug for RecordPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordPool").field("heap_bytes", &self.heap_bytes()).finish_non_exhaustive()
    }
}

/// A record's place in an [`OpLogPool`]; none until the first operation is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpLogSlot(u32);

impl OpLogSlot {
    /// A record that remembers nothing yet.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// Operation logs in chunks that never move.
#[derive(Debug, Default)]
pub(crate) struct OpLogPool {
    /// Every chunk but the last is full; none ever grows beyond its first capacity.
    chunks: Vec<Vec<OpLog>>,
    /// Slots given back; reused before the pool grows.
    free: Vec<u32>,
    /// How many slots were ever handed out.
    used: u32,
}

impl OpLogPool {
    /// The log in `slot`, which is empty for [`OpLogSlot::NONE`].
    pub(crate) fn get(&self, slot: OpLogSlot) -> &OpLog {
        static NOTHING: OpLog = OpLog::new();
        if slot == OpLogSlot::NONE {
            return &NOTHING;
        }
        let (chunk, index) = place(slot);
        &self.chunks[chunk][index]
    }

    /// Asks the processor for what looking for an operation reads first.
    pub(crate) fn prefetch(&self, slot: OpLogSlot) {
        if slot != OpLogSlot::NONE {
            prefetch(self.get(slot));
        }
    }

    /// The log in `slot` for writing; a record without one gets one first.
    pub(crate) fn get_mut(&mut self, slot: &mut OpLogSlot) -> &mut OpLog {
        if *slot == OpLogSlot::NONE {
            *slot = self.take();
        }
        let (chunk, index) = place(*slot);
        &mut self.chunks[chunk][index]
    }

    /// Restarts the sequence of the log in `slot`; a record without a log has none.
    #[inline]
    pub(crate) fn restart_sequence(&mut self, slot: OpLogSlot) {
        if slot != OpLogSlot::NONE {
            let (chunk, index) = place(slot);
            self.chunks[chunk][index].restart_sequence();
        }
    }

    /// Gives the log in `slot` back.
    pub(crate) fn free(&mut self, slot: OpLogSlot) {
        if slot == OpLogSlot::NONE {
            return;
        }
        let (chunk, index) = place(slot);
        // Cleared when it is given back, so that the next record never sees entries of another
        // tenant.
        self.chunks[chunk][index].clear();
        self.free.push(slot.0);
    }

    fn take(&mut self) -> OpLogSlot {
        // Slots that were given back first, so the pool follows the largest number of records at
        // one time.
        if let Some(slot) = self.free.pop() {
            return OpLogSlot(slot);
        }
        let slot = OpLogSlot(self.used);
        assert!(slot != OpLogSlot::NONE, "fewer logs than the limits on shards allow");
        let (chunk, _) = place(slot);
        if chunk == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(LOGS_PER_CHUNK));
        }
        self.chunks[chunk].push(OpLog::new());
        self.used += 1;
        slot
    }
}

const fn place(slot: OpLogSlot) -> (usize, usize) {
    let slot = slot.0 as usize;
    (slot / LOGS_PER_CHUNK, slot % LOGS_PER_CHUNK)
}
