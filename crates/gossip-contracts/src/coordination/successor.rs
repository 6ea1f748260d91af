//! The successor of a key: the smallest key strictly greater than it, within the size limit.
//!
//! This is the only implementation. Residual split planning uses it, and `gossip-frontier` builds
//! its range arithmetic on it. Nothing here allocates; results are written to the caller's buffer.

use super::MAX_KEY_SIZE;

/// Writes the smallest key greater than `key` into `out` and returns its length.
///
/// Below [`MAX_KEY_SIZE`] that is `key` with a zero byte appended. At the limit nothing can be
/// appended, so it is the [prefix successor](prefix_successor_into). Returns `None` if there is no
/// such key: `key` is the largest possible, or exceeds the size limit.
#[must_use]
pub fn key_successor_into(key: &[u8], out: &mut [u8; MAX_KEY_SIZE]) -> Option<usize> {
    if key.len() >= MAX_KEY_SIZE {
        // Returns `None` for a key above the limit.
        return prefix_successor_into(key, out);
    }
    out[..key.len()].copy_from_slice(key);
    out[key.len()] = 0;
    Some(key.len() + 1)
}

/// Writes the smallest key greater than every key that begins with `prefix` into `out` and returns
/// its length.
///
/// That is the prefix up to its last byte that is not 0xFF, with that byte incremented. Returns
/// `None` if there is no such key: the prefix is empty or all 0xFF, or exceeds the size limit.
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
