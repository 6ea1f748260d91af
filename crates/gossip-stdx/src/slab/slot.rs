//! Handles to the bytes in a slab, and a slab's errors.

use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

/// Handle to bytes in a [`ByteSlab`](crate::ByteSlab). Copying it copies no bytes.
///
/// A slot becomes invalid when it is passed to `deallocate` or `replace`, or when its slab is
/// cleared; using it afterwards is a bug in the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSlot {
    /// Start of the block; a multiple of the smallest block.
    pub(super) offset: u32,
    /// Number of data bytes in the block; never above `alloc_size`.
    pub(super) len: u32,
    /// Number of bytes the block occupies.
    pub(super) alloc_size: u32,
    /// Identifies the slab, and the period between two of its `clear`s, that created this slot.
    pub(super) owner_id: u32,
}

// Records hold five or more slots, and there may be millions of records.
const _: () = assert!(size_of::<ByteSlot>() == 16);

impl ByteSlot {
    /// Zero bytes in any slab; occupies nothing, and freeing it does nothing.
    pub const EMPTY: Self = Self { offset: 0, len: 0, alloc_size: 0, owner_id: OWNER_NONE };

    /// Returns how many bytes the slot holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the slot holds no bytes, which is true only of [`EMPTY`](Self::EMPTY).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn block(&self) -> Block {
        Block { offset: self.offset, size: self.alloc_size }
    }
}

/// Distance between slots that were allocated one after another, to predict the offsets of others.
///
/// Strings of similar lengths that are stored in sequence get blocks at equal distances, unless
/// free blocks lie between others. Correctness never depends on the prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSpacing {
    pub(super) first: u32,
    /// From the start of the first slot to that of the second; wraps if the second lies before.
    pub(super) step: u32,
}

impl SlotSpacing {
    /// Returns the distance from `first` to `second`, which was allocated next.
    #[must_use]
    pub const fn between(first: ByteSlot, second: ByteSlot) -> Self {
        Self { first: first.offset, step: second.offset.wrapping_sub(first.offset) }
    }

    /// Returns the predicted offset of the slot `number` steps after the first.
    #[inline]
    pub(super) const fn offset(self, number: u32) -> u32 {
        self.first.wrapping_add(self.step.wrapping_mul(number))
    }
}

/// The slab has no block large enough; nothing was changed.
///
/// Free blocks that are too small do not count as available: only virgin space, which was never
/// allocated or was freed at its edge, serves any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("slab is full: {requested} bytes requested, {available} left beyond all blocks")]
pub struct SlabFull {
    /// Size of the needed block, rounded up; `u32::MAX` if that exceeds any slab.
    pub requested: u32,
    /// Number of bytes after the last live block: never allocated, or freed.
    pub available: u32,
}

/// The requested capacity exceeds the largest offset of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a slab of {requested} bytes was requested; the largest has {}", u32::MAX)]
pub struct SlabTooLarge {
    /// The requested capacity.
    pub(crate) requested: usize,
}

/// A range of bytes in a slab. Offset and size are multiples of the smallest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) offset: u32,
    pub(super) size: u32,
}

impl Block {
    pub(super) const fn end(self) -> u32 {
        // A block lies in its slab, whose length is a `u32`. This is computed so often that the
        // check for overflow was a measurable part of a checkpoint.
        debug_assert!(self.offset.checked_add(self.size).is_some(), "a block lies in its slab");
        self.offset.wrapping_add(self.size)
    }

    pub(super) const fn bytes(self) -> std::ops::Range<usize> {
        self.offset as usize..self.end() as usize
    }

    /// Returns the first `size` bytes, and the rest.
    pub(super) const fn split_at(self, size: u32) -> (Self, Self) {
        let front = Self { offset: self.offset, size };
        (front, Self { offset: front.end(), size: self.size - size })
    }
}

/// The owner of [`ByteSlot::EMPTY`], and of no slab.
pub(super) const OWNER_NONE: u32 = 0;

/// Returns an unused owner id. Ids repeat after 2^32 slabs and `clear`s; only a slot kept that long
/// could be mistaken for a current one.
pub(super) fn next_owner_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(OWNER_NONE + 1);
    take_owner_id(&NEXT)
}

/// Takes the next id from `counter`, skipping [`OWNER_NONE`].
pub(super) fn take_owner_id(counter: &AtomicU32) -> u32 {
    loop {
        // Only the number itself is shared, so relaxed ordering is enough.
        let id = counter.fetch_add(1, Ordering::Relaxed);
        if id != OWNER_NONE {
            return id;
        }
    }
}
