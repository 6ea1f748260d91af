use proptest::prelude::*;

use crate::backoff::Backoff;

#[test]
fn waits_double_up_to_the_longest() {
    let mut backoff = Backoff::new(10, 100, 7);
    for span in [10, 20, 40, 80, 100, 100] {
        let wait = backoff.wait();
        assert!((span / 2..=span).contains(&wait), "{wait} of {span}");
    }
    backoff.reset();
    assert!(backoff.wait() <= 10);
}

#[test]
fn the_same_seed_waits_alike() {
    let waits = |seed| {
        let mut backoff = Backoff::new(1_000, 60_000, seed);
        std::array::from_fn::<u64, 8, _>(|_| backoff.wait())
    };
    assert_eq!(waits(3), waits(3));
    assert_ne!(waits(3), waits(4));
}

proptest! {
    #[test]
    fn no_wait_is_longer_than_the_longest(first in any::<u64>(), longest in any::<u64>()) {
        let mut backoff = Backoff::new(first, longest, 1);
        for _ in 0..130 {
            prop_assert!(backoff.wait() <= longest);
        }
    }
}
