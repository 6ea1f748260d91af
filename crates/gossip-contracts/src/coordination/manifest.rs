//! The manifest: the initial root shards of a run.
//!
//! [`validate_manifest`] checks all rows together, before anything is stored. Ranges may leave gaps
//! (a sparse source), but they are bounded and disjoint.
//!
//! # Order of checks
//! 1. [`TooManyShards`](ManifestValidationError::TooManyShards), which bounds the cost of
//!    the other checks;
//! 2. [`Empty`](ManifestValidationError::Empty);
//! 3. [`DuplicateIds`](ManifestValidationError::DuplicateIds);
//! 4. [`UnboundedRange`](ManifestValidationError::UnboundedRange);
//! 5. [`InvalidSpec`](ManifestValidationError::InvalidSpec);
//! 6. [`OverlappingRanges`](ManifestValidationError::OverlappingRanges);
//! 7. [`CursorKeyTooLarge`](ManifestValidationError::CursorKeyTooLarge);
//! 8. [`CursorOutOfBounds`](ManifestValidationError::CursorOutOfBounds);
//! 9. [`DerivedRootId`](ManifestValidationError::DerivedRootId);
//! 10. [`CursorTokenTooLarge`](ManifestValidationError::CursorTokenTooLarge).
//!
//! Each rule is applied to all rows before the next one. The last two are not in the specification;
//! they follow its eight rules, so that input which those reject is rejected for the specified
//! reason.
//!
//! A rule that compares rows reports the lowest pair in its sort order; every other rule reports
//! the first row that breaks it. Cost: two sorts, O(n log n).

use thiserror::Error;

use super::cursor::{CursorBounds, check_cursor_bounds};
use super::{CursorUpdate, MAX_KEY_SIZE, MAX_TOKEN_SIZE, ShardSpecInputError, ShardSpecRef};
use crate::identity::ShardId;

/// Maximum number of rows of one manifest, hence of one registration.
pub const MAX_INITIAL_SHARDS: usize = 10_000;

// Row numbers are sorted as u32.
const _: () = assert!(MAX_INITIAL_SHARDS <= u32::MAX as usize);

/// One row: a root shard as described by the caller, unvalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialShardInput<'a> {
    /// The caller's id for the shard; bit 63 must be clear.
    pub shard_id: ShardId,
    /// The range to scan.
    pub spec: ShardSpecRef<'a>,
    /// The initial position; usually initial.
    pub cursor: CursorUpdate<'a>,
}

/// Checks that `shards` can be the root shards of a run.
///
/// # Errors
/// The first rule broken, in the order of the module documentation.
pub fn validate_manifest(shards: &[InitialShardInput<'_>]) -> Result<(), ManifestValidationError> {
    // One pass for each rule, not one for each row: the reported rule must not depend on the order
    // of the rows.
    check_count(shards)?;
    check_unique_ids(shards)?;
    shards.iter().try_for_each(check_bounded)?;
    shards.iter().try_for_each(check_spec)?;
    check_disjoint(shards)?;
    shards.iter().try_for_each(check_cursor_key_size)?;
    shards.iter().try_for_each(check_cursor_bounds_of)?;
    shards.iter().try_for_each(check_root_id)?;
    shards.iter().try_for_each(check_cursor_token_size)
}

/// The manifest is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ManifestValidationError {
    /// More than [`MAX_INITIAL_SHARDS`] rows.
    #[error("a manifest of {count} shards exceeds the limit of {max}")]
    TooManyShards {
        /// Rows presented.
        count: usize,
        /// Rows allowed.
        max: usize,
    },
    /// No rows.
    #[error("a manifest needs at least one shard")]
    Empty,
    /// Two rows share an id.
    #[error("shard {shard_id} appears more than once")]
    DuplicateIds {
        /// The lowest id that is shared.
        shard_id: ShardId,
    },
    /// A row's start or end is empty. Roots are bounded, so that progress can be measured.
    #[error("shard {shard_id} has an unbounded range")]
    UnboundedRange {
        /// The row.
        shard_id: ShardId,
    },
    /// A row's spec is invalid.
    #[error("shard {shard_id} is invalid: {reason}")]
    InvalidSpec {
        /// The row.
        shard_id: ShardId,
        /// The rule that the spec breaks.
        #[source]
        reason: ShardSpecInputError,
    },
    /// Two rows have keys in common.
    #[error("shards {shard_a} and {shard_b} overlap")]
    OverlappingRanges {
        /// The row that starts first.
        shard_a: ShardId,
        /// Its right neighbour.
        shard_b: ShardId,
    },
    /// A cursor's key exceeds [`MAX_KEY_SIZE`].
    #[error("shard {shard_id} has a cursor key of {size} bytes, over the limit of {max}")]
    CursorKeyTooLarge {
        /// The row.
        shard_id: ShardId,
        /// Length presented.
        size: usize,
        /// Length allowed.
        max: usize,
    },
    /// A cursor lies outside its row's range.
    #[error("shard {shard_id} has a cursor outside its range")]
    CursorOutOfBounds {
        /// The row.
        shard_id: ShardId,
    },
    /// A root carries an id from the space of derived shards (bit 63).
    #[error("shard {shard_id} has the id of a derived shard")]
    DerivedRootId {
        /// The row.
        shard_id: ShardId,
    },
    /// A cursor's token exceeds [`MAX_TOKEN_SIZE`].
    #[error("shard {shard_id} has a cursor token of {size} bytes, over the limit of {max}")]
    CursorTokenTooLarge {
        /// The row.
        shard_id: ShardId,
        /// Length presented.
        size: usize,
        /// Length allowed.
        max: usize,
    },
}

fn check_count(shards: &[InitialShardInput<'_>]) -> Result<(), ManifestValidationError> {
    match shards.len() {
        0 => Err(ManifestValidationError::Empty),
        1..=MAX_INITIAL_SHARDS => Ok(()),
        count => Err(ManifestValidationError::TooManyShards { count, max: MAX_INITIAL_SHARDS }),
    }
}

fn check_unique_ids(shards: &[InitialShardInput<'_>]) -> Result<(), ManifestValidationError> {
    let mut ids: Vec<ShardId> = shards.iter().map(|row| row.shard_id).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ManifestValidationError::DuplicateIds { shard_id: pair[0] }),
        None => Ok(()),
    }
}

fn check_bounded(row: &InitialShardInput<'_>) -> Result<(), ManifestValidationError> {
    if row.spec.start.is_empty() || row.spec.end.is_empty() {
        let shard_id = row.shard_id;
        return Err(ManifestValidationError::UnboundedRange { shard_id });
    }
    Ok(())
}

fn check_spec(row: &InitialShardInput<'_>) -> Result<(), ManifestValidationError> {
    let shard_id = row.shard_id;
    let invalid = |reason| ManifestValidationError::InvalidSpec { shard_id, reason };
    row.spec.validate().map_err(invalid)
}

/// Checks that no two ranges overlap. All ranges are bounded and non-empty at this point, so if any
/// two overlap, two neighbours in order of their starts do.
fn check_disjoint(shards: &[InitialShardInput<'_>]) -> Result<(), ManifestValidationError> {
    // The row number makes the order total, so equal starts are reported in the caller's order.
    let mut order: Vec<(&[u8], u32)> = shards.iter().map(|row| row.spec.start).zip(0..).collect();
    order.sort_unstable();
    let row = |entry: &(&[u8], u32)| &shards[entry.1 as usize];
    let overlap = |pair: &&[(&[u8], u32)]| row(&pair[0]).spec.end > pair[1].0;
    match order.windows(2).find(overlap) {
        Some(pair) => Err(ManifestValidationError::OverlappingRanges {
            shard_a: row(&pair[0]).shard_id,
            shard_b: row(&pair[1]).shard_id,
        }),
        None => Ok(()),
    }
}

fn check_cursor_key_size(row: &InitialShardInput<'_>) -> Result<(), ManifestValidationError> {
    let size = row.cursor.last_key().map_or(0, <[u8]>::len);
    if size > MAX_KEY_SIZE {
        return Err(ManifestValidationError::CursorKeyTooLarge {
            shard_id: row.shard_id,
            size,
            max: MAX_KEY_SIZE,
        });
    }
    Ok(())
}

fn check_cursor_bounds_of(row: &InitialShardInput<'_>) -> Result<(), ManifestValidationError> {
    match check_cursor_bounds(row.cursor.last_key(), row.spec.start, row.spec.end) {
        CursorBounds::NoKey | CursorBounds::InBounds => Ok(()),
        CursorBounds::BelowRange | CursorBounds::AboveRange => {
            let shard_id = row.shard_id;
            Err(ManifestValidationError::CursorOutOfBounds { shard_id })
        }
    }
}

fn check_root_id(row: &InitialShardInput<'_>) -> Result<(), ManifestValidationError> {
    let shard_id = row.shard_id;
    if shard_id.is_derived() {
        return Err(ManifestValidationError::DerivedRootId { shard_id });
    }
    Ok(())
}

fn check_cursor_token_size(row: &InitialShardInput<'_>) -> Result<(), ManifestValidationError> {
    let size = row.cursor.token().map_or(0, <[u8]>::len);
    if size > MAX_TOKEN_SIZE {
        return Err(ManifestValidationError::CursorTokenTooLarge {
            shard_id: row.shard_id,
            size,
            max: MAX_TOKEN_SIZE,
        });
    }
    Ok(())
}
