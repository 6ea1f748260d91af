//! The runtime: workers that touch every key of a source, and the proof that they did.
#![forbid(unsafe_code)]

mod accumulator;
pub mod connectors;
mod token;

#[cfg(test)]
mod accumulator_tests;
#[cfg(test)]
mod token_tests;

pub use self::accumulator::{ACCUMULATOR_LEN, Accumulator, AccumulatorError};
pub use self::token::{RUNTIME_TOKEN_LEN, RuntimeToken, TokenError};
