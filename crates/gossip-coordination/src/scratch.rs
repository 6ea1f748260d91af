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
///
/// The length comes first, so that a short content is in the same cache line.
#[derive(Clone)]
#[repr(C)]
pub struct FixedBuf<const N: usize> {
    /// At most `N`; bytes behind it mean nothing.
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> FixedBuf<N> {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { len: 0, bytes: [0; N] }
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
    /// same limits when they were stored, so this is a broken record and never bad input.
    #[inline]
    pub fn write(&mut self, bytes: &[u8], oversized_msg: &str) {
        self.len = 0;
        self.append(bytes, oversized_msg);
    }

    /// Writes behind the contents.
    #[inline]
    fn append(&mut self, bytes: &[u8], oversized_msg: &str) {
        // Checked before the copy, so that the message says which field is too long.
        let room = self.bytes[self.len..].get_mut(..bytes.len());
        room.expect(oversized_msg).copy_from_slice(bytes);
        self.len += bytes.len();
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

/// Bytes of the largest range with its metadata.
const MAX_SPEC_SIZE: usize = 2 * MAX_KEY_SIZE + MAX_METADATA_SIZE;
/// Bytes of the largest cursor.
const MAX_CURSOR_SIZE: usize = MAX_KEY_SIZE + MAX_TOKEN_SIZE;

/// Buffers for everything of variable size in a shard's snapshot (about 52 KiB; keep it in a box).
///
/// Range and cursor are packed as records keep them, so that each is one copy.
#[derive(Clone, Debug, Default)]
pub struct AcquireScratch {
    /// Lengths of start and end, which are together at most that of `spec`.
    bounds_len: [usize; 2],
    /// Length of the cursor's key, at most that of `cursor`; zero only if that is empty.
    cursor_key_len: usize,
    /// Start, end and metadata, one behind the other.
    spec: FixedBuf<MAX_SPEC_SIZE>,
    /// Key and token, one behind the other.
    cursor: FixedBuf<MAX_CURSOR_SIZE>,
    spawned: InlineVec<ShardId, MAX_SPAWNED_PER_SHARD>,
}

/// A stored field was checked against the same limits when it was stored.
const SPEC_FITS: &str = "a stored range is within bounds";
const CURSOR_FITS: &str = "a stored cursor is within bounds";

impl AcquireScratch {
    /// An empty scratch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the last snapshot.
    pub fn reset(&mut self) {
        self.write_spec(&[], &[], &[]);
        self.write_cursor(None, None);
        self.spawned.clear();
    }

    /// Copies a range and its metadata in.
    ///
    /// # Panics
    ///
    /// If they do not fit: stored ones were checked when they were stored.
    pub fn write_spec(&mut self, start: &[u8], end: &[u8], metadata: &[u8]) {
        self.spec.write(start, SPEC_FITS);
        self.spec.append(end, SPEC_FITS);
        self.spec.append(metadata, SPEC_FITS);
        self.bounds_len = [start.len(), end.len()];
    }

    /// Copies a cursor in.
    ///
    /// # Panics
    ///
    /// As [`Self::write_spec`].
    pub fn write_cursor(&mut self, last_key: Option<&[u8]>, token: Option<&[u8]>) {
        let last_key = last_key.unwrap_or_default();
        self.cursor.write(last_key, CURSOR_FITS);
        self.cursor.append(token.unwrap_or_default(), CURSOR_FITS);
        self.cursor_key_len = last_key.len();
    }

    /// Copies the ids of the shards cut from this one in.
    pub fn write_spawned_iter(&mut self, ids: impl IntoIterator<Item = ShardId>) {
        self.spawned.clear();
        self.spawned.extend(ids);
    }

    /// Copies everything a snapshot shows of `shard` in, and shows it.
    // Inlined into its caller: the view is large, and is then built where it is returned.
    #[inline(always)]
    pub(crate) fn write_shard(&mut self, shard: ShardView<'_>) -> ShardSnapshotView<'_> {
        // The record holds its fields in the order of this buffer, so each is one copy.
        let (spec, bounds_len) = shard.packed_spec();
        self.spec.write(spec, SPEC_FITS);
        self.bounds_len = bounds_len;
        let (cursor, key_len) = shard.packed_cursor();
        self.cursor.write(cursor, CURSOR_FITS);
        self.cursor_key_len = key_len;
        let record = shard.record();
        // Most shards have no children, so the list is usually not touched.
        if record.spawned_count() > 0 || !self.spawned.is_empty() {
            self.write_spawned_iter(shard.spawned());
        }
        self.view(record.status(), record.cursor_semantics(), record.parent())
    }

    /// Returns a view of the contents.
    #[must_use]
    #[inline(always)]
    pub fn view(
        &self,
        status: ShardStatus,
        cursor_semantics: CursorSemantics,
        parent: Option<ShardId>,
    ) -> ShardSnapshotView<'_> {
        let (start, rest) = self.spec.read().split_at(self.bounds_len[0]);
        let (end, metadata) = rest.split_at(self.bounds_len[1]);
        let spec = ShardSpecRef::new(start, end, metadata);
        let cursor = self.cursor_view();
        ShardSnapshotView::new(status, spec, cursor, cursor_semantics, parent, &self.spawned)
    }

    #[inline]
    fn cursor_view(&self) -> CursorUpdate<'_> {
        let (last_key, token) = self.cursor.read().split_at(self.cursor_key_len);
        // A stored key is never empty, so no bytes mean that there is no key.
        let last_key = Some(last_key).filter(|key| !key.is_empty());
        let token = Some(token).filter(|token| !token.is_empty());
        CursorUpdate::try_from_parts(last_key, token)
            .expect("a stored cursor was checked when it was stored")
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
    pub(crate) const fn status(&self) -> ShardStatus {
        self.status
    }

    /// Its range and metadata.
    #[must_use]
    pub const fn spec(&self) -> ShardSpecRef<'a> {
        self.spec
    }

    /// The cursor to resume from.
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
    /// The amount of claimable work left.
    pub capacity: CapacityHint,
    /// Added (DESIGN Q13): grants since the last progress. An acquire counts; an accepted handoff
    /// does not.
    pub attempts: u32,
}
