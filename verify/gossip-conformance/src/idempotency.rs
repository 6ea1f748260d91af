//! Idempotency: a committed operation is replayed, whatever the state of the lease since.

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::ShardKey;
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    CheckpointError, CompleteError, CoordinationBackend, IdempotentOutcome, Lease, OP_LOG_CAP,
    OfferError, OpSequence, ParkError, ParkReason, ReleaseError, RunManagement, ShardStatus,
    SplitError, WithdrawError,
};

use super::world::{Held, RUN, World, at, key, op, replace_at, residual_at, shard};
use super::{ConformanceTarget, refused, topic};

topic!("idempotency":
    a_repeated_operation_is_replayed_and_changes_nothing,
    a_completion_is_replayed_after_the_shard_is_done,
    a_checkpoint_is_replayed_after_the_lease_ran_out,
    a_checkpoint_is_replayed_after_another_worker_took_over,
    a_parking_is_replayed_after_the_shard_was_unparked,
    a_replacing_split_is_replayed_for_ever_with_the_same_children,
    a_release_is_replayed_and_does_not_free_the_next_owner,
    an_operation_id_with_other_parameters_is_a_conflict,
    an_operation_id_of_another_operation_is_a_conflict,
    a_conflict_speaks_before_the_lease_ladder,
    the_same_operation_id_is_another_operation_on_another_shard,
    the_token_of_a_cursor_is_part_of_the_operation,
    a_refused_operation_is_not_remembered,
    the_log_remembers_its_capacity_and_forgets_the_oldest,
    a_forgotten_checkpoint_is_judged_anew,
    a_residual_split_is_replayed_by_its_child_when_the_log_forgot_it,
    a_residual_split_is_replayed_after_the_child_was_split_itself,
    a_forgotten_residual_split_with_another_cut_is_a_conflict,
    a_retry_is_replayed_or_too_old_however_late_it_comes,
    an_overtaken_operation_is_refused_and_changes_nothing,
    every_operation_under_a_lease_may_be_too_old,
    a_residual_split_is_replayed_even_if_it_is_too_old,
    the_sequence_begins_anew_with_every_grant,
);

/// The same call twice is executed once, replayed once, and has one effect.
pub fn a_repeated_operation_is_replayed_and_changes_nothing<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    assert!(world.checkpoint(11, &held.lease, b"c", 1).expect("live").is_executed());
    let before = world.row(12, shard(0));
    assert!(world.checkpoint(12, &held.lease, b"c", 1).expect("known").is_replay());
    assert_eq!(world.row(12, shard(0)), before);
}

/// A worker that crashed before it received the reply can retry later.
pub fn a_completion_is_replayed_after_the_shard_is_done<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let first = world.complete(11, &held.lease, b"c", 1).expect("live");
    assert_eq!(first, IdempotentOutcome::Executed(()));
    let again = world.complete(900, &held.lease, b"c", 1).expect("known");
    assert_eq!(again, IdempotentOutcome::Replayed(()));
    let other = world.complete(900, &held.lease, b"c", 2);
    refused!(other, CompleteError::ShardTerminal { status: ShardStatus::Done, .. });
}

/// The clock does not affect a replay.
pub fn a_checkpoint_is_replayed_after_the_lease_ran_out<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    assert!(world.checkpoint(900, &held.lease, b"c", 1).expect("known").is_replay());
    refused!(world.checkpoint(900, &held.lease, b"d", 2), CheckpointError::LeaseExpired { .. });
}

/// A zombie may replay its own operation, and nothing else.
pub fn a_checkpoint_is_replayed_after_another_worker_took_over<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let zombie = world.acquire(10, key(0), 1);
    world.checkpoint(11, &zombie.lease, b"c", 1).expect("live");
    let owner = world.acquire(110, key(0), 2);
    world.checkpoint(111, &owner.lease, b"e", 2).expect("live");
    assert!(world.checkpoint(112, &zombie.lease, b"c", 1).expect("known").is_replay());
    let row = world.row(113, shard(0));
    assert_eq!(row.last_key.as_deref(), Some(b"e".as_slice()), "progress did not decrease");
}

/// Unparking keeps the park operation in the log.
pub fn a_parking_is_replayed_after_the_shard_was_unparked<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.park(11, &held.lease, 1).expect("live");
    world.backend.unpark_shard(at(12), world.tenant, key(0), op(2)).expect("parked");
    assert!(world.park(13, &held.lease, 1).expect("known").is_replay());
    assert_eq!(world.row(14, shard(0)).status, ShardStatus::Active, "it was not parked again");
}

/// The parent's last log entry is never evicted.
pub fn a_replacing_split_is_replayed_for_ever_with_the_same_children<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = replace_at(&[b"a", b"d", b"h", b"m"]);
    let children = world.replace(11, &held.lease, &plan, 1).expect("live").into_inner();
    for id in &children {
        world.finish(12, ShardKey::new(RUN, *id), 2);
    }
    let again = world.replace(900, &held.lease, &plan, 1).expect("known");
    assert_eq!(again, IdempotentOutcome::Replayed(children));
    assert_eq!(world.progress(900).total, 5, "no shard was created twice");
}

/// A delayed duplicate of a release must not free the shard of the next owner.
pub fn a_release_is_replayed_and_does_not_free_the_next_owner<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let first = world.acquire(10, key(0), 1);
    world.release(11, &first.lease, ReleaseMode::Clean, 1).expect("live");
    let next = world.acquire(12, key(0), 2);
    let copy = world.release(13, &first.lease, ReleaseMode::Clean, 1).expect("known");
    assert!(copy.is_replay());
    world.renew(14, &next.lease).expect("the next owner keeps the shard");
}

/// A reused id is a bug of the caller and is reported as a conflict.
pub fn an_operation_id_with_other_parameters_is_a_conflict<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    let other = world.checkpoint(12, &held.lease, b"d", 1);
    refused!(other, CheckpointError::OpIdConflict { op_id, .. } if op_id == op(1));
    let row = world.row(13, shard(0));
    assert_eq!(row.last_key.as_deref(), Some(b"c".as_slice()));

    world.shrink(14, &held.lease, &residual_at(b"a", b"f", b"m"), 2).expect("live");
    let other = world.shrink(15, &held.lease, &residual_at(b"a", b"e", b"f"), 2);
    refused!(other, SplitError::OpIdConflict { .. });
    world.park(16, &held.lease, 3).expect("live");
    let reason = ParkReason::NotFound;
    let other = world.backend.park_shard(at(17), world.tenant, &held.lease, reason, op(3));
    refused!(other, ParkError::OpIdConflict { .. });
}

/// The kind of the operation is part of the comparison.
pub fn an_operation_id_of_another_operation_is_a_conflict<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    refused!(world.complete(12, &held.lease, b"c", 1), CompleteError::OpIdConflict { .. });
    refused!(world.park(12, &held.lease, 1), ParkError::OpIdConflict { .. });
    let cut = residual_at(b"a", b"f", b"m");
    refused!(world.shrink(12, &held.lease, &cut, 1), SplitError::OpIdConflict { .. });
    assert_eq!(world.row(13, shard(0)).status, ShardStatus::Active);
}

/// A conflict is reported even if the lease has expired.
pub fn a_conflict_speaks_before_the_lease_ladder<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.complete(11, &held.lease, b"c", 1).expect("live");
    refused!(world.complete(900, &held.lease, b"d", 1), CompleteError::OpIdConflict { .. });
}

/// Every shard has its own operation log.
pub fn the_same_operation_id_is_another_operation_on_another_shard<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let left = world.acquire(10, key(0), 1);
    let right = world.acquire(10, key(1), 1);
    assert!(world.checkpoint(11, &left.lease, b"c", 1).expect("live").is_executed());
    assert!(world.checkpoint(11, &right.lease, b"n", 1).expect("live").is_executed());
}

/// Another token at the same key is another checkpoint.
pub fn the_token_of_a_cursor_is_part_of_the_operation<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let mut checkpoint = |token: &[u8], id| {
        let cursor = CursorUpdate::new(b"c", token);
        world.backend.checkpoint(at(11), world.tenant, &held.lease, cursor, op(id))
    };
    checkpoint(b"one", 1).expect("live");
    refused!(checkpoint(b"two", 1), CheckpointError::OpIdConflict { .. });
    checkpoint(b"two", 2).expect("an equal key is no regression");
    let next = world.acquire(110, key(0), 2);
    assert_eq!(next.token.as_deref(), Some(b"two".as_slice()));
}

/// A refusal is not recorded: the same id may be used for a corrected call.
pub fn a_refused_operation_is_not_remembered<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    refused!(world.checkpoint(11, &held.lease, b"x", 1), CheckpointError::CursorOutOfBounds(_));
    assert!(world.checkpoint(12, &held.lease, b"c", 1).expect("live").is_executed());
}

/// Sixteen operations are replayed; the seventeenth evicts the first.
pub fn the_log_remembers_its_capacity_and_forgets_the_oldest<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    fill_log(&mut world, &held, b"c");
    for id in 1..=OP_LOG_CAP as u64 {
        let known = world.checkpoint(12, &held.lease, b"c", id).expect("in the log");
        assert!(known.is_replay(), "operation {id} of {OP_LOG_CAP}");
    }
    world.checkpoint(13, &held.lease, b"c", 100).expect("live");
    for id in 2..=OP_LOG_CAP as u64 {
        assert!(world.checkpoint(14, &held.lease, b"c", id).expect("in the log").is_replay());
    }
    let oldest = world.checkpoint(14, &held.lease, b"c", 1).expect("executed again");
    assert!(oldest.is_executed(), "the oldest was evicted");
}

/// An evicted operation counts as new: a late retry is checked by the rules.
pub fn a_forgotten_checkpoint_is_judged_anew<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"b", 900).expect("live");
    fill_log(&mut world, &held, b"c");
    let late = world.checkpoint(12, &held.lease, b"b", 900);
    refused!(late, CheckpointError::CursorRegression { .. });
}

/// The list of spawned shards is never evicted.
pub fn a_residual_split_is_replayed_by_its_child_when_the_log_forgot_it<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = residual_at(b"a", b"f", b"m");
    let residual = world.shrink(11, &held.lease, &plan, 900).expect("live").into_inner();
    fill_log(&mut world, &held, b"c");
    let again = world.shrink(12, &held.lease, &plan, 900).expect("known");
    assert_eq!(again, IdempotentOutcome::Replayed(residual));
    assert_eq!(world.progress(12).total, 3, "no shard was created twice");
    let late = world.shrink(900, &held.lease, &plan, 900).expect("also after the lease");
    assert!(late.is_replay());
}

/// The child keeps the fingerprint of its split, whatever happens to its range.
pub fn a_residual_split_is_replayed_after_the_child_was_split_itself<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = residual_at(b"a", b"f", b"m");
    let residual = world.shrink(11, &held.lease, &plan, 900).expect("live").into_inner();
    let child = world.acquire(12, ShardKey::new(RUN, residual), 2);
    world.shrink(13, &child.lease, &residual_at(b"f", b"k", b"m"), 1).expect("live");
    world.replace(14, &child.lease, &replace_at(&[b"f", b"h", b"k"]), 2).expect("live");
    fill_log(&mut world, &held, b"c");
    let again = world.shrink(15, &held.lease, &plan, 900).expect("known");
    assert_eq!(again, IdempotentOutcome::Replayed(residual));
}

/// The child's fingerprint distinguishes a reused id from a repeated operation.
pub fn a_forgotten_residual_split_with_another_cut_is_a_conflict<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.shrink(11, &held.lease, &residual_at(b"a", b"f", b"m"), 900).expect("live");
    fill_log(&mut world, &held, b"c");
    let other = world.shrink(12, &held.lease, &residual_at(b"a", b"e", b"f"), 900);
    refused!(other, SplitError::OpIdConflict { op_id, .. } if op_id == op(900));
}

/// Delays of a retry, in operations of its lease: within the log, at its end, and far beyond.
const DELAYS: [u64; 5] = [1, 15, 16, 17, 300];

/// The checkpoints repeat one key, so only the log and the sequence recognize a duplicate.
pub fn a_retry_is_replayed_or_too_old_however_late_it_comes<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let last = DELAYS[DELAYS.len() - 1] + 1;
    for id in 1..=last {
        let done = world.checkpoint(11, &numbered(&held.lease, id), b"c", id).expect("live");
        assert!(done.is_executed(), "operation {id} is new");
    }
    for delay in DELAYS {
        let id = last - delay;
        let late = world.checkpoint(12, &numbered(&held.lease, id), b"c", id);
        match delay < OP_LOG_CAP as u64 {
            true => assert!(late.expect("in the log").is_replay(), "after {delay}"),
            false => {
                refused!(late, CheckpointError::OperationTooOld { op_id, presented, executed }
                    if op_id == op(id) && presented.as_raw() == id && executed.as_raw() == last);
            }
        }
    }
}

/// Its caller issues it again under a new id.
pub fn an_overtaken_operation_is_refused_and_changes_nothing<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &numbered(&held.lease, 2), b"c", 2).expect("live");
    let before = world.row(12, shard(0));
    for _ in 0..2 {
        let late = world.checkpoint(12, &numbered(&held.lease, 1), b"d", 1);
        refused!(late, CheckpointError::OperationTooOld { .. });
    }
    assert_eq!(world.row(12, shard(0)), before);
    let again = world.checkpoint(13, &numbered(&held.lease, 3), b"d", 3).expect("live");
    assert!(again.is_executed());
}

/// The check comes before the operation's own rules.
pub fn every_operation_under_a_lease_may_be_too_old<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &numbered(&held.lease, 5), b"c", 5).expect("live");
    let late = &numbered(&held.lease, 4);
    refused!(world.checkpoint(12, late, b"b", 4), CheckpointError::OperationTooOld { .. });
    refused!(world.complete(12, late, b"d", 4), CompleteError::OperationTooOld { .. });
    refused!(world.park(12, late, 4), ParkError::OperationTooOld { .. });
    let released = world.release(12, late, ReleaseMode::Clean, 4);
    refused!(released, ReleaseError::OperationTooOld { .. });
    let replaced = world.replace(12, late, &replace_at(&[b"a", b"f", b"m"]), 4);
    refused!(replaced, SplitError::OperationTooOld { .. });
    let shrunk = world.shrink(12, late, &residual_at(b"a", b"f", b"m"), 4);
    refused!(shrunk, SplitError::OperationTooOld { .. });
    refused!(world.offer(12, late, (1, 2, 50), 4), OfferError::OperationTooOld { .. });
    refused!(world.withdraw(12, late, 1, 4), WithdrawError::OperationTooOld { .. });
    world.renew(12, late).expect("a renewal has no sequence");
    let row = world.row(13, shard(0));
    assert_eq!((row.status, row.last_key.as_deref()), (ShardStatus::Active, Some(&b"c"[..])));
}

/// The list of spawned shards answers before the sequence is checked.
pub fn a_residual_split_is_replayed_even_if_it_is_too_old<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let plan = residual_at(b"a", b"f", b"m");
    let first = numbered(&held.lease, 1);
    let residual = world.shrink(11, &first, &plan, 900).expect("live").into_inner();
    for id in 1..=OP_LOG_CAP as u64 {
        world.checkpoint(11, &numbered(&held.lease, 1 + id), b"c", id).expect("live");
    }
    let again = world.shrink(12, &first, &plan, 900).expect("known");
    assert_eq!(again, IdempotentOutcome::Replayed(residual));
}

/// Sequences of two leases are not comparable.
pub fn the_sequence_begins_anew_with_every_grant<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let first = world.acquire(10, key(0), 1);
    world.checkpoint(11, &numbered(&first.lease, 9), b"c", 1).expect("live");
    let second = world.acquire(110, key(0), 2);
    world.checkpoint(111, &numbered(&second.lease, 1), b"d", 2).expect("live");
    let late = world.checkpoint(111, &numbered(&second.lease, 1), b"e", 3);
    refused!(late, CheckpointError::OperationTooOld { .. });
    let stale = world.checkpoint(111, &numbered(&first.lease, 10), b"e", 4);
    refused!(stale, CheckpointError::StaleFence { .. });
}

/// Returns `lease` as it is presented by its operation with sequence `raw`.
fn numbered(lease: &Lease, raw: u64) -> Lease {
    let mut lease = lease.clone();
    lease.set_sequence(OpSequence::try_from_raw(raw).expect("a small number"));
    lease
}

/// Fills the log with checkpoints 1 to 16 at `at_key`.
fn fill_log<T: ConformanceTarget>(world: &mut World<'_, T>, held: &Held, at_key: &[u8]) {
    for id in 1..=OP_LOG_CAP as u64 {
        let done = world.checkpoint(11, &held.lease, at_key, id).expect("live");
        assert!(done.is_executed());
    }
}
