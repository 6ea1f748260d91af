//! Splits: the parts tile the range, progress is not lost, and every part is a shard.

use gossip_contracts::coordination::{
    CursorUpdate, MAX_KEY_SIZE, MAX_METADATA_SIZE, MAX_SPAWNED_PER_SHARD, SplitReplacePlan,
    SplitValidationError,
};
use gossip_contracts::identity::ShardKey;
use gossip_coordination::{
    CheckpointError, CoordinationBackend, DerivedShardKind, RunManagement, ShardFilter,
    ShardStatus, SplitError, derive_split_shard_id,
};

use super::world::{Held, RUN, World, at, child, key, op, replace_at, residual_at, shard, spec};
use super::{ConformanceTarget, refused, topic};

topic!("splits":
    a_residual_split_narrows_the_parent_and_keeps_its_cursor,
    a_residual_starts_from_nothing_and_is_usable,
    a_narrowed_parent_no_longer_reaches_what_it_gave_away,
    a_residual_split_must_tile_the_parent,
    a_residual_split_must_not_cut_off_the_cursor,
    an_oversized_part_is_refused,
    the_children_of_a_replacing_split_partition_the_parent,
    the_children_of_a_replacing_split_are_usable,
    children_are_named_by_their_ranges_whatever_order_they_come_in,
    a_replacing_split_must_tile_the_parent,
    the_child_that_contains_the_cursor_carries_it,
    a_child_behind_the_cursor_is_refused,
    a_later_child_with_progress_is_refused,
    a_child_that_drops_the_token_is_refused,
    derived_shards_have_derived_names,
    a_shard_can_be_split_again_and_again,
    a_run_that_is_over_grows_no_shards,
    a_split_has_as_many_children_as_the_backend_can_publish,
    a_shard_spawns_at_most_its_cap,
);

/// The parent stays active and keeps its lease and progress.
pub fn a_residual_split_narrows_the_parent_and_keeps_its_cursor<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    world.shrink(12, &held.lease, &residual_at(b"a", b"f", b"m"), 2).expect("live");
    let row = world.row(13, shard(0));
    assert_eq!((&*row.start, &*row.end), (b"a".as_slice(), b"f".as_slice()));
    assert_eq!(row.last_key.as_deref(), Some(b"c".as_slice()));
    assert_eq!((row.status, row.leased, row.spawned_count), (ShardStatus::Active, true, 1));
    world.checkpoint(14, &held.lease, b"e", 3).expect("the lease is still valid");
}

/// The residual is a shard like any other, without a lease.
pub fn a_residual_starts_from_nothing_and_is_usable<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    let plan = residual_at(b"a", b"f", b"m");
    let residual = world.shrink(12, &held.lease, &plan, 2).expect("live").into_inner();
    let row = world.row(13, residual);
    assert_eq!((&*row.start, &*row.end), (b"f".as_slice(), b"m".as_slice()));
    assert_eq!((row.parent, row.leased, row.acquire_count), (Some(shard(0)), false, 0));
    assert_eq!((row.last_key, row.status), (None, ShardStatus::Active));
    let new = world.acquire(13, ShardKey::new(RUN, residual), 2);
    assert_eq!((new.parent, new.metadata.as_slice()), (Some(shard(0)), b"meta".as_slice()));
    world.complete(14, &new.lease, b"g", 3).expect("live");
}

/// The keys of the residual are out of the parent's bounds.
pub fn a_narrowed_parent_no_longer_reaches_what_it_gave_away<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.shrink(11, &held.lease, &residual_at(b"a", b"f", b"m"), 1).expect("live");
    refused!(world.checkpoint(12, &held.lease, b"g", 2), CheckpointError::CursorOutOfBounds(_));
    let again = world.shrink(13, &held.lease, &residual_at(b"a", b"h", b"m"), 3);
    refused!(again, SplitError::SplitInvalid(SplitValidationError::EndMismatch { .. }));
}

/// A gap, an overlap or a wrong end changes nothing.
pub fn a_residual_split_must_tile_the_parent<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let ends = [
        (spec(b"a", b"f"), spec(b"g", b"m")),
        (spec(b"a", b"g"), spec(b"f", b"m")),
        (spec(b"b", b"f"), spec(b"f", b"m")),
        (spec(b"a", b"f"), spec(b"f", b"n")),
        (spec(b"f", b"m"), spec(b"a", b"f")),
    ];
    for (number, (left, right)) in ends.into_iter().enumerate() {
        let plan = gossip_contracts::coordination::SplitResidualPlan::try_new(left, right);
        let plan = plan.expect("the parts differ");
        let refusal = world.shrink(11, &held.lease, &plan, number as u64);
        refused!(refusal, SplitError::SplitInvalid(_));
    }
    assert_eq!(world.progress(12).total, 2);
}

/// The parent's cursor must stay in its part.
pub fn a_residual_split_must_not_cut_off_the_cursor<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"f", 1).expect("live");
    let at_cursor = world.shrink(12, &held.lease, &residual_at(b"a", b"f", b"m"), 2);
    refused!(
        at_cursor,
        SplitError::SplitInvalid(SplitValidationError::ParentCursorOutOfBounds { .. })
    );
    world
        .shrink(13, &held.lease, &residual_at(b"a", b"f\0", b"m"), 3)
        .expect("right after the cursor");
}

/// An oversized bound or metadata is refused, not stored.
pub fn an_oversized_part_is_refused<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (long_cut, long_metadata) = (vec![b'f'; MAX_KEY_SIZE + 1], vec![0; MAX_METADATA_SIZE + 1]);
    let cut = residual_at(b"a", &long_cut, b"m");
    refused!(
        world.shrink(11, &held.lease, &cut, 1),
        SplitError::SplitInvalid(SplitValidationError::InvalidChildSpec { .. })
    );
    let cuts = replace_at(&[b"a", &long_cut, b"m"]);
    refused!(
        world.replace(11, &held.lease, &cuts, 2),
        SplitError::SplitInvalid(SplitValidationError::InvalidChildSpec { .. })
    );
    let mut heavy = child(b"f", b"m", CursorUpdate::initial());
    heavy.spec.metadata = &long_metadata;
    let plan = SplitReplacePlan::try_new([child(b"a", b"f", CursorUpdate::initial()), heavy]);
    refused!(
        world.replace(11, &held.lease, &plan.expect("two children"), 3),
        SplitError::SplitInvalid(SplitValidationError::InvalidChildSpec { child_index: 1 })
    );
    world.shrink(12, &held.lease, &residual_at(b"a", &long_cut[1..], b"m"), 4).expect("it fits");
}

/// The children have no gap and no overlap.
pub fn the_children_of_a_replacing_split_partition_the_parent<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = replace_at(&[b"a", b"d", b"h", b"m"]);
    let children = world.replace(11, &held.lease, &plan, 1).expect("live").into_inner();
    let parent = world.row(12, shard(0));
    assert_eq!((parent.status, parent.spawned_count), (ShardStatus::Split, 3));
    let rows = world.list(12, ShardFilter::active());
    let family: Vec<_> = rows.iter().filter(|row| row.parent == Some(shard(0))).collect();
    assert_eq!(family.iter().map(|row| row.shard).collect::<Vec<_>>(), children);
    let bounds: Vec<_> = family.iter().map(|row| (&*row.start, &*row.end)).collect();
    assert_eq!(bounds, [(&b"a"[..], &b"d"[..]), (&b"d"[..], &b"h"[..]), (&b"h"[..], &b"m"[..])]);
}

/// Every child can be acquired, processed and completed, and then the run can be completed.
pub fn the_children_of_a_replacing_split_are_usable<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = replace_at(&[b"a", b"f", b"m"]);
    let children = world.replace(11, &held.lease, &plan, 1).expect("live").into_inner();
    for (number, id) in children.into_iter().enumerate() {
        let new = world.acquire(12, ShardKey::new(RUN, id), 2 + number as u64);
        assert_eq!((new.parent, new.last_key), (Some(shard(0)), None));
        world.complete(13, &new.lease, &new.start, 2).expect("live");
    }
    world.finish(14, key(1), 3);
    let progress = world.progress(15);
    assert_eq!((progress.total, progress.done, progress.split), (4, 3, 1));
    world.backend.complete_run(at(15), world.tenant, RUN, op(4)).expect("all shards are done");
}

/// Ids follow the ranges, so the same split with its children in another order is the same split.
pub fn children_are_named_by_their_ranges_whatever_order_they_come_in<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let none = CursorUpdate::initial();
    let backwards = [child(b"h", b"m", none), child(b"a", b"d", none), child(b"d", b"h", none)];
    let plan = SplitReplacePlan::try_new(backwards).expect("three children");
    let children = world.replace(11, &held.lease, &plan, 1).expect("live").into_inner();
    let derived: Vec<_> = (0..3)
        .map(|index| derive_split_shard_id(RUN, shard(0), op(1), DerivedShardKind::Child, index))
        .collect();
    assert_eq!(children, derived);
    assert_eq!(&*world.row(12, derived[0]).start, b"a".as_slice());
}

/// A gap, an overlap, a wrong end or an inverted child changes nothing.
pub fn a_replacing_split_must_tile_the_parent<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let wrong: [&[(&[u8], &[u8])]; 5] = [
        &[(b"a", b"f"), (b"g", b"m")],
        &[(b"a", b"g"), (b"f", b"m")],
        &[(b"b", b"f"), (b"f", b"m")],
        &[(b"a", b"f"), (b"f", b"z")],
        &[(b"a", b"f"), (b"f", b"f"), (b"f", b"m")],
    ];
    for (number, ranges) in wrong.into_iter().enumerate() {
        let none = CursorUpdate::initial();
        let children = ranges.iter().map(|(start, end)| child(start, end, none));
        let plan = SplitReplacePlan::try_new(children).expect("two or more children");
        let refusal = world.replace(11, &held.lease, &plan, number as u64);
        refused!(refusal, SplitError::SplitInvalid(_));
    }
    assert_eq!(world.row(12, shard(0)).status, ShardStatus::Active);
    assert_eq!(world.progress(12).total, 2);
}

/// The child inherits the cursor: key and token.
pub fn the_child_that_contains_the_cursor_carries_it<T: ConformanceTarget>(target: &T) {
    let (mut world, held) = parent_at_c(target);
    let cursor = CursorUpdate::new(b"c", b"page 3");
    let plan = [child(b"a", b"f", cursor), child(b"f", b"m", CursorUpdate::initial())];
    let plan = SplitReplacePlan::try_new(plan).expect("two children");
    let children = world.replace(12, &held.lease, &plan, 2).expect("live").into_inner();
    let left = world.acquire(13, ShardKey::new(RUN, children[0]), 2);
    assert_eq!(left.last_key.as_deref(), Some(b"c".as_slice()));
    assert_eq!(left.token.as_deref(), Some(b"page 3".as_slice()));
    let right = world.acquire(13, ShardKey::new(RUN, children[1]), 2);
    assert_eq!((right.last_key, right.token), (None, None));
}

/// The keys of such a child are already processed.
pub fn a_child_behind_the_cursor_is_refused<T: ConformanceTarget>(target: &T) {
    let (mut world, held) = parent_at_c(target);
    let cursor = CursorUpdate::new(b"c", b"page 3");
    let none = CursorUpdate::initial();
    let plan = [child(b"a", b"b", none), child(b"b", b"m", cursor)];
    refuse_cursor_of(&mut world, &held, &plan, 0);
    let plan = [child(b"a", b"c", cursor), child(b"c", b"m", cursor)];
    refuse_cursor_of(&mut world, &held, &plan, 0);
}

/// A later child with a cursor would skip unprocessed keys.
pub fn a_later_child_with_progress_is_refused<T: ConformanceTarget>(target: &T) {
    let (mut world, held) = parent_at_c(target);
    let cursor = CursorUpdate::new(b"c", b"page 3");
    let ahead = CursorUpdate::with_last_key(b"g");
    refuse_cursor_of(&mut world, &held, &[child(b"a", b"f", cursor), child(b"f", b"m", ahead)], 1);
    // The index refers to the caller's order.
    refuse_cursor_of(&mut world, &held, &[child(b"f", b"m", ahead), child(b"a", b"f", cursor)], 0);
}

/// The child inherits the complete cursor or the split is refused.
pub fn a_child_that_drops_the_token_is_refused<T: ConformanceTarget>(target: &T) {
    let (mut world, held) = parent_at_c(target);
    let none = CursorUpdate::initial();
    for wrong in [
        CursorUpdate::with_last_key(b"c"),
        CursorUpdate::new(b"c", b"page 4"),
        CursorUpdate::new(b"d", b"page 3"),
        none,
    ] {
        let plan = [child(b"a", b"f", wrong), child(b"f", b"m", none)];
        refuse_cursor_of(&mut world, &held, &plan, 0);
    }
}

/// Bit 63 distinguishes a derived shard from a root, and the id is derived from the operation.
pub fn derived_shards_have_derived_names<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = residual_at(b"a", b"f", b"m");
    let residual = world.shrink(11, &held.lease, &plan, 1).expect("live").into_inner();
    assert_eq!(
        residual,
        derive_split_shard_id(RUN, shard(0), op(1), DerivedShardKind::Residual, 0)
    );
    let plan = replace_at(&[b"a", b"c", b"f"]);
    let children = world.replace(12, &held.lease, &plan, 2).expect("live").into_inner();
    // Child numbers continue after the residual.
    let first = derive_split_shard_id(RUN, shard(0), op(2), DerivedShardKind::Child, 1);
    assert_eq!(children[0], first);
    let roots = world.ids(13, ShardFilter::all().roots());
    assert_eq!(roots, [shard(0), shard(1)], "derived shards are not roots");
}

/// Children can be split again, and the list of spawned shards grows.
pub fn a_shard_can_be_split_again_and_again<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let cuts: [&[u8]; 5] = [b"m", b"k", b"i", b"g", b"e"];
    let mut spawned = Vec::new();
    for (number, pair) in cuts.windows(2).enumerate() {
        let plan = residual_at(b"a", pair[1], pair[0]);
        let split = world.shrink(11, &held.lease, &plan, number as u64).expect("live");
        spawned.push(split.into_inner());
    }
    let again = world.acquire(110, key(0), 1);
    assert_eq!(again.spawned, spawned, "oldest first");
    let grandchild = world.acquire(111, ShardKey::new(RUN, spawned[0]), 2);
    world.replace(112, &grandchild.lease, &replace_at(&[b"k", b"l", b"m"]), 9).expect("live");
    assert_eq!(world.progress(113).total, 8);
}

/// Both splits check the run; progress is still recorded.
pub fn a_run_that_is_over_grows_no_shards<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.backend.cancel_run(at(11), world.tenant, RUN, op(1)).expect("active");
    let cut = residual_at(b"a", b"f", b"m");
    refused!(world.shrink(12, &held.lease, &cut, 2), SplitError::RunTerminal { .. });
    let cuts = replace_at(&[b"a", b"f", b"m"]);
    refused!(world.replace(12, &held.lease, &cuts, 3), SplitError::RunTerminal { .. });
    world.checkpoint(13, &held.lease, b"c", 4).expect("progress is still recorded");
}

/// The backend's maximum number of children is accepted; one more is refused.
pub fn a_split_has_as_many_children_as_the_backend_can_publish<T: ConformanceTarget>(target: &T) {
    let max = target.split_children_max();
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let points: Vec<[u8; 3]> =
        (0..=max).map(|n| [b'b', (n >> 8) as u8, (n & 0xFF) as u8]).collect();
    let cuts = |children: usize| {
        let inner = points.iter().take(children - 1).map(<[u8; 3]>::as_slice);
        let mut cuts: Vec<&[u8]> = vec![b"a"];
        cuts.extend(inner);
        cuts.push(b"m");
        cuts
    };
    if max < gossip_contracts::coordination::MAX_SPLIT_CHILDREN {
        let refusal = world.replace(11, &held.lease, &replace_at(&cuts(max + 1)), 1);
        refused!(refusal, SplitError::SplitInvalid(
            SplitValidationError::BackendChildLimitExceeded { requested, backend_max }
        ) if requested == max + 1 && backend_max == max);
    }
    let split = world.replace(12, &held.lease, &replace_at(&cuts(max)), 2).expect("it fits");
    assert_eq!(split.into_inner().len(), max);
}

/// A list of spawned shards is bounded.
pub fn a_shard_spawns_at_most_its_cap<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let cut = |n: usize| [b'b', (n >> 8) as u8, (n & 0xFF) as u8];
    let mut end = b"m".to_vec();
    for number in 0..MAX_SPAWNED_PER_SHARD {
        let point = cut(MAX_SPAWNED_PER_SHARD - number);
        let plan = residual_at(b"a", &point, &end);
        world.shrink(11, &held.lease, &plan, number as u64).expect("below the cap");
        end = point.to_vec();
    }
    let refusal = world.shrink(12, &held.lease, &residual_at(b"a", b"aa", &end), 90_000);
    refused!(refusal, SplitError::SplitInvalid(
        SplitValidationError::SpawnLimitExceeded { current, additional: 1, max }
    ) if current == MAX_SPAWNED_PER_SHARD && max == MAX_SPAWNED_PER_SHARD);
    let plan = replace_at(&[b"a", b"aa", &end]);
    let refusal = world.replace(13, &held.lease, &plan, 90_001);
    refused!(
        refusal,
        SplitError::SplitInvalid(SplitValidationError::SpawnLimitExceeded { additional: 2, .. })
    );
}

/// Creates a shard `[a, m)` with the cursor `c` and a token.
fn parent_at_c<T: ConformanceTarget>(target: &T) -> (World<'_, T>, Held) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let cursor = CursorUpdate::new(b"c", b"page 3");
    world.backend.checkpoint(at(11), world.tenant, &held.lease, cursor, op(1)).expect("live");
    (world, held)
}

fn refuse_cursor_of<T: ConformanceTarget>(
    world: &mut World<'_, T>,
    held: &Held,
    children: &[gossip_contracts::coordination::SplitChild<'_>],
    wrong: usize,
) {
    let plan = SplitReplacePlan::try_new(children.iter().copied()).expect("two children");
    let refusal = world.replace(12, &held.lease, &plan, 2);
    refused!(refusal, SplitError::SplitInvalid(
        SplitValidationError::ChildCursorInvalid { child_index }
    ) if child_index == wrong);
}
