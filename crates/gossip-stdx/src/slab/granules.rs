//! A set of granules (runs of [`MIN_BLOCK`] bytes), one bit each.
//!
//! The set is sized at construction and never allocates again. It has no access to the contents of
//! blocks. A range costs one operation per [`u64::BITS`] granules, 1/128 of the cost of touching
//! its bytes.

use super::MIN_BLOCK;
use super::slot::Block;

pub(super) struct GranuleSet {
    /// One bit for each granule of the slab, plus one beyond it that is never set.
    words: Box<[u64]>,
}

impl GranuleSet {
    /// Returns the empty set for a slab of `capacity` bytes.
    pub(super) fn new(capacity: u32) -> Self {
        let words = word_of(capacity) + 1;
        Self { words: vec![0; words].into_boxed_slice() }
    }

    pub(super) fn insert(&mut self, block: Block) {
        for_each_word(block, |word, mask| self.words[word] |= mask);
    }

    pub(super) fn remove(&mut self, block: Block) {
        for_each_word(block, |word, mask| self.words[word] &= !mask);
    }

    /// Returns whether any granule of `block` is in the set.
    pub(super) fn intersects(&self, block: Block) -> bool {
        let mut seen = 0;
        for_each_word(block, |word, mask| seen |= self.words[word] & mask);
        seen != 0
    }

    /// Returns whether the granule that starts at `offset` is in the set.
    pub(super) fn contains(&self, offset: u32) -> bool {
        self.words[word_of(offset)] & (1 << bit_of(offset)) != 0
    }

    /// Returns the start of the first granule at or after `from` whose membership is `member`.
    ///
    /// A search for a non-member always succeeds, at the latest at the granule beyond the slab.
    pub(super) fn next(&self, from: u32, member: bool) -> Option<u32> {
        let flip = if member { 0 } else { u64::MAX };
        let mut word = word_of(from);
        let mut bits = (self.words[word] ^ flip) & (u64::MAX << bit_of(from));
        while bits == 0 {
            word += 1;
            bits = self.words.get(word)? ^ flip;
        }
        Some((word as u32 * u64::BITS + bits.trailing_zeros()) * MIN_BLOCK)
    }
}

/// Calls `action` with each word that `block` overlaps and the bits of `block` in it.
fn for_each_word(block: Block, mut action: impl FnMut(usize, u64)) {
    debug_assert!(block.size > 0, "an empty block has no last granule");
    let last_granule = block.end() - MIN_BLOCK;
    let (first, last) = (word_of(block.offset), word_of(last_granule));
    let low = u64::MAX << bit_of(block.offset);
    let high = u64::MAX >> (u64::BITS - 1 - bit_of(last_granule));
    // Most blocks lie in one word.
    if first == last {
        return action(first, low & high);
    }
    action(first, low);
    (first + 1..last).for_each(|word| action(word, u64::MAX));
    action(last, high);
}

const fn word_of(offset: u32) -> usize {
    (offset / (MIN_BLOCK * u64::BITS)) as usize
}

const fn bit_of(offset: u32) -> u32 {
    offset / MIN_BLOCK % u64::BITS
}
