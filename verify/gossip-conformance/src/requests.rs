//! Administration: requests to an owner, lease revocation, pausing a run.

use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireError, ClaimError, CoordinationBackend, IdempotentOutcome, Lease, RequestActionError,
    RevokeLeaseError, RunManagement, RunStatus, RunTransitionError, ShardAction, SplitKey,
};

use super::world::{LEASE, RUN, World, at, key, op, residual_at, shard, worker};
use super::{ConformanceTarget, refused, topic};

topic!("requests":
    a_request_reaches_the_owner_by_renew_and_by_checkpoint,
    a_request_waits_until_it_is_fulfilled,
    every_action_is_cleared_by_the_operation_that_fulfils_it,
    a_request_expires,
    a_bump_of_the_fence_ends_a_request,
    one_request_at_a_time,
    a_repeated_request_is_replayed,
    a_request_needs_an_owner,
    a_request_is_refused_where_nothing_can_be_done,
    a_request_does_not_push_the_owners_operations_out_of_the_log,
    a_revoked_lease_is_worth_nothing_and_the_shard_is_free,
    a_revocation_is_replayed_and_spares_the_next_owner,
    a_revocation_needs_a_lease,
    a_revocation_with_a_fence_spares_later_leases,
    a_paused_run_starts_nothing_and_lets_owners_work,
    a_resumed_run_starts_shards_again,
    pausing_twice_is_no_error,
    a_pause_belongs_to_an_active_run,
    many_leases_are_renewed_one_by_one,
);

/// Renewals and checkpoints return the request, each time.
pub fn a_request_reaches_the_owner_by_renew_and_by_checkpoint<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let split = SplitKey::try_new(b"f").expect("a key that can be a bound");
    let action = ShardAction::Split(Some(split));
    ask(&mut world, 11, &action, 90, 1).expect("leased");
    let renewed = world.renew(12, &held.lease).expect("live").request.expect("delivered");
    assert_eq!((renewed.action(), renewed.expires_at()), (&action, at(90)));
    let progress = world.checkpoint(13, &held.lease, b"c", 2).expect("live").into_inner();
    assert_eq!(progress.request.expect("delivered").action(), &action);
}

/// Other operations of the owner do not clear it.
pub fn a_request_waits_until_it_is_fulfilled<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    ask(&mut world, 11, &ShardAction::HandOff(None), 500, 1).expect("leased");
    world.checkpoint(12, &held.lease, b"b", 2).expect("live");
    world.shrink(13, &held.lease, &residual_at(b"a", b"f", b"m"), 3).expect("live");
    world.withdraw(14, &held.lease, 9, 4).expect("live");
    assert!(pending(&mut world, 15, &held.lease), "none of these fulfils a hand-off");
    world.offer(16, &held.lease, (1, 2, 50), 5).expect("live");
    assert!(!pending(&mut world, 17, &held.lease));
}

/// Split, release, hand off, withdraw.
pub fn every_action_is_cleared_by_the_operation_that_fulfils_it<T: ConformanceTarget>(target: &T) {
    let actions = [
        ShardAction::Split(None),
        ShardAction::HandOff(Some(worker(2))),
        ShardAction::Withdraw,
        ShardAction::Release,
    ];
    for action in actions {
        let mut world = World::two_shards(target);
        let held = world.acquire(10, key(0), 1);
        if action == ShardAction::Withdraw {
            world.offer(11, &held.lease, (1, 2, 50), 1).expect("live");
        }
        ask(&mut world, 12, &action, 500, 2).expect("leased");
        let lease = match &action {
            ShardAction::Split(_) => {
                world.shrink(13, &held.lease, &residual_at(b"a", b"f", b"m"), 3).expect("live");
                held.lease
            }
            ShardAction::HandOff(_) => {
                world.offer(13, &held.lease, (1, 2, 50), 3).expect("live");
                held.lease
            }
            ShardAction::Withdraw => {
                world.withdraw(13, &held.lease, 1, 3).expect("live");
                held.lease
            }
            ShardAction::Release => {
                world.release(13, &held.lease, ReleaseMode::Clean, 3).expect("live");
                world.acquire(14, key(0), 1).lease
            }
            other => unreachable!("{} is not in the list above", other.label()),
        };
        assert!(!pending(&mut world, 15, &lease), "{action:?}");
        ask(&mut world, 16, &action, 500, 4).expect("no request is pending");
    }
}

/// An expired request no longer counts and can be replaced.
pub fn a_request_expires<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    ask(&mut world, 11, &ShardAction::Release, 50, 1).expect("leased");
    assert!(pending(&mut world, 49, &held.lease));
    assert!(!pending(&mut world, 50, &held.lease));
    let progress = world.checkpoint(51, &held.lease, b"c", 2).expect("live").into_inner();
    assert_eq!(progress.request, None);
    ask(&mut world, 52, &ShardAction::Release, 90, 3).expect("the old one has expired");
}

/// The request was for the last owner, not for the next.
pub fn a_bump_of_the_fence_ends_a_request<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    ask(&mut world, 11, &ShardAction::Release, 5_000, 1).expect("leased");
    let next = world.acquire(110, key(0), 2);
    assert!(!pending(&mut world, 111, &next.lease));

    ask(&mut world, 112, &ShardAction::Withdraw, 5_000, 2).expect("leased");
    world.offer(113, &next.lease, (1, 3, 150), 3).expect("live");
    let moved = world.accept(114, key(0), 3, 1).expect("offered");
    assert!(!pending(&mut world, 115, &moved.lease));
}

/// A second request is refused while one is pending.
pub fn one_request_at_a_time<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    ask(&mut world, 11, &ShardAction::Release, 500, 1).expect("leased");
    let second = ask(&mut world, 12, &ShardAction::Release, 500, 2);
    refused!(second, RequestActionError::RequestPending);
}

/// The request stores its own operation id.
pub fn a_repeated_request_is_replayed<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    let asked = ask(&mut world, 11, &ShardAction::Release, 500, 1);
    assert_eq!(asked, Ok(IdempotentOutcome::Executed(())));
    let again = ask(&mut world, 12, &ShardAction::Release, 500, 1);
    assert_eq!(again, Ok(IdempotentOutcome::Replayed(())));
    for (action, expires_at) in [(ShardAction::Release, 501), (ShardAction::Split(None), 500)] {
        let other = ask(&mut world, 13, &action, expires_at, 1);
        refused!(other, RequestActionError::OpIdConflict(_));
    }
}

/// A request needs an owner; an expired lease is no owner.
pub fn a_request_needs_an_owner<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let asked = ask(&mut world, 5, &ShardAction::Release, 500, 1);
    refused!(asked, RequestActionError::NotLeased);
    let held = world.acquire(10, key(0), 1);
    let late = ask(&mut world, held.deadline(), &ShardAction::Release, 500, 1);
    refused!(late, RequestActionError::NotLeased);
    let before = ask(&mut world, held.deadline() - 1, &ShardAction::Release, 500, 1);
    assert!(before.is_ok());
}

/// The checks are run, then status, then lease.
pub fn a_request_is_refused_where_nothing_can_be_done<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    let done = ask(&mut world, 11, &ShardAction::Release, 500, 2);
    refused!(done, RequestActionError::ShardTerminal { .. });
    world.backend.cancel_run(at(12), world.tenant, RUN, op(3)).expect("active");
    let over = ask(&mut world, 13, &ShardAction::Release, 500, 2);
    refused!(over, RequestActionError::RunTerminal { status: RunStatus::Cancelled });
    let (tenant, action) = (world.tenant, &ShardAction::Release);
    let missing = world.backend.request_action(at(14), tenant, key(5), action, at(500), op(4));
    refused!(missing, RequestActionError::ShardNotFound);
}

/// A request does not affect the owner's lease.
pub fn a_request_does_not_push_the_owners_operations_out_of_the_log<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    for number in 0..20 {
        let now = 12 + number;
        ask(&mut world, now, &ShardAction::Release, now + 1, 100 + number).expect("leased");
    }
    assert!(world.checkpoint(50, &held.lease, b"c", 1).expect("remembered").is_replay());
}

/// The owner is fenced out if it is still alive.
pub fn a_revoked_lease_is_worth_nothing_and_the_shard_is_free<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    let revoked = world.revoke(12, key(0), 2);
    assert_eq!(revoked, Ok(IdempotentOutcome::Executed(())));
    world.assert_all_refused(13, &held.lease, "StaleFence");
    assert!(!world.row(13, shard(0)).leased);
    let next = world.acquire(13, key(0), 2);
    assert_eq!((next.fence(), next.last_key.as_deref()), (4, Some(b"c".as_slice())));
}

/// A delayed duplicate must not revoke the next owner's lease.
pub fn a_revocation_is_replayed_and_spares_the_next_owner<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    world.revoke(11, key(0), 1).expect("leased");
    let next = world.acquire(12, key(0), 2);
    assert_eq!(world.revoke(13, key(0), 1), Ok(IdempotentOutcome::Replayed(())));
    world.renew(14, &next.lease).expect("the next owner keeps the shard");
    world.checkpoint(15, &next.lease, b"c", 2).expect("live");
    refused!(world.revoke(16, key(0), 2), RevokeLeaseError::OpIdConflict(_));
}

/// A worker that saw the end of a lease holder must not revoke the lease of the next one.
pub fn a_revocation_with_a_fence_spares_later_leases<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    world.revoke(11, key(0), 1).expect("leased");
    let next = world.acquire(12, key(0), 2);
    assert_eq!(next.fence(), 4);
    refused!(world.revoke_fence(13, key(0), 2, 2), RevokeLeaseError::StaleFence { .. });
    world.renew(13, &next.lease).expect("the next owner keeps the shard");
    let attempts = world.row(13, shard(0)).attempts;
    let revoked = world.revoke_fence(14, key(0), 4, 3);
    assert_eq!(revoked, Ok(IdempotentOutcome::Executed(())));
    assert_eq!(world.row(14, shard(0)).attempts, attempts, "a revocation is no attempt");
    let replayed = world.revoke_fence(14, key(0), 4, 3);
    assert_eq!(replayed, Ok(IdempotentOutcome::Replayed(())));
    // Another fence is another operation, and so is none.
    refused!(world.revoke_fence(14, key(0), 5, 3), RevokeLeaseError::OpIdConflict(_));
    refused!(world.revoke(14, key(0), 3), RevokeLeaseError::OpIdConflict(_));
    refused!(world.revoke_fence(14, key(0), 4, 4), RevokeLeaseError::StaleFence { .. });
    refused!(world.revoke_fence(14, key(0), 5, 5), RevokeLeaseError::NotLeased);
}

/// Without a lease nothing changes.
pub fn a_revocation_needs_a_lease<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    refused!(world.revoke(5, key(0), 1), RevokeLeaseError::NotLeased);
    world.finish(10, key(0), 2);
    refused!(world.revoke(11, key(0), 1), RevokeLeaseError::ShardTerminal { .. });
    refused!(world.revoke(11, key(5), 1), RevokeLeaseError::ShardNotFound);
}

/// Grants are refused; current owners continue and see the pause.
pub fn a_paused_run_starts_nothing_and_lets_owners_work<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    assert!(!world.renew(11, &held.lease).expect("live").run_paused);
    world.backend.pause_run(at(12), world.tenant, RUN, op(1)).expect("active");
    assert!(world.run_record().expect("there").is_paused());
    refused!(world.try_acquire(13, key(1), 2), AcquireError::RunPaused);
    // A pause is checked before another worker's lease.
    refused!(world.try_acquire(13, key(0), 2), AcquireError::RunPaused);
    refused!(world.claim(13, 2), ClaimError::RunPaused);
    assert!(world.renew(14, &held.lease).expect("live").run_paused);
    world.checkpoint(15, &held.lease, b"c", 2).expect("live");
    world.shrink(16, &held.lease, &residual_at(b"a", b"f", b"m"), 3).expect("live");
    world.complete(17, &held.lease, b"d", 4).expect("live");
}

/// After a resume, all operations work as before.
pub fn a_resumed_run_starts_shards_again<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.backend.pause_run(at(10), world.tenant, RUN, op(1)).expect("active");
    world.backend.resume_run(at(11), world.tenant, RUN, op(2)).expect("active");
    assert!(!world.run_record().expect("there").is_paused());
    world.claim(12, 1).expect("a shard is free");
    let again = world.backend.pause_run(at(13), world.tenant, RUN, op(1)).expect("known");
    assert!(again.is_replay());
    assert!(!world.run_record().expect("there").is_paused(), "a delayed duplicate does not pause");
}

/// Repeating is allowed; the run's operation log works as for the other transitions.
pub fn pausing_twice_is_no_error<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.backend.resume_run(at(10), world.tenant, RUN, op(1)).expect("was never paused");
    world.backend.pause_run(at(11), world.tenant, RUN, op(2)).expect("active");
    world.backend.pause_run(at(12), world.tenant, RUN, op(3)).expect("already so");
    assert!(world.run_record().expect("there").is_paused());
    let conflict = world.backend.resume_run(at(13), world.tenant, RUN, op(3));
    refused!(conflict, RunTransitionError::OpIdConflict(_));
}

/// Neither a run without shards nor a terminal run can be paused.
pub fn a_pause_belongs_to_an_active_run<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, super::Settings::default());
    let (tenant, config) = (world.tenant, super::world::config(None));
    let missing = world.backend.pause_run(at(1), tenant, RUN, op(1));
    refused!(missing, RunTransitionError::RunNotFound);
    world.backend.create_run(at(1), tenant, RUN, config).expect("new");
    let early = world.backend.pause_run(at(2), tenant, RUN, op(1));
    refused!(early, RunTransitionError::WrongStatus { status: RunStatus::Initializing, .. });
    world.backend.cancel_run(at(3), tenant, RUN, op(2)).expect("not over");
    for late in [
        world.backend.pause_run(at(4), tenant, RUN, op(1)),
        world.backend.resume_run(at(4), tenant, RUN, op(1)),
    ] {
        refused!(late, RunTransitionError::RunTerminal { status: RunStatus::Cancelled });
    }
}

/// One answer for each lease, in their order; an invalid lease does not affect the others.
pub fn many_leases_are_renewed_one_by_one<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let zombie = world.acquire(10, key(0), 1).lease;
    let left = world.acquire(110, key(0), 1).lease;
    let right = world.acquire(110, key(1), 1).lease;
    let leases = [right, zombie, left];
    let mut answers = vec![];
    world.backend.renew_many(at(120), world.tenant, &leases, &mut answers);
    let deadlines: Vec<_> = answers.iter().map(|a| a.as_ref().map(|r| r.new_deadline)).collect();
    assert_eq!(deadlines.len(), 3);
    assert_eq!((&deadlines[0], &deadlines[2]), (&Ok(at(120 + LEASE)), &Ok(at(120 + LEASE))));
    assert_eq!(super::world::answer(&deadlines[1]), "StaleFence");
    world.backend.renew_many(at(121), world.tenant, &[], &mut answers);
    assert!(answers.is_empty(), "answers of the previous call are dropped");
}

/// Requests an action of the owner of shard 0.
fn ask<T: ConformanceTarget>(
    world: &mut World<'_, T>,
    now: u64,
    action: &ShardAction,
    expires_at: u64,
    op_id: u64,
) -> Result<IdempotentOutcome<()>, RequestActionError> {
    let (tenant, expires_at) = (world.tenant, at(expires_at));
    world.backend.request_action(at(now), tenant, key(0), action, expires_at, op(op_id))
}

/// Returns whether the owner receives a request.
fn pending<T: ConformanceTarget>(world: &mut World<'_, T>, now: u64, lease: &Lease) -> bool {
    world.renew(now, lease).expect("live").request.is_some()
}
