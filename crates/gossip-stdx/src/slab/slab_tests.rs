use std::sync::atomic::AtomicU32;

use super::slot::{OWNER_NONE, take_owner_id};
use super::*;
use crate::test_support::panics;

/// Returns a slab of `capacity` bytes that may be dropped while slots are live.
fn slab(capacity: usize) -> ClearOnDrop {
    ClearOnDrop(ByteSlab::new(capacity))
}

struct ClearOnDrop(ByteSlab);

impl std::ops::Deref for ClearOnDrop {
    type Target = ByteSlab;

    fn deref(&self) -> &ByteSlab {
        &self.0
    }
}

impl std::ops::DerefMut for ClearOnDrop {
    fn deref_mut(&mut self) -> &mut ByteSlab {
        &mut self.0
    }
}

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        // After a failed assertion its counts may be wrong; a second panic would hide the first.
        if !std::thread::panicking() {
            self.0.clear();
        }
    }
}

/// Fills the slab with slots of `len` bytes each.
fn fill(slab: &mut ByteSlab, len: usize) -> Vec<ByteSlot> {
    std::iter::from_fn(|| slab.allocate(&vec![7; len]).ok()).collect()
}

/// Frees the slots with these numbers, in this order.
fn free(slab: &mut ByteSlab, slots: &[ByteSlot], numbers: &[usize]) {
    numbers.iter().for_each(|number| slab.deallocate(slots[*number]));
}

#[test]
fn lengths_round_up_to_powers_of_two_of_at_least_the_smallest_block() {
    let rows = [(1, 16), (15, 16), (16, 16), (17, 32), (32, 32), (33, 64), (1000, 1024)];
    for (len, size) in rows {
        let mut slab = slab(2048);
        let slot = slab.allocate(&vec![1; len]).unwrap();
        assert_eq!((slot.alloc_size, slab.used_bytes()), (size, size as usize), "{len} bytes");
    }
}

#[test]
fn nothing_is_stored_for_zero_bytes() {
    let mut slab = slab(0);
    let slot = slab.allocate(&[]).unwrap();
    assert_eq!(slot, ByteSlot::EMPTY);
    assert!(slot.is_empty());
    assert_eq!(slab.get(slot), b"");
    assert_eq!(slab.try_get(slot), Some(&b""[..]));
    assert_eq!(slab.live_slots(), 0);
    slab.deallocate(slot);
    slab.deallocate(slot);
}

#[test]
fn a_full_slab_names_the_rounded_request_and_the_virgin_bytes() {
    let mut slab = slab(100);
    let first = slab.allocate(&[1; 40]).unwrap();
    let second = slab.allocate(&[2; 16]).unwrap();
    assert_eq!(slab.allocate(&[3; 20]), Err(SlabFull { requested: 32, available: 20 }));
    // 64 free bytes between blocks do not count as available.
    slab.deallocate(first);
    assert_eq!(slab.allocate(&[3; 65]), Err(SlabFull { requested: 128, available: 20 }));
    assert_eq!(slab.get(second), [2; 16]);
    let text = slab.allocate(&[3; 65]).unwrap_err().to_string();
    assert_eq!(text, "slab is full: 128 bytes requested, 20 left beyond all blocks");
}

#[test]
#[cfg(target_pointer_width = "64")]
fn lengths_that_do_not_round_into_a_u32_are_reported_as_u32_max() {
    let slab = slab(64);
    let refused = Err(SlabFull { requested: u32::MAX, available: 64 });
    assert_eq!(slab.block_size(1 << 31), Ok(1 << 31));
    assert_eq!(slab.block_size((1 << 31) + 1), refused);
    assert_eq!(slab.block_size(u32::MAX as usize), refused);
    assert_eq!(slab.block_size(u32::MAX as usize + 1), refused);
    assert_eq!(slab.block_size(usize::MAX), refused);
}

#[test]
#[cfg(target_pointer_width = "64")]
fn a_slab_beyond_u32_is_refused() {
    let requested = u32::MAX as usize + 1;
    let error = ByteSlab::try_new(requested).unwrap_err();
    assert_eq!(error, SlabTooLarge { requested });
    assert!(error.to_string().contains("4294967296 bytes"));
    assert!(panics(|| drop(ByteSlab::new(requested))));
}

#[test]
#[cfg(not(miri))]
fn granules_are_distinct_up_to_the_end_of_the_largest_slab() {
    let mut granules = granules::GranuleSet::new(u32::MAX);
    // The last whole granule; a partial one follows it.
    let end = u32::MAX / MIN_BLOCK * MIN_BLOCK;
    let last = Block { offset: end - MIN_BLOCK, size: MIN_BLOCK };
    let all = Block { offset: 0, size: end };
    assert_eq!(granules.next(0, true), None);
    granules.insert(last);
    assert!(granules.contains(last.offset) && granules.intersects(all));
    assert!(!granules.contains(end));
    assert_eq!(granules.next(0, true), Some(last.offset));
    assert_eq!(granules.next(last.offset, false), Some(end));
    granules.insert(all);
    assert_eq!(granules.next(0, false), Some(end));
    granules.remove(all);
    assert!(!granules.intersects(all));
}

#[test]
fn the_smallest_fitting_block_wins_and_the_first_of_equals() {
    let mut slab = slab(1024);
    let lens = [64, 16, 32, 16, 32, 16, 128, 16];
    let slots: Vec<_> = lens.map(|len| slab.allocate(&vec![1; len]).unwrap()).to_vec();
    // Free: 64, 32, 32 and 128 bytes, separated by live blocks of 16.
    free(&mut slab, &slots, &[6, 4, 0, 2]);
    assert_eq!(slab.allocate(&[1; 20]).unwrap().offset, slots[2].offset);
    assert_eq!(slab.allocate(&[1; 20]).unwrap().offset, slots[4].offset);
    assert_eq!(slab.allocate(&[1; 20]).unwrap().offset, slots[0].offset);
    // The remainder of the 64 is the smallest free block now.
    assert_eq!(slab.allocate(&[1; 32]).unwrap().offset, slots[0].offset + 32);
    assert_eq!(slab.allocate(&[1; 32]).unwrap().offset, slots[6].offset);
}

#[test]
fn freed_neighbours_merge_in_any_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let mut slab = slab(64);
        let slots = fill(&mut slab, 16);
        free(&mut slab, &slots, &order);
        assert_eq!((slab.free_bytes(), slab.free.blocks()), (48, 1), "{order:?}");
        assert_eq!(slab.virgin_bytes(), 0);
        // The last one merges all of them into the virgin space.
        slab.deallocate(slots[3]);
        assert_eq!((slab.free_bytes(), slab.virgin_bytes()), (0, 64));
    }
}

#[test]
fn a_slot_of_another_slab_is_rejected() {
    let (mut ours, mut theirs) = (slab(64), slab(64));
    let (own, foreign) = (ours.allocate(b"own").unwrap(), theirs.allocate(b"foreign").unwrap());
    assert_eq!(ours.try_get(foreign), None);
    assert!(panics(|| ours.get(foreign).len()));
    assert!(panics(|| ours.deallocate(foreign)));
    assert!(panics(|| ours.replace(foreign, b"new")));
    assert!(panics(|| ours.replace(foreign, b"")));
    assert_eq!(ours.get(own), b"own");
    assert_eq!(theirs.get(foreign), b"foreign");
}

#[test]
fn a_slot_from_before_a_clear_is_rejected() {
    let mut slab = slab(64);
    let stale = slab.allocate(b"stale").unwrap();
    slab.clear();
    let fresh = slab.allocate(b"fresh").unwrap();
    assert_eq!(stale.offset, fresh.offset);
    assert_eq!(slab.try_get(stale), None);
    assert!(panics(|| slab.get(stale).len()));
    assert!(panics(|| slab.deallocate(stale)));
    assert_eq!(slab.get(fresh), b"fresh");
}

#[test]
fn freeing_twice_panics_in_every_state_of_the_block() {
    let mut slab = slab(160);
    let slots = fill(&mut slab, 16);
    // Alone in the tree; at both ends and in the middle of a merged block; in the virgin space.
    free(&mut slab, &slots, &[1, 3, 4, 5, 9]);
    for index in [1, 3, 4, 5, 9] {
        assert!(panics(|| slab.deallocate(slots[index])), "slot {index}");
        assert!(panics(|| slab.replace(slots[index], b"new")), "slot {index}");
        assert_eq!(slab.try_get(slots[index]), None);
    }
    assert_eq!((slab.live_slots(), slab.used_bytes()), (5, 80));
    slab.check_free_blocks();
}

#[test]
fn replace_stays_in_place_unless_the_block_is_too_large() {
    let mut slab = slab(512);
    let slot = slab.allocate(&[1; 64]).unwrap();
    let fence = slab.allocate(&[2; 16]).unwrap();
    let half = slab.replace(slot, &[3; 20]).unwrap();
    assert_eq!((half.offset, half.alloc_size, half.len()), (slot.offset, 64, 20));
    let tiny = slab.replace(half, &[4; 5]).unwrap();
    assert_eq!((tiny.offset, tiny.alloc_size), (slot.offset, 16), "the end of the block was freed");
    assert_eq!(slab.free_bytes(), 48);
    assert_eq!((slab.get(tiny), slab.get(fence)), (&[4; 5][..], &[2; 16][..]));
    // The slot from before the split includes bytes that are free now.
    assert!(panics(|| slab.deallocate(half)));
}

#[test]
fn a_failed_replace_keeps_the_old_bytes() {
    let mut slab = slab(96);
    let slot = slab.allocate(&[1; 32]).unwrap();
    let other = slab.allocate(&[2; 16]).unwrap();
    let refused = SlabFull { requested: 64, available: 48 };
    assert_eq!(slab.replace(slot, &[3; 33]), Err(refused));
    assert_eq!((slab.get(slot), slab.get(other)), (&[1; 32][..], &[2; 16][..]));
    assert_eq!((slab.live_slots(), slab.used_bytes()), (2, 48));
}

#[test]
fn replacing_to_and_from_empty_allocates_and_frees() {
    let mut slab = slab(32);
    let slot = slab.replace(ByteSlot::EMPTY, b"something").unwrap();
    assert_eq!((slab.get(slot), slab.live_slots()), (&b"something"[..], 1));
    assert_eq!(slab.replace(slot, b""), Ok(ByteSlot::EMPTY));
    assert_eq!((slab.live_slots(), slab.virgin_bytes()), (0, 32));
}

#[test]
fn zeroize_leaves_no_data_in_the_buffer() {
    const SECRET: u8 = 0xA5;
    let mut slab = slab(512);
    let slots: Vec<_> = (0..8).map(|_| slab.allocate(&[SECRET; 48]).unwrap()).collect();
    free(&mut slab, &slots, &[1, 3, 4, 7]);
    // Debug builds have overwritten the freed bytes: restore the contents that a release build
    // leaves there.
    let blocks = [slots[1].block(), slots[3].block(), slots[4].block()];
    let merged = Block { size: blocks[1].size + blocks[2].size, ..blocks[1] };
    let retracted = slab.bump as usize..slab.high_water as usize;
    assert_eq!(retracted, slots[7].block().bytes());
    for leftover in [unused_bytes(blocks[0]), unused_bytes(merged), retracted] {
        slab.bytes[leftover].fill(SECRET);
    }
    slab.zeroize_used();
    assert!(!slab.bytes.contains(&SECRET));
    assert_eq!(slab.get(slots[0]), [0; 48]);
    assert_eq!(slab.live_slots(), 4);
    // The free blocks are still indexed.
    assert_eq!(slab.allocate(&[1; 64]).unwrap().offset, slots[1].offset);
}

/// A slab with the owner id of [`ByteSlot::EMPTY`] would accept every empty slot as its own.
#[test]
fn owner_ids_skip_none_when_they_wrap() {
    let counter = AtomicU32::new(u32::MAX);
    let ids: Vec<_> = (0..3).map(|_| take_owner_id(&counter)).collect();
    assert_eq!(ids, [u32::MAX, OWNER_NONE + 1, OWNER_NONE + 2]);
}

#[test]
fn debug_output_shows_sizes_and_no_contents() {
    let mut slab = slab(64);
    let slot = slab.allocate(b"secret").unwrap();
    let (slab_text, slot_text) = (format!("{:?}", *slab), format!("{slot:?}"));
    assert!(slab_text.contains("used_bytes: 16"));
    assert!(slot_text.contains("len: 6"));
    let as_numbers = format!("{}, {}", b's', b'e');
    assert!(!format!("{slab_text}{slot_text}").contains("secret"));
    assert!(!format!("{slab_text}{slot_text}").contains(&as_numbers));
}

#[test]
fn the_tree_of_free_blocks_stays_shallow() {
    const BLOCKS: u32 = if cfg!(miri) { 64 } else { 1 << 14 };
    // A random tree of n nodes is 2 ln n deep on average, and very rarely twice that.
    let depth_max = 4.0 * f64::from(BLOCKS).ln();
    for stride in [32, 48, 64, 96, 128, 1024, 4096] {
        let mut buf = vec![0; (BLOCKS * stride) as usize];
        let mut index = FreeIndex::new(BLOCKS * stride);
        let block = |number| Block { offset: number * stride, size: MIN_BLOCK };
        (0..BLOCKS).for_each(|number| index.insert(&mut buf, block(number)));
        let depths = (0..BLOCKS).map(|number| index.depth(&buf, block(number)));
        let deepest = depths.max().unwrap() as f64;
        assert!(deepest <= depth_max, "{deepest} levels at stride {stride}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn debug_build_detects_writes_to_freed_bytes() {
    let mut slab = slab(128);
    let slots = fill(&mut slab, 32);
    slab.deallocate(slots[1]);
    slab.bytes[slots[1].offset as usize + 20] = 0;
    assert!(panics(|| slab.allocate(&[1; 32])));
}

#[test]
#[cfg(debug_assertions)]
fn debug_build_detects_use_of_a_freed_slot() {
    let mut slab = slab(128);
    let slots = fill(&mut slab, 32);
    slab.deallocate(slots[1]);
    assert!(panics(|| slab.get(slots[1]).len()));
}

#[test]
#[cfg(debug_assertions)]
fn debug_build_panics_when_live_slots_are_dropped() {
    let mut slab = ByteSlab::new(64);
    slab.allocate(b"left behind").unwrap();
    assert!(panics(|| drop(slab)));
    // During another panic the drop must not panic again: that would abort and hide the cause.
    assert!(panics(|| {
        let mut slab = ByteSlab::new(64);
        slab.allocate(b"left behind").unwrap();
        panic!("the first panic");
    }));
}

#[test]
#[cfg(debug_assertions)]
fn debug_build_detects_every_broken_invariant() {
    let breakages: [fn(&mut ByteSlab); 6] = [
        |slab| slab.live_bytes += MIN_BLOCK,
        |slab| slab.bump += MIN_BLOCK,
        |slab| slab.high_water = 200,
        |slab| {
            slab.free.unmark(Block { offset: 16, size: 16 });
        },
        |slab| {
            slab.free.mark(Block { offset: 48, size: 16 });
        },
        |slab| slab.bytes[16 + 28] ^= 32,
    ];
    for (number, break_it) in breakages.into_iter().enumerate() {
        let mut slab = ByteSlab::new(128);
        let slots = fill(&mut slab, 16);
        // One free block of two granules.
        slab.deallocate(slots[1]);
        slab.deallocate(slots[2]);
        slab.check();
        break_it(&mut slab);
        assert!(panics(|| slab.check()), "corruption {number} was not detected");
        // Its counts are wrong on purpose; without this the drop check would panic.
        slab.live_slots = 0;
    }
}

#[test]
fn parts_are_stored_as_their_concatenation() {
    let mut slab = ByteSlab::new(64);
    let slot = slab.allocate_parts(&[b"start", b"", b"end"]).unwrap();
    assert_eq!((slab.get(slot), slab.used_bytes()), (b"startend".as_slice(), 16));
    let slot = slab.replace_parts(slot, &[b"other", b" parts"]).unwrap();
    assert_eq!(slab.get(slot), b"other parts");
    slab.prefetch(slot);
    assert_eq!(slab.replace_parts(slot, &[b"", b""]), Ok(ByteSlot::EMPTY));
    assert_eq!(slab.allocate_parts(&[]), Ok(ByteSlot::EMPTY));
    assert_eq!(slab.live_slots(), 0);
}

#[test]
fn slots_allocated_in_sequence_match_their_spacing() {
    let mut slab = ByteSlab::new(256);
    let slots: Vec<_> = (0..6).map(|byte| slab.allocate(&[byte; 20]).unwrap()).collect();
    let spacing = SlotSpacing::between(slots[0], slots[1]);
    for (number, slot) in slots.iter().enumerate() {
        assert_eq!(spacing.offset(number as u32), slot.offset);
    }
    let backwards = SlotSpacing::between(slots[4], slots[3]);
    assert_eq!(backwards.offset(2), slots[2].offset);
    // A wrong prediction is harmless.
    for (spacing, number) in [(spacing, 5), (spacing, u32::MAX), (backwards, 9), (backwards, 0)] {
        slab.prefetch_spaced(spacing, number);
    }
    slab.clear();
}

#[test]
fn parts_whose_total_does_not_fit_are_rejected() {
    let mut slab = ByteSlab::new(32);
    let slot = slab.allocate(b"kept").unwrap();
    let full = SlabFull { requested: 32, available: 16 };
    assert_eq!(slab.allocate_parts(&[&[1; 16], &[2]]), Err(full));
    assert_eq!(slab.replace_parts(slot, &[&[1; 16], &[2]]), Err(full));
    assert_eq!((slab.get(slot), slab.used_bytes()), (b"kept".as_slice(), 16));
    slab.deallocate(slot);
}
