//! The coordination contracts allocate nothing once their buffers exist.

use std::hint::black_box;

use gossip_contracts::coordination::{
    CursorUpdate, MAX_KEY_SIZE, MAX_SPLIT_CHILDREN, PooledCursor, PooledShardSpec, PooledSpawned,
    ShardArena, ShardArenaTooLarge, ShardSpecRef, check_cursor_advance, check_cursor_bounds,
    plan_split_replace_at_points_initial_cursor, plan_split_replace_at_points_with_cursor,
    plan_split_residual_at_point, plan_split_residual_from_cursor, validate_residual_split,
    validate_split_child_cursors, validate_split_coverage,
};
use gossip_contracts::identity::{CanonicalBytes, CanonicalHasher, Domain, ShardId};
use gossip_stdx::ByteSlab;
use gossip_testkit::{CountingAllocator, count_allocations, with_allocation_limit};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SPEC: ShardSpecRef<'static> = ShardSpecRef::new(b"a", b"z", b"metadata");
const CURSOR: CursorUpdate<'static> = CursorUpdate::new(b"m", b"token");

#[track_caller]
fn assert_allocates_nothing<R>(action: impl FnOnce() -> R) -> R {
    let (result, counts) = count_allocations(action);
    assert_eq!((counts.allocations, counts.deallocations), (0, 0));
    result
}

#[test]
fn cursor_checks_allocate_nothing() {
    assert_allocates_nothing(|| {
        let cursor = CursorUpdate::try_new(black_box(b"m"), b"token").unwrap();
        black_box(CursorUpdate::try_from_parts(None, Some(b"t")).is_err());
        black_box(check_cursor_advance(Some(b"l"), cursor.last_key()));
        black_box(check_cursor_bounds(cursor.last_key(), SPEC.start, SPEC.end));
    });
}

#[test]
fn spec_checks_allocate_nothing() {
    let long = [b'k'; MAX_KEY_SIZE + 1];
    assert_allocates_nothing(|| {
        assert!(black_box(SPEC).validate().is_ok());
        assert!(ShardSpecRef::new(&long, b"", b"").validate().is_err());
        assert!(black_box(SPEC).contains_key(b"m"));
    });
}

/// Same length, longer, shorter, without and again with a token: every path of an update.
#[test]
fn pooled_updates_allocate_nothing() {
    let mut slab = ByteSlab::new(4096);
    let long = [b'l'; 200];
    let updates = [
        CURSOR,
        CursorUpdate::new(b"n", b"token"),
        CursorUpdate::new(&long, &long),
        CursorUpdate::with_last_key(b"o"),
        CursorUpdate::new(b"p", &long),
        CursorUpdate::initial(),
    ];
    assert_allocates_nothing(|| {
        let mut cursor = PooledCursor::initial();
        for _ in 0..100 {
            for update in updates {
                cursor.update(update, &mut slab).unwrap();
                assert_eq!(cursor.view(&slab), update);
            }
        }
        cursor.free(&mut slab);
        let mut spec = PooledShardSpec::from_ref(SPEC, &mut slab).unwrap();
        spec.replace(ShardSpecRef::new(b"a", b"m", b""), &mut slab).unwrap();
        spec.free(&mut slab);
        let mut spawned = PooledSpawned::empty();
        for raw in 0..100 {
            spawned.push(ShardId::from_raw(raw), &mut slab).unwrap();
        }
        assert!(spawned.contains(ShardId::from_raw(99), &slab));
        spawned.free(&mut slab);
    });
}

#[test]
fn a_built_arena_allocates_nothing() {
    let mut arena = ShardArena::with_capacity(4, 1024);
    assert_allocates_nothing(|| {
        for _ in 0..100 {
            let first = arena.alloc_spec(SPEC).unwrap();
            let second = arena.alloc_spec(SPEC).unwrap();
            assert_eq!(arena.try_view_spec(first), Some(SPEC));
            arena.free_spec(first);
            assert_eq!(arena.view_spec(second), SPEC);
            arena.clear();
        }
        while arena.alloc_spec(SPEC).is_ok() {}
        arena.clear();
    });
}

/// The widest plan stays on the stack, and so does sorting its children.
#[test]
fn split_planning_and_coverage_allocate_nothing() {
    let keys: Vec<[u8; 2]> = (1..MAX_SPLIT_CHILDREN as u16).map(u16::to_be_bytes).collect();
    let points: Vec<&[u8]> = keys.iter().map(<[u8; 2]>::as_slice).collect();
    let parent = ShardSpecRef::new(b"", b"\xff", b"metadata");
    let mut specs = Vec::with_capacity(MAX_SPLIT_CHILDREN);
    let cursor = CursorUpdate::with_last_key(&keys[100]);
    assert_allocates_nothing(|| {
        let plan = plan_split_replace_at_points_initial_cursor(parent, &points).unwrap();
        assert_eq!(plan.children().len(), MAX_SPLIT_CHILDREN);
        // Worst order for the sort: right to left.
        specs.extend(plan.children().iter().rev().map(|child| child.spec));
        assert_eq!(validate_split_coverage(parent, &specs), Ok(()));
        let rest = plan_split_replace_at_points_with_cursor(parent, &points, cursor).unwrap();
        assert_eq!(validate_split_child_cursors(cursor, rest.children()), Ok(()));
        let mut hasher = CanonicalHasher::for_domain(Domain::OP_PAYLOAD_V1);
        plan.write_canonical(&mut hasher);
        black_box(hasher.finalize_32());
    });
    assert_allocates_nothing(|| {
        let mut point = [0; MAX_KEY_SIZE];
        let plan = plan_split_residual_from_cursor(SPEC, CURSOR, &mut point).unwrap();
        let parts = (plan.new_parent(), plan.residual());
        assert_eq!(validate_residual_split(SPEC, parts.0, parts.1), Ok(()));
        assert!(plan_split_residual_at_point(SPEC, b"z").is_err());
    });
}

/// The sizes are valid, so only a lack of memory can cause the error.
#[test]
fn arena_construction_fails_without_memory_for_its_slots() {
    let (slots, bytes) = (1 << 12, 64);
    let make = || ShardArena::try_with_capacity(slots, bytes);
    let refused = with_allocation_limit(1 << 12, make);
    assert_eq!(refused.unwrap_err(), ShardArenaTooLarge { slots, bytes });
    assert_eq!(make().unwrap().slot_capacity(), slots);
}
