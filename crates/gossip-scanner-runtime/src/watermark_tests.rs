use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::watermark::{ItemWatermark, Settled};

fn of(len: usize) -> ItemWatermark {
    let mut mark = ItemWatermark::default();
    mark.begin(len);
    mark
}

#[test]
fn an_empty_page_is_finished() {
    assert!(of(0).is_finished());
    assert_eq!(of(0).start(), None);
}

#[test]
fn the_mark_waits_for_the_slowest() {
    let mut mark = of(3);
    assert_eq!((mark.start(), mark.start(), mark.start()), (Some(0), Some(1), Some(2)));
    assert!(mark.settle(2, Settled::Done) && mark.settle(1, Settled::Gone));
    assert_eq!((mark.advance(|_, _| true), mark.in_flight), (0..0, 1));
    assert!(mark.settle(0, Settled::Unread));
    assert_eq!((mark.advance(|_, _| true), mark.in_flight), (0..3, 0));
    assert_eq!(mark.settled(1), Some(Settled::Gone));
    assert!(mark.is_finished());
}

#[test]
fn an_unstarted_or_settled_item_cannot_be_settled() {
    let mut mark = of(2);
    assert!(!mark.settle(0, Settled::Done), "not started");
    mark.start();
    assert!(mark.settle(0, Settled::Done));
    assert!(!mark.settle(0, Settled::Done), "settled before");
    assert!(!mark.settle(1, Settled::Done) && !mark.settle(9, Settled::Done));
    assert_eq!(mark.in_flight, 0);
}

#[test]
#[should_panic(expected = "a page ends before the next begins")]
fn a_page_does_not_begin_over_another() {
    let mut mark = of(1);
    mark.start();
    mark.begin(1);
}

#[test]
fn abandoning_forgets_in_flight_items() {
    let mut mark = of(1);
    mark.start();
    mark.abandon();
    assert!(mark.is_finished() && !mark.settle(0, Settled::Done));
}

proptest! {
    /// Against sets: the mark is the smallest index that was not settled.
    #[test]
    fn the_mark_is_the_finished_prefix(
        len in 0_usize..40,
        steps in prop::collection::vec((0_usize..4, 0_usize..40), 0..200),
    ) {
        let mut mark = of(len);
        let (mut started, mut settled) = (0, BTreeSet::new());
        let mut passed = 0;
        for (step, index) in steps {
            match step {
                0 => {
                    let expected = (started < len).then_some(started);
                    prop_assert_eq!(mark.start(), expected);
                    started += usize::from(expected.is_some());
                }
                1 | 2 => {
                    let fresh = index < started && settled.insert(index);
                    prop_assert_eq!(mark.settle(index, Settled::Done), fresh);
                }
                _ => {
                    let moved = mark.advance(|_, _| true);
                    prop_assert_eq!(moved.start, passed);
                    passed = (0..len).find(|index| !settled.contains(index)).unwrap_or(len);
                    prop_assert_eq!(moved.end, passed);
                }
            }
            prop_assert_eq!(mark.in_flight, started - settled.len());
        }
    }
}
