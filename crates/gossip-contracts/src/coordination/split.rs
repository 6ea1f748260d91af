//! Split planning: from split points to a plan that a coordinator can execute.
//!
//! There are two kinds of split. *Replace* retires the parent for two or more children; *residual*
//! shrinks the parent, which keeps its lease and its left part, and gives the right part to a new
//! shard. A plan only borrows, and is complete before anything is executed: ids, fences and stores
//! are the concern of the coordinator that executes it.
//!
//! # Progress across a replace
//! A key the parent has finished must not be scanned again, and one it has not finished must not be
//! skipped. So the child that contains the parent's cursor carries exactly that cursor, key and
//! token; the children after it carry none; and no child lies wholly before it. The planners do not
//! receive the parent's cursor: they take it from the leftmost child. The coordinator, which holds
//! the real one, calls [`validate_split_child_cursors`] again.
//!
//! # Cost
//! Plans are stored on the stack: [`MAX_SPLIT_CHILDREN`] children of 80 bytes, 20 KiB. Nothing here
//! allocates. Planning is O(n log n) in the number of children.

use std::iter;

use gossip_stdx::InlineVec;
use thiserror::Error;

use super::coverage::validate_coverage_by;
use super::limits::{MAX_SPLIT_CHILDREN, MIN_SPLIT_CHILDREN};
use super::{
    CursorBounds, CursorUpdate, IntoShardSpecRef, MAX_KEY_SIZE, ShardSpecRef, SplitValidationError,
    check_cursor_bounds, key_successor_into, validate_residual_split,
};

/// One shard that a replace creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitChild<'a> {
    /// Its range and metadata.
    pub spec: ShardSpecRef<'a>,
    /// Its initial progress.
    pub cursor: CursorUpdate<'a>,
}

impl<'a> SplitChild<'a> {
    /// Returns a child that starts with `cursor`.
    #[must_use]
    pub const fn new(spec: ShardSpecRef<'a>, cursor: CursorUpdate<'a>) -> Self {
        Self { spec, cursor }
    }
}

/// The children that replace a parent, in the caller's order, which is part of the payload hash.
///
/// The number of children is valid. Only plans from the `plan_split_replace*` functions are known
/// to tile their parent, since a plan does not contain its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitReplacePlan<'a> {
    /// Between [`MIN_SPLIT_CHILDREN`] and [`MAX_SPLIT_CHILDREN`], so never spilled to the heap.
    children: InlineVec<SplitChild<'a>, MAX_SPLIT_CHILDREN>,
}

impl<'a> SplitReplacePlan<'a> {
    /// Collects the children and checks their number only.
    ///
    /// # Errors
    /// See [`SplitReplacePlanError`].
    pub fn try_new(
        children: impl IntoIterator<Item = SplitChild<'a>>,
    ) -> Result<Self, SplitReplacePlanError> {
        let mut plan = Self::empty();
        plan.fill(children)?;
        Ok(plan)
    }

    /// Returns the children, in the caller's order.
    #[must_use]
    pub fn children(&self) -> &[SplitChild<'a>] {
        &self.children
    }

    const fn empty() -> Self {
        Self { children: InlineVec::new() }
    }

    /// Fills an empty plan in place, because moving a plan costs more than building a small one.
    fn fill(
        &mut self,
        children: impl IntoIterator<Item = SplitChild<'a>>,
    ) -> Result<(), SplitReplacePlanError> {
        // Fused, because `next` is called once more below on an iterator that may have ended.
        let mut rest = children.into_iter().fuse();
        for child in rest.by_ref().take(MAX_SPLIT_CHILDREN) {
            self.children.push(child);
        }
        // One more child is enough to reject the plan; an infinite iterator must not be drained.
        let excess = rest.next().map_or(0, |_| rest.size_hint().0.saturating_add(1));
        check_child_count(self.children.len().saturating_add(excess))
    }
}

/// The remaining parent, and the shard that takes the rest of its range.
///
/// The two specs differ. Only plans from the `plan_split_residual*` functions are known to tile
/// their parent, since a plan does not contain its old parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitResidualPlan<'a> {
    new_parent: ShardSpecRef<'a>,
    residual: ShardSpecRef<'a>,
}

impl<'a> SplitResidualPlan<'a> {
    /// Creates a plan from the two specs.
    ///
    /// # Errors
    /// [`SplitResidualPlanError::IdenticalSpecs`].
    pub fn try_new(
        new_parent: ShardSpecRef<'a>,
        residual: ShardSpecRef<'a>,
    ) -> Result<Self, SplitResidualPlanError> {
        if new_parent == residual {
            return Err(SplitResidualPlanError::IdenticalSpecs);
        }
        Ok(Self { new_parent, residual })
    }

    /// Returns the spec that the parent keeps.
    #[must_use]
    pub const fn new_parent(&self) -> ShardSpecRef<'a> {
        self.new_parent
    }

    /// Returns the spec of the new shard.
    #[must_use]
    pub const fn residual(&self) -> ShardSpecRef<'a> {
        self.residual
    }
}

/// Plans the replacement of `parent` by `children`, given in any order.
///
/// # Errors
/// The number of children; then coverage, in the order of
/// [`validate_split_coverage`](super::validate_split_coverage); then the children's cursors, by the
/// rule of the module documentation.
pub fn plan_split_replace<'a, 'p>(
    parent: impl IntoShardSpecRef<'p>,
    children: impl IntoIterator<Item = SplitChild<'a>>,
) -> Result<SplitReplacePlan<'a>, PlanSplitReplaceError> {
    let mut plan = SplitReplacePlan::empty();
    plan.fill(children)?;
    let children = plan.children();
    validate_coverage_by(parent.into_shard_spec_ref(), children, |child| child.spec)?;
    // No child may lie before the cursor, so the cursor, if any, is in the leftmost child.
    let leftmost = children.iter().min_by_key(|child| child.spec.start);
    let progress = leftmost.map_or(CursorUpdate::initial(), |child| child.cursor);
    validate_split_child_cursors(progress, children)?;
    Ok(plan)
}

/// Plans the split of `parent` at `points`, with one child more than there are points.
///
/// Children copy the parent's metadata; `cursor_of(index, spec)` returns the initial progress of
/// each, and is not called if their number is invalid. Points that are out of order, repeated, or
/// not strictly inside the parent are reported as coverage errors.
///
/// # Errors
/// As [`plan_split_replace`].
pub fn plan_split_replace_at_points<'a>(
    parent: impl IntoShardSpecRef<'a>,
    points: &[&'a [u8]],
    mut cursor_of: impl FnMut(usize, ShardSpecRef<'a>) -> CursorUpdate<'a>,
) -> Result<SplitReplacePlan<'a>, PlanSplitReplaceError> {
    // Checked before calling `cursor_of`, which may be expensive or count its calls.
    check_child_count(points.len().saturating_add(1))?;
    let parent = parent.into_shard_spec_ref();
    let specs = cut(parent, points.iter().copied()).enumerate();
    let children = specs.map(|(index, spec)| SplitChild::new(spec, cursor_of(index, spec)));
    plan_split_replace(parent, children)
}

/// Plans a split as [`plan_split_replace_at_points`] does, for a parent without progress.
///
/// # Errors
/// As [`plan_split_replace`].
pub fn plan_split_replace_at_points_initial_cursor<'a>(
    parent: impl IntoShardSpecRef<'a>,
    points: &[&'a [u8]],
) -> Result<SplitReplacePlan<'a>, PlanSplitReplaceError> {
    plan_split_replace_at_points(parent, points, |_, _| CursorUpdate::initial())
}

/// Plans the split of the keys of `parent` after `cursor`.
///
/// Points at or before the cursor are dropped, because they would create a child with no keys left.
/// The first child carries the cursor, the others none.
///
/// # Errors
/// As [`plan_split_replace`]; the number of children is counted after dropping points.
pub fn plan_split_replace_at_points_with_cursor<'a>(
    parent: impl IntoShardSpecRef<'a>,
    points: &[&'a [u8]],
    cursor: CursorUpdate<'a>,
) -> Result<SplitReplacePlan<'a>, PlanSplitReplaceError> {
    let parent = parent.into_shard_spec_ref();
    let ahead = |point: &&'a [u8]| cursor.last_key().is_none_or(|key| *point > key);
    let specs = cut(parent, points.iter().copied().filter(ahead));
    let cursors = iter::once(cursor).chain(iter::repeat(CursorUpdate::initial()));
    let children = specs.zip(cursors);
    plan_split_replace(parent, children.map(|(spec, cursor)| SplitChild::new(spec, cursor)))
}

/// Plans to shrink `old_parent` to `new_parent`, with `residual` for the rest.
///
/// # Errors
/// [`PlanSplitResidualError::InvalidPlan`] for identical specs, then
/// [`PlanSplitResidualError::InvalidCoverage`].
pub fn plan_split_residual<'a, 'p>(
    old_parent: impl IntoShardSpecRef<'p>,
    new_parent: impl IntoShardSpecRef<'a>,
    residual: impl IntoShardSpecRef<'a>,
) -> Result<SplitResidualPlan<'a>, PlanSplitResidualError> {
    let (new_parent, residual) = (new_parent.into_shard_spec_ref(), residual.into_shard_spec_ref());
    let plan = SplitResidualPlan::try_new(new_parent, residual)?;
    validate_residual_split(old_parent.into_shard_spec_ref(), new_parent, residual)?;
    Ok(plan)
}

/// Plans a residual split at `point`, which must lie strictly inside the parent. Both parts copy
/// the parent's metadata.
///
/// # Errors
/// [`PlanSplitResidualError::SplitPointOutOfBounds`], then as [`plan_split_residual`].
pub fn plan_split_residual_at_point<'a>(
    parent: impl IntoShardSpecRef<'a>,
    point: &'a [u8],
) -> Result<SplitResidualPlan<'a>, PlanSplitResidualError> {
    let parent = parent.into_shard_spec_ref();
    // Strictly inside: at the start, the parent would keep no key.
    if point <= parent.start || !parent.contains_key(point) {
        return Err(PlanSplitResidualError::SplitPointOutOfBounds {
            split_point: point.len(),
            parent_start: parent.start.len(),
            parent_end: parent.end.len(),
        });
    }
    let new_parent = ShardSpecRef::new(parent.start, point, parent.metadata);
    let residual = ShardSpecRef::new(point, parent.end, parent.metadata);
    plan_split_residual(parent, new_parent, residual)
}

/// Plans a residual split directly after `cursor`: the parent keeps the finished keys, the residual
/// takes all others. The parent may be unbounded above.
///
/// The split point is the successor of the cursor's key and is written into `point`.
///
/// # Errors
/// [`PlanSplitResidualError::MissingCursor`], [`PlanSplitResidualError::NoSuccessor`], then as
/// [`plan_split_residual_at_point`].
pub fn plan_split_residual_from_cursor<'a>(
    parent: impl IntoShardSpecRef<'a>,
    cursor: CursorUpdate<'_>,
    point: &'a mut [u8; MAX_KEY_SIZE],
) -> Result<SplitResidualPlan<'a>, PlanSplitResidualError> {
    let last_key = cursor.last_key().ok_or(PlanSplitResidualError::MissingCursor)?;
    let len = key_successor_into(last_key, point).ok_or(PlanSplitResidualError::NoSuccessor)?;
    plan_split_residual_at_point(parent, &point[..len])
}

/// Checks that the cursors of `children` continue `parent_cursor`, by the rule of the module
/// documentation. Expects children that tile the parent, in any order.
///
/// # Errors
/// [`SplitValidationError::ChildCursorInvalid`] with the first such child in the caller's order.
pub fn validate_split_child_cursors(
    parent_cursor: CursorUpdate<'_>,
    children: &[SplitChild<'_>],
) -> Result<(), SplitValidationError> {
    let continues = |child: &SplitChild<'_>| {
        match check_cursor_bounds(parent_cursor.last_key(), child.spec.start, child.spec.end) {
            CursorBounds::InBounds => child.cursor == parent_cursor,
            CursorBounds::NoKey | CursorBounds::BelowRange => child.cursor.is_initial(),
            // The cursor is past the child: the child has no keys left.
            CursorBounds::AboveRange => false,
        }
    };
    match children.iter().position(|child| !continues(child)) {
        Some(child_index) => Err(SplitValidationError::ChildCursorInvalid { child_index }),
        None => Ok(()),
    }
}

/// A replace cannot have this number of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SplitReplacePlanError {
    /// Fewer than [`MIN_SPLIT_CHILDREN`].
    #[error("a split into {count} children is below the minimum of {MIN_SPLIT_CHILDREN}")]
    TooFewChildren {
        /// Children presented.
        count: usize,
    },
    /// More than [`MAX_SPLIT_CHILDREN`].
    #[error("a split into at least {count} children exceeds the limit of {MAX_SPLIT_CHILDREN}")]
    TooManyChildren {
        /// Lower bound of the number of children presented: the excess is not counted further than
        /// needed.
        count: usize,
    },
}

/// A replace that cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanSplitReplaceError {
    /// The number of children is too small or too large.
    #[error("the split has a wrong number of children: {0}")]
    InvalidChildCount(#[from] SplitReplacePlanError),
    /// The children do not tile the parent, or do not carry its progress.
    #[error("the children do not make up their parent: {0}")]
    InvalidCoverage(#[from] SplitValidationError),
}

/// A residual split cannot have these two specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SplitResidualPlanError {
    /// The shrunk parent and the residual are the same.
    #[error("the new parent and the residual are identical")]
    IdenticalSpecs,
}

/// A residual split that cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanSplitResidualError {
    /// There is no cursor key to split after.
    #[error("the cursor has no key to split after")]
    MissingCursor,
    /// No key is greater than the cursor's.
    #[error("the cursor's key has no successor")]
    NoSuccessor,
    /// The split point does not lie strictly inside the parent.
    #[error(
        "the split point ({split_point} bytes) is not strictly inside the parent \
         ({parent_start} and {parent_end} bytes)"
    )]
    SplitPointOutOfBounds {
        /// Length of the split point.
        split_point: usize,
        /// Length of the parent's start.
        parent_start: usize,
        /// Length of the parent's end.
        parent_end: usize,
    },
    /// The two specs are not a valid plan.
    #[error("the two parts make no plan: {0}")]
    InvalidPlan(#[from] SplitResidualPlanError),
    /// The two specs do not tile the old parent.
    #[error("the two parts do not make up their parent: {0}")]
    InvalidCoverage(#[from] SplitValidationError),
}

fn check_child_count(count: usize) -> Result<(), SplitReplacePlanError> {
    match count {
        0..MIN_SPLIT_CHILDREN => Err(SplitReplacePlanError::TooFewChildren { count }),
        MIN_SPLIT_CHILDREN..=MAX_SPLIT_CHILDREN => Ok(()),
        count => Err(SplitReplacePlanError::TooManyChildren { count }),
    }
}

/// Returns the ranges between `points`, in their order and with the parent's metadata.
fn cut<'a>(
    parent: ShardSpecRef<'a>,
    points: impl Iterator<Item = &'a [u8]> + Clone,
) -> impl Iterator<Item = ShardSpecRef<'a>> {
    let starts = iter::once(parent.start).chain(points.clone());
    let ends = points.chain(iter::once(parent.end));
    let bounds = starts.zip(ends);
    bounds.map(move |(start, end)| ShardSpecRef::new(start, end, parent.metadata))
}
