//! A hint to the processor that a value will be read soon.
//!
//! The parts of a record in a large table lie in different cache lines, and reading them in
//! sequence waits for each. Prefetching all of them first waits only for the slowest. A hint never
//! changes the result of a program; on architectures without support it does nothing.

/// Cache line size in bytes of every processor this is measured on.
pub(crate) const CACHE_LINE: usize = 64;

/// Prefetches the cache line that holds the first byte of `value`, for reading or writing.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).cast());
}

/// Prefetches every cache line that `value` itself occupies; pointers in it are not followed.
#[inline(always)]
pub fn prefetch_whole<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of_val(value)).step_by(CACHE_LINE) {
        prefetch_at(start.wrapping_add(offset));
    }
}

#[inline(always)]
fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching has no effect on the program, for any address. The instruction is
        // part of every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
