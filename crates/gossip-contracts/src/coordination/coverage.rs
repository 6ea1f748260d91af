//! Coverage: the parts of a split contain every key of the parent exactly once.
//!
//! A split must neither lose a key nor assign it twice. [`validate_split_coverage`] accepts exactly
//! the tilings of the parent's range, with the children in any order.
//!
//! # Order of checks
//! 1. [`NoChildren`](SplitValidationError::NoChildren), then
//!    [`SingleChild`](SplitValidationError::SingleChild);
//! 2. the children are sorted by their starts, equal starts in the caller's order;
//! 3. [`StartMismatch`](SplitValidationError::StartMismatch), then
//!    [`EndMismatch`](SplitValidationError::EndMismatch);
//! 4. at each boundary, from left to right,
//!    [`BoundaryMismatch`](SplitValidationError::BoundaryMismatch), then
//!    [`OverlappingChild`](SplitValidationError::OverlappingChild) for an end that is unbounded;
//! 5. [`InvertedChild`](SplitValidationError::InvertedChild), from left to right;
//! 6. [`InvalidChildSpec`](SplitValidationError::InvalidChildSpec), from left to right.
//!
//! Child indices always refer to the caller's order. Only the indices are sorted, on the stack up
//! to [`MAX_SPLIT_CHILDREN`] children.

use gossip_stdx::InlineVec;
use thiserror::Error;

use super::cursor::{CursorBounds, check_cursor_bounds};
use super::{MAX_SPLIT_CHILDREN, ShardSpecRef};
use crate::identity::ShardId;

/// Checks that `children` tile `parent`. The parent's metadata is ignored.
///
/// # Errors
/// The first rule broken, in the order of the module documentation.
pub fn validate_split_coverage(
    parent: ShardSpecRef<'_>,
    children: &[ShardSpecRef<'_>],
) -> Result<(), SplitValidationError> {
    validate_coverage_by(parent, children, |child| *child)
}

/// Checks that the shrunk parent and the residual tile the old parent: the parent keeps the left
/// part, the residual takes the right one.
///
/// # Errors
/// [`SplitValidationError::StartMismatch`] or [`SplitValidationError::EndMismatch`] if the roles
/// are swapped; then as [`validate_split_coverage`], where child 0 is the new parent and child 1
/// the residual.
pub fn validate_residual_split(
    old_parent: ShardSpecRef<'_>,
    new_parent: ShardSpecRef<'_>,
    residual: ShardSpecRef<'_>,
) -> Result<(), SplitValidationError> {
    // Coverage sorts its children and would not detect that the two are swapped.
    check_outer_bounds(old_parent, new_parent, residual)?;
    validate_split_coverage(old_parent, &[new_parent, residual])
}

/// Checks that the key ranges of a residual split lie within the bounds of the old parent.
///
/// A planner that does not have the exact range of the shard yet can use it: unlike
/// [`validate_residual_split`] it permits gaps.
///
/// # Errors
/// [`SplitValidationError::StartMismatch`] for a range that starts before the parent, then
/// [`SplitValidationError::EndMismatch`] for one that ends after it; the new parent before the
/// residual.
pub fn validate_residual_split_bounds(
    old_parent: ShardSpecRef<'_>,
    new_parent: ShardSpecRef<'_>,
    residual: ShardSpecRef<'_>,
) -> Result<(), SplitValidationError> {
    for part in [new_parent, residual] {
        // An empty start is the lowest possible key, so it needs no special case.
        if part.start < old_parent.start {
            return Err(SplitValidationError::StartMismatch {
                parent_start: old_parent.start.len(),
                first_child_start: part.start.len(),
            });
        }
        let ends_behind = part.end.is_empty() || part.end > old_parent.end;
        if !old_parent.end.is_empty() && ends_behind {
            return Err(SplitValidationError::EndMismatch {
                parent_end: old_parent.end.len(),
                last_child_end: part.end.len(),
            });
        }
    }
    Ok(())
}

/// Checks that the parent's cursor lies inside the range that a residual split leaves it.
///
/// # Errors
/// [`SplitValidationError::ParentCursorOutOfBounds`].
pub fn validate_residual_parent_cursor(
    cursor: Option<&[u8]>,
    new_parent: ShardSpecRef<'_>,
) -> Result<(), SplitValidationError> {
    match check_cursor_bounds(cursor, new_parent.start, new_parent.end) {
        CursorBounds::NoKey | CursorBounds::InBounds => Ok(()),
        CursorBounds::BelowRange | CursorBounds::AboveRange => {
            Err(SplitValidationError::ParentCursorOutOfBounds {
                cursor: cursor.map_or(0, <[u8]>::len),
                new_parent_start: new_parent.start.len(),
                new_parent_end: new_parent.end.len(),
            })
        }
    }
}

/// A split that is not allowed. Numbers are byte lengths, indices or counts; never bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SplitValidationError {
    /// The split has no child.
    #[error("a split needs children, this one has none")]
    NoChildren,
    /// The split has one child, which would equal the parent.
    #[error("a split needs at least two children, this one has 1")]
    SingleChild,
    /// The leftmost child does not start where the parent starts.
    #[error(
        "the first child's start ({first_child_start} bytes) is not \
         the parent's ({parent_start} bytes)"
    )]
    StartMismatch {
        /// Length of the parent's start.
        parent_start: usize,
        /// Length of the leftmost child's start.
        first_child_start: usize,
    },
    /// The rightmost child does not end where the parent ends.
    #[error(
        "the last child's end ({last_child_end} bytes) is not \
         the parent's ({parent_end} bytes)"
    )]
    EndMismatch {
        /// Length of the parent's end.
        parent_end: usize,
        /// Length of the rightmost child's end.
        last_child_end: usize,
    },
    /// Two neighbours leave a gap or overlap.
    #[error(
        "child {child_index} ends ({child_end} bytes) elsewhere than \
         child {next_child_index} starts ({next_child_start} bytes)"
    )]
    BoundaryMismatch {
        /// The left neighbour, in the caller's order.
        child_index: usize,
        /// The right neighbour, in the caller's order.
        next_child_index: usize,
        /// Length of the left neighbour's end.
        child_end: usize,
        /// Length of the right neighbour's start.
        next_child_start: usize,
    },
    /// A child's range is empty: its start is not below its end.
    #[error("child {child_index} has an inverted or empty range")]
    InvertedChild {
        /// The child, in the caller's order.
        child_index: usize,
    },
    /// A child that is not the rightmost has no upper bound.
    #[error("child {child_index} is unbounded and overlaps child {next_child_index}")]
    OverlappingChild {
        /// The unbounded child, in the caller's order.
        child_index: usize,
        /// Its right neighbour, in the caller's order.
        next_child_index: usize,
    },
    /// The parent's cursor lies outside the range that a residual split would leave it.
    #[error(
        "the parent's cursor ({cursor} bytes) is outside its new range \
         ({new_parent_start} and {new_parent_end} bytes)"
    )]
    ParentCursorOutOfBounds {
        /// Length of the cursor's key.
        cursor: usize,
        /// Length of the new start.
        new_parent_start: usize,
        /// Length of the new end.
        new_parent_end: usize,
    },
    /// The parent would have spawned too many shards.
    #[error("{additional} more children on top of {current} exceed the limit of {max} per shard")]
    SpawnLimitExceeded {
        /// Shards spawned so far.
        current: usize,
        /// Shards this split would add.
        additional: usize,
        /// The limit.
        max: usize,
    },
    /// The backend cannot publish this many children at once.
    #[error("{requested} children exceed this backend's limit of {backend_max} per split")]
    BackendChildLimitExceeded {
        /// Children requested.
        requested: usize,
        /// The backend's limit.
        backend_max: usize,
    },
    /// The split would exceed a limit on the number of shards.
    #[error("{additional} more shards on top of {current} exceed the {scope} limit of {max}")]
    ShardLimitExceeded {
        /// Shards so far; for [`ShardLimitScope::Global`] the limit itself is reported.
        current: usize,
        /// Shards this split would add.
        additional: usize,
        /// The limit.
        max: usize,
        /// The scope of the limit.
        scope: ShardLimitScope,
    },
    /// The id derived for a child belongs to another shard.
    #[error("the derived shard id {derived_id} is already taken")]
    DerivedIdCollision {
        /// The id that is taken.
        derived_id: ShardId,
    },
    /// A child breaks a size limit.
    #[error("child {child_index} is not a valid shard spec")]
    InvalidChildSpec {
        /// The child, in the caller's order.
        child_index: usize,
    },
    /// A child's cursor does not match its range. Added to the seeds' list: see
    /// [`validate_split_child_cursors`](super::validate_split_child_cursors).
    #[error("child {child_index} does not carry the parent's progress")]
    ChildCursorInvalid {
        /// The child, in the caller's order.
        child_index: usize,
    },
}

/// The scope of a limit on the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardLimitScope {
    /// The limit of one tenant.
    PerTenant,
    /// The limit of all tenants together.
    Global,
}

impl std::fmt::Display for ShardLimitScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::PerTenant => "per-tenant",
            Self::Global => "global",
        })
    }
}

/// [`validate_split_coverage`] for any items that contain a spec, so that a plan need not copy its
/// specs.
pub(super) fn validate_coverage_by<T>(
    parent: ShardSpecRef<'_>,
    children: &[T],
    spec_of: impl Fn(&T) -> ShardSpecRef<'_>,
) -> Result<(), SplitValidationError> {
    let order = indices_by_start(children, &spec_of);
    let child = |index: u32| spec_of(&children[index as usize]);
    match *order.as_slice() {
        [] => Err(SplitValidationError::NoChildren),
        [_] => Err(SplitValidationError::SingleChild),
        [first, .., last] => {
            // Boundaries are checked before single children: a gap is the more useful error, and
            // once the boundaries match, an inverted child can only be empty or the last.
            check_outer_bounds(parent, child(first), child(last))?;
            check_seams(&order, child)?;
            check_each(&order, child)
        }
    }
}

/// Returns the indices of `children` from left to right, equal starts in the caller's order.
fn indices_by_start<T>(
    children: &[T],
    spec_of: impl Fn(&T) -> ShardSpecRef<'_>,
) -> InlineVec<u32, MAX_SPLIT_CHILDREN> {
    let mut order = InlineVec::new();
    order.extend((0_u32..).zip(children).map(|(index, _)| index));
    let start = |index: u32| spec_of(&children[index as usize]).start;
    // An unstable sort needs no buffer; comparing the index as well makes the order total, hence
    // stable.
    order.sort_unstable_by(|a, b| start(*a).cmp(start(*b)).then(a.cmp(b)));
    order
}

/// Fails unless the first child starts where the parent starts and the last ends where it ends.
/// Does not look between them.
fn check_outer_bounds(
    parent: ShardSpecRef<'_>,
    first: ShardSpecRef<'_>,
    last: ShardSpecRef<'_>,
) -> Result<(), SplitValidationError> {
    if first.start != parent.start {
        return Err(SplitValidationError::StartMismatch {
            parent_start: parent.start.len(),
            first_child_start: first.start.len(),
        });
    }
    if last.end != parent.end {
        return Err(SplitValidationError::EndMismatch {
            parent_end: parent.end.len(),
            last_child_end: last.end.len(),
        });
    }
    Ok(())
}

/// Fails unless each child, in `order`, ends where the next one starts.
fn check_seams<'a>(
    order: &[u32],
    child: impl Fn(u32) -> ShardSpecRef<'a>,
) -> Result<(), SplitValidationError> {
    for seam in order.windows(2) {
        let (left, right) = (child(seam[0]), child(seam[1]));
        let (child_index, next_child_index) = (seam[0] as usize, seam[1] as usize);
        if left.end != right.start {
            return Err(SplitValidationError::BoundaryMismatch {
                child_index,
                next_child_index,
                child_end: left.end.len(),
                next_child_start: right.start.len(),
            });
        }
        // Equal and empty: the left end is unbounded above, the right start unbounded below.
        if left.end.is_empty() {
            return Err(SplitValidationError::OverlappingChild { child_index, next_child_index });
        }
    }
    Ok(())
}

/// Fails if a child is inverted or breaks a limit of a spec. Names the first in `order`, inverted
/// ones before others.
fn check_each<'a>(
    order: &[u32],
    child: impl Fn(u32) -> ShardSpecRef<'a>,
) -> Result<(), SplitValidationError> {
    let first_with = |broken: fn(ShardSpecRef<'a>) -> bool| {
        let found = order.iter().find(|index| broken(child(**index)));
        found.map(|index| *index as usize)
    };
    if let Some(child_index) = first_with(|spec| spec.is_inverted()) {
        return Err(SplitValidationError::InvertedChild { child_index });
    }
    // Inverted ranges are excluded at this point, so only the size limits of a spec can fail.
    match first_with(|spec| spec.validate().is_err()) {
        Some(child_index) => Err(SplitValidationError::InvalidChildSpec { child_index }),
        None => Ok(()),
    }
}
