//! Containers with hard ceilings: what the rest of the workspace needs and `std` lacks.
//!
//! - [`RingBuffer`]: the last `N` things, inline, oldest first.
//! - [`InlineVec`]: a vector that lives inline up to `N` items and on the heap beyond.
//! - [`ByteSlab`]: byte strings in one buffer that never grows, addressed by [`ByteSlot`].
//! - [`prefetch`]: a hint to the processor that something will be read soon.
//!
//! This crate never does I/O, never reads a clock and knows nothing of shards, keys or runs.
//! It is the only product crate that may hold `unsafe` code, and only the modules below
//! that say so do; each block carries its `SAFETY` note and runs under Miri.

#![deny(unsafe_code)]

mod inline_vec;
#[expect(unsafe_code, reason = "the processor's prefetch instruction takes a pointer")]
mod prefetch;
#[expect(unsafe_code, reason = "slots that hold nothing yet are MaybeUninit")]
mod ring_buffer;
mod slab;

#[cfg(test)]
mod inline_vec_tests;
#[cfg(test)]
mod ring_buffer_tests;
#[cfg(test)]
mod test_support;

pub use inline_vec::{InlineVec, IntoIter as InlineVecIntoIter};
pub use prefetch::{CACHE_LINE, prefetch, prefetch_whole};
pub use ring_buffer::{IntoIter as RingBufferIntoIter, Iter as RingBufferIter, RingBuffer};
pub use slab::{ByteSlab, ByteSlot, SlabFull, SlabTooLarge, SlotSpacing};
