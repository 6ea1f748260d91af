//! Checks of a slab: of slots in every build, of its own state in debug builds.
//!
//! A slot must come from this slab and its bytes must be in use; otherwise the holder has a bug
//! that would return one owner's bytes to another. Writing or freeing through an invalid slot
//! panics in every build, at the cost of a bit test or two. So does reading through a slot of
//! another slab. Reading freed bytes of this slab panics in debug builds only: `get` is the hot
//! path, and `try_get` checks in every build. All other checks are compiled out of release builds.
//!
//! The sums are checked after every mutation. Walking all free blocks takes time proportional to
//! the bytes in use, so a small slab is walked after every mutation and a large one after a sample
//! of them. Nothing here allocates, because zero-allocation tests run in debug builds too.

use super::slot::{Block, ByteSlot, OWNER_NONE};
use super::{ByteSlab, FREED_BYTE};

/// Up to this many bytes in use, a full walk follows every mutation: 64 words of the bitmap.
const WALK_ALWAYS_MAX: u32 = 64 * 1024;

/// Above that, a walk follows one mutation in this many. A million mutations then cost a few
/// hundred walks.
const WALK_INTERVAL: u32 = 4096;

impl ByteSlab {
    /// Returns whether this slab returned `slot`, or the slot is empty and valid in any slab.
    #[inline]
    pub(super) const fn owns(&self, slot: ByteSlot) -> bool {
        slot.owner_id == self.owner_id || slot.owner_id == OWNER_NONE
    }

    /// Returns whether the first byte of `slot`, which this slab owns, is neither free nor virgin.
    pub(super) fn is_live(&self, slot: ByteSlot) -> bool {
        slot.is_empty() || (slot.offset < self.bump && !self.free.is_free(slot.offset))
    }

    #[inline]
    pub(super) fn assert_owned(&self, slot: ByteSlot) {
        assert!(self.owns(slot), "slot belongs to another slab or predates the last clear");
    }

    /// Panics unless every byte of the slot's block is in use.
    pub(super) fn assert_live(&self, slot: ByteSlot) {
        self.assert_owned(slot);
        if slot.is_empty() {
            return;
        }
        // A block freed at the end became virgin space, where no granule is marked.
        assert!(slot.block().end() <= self.bump, "slot was already freed");
        assert!(!self.free.intersects(slot.block()), "slot was already freed");
    }

    /// Asserts the invariants of the module documentation.
    pub(super) fn check(&mut self) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.check_sums();
        self.mutations = self.mutations.wrapping_add(1);
        if self.bump <= WALK_ALWAYS_MAX || self.mutations.is_multiple_of(WALK_INTERVAL) {
            self.check_free_blocks();
        }
    }

    /// Asserts that `block`, about to be allocated, was not written to since it was last freed.
    pub(super) fn check_untouched(&self, block: Block) {
        if !cfg!(debug_assertions) {
            return;
        }
        let fresh_from = block.end().min(self.high_water.max(block.offset)) as usize;
        let (freed, fresh) = (block.offset as usize..fresh_from, fresh_from..block.end() as usize);
        assert!(self.bytes[freed].iter().all(|b| *b == FREED_BYTE), "freed bytes were changed");
        assert!(self.bytes[fresh].iter().all(|b| *b == 0), "virgin bytes were changed");
    }

    /// Panics if the counters contradict each other. Visits no block.
    fn check_sums(&self) {
        assert!(self.bump <= self.high_water, "the bump pointer exceeds the high-water mark");
        assert!(
            self.high_water as usize <= self.bytes.len(),
            "the high-water mark exceeds the capacity"
        );
        let blocks = u64::from(self.live_bytes) + u64::from(self.free.bytes());
        assert_eq!(
            blocks,
            u64::from(self.bump),
            "live and free bytes do not add up to the bump pointer"
        );
        assert_eq!(self.live_bytes == 0, self.live_slots == 0, "live bytes and slots disagree");
    }

    /// Checks the free blocks in order of their offsets.
    pub(super) fn check_free_blocks(&self) {
        let (mut blocks, mut bytes, mut end) = (0, 0, 0);
        while let Some(block) = self.free.next_block(&self.bytes, end) {
            self.free.check_block(&self.bytes, block);
            assert!(block.end() < self.bump, "a free block touches the virgin space");
            (blocks, bytes, end) = (blocks + 1, bytes + block.size, block.end());
        }
        assert_eq!(blocks, self.free.blocks(), "the tree holds blocks that are not free");
        assert_eq!(bytes, self.free.bytes(), "the cached sum of free bytes is wrong");
    }
}
