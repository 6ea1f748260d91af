//! Listings and progress, as an operator sees them.

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{ShardId, ShardKey};
use gossip_coordination::{
    CoordinationBackend, IdempotentOutcome, RunManagement, RunProgress, RunTerminalEvaluation,
    ShardFilter, ShardStatus, Watermark, evaluate_run_terminal,
};

use super::world::{RUN, World, at, config, key, op, replace_at, residual_at, root, shard};
use super::{ConformanceTarget, Settings, topic};

topic!("listing":
    a_listing_is_sorted_by_range_and_id,
    a_listing_is_appended,
    filters_combine,
    a_row_has_every_field_of_a_shard,
    a_row_of_a_done_shard_has_its_token,
    a_lease_that_ran_out_is_not_shown,
    progress_counts_every_status,
    the_watermark_is_the_smallest_key_of_an_active_shard,
    a_settled_run_has_no_watermark,
    a_run_is_judged_by_its_progress,
);

/// Holds for any order of registration and of ids.
pub fn a_listing_is_sorted_by_range_and_id<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    let roots = [root(1, b"t", b"z"), root(9, b"a", b"f"), root(4, b"g", b"m")];
    world.make_run(config(None), &roots, 1).expect("a valid manifest");
    assert_eq!(world.ids(2, ShardFilter::all()), [shard(9), shard(4), shard(1)]);
    let held = world.acquire(3, key(9), 1);
    let plan = replace_at(&[b"a", b"c", b"f"]);
    let children = world.replace(4, &held.lease, &plan, 2).expect("live").into_inner();
    // The parent and its first child start at the same key; derived ids are the larger.
    let sorted = [shard(9), children[0], children[1], shard(4), shard(1)];
    assert_eq!(world.ids(5, ShardFilter::all()), sorted);
}

/// Rows that the caller already has are kept.
pub fn a_listing_is_appended<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let mut rows = Vec::new();
    for _ in 0..2 {
        let listed = world.backend.list_shards_into(
            at(10),
            world.tenant,
            RUN,
            ShardFilter::all(),
            &mut rows,
        );
        listed.expect("the run exists");
    }
    let ids: Vec<ShardId> = rows.iter().map(|row| row.shard).collect();
    assert_eq!(ids, [shard(0), shard(1), shard(0), shard(1)]);
}

/// Status, lease, roots: every given condition must hold.
pub fn filters_combine<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = residual_at(b"a", b"f", b"m");
    let residual = world.shrink(11, &held.lease, &plan, 1).expect("live").into_inner();
    let parked = world.acquire(12, key(1), 1);
    world.park(13, &parked.lease, 2).expect("live");

    assert_eq!(world.ids(14, ShardFilter::all()), [shard(0), residual, shard(1)]);
    assert_eq!(world.ids(14, ShardFilter::active()), [shard(0), residual]);
    assert_eq!(world.ids(14, ShardFilter::available()), [residual]);
    assert_eq!(world.ids(14, ShardFilter::parked()), [shard(1)]);
    assert_eq!(world.ids(14, ShardFilter::all().roots()), [shard(0), shard(1)]);
    assert_eq!(world.ids(14, ShardFilter::available().roots()), []);
    let leased = ShardFilter { is_leased: Some(true), ..ShardFilter::all() };
    assert_eq!(world.ids(14, leased), [shard(0)]);
    let done = ShardFilter { status: Some(ShardStatus::Done), ..ShardFilter::all() };
    assert_eq!(world.ids(14, done), []);
    assert_eq!(world.ids(110, ShardFilter::available().roots()), [shard(0)], "at the deadline");
    for id in [shard(0), residual, shard(1)] {
        assert_eq!(world.ids(14, ShardFilter::one(id)), [id]);
    }
    assert_eq!(world.ids(14, ShardFilter::one(shard(7))), []);
    let parked = ShardFilter { only: Some(shard(0)), ..ShardFilter::parked() };
    assert_eq!(world.ids(14, parked), []);
    // Pages come in the order of ids, and that of a split shard is greater than those of roots.
    let page = |after, limit| ShardFilter::all().page(after, limit);
    assert_eq!(world.ids(14, page(None, 2)), [shard(0), shard(1)]);
    assert_eq!(world.ids(14, page(Some(shard(0)), 1)), [shard(1)]);
    assert_eq!(world.ids(14, page(Some(shard(1)), 2)), [residual]);
    assert_eq!(world.ids(14, page(Some(residual), 2)), []);
    assert_eq!(world.ids(14, ShardFilter::active().page(Some(shard(0)), 9)), [residual]);
}

/// Every field of a summary.
pub fn a_row_has_every_field_of_a_shard<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    let held = world.acquire(110, key(0), 2);
    world.checkpoint(111, &held.lease, b"c", 1).expect("live");
    let plan = residual_at(b"a", b"f", b"m");
    let residual = world.shrink(112, &held.lease, &plan, 2).expect("live").into_inner();
    let row = world.row(113, shard(0));
    assert_eq!((row.shard, row.status, row.park_reason), (shard(0), ShardStatus::Active, None));
    assert_eq!((row.leased, row.lease_deadline, row.acquire_count), (true, Some(at(210)), 2));
    assert_eq!((&*row.start, &*row.end), (b"a".as_slice(), b"f".as_slice()));
    assert_eq!(row.last_key.as_deref(), Some(b"c".as_slice()));
    assert_eq!((row.parent, row.spawned_count), (None, 1));
    assert_eq!((row.token, &*row.metadata), (None, b"meta".as_slice()));
    let row = world.row(113, residual);
    assert_eq!((row.parent, row.spawned_count, row.acquire_count), (Some(shard(0)), 0, 0));
    assert_eq!((row.leased, row.lease_deadline, row.last_key), (false, None, None));
    assert_eq!((row.token, &*row.metadata), (None, b"meta".as_slice()));
}

/// A certificate needs the token, and a done shard cannot be acquired any more.
pub fn a_row_of_a_done_shard_has_its_token<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let cursor = CursorUpdate::new(b"c", b"token");
    let done = world.backend.complete(at(11), world.tenant, &held.lease, cursor, op(1));
    assert_eq!(done, Ok(IdempotentOutcome::Executed(())));
    let row = world.row(12, shard(0));
    assert_eq!((row.status, row.last_key.as_deref()), (ShardStatus::Done, Some(b"c".as_slice())));
    assert_eq!(row.token.as_deref(), Some(b"token".as_slice()));
}

/// Deadlines are half-open here, too.
pub fn a_lease_that_ran_out_is_not_shown<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let before = world.row(held.deadline() - 1, shard(0));
    assert_eq!((before.leased, before.lease_deadline), (true, Some(held.lease.deadline())));
    let after = world.row(held.deadline(), shard(0));
    assert_eq!((after.leased, after.lease_deadline), (false, None));
    assert_eq!(world.progress(held.deadline() - 1).leased, 1);
    assert_eq!(world.progress(held.deadline()).leased, 0);
}

/// Progress equals the totals of a listing.
pub fn progress_counts_every_status<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = replace_at(&[b"a", b"c", b"f", b"m"]);
    let children = world.replace(11, &held.lease, &plan, 1).expect("live").into_inner();
    world.finish(12, ShardKey::new(RUN, children[0]), 2);
    let parked = world.acquire(13, ShardKey::new(RUN, children[1]), 1);
    world.park(14, &parked.lease, 3).expect("live");
    world.acquire(15, ShardKey::new(RUN, children[2]), 1);
    let expected = RunProgress {
        total: 5,
        active: 2,
        done: 1,
        split: 1,
        parked: 1,
        damaged: 0,
        leased: 1,
        watermark: None,
    };
    assert_eq!(world.progress(16), expected);
    assert_eq!(world.progress(900), RunProgress { leased: 0, ..expected });
}

/// Shards without progress and terminal shards do not count.
pub fn the_watermark_is_the_smallest_key_of_an_active_shard<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    assert_eq!(world.progress(2).watermark, None);
    let right = world.acquire(10, key(1), 1);
    world.checkpoint(11, &right.lease, b"q", 1).expect("live");
    assert_eq!(world.progress(12).watermark, Some(Watermark::new(b"q")));
    let left = world.acquire(12, key(0), 1);
    world.checkpoint(13, &left.lease, b"c", 1).expect("live");
    assert_eq!(world.progress(14).watermark, Some(Watermark::new(b"c")));
    world.complete(15, &left.lease, b"d", 2).expect("live");
    assert_eq!(world.progress(16).watermark, Some(Watermark::new(b"q")));
}

/// There is no watermark if no shard is active.
pub fn a_settled_run_has_no_watermark<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    world.finish(10, key(1), 1);
    assert_eq!(world.progress(11).watermark, None);
}

/// In progress, with failures, all done.
pub fn a_run_is_judged_by_its_progress<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let judge = |world: &mut World<'_, T>| {
        let progress = world.progress(50);
        (progress.is_settled(), progress.has_failures(), evaluate_run_terminal(&progress))
    };
    assert_eq!(judge(&mut world), (false, false, RunTerminalEvaluation::StillActive));
    let held = world.acquire(10, key(0), 1);
    world.park(11, &held.lease, 1).expect("live");
    assert_eq!(judge(&mut world), (false, true, RunTerminalEvaluation::StillActive));
    world.finish(12, key(1), 1);
    assert_eq!(judge(&mut world), (true, true, RunTerminalEvaluation::HasFailures));
    let (tenant, op_id) = (world.tenant, op(9));
    world.backend.unpark_shard(at(13), tenant, key(0), op_id).expect("parked");
    world.finish(14, key(0), 2);
    assert_eq!(judge(&mut world), (true, false, RunTerminalEvaluation::AllDone));
    assert!(world.progress(51).is_success());
}
