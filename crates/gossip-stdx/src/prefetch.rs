//! A hint to the processor that something will be read soon.
//!
//! Records of a large table are spread over memory: reading one part after another waits for each.
//! Asking for all of them first waits for the slowest only. A hint never changes what a program
//! computes; where the processor is not known, it does nothing.

/// Bytes that come together from memory: the line size of every processor this is measured on.
pub const CACHE_LINE: usize = 64;

/// Asks for the line that holds the first byte of `value`, for reading or writing.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).cast());
}

/// Asks for every line that `value` itself occupies; what it points to is not followed.
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
        // SAFETY: prefetching has no effect on the program, whatever the address. The instruction
        // is part of every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
