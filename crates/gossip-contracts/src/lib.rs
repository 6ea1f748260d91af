//! Contracts.
#![forbid(unsafe_code)]

pub mod coordination;
