//! Where to split a range into several parts.
//!
//! [`split_points`] uses no information about the keys and splits the *key space* evenly.
//! [`split_points_by_density`] takes a sample and splits the *keys* evenly. Both return at most
//! [`SPLIT_POINTS_MAX`] points, which are strictly ascending and strictly inside the range, so the
//! parts `[start, p0), [p0, p1), …, [pn, end)` tile it and none is empty.
//!
//! Neither allocates on the heap. Even points are written into buffers of the caller; points by
//! density *are* keys of the sample, so typed keys stay typed: a split of manifest rows falls on a
//! row.
//!
//! If a range or a sample contains fewer distinct keys than the requested parts, fewer points are
//! returned.

mod density;
mod even;
#[cfg(test)]
#[path = "split_points_tests.rs"]
mod split_points_tests;

use std::fmt;
use std::ops::Deref;

use gossip_contracts::coordination::{MAX_KEY_SIZE, MAX_SPLIT_CHILDREN};
use gossip_stdx::InlineVec;
use thiserror::Error;

use crate::key_encoding::KeyBuf;
use crate::key_range::KeyRange;

/// Maximum number of points of one call: one less than the maximum number of children of a split.
pub const SPLIT_POINTS_MAX: usize = MAX_SPLIT_CHILDREN - 1;

// Both functions need capacity for at least one point.
const _: () = assert!(SPLIT_POINTS_MAX > 0);

/// Splits `range` into `parts` parts of equal width, with keys read as big-endian fractions.
///
/// # Evenness
///
/// If the range contains at least `parts` keys there are `parts - 1` points; otherwise one less
/// than the number of keys, so that every part is a single key.
///
/// Let the *width* of a part be the difference of its bounds, read as base-256 fractions. Each
/// part's share of the width of the range differs from `1 / parts` by less than 2⁻⁵⁴. Where the
/// bounds are so close that such a share would need keys longer than [`MAX_KEY_SIZE`], widths are
/// as equal as keys of that size allow: they differ by one unit in the last byte. Closer still,
/// with fewer units than parts, keys are counted instead, and the numbers of keys differ by one.
///
/// Points are short: they end at most 9 bytes after the position where the bounds diverge, and not
/// in `0x00`. Where keys are counted neither holds, since every key of the range may be a point.
///
/// # Cost
///
/// O(n) for a point of n bytes. Counting, the degenerate case, makes two passes over at most
/// [`MAX_KEY_SIZE`] + [`MAX_SPLIT_CHILDREN`] keys. No heap.
///
/// # Errors
/// If `parts` is 0 or above [`MAX_SPLIT_CHILDREN`], or `bufs` has fewer than `parts - 1` buffers.
pub fn split_points<'b>(
    range: KeyRange<'_>,
    parts: usize,
    bufs: &'b mut [KeyBuf],
) -> Result<SplitPoints<'b>, SplitPointsError> {
    check_parts(parts)?;
    let needed = parts - 1;
    let available = bufs.len();
    // An error and not fewer points: the caller would register fewer shards than it planned.
    let Some(bufs) = bufs.get_mut(..needed) else {
        return Err(SplitPointsError::TooFewBuffers { needed, available });
    };
    let filled = even::cut(range, parts, bufs);
    Ok(SplitPoints::from_keys(bufs[..filled].iter().map(KeyBuf::as_bytes)))
}

/// Splits `range` so that every part contains about the same number of sampled keys.
///
/// The sample may be in any order and is sorted in place. Keys outside the range are ignored; a key
/// that occurs several times counts several times.
///
/// # Evenness
///
/// Let the sample contain `k` keys of the range, `d` of them distinct. There are `min(parts, d) -
/// 1` points (none for an empty sample), every part contains a sampled key, and **no other split
/// into as many parts has a smaller largest part**. In particular, if all keys are distinct, the
/// parts contain `k / parts` keys rounded down or up; and the largest part never exceeds that,
/// rounded up, by more than the number of occurrences of the most frequent key, less one.
///
/// # Cost
///
/// Sorting, then O(`parts` · log² k) comparisons. No heap.
///
/// # Errors
/// If `parts` is 0 or above [`MAX_SPLIT_CHILDREN`], or a key of the sample exceeds
/// [`MAX_KEY_SIZE`]; the sample is then unchanged.
pub fn split_points_by_density<'k>(
    range: KeyRange<'_>,
    parts: usize,
    sample: &mut [&'k [u8]],
) -> Result<SplitPoints<'k>, SplitPointsError> {
    check_parts(parts)?;
    // Before the sort, so that a refused sample keeps its order.
    if let Some(key) = sample.iter().find(|key| key.len() > MAX_KEY_SIZE) {
        return Err(SplitPointsError::SampleKeyTooLarge { size: key.len(), max: MAX_KEY_SIZE });
    }
    // In place and without a buffer. A sample that is already sorted costs one pass.
    sample.sort_unstable();
    let first = sample.partition_point(|key| *key < range.start());
    let behind = sample.partition_point(|key| *key < range.end());
    Ok(SplitPoints::from_keys(density::cut(&sample[first..behind], parts)))
}

/// Ascending keys strictly inside a range. Dereferences to a slice of keys.
///
/// The keys are borrowed: the buffers or the sampled keys stay borrowed until it is dropped.
///
/// `Debug` shows only the number of points.
#[derive(Clone)]
pub struct SplitPoints<'k> {
    /// At most [`SPLIT_POINTS_MAX`], so it never spills.
    keys: InlineVec<&'k [u8], SPLIT_POINTS_MAX>,
}

impl<'k> SplitPoints<'k> {
    fn from_keys(keys: impl Iterator<Item = &'k [u8]>) -> Self {
        let mut points = Self { keys: InlineVec::new() };
        for key in keys {
            points.keys.push(key);
        }
        assert!(!points.keys.is_spilled(), "parts were checked against the capacity");
        points
    }
}

impl<'k> Deref for SplitPoints<'k> {
    type Target = [&'k [u8]];

    fn deref(&self) -> &Self::Target {
        self.keys.as_slice()
    }
}

impl fmt::Debug for SplitPoints<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SplitPoints").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A range was not split.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SplitPointsError {
    /// A range has at least one part.
    #[error("cannot cut a range into 0 parts")]
    ZeroParts,
    /// More parts than one split may create.
    #[error("{requested} parts exceed the maximum of {max}")]
    TooManyParts {
        /// Parts requested.
        requested: usize,
        /// [`MAX_SPLIT_CHILDREN`].
        max: usize,
    },
    /// Fewer buffers than points.
    #[error("{needed} points need {needed} buffers, {available} given")]
    TooFewBuffers {
        /// Points requested.
        needed: usize,
        /// Buffers passed.
        available: usize,
    },
    /// A key of the sample exceeds the maximum size.
    #[error("sampled key of {size} bytes exceeds the maximum of {max}")]
    SampleKeyTooLarge {
        /// Length presented.
        size: usize,
        /// [`MAX_KEY_SIZE`].
        max: usize,
    },
}

fn check_parts(parts: usize) -> Result<(), SplitPointsError> {
    match parts {
        0 => Err(SplitPointsError::ZeroParts),
        1..=MAX_SPLIT_CHILDREN => Ok(()),
        requested => Err(SplitPointsError::TooManyParts { requested, max: MAX_SPLIT_CHILDREN }),
    }
}
