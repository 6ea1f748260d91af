//! Frontier.
#![forbid(unsafe_code)]
