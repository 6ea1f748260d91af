//! Sources of keys: integers so far.
//!
//! Every connector here keeps the contract of
//! [`gossip_contracts::connector`] and passes its conformance suite. They never
//! start threads or read a clock.

mod decimal;
mod integers;
mod spread;

#[cfg(test)]
mod decimal_tests;
#[cfg(test)]
mod integers_tests;
#[cfg(test)]
mod test_support;

pub use self::decimal::{NUMBER_KEY_LEN, number_key, parse_number_key};
pub use self::integers::IntegerRange;
