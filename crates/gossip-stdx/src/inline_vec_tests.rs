use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use crate::InlineVec;
use crate::test_support::{Register, config, panics, steps};

const CAP: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    Push(u16),
    Pop,
    Truncate(usize),
    ExtendFromSlice(Vec<u16>),
    /// The flag hides the length from the size hint.
    Extend(Vec<u16>, bool),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let items = || prop::collection::vec(any::<u16>(), 0..5);
    prop_oneof![
        6 => any::<u16>().prop_map(Op::Push),
        6 => Just(Op::Pop),
        2 => (0..CAP * 2).prop_map(Op::Truncate),
        2 => items().prop_map(Op::ExtendFromSlice),
        2 => (items(), any::<bool>()).prop_map(|(items, hidden)| Op::Extend(items, hidden)),
        1 => Just(Op::Clear),
    ]
}

fn step(vec: &mut InlineVec<u16, CAP>, model: &mut Vec<u16>, op: &Op) {
    match op {
        Op::Push(item) => {
            vec.push(*item);
            model.push(*item);
        }
        Op::Pop => assert_eq!(vec.pop(), model.pop()),
        Op::Truncate(len) => {
            vec.truncate(*len);
            model.truncate(*len);
        }
        Op::ExtendFromSlice(items) => {
            vec.extend_from_slice(items);
            model.extend_from_slice(items);
        }
        Op::Extend(items, hidden) => {
            match hidden {
                true => vec.extend(items.iter().copied().filter(|_| true)),
                false => vec.extend(items.iter().copied()),
            }
            model.extend(items);
        }
        Op::Clear => {
            vec.clear();
            model.clear();
        }
    }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn inline_vec_behaves_like_a_vec_and_never_moves_back_inline(
        ops in prop::collection::vec(op(), 0..steps(60)),
    ) {
        let (mut vec, mut model) = (InlineVec::new(), Vec::new());
        let mut longest = 0;
        for op in &ops {
            step(&mut vec, &mut model, op);
            longest = longest.max(model.len());
            assert_eq!(vec.as_slice(), model.as_slice());
            assert_eq!(vec.as_mut_slice(), model.as_mut_slice());
            assert_eq!((vec.len(), vec.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(vec.is_spilled(), longest > CAP);
            assert_eq!(format!("{vec:?}"), format!("{model:?}"));
        }
        prop_assert_eq!(&vec.clone(), &vec);
        prop_assert!(vec.into_iter().eq(model));
    }

    #[test]
    fn every_constructor_yields_the_same_items(
        items in prop::collection::vec(any::<u16>(), 0..3 * CAP),
    ) {
        let built = [
            InlineVec::<_, CAP>::from_slice(&items),
            InlineVec::from(items.clone()),
            items.iter().copied().collect(),
            // `filter` hides the length from the size hint.
            items.iter().copied().filter(|_| true).collect(),
        ];
        for vec in &built {
            prop_assert_eq!(&**vec, items.as_slice());
            prop_assert_eq!(vec.is_spilled(), items.len() > CAP);
        }
    }

    #[test]
    fn consuming_from_both_ends_yields_every_item_once(
        items in prop::collection::vec(any::<u16>(), 0..3 * CAP),
        sides in prop::collection::vec(any::<bool>(), 4 * CAP),
    ) {
        let mut model = items.clone().into_iter();
        let mut consumed = InlineVec::<_, CAP>::from(items).into_iter();
        for from_front in sides {
            prop_assert_eq!(consumed.len(), model.len());
            if from_front {
                prop_assert_eq!(consumed.next(), model.next());
            } else {
                prop_assert_eq!(consumed.next_back(), model.next_back());
            }
        }
    }
}

#[test]
fn the_item_after_the_last_inline_one_moves_everything_to_the_heap() {
    let mut vec: InlineVec<_, 2> = [1, 2].into_iter().collect();
    assert!(!vec.is_spilled());
    vec.push(3);
    assert!(vec.is_spilled());
    vec.clear();
    assert!(vec.is_spilled() && vec.is_empty());
}

#[test]
fn items_are_mutable_through_iteration_and_through_the_slice() {
    let mut vec = InlineVec::<_, 4>::from_slice(&[3, 1, 2]);
    for item in &mut vec {
        *item *= 10;
    }
    vec.sort_unstable();
    assert!((&vec).into_iter().eq(&[10, 20, 30]));
}

#[test]
fn an_iterator_with_a_wrong_size_hint_is_still_collected() {
    struct Liar(u32);
    impl Iterator for Liar {
        type Item = u32;

        fn next(&mut self) -> Option<u32> {
            self.0 = self.0.checked_sub(1)?;
            Some(self.0)
        }

        fn size_hint(&self) -> (usize, Option<usize>) {
            (1, Some(1))
        }
    }
    let vec: InlineVec<_, 4> = Liar(7).collect();
    assert_eq!(*vec, [6, 5, 4, 3, 2, 1, 0]);
}

/// An iterator that is not fused may yield items again after its first `None`; these must not be
/// added.
#[test]
fn extend_stops_at_the_first_none() {
    let mut calls = 0;
    let unfused = std::iter::from_fn(|| {
        calls += 1;
        (calls != 3).then_some(calls).filter(|call| *call < 6)
    });
    let vec: InlineVec<_, 4> = unfused.collect();
    assert_eq!(*vec, [1, 2]);
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
    let mut vec: InlineVec<_, 2> = [Nothing, Nothing].into_iter().collect();
    assert!(!vec.is_spilled());
    vec.extend([Nothing, Nothing]);
    assert_eq!((vec.len(), vec.is_spilled()), (4, true));
    drop(vec.pop());
    vec.truncate(2);
    assert_eq!(DROPS.load(Ordering::Relaxed), 2);
    let mut consumed = vec.into_iter();
    drop(consumed.next_back());
    assert_eq!((consumed.len(), DROPS.load(Ordering::Relaxed)), (1, 3));
    drop(consumed);
    assert_eq!(DROPS.load(Ordering::Relaxed), 4);
}

#[test]
fn every_item_is_dropped_once_however_it_is_removed() {
    let register = Register::default();
    let mut vec: InlineVec<_, 4> = register.items(3).into_iter().collect();
    vec.push(register.item());
    let inline_copy = vec.clone();
    vec.push(register.item());
    assert_eq!(register.dropped(), 0, "a spill moves items and drops none");
    drop(vec.pop());
    vec.truncate(3);
    assert_eq!(register.dropped(), 2);
    let heap_copy = vec.clone();
    let mut consumed = vec.into_iter();
    drop((consumed.next(), consumed.next_back()));
    drop((consumed, inline_copy, heap_copy));
    register.assert_all_dropped_once();
}

#[test]
fn extending_with_a_panicking_clone_keeps_the_clones_made_before_it() {
    // The vector holds two items; the second list fits inline, the third spills.
    for extra in [2, 9] {
        let register = Register::default();
        let mut source = register.items(extra);
        source[1].panics_on_clone = true;
        let mut vec: InlineVec<_, 4> = register.items(2).into_iter().collect();
        assert!(panics(|| vec.extend_from_slice(&source)));
        assert_eq!(vec.len(), 3, "the clone made before the panic stays");
        drop((vec, source));
        register.assert_all_dropped_once();
    }
}

#[test]
fn a_panicking_drop_in_clear_leaves_an_empty_vector_and_drops_none_twice() {
    for len in [3, 9] {
        let register = Register::default();
        let mut items = register.items(len);
        items[1].panics_on_drop = true;
        let mut vec: InlineVec<_, 4> = items.into_iter().collect();
        assert!(panics(|| vec.clear()));
        assert!(vec.is_empty());
        drop(vec);
        register.assert_all_dropped_once();
    }
}

#[test]
fn a_vector_can_be_constructed_in_a_const() {
    static EMPTY: InlineVec<u64, 16> = InlineVec::new();
    assert!(EMPTY.is_empty());
    assert_eq!(InlineVec::<u64, 16>::INLINE_CAPACITY, 16);
    assert_eq!(InlineVec::<u64, 16>::default(), EMPTY);
}
