//! A buffer of fixed size that stores byte strings of any length.
//!
//! The buffer is allocated once. When it is full, [`ByteSlab::allocate`] returns [`SlabFull`] and
//! changes nothing; this limit is the back-pressure of the layers above. A slab never allocates
//! after construction, never moves stored bytes, never shrinks and guarantees no alignment. It is
//! not synchronised.
//!
//! ```text
//!  0                                bump              high_water          capacity
//!  | live | free | live | live | free | live |  used before, now free  |  untouched  |
//!  |------------- blocks -------------------|-------------- virgin space ------------|
//! ```
//!
//! A length is rounded up to a power of two, at least [`MIN_BLOCK`]. A request takes the smallest
//! free block that is large enough (the first of equals) and frees the rest of it. Without such a
//! block it takes the front of the virgin space, and if that is too short it fails with
//! [`SlabFull`]. A freed block merges with its free neighbours immediately, and joins the virgin
//! space if it borders on it. Allocating and freeing take time logarithmic in the number of free
//! blocks, on average over the offsets, plus the copying. A freed block that merges free neighbours
//! into the virgin space also clears their bits, one word for each 1024 bytes; each bit was set by
//! an earlier call, so this is amortised constant time.
//!
//! # Invariants
//!
//! - `bump <= high_water <= capacity`; live, free and virgin bytes add up to the capacity.
//! - Free blocks are disjoint, no two touch, none touches the virgin space.
//! - Offsets and sizes of blocks are multiples of [`MIN_BLOCK`].
//!
//! Debug builds check these (see [`checks`]), fill freed bytes with a pattern, verify the pattern
//! when the bytes are reused, and panic if a slab is dropped with live slots.

mod checks;
mod free_index;
mod granules;
mod slot;

#[cfg(test)]
mod slab_model_tests;
#[cfg(test)]
mod slab_tests;

use std::fmt;

use self::free_index::{FreeIndex, unused_bytes};
use self::slot::{Block, next_owner_id};
pub use self::slot::{ByteSlot, SlabFull, SlabTooLarge, SlotSpacing};
use crate::prefetch::{CACHE_LINE, prefetch, prefetch_whole};

/// Size of the smallest block: a free block has to hold its own node of the index.
const MIN_BLOCK: u32 = 16;

/// Maximum ratio of block size to needed size when shorter data replaces the data of a block.
///
/// Two, so that a key whose length varies around a power of two is always replaced in place.
const REPLACE_WASTE_MAX: u32 = 2;

/// Maximum number of bytes of a slot to prefetch: four cache lines. Beyond that the hardware
/// prefetcher has recognised the pattern.
const PREFETCH_MAX: usize = 4 * CACHE_LINE;

/// Fill byte of freed bytes: a recognisable pattern in debug builds; zero in others, where only
/// [`ByteSlab::zeroize_used`] writes it.
const FREED_BYTE: u8 = if cfg!(debug_assertions) { 0xDE } else { 0 };

// Block offsets and sizes are multiples of MIN_BLOCK, and blocks are split and merged in multiples
// of it, so the remainder of a split is empty or a valid block: no fragment is too small to track.
const _: () = assert!(MIN_BLOCK.is_power_of_two());

/// Byte strings in one buffer of fixed size, allocated once and never grown.
///
/// A string occupies the next power of two of its length, at least [`MIN_BLOCK`](Self::MIN_BLOCK)
/// bytes. An allocation takes the smallest free block that fits (the first of equals), else virgin
/// space; freed neighbours merge immediately. Allocating and freeing take amortised time
/// logarithmic in the number of free blocks, plus the copying. [`clear`](Self::clear) and
/// [`zeroize_used`](Self::zeroize_used) take time proportional to the bytes in use.
///
/// Slots must be returned to the slab that created them: dropping a slot frees nothing. Debug
/// builds panic when a slab is dropped while slots are live.
///
/// ```
/// let mut slab = gossip_stdx::ByteSlab::new(64);
/// let slot = slab.allocate(b"a shard key")?;
/// assert_eq!(slab.get(slot), b"a shard key");
/// let slot = slab.replace(slot, b"another one")?;
/// assert_eq!(slab.get(slot), b"another one");
/// slab.deallocate(slot);
/// # Ok::<(), gossip_stdx::SlabFull>(())
/// ```
pub struct ByteSlab {
    /// Never resized; its length fits in a `u32`.
    bytes: Box<[u8]>,
    /// The free blocks, all below `bump`.
    free: FreeIndex,
    /// End of the last live block; all bytes from here on are virgin space.
    bump: u32,
    /// Highest value of `bump` so far; bytes from here on still hold the zeroes of construction.
    high_water: u32,
    /// Sum of the live blocks' sizes.
    live_bytes: u32,
    /// Number of live blocks.
    live_slots: u32,
    /// Copied into every slot created since the last `clear`; never [`slot::OWNER_NONE`].
    owner_id: u32,
    /// Number of mutations, counted in debug builds to choose when to run the full check.
    mutations: u32,
}

impl ByteSlab {
    /// Minimum number of bytes that a non-empty slot occupies.
    pub const MIN_BLOCK: usize = MIN_BLOCK as usize;

    /// Creates a slab of `capacity` zeroed bytes. Allocates all memory it will ever use: the
    /// capacity and 1/128 of it.
    ///
    /// # Panics
    ///
    /// If `capacity` exceeds `u32::MAX`; [`try_new`](Self::try_new) returns an error instead.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        match Self::try_new(capacity) {
            Ok(slab) => slab,
            Err(too_large) => panic!("{too_large}"),
        }
    }

    /// Creates a slab as [`new`](Self::new) does, without its panic.
    ///
    /// If the system is out of memory the process aborts, as with any allocation in Rust. The
    /// buffer is requested zeroed, so that unused pages are never touched, and the standard library
    /// has no safe fallible request of that kind.
    ///
    /// # Errors
    ///
    /// [`SlabTooLarge`] if `capacity` exceeds `u32::MAX`.
    pub fn try_new(capacity: usize) -> Result<Self, SlabTooLarge> {
        let limit = u32::try_from(capacity).map_err(|_| SlabTooLarge { requested: capacity })?;
        Ok(Self {
            bytes: vec![0; capacity].into_boxed_slice(),
            free: FreeIndex::new(limit),
            bump: 0,
            high_water: 0,
            live_bytes: 0,
            live_slots: 0,
            owner_id: next_owner_id(),
            mutations: 0,
        })
    }

    /// Stores a copy of `bytes`. Zero bytes occupy nothing and always fit.
    ///
    /// # Errors
    ///
    /// [`SlabFull`] if no block is large enough; the slab is unchanged.
    pub fn allocate(&mut self, bytes: &[u8]) -> Result<ByteSlot, SlabFull> {
        self.allocate_parts(&[bytes])
    }

    /// Stores a copy of the concatenation of `parts`, as [`allocate`](Self::allocate) does.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    pub fn allocate_parts(&mut self, parts: &[&[u8]]) -> Result<ByteSlot, SlabFull> {
        let len = total_len(parts);
        if len == 0 {
            return Ok(ByteSlot::EMPTY);
        }
        let block = self.reserve(self.block_size(len)?)?;
        self.live_bytes += block.size;
        self.live_slots += 1;
        let slot = self.store(block, parts);
        self.check();
        Ok(slot)
    }

    /// Replaces the bytes of `slot` by a copy of `bytes` and returns the slot to use from now on.
    ///
    /// Bytes that fit into the slot's block are stored there, so a replacement that is no longer
    /// than the old bytes never fails; a block more than twice as large as needed frees its end.
    /// Otherwise the new bytes are stored before the old ones are freed, so both must fit at once.
    ///
    /// # Errors
    ///
    /// [`SlabFull`] if no block is large enough; `slot` stays valid and keeps its bytes.
    ///
    /// # Panics
    ///
    /// If `slot` is not a live slot of this slab, as for [`deallocate`](Self::deallocate).
    pub fn replace(&mut self, slot: ByteSlot, bytes: &[u8]) -> Result<ByteSlot, SlabFull> {
        self.replace_parts(slot, &[bytes])
    }

    /// Replaces the bytes of `slot` by the concatenation of `parts`, as [`replace`](Self::replace)
    /// does.
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace).
    ///
    /// # Panics
    ///
    /// As [`replace`](Self::replace).
    pub fn replace_parts(&mut self, slot: ByteSlot, parts: &[&[u8]]) -> Result<ByteSlot, SlabFull> {
        self.assert_live(slot);
        let len = total_len(parts);
        if len == 0 {
            self.deallocate(slot);
            return Ok(ByteSlot::EMPTY);
        }
        let size = self.block_size(len)?;
        if size > slot.alloc_size {
            // Allocate before freeing: if the slab is full, the caller's slot is still valid.
            let replacement = self.allocate_parts(parts)?;
            self.deallocate(slot);
            return Ok(replacement);
        }
        let mut block = slot.block();
        if size < block.size / REPLACE_WASTE_MAX {
            // Splitting the block needs no second one, so this works even in a full slab.
            let (kept, excess) = block.split_at(size);
            self.live_bytes -= excess.size;
            self.release(excess);
            block = kept;
        }
        let replaced = self.store(block, parts);
        self.check();
        Ok(replaced)
    }

    /// Frees the slot's block; freeing [`ByteSlot::EMPTY`] does nothing.
    ///
    /// # Panics
    ///
    /// If the slot comes from another slab or predates a [`clear`](Self::clear), and if its bytes
    /// are already free. A slot whose bytes were freed *and allocated again* cannot be
    /// distinguished from the current one.
    pub fn deallocate(&mut self, slot: ByteSlot) {
        self.assert_live(slot);
        if slot.is_empty() {
            return;
        }
        self.live_bytes -= slot.alloc_size;
        self.live_slots -= 1;
        self.release(slot.block());
        self.check();
    }

    /// Removes all stored bytes. Slots created before are invalid from now on.
    ///
    /// Bytes are not erased; see [`zeroize_used`](Self::zeroize_used). Takes time proportional to
    /// 1/128 of the bytes in use.
    pub fn clear(&mut self) {
        if cfg!(debug_assertions) {
            self.bytes[..self.bump as usize].fill(FREED_BYTE);
        }
        self.free.clear(self.bump);
        self.bump = 0;
        self.live_bytes = 0;
        self.live_slots = 0;
        // Without a new owner id, a stale slot would read the bytes stored there next.
        self.owner_id = next_owner_id();
        self.check();
    }

    /// Overwrites all data that was ever stored and is still in the buffer, live or freed. Live
    /// slots stay live and hold zeroes. A [`clear`](Self::clear) usually follows.
    pub fn zeroize_used(&mut self) {
        let mut live_start = 0;
        while let Some(block) = self.free.next_block(&self.bytes, live_start) {
            self.bytes[live_start as usize..block.offset as usize].fill(0);
            self.bytes[unused_bytes(block)].fill(FREED_BYTE);
            live_start = block.end();
        }
        self.bytes[live_start as usize..self.bump as usize].fill(0);
        self.bytes[self.bump as usize..self.high_water as usize].fill(FREED_BYTE);
        // Keeps the compiler from eliding writes that are not read before the memory is freed.
        std::hint::black_box(&mut self.bytes);
        self.check();
    }

    /// Returns the bytes `slot` holds.
    ///
    /// # Panics
    ///
    /// If the slot comes from another slab or predates a [`clear`](Self::clear); in debug builds
    /// also if its bytes are free.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: ByteSlot) -> &[u8] {
        self.assert_owned(slot);
        debug_assert!(self.is_live(slot), "slot was used after it was freed");
        self.data(slot)
    }

    /// Returns the bytes `slot` holds, or `None` if the slot comes from another slab, predates a
    /// [`clear`](Self::clear) or is free.
    #[must_use]
    pub fn try_get(&self, slot: ByteSlot) -> Option<&[u8]> {
        (self.owns(slot) && self.is_live(slot)).then(|| self.data(slot))
    }

    /// Prefetches the bytes `slot` holds, which [`get`](Self::get) will read soon. Only a hint: it
    /// changes nothing, and any slot is accepted.
    #[inline]
    pub fn prefetch(&self, slot: ByteSlot) {
        self.prefetch_from(slot.offset, slot.len);
    }

    /// Prefetches the first cache line of the bytes `slot` holds.
    #[inline]
    pub fn prefetch_start(&self, slot: ByteSlot) {
        self.bytes.get(slot.offset as usize).into_iter().for_each(prefetch);
    }

    /// Prefetches the bytes of the slot `number` steps after the first of `spacing`, assuming that
    /// all slots are spaced as the first two. Also only a hint, for callers that would otherwise
    /// have to load the slot itself first. A wrong guess costs no more than a right one.
    #[inline]
    pub fn prefetch_spaced(&self, spacing: SlotSpacing, number: u32) {
        self.prefetch_from(spacing.offset(number), spacing.step);
    }

    /// Returns the size of the buffer in bytes.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Returns how many bytes the live slots occupy, after rounding.
    #[must_use]
    pub const fn used_bytes(&self) -> usize {
        self.live_bytes as usize
    }

    /// Returns how many bytes lie in free blocks between live ones, excluding virgin space.
    #[must_use]
    pub const fn free_bytes(&self) -> usize {
        self.free.bytes() as usize
    }

    /// Returns how many bytes lie after the last block.
    #[must_use]
    pub const fn virgin_bytes(&self) -> usize {
        self.virgin() as usize
    }

    /// Returns how many slots are live; [`ByteSlot::EMPTY`] does not count.
    #[must_use]
    pub const fn live_slots(&self) -> usize {
        self.live_slots as usize
    }

    /// Returns the size of the block that `len` bytes need.
    fn block_size(&self, len: usize) -> Result<u32, SlabFull> {
        let rounded = u32::try_from(len).ok().and_then(u32::checked_next_power_of_two);
        let available = self.virgin();
        let size = rounded.ok_or(SlabFull { requested: u32::MAX, available })?;
        Ok(size.max(MIN_BLOCK))
    }

    /// Takes `size` bytes from the free blocks or the virgin space. The caller updates the live
    /// counts.
    fn reserve(&mut self, size: u32) -> Result<Block, SlabFull> {
        if let Some(found) = self.free.take_best_fit(&mut self.bytes, size) {
            let (block, rest) = found.split_at(size);
            if rest.size > 0 {
                self.free.insert(&mut self.bytes, rest);
            }
            self.free.unmark(block);
            self.check_untouched(block);
            return Ok(block);
        }
        // Virgin space is the last resort: filling holes first keeps it contiguous for large
        // strings.
        let available = self.virgin();
        if size > available {
            return Err(SlabFull { requested: size, available });
        }
        let block = Block { offset: self.bump, size };
        self.check_untouched(block);
        self.bump = block.end();
        self.high_water = self.high_water.max(self.bump);
        Ok(block)
    }

    /// Adds `block` to the free blocks or the virgin space. The caller has updated the live counts.
    fn release(&mut self, block: Block) {
        if cfg!(debug_assertions) {
            self.bytes[block.bytes()].fill(FREED_BYTE);
        }
        let merged = self.free.take_neighbours(&mut self.bytes, block);
        if merged.end() == self.bump {
            // Virgin space serves any size, and is the space that `SlabFull` counts.
            self.free.unmark(merged);
            self.bump = merged.offset;
        } else {
            // The neighbours are already marked; marking them again could cost more than the block
            // itself.
            self.free.mark(block);
            self.free.insert(&mut self.bytes, merged);
        }
    }

    /// Copies `parts` to the start of `block`, which is live and large enough.
    fn store(&mut self, block: Block, parts: &[&[u8]]) -> ByteSlot {
        let mut room = &mut self.bytes[block.bytes()];
        for part in parts {
            let (front, rest) = room.split_at_mut(part.len());
            front.copy_from_slice(part);
            room = rest;
        }
        ByteSlot {
            offset: block.offset,
            len: block.size - room.len() as u32,
            alloc_size: block.size,
            owner_id: self.owner_id,
        }
    }

    #[inline]
    fn prefetch_from(&self, offset: u32, len: u32) {
        let start = offset as usize;
        let bytes = self.bytes.get(start..start + (len as usize).min(PREFETCH_MAX));
        bytes.into_iter().for_each(prefetch_whole);
    }

    #[inline]
    fn data(&self, slot: ByteSlot) -> &[u8] {
        &self.bytes[slot.offset as usize..][..slot.len()]
    }

    const fn virgin(&self) -> u32 {
        // The capacity was checked to fit at construction.
        self.bytes.len() as u32 - self.bump
    }
}

/// Returns the total length of all parts; saturates, which exceeds any slab.
fn total_len(parts: &[&[u8]]) -> usize {
    parts.iter().fold(0, |len, part| len.saturating_add(part.len()))
}

/// Shows sizes and counts, never contents.
impl fmt::Debug for ByteSlab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteSlab")
            .field("capacity", &self.capacity())
            .field("used_bytes", &self.used_bytes())
            .field("free_bytes", &self.free_bytes())
            .field("virgin_bytes", &self.virgin_bytes())
            .field("live_slots", &self.live_slots())
            .finish_non_exhaustive()
    }
}

impl Drop for ByteSlab {
    /// Panics in debug builds if slots are live: their holders did not free them.
    fn drop(&mut self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            assert_eq!(self.live_slots, 0, "a slab was dropped while slots were live");
        }
    }
}
