//! Numbers as keys: twenty decimal digits with leading zeros.
//!
//! At a fixed width byte order is numeric order, every number of 64 bits has a key, and a person
//! who reads a certificate or a log needs no tool. Eight big-endian bytes would be shorter but not
//! readable, and keys of files and numbers are never the bulk of the stored data.
//!
//! Ranges may be cut at any bytes, also at such as are no number; [`lower_bound`] gives them a
//! meaning.

use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};

/// Digits of a key: as many as the greatest number has.
pub const NUMBER_KEY_LEN: usize = 20;

const _: () = assert!(NUMBER_KEY_LEN == u64::MAX.ilog10() as usize + 1);

/// Returns the key of a number.
#[must_use]
pub fn number_key(number: u64) -> [u8; NUMBER_KEY_LEN] {
    let mut key = [b'0'; NUMBER_KEY_LEN];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit += u8::try_from(rest % 10).expect("a remainder of ten is a digit");
        rest /= 10;
    }
    debug_assert!(rest == 0, "twenty digits take every number");
    key
}

/// Returns the number of a key, if it is the key of one.
#[must_use]
pub fn parse_number_key(key: &[u8]) -> Option<u64> {
    let digits: &[u8; NUMBER_KEY_LEN] = key.try_into().ok()?;
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Returns the first number whose key is not below `bound`, if any is.
pub(super) fn lower_bound(bound: &[u8]) -> Option<u64> {
    // Most bounds are keys themselves.
    if let Some(number) = parse_number_key(bound) {
        return Some(number);
    }
    if *bound <= number_key(u64::MAX)[..] {
        Some(first_where(|number| number_key(number)[..] >= *bound))
    } else {
        None
    }
}

/// Returns the numbers whose keys lie in `range` and above the cursor: from the first up to, not
/// including, the second. `None` there means that nothing bounds them.
///
/// The first is `None` if no number is left.
pub(super) fn numbers_in(
    range: ShardSpecRef<'_>,
    from: CursorUpdate<'_>,
) -> (Option<u64>, Option<u64>) {
    let end = if range.end.is_empty() { None } else { lower_bound(range.end) };
    let start = lower_bound(range.start);
    let after = match from.last_key() {
        None => Some(0),
        Some(key) => match lower_bound(key) {
            // The cursor's own key is done; one that only sorts above the cursor is not.
            Some(number) if number_key(number)[..] == *key => number.checked_add(1),
            other => other,
        },
    };
    (start.zip(after).map(|(start, after)| start.max(after)), end)
}

/// Returns the first number for which `holds`, which must hold of every greater one and of the
/// greatest.
///
/// By halving, with the comparison of keys itself: no second rule of how bytes compare to digits.
fn first_where(holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
