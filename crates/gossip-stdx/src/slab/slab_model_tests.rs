//! Compares the slab with a simple allocator that predicts every offset and every error.

use std::collections::BTreeMap;

use gossip_testkit::Rng;
use proptest::prelude::*;

use super::{Block, ByteSlab, ByteSlot, REPLACE_WASTE_MAX, SlabFull};
use crate::test_support::{config, steps};

/// The allocation rules of the slab, implemented by linear search.
struct Model {
    capacity: u32,
    bump: u32,
    /// Free blocks in order of their offsets.
    free: Vec<Block>,
    /// Block size and stored bytes by offset.
    live: BTreeMap<u32, (u32, Vec<u8>)>,
}

impl Model {
    fn new(capacity: u32) -> Self {
        Self { capacity, bump: 0, free: Vec::new(), live: BTreeMap::new() }
    }

    fn allocate(&mut self, bytes: &[u8]) -> Result<u32, SlabFull> {
        let size = rounded(bytes.len());
        let offset = self.place(size)?;
        self.live.insert(offset, (size, bytes.to_vec()));
        Ok(offset)
    }

    fn place(&mut self, size: u32) -> Result<u32, SlabFull> {
        let fitting = (0..self.free.len()).filter(|index| self.free[*index].size >= size);
        // `min_by_key` returns the first of equals, and the list is in order of offsets.
        if let Some(best) = fitting.min_by_key(|index| self.free[*index].size) {
            let Block { offset, size: found } = self.free.remove(best);
            if found > size {
                self.free.insert(best, Block { offset: offset + size, size: found - size });
            }
            return Ok(offset);
        }
        let available = self.capacity - self.bump;
        if size > available {
            return Err(SlabFull { requested: size, available });
        }
        self.bump += size;
        Ok(self.bump - size)
    }

    fn deallocate(&mut self, offset: u32) {
        let (size, _) = self.live.remove(&offset).unwrap();
        self.give_back(Block { offset, size });
    }

    fn give_back(&mut self, block: Block) {
        self.free.push(block);
        self.free.sort_unstable_by_key(|block| block.offset);
        let mut merged: Vec<Block> = Vec::new();
        for block in self.free.drain(..) {
            match merged.last_mut() {
                Some(last) if last.end() == block.offset => last.size += block.size,
                Some(_) | None => merged.push(block),
            }
        }
        if let Some(last) = merged.pop_if(|last| last.end() == self.bump) {
            self.bump = last.offset;
        }
        self.free = merged;
    }

    fn replace(&mut self, offset: u32, bytes: &[u8]) -> Result<u32, SlabFull> {
        let (size, needed) = (self.live[&offset].0, rounded(bytes.len()));
        if needed > size {
            let replacement = self.allocate(bytes)?;
            self.deallocate(offset);
            return Ok(replacement);
        }
        let kept = if needed * REPLACE_WASTE_MAX < size { needed } else { size };
        self.live.insert(offset, (kept, bytes.to_vec()));
        if kept < size {
            self.give_back(Block { offset: offset + kept, size: size - kept });
        }
        Ok(offset)
    }

    fn clear(&mut self) {
        *self = Self::new(self.capacity);
    }
}

fn rounded(len: usize) -> u32 {
    [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
        .into_iter()
        .find(|size| *size as usize >= len)
        .unwrap()
}

/// The slab, its model, and the slots that are live in both.
struct Pair {
    slab: ByteSlab,
    model: Model,
    slots: Vec<ByteSlot>,
    /// Makes every stored string different.
    stamp: u8,
}

#[derive(Clone, Debug)]
enum Op {
    Allocate(usize),
    /// The number selects one of the live slots.
    Replace(usize, usize),
    Deallocate(usize),
    Zeroize,
    Clear,
}

impl Pair {
    fn new(capacity: u32) -> Self {
        let (slab, model) = (ByteSlab::new(capacity as usize), Model::new(capacity));
        Self { slab, model, slots: Vec::new(), stamp: 0 }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Allocate(len) => self.allocate(len),
            Op::Replace(choice, len) => self.replace(choice, len),
            Op::Deallocate(choice) => {
                if let Some(slot) = self.take_slot(choice) {
                    self.slab.deallocate(slot);
                    self.model.deallocate(slot.offset);
                }
            }
            Op::Zeroize => {
                self.slab.zeroize_used();
                self.model.live.values_mut().for_each(|(_, bytes)| bytes.fill(0));
            }
            Op::Clear => {
                let stale = std::mem::take(&mut self.slots);
                self.slab.clear();
                self.model.clear();
                assert!(stale.into_iter().all(|slot| self.slab.try_get(slot).is_none()));
            }
        }
        self.compare_sums();
    }

    fn allocate(&mut self, len: usize) {
        let bytes = self.fresh_bytes(len);
        if len == 0 {
            assert_eq!(self.slab.allocate(&bytes), Ok(ByteSlot::EMPTY));
            return;
        }
        let parts = self.cut(&bytes);
        let seen = match self.whole() {
            true => self.slab.allocate(&bytes),
            false => self.slab.allocate_parts(&parts),
        };
        let expected = self.model.allocate(&bytes);
        assert_eq!(seen.map(|slot| slot.offset), expected);
        self.slots.extend(seen);
    }

    fn replace(&mut self, choice: usize, len: usize) {
        let Some(slot) = self.take_slot(choice) else {
            return;
        };
        let bytes = self.fresh_bytes(len);
        if len == 0 {
            assert_eq!(self.slab.replace(slot, &bytes), Ok(ByteSlot::EMPTY));
            self.model.deallocate(slot.offset);
            return;
        }
        let parts = self.cut(&bytes);
        let seen = match self.whole() {
            true => self.slab.replace(slot, &bytes),
            false => self.slab.replace_parts(slot, &parts),
        };
        assert_eq!(seen.map(|slot| slot.offset), self.model.replace(slot.offset, &bytes));
        // After an error the old slot must still be valid; the comparison of contents checks that.
        self.slots.push(seen.unwrap_or(slot));
    }

    fn take_slot(&mut self, choice: usize) -> Option<ByteSlot> {
        let index = choice.checked_rem(self.slots.len())?;
        Some(self.slots.swap_remove(index))
    }

    fn fresh_bytes(&mut self, len: usize) -> Vec<u8> {
        self.stamp = self.stamp.wrapping_add(1);
        (0..len).map(|index| self.stamp.wrapping_add(index as u8)).collect()
    }

    /// Returns whether this step stores its bytes in one piece.
    fn whole(&self) -> bool {
        self.stamp.is_multiple_of(2)
    }

    /// Returns `bytes` in three parts, some of them often empty. The model only sees the whole.
    fn cut<'b>(&self, bytes: &'b [u8]) -> [&'b [u8]; 3] {
        let first = usize::from(self.stamp) * 7 % (bytes.len() + 1);
        let (front, rest) = bytes.split_at(first);
        let second = usize::from(self.stamp) * 3 % (rest.len() + 1);
        let (middle, back) = rest.split_at(second);
        [front, middle, back]
    }

    fn compare_sums(&self) {
        let Self { slab, model, .. } = self;
        let free: u32 = model.free.iter().map(|block| block.size).sum();
        let live: u32 = model.live.values().map(|(size, _)| size).sum();
        assert_eq!(slab.live_slots(), model.live.len());
        assert_eq!(slab.used_bytes(), live as usize);
        assert_eq!(slab.free_bytes(), free as usize);
        assert_eq!(slab.virgin_bytes(), (model.capacity - model.bump) as usize);
        assert_eq!(slab.used_bytes() + slab.free_bytes() + slab.virgin_bytes(), slab.capacity());
    }

    fn compare_contents(&self) {
        self.slab.check_free_blocks();
        assert_eq!(self.slots.len(), self.model.live.len());
        for slot in &self.slots {
            let (size, bytes) = &self.model.live[&slot.offset];
            assert_eq!(self.slab.get(*slot), bytes.as_slice());
            assert_eq!(self.slab.try_get(*slot), Some(bytes.as_slice()));
            assert_eq!((slot.len(), slot.alloc_size), (bytes.len(), *size));
        }
    }

    fn finish(mut self) {
        self.compare_contents();
        while !self.slots.is_empty() {
            self.step(&Op::Deallocate(self.slots.len() / 2));
        }
        assert_eq!(
            self.slab.virgin_bytes(),
            self.slab.capacity(),
            "all bytes are virgin again at the end"
        );
    }
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..=40_usize, 4 => 0..=300_usize, 1 => 0..=5000_usize]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => len().prop_map(Op::Allocate),
        30 => (any::<usize>(), len()).prop_map(|(choice, len)| Op::Replace(choice, len)),
        40 => any::<usize>().prop_map(Op::Deallocate),
        1 => Just(Op::Zeroize),
        1 => Just(Op::Clear),
    ]
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn slab_allocates_frees_and_fails_exactly_as_the_model(
        capacity in prop_oneof![0..=200_u32, 200..=6000_u32],
        ops in prop::collection::vec(op(), 0..steps(300)),
    ) {
        let mut pair = Pair::new(capacity);
        for op in &ops {
            pair.step(op);
            pair.compare_contents();
        }
        pair.finish();
    }
}

proptest! {
    #![proptest_config(config(4))]

    #[test]
    fn a_large_slab_matches_the_model_over_many_operations(seed in any::<u64>()) {
        const CAPACITY: u32 = if cfg!(miri) { 20_007 } else { 300_007 };
        const STEPS: u32 = if cfg!(miri) { 100 } else { 8000 };
        let mut rng = Rng::seeded(seed);
        let mut pair = Pair::new(CAPACITY);
        for step in 0..STEPS {
            pair.step(&random_op(&mut rng, step));
            if step % 512 == 0 {
                pair.compare_contents();
            }
        }
        pair.finish();
    }
}

/// Grows and shrinks in long phases, so that the slab is in turn full, fragmented and sparse.
fn random_op(rng: &mut Rng, step: u32) -> Op {
    let mut below = |bound: usize| rng.index(bound);
    let growing = (step / 1024).is_multiple_of(2);
    let (kind, choice) = (below(100), below(1 << 30));
    let len = if below(20) == 0 { below(3000) } else { below(200) };
    match kind {
        0..30 => Op::Replace(choice, len),
        30..50 => Op::Allocate(len),
        50..70 => Op::Deallocate(choice),
        70.. if growing => Op::Allocate(len),
        _ => Op::Deallocate(choice),
    }
}
