//! The free blocks of a slab, indexed inside the very bytes that are free.
//!
//! Two questions are answered without any memory beyond what was made at construction:
//!
//! - *Which free block fits best?* Search trees ordered by (size, offset), whose nodes are the
//!   first bytes of the free blocks themselves; one tree for each small size, one for the rest.
//! - *Is the neighbour free?* A bit per granule, and the size of a block at both of its ends.
//!
//! ```text
//!  byte of the block   0..4   offset of the left child, or NIL
//!                      4..8   offset of the right child, or NIL
//!                      8..12  nothing; overwritten, so that no data stays there
//!                     12..16  size
//!                 last four   size again; in a block of 16 these are the same bytes
//! ```
//!
//! The trees are treaps: search trees by key and at the same time heaps by priority, a fixed hash
//! of the offset. The same blocks therefore always form the same trees, whatever the order of
//! events, and their depth is that of random trees: about 2 ln n on average. Every operation is a
//! loop down one path; nothing recurses.
//!
//! The index never decides which bytes are live: its caller marks and unmarks them. Functions take
//! the slab's bytes as `buf`.
//!
//! # Invariants
//!
//! - A granule is marked exactly if it belongs to a free block; neighbours are merged, so every
//!   maximal run of marked granules is one block, and that block is in the tree of its bin.
//! - `blocks` and `bytes` are the number and the total size of the blocks in all trees.

use super::granules::GranuleSet;
use super::slot::Block;
use super::{FREED_BYTE, MIN_BLOCK};

/// Trees by size of block: most blocks are small and find others of exactly their size, so their
/// tree is shallow and its first block at hand. Sixty-four, to find the next one by one word.
const BINS: usize = u64::BITS as usize;

/// No block: not a multiple of [`MIN_BLOCK`], so never an offset.
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
    /// For each bin the root of its tree, or NIL.
    roots: [u32; BINS],
    /// The bins whose root is not NIL, one bit each.
    occupied: u64,
    /// Number of blocks in all trees.
    blocks: u32,
    /// Sum of the sizes of the blocks in all trees.
    bytes: u32,
    /// The granules of all free blocks.
    granules: GranuleSet,
}

/// A place that holds the offset of a subtree's top.
#[derive(Clone, Copy)]
enum Link {
    /// The root of this bin.
    Root(usize),
    /// The byte where a node keeps this child.
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

    /// Forgets all blocks; those below `end` may be marked.
    pub(super) fn clear(&mut self, end: u32) {
        (self.roots, self.occupied) = ([NIL; BINS], 0);
        (self.blocks, self.bytes) = (0, 0);
        if end > 0 {
            self.granules.remove(Block { offset: 0, size: end });
        }
    }

    /// Says that the granules of `block` are free.
    pub(super) fn mark(&mut self, block: Block) {
        self.granules.insert(block);
    }

    /// Says that the granules of `block` are not free.
    pub(super) fn unmark(&mut self, block: Block) {
        self.granules.remove(block);
    }

    /// Adds `block` to the tree and writes its size at both ends.
    pub(super) fn insert(&mut self, buf: &mut [u8], block: Block) {
        write_u32(buf, block.offset + SPARE, u32::from_ne_bytes([FREED_BYTE; 4]));
        // At the front for the search, at the end for the neighbour that looks left.
        write_u32(buf, block.offset + SIZE, block.size);
        write_u32(buf, block.end() - SIZE_LEN, block.size);
        self.blocks += 1;
        self.bytes += block.size;

        let link = self.link_for(buf, block);
        let subtree = self.follow(buf, link);
        self.point(buf, link, block.offset);
        self.split_below(buf, block, subtree);
    }

    /// Takes the smallest block of at least `size` bytes out of the tree; among equals, the first.
    pub(super) fn take_best_fit(&mut self, buf: &mut [u8], size: u32) -> Option<Block> {
        // Bins hold ever larger blocks, so the first one with any holds the best fit: at its very
        // left, unless it is the last bin.
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
                // It fits; only what lies to its left can fit better.
                best = Some((link, node));
                link = Link::Child(node + LEFT);
            } else {
                link = Link::Child(node + RIGHT);
            }
        }
        let (link, node) = best?;
        Some(self.unlink(buf, link, node))
    }

    /// Takes the free blocks on either side of `block` out of the tree and returns all as one.
    pub(super) fn take_neighbours(&mut self, buf: &mut [u8], block: Block) -> Block {
        let mut merged = block;
        if self.granules.contains(block.end()) {
            let right = self.take(buf, block.end());
            merged.size += right.size;
        }
        if block.offset > 0 && self.granules.contains(block.offset - MIN_BLOCK) {
            // The granule before us ends a free block, whose last bytes say where it starts.
            let left_size = read_u32(buf, block.offset - SIZE_LEN);
            let left = self.take(buf, block.offset - left_size);
            merged = Block { offset: left.offset, size: left.size + merged.size };
        }
        merged
    }

    /// Whether any byte of `block` is free.
    pub(super) fn intersects(&self, block: Block) -> bool {
        self.granules.intersects(block)
    }

    /// Whether the granule at `offset` is free.
    pub(super) fn is_free(&self, offset: u32) -> bool {
        self.granules.contains(offset)
    }

    /// The first free block at or after `from`, which is not inside one.
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

    /// Panics unless `block` is in its tree, above its children, sized alike at both ends and
    /// marked to its very edges.
    pub(super) fn check_block(&self, buf: &[u8], block: Block) {
        assert_eq!(read_u32(buf, block.end() - SIZE_LEN), block.size, "a block's sizes differ");
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

    /// How many nodes lie above `block`, which is in the tree.
    #[cfg(test)]
    pub(super) fn depth(&self, buf: &[u8], block: Block) -> usize {
        let (mut node, mut depth) = (self.roots[bin_of(block.size)], 0);
        while node != block.offset {
            node = read_u32(buf, side_of(buf, node, block));
            depth += 1;
        }
        depth
    }

    /// Takes the block at `offset`, known to be free, out of the tree.
    fn take(&mut self, buf: &mut [u8], offset: u32) -> Block {
        let block = Block { offset, size: size_at(buf, offset) };
        let link = self.link_of(buf, block);
        self.unlink(buf, link, offset)
    }

    /// Takes the node that `link` holds out of the tree; its children are joined in its place.
    fn unlink(&mut self, buf: &mut [u8], mut link: Link, node: u32) -> Block {
        let block = Block { offset: node, size: size_at(buf, node) };
        self.blocks -= 1;
        self.bytes -= block.size;

        // Both subtrees are heaps, so the higher of their tops takes the open place, again and
        // again until one of them is used up.
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
        // From now on all of its bytes must show the pattern, or the check on reuse would fail.
        if cfg!(debug_assertions) {
            erase_node(buf, block);
        }
        block
    }

    /// Divides `subtree` by the key of `block` into what becomes its left and right child.
    fn split_below(&mut self, buf: &mut [u8], block: Block, mut subtree: u32) {
        let mut less = Link::Child(block.offset + LEFT);
        let mut more = Link::Child(block.offset + RIGHT);
        while subtree != NIL {
            let side = side_of(buf, subtree, block);
            let next = read_u32(buf, side);
            // Going right from a node means that it, and all to its left, is less.
            let open = if side == subtree + RIGHT { &mut less } else { &mut more };
            self.point(buf, *open, subtree);
            *open = Link::Child(side);
            subtree = next;
        }
        self.point(buf, less, NIL);
        self.point(buf, more, NIL);
    }

    /// Where `block` belongs: below every node on its path that has a higher priority.
    fn link_for(&self, buf: &[u8], block: Block) -> Link {
        let own = priority(block.offset);
        self.descend(buf, block, |node| priority(node) > own)
    }

    /// The link that holds `block`, or the empty one where its path ends.
    fn link_of(&self, buf: &[u8], block: Block) -> Link {
        self.descend(buf, block, |node| node != block.offset)
    }

    /// Follows the path of `block` while there are nodes that `passes` lets by.
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

/// The bytes of a free `block` between its node and its closing size.
pub(super) fn unused_bytes(block: Block) -> std::ops::Range<usize> {
    let (start, end) = (block.offset + NODE_LEN, block.end() - SIZE_LEN);
    start as usize..end.max(start) as usize
}

/// Makes the bytes the index used look like all other freed bytes.
fn erase_node(buf: &mut [u8], block: Block) {
    let Block { offset, .. } = block;
    buf[Block { offset, size: NODE_LEN }.bytes()].fill(FREED_BYTE);
    buf[block.bytes()].iter_mut().rev().take(SIZE_LEN as usize).for_each(|b| *b = FREED_BYTE);
}

/// The bin for blocks of `size` bytes: one bin for each small size, the last one for all others.
const fn bin_of(size: u32) -> usize {
    let bin = (size / MIN_BLOCK) as usize - 1;
    if bin < BINS { bin } else { BINS - 1 }
}

/// The byte where `node` keeps the child on whose side `block` lies.
fn side_of(buf: &[u8], node: u32, block: Block) -> u32 {
    let less = (block.size, block.offset) < (size_at(buf, node), node);
    node + if less { LEFT } else { RIGHT }
}

/// A permutation of the offsets that looks random, so no two blocks tie.
///
/// Multiplying by an odd number and folding the high half into the low one can both be undone.
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
    let bytes = buf[at as usize..].first_chunk().expect("a node lies within the slab");
    u32::from_le_bytes(*bytes)
}

fn write_u32(buf: &mut [u8], at: u32, value: u32) {
    let bytes = buf[at as usize..].first_chunk_mut().expect("a node lies within the slab");
    *bytes = value.to_le_bytes();
}
