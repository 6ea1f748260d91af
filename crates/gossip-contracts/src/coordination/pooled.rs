//! Specs, cursors and spawned ids whose bytes are stored in a shared [`ByteSlab`].
//!
//! Records hold these instead of boxes, so that a checkpoint allocates nothing and a full slab is
//! an error instead of a growing process. A wrapper is a few offsets: every method takes the slab
//! it came from, and the returned slices borrow from the slab, not from the wrapper.
//!
//! # Invariants
//! - The parts of a spec or a cursor are one block, so they are stored together or not at all: a
//!   failed construction or update changes neither the wrapper nor the slab's accounting.
//! - Updates that need a larger block store the new bytes before they free the old ones, so both
//!   must fit. Updates that fit into the old block are done in place and cannot fail.
//! - Wrappers are neither `Clone` nor `Drop`: they hold no reference to their slab.
//!   The owner calls `free`; in debug builds the slab panics if it did not.
//!
//! # Panics
//! Every method panics if the slab is not the one the wrapper came from, or was cleared since.

use std::fmt;

use gossip_stdx::{ByteSlab, ByteSlot, SlabFull, SlotSpacing};
use thiserror::Error;

use super::byte_len::ByteLen;
use super::{CursorUpdate, MAX_KEY_SIZE, MAX_SPAWNED_PER_SHARD, ShardSpecRef};
use crate::identity::ShardId;

/// A shard spec in a slab, stored as given; the caller validates it.
///
/// All of it is one block: reading a record costs one cache miss instead of three, and a failed
/// store has nothing to undo.
#[must_use = "its bytes stay in the slab until `free` is called"]
pub struct PooledShardSpec {
    /// Start, end and metadata, concatenated.
    bytes: ByteSlot,
    /// Length of the start key.
    start_len: u16,
    /// Length of the end key. The two lengths together never exceed that of `bytes`.
    end_len: u16,
}

// There may be millions of records, and the length of every valid key fits in a u16.
const _: () = assert!(size_of::<PooledShardSpec>() == 20 && size_of::<PooledCursor>() == 20);
const _: () = assert!(MAX_KEY_SIZE <= u16::MAX as usize);

impl PooledShardSpec {
    /// Stores `spec`.
    ///
    /// # Errors
    /// [`SlabFull`]; the slab is unchanged. A key far beyond [`MAX_KEY_SIZE`] fits in no slab.
    pub fn from_ref(spec: ShardSpecRef<'_>, slab: &mut ByteSlab) -> Result<Self, SlabFull> {
        let (start_len, end_len) = (key_len(spec.start, slab)?, key_len(spec.end, slab)?);
        let bytes = slab.allocate_parts(&[spec.start, spec.end, spec.metadata])?;
        Ok(Self { bytes, start_len, end_len })
    }

    /// Returns the spec.
    #[inline]
    #[must_use]
    pub fn view<'s>(&self, slab: &'s ByteSlab) -> ShardSpecRef<'s> {
        let (start, rest) = slab.get(self.bytes).split_at(usize::from(self.start_len));
        let (end, metadata) = rest.split_at(usize::from(self.end_len));
        ShardSpecRef::new(start, end, metadata)
    }

    /// Returns start, end and metadata as stored, concatenated, and the lengths of the first two,
    /// so that a spec can be copied at once.
    #[inline]
    #[must_use]
    pub fn packed<'s>(&self, slab: &'s ByteSlab) -> (&'s [u8], [usize; 2]) {
        (slab.get(self.bytes), [usize::from(self.start_len), usize::from(self.end_len)])
    }

    /// Replaces the spec by `spec`.
    ///
    /// # Errors
    /// [`SlabFull`]; the old spec is unchanged.
    pub fn replace(&mut self, spec: ShardSpecRef<'_>, slab: &mut ByteSlab) -> Result<(), SlabFull> {
        let (start_len, end_len) = (key_len(spec.start, slab)?, key_len(spec.end, slab)?);
        let parts = [spec.start, spec.end, spec.metadata];
        let bytes = slab.replace_parts(self.bytes, &parts)?;
        *self = Self { bytes, start_len, end_len };
        Ok(())
    }

    /// Prefetches the bytes before a [`view`](Self::view).
    #[inline]
    pub fn prefetch(&self, slab: &ByteSlab) {
        slab.prefetch(self.bytes);
    }

    /// Prefetches the first of the bytes only.
    #[inline]
    pub fn prefetch_start(&self, slab: &ByteSlab) {
        slab.prefetch_start(self.bytes);
    }

    /// Returns the distance from the bytes of this spec to those of `next`, which was stored after
    /// it.
    #[must_use]
    pub const fn spacing_to(&self, next: &Self) -> SlotSpacing {
        SlotSpacing::between(self.bytes, next.bytes)
    }

    /// Frees the bytes.
    pub fn free(self, slab: &mut ByteSlab) {
        slab.deallocate(self.bytes);
    }
}

impl fmt::Debug for PooledShardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (usize::from(self.start_len), usize::from(self.end_len));
        f.debug_struct("PooledShardSpec")
            .field("start", &ByteLen(start))
            .field("end", &ByteLen(end))
            .field("metadata", &ByteLen(self.bytes.len() - start - end))
            .finish()
    }
}

/// A cursor in a slab.
#[must_use = "its bytes stay in the slab until `free` is called"]
pub struct PooledCursor {
    /// Key and token, concatenated; empty if there is no key.
    bytes: ByteSlot,
    /// Length of the key; the token follows it. Zero only if `bytes` is empty: a present key is not
    /// empty, and a token never occurs without a key.
    key_len: u32,
}

impl PooledCursor {
    /// Returns a cursor without progress; occupies no bytes of any slab.
    pub const fn initial() -> Self {
        Self { bytes: ByteSlot::EMPTY, key_len: 0 }
    }

    /// Stores `update`.
    ///
    /// # Errors
    /// [`SlabFull`]; the slab is unchanged.
    pub fn from_update(update: CursorUpdate<'_>, slab: &mut ByteSlab) -> Result<Self, SlabFull> {
        let mut cursor = Self::initial();
        cursor.update(update, slab)?;
        Ok(cursor)
    }

    /// Returns the last key done, if any.
    #[must_use]
    pub fn last_key<'s>(&self, slab: &'s ByteSlab) -> Option<&'s [u8]> {
        Some(self.parts(slab).0).filter(|key| !key.is_empty())
    }

    /// Returns the connector's resume state, if any.
    #[must_use]
    pub fn token<'s>(&self, slab: &'s ByteSlab) -> Option<&'s [u8]> {
        Some(self.parts(slab).1).filter(|token| !token.is_empty())
    }

    /// Returns the cursor.
    #[inline]
    #[must_use]
    pub fn view<'s>(&self, slab: &'s ByteSlab) -> CursorUpdate<'s> {
        match self.parts(slab) {
            ([], _) => CursorUpdate::initial(),
            (last_key, token) => CursorUpdate::new(last_key, token),
        }
    }

    /// Returns key and token as stored, concatenated, and the length of the key.
    #[inline]
    #[must_use]
    pub fn packed<'s>(&self, slab: &'s ByteSlab) -> (&'s [u8], usize) {
        (slab.get(self.bytes), self.key_len as usize)
    }

    /// Returns whether there is no progress.
    #[must_use]
    pub const fn is_initial(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Replaces the cursor by `update`. This is the hot path of a checkpoint: a cursor of similar
    /// length overwrites the old one.
    ///
    /// # Errors
    /// [`SlabFull`]; the old cursor is unchanged.
    #[inline]
    pub fn update(
        &mut self,
        update: CursorUpdate<'_>,
        slab: &mut ByteSlab,
    ) -> Result<(), SlabFull> {
        let parts = [update.last_key(), update.token()].map(Option::unwrap_or_default);
        self.bytes = slab.replace_parts(self.bytes, &parts)?;
        // The content of a slab is shorter than 4 GiB, and so is a part of it.
        self.key_len = parts[0].len() as u32;
        Ok(())
    }

    /// Prefetches the bytes before a [`view`](Self::view).
    #[inline]
    pub fn prefetch(&self, slab: &ByteSlab) {
        slab.prefetch(self.bytes);
    }

    /// Prefetches the first of the bytes only.
    #[inline]
    pub fn prefetch_start(&self, slab: &ByteSlab) {
        slab.prefetch_start(self.bytes);
    }

    /// Frees the bytes.
    pub fn free(self, slab: &mut ByteSlab) {
        slab.deallocate(self.bytes);
    }

    #[inline]
    fn parts<'s>(&self, slab: &'s ByteSlab) -> (&'s [u8], &'s [u8]) {
        slab.get(self.bytes).split_at(self.key_len as usize)
    }
}

impl fmt::Debug for PooledCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledCursor")
            .field("last_key", &ByteLen(self.key_len as usize))
            .field("token", &ByteLen(self.bytes.len() - self.key_len as usize))
            .finish()
    }
}

/// The ids of the shards a shard has spawned, in the order they were added, in a slab.
#[must_use = "its bytes stay in the slab until `free` is called"]
pub struct PooledSpawned {
    /// [`ID_LEN`] bytes for each id, little-endian; at most [`MAX_SPAWNED_PER_SHARD`] ids.
    ids: ByteSlot,
}

/// Length of one stored id.
const ID_LEN: usize = size_of::<u64>();

/// Number of ids that most lists stay below.
const FEW_SPAWNED: usize = 16;

const _: () = assert!(FEW_SPAWNED <= MAX_SPAWNED_PER_SHARD);

impl PooledSpawned {
    /// Returns an empty list; occupies no bytes of any slab.
    pub const fn empty() -> Self {
        Self { ids: ByteSlot::EMPTY }
    }

    /// Stores `ids`.
    ///
    /// # Errors
    /// As [`Self::extend`].
    pub fn from_ids(ids: &[ShardId], slab: &mut ByteSlab) -> Result<Self, PooledSpawnedError> {
        let mut spawned = Self::empty();
        spawned.extend(ids, slab)?;
        Ok(spawned)
    }

    /// Appends one id.
    ///
    /// # Errors
    /// As [`Self::extend`].
    pub fn push(&mut self, id: ShardId, slab: &mut ByteSlab) -> Result<(), PooledSpawnedError> {
        self.extend(&[id], slab)
    }

    /// Appends `ids`.
    ///
    /// # Errors
    /// [`PooledSpawnedError::TooMany`], then [`PooledSpawnedError::Full`]; the list is unchanged.
    pub fn extend(
        &mut self,
        ids: &[ShardId],
        slab: &mut ByteSlab,
    ) -> Result<(), PooledSpawnedError> {
        let (current, additional) = (self.len(), ids.len());
        if additional > MAX_SPAWNED_PER_SHARD - current {
            return Err(PooledSpawnedError::TooMany {
                current,
                additional,
                max: MAX_SPAWNED_PER_SHARD,
            });
        }
        // Zeroing a buffer for a full list would slow down every decoding of a short one.
        match current + additional {
            0 => Ok(()),
            1..=FEW_SPAWNED => self.extend_through([0; FEW_SPAWNED * ID_LEN], ids, slab),
            _ => self.extend_through([0; MAX_SPAWNED_PER_SHARD * ID_LEN], ids, slab),
        }
    }

    /// Appends `ids` by copying the whole list through a buffer of `N` bytes, which is large
    /// enough.
    fn extend_through<const N: usize>(
        &mut self,
        mut bytes: [u8; N],
        ids: &[ShardId],
        slab: &mut ByteSlab,
    ) -> Result<(), PooledSpawnedError> {
        let (current, additional) = (self.len(), ids.len());
        let (old, new) = bytes[..(current + additional) * ID_LEN].split_at_mut(current * ID_LEN);
        old.copy_from_slice(slab.get(self.ids));
        for (room, id) in new.chunks_exact_mut(ID_LEN).zip(ids) {
            room.copy_from_slice(&id.as_raw().to_le_bytes());
        }
        self.ids = slab.replace(self.ids, &bytes[..(current + additional) * ID_LEN])?;
        Ok(())
    }

    /// Returns the ids in the order they were added.
    pub fn iter<'s>(
        &self,
        slab: &'s ByteSlab,
    ) -> impl DoubleEndedIterator<Item = ShardId> + ExactSizeIterator + Clone + use<'s> {
        let (ids, _) = slab.get(self.ids).as_chunks::<ID_LEN>();
        ids.iter().map(|id| ShardId::from_raw(u64::from_le_bytes(*id)))
    }

    /// Returns whether `id` was spawned.
    #[must_use]
    pub fn contains(&self, id: ShardId, slab: &ByteSlab) -> bool {
        self.iter(slab).any(|spawned| spawned == id)
    }

    /// Returns the number of spawned ids.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ids.len() / ID_LEN
    }

    /// Returns whether no shard was spawned.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Frees the bytes.
    pub fn free(self, slab: &mut ByteSlab) {
        slab.deallocate(self.ids);
    }
}

impl fmt::Debug for PooledSpawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledSpawned").field("len", &self.len()).finish()
    }
}

/// The ids could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PooledSpawnedError {
    /// The list would exceed [`MAX_SPAWNED_PER_SHARD`].
    #[error("{additional} more ids on top of {current} exceed the limit of {max}")]
    TooMany {
        /// Ids in the list.
        current: usize,
        /// Ids to be added.
        additional: usize,
        /// The limit.
        max: usize,
    },
    /// The slab is full.
    #[error(transparent)]
    Full(#[from] SlabFull),
}

/// Returns the length of a key as stored, or the error for a key that fits in no slab.
fn key_len(key: &[u8], slab: &ByteSlab) -> Result<u16, SlabFull> {
    let available = slab.virgin_bytes() as u32;
    u16::try_from(key.len()).map_err(|_| SlabFull { requested: u32::MAX, available })
}
