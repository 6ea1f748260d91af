//! Bounded containers, child processes and small functions that the workspace needs and `std` does
//! not provide.
//!
//! - [`RingBuffer`]: a FIFO queue of at most `N` items, stored inline, oldest first.
//! - [`InlineVec`]: a vector that stores up to `N` items inline and spills to the heap beyond.
//! - [`ByteSlab`]: byte strings in one buffer of fixed size, addressed by [`ByteSlot`].
//! - [`prefetch()`]: a hint to the processor that a value will be read soon.
//! - [`percent_decode()`]: text of a URL without its escapes.
//! - [`spawn`]: child processes that signals of the terminal do not reach, and that die with us.
//!
//! ```
//! use gossip_stdx::{ByteSlab, RingBuffer};
//!
//! // A full slab returns an error and is unchanged; it never grows.
//! let mut slab = ByteSlab::new(16);
//! let key = slab.allocate(b"orders/17")?;
//! assert!(slab.allocate(b"orders/18").is_err());
//! assert_eq!(slab.get(key), b"orders/17");
//! slab.deallocate(key);
//!
//! let mut recent = RingBuffer::<u32, 2>::new();
//! for id in [7, 8, 9] {
//!     recent.push_back_overwrite(id);
//! }
//! assert!(recent.iter().eq(&[8, 9]));
//! # Ok::<(), gossip_stdx::SlabFull>(())
//! ```
//!
//! This crate has no notion of shards, keys or runs. Apart from [`spawn`] and [`process`] it never
//! does I/O and never makes a system call.
//! It is the only product crate that may contain `unsafe` code. Only modules marked
//! `#[expect(unsafe_code)]` contain any; each block has a `SAFETY` comment. Those of the containers
//! run under Miri, those of [`spawn`] are tested with real processes.

#![deny(unsafe_code)]

mod inline_vec;
mod percent;
#[expect(unsafe_code, reason = "the processor's prefetch instruction takes a pointer")]
mod prefetch;
pub mod process;
#[expect(unsafe_code, reason = "unoccupied slots are MaybeUninit")]
mod ring_buffer;
mod slab;
pub mod spawn;

#[cfg(test)]
mod inline_vec_tests;
#[cfg(test)]
mod ring_buffer_tests;
#[cfg(test)]
mod test_support;

pub use inline_vec::{InlineVec, IntoIter as InlineVecIntoIter};
pub use percent::percent_decode;
pub use prefetch::{prefetch, prefetch_whole};
pub use ring_buffer::{IntoIter as RingBufferIntoIter, Iter as RingBufferIter, RingBuffer};
pub use slab::{ByteSlab, ByteSlot, SlabFull, SlabTooLarge, SlotSpacing};
