//! The children of one bulk split, computed by index so that they need no storage.

use gossip_contracts::coordination::{ShardSpecInputError, ShardSpecRef};

use super::PreallocShardBuilderError;
use crate::hint::{ShardSpecScratch, manifest_shard_ref, range_shard_ref};
use crate::key_encoding::ManifestRowKey;

/// The range or rows to split, and the split points.
#[derive(Clone, Copy)]
pub(super) enum BulkSplit<'s> {
    /// A range, split at every point.
    Range { start: &'s [u8], split_points: &'s [&'s [u8]], end: &'s [u8] },
    /// Rows, split into chunks of one size and possibly a shorter last one.
    Manifest { manifest_id: u64, start_row: u64, end_row: u64, rows_per_shard: u64 },
}

impl BulkSplit<'_> {
    /// Returns the number of children; fails for rows that form no chunk.
    pub(super) fn child_count(&self) -> Result<usize, PreallocShardBuilderError> {
        match *self {
            Self::Range { split_points, .. } => Ok(split_points.len() + 1),
            Self::Manifest { start_row, end_row, rows_per_shard, .. } => {
                // Zero rows per shard are as invalid as zero rows.
                if start_row >= end_row || rows_per_shard == 0 {
                    return Err(PreallocShardBuilderError::ManifestCtorInvalid(NO_ROWS));
                }
                // Counted as u64: one chunk per row of the largest manifest must be rejected by its
                // number, not by an overflow.
                let chunks = (end_row - start_row).div_ceil(rows_per_shard);
                Ok(usize::try_from(chunks).unwrap_or(usize::MAX))
            }
        }
    }

    /// Returns the child at `index`, which is below [`Self::child_count`].
    pub(super) fn child<'a>(
        &'a self,
        index: usize,
        connector_extra: &[u8],
        scratch: &'a mut ShardSpecScratch,
    ) -> Result<ShardSpecRef<'a>, PreallocShardBuilderError> {
        match *self {
            Self::Range { start, split_points, end } => {
                let (left, right) = range_bounds(index, start, split_points, end)
                    .map_err(PreallocShardBuilderError::RangeInvalid)?;
                range_shard_ref(left, right, connector_extra, scratch)
                    .map_err(PreallocShardBuilderError::RangeInvalid)
            }
            Self::Manifest { manifest_id, start_row, end_row, rows_per_shard } => {
                // Every chunk starts below `end_row`, so this cannot overflow; the last one may end
                // after it, even beyond the largest number.
                let from = start_row + index as u64 * rows_per_shard;
                let to = from.saturating_add(rows_per_shard).min(end_row);
                manifest_shard_ref(manifest_id, from, to, connector_extra, scratch)
                    .map_err(PreallocShardBuilderError::ManifestCtorInvalid)
            }
        }
    }
}

/// Returns the bounds of one child. An empty bound means "unbounded", which only the outermost may
/// be: an empty split point would create two children that overlap all others.
fn range_bounds<'s>(
    index: usize,
    start: &'s [u8],
    split_points: &'s [&'s [u8]],
    end: &'s [u8],
) -> Result<(&'s [u8], &'s [u8]), ShardSpecInputError> {
    let left = match index.checked_sub(1) {
        Some(before) => split_points[before],
        None => start,
    };
    let right = split_points.get(index).copied().unwrap_or(end);
    if split_points.get(index).is_some_and(|point| point.is_empty()) {
        return Err(ShardSpecInputError::InvertedRange {
            start_len: left.len(),
            end_len: right.len(),
        });
    }
    Ok((left, right))
}

/// The error for an inverted range of row keys.
const NO_ROWS: ShardSpecInputError = ShardSpecInputError::InvertedRange {
    start_len: ManifestRowKey::ENCODED_LEN,
    end_len: ManifestRowKey::ENCODED_LEN,
};
