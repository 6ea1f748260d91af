//! Caller-owned buffers that acquire and accept write into, and the views they give back.
//!
//! A worker makes one [`AcquireScratch`] and uses it for every shard, so acquiring allocates
//! nothing. The view borrows the scratch: the borrow checker ends it before the next acquire.

use std::fmt;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPAWNED_PER_SHARD,
    MAX_TOKEN_SIZE, ShardSpecRef,
};
use gossip_contracts::identity::ShardId;
use gossip_stdx::InlineVec;

use crate::lease::Lease;
use crate::outcome::CapacityHint;
use crate::record::{ShardStatus, ShardView};

/// Up to `N` bytes, inline.
#[derive(Clone)]
pub struct FixedBuf<const N: usize> {
    bytes: [u8; N],
    /// At most `N`; bytes behind it mean nothing.
    len: usize,
}

impl<const N: usize> FixedBuf<N> {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// A buffer that holds `bytes`.
    ///
    /// # Panics
    ///
    /// With `oversized_msg` if `bytes` is longer than `N`.
    #[must_use]
    pub fn from_slice(bytes: &[u8], oversized_msg: &str) -> Self {
        let mut buffer = Self::new();
        buffer.write(bytes, oversized_msg);
        buffer
    }

    /// Replaces the contents.
    ///
    /// # Panics
    ///
    /// With `oversized_msg` if `bytes` is longer than `N`. Stored fields were checked against the
    /// same limits on their way in, so this is a broken record and never bad input.
    #[inline]
    pub fn write(&mut self, bytes: &[u8], oversized_msg: &str) {
        assert!(bytes.len() <= N, "{oversized_msg}");
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.len = bytes.len();
    }

    /// Empties the buffer without wiping it.
    pub const fn reset(&mut self) {
        self.len = 0;
    }

    /// The contents.
    #[must_use]
    #[inline]
    pub fn read(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether there is anything in it.
    #[must_use]
    pub const fn has_data(&self) -> bool {
        self.len > 0
    }
}

impl<const N: usize> Default for FixedBuf<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> PartialEq for FixedBuf<N> {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl<const N: usize> Eq for FixedBuf<N> {}

/// Shows the length only: the contents are keys (DESIGN Q26).
impl<const N: usize> fmt::Debug for FixedBuf<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FixedBuf<{} of {N} bytes>", self.len)
    }
}

/// Room for everything of variable size in a shard's snapshot (about 52 KiB; keep it in a box).
#[derive(Clone, Debug, Default)]
pub struct AcquireScratch {
    spec_start: FixedBuf<MAX_KEY_SIZE>,
    spec_end: FixedBuf<MAX_KEY_SIZE>,
    spec_metadata: FixedBuf<MAX_METADATA_SIZE>,
    cursor_last_key: FixedBuf<MAX_KEY_SIZE>,
    cursor_token: FixedBuf<MAX_TOKEN_SIZE>,
    spawned: InlineVec<ShardId, MAX_SPAWNED_PER_SHARD>,
}

impl AcquireScratch {
    /// An empty scratch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the last snapshot.
    pub fn reset(&mut self) {
        self.spec_start.reset();
        self.spec_end.reset();
        self.spec_metadata.reset();
        self.cursor_last_key.reset();
        self.cursor_token.reset();
        self.spawned.clear();
    }

    /// Copies a range and its metadata in.
    #[inline]
    pub fn write_spec(&mut self, start: &[u8], end: &[u8], metadata: &[u8]) {
        self.spec_start.write(start, "a stored start key is within bounds");
        self.spec_end.write(end, "a stored end key is within bounds");
        self.spec_metadata.write(metadata, "stored metadata is within bounds");
    }

    /// Copies a cursor in.
    #[inline]
    pub fn write_cursor(&mut self, last_key: Option<&[u8]>, token: Option<&[u8]>) {
        let key = last_key.unwrap_or_default();
        self.cursor_last_key.write(key, "a stored cursor key is within bounds");
        let token = token.unwrap_or_default();
        self.cursor_token.write(token, "a stored cursor token is within bounds");
    }

    /// Copies the ids of the shards cut from this one in.
    pub fn write_spawned_iter(&mut self, ids: impl IntoIterator<Item = ShardId>) {
        self.spawned.clear();
        self.spawned.extend(ids);
    }

    /// Copies everything a snapshot shows of `shard` in, and shows it.
    #[inline]
    pub fn write_shard(&mut self, shard: ShardView<'_>) -> ShardSnapshotView<'_> {
        let spec = shard.spec();
        self.write_spec(spec.start, spec.end, spec.metadata);
        let cursor = shard.cursor();
        self.write_cursor(cursor.last_key(), cursor.token());
        let record = shard.record();
        self.spawned.clear();
        if record.spawned_count() > 0 {
            self.write_spawned_iter(shard.spawned());
        }
        self.view(record.status(), record.cursor_semantics(), record.parent())
    }

    /// Shows what was written.
    #[must_use]
    #[inline]
    pub fn view(
        &self,
        status: ShardStatus,
        cursor_semantics: CursorSemantics,
        parent: Option<ShardId>,
    ) -> ShardSnapshotView<'_> {
        let last_key = self.cursor_last_key.has_data().then(|| self.cursor_last_key.read());
        let token = self.cursor_token.has_data().then(|| self.cursor_token.read());
        let cursor = CursorUpdate::try_from_parts(last_key, token)
            .expect("a stored cursor was checked on its way in");
        let spec = ShardSpecRef::new(
            self.spec_start.read(),
            self.spec_end.read(),
            self.spec_metadata.read(),
        );
        ShardSnapshotView::new(status, spec, cursor, cursor_semantics, parent, &self.spawned)
    }
}

/// A shard as it was when it was acquired; borrows an [`AcquireScratch`].
#[derive(Clone, Copy, Debug)]
pub struct ShardSnapshotView<'a> {
    status: ShardStatus,
    spec: ShardSpecRef<'a>,
    cursor: CursorUpdate<'a>,
    cursor_semantics: CursorSemantics,
    parent: Option<ShardId>,
    spawned: &'a [ShardId],
}

impl<'a> ShardSnapshotView<'a> {
    pub(crate) const fn new(
        status: ShardStatus,
        spec: ShardSpecRef<'a>,
        cursor: CursorUpdate<'a>,
        cursor_semantics: CursorSemantics,
        parent: Option<ShardId>,
        spawned: &'a [ShardId],
    ) -> Self {
        Self { status, spec, cursor, cursor_semantics, parent, spawned }
    }

    /// Where the shard is in its life.
    #[must_use]
    pub const fn status(&self) -> ShardStatus {
        self.status
    }

    /// Its range and metadata.
    #[must_use]
    pub const fn spec(&self) -> ShardSpecRef<'a> {
        self.spec
    }

    /// Where to go on.
    #[must_use]
    pub const fn cursor(&self) -> CursorUpdate<'a> {
        self.cursor
    }

    /// What an advance of the cursor promises.
    #[must_use]
    pub const fn cursor_semantics(&self) -> CursorSemantics {
        self.cursor_semantics
    }

    /// The shard it was cut from, if any.
    #[must_use]
    pub const fn parent(&self) -> Option<ShardId> {
        self.parent
    }

    /// The shards cut from it, oldest first.
    #[must_use]
    pub const fn spawned(&self) -> &'a [ShardId] {
        self.spawned
    }
}

/// What acquire and accept give back.
#[derive(Debug)]
pub struct AcquireResultView<'a> {
    /// The capability to change the shard.
    pub lease: Lease,
    /// The shard as it was when it was acquired.
    pub snapshot: ShardSnapshotView<'a>,
    /// How much more work is waiting.
    pub capacity: CapacityHint,
    /// Added (DESIGN Q13): grants since the last progress. An acquire counts; an accepted move
    /// does not.
    pub attempts: u32,
}
