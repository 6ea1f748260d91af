//! The next key: the smallest one strictly greater than a given key, within the size limit.
//!
//! Written here once. Residual split planning uses it, and `gossip-frontier` builds its range
//! arithmetic on it. Nothing here allocates; results go into the caller's buffer.

use super::MAX_KEY_SIZE;

/// Writes the smallest key greater than `key` into `out` and returns its length.
///
/// Below [`MAX_KEY_SIZE`] that is `key` with a zero byte appended. At the limit nothing can be
/// appended, so it is the [prefix successor](prefix_successor_into). `None` when there is none:
/// the key is the largest possible, or longer than any key may be.
#[must_use]
pub fn key_successor_into(key: &[u8], out: &mut [u8; MAX_KEY_SIZE]) -> Option<usize> {
    if key.len() >= MAX_KEY_SIZE {
        // Refuses what is longer still.
        return prefix_successor_into(key, out);
    }
    out[..key.len()].copy_from_slice(key);
    out[key.len()] = 0;
    Some(key.len() + 1)
}

/// Writes the smallest key greater than every key that begins with `prefix` into `out` and returns
/// its length.
///
/// That is the prefix up to its last byte that is not 0xFF, with that byte incremented. `None` when
/// there is none: the prefix is empty or all 0xFF, or longer than any key may be.
#[must_use]
pub fn prefix_successor_into(prefix: &[u8], out: &mut [u8; MAX_KEY_SIZE]) -> Option<usize> {
    if prefix.len() > MAX_KEY_SIZE {
        return None;
    }
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    out[..=last].copy_from_slice(&prefix[..=last]);
    // The byte is not 0xFF, so this cannot overflow.
    out[last] += 1;
    Some(last + 1)
}
