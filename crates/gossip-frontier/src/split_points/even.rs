//! Even splits of a range of which only the bounds are known.

use std::mem;

use gossip_contracts::coordination::{MAX_KEY_SIZE, MAX_SPLIT_CHILDREN};

use crate::key_encoding::{KeyBuf, key_successor};
use crate::key_range::KeyRange;

/// Number of digits computed after the position where the bounds diverge.
///
/// The width of the range is then at least 256⁷ units, of which rounding costs a part less than
/// two; and at most 256⁹, so that it can be multiplied by any number of parts in 128 bits.
const PRECISION: usize = 8;

const _: () = assert!(MAX_SPLIT_CHILDREN as u128 <= u128::MAX >> (8 * (PRECISION + 1)));
// Unless the size limit of a key truncates it, a range has units for any number of parts.
const _: () = assert!(MAX_SPLIT_CHILDREN as u128 <= 256_u128.pow(PRECISION as u32 - 1));

/// Maximum number of keys of a range with fewer units than parts.
///
/// Such a range has less than [`MAX_SPLIT_CHILDREN`] units, hence at most that many different
/// fractions, each of them one key. Of 256 adjacent fractions exactly one ends in zeros, and only
/// that one has further spellings, of at most [`MAX_KEY_SIZE`] lengths.
const COUNTED_KEYS_MAX: usize = MAX_KEY_SIZE + MAX_SPLIT_CHILDREN;

const _: () = assert!(MAX_SPLIT_CHILDREN <= 256);

/// Writes the points into `bufs`, which has `parts - 1` buffers, and returns their number.
pub(super) fn cut(range: KeyRange<'_>, parts: usize, bufs: &mut [KeyBuf]) -> usize {
    let window = Window::around(range);
    if window.span < parts as u128 {
        return cut_by_counting(range, parts, bufs);
    }
    for (index, buf) in (1..parts as u128).zip(bufs.iter_mut()) {
        window.point(window.span * index / parts as u128, buf);
    }
    bufs.len()
}

/// A range, reduced to the digits that an even split needs.
///
/// A key is read as a big-endian base-256 fraction, padded with zeros and truncated after `digits`
/// digits; one unit is the last of these.
struct Window<'a> {
    start: &'a [u8],
    /// At most [`MAX_KEY_SIZE`], so that every point is a key.
    digits: usize,
    /// Units between the bounds.
    span: u128,
}

impl<'a> Window<'a> {
    /// Selects the digits from the position where the bounds diverge, usually the first digit in
    /// which they differ. If that digit differs by just one, a run of `FF…` in the start against
    /// `00…` in the end adds nothing to their difference (0.1999… against 0.2), and they diverge
    /// after it.
    fn around(range: KeyRange<'a>) -> Self {
        let (start, end) = (range.start(), range.end());
        let longest = start.len().max(end.len());
        let differs = |&at: &usize| digit(start, at) != digit(end, at);
        let Some(first) = (0..longest).find(differs) else {
            // The end is the start followed by zeros: two spellings of one fraction.
            return Self { start, digits: longest, span: 0 };
        };
        let mut span = u128::from(digit(end, first) - digit(start, first));
        let mut next = first + 1;
        while span == 1 && digit(start, next) == u8::MAX && digit(end, next) == 0 {
            next += 1;
        }
        let digits = (next + PRECISION).min(MAX_KEY_SIZE);
        for at in next..digits {
            // At least 1 before, so at least 256 + 0 - 255 after.
            span = span * 256 + u128::from(digit(end, at)) - u128::from(digit(start, at));
        }
        Self { start, digits, span }
    }

    /// Writes the start plus `offset` units, without trailing zeros.
    fn point(&self, offset: u128, buf: &mut KeyBuf) {
        let kept = self.start.len().min(self.digits);
        let key = buf.resize(self.digits);
        key[..kept].copy_from_slice(&self.start[..kept]);
        key[kept..].fill(0);
        // From the last digit to the left; the carry seldom propagates far, but can reach the first
        // digit.
        let mut carry = offset;
        for digit in key.iter_mut().rev() {
            if carry == 0 {
                break;
            }
            carry += u128::from(*digit);
            *digit = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        // Trailing zeros would make a greater key of the same width; the shortest spelling is
        // enough. It still lies above the start, whose width is smaller.
        let last = key.iter().rposition(|&digit| digit != 0);
        buf.resize(last.map_or(0, |last| last + 1));
    }
}

fn digit(key: &[u8], at: usize) -> u8 {
    key.get(at).copied().unwrap_or(0)
}

/// Splits a range with fewer units than parts by visiting its keys in order.
fn cut_by_counting(range: KeyRange<'_>, parts: usize, bufs: &mut [KeyBuf]) -> usize {
    // The start is a key of the range, and the walk begins after it.
    let keys = 1 + walk(range, |_, _| ());
    let parts = parts.min(keys);
    // The first key of part `i` of `parts` is number `i * keys / parts`; the start is number 0.
    let mut filled = 0;
    walk(range, |index, key| {
        if filled < parts - 1 && index == (filled + 1) * keys / parts {
            bufs[filled].copy_from_slice(key);
            filled += 1;
        }
    });
    filled
}

/// Visits every key strictly inside the range with its number, from 1, and returns their number.
///
/// Any other range contains too many keys to enumerate, so the assertion stops the walk if the
/// width was computed wrongly.
fn walk(range: KeyRange<'_>, mut visit: impl FnMut(usize, &[u8])) -> usize {
    let (mut current, mut next) = (KeyBuf::new(), KeyBuf::new());
    current.copy_from_slice(range.start());
    let mut visited = 0;
    while let Some(key) = key_successor(current.as_bytes(), &mut next)
        && key < range.end()
    {
        visited += 1;
        // The start, which is not visited, adds one.
        assert!(visited < COUNTED_KEYS_MAX, "only ranges with fewer units than parts are counted");
        visit(visited, key);
        mem::swap(&mut current, &mut next);
    }
    visited
}
