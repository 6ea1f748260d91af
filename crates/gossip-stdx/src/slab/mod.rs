//! A fixed buffer that stores byte strings of any length and never asks for more memory.
//!
//! The buffer is allocated once; when it is full, [`ByteSlab::allocate`] says so ([`SlabFull`]) and
//! changes nothing. That ceiling is the back-pressure of everything built on it. A slab never
//! allocates after construction, never moves what it stores, never shrinks, and makes no promise
//! about alignment. It is not synchronised.
//!
//! ```text
//!  0                                bump              high_water          capacity
//!  | live | free | live | live | free | live |  used once, given back  |  untouched  |
//!  |------------- blocks -------------------|-------------- virgin space ------------|
//! ```
//!
//! A length is rounded up to a power of two, at least [`MIN_BLOCK`]. A request takes the smallest
//! free block that is large enough (the first of equals) and gives the rest back; if there is none,
//! the front of the virgin space; if that is too short, [`SlabFull`]. A freed block merges with its
//! free neighbours at once, and joins the virgin space if it borders on it.
//! Storing and freeing take time logarithmic in the number of free blocks, on average over the
//! offsets, plus the copying. A freed block that carries free neighbours into the virgin space also
//! pays for their bits, one word for each 1024 bytes; as each bit was set by an earlier call, that
//! is constant when spread over the calls.
//!
//! # Invariants
//!
//! - `bump <= high_water <= capacity`; live, free and virgin bytes add up to the capacity.
//! - Free blocks are disjoint, no two touch, none touches the virgin space.
//! - Offsets and sizes of blocks are multiples of [`MIN_BLOCK`].
//!
//! Debug builds check them (see [`checks`]), fill freed bytes with a pattern, verify the pattern
//! when the bytes are used again, and refuse to drop a slab with live slots.

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

/// The smallest block: a free one has to hold its own entry in the index of free blocks.
const MIN_BLOCK: u32 = 16;

/// How many times larger than needed a block may stay when its data is replaced by shorter data.
///
/// Two lets a key that hovers around a power of two be replaced in place for ever.
const REPLACE_WASTE_MAX: u32 = 2;

/// How many bytes of a slot are asked for ahead: four lines, beyond which the processor has seen
/// the pattern itself.
const PREFETCH_MAX: usize = 4 * CACHE_LINE;

/// What freed bytes are overwritten with: a pattern to recognise in debug builds, and zero when
/// [`ByteSlab::zeroize_used`] asks for it in others.
const FREED_BYTE: u8 = if cfg!(debug_assertions) { 0xDE } else { 0 };

// Blocks start as multiples of MIN_BLOCK and are cut and merged in multiples of it, so what remains
// of a block is either nothing or a block: no caller ever has to absorb a splinter.
const _: () = assert!(MIN_BLOCK.is_power_of_two());

/// Byte strings in one buffer of fixed size, allocated once and never grown.
///
/// A string occupies the next power of two of its length, at least
/// [`MIN_BLOCK`](Self::MIN_BLOCK) bytes. Storing takes the smallest free block that fits, the
/// first of equals, and else virgin space; freed neighbours merge at once. Storing and freeing take
/// amortised time logarithmic in the number of free blocks, plus the copying;
/// [`clear`](Self::clear) and [`zeroize_used`](Self::zeroize_used) take time proportional to the
/// bytes in use.
///
/// Slots must be given back to the slab that made them: nothing frees them by itself. Debug builds
/// panic when a slab is dropped while slots are live.
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
    /// Never resized; its length fits in a u32.
    bytes: Box<[u8]>,
    /// The free blocks, all below `bump`.
    free: FreeIndex,
    /// End of the last live block; everything from here on is virgin space.
    bump: u32,
    /// The highest `bump` ever; bytes from here on are still the zeroes of construction.
    high_water: u32,
    /// Sum of the live blocks' sizes.
    live_bytes: u32,
    /// Number of live blocks.
    live_slots: u32,
    /// Carried by every slot handed out since the last `clear`; never [`OWNER_NONE`].
    owner_id: u32,
    /// Changes so far, counted in debug builds to choose when to check everything.
    mutations: u32,
}

impl ByteSlab {
    /// The fewest bytes a slot that is not empty occupies.
    pub const MIN_BLOCK: usize = MIN_BLOCK as usize;

    /// A slab of `capacity` bytes, zeroed. All memory it will ever use is allocated here: the
    /// capacity and 1/128 of it.
    ///
    /// # Panics
    ///
    /// When `capacity` exceeds `u32::MAX`; [`try_new`](Self::try_new) reports that instead.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        match Self::try_new(capacity) {
            Ok(slab) => slab,
            Err(too_large) => panic!("{too_large}"),
        }
    }

    /// As [`new`](Self::new), with an error where that panics.
    ///
    /// Memory that the system does not have ends the process here, as anywhere in Rust: the buffer
    /// is asked for already zeroed, so that pages nobody uses are never touched, and the standard
    /// library has no safe request of that kind that may fail.
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
    pub fn allocate(&mut self, bytes: &[u8]) -> Result<ByteSlot, SlabFull> {
        self.allocate_parts(&[bytes])
    }

    /// Stores a copy of `parts`, one behind the other, as [`allocate`](Self::allocate) would store
    /// their concatenation.
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

    /// Stores a copy of `bytes` instead of what `slot` holds, and returns the slot to use from now
    /// on. On an error `slot` is still good and holds what it held.
    ///
    /// Bytes that fit into the slot's block stay there, so replacing by something no longer never
    /// fails; a block more than twice as large as needed gives its end back.
    /// Otherwise the new bytes are stored before the old ones are freed: there must be room for
    /// both.
    ///
    /// # Panics
    ///
    /// When `slot` is not a live slot of this slab, as [`deallocate`](Self::deallocate) does.
    pub fn replace(&mut self, slot: ByteSlot, bytes: &[u8]) -> Result<ByteSlot, SlabFull> {
        self.replace_parts(slot, &[bytes])
    }

    /// Stores a copy of `parts`, one behind the other, as [`replace`](Self::replace) would store
    /// their concatenation.
    ///
    /// # Panics
    ///
    /// As [`replace`](Self::replace) does.
    pub fn replace_parts(&mut self, slot: ByteSlot, parts: &[&[u8]]) -> Result<ByteSlot, SlabFull> {
        self.assert_live(slot);
        let len = total_len(parts);
        if len == 0 {
            self.deallocate(slot);
            return Ok(ByteSlot::EMPTY);
        }
        let size = self.block_size(len)?;
        if size > slot.alloc_size {
            // New before old: when there is no room, the caller still has what it had.
            let replacement = self.allocate_parts(parts)?;
            self.deallocate(slot);
            return Ok(replacement);
        }
        let mut block = slot.block();
        if size < block.size / REPLACE_WASTE_MAX {
            // Cutting the block needs no second one, so it works even in a full slab.
            let (kept, excess) = block.split_at(size);
            self.live_bytes -= excess.size;
            self.release(excess);
            block = kept;
        }
        let replaced = self.store(block, parts);
        self.check();
        Ok(replaced)
    }

    /// Gives the slot's block back; freeing [`ByteSlot::EMPTY`] does nothing.
    ///
    /// # Panics
    ///
    /// When the slot comes from another slab or from before a [`clear`](Self::clear), and when its
    /// bytes are free already. A slot whose bytes were freed *and handed out again* cannot be told
    /// from the current one.
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

    /// Forgets everything stored. Slots handed out before are refused from now on.
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
        // A stale slot would otherwise read whatever is stored there next.
        self.owner_id = next_owner_id();
        self.check();
    }

    /// Overwrites all data that was ever stored and is still in the buffer, live or freed. Live
    /// slots stay live and hold zeroes; usually [`clear`](Self::clear) follows.
    pub fn zeroize_used(&mut self) {
        let mut live_start = 0;
        while let Some(block) = self.free.next_block(&self.bytes, live_start) {
            self.bytes[live_start as usize..block.offset as usize].fill(0);
            self.bytes[unused_bytes(block)].fill(FREED_BYTE);
            live_start = block.end();
        }
        self.bytes[live_start as usize..self.bump as usize].fill(0);
        self.bytes[self.bump as usize..self.high_water as usize].fill(FREED_BYTE);
        // Keeps the compiler from dropping writes that nothing reads before the memory is freed.
        std::hint::black_box(&mut self.bytes);
        self.check();
    }

    /// The bytes `slot` holds.
    ///
    /// # Panics
    ///
    /// When the slot comes from another slab or from before a [`clear`](Self::clear); in debug
    /// builds also when its bytes are free.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: ByteSlot) -> &[u8] {
        self.assert_owned(slot);
        debug_assert!(self.is_live(slot), "slot was used after it was freed");
        self.data(slot)
    }

    /// The bytes `slot` holds, or nothing if the slot comes from another slab, from before a
    /// [`clear`](Self::clear), or is free.
    #[must_use]
    pub fn try_get(&self, slot: ByteSlot) -> Option<&[u8]> {
        (self.owns(slot) && self.is_live(slot)).then(|| self.data(slot))
    }

    /// Asks the processor for the bytes `slot` holds, which [`get`](Self::get) will want soon. Only
    /// a hint: it changes nothing, and any slot will do.
    #[inline]
    pub fn prefetch(&self, slot: ByteSlot) {
        self.prefetch_from(slot.offset, slot.len);
    }

    /// Asks the processor for the first of the bytes `slot` holds.
    #[inline]
    pub fn prefetch_start(&self, slot: ByteSlot) {
        self.bytes.get(slot.offset as usize).into_iter().for_each(prefetch);
    }

    /// Asks the processor for the bytes of the slot that is `number` steps behind the first of
    /// `spacing`, if all slots lie as the first two. A hint again, for whoever would otherwise wait
    /// for the slot itself first: a guess that is wrong costs as little as one that is right.
    #[inline]
    pub fn prefetch_spaced(&self, spacing: SlotSpacing, number: u32) {
        self.prefetch_from(spacing.offset(number), spacing.step);
    }

    /// The size of the buffer.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes the live slots occupy, after rounding.
    #[must_use]
    pub const fn used_bytes(&self) -> usize {
        self.live_bytes as usize
    }

    /// How many bytes lie in free blocks between live ones; the virgin space is not among them.
    #[must_use]
    pub const fn free_bytes(&self) -> usize {
        self.free.bytes() as usize
    }

    /// How many bytes lie beyond every block.
    #[must_use]
    pub const fn virgin_bytes(&self) -> usize {
        self.virgin() as usize
    }

    /// How many slots are live; [`ByteSlot::EMPTY`] does not count.
    #[must_use]
    pub const fn live_slots(&self) -> usize {
        self.live_slots as usize
    }

    /// The size of the block that `len` bytes need.
    fn block_size(&self, len: usize) -> Result<u32, SlabFull> {
        let rounded = u32::try_from(len).ok().and_then(u32::checked_next_power_of_two);
        let available = self.virgin();
        let size = rounded.ok_or(SlabFull { requested: u32::MAX, available })?;
        Ok(size.max(MIN_BLOCK))
    }

    /// Takes `size` bytes out of the free or the virgin space. The caller accounts for them.
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
        // Virgin space is the last resort: using holes first keeps it whole for large strings.
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

    /// Adds `block` to the free or the virgin space. The caller has accounted for it.
    fn release(&mut self, block: Block) {
        if cfg!(debug_assertions) {
            self.bytes[block.bytes()].fill(FREED_BYTE);
        }
        let merged = self.free.take_neighbours(&mut self.bytes, block);
        if merged.end() == self.bump {
            // Back to the virgin space, which serves any size and is what `SlabFull` counts.
            self.free.unmark(merged);
            self.bump = merged.offset;
        } else {
            // The neighbours are marked already; marking them again could cost more than the block.
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

/// The length of all parts together; more than any slab holds if it cannot be counted.
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
    /// In debug builds, panics when slots are live: their holders forgot to free them.
    fn drop(&mut self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            assert_eq!(self.live_slots, 0, "a slab was dropped while slots were live");
        }
    }
}
