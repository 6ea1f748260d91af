//! The arena: a handle is valid exactly while its spec is stored.

use gossip_stdx::SlabFull;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{ShardArena, ShardArenaTooLarge, ShardSpecHandle, ShardSpecRef};

const A: ShardSpecRef<'static> = ShardSpecRef::new(b"a", b"b", b"meta");
const B: ShardSpecRef<'static> = ShardSpecRef::new(b"b", b"c", b"");

#[test]
fn specs_are_stored_and_viewed() {
    let mut arena = ShardArena::with_capacity(2, 1024);
    assert_eq!((arena.live_specs(), arena.slot_capacity()), (0, 2));
    let a = arena.alloc_spec(A).unwrap();
    let b = arena.alloc_spec(B).unwrap();
    assert_ne!(a, b);
    assert_eq!((arena.view_spec(a), arena.try_view_spec(b)), (A, Some(B)));
    assert_eq!(arena.live_specs(), 2);
}

#[test]
fn running_out_of_slots_returns_slab_full() {
    let mut arena = ShardArena::with_capacity(1, 1024);
    let a = arena.alloc_spec(A).unwrap();
    let full = SlabFull { requested: 1, available: 0 };
    assert_eq!(arena.alloc_spec(B), Err(full));
    assert_eq!(arena.view_spec(a), A);
    // Slots are checked before bytes: this arena has neither.
    let mut nothing = ShardArena::with_capacity(0, 0);
    assert_eq!(nothing.alloc_spec(A), Err(full));
}

#[test]
fn running_out_of_bytes_costs_no_slot() {
    let mut arena = ShardArena::with_capacity(2, 48);
    let long = ShardSpecRef::new(b"a", b"b", &[b'm'; 64]);
    let full = SlabFull { requested: 128, available: 48 };
    assert_eq!(arena.alloc_spec(long), Err(full));
    assert_eq!(arena.live_specs(), 0);
    assert!(arena.alloc_spec(A).is_ok());
}

#[test]
#[should_panic(expected = "specs are validated before they are stored")]
fn storing_an_invalid_spec_panics() {
    let mut arena = ShardArena::with_capacity(1, 64);
    let _ = arena.alloc_spec(ShardSpecRef::new(b"b", b"a", b""));
}

#[test]
fn a_freed_handle_is_stale_even_after_its_slot_is_reused() {
    let mut arena = ShardArena::with_capacity(1, 64);
    let old = arena.alloc_spec(A).unwrap();
    arena.free_spec(old);
    assert_eq!((arena.try_view_spec(old), arena.live_specs()), (None, 0));
    let new = arena.alloc_spec(B).unwrap();
    assert_eq!(arena.try_view_spec(old), None);
    // Freeing the stale handle again must not free the new spec.
    arena.free_spec(old);
    assert_eq!(arena.view_spec(new), B);
}

#[test]
fn a_foreign_handle_is_rejected() {
    let mut arena = ShardArena::with_capacity(1, 64);
    let mut other = ShardArena::with_capacity(1, 64);
    let handle = arena.alloc_spec(A).unwrap();
    let twin = other.alloc_spec(A).unwrap();
    assert_ne!(handle, twin);
    assert_eq!(other.try_view_spec(handle), None);
    other.free_spec(handle);
    assert_eq!((other.live_specs(), other.view_spec(twin)), (1, A));
}

#[test]
#[should_panic(expected = "the handle belongs to this arena and its spec is live")]
fn viewing_a_stale_handle_panics() {
    let mut arena = ShardArena::with_capacity(1, 64);
    let handle = arena.alloc_spec(A).unwrap();
    arena.clear();
    let _ = arena.view_spec(handle);
}

#[test]
fn clear_makes_every_handle_stale_and_starts_at_the_first_slot() {
    let mut arena = ShardArena::with_capacity(3, 1024);
    let handles = [A, B, A].map(|spec| arena.alloc_spec(spec).unwrap());
    let slots = handles.map(slot_of);
    arena.free_spec(handles[0]);
    arena.clear();
    assert_eq!(arena.live_specs(), 0);
    assert!(handles.iter().all(|handle| arena.try_view_spec(*handle).is_none()));
    let again = [A, B, A].map(|spec| arena.alloc_spec(spec).unwrap());
    assert_eq!(again.map(slot_of), slots);
    assert!(handles.iter().all(|handle| arena.try_view_spec(*handle).is_none()));
}

/// Returns the slot number, which only `Debug` shows.
fn slot_of(handle: ShardSpecHandle) -> String {
    let text = format!("{handle:?}");
    text.rsplit("slot: ").next().unwrap_or_default().to_owned()
}

#[test]
fn sizes_beyond_the_addressable_range_are_rejected() {
    let limit = u32::MAX as usize;
    for (slots, bytes) in [(limit + 1, 16), (1, limit + 1)] {
        let refused = ShardArena::try_with_capacity(slots, bytes);
        assert_eq!(refused.unwrap_err(), ShardArenaTooLarge { slots, bytes });
    }
}

#[test]
#[should_panic(expected = "exceeds the limit")]
fn the_literal_constructor_panics_on_impossible_sizes() {
    let _ = ShardArena::with_capacity(1, u32::MAX as usize + 1);
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(Vec<u8>),
    Free(Index),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let metadata = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        6 => metadata.prop_map(Step::Alloc),
        4 => any::<Index>().prop_map(Step::Free),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    /// The model records every handle ever returned, with its spec while that is stored.
    #[test]
    fn a_handle_resolves_to_its_spec_until_freed(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut arena = ShardArena::with_capacity(6, 400);
        let mut model: Vec<(ShardSpecHandle, Option<Vec<u8>>)> = Vec::new();
        for step in steps {
            match step {
                Step::Alloc(metadata) => {
                    let spec = ShardSpecRef::new(b"a", b"b", &metadata);
                    if let Ok(handle) = arena.alloc_spec(spec) {
                        model.push((handle, Some(metadata)));
                    }
                }
                Step::Free(_) if model.is_empty() => {}
                Step::Free(index) => {
                    let (handle, metadata) = index.get_mut(&mut model);
                    arena.free_spec(*handle);
                    *metadata = None;
                }
                Step::Clear => {
                    arena.clear();
                    model.iter_mut().for_each(|(_, metadata)| *metadata = None);
                }
            }
            for (handle, metadata) in &model {
                let seen = arena.try_view_spec(*handle).map(|spec| spec.metadata);
                prop_assert_eq!(seen, metadata.as_deref());
            }
            let live = model.iter().filter(|(_, metadata)| metadata.is_some()).count();
            prop_assert_eq!(arena.live_specs(), live);
        }
    }
}
