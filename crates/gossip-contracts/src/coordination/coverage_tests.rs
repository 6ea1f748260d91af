//! Coverage: every rule, every order between two rules, and the property that exactly tilings pass.

use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;

use super::SplitValidationError::{
    BoundaryMismatch, EndMismatch, InvalidChildSpec, InvertedChild, NoChildren, OverlappingChild,
    ParentCursorOutOfBounds, SingleChild, StartMismatch,
};
use super::{
    MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPLIT_CHILDREN, ShardSpecRef, SplitValidationError,
    validate_residual_parent_cursor, validate_residual_split, validate_residual_split_bounds,
    validate_split_coverage,
};

static LONG_KEY: [u8; MAX_KEY_SIZE + 1] = [b'k'; MAX_KEY_SIZE + 1];
static LONG_METADATA: [u8; MAX_METADATA_SIZE + 1] = [b'm'; MAX_METADATA_SIZE + 1];

const PARENT: ShardSpecRef<'static> = spec(b"b", b"y");
const OPEN: ShardSpecRef<'static> = spec(b"", b"");

const fn spec(start: &'static [u8], end: &'static [u8]) -> ShardSpecRef<'static> {
    ShardSpecRef::new(start, end, b"")
}

/// Returns a valid range whose metadata is too long.
const fn oversized(start: &'static [u8], end: &'static [u8]) -> ShardSpecRef<'static> {
    ShardSpecRef::new(start, end, &LONG_METADATA)
}

const fn boundary(child: usize, next: usize, end: usize, start: usize) -> SplitValidationError {
    BoundaryMismatch {
        child_index: child,
        next_child_index: next,
        child_end: end,
        next_child_start: start,
    }
}

const START_MISMATCH: SplitValidationError =
    StartMismatch { parent_start: 1, first_child_start: 2 };
const END_MISMATCH: SplitValidationError = EndMismatch { parent_end: 1, last_child_end: 2 };

#[rstest]
#[case::two(PARENT, &[spec(b"b", b"m"), spec(b"m", b"y")])]
#[case::any_order(PARENT, &[spec(b"p", b"y"), spec(b"b", b"m"), spec(b"m", b"p")])]
#[case::open_parent(OPEN, &[spec(b"m", b""), spec(b"", b"m")])]
#[case::longest_bound(OPEN, &[spec(b"", &LONG_KEY_OK), spec(&LONG_KEY_OK, b"")])]
fn tilings_are_accepted(
    #[case] parent: ShardSpecRef<'_>,
    #[case] children: &[ShardSpecRef<'static>],
) {
    assert_eq!(validate_split_coverage(parent, children), Ok(()));
}

static LONG_KEY_OK: [u8; MAX_KEY_SIZE] = [b'k'; MAX_KEY_SIZE];

#[rstest]
#[case::none(&[], NoChildren)]
#[case::one(&[PARENT], SingleChild)]
#[case::start(&[spec(b"bb", b"m"), spec(b"m", b"y")], START_MISMATCH)]
#[case::end(&[spec(b"b", b"m"), spec(b"m", b"yy")], END_MISMATCH)]
#[case::gap(&[spec(b"b", b"m"), spec(b"nn", b"y")], boundary(0, 1, 1, 2))]
#[case::overlap(&[spec(b"b", b"mmm"), spec(b"m", b"y")], boundary(0, 1, 3, 1))]
#[case::in_the_callers_order(
    &[spec(b"p", b"y"), spec(b"b", b"m"), spec(b"m", b"oo")], boundary(2, 0, 2, 1))]
#[case::equal_starts_in_the_callers_order(
    &[spec(b"p", b"y"), spec(b"b", b"m"), spec(b"m", b"p"), spec(b"m", b"m")],
    boundary(2, 3, 1, 1),
)]
#[case::empty_interior(
    &[spec(b"m", b"m"), spec(b"b", b"m"), spec(b"m", b"y")], InvertedChild { child_index: 0 })]
#[case::inverted_last(
    &[spec(b"b", b"z"), spec(b"z", b"y")], InvertedChild { child_index: 1 })]
#[case::metadata(
    &[spec(b"m", b"y"), oversized(b"b", b"m")], InvalidChildSpec { child_index: 1 })]
#[case::key(
    &[spec(b"b", &LONG_KEY), spec(&LONG_KEY, b"y")], InvalidChildSpec { child_index: 0 })]
// Two rules fail: the earlier one is reported.
#[case::single_before_start(&[spec(b"c", b"yy")], SingleChild)]
#[case::start_before_end(&[spec(b"bb", b"m"), spec(b"m", b"yy")], START_MISMATCH)]
#[case::start_before_boundary(&[spec(b"bb", b"m"), spec(b"n", b"y")], START_MISMATCH)]
#[case::start_before_overlapping(
    &[spec(b"", b""), spec(b"", b"y")],
    StartMismatch { parent_start: 1, first_child_start: 0 })]
#[case::start_before_inverted(&[spec(b"bb", b"z"), spec(b"z", b"y")], START_MISMATCH)]
#[case::start_before_spec(&[oversized(b"bb", b"m"), spec(b"m", b"y")], START_MISMATCH)]
#[case::end_before_boundary(&[spec(b"b", b"m"), spec(b"n", b"yy")], END_MISMATCH)]
#[case::end_before_inverted(&[spec(b"b", b"z"), spec(b"z", b"yy")], END_MISMATCH)]
#[case::end_before_spec(&[oversized(b"b", b"m"), spec(b"m", b"yy")], END_MISMATCH)]
#[case::boundary_before_inverted(
    &[spec(b"b", b"m"), spec(b"z", b"y")], boundary(0, 1, 1, 1))]
#[case::boundary_before_spec(
    &[oversized(b"b", b"m"), spec(b"n", b"y")], boundary(0, 1, 1, 1))]
#[case::inverted_before_spec(
    &[oversized(b"b", b"z"), spec(b"z", b"y")], InvertedChild { child_index: 1 })]
fn what_does_not_tile_is_refused_in_order(
    #[case] children: &[ShardSpecRef<'static>],
    #[case] error: SplitValidationError,
) {
    assert_eq!(validate_split_coverage(PARENT, children), Err(error));
}

const fn overlapping(child_index: usize, next_child_index: usize) -> SplitValidationError {
    OverlappingChild { child_index, next_child_index }
}

/// An unbounded interior end can only meet an unbounded start, so these need an unbounded parent.
#[rstest]
#[case::overlapping(&[OPEN, OPEN], overlapping(0, 1))]
#[case::callers_order(&[spec(b"m", b""), spec(b"", b""), spec(b"", b"m")], overlapping(1, 2))]
#[case::end_before_overlapping(
    &[OPEN, spec(b"", b"mm")], EndMismatch { parent_end: 0, last_child_end: 2 })]
#[case::seams_go_left_to_right(
    &[OPEN, spec(b"", b"m"), spec(b"n", b"")], overlapping(0, 1))]
#[case::boundary_further_left(
    &[spec(b"", b"m"), OPEN, OPEN], boundary(0, 1, 1, 0))]
#[case::overlapping_before_inverted(
    &[OPEN, spec(b"", b"m"), spec(b"m", b"m"), spec(b"m", b"")], overlapping(0, 1))]
#[case::overlapping_before_spec(&[oversized(b"", b""), OPEN], overlapping(0, 1))]
fn unbounded_interior_ends_overlap(
    #[case] children: &[ShardSpecRef<'static>],
    #[case] error: SplitValidationError,
) {
    assert_eq!(validate_split_coverage(OPEN, children), Err(error));
}

#[rstest]
#[case::fits(spec(b"b", b"m"), spec(b"m", b"y"), Ok(()))]
#[case::roles_swapped(spec(b"mm", b"y"), spec(b"b", b"mm"), Err(START_MISMATCH))]
#[case::residual_short(spec(b"b", b"m"), spec(b"m", b"xx"), Err(END_MISMATCH))]
#[case::gap(spec(b"b", b"m"), spec(b"nn", b"y"), Err(boundary(0, 1, 1, 2)))]
#[case::empty_parent(spec(b"b", b"b"), PARENT, Err(InvertedChild { child_index: 0 }))]
#[case::empty_residual(PARENT, spec(b"y", b"y"), Err(InvertedChild { child_index: 1 }))]
#[case::heavy_residual(
    spec(b"b", b"m"), oversized(b"m", b"y"), Err(InvalidChildSpec { child_index: 1 }))]
#[case::start_before_end(spec(b"bb", b"m"), spec(b"m", b"yy"), Err(START_MISMATCH))]
#[case::end_before_boundary(spec(b"b", b"m"), spec(b"n", b"yy"), Err(END_MISMATCH))]
fn residual_roles_come_before_coverage(
    #[case] new_parent: ShardSpecRef<'_>,
    #[case] residual: ShardSpecRef<'_>,
    #[case] expected: Result<(), SplitValidationError>,
) {
    assert_eq!(validate_residual_split(PARENT, new_parent, residual), expected);
}

/// Swapped roles pass plain coverage, which ignores the order of the children.
#[test]
fn only_residual_validation_detects_swapped_roles() {
    let (left, right) = (spec(b"b", b"m"), spec(b"m", b"y"));
    assert_eq!(validate_split_coverage(PARENT, &[right, left]), Ok(()));
    assert!(validate_residual_split(PARENT, right, left).is_err());
}

#[rstest]
#[case::no_cursor(None, true)]
#[case::at_start(Some(b"b".as_slice()), true)]
#[case::inside(Some(b"lll".as_slice()), true)]
#[case::at_end(Some(b"m".as_slice()), false)]
#[case::behind(Some(b"a".as_slice()), false)]
fn the_parent_keeps_its_own_cursor(#[case] cursor: Option<&[u8]>, #[case] fits: bool) {
    let refused = ParentCursorOutOfBounds { cursor: 1, new_parent_start: 1, new_parent_end: 1 };
    let expected = if fits { Ok(()) } else { Err(refused) };
    let new_parent = spec(b"b", b"m");
    assert_eq!(validate_residual_parent_cursor(cursor, new_parent), expected);
}

#[rstest]
#[case::tiles(spec(b"b", b"m"), spec(b"m", b"y"), Ok(()))]
#[case::gap_is_inside(spec(b"bb", b"m"), spec(b"n", b"xx"), Ok(()))]
#[case::parent_starts_before(spec(b"aa", b"m"), spec(b"m", b"y"), Err(START_MISMATCH))]
#[case::residual_starts_before(spec(b"b", b"m"), spec(b"aa", b"y"), Err(START_MISMATCH))]
#[case::parent_ends_after(spec(b"b", b"yy"), spec(b"m", b"y"), Err(END_MISMATCH))]
#[case::residual_ends_after(spec(b"b", b"m"), spec(b"m", b"zz"), Err(END_MISMATCH))]
#[case::start_before_end(spec(b"aa", b"zzz"), spec(b"m", b"y"), Err(START_MISMATCH))]
#[case::parent_before_residual(spec(b"b", b"zz"), spec(b"a", b"y"), Err(END_MISMATCH))]
#[case::unbounded_residual(
    spec(b"b", b"m"), spec(b"m", b""), Err(EndMismatch { parent_end: 1, last_child_end: 0 }))]
fn ranges_of_a_residual_split_lie_within_the_parent(
    #[case] new_parent: ShardSpecRef<'_>,
    #[case] residual: ShardSpecRef<'_>,
    #[case] expected: Result<(), SplitValidationError>,
) {
    assert_eq!(validate_residual_split_bounds(PARENT, new_parent, residual), expected);
}

/// An unbounded parent contains every range.
#[test]
fn every_range_lies_within_an_unbounded_parent() {
    let parts = (spec(b"", b"m"), spec(b"m", b""));
    assert_eq!(validate_residual_split_bounds(OPEN, parts.0, parts.1), Ok(()));
}

#[test]
fn more_children_than_a_plan_allows_are_still_validated() {
    let points: Vec<[u8; 2]> = (0..=MAX_SPLIT_CHILDREN as u16).map(u16::to_be_bytes).collect();
    let cut = |pair: &[[u8; 2]]| (pair[0], pair[1]);
    let pairs: Vec<_> = points.windows(2).map(cut).chain([(points[0], points[1])]).collect();
    let specs: Vec<_> = pairs.iter().map(|(a, b)| ShardSpecRef::new(a, b, b"")).collect();
    let parent = ShardSpecRef::new(&points[0], &points[MAX_SPLIT_CHILDREN], b"");
    let exact = &specs[..MAX_SPLIT_CHILDREN];
    assert_eq!(validate_split_coverage(parent, exact), Ok(()));
    assert_eq!(validate_split_coverage(parent, &specs), Err(boundary(0, MAX_SPLIT_CHILDREN, 2, 2)));
}

/// A parent and a tiling of it, in any order.
#[derive(Clone, Debug)]
struct Tiling {
    parent: (Vec<u8>, Vec<u8>),
    children: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Tiling {
    fn validate(&self) -> Result<(), SplitValidationError> {
        let children: Vec<_> = self.children.iter().map(borrow).collect();
        validate_split_coverage(borrow(&self.parent), &children)
    }
}

fn borrow((start, end): &(Vec<u8>, Vec<u8>)) -> ShardSpecRef<'_> {
    ShardSpecRef::new(start, end, b"metadata")
}

fn tilings() -> impl Strategy<Value = Tiling> {
    let keys = prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 3..12);
    (keys, any::<bool>(), any::<bool>()).prop_flat_map(|(keys, open_start, open_end)| {
        let mut bounds: Vec<Vec<u8>> = keys.into_iter().collect();
        let last = bounds.len() - 1;
        if open_start {
            bounds[0].clear();
        }
        if open_end {
            bounds[last].clear();
        }
        let parent = (bounds[0].clone(), bounds[last].clone());
        let cuts = bounds.windows(2);
        let children: Vec<_> = cuts.map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        Just(children).prop_shuffle().prop_map(move |children| {
            let parent = parent.clone();
            Tiling { parent, children }
        })
    })
}

proptest! {
    #[test]
    fn every_tiling_is_accepted_in_any_order(tiling in tilings()) {
        prop_assert_eq!(tiling.validate(), Ok(()));
    }

    #[test]
    fn a_tiling_with_one_bound_moved_is_rejected(
        mut tiling in tilings(),
        child: Index,
        move_end: bool,
        bound in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let (start, end) = child.get_mut(&mut tiling.children);
        let moved = if move_end { end } else { start };
        prop_assume!(*moved != bound);
        *moved = bound;
        prop_assert!(tiling.validate().is_err());
    }

    #[test]
    fn a_tiling_with_a_missing_or_repeated_child_is_rejected(
        mut tiling in tilings(),
        child: Index,
    ) {
        let picked = child.get(&tiling.children).clone();
        tiling.children.push(picked.clone());
        prop_assert!(tiling.validate().is_err());
        tiling.children.retain(|child| *child != picked);
        prop_assert!(tiling.validate().is_err());
    }
}

type Bounds = (&'static [u8], &'static [u8]);

/// The bounds that the exhaustive test combines: unbounded, and four keys.
const BOUNDS: [&[u8]; 5] = [b"", b"a", b"b", b"c", b"d"];

/// Returns whether `children` tile `parent`, by definition: no child is empty, and every key has
/// one child if it is in the parent and none otherwise. One key for each interval between two
/// bounds is enough.
fn tiles(parent: Bounds, children: &[Bounds]) -> bool {
    let covers = |pair: Bounds, key: &[u8]| pair.0 <= key && (pair.1.is_empty() || key < pair.1);
    let empty = |pair: &Bounds| !pair.1.is_empty() && pair.0 >= pair.1;
    let owners = |key: &[u8]| {
        let owners = children.iter().filter(|child| covers(**child, key));
        owners.count()
    };
    children.len() >= 2
        && !children.iter().any(empty)
        && BOUNDS.iter().all(|key| owners(key) == usize::from(covers(parent, key)))
}

/// Compares the validator with the definition for this parent and these children, and counts the
/// tilings; then does the same with one more child, in every way, until there are `most`.
fn count_tilings(parent: Bounds, children: &mut Vec<Bounds>, most: usize, count: &mut [usize]) {
    let specs: Vec<_> = children.iter().map(|(start, end)| spec(start, end)).collect();
    let accepted = validate_split_coverage(spec(parent.0, parent.1), &specs).is_ok();
    assert_eq!(accepted, tiles(parent, children), "{children:?} of {parent:?}");
    count[children.len()] += usize::from(accepted);
    if children.len() < most {
        for start in BOUNDS {
            for end in BOUNDS {
                children.push((start, end));
                count_tilings(parent, children, most, count);
                children.pop();
            }
        }
    }
}

/// Exhaustive, because randomly chosen parents and children hardly ever form a tiling.
#[test]
fn exactly_the_tilings_are_accepted() {
    const MOST: usize = 3;
    let mut count = [0; MOST + 1];
    for start in BOUNDS {
        for end in BOUNDS {
            count_tilings((start, end), &mut Vec::new(), MOST, &mut count);
        }
    }
    // Four keys and the two ends of the keyspace are six points: n children take n + 1 of them, in
    // any order.
    assert_eq!(count, [0, 0, 20 * 2, 15 * 6]);
}
