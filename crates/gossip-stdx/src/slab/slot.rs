//! Handles to what a slab stores, and the ways a slab refuses.

use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

/// Handle to bytes in a [`ByteSlab`](crate::ByteSlab). Copying it copies no bytes.
///
/// A slot is void once it was given to `deallocate` or `replace`, or its slab was cleared; using
/// it again is a bug of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSlot {
    /// Where the block starts; a multiple of the smallest block.
    pub(super) offset: u32,
    /// How many bytes of the block are data; never above `alloc_size`.
    pub(super) len: u32,
    /// How many bytes the block occupies.
    pub(super) alloc_size: u32,
    /// The slab, and the time between two of its `clear`s, that handed out this slot.
    pub(super) owner_id: u32,
}

// Records hold five slots and more, and there may be millions of records.
const _: () = assert!(size_of::<ByteSlot>() == 16);

impl ByteSlot {
    /// Stands for zero bytes in any slab; occupies nothing, and freeing it does nothing.
    pub const EMPTY: Self = Self { offset: 0, len: 0, alloc_size: 0, owner_id: OWNER_NONE };

    /// How many bytes the slot holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the slot holds no bytes, which only [`EMPTY`](Self::EMPTY) does.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn block(&self) -> Block {
        Block { offset: self.offset, size: self.alloc_size }
    }
}

/// How far apart slots lie that were made one after another, to guess where others are.
///
/// Whoever stores strings of about the same lengths in a row gets blocks at equal distances, as
/// long as no block between others is free. Nothing depends on the guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSpacing {
    pub(super) first: u32,
    /// From the start of the first to that of the second; wraps if that lies before.
    pub(super) step: u32,
}

impl SlotSpacing {
    /// The distance from `first` to `second`, which was made next.
    #[must_use]
    pub const fn between(first: ByteSlot, second: ByteSlot) -> Self {
        Self { first: first.offset, step: second.offset.wrapping_sub(first.offset) }
    }

    /// Where the slot begins that is `number` steps behind the first.
    #[inline]
    pub(super) const fn offset(self, number: u32) -> u32 {
        self.first.wrapping_add(self.step.wrapping_mul(number))
    }
}

/// The slab has no block large enough; nothing was changed.
///
/// Free blocks that are too small are not counted as available: only space that was never handed
/// out, or was given back at its edge, serves any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("slab is full: {requested} bytes requested, {available} left beyond all blocks")]
pub struct SlabFull {
    /// The size of the block that was needed, rounded up; `u32::MAX` when that is beyond any slab.
    pub requested: u32,
    /// How many bytes of the slab lie beyond the last live block: never handed out, or given back.
    pub available: u32,
}

/// A slab larger than its offsets can address was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a slab of {requested} bytes was requested; the largest has {}", u32::MAX)]
pub struct SlabTooLarge {
    /// The capacity that was asked for.
    pub requested: usize,
}

/// A run of bytes in a slab. Offset and size are multiples of the smallest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) offset: u32,
    pub(super) size: u32,
}

impl Block {
    pub(super) const fn end(self) -> u32 {
        self.offset + self.size
    }

    pub(super) const fn bytes(self) -> std::ops::Range<usize> {
        self.offset as usize..self.end() as usize
    }

    /// The first `size` bytes, and the rest.
    pub(super) const fn split_at(self, size: u32) -> (Self, Self) {
        let front = Self { offset: self.offset, size };
        (front, Self { offset: front.end(), size: self.size - size })
    }
}

/// The owner of [`ByteSlot::EMPTY`], and of no slab.
pub(super) const OWNER_NONE: u32 = 0;

/// An owner id nobody has. Ids come round again after 2^32 slabs and `clear`s; a slot would have to
/// be kept that long to be mistaken for a current one.
pub(super) fn next_owner_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(OWNER_NONE + 1);
    take_owner_id(&NEXT)
}

/// Takes the next id from `counter`, which passes over the one that no slab has.
pub(super) fn take_owner_id(counter: &AtomicU32) -> u32 {
    loop {
        // Nothing but the number itself is shared, so no ordering is needed.
        let id = counter.fetch_add(1, Ordering::Relaxed);
        if id != OWNER_NONE {
            return id;
        }
    }
}
