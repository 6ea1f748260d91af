//! Split planning: every error, their order, and the properties of plans.

use std::iter;

use proptest::prelude::*;
use rstest::rstest;

use super::{
    CursorUpdate, MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPLIT_CHILDREN, PlanSplitReplaceError,
    PlanSplitResidualError, ShardSpec, ShardSpecRef, SplitChild, SplitReplacePlan,
    SplitReplacePlanError, SplitResidualPlan, SplitResidualPlanError, SplitValidationError,
    plan_split_replace, plan_split_replace_at_points, plan_split_replace_at_points_initial_cursor,
    plan_split_replace_at_points_with_cursor, plan_split_residual, plan_split_residual_at_point,
    plan_split_residual_from_cursor, validate_residual_split, validate_residual_split_bounds,
    validate_split_child_cursors, validate_split_coverage,
};

static LONG_METADATA: [u8; MAX_METADATA_SIZE + 1] = [b'm'; MAX_METADATA_SIZE + 1];

const PARENT: ShardSpecRef<'static> = ShardSpecRef::new(b"b", b"y", b"meta");
const NONE: CursorUpdate<'static> = CursorUpdate::initial();
const AT_C: CursorUpdate<'static> = CursorUpdate::new(b"c", b"token");

const fn spec(start: &'static [u8], end: &'static [u8]) -> ShardSpecRef<'static> {
    ShardSpecRef::new(start, end, b"meta")
}

const fn child(
    start: &'static [u8],
    end: &'static [u8],
    cursor: CursorUpdate<'static>,
) -> SplitChild<'static> {
    SplitChild::new(spec(start, end), cursor)
}

const fn few(count: usize) -> PlanSplitReplaceError {
    PlanSplitReplaceError::InvalidChildCount(SplitReplacePlanError::TooFewChildren { count })
}

const fn many(count: usize) -> PlanSplitReplaceError {
    PlanSplitReplaceError::InvalidChildCount(SplitReplacePlanError::TooManyChildren { count })
}

const fn cursor_invalid(child_index: usize) -> SplitValidationError {
    SplitValidationError::ChildCursorInvalid { child_index }
}

#[rstest]
#[case::none(0, Some(SplitReplacePlanError::TooFewChildren { count: 0 }))]
#[case::one(1, Some(SplitReplacePlanError::TooFewChildren { count: 1 }))]
#[case::two(2, None)]
#[case::most(MAX_SPLIT_CHILDREN, None)]
#[case::one_too_many(257, Some(SplitReplacePlanError::TooManyChildren { count: 257 }))]
#[case::far_too_many(1000, Some(SplitReplacePlanError::TooManyChildren { count: 1000 }))]
fn a_replace_plan_counts_its_children(
    #[case] count: usize,
    #[case] error: Option<SplitReplacePlanError>,
) {
    let children = iter::repeat_n(child(b"a", b"b", NONE), count);
    let plan = SplitReplacePlan::try_new(children);
    assert_eq!(plan.as_ref().err(), error.as_ref());
    if let Ok(plan) = plan {
        assert_eq!(plan.children().len(), count);
    }
}

/// An iterator that yields one child, `None`, and another child: the second must be neither counted
/// nor used.
#[test]
fn children_stop_at_the_first_none() {
    let mut calls = 0;
    let unfused = iter::from_fn(|| {
        calls += 1;
        (calls != 2).then_some(child(b"a", b"b", NONE))
    });
    let error = SplitReplacePlanError::TooFewChildren { count: 1 };
    assert_eq!(SplitReplacePlan::try_new(unfused), Err(error));
}

#[test]
fn an_infinite_iterator_is_rejected_without_draining_it() {
    let children = iter::repeat(child(b"a", b"b", NONE));
    let count = usize::MAX;
    let error = SplitReplacePlanError::TooManyChildren { count };
    assert_eq!(SplitReplacePlan::try_new(children), Err(error));
    // Without a size hint the count is a lower bound.
    let children = iter::from_fn(|| Some(child(b"a", b"b", NONE)));
    let count = MAX_SPLIT_CHILDREN + 1;
    let error = SplitReplacePlanError::TooManyChildren { count };
    assert_eq!(SplitReplacePlan::try_new(children), Err(error));
}

#[test]
fn children_keep_the_callers_order() {
    let children = [child(b"m", b"y", NONE), child(b"b", b"m", AT_C)];
    let plan = plan_split_replace(PARENT, children).unwrap();
    assert_eq!(plan.children(), children);
    let owned = ShardSpec::new(b"b", b"y", b"");
    assert_eq!(plan_split_replace(&owned, children), Ok(plan));
}

#[rstest]
#[case::one(&[child(b"b", b"y", NONE)], few(1))]
#[case::gap(
    &[child(b"b", b"m", NONE), child(b"n", b"y", NONE)],
    PlanSplitReplaceError::InvalidCoverage(SplitValidationError::BoundaryMismatch {
        child_index: 0, next_child_index: 1, child_end: 1, next_child_start: 1 }))]
#[case::cursor_in_a_later_child(
    &[child(b"b", b"m", NONE), child(b"m", b"y", CursorUpdate::with_last_key(b"n"))],
    PlanSplitReplaceError::InvalidCoverage(cursor_invalid(1)))]
#[case::cursor_outside_its_child(
    &[child(b"b", b"m", CursorUpdate::with_last_key(b"n")), child(b"m", b"y", NONE)],
    PlanSplitReplaceError::InvalidCoverage(cursor_invalid(0)))]
// Two rules fail: the earlier one is reported.
#[case::count_before_coverage(&[child(b"c", b"y", NONE)], few(1))]
#[case::coverage_before_cursor(
    &[child(b"m", b"yy", AT_C), child(b"b", b"m", NONE)],
    PlanSplitReplaceError::InvalidCoverage(SplitValidationError::EndMismatch {
        parent_end: 1, last_child_end: 2 }))]
fn bad_replacements_are_refused_in_order(
    #[case] children: &[SplitChild<'static>],
    #[case] error: PlanSplitReplaceError,
) {
    let refused = plan_split_replace(PARENT, children.iter().copied());
    assert_eq!(refused, Err(error));
}

#[test]
fn points_make_children_with_the_parents_metadata() {
    let mut asked = Vec::new();
    let plan = plan_split_replace_at_points(PARENT, &[b"g", b"p"], |index, spec| {
        asked.push((index, spec));
        if index == 0 { AT_C } else { NONE }
    });
    let specs = [spec(b"b", b"g"), spec(b"g", b"p"), spec(b"p", b"y")];
    let cursors = [AT_C, NONE, NONE];
    let expected: Vec<_> = iter::zip(specs, cursors).map(|(s, c)| SplitChild::new(s, c)).collect();
    assert_eq!(plan.unwrap().children(), expected);
    assert_eq!(asked, iter::zip(0.., specs).collect::<Vec<_>>());
}

#[rstest]
#[case::none(0, few(1))]
#[case::too_many(MAX_SPLIT_CHILDREN, many(MAX_SPLIT_CHILDREN + 1))]
fn fan_out_is_checked_before_the_callback(
    #[case] count: usize,
    #[case] error: PlanSplitReplaceError,
) {
    // The points are also invalid, and would fail coverage.
    let points = vec![b"z".as_slice(); count];
    let plan = plan_split_replace_at_points(PARENT, &points, |_, _| {
        panic!("cursor_of must not be called")
    });
    assert_eq!(plan, Err(error));
}

#[rstest]
#[case::out_of_order(&[b"p".as_slice(), b"g"])]
#[case::twice(&[b"g".as_slice(), b"g"])]
#[case::at_start(&[b"b".as_slice()])]
#[case::at_end(&[b"y".as_slice()])]
#[case::below(&[b"a".as_slice()])]
#[case::above(&[b"z".as_slice()])]
#[case::empty(&[b"".as_slice()])]
fn bad_points_are_coverage_errors(#[case] points: &[&'static [u8]]) {
    let plan = plan_split_replace_at_points_initial_cursor(PARENT, points);
    assert!(matches!(plan, Err(PlanSplitReplaceError::InvalidCoverage(_))));
}

#[test]
fn cursor_of_cannot_place_a_child_before_the_cursor() {
    let cursor = CursorUpdate::with_last_key(b"h");
    let progress_in_the_second = |index, _| if index == 1 { cursor } else { NONE };
    let plan = plan_split_replace_at_points(PARENT, &[b"g"], progress_in_the_second);
    let error = PlanSplitReplaceError::InvalidCoverage(cursor_invalid(1));
    assert_eq!(plan, Err(error));
}

#[rstest]
#[case::no_progress(NONE, &[b"g".as_slice(), b"p"], Ok(3))]
#[case::ahead(AT_C, &[b"g".as_slice(), b"p"], Ok(3))]
#[case::behind_and_ahead(AT_C, &[b"bb".as_slice(), b"p"], Ok(2))]
#[case::at_the_cursor(AT_C, &[b"c".as_slice(), b"p"], Ok(2))]
#[case::right_after_the_cursor(AT_C, &[b"c\0".as_slice()], Ok(2))]
#[case::all_behind(AT_C, &[b"bb".as_slice(), b"c"], Err(few(1)))]
#[case::cursor_below_the_parent(
    CursorUpdate::with_last_key(b"a"), &[b"g".as_slice()],
    Err(PlanSplitReplaceError::InvalidCoverage(cursor_invalid(0))))]
#[case::cursor_past_the_parent(CursorUpdate::with_last_key(b"y"), &[b"g".as_slice()], Err(few(1)))]
fn points_at_or_behind_the_cursor_are_dropped(
    #[case] cursor: CursorUpdate<'static>,
    #[case] points: &[&'static [u8]],
    #[case] expected: Result<usize, PlanSplitReplaceError>,
) {
    let plan = plan_split_replace_at_points_with_cursor(PARENT, points, cursor);
    let count = plan.as_ref().map(|plan| plan.children().len());
    assert_eq!(count.map_err(|error| *error), expected);
    if let Ok(plan) = plan {
        assert_eq!(plan.children()[0].cursor, cursor);
        assert_eq!(validate_split_child_cursors(cursor, plan.children()), Ok(()));
    }
}

#[rstest]
#[case::no_progress(NONE, [NONE, NONE, NONE], None)]
#[case::progress_out_of_nothing(NONE, [NONE, AT_C, NONE], Some(1))]
#[case::carried_on(AT_C, [AT_C, NONE, NONE], None)]
#[case::lost(AT_C, [NONE, NONE, NONE], Some(0))]
#[case::token_lost(AT_C, [CursorUpdate::with_last_key(b"c"), NONE, NONE], Some(0))]
#[case::token_changed(AT_C, [CursorUpdate::new(b"c", b"other"), NONE, NONE], Some(0))]
#[case::ahead_of_the_parent(AT_C, [CursorUpdate::new(b"d", b"token"), NONE, NONE], Some(0))]
#[case::carried_twice(AT_C, [AT_C, NONE, AT_C], Some(2))]
#[case::a_child_behind(
    CursorUpdate::with_last_key(b"g"), [NONE, CursorUpdate::with_last_key(b"g"), NONE], Some(0))]
#[case::first_in_the_callers_order(AT_C, [NONE, AT_C, AT_C], Some(0))]
fn children_carry_the_parents_progress(
    #[case] parent: CursorUpdate<'static>,
    #[case] cursors: [CursorUpdate<'static>; 3],
    #[case] refused: Option<usize>,
) {
    let ranges = [spec(b"b", b"g"), spec(b"g", b"p"), spec(b"p", b"y")];
    let children: Vec<_> = iter::zip(ranges, cursors).map(|(s, c)| SplitChild::new(s, c)).collect();
    let expected = refused.map_or(Ok(()), |index| Err(cursor_invalid(index)));
    assert_eq!(validate_split_child_cursors(parent, &children), expected);
    // Indices are the caller's, independent of the order of the ranges.
    let reversed: Vec<_> = children.into_iter().rev().collect();
    let accepted = validate_split_child_cursors(parent, &reversed).is_ok();
    assert_eq!(accepted, refused.is_none());
}

#[test]
fn a_residual_plan_rejects_identical_specs_only() {
    let identical = SplitResidualPlan::try_new(PARENT, PARENT);
    assert_eq!(identical, Err(SplitResidualPlanError::IdenticalSpecs));
    let other = ShardSpecRef::new(b"b", b"y", b"other");
    let plan = SplitResidualPlan::try_new(PARENT, other).unwrap();
    assert_eq!((plan.new_parent(), plan.residual()), (PARENT, other));
}

#[rstest]
#[case::fits(spec(b"b", b"m"), spec(b"m", b"y"), None)]
#[case::gap(
    spec(b"b", b"m"), spec(b"n", b"y"),
    Some(PlanSplitResidualError::InvalidCoverage(SplitValidationError::BoundaryMismatch {
        child_index: 0, next_child_index: 1, child_end: 1, next_child_start: 1 })))]
// Identical specs can never cover the parent: the plan's own rule is reported first.
#[case::plan_before_coverage(
    spec(b"c", b"m"),
    spec(b"c", b"m"),
    Some(PlanSplitResidualError::InvalidPlan(SplitResidualPlanError::IdenticalSpecs))
)]
fn residual_plans_are_checked_in_order(
    #[case] new_parent: ShardSpecRef<'static>,
    #[case] residual: ShardSpecRef<'static>,
    #[case] error: Option<PlanSplitResidualError>,
) {
    let plan = plan_split_residual(PARENT, new_parent, residual);
    assert_eq!(plan.err(), error);
}

const fn outside(point: usize) -> PlanSplitResidualError {
    PlanSplitResidualError::SplitPointOutOfBounds {
        split_point: point,
        parent_start: 1,
        parent_end: 1,
    }
}

#[rstest]
#[case::inside(b"m", None)]
#[case::just_inside(b"b\0", None)]
#[case::at_start(b"b", Some(outside(1)))]
#[case::at_end(b"y", Some(outside(1)))]
#[case::below(b"aaa", Some(outside(3)))]
#[case::above(b"yy", Some(outside(2)))]
#[case::empty(b"", Some(outside(0)))]
fn a_split_point_lies_strictly_inside(
    #[case] point: &'static [u8],
    #[case] error: Option<PlanSplitResidualError>,
) {
    let plan = plan_split_residual_at_point(PARENT, point);
    assert_eq!(plan.err(), error);
    if let Ok(plan) = plan {
        assert_eq!(plan.new_parent(), spec(b"b", point));
        assert_eq!(plan.residual(), spec(point, b"y"));
    }
}

#[rstest]
#[case::open(b"", b"")]
#[case::open_start(b"", b"y")]
#[case::open_end(b"b", b"")]
fn unbounded_parents_can_be_cut_too(#[case] start: &'static [u8], #[case] end: &'static [u8]) {
    let parent = spec(start, end);
    let plan = plan_split_residual_at_point(parent, b"m").unwrap();
    assert_eq!(plan.residual(), spec(b"m", end));
    let empty = plan_split_residual_at_point(parent, b"");
    assert!(matches!(empty, Err(PlanSplitResidualError::SplitPointOutOfBounds { .. })));
    let plan = plan_split_replace_at_points_initial_cursor(parent, &[b"m"]).unwrap();
    assert_eq!(plan.children()[0].spec, spec(start, b"m"));
}

#[test]
fn an_oversized_parent_is_reported_as_a_coverage_error() {
    let parent = ShardSpecRef::new(b"b", b"y", &LONG_METADATA);
    let error = SplitValidationError::InvalidChildSpec { child_index: 0 };
    let plan = plan_split_residual_at_point(parent, b"m");
    assert_eq!(plan, Err(PlanSplitResidualError::InvalidCoverage(error)));
    // Bounds are checked before coverage.
    assert_eq!(plan_split_residual_at_point(parent, b"z"), Err(outside(1)));
}

#[rstest]
#[case::inside(PARENT, CursorUpdate::with_last_key(b"m"), Ok(b"m\0".as_slice()))]
#[case::at_start(PARENT, CursorUpdate::with_last_key(b"b"), Ok(b"b\0".as_slice()))]
#[case::open_end(spec(b"b", b""), CursorUpdate::with_last_key(b"z"), Ok(b"z\0".as_slice()))]
#[case::no_progress(PARENT, NONE, Err(PlanSplitResidualError::MissingCursor))]
#[case::largest_key(
    spec(b"b", b""), CursorUpdate::with_last_key(&[0xFF; MAX_KEY_SIZE]),
    Err(PlanSplitResidualError::NoSuccessor))]
#[case::below(PARENT, CursorUpdate::with_last_key(b"aa"), Err(outside(3)))]
#[case::above(PARENT, CursorUpdate::with_last_key(b"y"), Err(outside(2)))]
#[case::nothing_left(
    spec(b"b", b"m\0"), CursorUpdate::with_last_key(b"m"),
    Err(PlanSplitResidualError::SplitPointOutOfBounds {
        split_point: 2, parent_start: 1, parent_end: 2 }))]
// The key has no successor and lies outside: the successor is checked first.
#[case::successor_before_bounds(
    PARENT, CursorUpdate::with_last_key(&[0xFF; MAX_KEY_SIZE]),
    Err(PlanSplitResidualError::NoSuccessor))]
#[case::missing_before_bounds(spec(b"y", b"b"), NONE, Err(PlanSplitResidualError::MissingCursor))]
fn a_residual_takes_everything_after_the_cursor(
    #[case] parent: ShardSpecRef<'static>,
    #[case] cursor: CursorUpdate<'static>,
    #[case] expected: Result<&'static [u8], PlanSplitResidualError>,
) {
    let mut point = [0; MAX_KEY_SIZE];
    let plan = plan_split_residual_from_cursor(parent, cursor, &mut point);
    assert_eq!(plan.map(|plan| plan.residual().start), expected);
    if let Ok(plan) = plan {
        assert!(cursor.last_key().is_some_and(|key| plan.new_parent().contains_key(key)));
        assert_eq!((plan.new_parent().start, plan.residual().end), (parent.start, parent.end));
    }
}

/// Yields keys short enough to collide.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..4, 1..4)
}

proptest! {
    #[test]
    fn planned_children_always_tile_their_parent(
        start in prop_oneof![Just(Vec::new()), key()],
        end in prop_oneof![Just(Vec::new()), key()],
        points in prop::collection::vec(key(), 0..6),
        sorted: bool,
        cursor in prop::option::of(key()),
    ) {
        let mut points: Vec<&[u8]> = points.iter().map(Vec::as_slice).collect();
        if sorted {
            points.sort_unstable();
            points.dedup();
        }
        let parent = ShardSpecRef::new(&start, &end, b"m");
        let cursor = cursor.as_deref().map_or(NONE, CursorUpdate::with_last_key);
        let plan = plan_split_replace_at_points_with_cursor(parent, &points, cursor);
        let ahead = points.iter().filter(|point| cursor.last_key().is_none_or(|key| **point > key));
        let cuts: Vec<&[u8]> = ahead.copied().collect();
        let rising = cuts.is_sorted_by(|a, b| a < b);
        let inside = cuts.iter().all(|cut| *cut > parent.start && parent.contains_key(cut));
        let within = cursor.last_key().is_none_or(|key| parent.contains_key(key));
        prop_assert_eq!(plan.is_ok(), !cuts.is_empty() && rising && inside && within);
        if let Ok(plan) = plan {
            let specs: Vec<_> = plan.children().iter().map(|child| child.spec).collect();
            prop_assert_eq!(validate_split_coverage(parent, &specs), Ok(()));
            prop_assert_eq!(validate_split_child_cursors(cursor, plan.children()), Ok(()));
            prop_assert!(specs.iter().all(|spec| spec.metadata == b"m"));
        }
    }

    #[test]
    fn planned_residuals_always_tile_their_parent(
        start in prop_oneof![Just(Vec::new()), key()],
        end in prop_oneof![Just(Vec::new()), key()],
        cursor in key(),
    ) {
        let parent = ShardSpecRef::new(&start, &end, b"m");
        let mut point = [0; MAX_KEY_SIZE];
        let update = CursorUpdate::with_last_key(&cursor);
        match plan_split_residual_from_cursor(parent, update, &mut point) {
            Ok(plan) => {
                let (new_parent, residual) = (plan.new_parent(), plan.residual());
                prop_assert_eq!(validate_residual_split(parent, new_parent, residual), Ok(()));
                let within = validate_residual_split_bounds(parent, new_parent, residual);
                prop_assert_eq!(within, Ok(()));
                prop_assert!(new_parent.contains_key(&cursor));
                prop_assert!(!residual.contains_key(&cursor));
            }
            // Rejected only if the cursor is outside the parent or is the last key that fits.
            Err(_) => prop_assert!(
                !parent.contains_key(&cursor) || end == [cursor.as_slice(), b"\0"].concat()
            ),
        }
    }
}
