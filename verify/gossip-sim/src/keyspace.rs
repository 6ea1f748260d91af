//! The keys of simulated runs: long, of different lengths, and numbered.
//!
//! All runs share one key space, so that a mixed-up run or tenant finds keys that look valid. The
//! oracle uses numbers: key `n` is the `n`-th in byte order, and position `n` means that the keys
//! before `n` are done.

use super::random::mix;

/// Keys of the largest run.
pub(super) const KEYS_MAX: u32 = 256;

/// Prefix of every key, with multi-byte characters.
const PREFIX: &[u8] = "schlüssel/鍵/".as_bytes();

/// Digits of the number in a key; a digit is two bytes.
const DIGITS: usize = 3;

/// The longest suffix of a key.
const TAIL_MAX: u64 = 40;

/// Every key in byte order, and one more that ends the last range.
#[derive(Debug)]
pub(super) struct Keyspace {
    keys: Vec<Box<[u8]>>,
}

impl Keyspace {
    pub(super) fn new() -> Self {
        Self { keys: (0..=KEYS_MAX).map(key).collect() }
    }

    /// Returns key `number`.
    pub(super) fn key(&self, number: u32) -> &[u8] {
        &self.keys[number as usize]
    }

    /// Returns the number of a key; `None` if it is not in the key space.
    pub(super) fn number(&self, key: &[u8]) -> Option<u32> {
        let digits = key.get(PREFIX.len()..PREFIX.len() + 2 * DIGITS)?;
        let number = digits.chunks_exact(2).try_fold(0_u32, |number, digit| {
            Some(number << 4 | u32::from(digit[1].checked_sub(DIGIT_BASE)?))
        })?;
        (self.keys.get(number as usize)?.as_ref() == key).then_some(number)
    }
}

/// The second byte of a digit: `À` and its successors are two bytes each.
const DIGIT_BASE: u8 = 0x80;

fn key(number: u32) -> Box<[u8]> {
    let mut key = PREFIX.to_vec();
    for digit in (0..DIGITS).rev() {
        let nibble = number >> (4 * digit) & 0xF;
        key.extend([0xC3, DIGIT_BASE + nibble as u8]);
    }
    // Suffixes contain every byte, including terminators and separators.
    let mut state = mix(u64::from(number) + 1);
    for _ in 0..state % TAIL_MAX {
        state = mix(state);
        key.push(state.to_le_bytes()[0]);
    }
    key.into()
}
