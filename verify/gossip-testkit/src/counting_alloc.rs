//! A global allocator that counts, so that "allocates nothing" is a test and not a comment, and
//! that can refuse, so that "survives a lack of memory" is one too.
//!
//! Counts are kept per thread, so tests that run beside each other do not disturb each other; what
//! another thread allocates on behalf of the measured code is not seen. All memory comes from
//! [`System`]; nothing is changed, and nothing limited outside of [`with_allocation_limit`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::ptr;

/// The system allocator, counting what each thread asks of it.
///
/// A test binary installs it once:
///
/// ```
/// use gossip_testkit::{CountingAllocator, count_allocations};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator;
///
/// let (sum, counts) = count_allocations(|| (1..=10_u32).sum::<u32>());
/// assert_eq!((sum, counts.allocations), (55, 0));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// What one thread asked of the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationCounts {
    /// Requests for memory; growing or shrinking a piece counts as one.
    pub allocations: u64,
    /// Pieces given back; growing or shrinking one does not count.
    pub deallocations: u64,
    /// Bytes requested, counting the whole new size when a piece is resized.
    pub bytes: u64,
    /// Bytes requested minus bytes freed; negative if this thread freed memory of other threads.
    pub live_bytes: i64,
    /// The highest `live_bytes` on the way. Resizing a piece counts as holding both for a moment,
    /// as it does when the piece has to move.
    pub peak_bytes: i64,
}

/// Runs `action` and returns what it returned and what it asked of the allocator on this thread.
///
/// # Panics
///
/// When [`CountingAllocator`] is not the global allocator: every count would be zero, and a test
/// that expects zero would prove nothing.
pub fn count_allocations<R>(action: impl FnOnce() -> R) -> (R, AllocationCounts) {
    assert_installed();
    let before = COUNTS.get();
    COUNTS.set(AllocationCounts { peak_bytes: before.live_bytes, ..before });
    let result = action();
    let after = COUNTS.get();
    // A measurement around this one sees its peak too.
    let peak_bytes = before.peak_bytes.max(after.peak_bytes);
    COUNTS.set(AllocationCounts { peak_bytes, ..after });
    let counts = AllocationCounts {
        allocations: after.allocations - before.allocations,
        deallocations: after.deallocations - before.deallocations,
        bytes: after.bytes - before.bytes,
        live_bytes: after.live_bytes - before.live_bytes,
        peak_bytes: after.peak_bytes - before.live_bytes,
    };
    (result, counts)
}

/// Runs `action` while every request of this thread for more than `largest` bytes is refused, as if
/// the system had no more. Refused requests are not counted.
///
/// # Panics
///
/// When [`CountingAllocator`] is not the global allocator: nothing would be refused.
pub fn with_allocation_limit<R>(largest: usize, action: impl FnOnce() -> R) -> R {
    /// Puts the limit back, also when `action` panics.
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            LARGEST.set(self.0);
        }
    }
    assert_installed();
    let _restore = Restore(LARGEST.replace(largest));
    action()
}

thread_local! {
    /// The largest request that is not refused; constant for the reason given below.
    static LARGEST: Cell<usize> = const { Cell::new(usize::MAX) };
}

thread_local! {
    // Constant and without a destructor: reading it neither allocates nor fails, at any time of a
    // thread's life, so the allocator itself may.
    static COUNTS: Cell<AllocationCounts> = const {
        Cell::new(AllocationCounts {
            allocations: 0,
            deallocations: 0,
            bytes: 0,
            live_bytes: 0,
            peak_bytes: 0,
        })
    };
}

// SAFETY: every call is passed on unchanged to `System`, whose contract is the same, or refused by
// a null pointer, which the contract allows; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return ptr::null_mut();
        }
        count_request(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return ptr::null_mut();
        }
        count_request(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_refused(new_size) {
            return ptr::null_mut();
        }
        count_request(new_size);
        count_return(layout.size());
        // SAFETY: the caller keeps the contract of `realloc`, and `memory` came from `System`.
        unsafe { System.realloc(memory, layout, new_size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let mut counts = COUNTS.get();
        counts.deallocations = counts.deallocations.wrapping_add(1);
        COUNTS.set(counts);
        count_return(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`, and `memory` came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn is_refused(size: usize) -> bool {
    size > LARGEST.get()
}

fn count_request(size: usize) {
    let mut counts = COUNTS.get();
    counts.allocations = counts.allocations.wrapping_add(1);
    counts.bytes = counts.bytes.wrapping_add(size as u64);
    counts.live_bytes = counts.live_bytes.wrapping_add_unsigned(size as u64);
    counts.peak_bytes = counts.peak_bytes.max(counts.live_bytes);
    COUNTS.set(counts);
}

fn count_return(size: usize) {
    let mut counts = COUNTS.get();
    counts.live_bytes = counts.live_bytes.wrapping_sub_unsigned(size as u64);
    COUNTS.set(counts);
}

fn assert_installed() {
    let before = COUNTS.get().allocations;
    drop(black_box(Box::new(0_u8)));
    assert_ne!(COUNTS.get().allocations, before, "CountingAllocator is not the global allocator");
}
