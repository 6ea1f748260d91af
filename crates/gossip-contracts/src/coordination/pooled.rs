//! Specs, cursors and spawned ids whose bytes live in a shared [`ByteSlab`].
//!
//! Records hold these instead of boxes, so that a checkpoint allocates nothing and a full slab is
//! an error instead of a growing process. A wrapper is a few offsets: every method takes the slab
//! it came from, and what a reader returns borrows from the slab, not from the wrapper.
//!
//! # Invariants
//! - A failed construction gives back what it had stored, last first; a failed update changes
//!   nothing, neither the wrapper nor the slab's accounting.
//! - Updates that must move store the new bytes before they free the old ones, so they need room
//!   for both. Updates that fit where the old bytes are stay there and cannot fail.
//! - Wrappers are neither `Clone` nor `Drop`: they have no slab to copy in or to give back to.
//!   The owner calls `free`; in debug builds the slab notices when it did not.
//!
//! # Panics
//! Every method panics when the slab is not the one the wrapper came from, or was cleared since.

use std::fmt;

use gossip_stdx::{ByteSlab, ByteSlot, SlabFull};
use thiserror::Error;

use super::byte_len::ByteLen;
use super::{CursorUpdate, MAX_SPAWNED_PER_SHARD, ShardSpecRef};
use crate::identity::ShardId;

/// A shard spec in a slab. It stores what it is given; validating is the caller's business.
#[must_use = "its bytes stay in the slab until `free` is called"]
pub struct PooledShardSpec {
    start: ByteSlot,
    end: ByteSlot,
    metadata: ByteSlot,
}

impl PooledShardSpec {
    /// Stores `spec`.
    ///
    /// # Errors
    /// [`SlabFull`]; the slab is as it was.
    pub fn from_ref(spec: ShardSpecRef<'_>, slab: &mut ByteSlab) -> Result<Self, SlabFull> {
        let [start, end, metadata] = allocate_all([spec.start, spec.end, spec.metadata], slab)?;
        Ok(Self {
            start,
            end,
            metadata,
        })
    }

    /// The spec.
    #[must_use]
    pub fn view<'s>(&self, slab: &'s ByteSlab) -> ShardSpecRef<'s> {
        ShardSpecRef::new(
            slab.get(self.start),
            slab.get(self.end),
            slab.get(self.metadata),
        )
    }

    /// Stores `spec` instead.
    ///
    /// # Errors
    /// [`SlabFull`]; the old spec is still there.
    pub fn replace(&mut self, spec: ShardSpecRef<'_>, slab: &mut ByteSlab) -> Result<(), SlabFull> {
        // Ranges change only by a split; overwriting in place is not worth its cases here.
        let new = Self::from_ref(spec, slab)?;
        std::mem::replace(self, new).free(slab);
        Ok(())
    }

    /// Gives the bytes back.
    pub fn free(self, slab: &mut ByteSlab) {
        deallocate_all([self.start, self.end, self.metadata], slab);
    }
}

impl fmt::Debug for PooledShardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledShardSpec")
            .field("start", &ByteLen(self.start.len()))
            .field("end", &ByteLen(self.end.len()))
            .field("metadata", &ByteLen(self.metadata.len()))
            .finish()
    }
}

/// A cursor in a slab.
#[must_use = "its bytes stay in the slab until `free` is called"]
pub struct PooledCursor {
    /// Empty when there is no key; a present key never is.
    last_key: ByteSlot,
    /// Empty when there is no token; a present token never is, and has a key beside it.
    token: ByteSlot,
}

impl PooledCursor {
    /// No progress yet; takes no room in any slab.
    pub const fn initial() -> Self {
        Self {
            last_key: ByteSlot::EMPTY,
            token: ByteSlot::EMPTY,
        }
    }

    /// Stores `update`.
    ///
    /// # Errors
    /// [`SlabFull`]; the slab is as it was.
    pub fn from_update(update: CursorUpdate<'_>, slab: &mut ByteSlab) -> Result<Self, SlabFull> {
        let [last_key, token] = allocate_all(parts_of(update), slab)?;
        Ok(Self { last_key, token })
    }

    /// The last key done, if any.
    #[must_use]
    pub fn last_key<'s>(&self, slab: &'s ByteSlab) -> Option<&'s [u8]> {
        present(self.last_key, slab)
    }

    /// The connector's resume state, if any.
    #[must_use]
    pub fn token<'s>(&self, slab: &'s ByteSlab) -> Option<&'s [u8]> {
        present(self.token, slab)
    }

    /// The cursor.
    #[must_use]
    pub fn view<'s>(&self, slab: &'s ByteSlab) -> CursorUpdate<'s> {
        match self.last_key(slab) {
            None => CursorUpdate::initial(),
            Some(last_key) => CursorUpdate::new(last_key, slab.get(self.token)),
        }
    }

    /// True when there is no progress.
    #[must_use]
    pub const fn is_initial(&self) -> bool {
        self.last_key.is_empty()
    }

    /// Stores `update` instead. This is the checkpoint's path: a cursor of about the same length
    /// is written over the old one.
    ///
    /// # Errors
    /// [`SlabFull`]; the old cursor is still there.
    pub fn update(
        &mut self,
        update: CursorUpdate<'_>,
        slab: &mut ByteSlab,
    ) -> Result<(), SlabFull> {
        let [last_key, token] = parts_of(update);
        // What can fail goes first and what cannot goes second, so there is nothing to undo.
        if stays_in_place(self.last_key, last_key) {
            self.token = slab.replace(self.token, token)?;
            self.last_key = replace_in_place(self.last_key, last_key, slab);
        } else if stays_in_place(self.token, token) {
            self.last_key = slab.replace(self.last_key, last_key)?;
            self.token = replace_in_place(self.token, token, slab);
        } else {
            let new = Self::from_update(update, slab)?;
            std::mem::replace(self, new).free(slab);
        }
        Ok(())
    }

    /// Gives the bytes back.
    pub fn free(self, slab: &mut ByteSlab) {
        deallocate_all([self.last_key, self.token], slab);
    }
}

impl fmt::Debug for PooledCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledCursor")
            .field("last_key", &ByteLen(self.last_key.len()))
            .field("token", &ByteLen(self.token.len()))
            .finish()
    }
}

/// The ids of the shards a shard has spawned, in the order they were added, in a slab.
#[must_use = "its bytes stay in the slab until `free` is called"]
pub struct PooledSpawned {
    /// [`ID_LEN`] bytes for each id, little-endian; at most [`MAX_SPAWNED_PER_SHARD`] ids.
    ids: ByteSlot,
}

/// Bytes of one stored id.
const ID_LEN: usize = size_of::<u64>();

impl PooledSpawned {
    /// Nothing spawned yet; takes no room in any slab.
    pub const fn empty() -> Self {
        Self {
            ids: ByteSlot::EMPTY,
        }
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
    /// [`PooledSpawnedError::TooMany`], then [`PooledSpawnedError::Full`]; the list is as it was.
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
        // Splits are rare, so one copy of the whole list through the stack is cheap enough.
        let mut bytes = [0; MAX_SPAWNED_PER_SHARD * ID_LEN];
        let (old, new) = bytes[..(current + additional) * ID_LEN].split_at_mut(current * ID_LEN);
        old.copy_from_slice(slab.get(self.ids));
        for (room, id) in new.chunks_exact_mut(ID_LEN).zip(ids) {
            room.copy_from_slice(&id.as_raw().to_le_bytes());
        }
        self.ids = slab.replace(self.ids, &bytes[..(current + additional) * ID_LEN])?;
        Ok(())
    }

    /// The ids, in the order they were added.
    pub fn iter<'s>(
        &self,
        slab: &'s ByteSlab,
    ) -> impl DoubleEndedIterator<Item = ShardId> + ExactSizeIterator + Clone + use<'s> {
        let (ids, _) = slab.get(self.ids).as_chunks::<ID_LEN>();
        ids.iter()
            .map(|id| ShardId::from_raw(u64::from_le_bytes(*id)))
    }

    /// Whether `id` was spawned.
    #[must_use]
    pub fn contains(&self, id: ShardId, slab: &ByteSlab) -> bool {
        self.iter(slab).any(|spawned| spawned == id)
    }

    /// How many were spawned.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ids.len() / ID_LEN
    }

    /// True when nothing was spawned.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Gives the bytes back.
    pub fn free(self, slab: &mut ByteSlab) {
        slab.deallocate(self.ids);
    }
}

impl fmt::Debug for PooledSpawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledSpawned")
            .field("len", &self.len())
            .finish()
    }
}

/// Ids that could not be added.
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
    /// The slab has no room.
    #[error(transparent)]
    Full(#[from] SlabFull),
}

/// Stores all of `parts` or none.
fn allocate_all<const N: usize>(
    parts: [&[u8]; N],
    slab: &mut ByteSlab,
) -> Result<[ByteSlot; N], SlabFull> {
    let mut slots = [ByteSlot::EMPTY; N];
    for (index, part) in parts.into_iter().enumerate() {
        match slab.allocate(part) {
            Ok(slot) => slots[index] = slot,
            Err(full) => {
                deallocate_all(slots, slab);
                return Err(full);
            }
        }
    }
    Ok(slots)
}

/// Frees in reverse, so that the slab's edge moves back over blocks as they were stored. Freeing an
/// empty slot does nothing.
fn deallocate_all<const N: usize>(slots: [ByteSlot; N], slab: &mut ByteSlab) {
    for slot in slots.into_iter().rev() {
        slab.deallocate(slot);
    }
}

/// Key and token of a cursor, empty when absent, as the slab stores them.
fn parts_of(update: CursorUpdate<'_>) -> [&[u8]; 2] {
    [update.last_key(), update.token()].map(Option::unwrap_or_default)
}

fn present(slot: ByteSlot, slab: &ByteSlab) -> Option<&[u8]> {
    (!slot.is_empty()).then(|| slab.get(slot))
}

/// Whether the slab is sure to keep `bytes` in the block of `slot`: blocks are powers of two, and
/// a slot's block is at least that of its own length.
fn stays_in_place(slot: ByteSlot, bytes: &[u8]) -> bool {
    let block_len = |len: usize| match len {
        0 => 0,
        1.. => len.next_power_of_two().max(ByteSlab::MIN_BLOCK),
    };
    block_len(bytes.len()) <= block_len(slot.len())
}

fn replace_in_place(slot: ByteSlot, bytes: &[u8], slab: &mut ByteSlab) -> ByteSlot {
    let replaced = slab.replace(slot, bytes);
    replaced.expect("bytes that fit the block they replace are stored in it")
}
