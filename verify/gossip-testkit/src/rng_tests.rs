//! The generator: its published sequence, its bounds, and that a shuffle keeps every item.

use super::Rng;

/// The first numbers of SplitMix64 as its authors publish them for the seed 1234567.
#[test]
fn the_sequence_is_that_of_splitmix64() {
    let mut rng = Rng::seeded(1_234_567);
    let expected = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];
    assert_eq!(expected.map(|_| rng.next_u64()), expected);
}

#[test]
fn every_number_below_the_bound_is_drawn_and_no_other() {
    let mut rng = Rng::seeded(1);
    let mut counts = [0_u32; 10];
    for _ in 0..10_000 {
        counts[usize::try_from(rng.below(10)).unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
}

#[test]
fn a_chance_comes_true_at_its_rate() {
    let mut rng = Rng::seeded(2);
    let hits = (0..10_000).filter(|_| rng.chance(30)).count();
    assert!((2_800..3_200).contains(&hits), "{hits}");
    assert!((0..1_000).all(|_| rng.chance(100)));
    assert!(!(0..1_000).any(|_| rng.chance(0)));
}

#[test]
fn a_shuffle_keeps_every_item_and_moves_them_evenly() {
    let mut rng = Rng::seeded(3);
    let mut first = [0_u32; 5];
    for _ in 0..5_000 {
        let mut items = [0, 1, 2, 3, 4];
        rng.shuffle(&mut items);
        first[items[0]] += 1;
        items.sort_unstable();
        assert_eq!(items, [0, 1, 2, 3, 4]);
    }
    assert!(first.iter().all(|count| (800..1_200).contains(count)), "{first:?}");
}
