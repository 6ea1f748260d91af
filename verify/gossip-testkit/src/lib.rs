//! What the tests and benchmarks of every crate share.
//!
//! - [`CountingAllocator`]: shows that a hot path allocates nothing, and refuses large requests.
//! - [`Rng`]: pseudo-random numbers from a seed.
//! - `recording_vfs` (feature `sqlite`): a record of what SQLite writes and syncs.
//! - [`test_support`]: real etcd and PostgreSQL servers, a proxy and a network that cut them off.
//!
//! This crate depends on no product crate, so a unit test of any of them can use it. Its unsafe
//! code carries `SAFETY` notes. The allocator runs under Miri; the hooks of SQLite, which are calls
//! into C, are tested with real files.

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
mod counting_alloc;
#[cfg(feature = "sqlite")]
#[expect(unsafe_code, reason = "SQLite calls a file layer through C function pointers")]
pub mod recording_vfs;
mod rng;
pub mod test_support;

pub use self::counting_alloc::{
    AllocationCounts, CountingAllocator, count_allocations, with_allocation_limit,
};
pub use self::rng::{GOLDEN_STEP, Rng, mix};
