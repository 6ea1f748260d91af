//! Parking by the owner and unparking by an administrator.

use gossip_coordination::{
    AcquireError, CheckpointError, CoordinationBackend, IdempotentOutcome, Lease, ParkContext,
    ParkError, ParkReason, RunManagement, RunStatus, RunTerminalEvaluation, RunTransitionError,
    ShardFilter, ShardStatus, UnparkError, evaluate_run_terminal,
};

use super::world::{RUN, World, at, key, op, shard};
use super::{ConformanceTarget, refused, topic};

topic!("parking":
    a_parked_shard_keeps_its_reason_and_its_progress,
    every_reason_is_kept,
    the_text_of_a_parked_shard_is_kept_until_it_is_unparked,
    a_retried_park_with_another_text_keeps_the_first,
    an_unparked_shard_is_active_again_under_a_new_fence,
    only_a_parked_shard_can_be_unparked,
    a_shard_that_is_not_there_cannot_be_unparked,
    an_unparking_is_replayed,
    an_operation_id_of_the_owner_is_a_conflict_for_unpark,
    a_run_that_is_over_unparks_nothing,
    an_unparking_is_replayed_after_the_run_ended,
    a_run_with_parked_shards_stays_active_until_they_are_done,
);

/// A parked shard is terminal, has a reason and keeps its progress.
pub fn a_parked_shard_keeps_its_reason_and_its_progress<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    assert_eq!(world.park(12, &held.lease, 2), Ok(IdempotentOutcome::Executed(())));
    let row = world.row(13, shard(0));
    assert_eq!((row.status, row.park_reason), (ShardStatus::Parked, Some(ParkReason::Poisoned)));
    assert_eq!(row.last_key.as_deref(), Some(b"c".as_slice()));
    assert_eq!(world.ids(13, ShardFilter::parked()), [shard(0)]);
    let refusal = world.try_acquire(900, key(0), 2);
    refused!(refusal, AcquireError::ShardTerminal { status: ShardStatus::Parked, .. });
}

/// Each of the five reasons is stored.
pub fn every_reason_is_kept<T: ConformanceTarget>(target: &T) {
    for reason in ParkReason::ALL {
        let mut world = World::two_shards(target);
        let held = world.acquire(10, key(0), 1);
        let parked = world.backend.park_shard(at(11), world.tenant, &held.lease, reason, op(1));
        parked.expect("live");
        assert_eq!(world.row(12, shard(0)).park_reason, Some(reason));
    }
}

/// Listings of one shard and of parked shards return the text, each shard its own.
pub fn the_text_of_a_parked_shard_is_kept_until_it_is_unparked<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    for (index, text) in ["exit status 1", "täglich"].into_iter().enumerate() {
        let held = world.acquire(10, key(index as u64), 1);
        park_with(&mut world, &held.lease, text, 1).expect("live");
    }
    let texts = |world: &mut World<'_, T>, filter| {
        world.list(12, filter).into_iter().map(|row| row.park_context).collect::<Vec<_>>()
    };
    let (first, second) = (Some("exit status 1".into()), Some("täglich".into()));
    assert_eq!(texts(&mut world, ShardFilter::parked()), [first, second.clone()]);
    assert_eq!(texts(&mut world, ShardFilter::one(shard(1))), [second]);
    assert_eq!(texts(&mut world, ShardFilter::all()), [None, None], "not asked for");

    world.backend.unpark_shard(at(13), world.tenant, key(0), op(2)).expect("parked");
    assert_eq!(texts(&mut world, ShardFilter::one(shard(0))), [None]);
    let held = world.acquire(14, key(0), 1);
    world.park(15, &held.lease, 3).expect("live");
    assert_eq!(texts(&mut world, ShardFilter::one(shard(0))), [None], "the old text is gone");
}

/// The text is no parameter of the operation, so it cannot cause a conflict.
pub fn a_retried_park_with_another_text_keeps_the_first<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    park_with(&mut world, &held.lease, "first", 1).expect("live");
    let again = park_with(&mut world, &held.lease, "second", 1);
    assert_eq!(again, Ok(IdempotentOutcome::Replayed(())));
    let rows = world.list(12, ShardFilter::one(shard(0)));
    assert_eq!(rows[0].park_context.as_deref(), Some("first"));
}

fn park_with<T: ConformanceTarget>(
    world: &mut World<'_, T>,
    lease: &Lease,
    text: &str,
    op_id: u64,
) -> Result<IdempotentOutcome<()>, ParkError> {
    let (reason, text) = (ParkReason::Other, ParkContext::new(text));
    world.backend.park_shard_with_context(at(11), world.tenant, lease, reason, text, op(op_id))
}

/// The owner from before the park is fenced out, and progress is kept.
pub fn an_unparked_shard_is_active_again_under_a_new_fence<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    world.park(12, &held.lease, 2).expect("live");
    world.backend.unpark_shard(at(13), world.tenant, key(0), op(3)).expect("parked");
    let row = world.row(14, shard(0));
    assert_eq!((row.status, row.park_reason, row.leased), (ShardStatus::Active, None, false));
    let zombie = world.checkpoint(15, &held.lease, b"d", 4);
    refused!(zombie, CheckpointError::StaleFence { .. });
    let again = world.acquire(16, key(0), 2);
    assert_eq!(again.fence(), held.fence() + 2, "one for unpark, one for the grant");
    assert_eq!(again.last_key.as_deref(), Some(b"c".as_slice()));
}

/// Active, done and split shards cannot be unparked.
pub fn only_a_parked_shard_can_be_unparked<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let refusal = world.backend.unpark_shard(at(10), world.tenant, key(0), op(1));
    refused!(refusal, UnparkError::NotParked { status: ShardStatus::Active });
    world.finish(11, key(0), 2);
    let refusal = world.backend.unpark_shard(at(12), world.tenant, key(0), op(1));
    refused!(refusal, UnparkError::NotParked { status: ShardStatus::Done });
}

/// Unknown shards are refused, in this run and in an unknown run.
pub fn a_shard_that_is_not_there_cannot_be_unparked<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let refusal = world.backend.unpark_shard(at(10), world.tenant, key(5), op(1));
    refused!(refusal, UnparkError::ShardNotFound);
}

/// The same call twice raises the fence once.
pub fn an_unparking_is_replayed<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.park(11, &held.lease, 1).expect("live");
    for (now, expected) in [(12, false), (13, true)] {
        let done = world.backend.unpark_shard(at(now), world.tenant, key(0), op(2));
        assert_eq!(done.expect("parked or replayed").is_replay(), expected);
    }
    assert_eq!(world.acquire(14, key(0), 1).fence(), held.fence() + 2);
}

/// The owner and the administrator share one operation log.
pub fn an_operation_id_of_the_owner_is_a_conflict_for_unpark<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.park(11, &held.lease, 1).expect("live");
    let refusal = world.backend.unpark_shard(at(12), world.tenant, key(0), op(1));
    refused!(refusal, UnparkError::OpIdConflict(conflict) if conflict.op_id() == op(1));
}

/// The run is checked before the shard's status.
pub fn a_run_that_is_over_unparks_nothing<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.park(11, &held.lease, 1).expect("live");
    world.backend.fail_run(at(12), world.tenant, RUN, op(2)).expect("active");
    for parked_or_not in [key(0), key(1)] {
        let refusal = world.backend.unpark_shard(at(13), world.tenant, parked_or_not, op(3));
        refused!(refusal, UnparkError::RunTerminal { status: RunStatus::Failed });
    }
}

/// Idempotency is checked first, as in every operation.
pub fn an_unparking_is_replayed_after_the_run_ended<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.park(11, &held.lease, 1).expect("live");
    world.backend.unpark_shard(at(12), world.tenant, key(0), op(2)).expect("parked");
    world.backend.cancel_run(at(13), world.tenant, RUN, op(3)).expect("active");
    let again = world.backend.unpark_shard(at(14), world.tenant, key(0), op(2));
    assert_eq!(again, Ok(IdempotentOutcome::Replayed(())));
}

/// A settled run with failures waits for its administrator.
pub fn a_run_with_parked_shards_stays_active_until_they_are_done<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    let held = world.acquire(11, key(1), 1);
    world.park(12, &held.lease, 2).expect("live");
    let judged = evaluate_run_terminal(&world.progress(13));
    assert_eq!(judged, RunTerminalEvaluation::HasFailures);
    let refusal = world.backend.complete_run(at(14), world.tenant, RUN, op(3));
    refused!(refusal, RunTransitionError::NotSettled { active: 0, parked: 1 });
    world.backend.unpark_shard(at(15), world.tenant, key(1), op(4)).expect("parked");
    world.finish(16, key(1), 5);
    let judged = evaluate_run_terminal(&world.progress(17));
    assert_eq!(judged, RunTerminalEvaluation::AllDone);
    world.backend.complete_run(at(18), world.tenant, RUN, op(3)).expect("everything is done");
}
