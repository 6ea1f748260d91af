use gossip_contracts::connector::Connector;
use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use proptest::prelude::*;

use super::integers::*;
use super::row_keys::row_key;
use super::test_support::*;

struct Integers(IntegerRange, Vec<u64>);

impl Fixture for Integers {
    fn connect(&self) -> Box<dyn Connector> {
        Box::new(self.0)
    }

    fn expected(&self) -> Vec<ExpectedItem> {
        let item = |n: &u64| ExpectedItem::new(row_key(*n), n.to_string());
        self.1.iter().map(item).collect()
    }
}

#[test]
fn integers_conform() {
    assert_conforms(&mut Integers(IntegerRange::new(95, 106), (95..106).collect()));
    assert_conforms(&mut Integers(IntegerRange::new(0, 4), (0..4).collect()));
    let top = u64::MAX - 6;
    let integers = IntegerRange::inclusive(top, u64::MAX - 1).unwrap();
    assert_conforms(&mut Integers(integers, (top..u64::MAX).collect()));
}

#[test]
fn a_range_without_integers_lists_nothing() {
    let inclusive = IntegerRange::inclusive(5, 4).unwrap();
    for empty in [IntegerRange::new(5, 5), IntegerRange::new(5, 3), inclusive] {
        assert!(all_keys(&empty).is_empty());
        assert_eq!(empty.count_keys(WHOLE), Ok(Some(0)));
        assert_eq!(sample_of(&empty, WHOLE, 10), (vec![], true));
        assert_eq!(empty.last(), None);
    }
}

#[test]
fn all_integers_but_the_greatest_are_counted_and_sampled() {
    assert_eq!(IntegerRange::inclusive(0, u64::MAX), None);
    let all = IntegerRange::new(0, u64::MAX);
    assert_eq!(all.count_keys(WHOLE), Ok(Some(u64::MAX)));
    let (sample, exhausted) = sample_of(&all, WHOLE, 4);
    let quarter = u64::MAX / 4;
    let quarters = [0, quarter, 2 * quarter + 1, 3 * quarter + 2].map(|n| row_key(n).to_vec());
    assert_eq!((sample, exhausted), (quarters.to_vec(), false));
}

proptest! {
    #[test]
    fn every_cursor_gives_the_suffix(first in 0..1000_u64, len in 0..12_u64) {
        assert_every_cursor_gives_the_suffix(&IntegerRange::new(first, first + len));
    }

    #[test]
    fn counts_are_those_of_listings(first: u64, len in 0..50_u64, start: u64, end: u64) {
        let last = first.saturating_add(len);
        let integers = IntegerRange::new(first, last);
        let (start, end) = (row_key(start), row_key(end));
        let range = ShardSpecRef::new(&start, &end, b"");
        let listed = keys_from(&integers, range, CursorUpdate::initial());
        prop_assert_eq!(integers.count_keys(range), Ok(Some(listed.len() as u64)));
    }
}
