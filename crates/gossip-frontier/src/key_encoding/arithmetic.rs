//! Successors and midpoints of byte keys.
//!
//! `gossip-contracts` defines the rules of successors, because it plans splits with them; this
//! module applies them to the [`KeyBuf`] that all arithmetic of this crate shares.

use gossip_contracts::coordination::{MAX_KEY_SIZE, key_successor_into, prefix_successor_into};

use super::KeyBuf;

/// Returns the smallest key greater than every key that starts with `prefix`, written into `buf`.
///
/// The rightmost byte that is not `0xFF` is incremented and everything after it is dropped, as
/// FoundationDB's `strinc` and CockroachDB's `Key.PrefixEnd` do. O(n), no heap.
///
/// Returns `None` if `prefix` is empty, all `0xFF`, or longer than [`MAX_KEY_SIZE`].
pub fn prefix_successor<'b>(prefix: &[u8], buf: &'b mut KeyBuf) -> Option<&'b [u8]> {
    buf.write_key(|out| prefix_successor_into(prefix, out))
}

/// Returns the smallest key strictly greater than `key`, written into `buf`.
///
/// Below [`MAX_KEY_SIZE`] that is `key` with a `0x00` appended, the tightest possible successor. At
/// [`MAX_KEY_SIZE`] nothing can be appended and the result is that of [`prefix_successor`]. O(n),
/// no heap.
///
/// Returns `None` if `key` is longer than [`MAX_KEY_SIZE`], or that long and all `0xFF`.
pub fn key_successor<'b>(key: &[u8], buf: &'b mut KeyBuf) -> Option<&'b [u8]> {
    buf.write_key(|out| key_successor_into(key, out))
}

/// Returns a key strictly between `a` and `b`, about half-way, written into `out`.
///
/// Keys are read as big-endian fractions, the shorter one padded with zeros:
///
/// 1. add them, from the last byte with carry;
/// 2. halve the sum, from the first byte by long division;
/// 3. if the sum carried, try the quotient without its leading `0x00`;
/// 4. try the quotient unchanged;
/// 5. fall back to the [`key_successor`] of `a`.
///
/// O(max(m, n)), no heap. Returns `None` if `a >= b` or either is longer than [`MAX_KEY_SIZE`];
/// otherwise only if no key of at most [`MAX_KEY_SIZE`] bytes lies between them, because the last
/// phase tries the smallest possible candidate.
pub fn byte_midpoint<'b>(a: &[u8], b: &[u8], out: &'b mut KeyBuf) -> Option<&'b [u8]> {
    out.clear();
    if a >= b || a.len() > MAX_KEY_SIZE || b.len() > MAX_KEY_SIZE {
        return None;
    }
    let inside = |candidate: &[u8]| a < candidate && candidate < b;
    let width = a.len().max(b.len());

    // Phases 1 and 2. The mean of two different keys lies between them as a number, but rounding
    // down can make it equal to `a`, and padding can make it equal to `b`: hence the checks below.
    add_padded(a, b, out);
    halve(out);
    // Phase 3. A carry made the sum one digit longer; its half starts with an extra zero, which
    // would sort below both keys.
    if out.len() == width + 1 && inside(&out.as_bytes()[1..]) {
        out.bytes.copy_within(1..=width, 0);
        out.len = width;
        return Some(out.as_bytes());
    }
    // Phase 4. Without a carry the quotient is as long as the longer key.
    if out.len() <= MAX_KEY_SIZE && inside(out.as_bytes()) {
        return Some(out.as_bytes());
    }
    // Phase 5. The keys are adjacent at this width: the successor of `a` is the smallest key above
    // `a`, so if it is not below `b`, no key is.
    if !key_successor(a, out).is_some_and(inside) {
        out.clear();
        return None;
    }
    Some(out.as_bytes())
}

/// Phase 1: the sum of two fractions, one byte longer than the longer key if it carries.
fn add_padded(a: &[u8], b: &[u8], sum: &mut KeyBuf) {
    let (shorter, longer) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    // Digits beyond the end of the shorter key are zero and need no addition.
    sum.copy_from_slice(longer);
    let mut carry = false;
    for (digit, &addend) in sum.bytes[..shorter.len()].iter_mut().zip(shorter).rev() {
        let (partial, first) = digit.overflowing_add(addend);
        let (total, second) = partial.overflowing_add(u8::from(carry));
        *digit = total;
        carry = first || second;
    }
    if carry {
        sum.bytes.copy_within(..longer.len(), 1);
        sum.bytes[0] = 1;
        sum.len = longer.len() + 1;
    }
}

/// Phase 2: half of the sum, rounded down, in as many bytes.
fn halve(sum: &mut KeyBuf) {
    let mut remainder = 0;
    for digit in &mut sum.bytes[..sum.len] {
        let odd = *digit & 1;
        *digit = (remainder << 7) | (*digit >> 1);
        remainder = odd;
    }
}
