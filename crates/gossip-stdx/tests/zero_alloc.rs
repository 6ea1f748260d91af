//! The hot paths of every container do not allocate.
//!
//! Nothing is warmed up first: every allocation after construction is counted.

use std::hint::black_box;
use std::sync::Barrier;

use gossip_stdx::{ByteSlab, ByteSlot, InlineVec, RingBuffer};
use gossip_testkit::{CountingAllocator, count_allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Fewer rounds under Miri, which is some hundred times slower.
const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

#[track_caller]
fn assert_allocates_nothing<R>(action: impl FnOnce() -> R) -> R {
    let (result, counts) = count_allocations(action);
    assert_eq!((counts.allocations, counts.deallocations, counts.bytes), (0, 0, 0));
    result
}

#[test]
fn the_counter_counts_allocations() {
    let (vec, counts) = count_allocations(|| {
        // The optimiser may remove allocations whose result is unused.
        let mut vec = black_box(Vec::<u8>::with_capacity(100));
        vec.reserve_exact(200);
        drop(black_box(Box::new(1_u64)));
        black_box(vec)
    });
    assert_eq!((counts.allocations, counts.deallocations, counts.bytes), (3, 1, 308));
    let ((), counts) = count_allocations(|| drop(vec));
    assert_eq!((counts.allocations, counts.deallocations), (0, 1));
    let (_, counts) = count_allocations(|| black_box(vec![0_u32; 5]));
    assert_eq!((counts.allocations, counts.bytes), (1, 20));
}

#[test]
fn allocations_of_other_threads_are_not_counted() {
    let (ready, done) = (Barrier::new(2), Barrier::new(2));
    let ((), counts) = std::thread::scope(|scope| {
        scope.spawn(|| {
            ready.wait();
            drop(black_box(vec![0_u8; 1000]));
            done.wait();
        });
        count_allocations(|| {
            ready.wait();
            done.wait();
        })
    });
    assert_eq!(counts.allocations, 0);
}

#[test]
fn a_ring_never_allocates() {
    assert_allocates_nothing(|| {
        let mut ring = RingBuffer::<usize, 16>::new();
        for round in 0..ROUNDS {
            let _ = ring.push_back(round);
            ring.push_back_overwrite(round);
            if round % 5 == 0 {
                ring.pop_front();
            }
        }
        let copy = ring.clone();
        assert_eq!(copy, ring);
        assert_eq!(ring.iter().rev().count(), ring.into_iter().count());
    });
}

#[test]
fn an_inline_vec_allocates_nothing_up_to_its_inline_capacity() {
    let items: Vec<u32> = (0..64).collect();
    assert_allocates_nothing(|| {
        let mut vec = InlineVec::<u32, 64>::from_slice(&items);
        vec.sort_unstable_by(|a, b| b.cmp(a));
        vec.truncate(10);
        vec.extend_from_slice(&items[10..30]);
        vec.extend(items[30..64].iter().copied());
        assert_eq!(vec.pop(), Some(63));
        vec.push(63);
        let collected: InlineVec<u32, 64> = vec.iter().copied().collect();
        assert_eq!(collected, vec);
        let copy = vec.clone();
        assert_eq!(copy, vec);
        assert_eq!(copy.into_iter().count(), 64);
    });
}

#[test]
fn an_inline_vec_spills_with_one_allocation() {
    let items = [7_u8; 9];
    let (_, counts) = count_allocations(|| InlineVec::<u8, 8>::from_slice(&items));
    assert_eq!(counts.allocations, 1);
    let (_, counts) = count_allocations(|| items.iter().copied().collect::<InlineVec<u8, 8>>());
    assert_eq!(counts.allocations, 1);
    let mut vec = InlineVec::<u8, 8>::from_slice(&items[..8]);
    let ((), counts) = count_allocations(|| vec.push(1));
    assert_eq!(counts.allocations, 1);
}

#[test]
fn a_slab_never_allocates_after_construction() {
    const SLOTS: usize = if cfg!(miri) { 30 } else { 2000 };
    let bytes = [0x5A; 300];
    let mut slab = ByteSlab::new(SLOTS * 128);
    let mut slots = [ByteSlot::EMPTY; SLOTS];
    assert_allocates_nothing(|| {
        let mut refused = 0;
        for round in 0..ROUNDS {
            // Step widths coprime to the number of slots visit all of them in mixed order.
            let (index, len) = (round * 7919 % SLOTS, round * 31 % bytes.len());
            if round % 3 == 0 {
                slab.deallocate(std::mem::replace(&mut slots[index], ByteSlot::EMPTY));
            } else {
                match slab.replace(slots[index], &bytes[..len]) {
                    Ok(slot) => slots[index] = slot,
                    Err(_) => refused += 1,
                }
            }
            assert!(slab.get(slots[index]).iter().all(|byte| *byte == 0x5A));
        }
        assert!(cfg!(miri) || refused > 0, "the slab must have been full at least once");
        slab.zeroize_used();
        slab.clear();
        let slot = slab.allocate(&bytes).unwrap();
        slab.deallocate(slot);
    });
}

#[test]
fn live_and_peak_bytes_follow_the_held_allocations() {
    let (kept, counts) = count_allocations(|| {
        drop(black_box(vec![0_u8; 3000]));
        let mut kept = black_box(Vec::<u8>::with_capacity(1000));
        kept.reserve_exact(1500);
        kept
    });
    assert_eq!((counts.live_bytes, counts.peak_bytes), (1500, 3000));
    let ((), counts) = count_allocations(|| drop(kept));
    assert_eq!((counts.live_bytes, counts.peak_bytes), (-1500, 0));
}
