//! The free blocks of a slab, indexed inside the free bytes themselves.
//!
//! The index answers two questions without memory beyond its construction:
//!
//! - *Which free block fits best?* Search trees ordered by (size, offset), whose nodes are the
//!   first bytes of the free blocks; one tree for each small size, one for the rest.
//! - *Is the neighbour free?* A bit per granule, and the size of a block at both of its ends.
//!
//! ```text
//!  byte of the block   0..4   offset of the left child, or NIL
//!                      4..8   offset of the right child, or NIL
//!                      8..12  unused; overwritten, so that no data remains there
//!                     12..16  size
//!                 last four   size again; in a block of 16 these are the same bytes
//! ```
//!
//! The trees are treaps: search trees by key and at the same time heaps by priority, which is a
//! fixed hash of the offset. The same blocks therefore always form the same trees, independent of
//! the order of operations, and their depth is that of random trees: about 2 ln n on average. Every
//! operation is a loop down one path; nothing recurses.
//!
//! The index does not decide which bytes are live: its caller marks and unmarks them. Functions
//! take the slab's bytes as `buf`.
//!
//! # Invariants
//!
//! - A granule is marked exactly if it belongs to a free block; neighbours are merged, so every
//!   maximal run of marked granules is one block, and that block is in the tree of its bin.
//! - `blocks` and `bytes` are the number and the total size of the blocks in all trees.

use super::granules::GranuleSet;
use super::slot::Block;
use super::{FREED_BYTE, MIN_BLOCK};

/// Number of trees, by block size. Most blocks are small and share their exact size with others, so
/// their tree is shallow and its first block is found quickly. The count matches the bits of one
/// word, so one bit scan finds the next non-empty tree.
const BINS: usize = u64::BITS as usize;

/// No block. Not a multiple of [`MIN_BLOCK`], so never a valid offset.
const NIL: u32 = u32::MAX;

const LEFT: u32 = 0;
const RIGHT: u32 = 4;
const SPARE: u32 = 8;
const SIZE: u32 = 12;
const SIZE_LEN: u32 = 4;
const NODE_LEN: u32 = SIZE + SIZE_LEN;

const _: () = assert!(NODE_LEN <= MIN_BLOCK, "the smallest block must hold a node");
const _: () = assert!(SIZE == MIN_BLOCK - SIZE_LEN, "head and tail size must coincide");
const _: () = assert!(!NIL.is_multiple_of(MIN_BLOCK));

pub(super) struct FreeIndex {
    /// Root of each bin's tree, or NIL.
    roots: [u32; BINS],
    /// One bit for each bin whose root is not NIL.
    occupied: u64,
    /// Number of blocks in all trees.
    blocks: u32,
    /// Sum of the sizes of the blocks in all trees.
    bytes: u32,
    /// The granules of all free blocks.
    granules: GranuleSet,
}

/// A location that holds the offset of a subtree's root.
#[derive(Clone, Copy)]
enum Link {
    /// The root of this bin.
    Root(usize),
    /// Offset of the field in which a node stores this child.
    Child(u32),
}

impl FreeIndex {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            roots: [NIL; BINS],
            occupied: 0,
            blocks: 0,
            bytes: 0,
            granules: GranuleSet::new(capacity),
        }
    }

    /// Removes all blocks; only granules below `end` may be marked.
    pub(super) fn clear(&mut self, end: u32) {
        (self.roots, self.occupied) = ([NIL; BINS], 0);
        (self.blocks, self.bytes) = (0, 0);
        if end > 0 {
            self.granules.remove(Block { offset: 0, size: end });
        }
    }

    /// Marks the granules of `block` as free.
    pub(super) fn mark(&mut self, block: Block) {
        self.granules.insert(block);
    }

    /// Marks the granules of `block` as not free.
    pub(super) fn unmark(&mut self, block: Block) {
        self.granules.remove(block);
    }

    /// Adds `block` to the tree and writes its size at both ends.
    pub(super) fn insert(&mut self, buf: &mut [u8], block: Block) {
        write_u32(buf, block.offset + SPARE, u32::from_ne_bytes([FREED_BYTE; 4]));
        // At the front for the search, at the end for a lookup from the right neighbour.
        write_u32(buf, block.offset + SIZE, block.size);
        write_u32(buf, block.end() - SIZE_LEN, block.size);
        self.blocks += 1;
        self.bytes += block.size;

        let link = self.link_for(buf, block);
        let subtree = self.follow(buf, link);
        self.point(buf, link, block.offset);
        self.split_below(buf, block, subtree);
    }

    /// Removes and returns the smallest block of at least `size` bytes; among equals, the first.
    pub(super) fn take_best_fit(&mut self, buf: &mut [u8], size: u32) -> Option<Block> {
        // Bins are ordered by block size, so the first non-empty one holds the best fit: its
        // leftmost node, unless it is the last bin.
        let candidates = self.occupied & (u64::MAX << bin_of(size));
        let bin = candidates.trailing_zeros() as usize;
        if bin == BINS {
            return None;
        }
        let (mut link, mut best) = (Link::Root(bin), None);
        loop {
            let node = self.follow(buf, link);
            if node == NIL {
                break;
            }
            if size_at(buf, node) >= size {
                // This block fits; only nodes to its left can fit better.
                best = Some((link, node));
                link = Link::Child(node + LEFT);
            } else {
                link = Link::Child(node + RIGHT);
            }
        }
        let (link, node) = best?;
        Some(self.unlink(buf, link, node))
    }

    /// Removes the free blocks on either side of `block` and returns all three as one block.
    pub(super) fn take_neighbours(&mut self, buf: &mut [u8], block: Block) -> Block {
        let mut merged = block;
        if self.granules.contains(block.end()) {
            let right = self.take(buf, block.end());
            merged.size += right.size;
        }
        if block.offset > 0 && self.granules.contains(block.offset - MIN_BLOCK) {
            // The previous granule ends a free block, whose last bytes hold its size.
            let left_size = read_u32(buf, block.offset - SIZE_LEN);
            let left = self.take(buf, block.offset - left_size);
            merged = Block { offset: left.offset, size: left.size + merged.size };
        }
        merged
    }

    /// Returns whether any byte of `block` is free.
    pub(super) fn intersects(&self, block: Block) -> bool {
        self.granules.intersects(block)
    }

    /// Returns whether the granule at `offset` is free.
    pub(super) fn is_free(&self, offset: u32) -> bool {
        self.granules.contains(offset)
    }

    /// Returns the first free block at or after `from`, which is not inside one.
    pub(super) fn next_block(&self, buf: &[u8], from: u32) -> Option<Block> {
        let offset = self.granules.next(from, true)?;
        Some(Block { offset, size: size_at(buf, offset) })
    }

    pub(super) const fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Panics unless `block` is in its tree, has a higher priority than its children, has the same
    /// size at both ends and is marked up to both ends.
    pub(super) fn check_block(&self, buf: &[u8], block: Block) {
        assert_eq!(
            read_u32(buf, block.end() - SIZE_LEN),
            block.size,
            "the sizes at both ends of a block differ"
        );
        let unmarked = self.granules.next(block.offset, false);
        assert_eq!(unmarked, Some(block.end()), "a run of free granules is not one block");
        for side in [LEFT, RIGHT] {
            let child = read_u32(buf, block.offset + side);
            let below = child == NIL || priority(child) < priority(block.offset);
            assert!(below, "a child has a higher priority than its parent");
        }
        let link = self.link_of(buf, block);
        assert_eq!(self.follow(buf, link), block.offset, "a free block is not in the tree");
    }

    /// Returns the number of nodes above `block`, which is in the tree.
    #[cfg(test)]
    pub(super) fn depth(&self, buf: &[u8], block: Block) -> usize {
        let (mut node, mut depth) = (self.roots[bin_of(block.size)], 0);
        while node != block.offset {
            node = read_u32(buf, side_of(buf, node, block));
            depth += 1;
        }
        depth
    }

    /// Removes the block at `offset`, known to be free, from the tree.
    fn take(&mut self, buf: &mut [u8], offset: u32) -> Block {
        let block = Block { offset, size: size_at(buf, offset) };
        let link = self.link_of(buf, block);
        self.unlink(buf, link, offset)
    }

    /// Removes the node that `link` holds; its children are merged in its place.
    fn unlink(&mut self, buf: &mut [u8], mut link: Link, node: u32) -> Block {
        let block = Block { offset: node, size: size_at(buf, node) };
        self.blocks -= 1;
        self.bytes -= block.size;

        // Both subtrees are heaps, so the root with the higher priority takes the open link, until
        // one subtree is exhausted.
        let (mut left, mut right) = (read_u32(buf, node + LEFT), read_u32(buf, node + RIGHT));
        while left != NIL && right != NIL {
            if priority(left) > priority(right) {
                self.point(buf, link, left);
                link = Link::Child(left + RIGHT);
                left = read_u32(buf, left + RIGHT);
            } else {
                self.point(buf, link, right);
                link = Link::Child(right + LEFT);
                right = read_u32(buf, right + LEFT);
            }
        }
        self.point(buf, link, if left == NIL { right } else { left });
        // From here on all of its bytes must hold the fill pattern, or the check on reuse would
        // fail.
        if cfg!(debug_assertions) {
            erase_node(buf, block);
        }
        block
    }

    /// Splits `subtree` by the key of `block` into the left and right child of `block`.
    fn split_below(&mut self, buf: &mut [u8], block: Block, mut subtree: u32) {
        let mut less = Link::Child(block.offset + LEFT);
        let mut more = Link::Child(block.offset + RIGHT);
        while subtree != NIL {
            let side = side_of(buf, subtree, block);
            let next = read_u32(buf, side);
            // Descending right from a node means that it and its left subtree are less than
            // `block`.
            let open = if side == subtree + RIGHT { &mut less } else { &mut more };
            self.point(buf, *open, subtree);
            *open = Link::Child(side);
            subtree = next;
        }
        self.point(buf, less, NIL);
        self.point(buf, more, NIL);
    }

    /// Returns the link at which `block` belongs: below every node on its path with a higher
    /// priority.
    fn link_for(&self, buf: &[u8], block: Block) -> Link {
        let own = priority(block.offset);
        self.descend(buf, block, |node| priority(node) > own)
    }

    /// Returns the link that holds `block`, or the empty one where its path ends.
    fn link_of(&self, buf: &[u8], block: Block) -> Link {
        self.descend(buf, block, |node| node != block.offset)
    }

    /// Follows the path of `block` while `passes` accepts the nodes on it.
    fn descend(&self, buf: &[u8], block: Block, passes: impl Fn(u32) -> bool) -> Link {
        let mut link = Link::Root(bin_of(block.size));
        loop {
            let node = self.follow(buf, link);
            if node == NIL || !passes(node) {
                return link;
            }
            link = Link::Child(side_of(buf, node, block));
        }
    }

    fn follow(&self, buf: &[u8], link: Link) -> u32 {
        match link {
            Link::Root(bin) => self.roots[bin],
            Link::Child(at) => read_u32(buf, at),
        }
    }

    fn point(&mut self, buf: &mut [u8], link: Link, node: u32) {
        match link {
            Link::Root(bin) => {
                self.roots[bin] = node;
                self.occupied &= !(1 << bin);
                self.occupied |= u64::from(node != NIL) << bin;
            }
            Link::Child(at) => write_u32(buf, at, node),
        }
    }
}

/// Returns the bytes of a free `block` between its node and its trailing size.
pub(super) fn unused_bytes(block: Block) -> std::ops::Range<usize> {
    let (start, end) = (block.offset + NODE_LEN, block.end() - SIZE_LEN);
    start as usize..end.max(start) as usize
}

/// Overwrites the index fields of `block` with the fill pattern of freed bytes.
fn erase_node(buf: &mut [u8], block: Block) {
    let Block { offset, .. } = block;
    buf[Block { offset, size: NODE_LEN }.bytes()].fill(FREED_BYTE);
    buf[block.bytes()].iter_mut().rev().take(SIZE_LEN as usize).for_each(|b| *b = FREED_BYTE);
}

/// Returns the bin for blocks of `size` bytes: one bin for each small size, the last bin for all
/// larger ones.
const fn bin_of(size: u32) -> usize {
    let bin = (size / MIN_BLOCK) as usize - 1;
    if bin < BINS { bin } else { BINS - 1 }
}

/// Returns the offset of the child field of `node` on the side of `block`.
fn side_of(buf: &[u8], node: u32, block: Block) -> u32 {
    let less = (block.size, block.offset) < (size_at(buf, node), node);
    node + if less { LEFT } else { RIGHT }
}

/// Returns the priority of the node at `offset`: a pseudo-random permutation of the offsets, so no
/// two blocks tie.
///
/// A permutation because both steps are invertible: multiplying by an odd number, and folding the
/// high half into the low one.
const fn priority(offset: u32) -> u32 {
    const ODD: u32 = 0x9E37_79B9;
    let mixed = (offset / MIN_BLOCK).wrapping_mul(ODD);
    let mixed = (mixed ^ (mixed >> 16)).wrapping_mul(ODD);
    mixed ^ (mixed >> 16)
}

fn size_at(buf: &[u8], offset: u32) -> u32 {
    read_u32(buf, offset + SIZE)
}

fn read_u32(buf: &[u8], at: u32) -> u32 {
    let bytes = buf[at as usize..].first_chunk().expect("a node lies inside the slab");
    u32::from_le_bytes(*bytes)
}

fn write_u32(buf: &mut [u8], at: u32, value: u32) {
    let bytes = buf[at as usize..].first_chunk_mut().expect("a node lies inside the slab");
    *bytes = value.to_le_bytes();
}
