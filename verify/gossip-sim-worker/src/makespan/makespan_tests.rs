use rstest::rstest;

use super::{Case, Shape, Way, run};

/// Few enough keys for a debug build; the table has ten times as many.
const KEYS: usize = 1_600;

#[rstest]
fn auto_split_keeps_every_worker_busy(
    #[values(
        Shape::Zipf,
        Shape::Clustered,
        Shape::Uuids,
        Shape::Paths,
        Shape::HotDirectory,
        Shape::SlowStretch
    )]
    shape: Shape,
) {
    let workers = 4;
    let outcome = run(Case { shape, keys: KEYS, workers, way: Way::Auto });
    let ratio = outcome.ratio(workers);
    assert!(ratio <= 1.10, "{ratio:.3} {outcome:?}");
    let allowed = outcome.splits_allowed(workers);
    assert!(outcome.splits <= allowed, "{} splits of {allowed}: {outcome:?}", outcome.splits);
}

/// The static and naive divisions show that the cases are hard.
#[test]
fn a_hot_directory_keeps_static_shards_waiting() {
    let case = |way| run(Case { shape: Shape::HotDirectory, keys: KEYS, workers: 8, way });
    assert!(case(Way::Static(1)).ratio(8) > 2.0);
    assert!(case(Way::Auto).ratio(8) < case(Way::Static(4)).ratio(8));
}

#[test]
fn the_same_case_is_played_alike() {
    let case = Case { shape: Shape::Paths, keys: 1000, workers: 5, way: Way::Auto };
    assert_eq!(run(case), run(case));
}
