//! Shard coordination for scans: process every key of a source, resume where it stopped, and prove
//! that nothing was missed.
//!
//! [`store`] selects a store by URL.
#![forbid(unsafe_code)]

pub mod store;
