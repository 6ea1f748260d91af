//! Hints of the children of a split.

use std::fmt;

use thiserror::Error;

use super::ShardHint;
use crate::key_encoding::{KeyBuf, ManifestRowKey, decode_manifest_row_key, prefix_successor};

/// Returns the hint of a child with the range `[child_start, child_end)` of a parent with
/// `parent_hint`.
///
/// | parent | child | checks |
/// |---|---|---|
/// | `Range` | `Range` | nothing |
/// | `Prefix` | `Range` | both bounds lie in the range of the prefix, in ascending order |
/// | `Manifest` | `Manifest` with the child's rows | both bounds are rows of that manifest, within the parent's rows, in ascending order |
///
/// A prefix becomes a plain range because a part of it is in general not a prefix. The result
/// borrows nothing, so a child can outlive its parent's metadata.
///
/// Warm path: one [`KeyBuf`] on the stack, no heap.
///
/// # Errors
/// The start is checked before the end, and each of them alone before both together. A prefix
/// without a successor has no upper bound, so no end lies within it.
pub fn propagate_hint_on_split(
    parent_hint: ShardHint<'_>,
    child_start: &[u8],
    child_end: &[u8],
) -> Result<ShardHint<'static>, HintPropagationError> {
    match parent_hint {
        // No bound contradicts a plain range, and the kernel checks that children tile their
        // parent.
        ShardHint::Range => Ok(ShardHint::Range),
        ShardHint::Prefix { prefix } => {
            check_within_prefix(prefix, child_start, child_end)?;
            Ok(ShardHint::Range)
        }
        ShardHint::Manifest { manifest_id, start_row, end_row } => {
            let parent = Rows { manifest_id, start_row, end_row };
            parent.narrow(child_start, child_end)
        }
    }
}

/// The bound of a child that was rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a range has two ends")]
pub enum SplitBoundary {
    /// The first key of the child.
    Start,
    /// The first key after the child.
    End,
}

impl fmt::Display for SplitBoundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::End => "end",
        })
    }
}

/// The child's range is not part of the range that the parent's hint describes.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum HintPropagationError {
    /// The bound lies outside the range of the parent's prefix, or the end is not above the start.
    #[error("child {boundary} lies outside the prefix of its parent")]
    InvalidPrefixBoundary {
        /// The rejected bound.
        boundary: SplitBoundary,
    },
    /// The bound is not a row key, or lies outside the rows of the parent.
    #[error("child {boundary} is not a row of its parent")]
    InvalidManifestBoundary {
        /// The rejected bound.
        boundary: SplitBoundary,
    },
    /// The bound is a row of another manifest.
    #[error("child belongs to manifest {child}, its parent to {parent}")]
    ManifestIdMismatch {
        /// Manifest of the parent.
        parent: u64,
        /// Manifest of the rejected bound.
        child: u64,
    },
    /// Both bounds are rows of the parent, but there are no rows between them.
    #[error("child has start row {start_row} not below end row {end_row}")]
    EmptyManifestRange {
        /// First row of the child.
        start_row: u64,
        /// End row of the child.
        end_row: u64,
    },
}

/// Checks that both bounds lie within the prefix. An empty start is below every prefix and an empty
/// end is not above any start, so the comparisons also reject "unbounded" on either side.
fn check_within_prefix(
    prefix: &[u8],
    start: &[u8],
    end: &[u8],
) -> Result<(), HintPropagationError> {
    let refuse = |boundary| HintPropagationError::InvalidPrefixBoundary { boundary };
    // Equivalent to lying between the prefix and its successor, and also correct for a prefix
    // without one.
    if !start.starts_with(prefix) {
        return Err(refuse(SplitBoundary::Start));
    }
    let mut buf = KeyBuf::new();
    let prefix_end =
        prefix_successor(prefix, &mut buf).ok_or_else(|| refuse(SplitBoundary::End))?;
    if end <= start || end > prefix_end {
        return Err(refuse(SplitBoundary::End));
    }
    Ok(())
}

/// The contents of a manifest hint.
#[derive(Clone, Copy)]
struct Rows {
    manifest_id: u64,
    start_row: u64,
    end_row: u64,
}

impl Rows {
    /// Returns the hint of a child with these bounds: the rows from its start to its end. Fails if
    /// a bound is no row of this parent, or if the child would have no rows.
    fn narrow(
        self,
        child_start: &[u8],
        child_end: &[u8],
    ) -> Result<ShardHint<'static>, HintPropagationError> {
        let start_row = self.row(SplitBoundary::Start, child_start)?;
        let end_row = self.row(SplitBoundary::End, child_end)?;
        if start_row >= end_row {
            return Err(HintPropagationError::EmptyManifestRange { start_row, end_row });
        }
        Ok(ShardHint::Manifest { manifest_id: self.manifest_id, start_row, end_row })
    }

    /// Returns the row of one bound, if it is a row of this parent.
    fn row(self, boundary: SplitBoundary, key: &[u8]) -> Result<u64, HintPropagationError> {
        // Both bounds may equal either end of the parent: a start at its end leaves no rows, which
        // the comparison of the two detects.
        let refused = HintPropagationError::InvalidManifestBoundary { boundary };
        let key: ManifestRowKey = decode_manifest_row_key(key).ok_or(refused)?;
        if key.manifest_id() != self.manifest_id {
            // Reported apart from a wrong row: a bound of another manifest is a mix-up of two
            // sources.
            return Err(HintPropagationError::ManifestIdMismatch {
                parent: self.manifest_id,
                child: key.manifest_id(),
            });
        }
        if key.row() < self.start_row || key.row() > self.end_row {
            return Err(refused);
        }
        Ok(key.row())
    }
}
