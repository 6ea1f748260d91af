use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use crate::RingBuffer;
use crate::test_support::{Register, config, panics, steps};

const CAP: usize = 8;

#[derive(Clone, Debug)]
enum Op {
    PushBack(u16),
    PushBackOverwrite(u16),
    PopFront,
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<u16>().prop_map(Op::PushBack),
        6 => any::<u16>().prop_map(Op::PushBackOverwrite),
        6 => Just(Op::PopFront),
        1 => Just(Op::Clear),
    ]
}

/// Applies `op` to the ring and to the model queue, and compares the results.
fn step(ring: &mut RingBuffer<u16, CAP>, model: &mut VecDeque<u16>, op: &Op) {
    match *op {
        Op::PushBack(item) if model.len() == CAP => assert_eq!(ring.push_back(item), Err(item)),
        Op::PushBack(item) => {
            model.push_back(item);
            assert_eq!(ring.push_back(item), Ok(()));
        }
        Op::PushBackOverwrite(item) => {
            let evicted = if model.len() == CAP { model.pop_front() } else { None };
            model.push_back(item);
            assert_eq!(ring.push_back_overwrite(item), evicted);
        }
        Op::PopFront => assert_eq!(ring.pop_front(), model.pop_front()),
        Op::Clear => {
            ring.clear();
            model.clear();
        }
    }
}

fn assert_same(ring: &RingBuffer<u16, CAP>, model: &VecDeque<u16>) {
    assert_eq!(ring.len(), model.len());
    assert_eq!(ring.is_empty(), model.is_empty());
    assert_eq!(ring.is_full(), model.len() == CAP);
    assert_eq!(ring.front(), model.front());
    assert_eq!(ring.back(), model.back());
    (0..=CAP).for_each(|index| assert_eq!(ring.get(index), model.get(index)));
    assert!(ring.iter().eq(model));
    assert!(ring.iter().rev().eq(model.iter().rev()));
    let sum = |sum: u64, item: &u16| sum * 31 + u64::from(*item % 5);
    assert_eq!(ring.iter().fold(0, sum), model.iter().fold(0, sum));
    let odd = |item: &&u16| *item % 2 == 1;
    assert_eq!(ring.iter().find(odd), model.iter().find(odd));
    assert_eq!(ring.iter().rfind(odd), model.iter().rfind(odd));
    assert_eq!(format!("{ring:?}"), format!("{model:?}"));
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn ring_behaves_like_a_bounded_queue(ops in prop::collection::vec(op(), 0..steps(80))) {
        let (mut ring, mut model) = (RingBuffer::new(), VecDeque::new());
        for op in &ops {
            step(&mut ring, &mut model, op);
            assert_same(&ring, &model);
        }
        prop_assert_eq!(&ring.clone(), &ring);
        prop_assert!(ring.into_iter().eq(model));
    }

    #[test]
    fn equality_ignores_slot_positions(
        items in prop::collection::vec(any::<u8>(), 0..=CAP),
        turn in 0..CAP,
    ) {
        let straight: RingBuffer<u8, CAP> = items.iter().copied().collect();
        let mut turned = RingBuffer::<u8, CAP>::new();
        for _ in 0..turn {
            turned.push_back(0).unwrap();
            turned.pop_front().unwrap();
        }
        items.iter().for_each(|item| turned.push_back(*item).unwrap());
        prop_assert_eq!(&turned, &straight);
        turned.push_back_overwrite(1);
        let evicted = usize::from(items.len() == CAP);
        prop_assert_ne!(turned, straight.into_iter().chain([0]).skip(evicted).collect());
    }

    #[test]
    fn iterating_from_both_ends_yields_every_item_once(
        turn in 0..CAP, len in 0..=CAP, sides in prop::collection::vec(any::<bool>(), 2 * CAP),
    ) {
        let mut ring: RingBuffer<usize, CAP> = (0..turn).collect();
        ring.clear();
        (0..len).for_each(|item| ring.push_back(item).unwrap());
        let (mut iter, mut model) = (ring.iter(), (0..len).collect::<VecDeque<_>>());
        for from_front in sides {
            prop_assert_eq!(iter.len(), model.len());
            let (seen, expected) = if from_front {
                (iter.next(), model.pop_front())
            } else {
                (iter.next_back(), model.pop_back())
            };
            prop_assert_eq!(seen.copied(), expected);
        }
    }
}

#[test]
fn collecting_more_than_fits_panics_and_drops_everything_once() {
    let register = Register::default();
    assert!(panics(|| drop(register.items(CAP + 3).into_iter().collect::<RingBuffer<_, CAP>>())));
    register.assert_all_dropped_once();
}

#[test]
fn try_from_iter_returns_the_first_item_that_does_not_fit() {
    assert_eq!(RingBuffer::<_, 2>::try_from_iter([1, 2, 3, 4]), Err(3));
    assert!(RingBuffer::<_, 2>::try_from_iter([1, 2]).unwrap().iter().eq(&[1, 2]));
}

#[test]
fn zero_sized_items_are_counted_and_dropped_like_others() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut ring: RingBuffer<_, 2> = [Nothing, Nothing].into_iter().collect();
    drop(ring.push_back(Nothing).unwrap_err());
    drop(ring.push_back_overwrite(Nothing).unwrap());
    assert_eq!((ring.len(), DROPS.load(Ordering::Relaxed)), (2, 2));
    // The window wraps here, and all slots have the same address.
    assert_eq!((ring.iter().count(), ring.iter().rev().count()), (2, 2));
    drop(ring.pop_front());
    drop(ring);
    assert_eq!(DROPS.load(Ordering::Relaxed), 4);
}

#[test]
fn every_item_is_dropped_once_however_it_is_removed() {
    let register = Register::default();
    let mut ring = RingBuffer::<_, 4>::new();
    for item in register.items(6) {
        drop(ring.push_back_overwrite(item));
    }
    assert_eq!(register.dropped(), 2);
    assert_eq!(ring.push_back(register.item()).map_err(|refused| refused.id), Err(6));
    assert_eq!(register.dropped(), 3);
    let copy = ring.clone();
    drop(ring.pop_front());
    let mut consumed = ring.into_iter();
    assert_eq!(consumed.len(), 3);
    drop(consumed.next());
    drop((consumed, copy));
    register.assert_all_dropped_once();
}

#[test]
fn clear_with_a_panicking_drop_keeps_the_rest_and_drops_none_twice() {
    let register = Register::default();
    let mut ring: RingBuffer<_, 4> = register.items(4).into_iter().collect();
    // Advances `head` by two, so that the window wraps.
    for mut item in register.items(2) {
        item.panics_on_drop = true;
        drop(ring.push_back_overwrite(item));
    }
    assert!(panics(|| ring.clear()));
    // Items 2, 3 and the panicking 4 were removed; the panicking 5 remains.
    assert_eq!(ring.len(), 1);
    assert_eq!(ring.front().unwrap().id, 5);
    assert_eq!(register.dropped(), 5);
    assert!(panics(|| ring.clear()));
    assert!(ring.is_empty());
    drop(ring);
    register.assert_all_dropped_once();
}

#[test]
fn dropping_a_ring_with_a_panicking_item_drops_none_twice() {
    let register = Register::default();
    let mut items = register.items(4);
    items[1].panics_on_drop = true;
    let ring: RingBuffer<_, 4> = items.into_iter().collect();
    assert!(panics(|| drop(ring)));
    register.assert_no_double_drop();
    assert_eq!(register.dropped(), 2);
}

#[test]
fn a_panicking_clone_drops_the_clones_and_keeps_the_original() {
    let register = Register::default();
    let mut items = register.items(4);
    items[2].panics_on_clone = true;
    let ring: RingBuffer<_, 4> = items.into_iter().collect();
    assert!(panics(|| drop(ring.clone())));
    assert_eq!((register.made(), register.dropped()), (6, 2));
    drop(ring);
    register.assert_all_dropped_once();
}

#[test]
fn a_ring_can_be_constructed_in_a_const() {
    static EMPTY: RingBuffer<u64, 16> = RingBuffer::new();
    assert!(EMPTY.is_empty());
    assert_eq!(RingBuffer::<u64, 16>::CAPACITY, 16);
    assert_eq!(RingBuffer::<u8, 1>::default().back(), None);
}

/// The converse, that a ring of other items is neither, is shown by `compile_fail` examples in the
/// documentation of the type.
#[test]
fn send_and_sync_follow_the_items() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<RingBuffer<u8, 4>>();
}
