//! What a slab verifies: about slots in every build, about itself in debug builds.
//!
//! A slot must come from this slab and its bytes must be in use, else the holder has a bug that
//! would hand one owner's bytes to another. Changing anything through a bad slot panics in every
//! build, at the price of a bit or two; so does reading through another slab's. Reading freed bytes
//! of this slab panics in debug builds only: `get` is the hot path, and `try_get` looks in every
//! build. The rest is empty in release builds.
//!
//! The sums are checked after every change. Walking all free blocks takes time proportional to the
//! part of the slab in use, so it follows every change of a small slab and samples those of a large
//! one. Nothing here allocates: zero-allocation tests run in debug builds too.

use super::slot::{Block, ByteSlot, OWNER_NONE};
use super::{ByteSlab, FREED_BYTE};

/// Up to this many bytes in use, every change is followed by a full walk: 64 words of the bitmap.
const WALK_ALWAYS_MAX: u32 = 64 * 1024;

/// Beyond that, one change in so many is. A million changes then cost a few hundred walks.
const WALK_INTERVAL: u32 = 4096;

impl ByteSlab {
    /// Whether this slab handed out `slot`, or any would have.
    #[inline]
    pub(super) const fn owns(&self, slot: ByteSlot) -> bool {
        slot.owner_id == self.owner_id || slot.owner_id == OWNER_NONE
    }

    /// Whether the first byte of `slot`, which this slab owns, is neither free nor virgin.
    pub(super) fn is_live(&self, slot: ByteSlot) -> bool {
        slot.is_empty() || (slot.offset < self.bump && !self.free.is_free(slot.offset))
    }

    #[inline]
    pub(super) fn assert_owned(&self, slot: ByteSlot) {
        assert!(self.owns(slot), "slot belongs to another slab, or is older than the last clear");
    }

    /// Panics unless every byte of the slot's block is in use.
    pub(super) fn assert_live(&self, slot: ByteSlot) {
        self.assert_owned(slot);
        if slot.is_empty() {
            return;
        }
        // A block given back at the edge became virgin space, where no granule is marked.
        assert!(slot.block().end() <= self.bump, "slot was freed before");
        assert!(!self.free.intersects(slot.block()), "slot was freed before");
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

    /// Asserts that nobody wrote to `block`, about to be handed out, since it was last given back.
    pub(super) fn check_untouched(&self, block: Block) {
        if !cfg!(debug_assertions) {
            return;
        }
        let fresh_from = block.end().min(self.high_water.max(block.offset)) as usize;
        let (freed, fresh) = (block.offset as usize..fresh_from, fresh_from..block.end() as usize);
        assert!(self.bytes[freed].iter().all(|b| *b == FREED_BYTE), "freed bytes were changed");
        assert!(self.bytes[fresh].iter().all(|b| *b == 0), "virgin bytes were changed");
    }

    fn check_sums(&self) {
        assert!(self.bump <= self.high_water, "the bump pointer is past its highest value");
        assert!(self.high_water as usize <= self.bytes.len(), "blocks end past the slab");
        let blocks = u64::from(self.live_bytes) + u64::from(self.free.bytes());
        assert_eq!(blocks, u64::from(self.bump), "live and free bytes do not fill the blocks");
        assert_eq!(self.live_bytes == 0, self.live_slots == 0, "live bytes and slots disagree");
    }

    /// Walks the free blocks in order of their offsets.
    pub(super) fn check_free_blocks(&self) {
        let (mut blocks, mut bytes, mut end) = (0, 0, 0);
        while let Some(block) = self.free.next_block(&self.bytes, end) {
            self.free.check_block(&self.bytes, block);
            assert!(block.end() < self.bump, "a free block touches the virgin space");
            (blocks, bytes, end) = (blocks + 1, bytes + block.size, block.end());
        }
        assert_eq!(blocks, self.free.blocks(), "the tree holds blocks that are not free");
        assert_eq!(bytes, self.free.bytes(), "the cached sum of free bytes is off");
    }
}
