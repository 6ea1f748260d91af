//! Places are a bijection that spreads ids, and their bytes never change.

use gossip_contracts::identity::{LogicalTime, ShardId};
use proptest::prelude::*;

use super::scatter::{ClaimSpot, scatter, unscatter};

/// Ids as they come: small consecutive ones, derived ones, any.
fn id() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..1_000, any::<u64>(), (1_u64 << 63)..=u64::MAX]
}

proptest! {
    #[test]
    fn an_id_has_one_place_and_a_place_one_id(number in id()) {
        let shard = ShardId::from_raw(number);
        prop_assert_eq!(unscatter(scatter(shard)), shard);
        prop_assert_eq!(scatter(unscatter(number)), number);
    }

    #[test]
    fn spots_are_ordered_by_time_and_then_by_place(
        [one, other] in [(id(), id()), (id(), id())],
    ) {
        let spot = |(at, place)| ClaimSpot::new(LogicalTime::from_raw(at), place);
        prop_assert_eq!(spot(one).cmp(&spot(other)), one.cmp(&other));
        prop_assert_eq!((spot(one).at().as_raw(), spot(one).place()), one);
        let (low, high) = (spot(one.min(other)), spot(one.max(other)));
        prop_assert_eq!(low.plus(high.behind(low)), high);
    }
}

/// Every interval of a 256th of all places has its share, for ids of every usual kind.
#[test]
fn ids_are_spread_evenly_over_all_places() {
    const IDS: u64 = 256 * 200;
    for step in [1, 2, 10, 1 << 16, 1 << 32, 1 << 48] {
        let mut shares = [0_u32; 256];
        for number in 0..IDS {
            shares[(scatter(ShardId::from_raw(number * step)) >> 56) as usize] += 1;
        }
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(*least >= 100 && *most <= 300, "step {step}: {least} to {most} of 200");
    }
}
