//! Contracts.
#![forbid(unsafe_code)]
