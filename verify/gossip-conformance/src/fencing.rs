//! Fences and leases: which worker may write, and for how long.

use gossip_contracts::identity::ShardKey;
use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireError, CheckpointError, GrantToken, Lease, RenewError, RunManagement, ShardStatus,
};

use super::world::{LEASE, LEASE_GATED, RUN, World, at, fence, key, op, replace_at, residual_at};
use super::world::{shard, word, worker};
use super::{ConformanceTarget, refused, topic};

topic!("fencing":
    the_fence_rises_with_every_change_of_owner,
    the_fence_stays_while_the_owner_stays,
    a_stale_fence_is_refused_by_every_operation,
    a_stale_fence_refusal_names_both_fences,
    a_forged_owner_with_the_right_fence_is_refused,
    a_forged_fence_from_the_future_is_refused,
    a_lease_is_live_until_just_before_its_deadline,
    a_lease_is_over_at_its_deadline,
    a_shard_can_be_taken_over_at_the_deadline_and_not_before,
    the_same_worker_cannot_hold_a_shard_twice,
    the_same_worker_gets_a_new_fence_after_its_lease_ran_out,
    terminal_operations_clear_the_lease,
    a_terminal_status_speaks_before_a_stale_fence,
    a_stale_fence_speaks_before_an_expired_lease,
    a_released_lease_is_no_longer_good,
    derived_shards_start_at_their_parents_fence,
    a_shard_that_is_not_there_is_not_found,
);

/// Acquire, takeover, unpark, revoke and accept each raise the fence; nothing lowers it.
pub fn the_fence_rises_with_every_change_of_owner<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let first = world.acquire(10, key(0), 1);
    let takeover = world.acquire(110, key(0), 2);
    world.release(111, &takeover.lease, ReleaseMode::Clean, 1).expect("live");
    let released = world.acquire(112, key(0), 1);
    world.park(113, &released.lease, 2).expect("live");
    world.backend.unpark_shard(at(114), world.tenant, key(0), op(3)).expect("parked");
    let unparked = world.acquire(115, key(0), 1);
    world.revoke(116, key(0), 4).expect("leased");
    let revoked = world.acquire(117, key(0), 1);
    world.offer(118, &revoked.lease, (1, 2, 150), 5).expect("live");
    let accepted = world.accept(119, key(0), 2, 1).expect("offered");

    let grants = [&first, &takeover, &released, &unparked, &revoked, &accepted];
    let fences: Vec<u64> = grants.iter().map(|held| held.fence()).collect();
    assert_eq!(fences, [2, 3, 4, 6, 8, 9], "unpark and revoke raise the fence too");
}

/// Renewals, checkpoints, a residual split and a withdrawn offer do not change the fence.
pub fn the_fence_stays_while_the_owner_stays<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.renew(11, &held.lease).expect("live");
    world.checkpoint(12, &held.lease, b"b", 1).expect("live");
    world.shrink(13, &held.lease, &residual_at(b"a", b"f", b"m"), 2).expect("live");
    world.offer(14, &held.lease, (1, 2, 50), 3).expect("live");
    world.withdraw(15, &held.lease, 1, 4).expect("live");
    world.checkpoint(16, &held.lease, b"c", 5).expect("the same lease still counts");
    assert_eq!(world.acquire(300, key(0), 2).fence(), held.fence() + 1);
}

/// Every operation of a zombie is refused.
pub fn a_stale_fence_is_refused_by_every_operation<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let zombie = world.acquire(10, key(0), 1);
    let owner = world.acquire(110, key(0), 2);
    world.assert_all_refused(111, &zombie.lease, "StaleFence");
    world.checkpoint(112, &owner.lease, b"b", 1).expect("the owner is unaffected");
}

/// The refusal names both fences.
pub fn a_stale_fence_refusal_names_both_fences<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let zombie = world.acquire(10, key(0), 1);
    world.acquire(110, key(0), 2);
    let refusal = world.checkpoint(111, &zombie.lease, b"b", 1);
    refused!(refusal, CheckpointError::StaleFence { presented, current }
        if presented == fence(2) && current == fence(3));
}

/// A lease under another worker's id is refused, even with the current fence.
pub fn a_forged_owner_with_the_right_fence_is_refused<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let forged = forge(&held.lease, 2, held.fence());
    world.assert_all_refused(11, &forged, "StaleFence");
    let refusal = world.renew(11, &forged);
    refused!(refusal, RenewError::StaleFence { presented, current } if presented == current);
    world.checkpoint(12, &held.lease, b"b", 1).expect("the owner is unaffected");
}

/// A fence that was never granted is refused like an old one.
pub fn a_forged_fence_from_the_future_is_refused<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let forged = forge(&held.lease, 1, held.fence() + 1);
    world.assert_all_refused(11, &forged, "StaleFence");
}

/// One tick before the deadline every operation still works.
pub fn a_lease_is_live_until_just_before_its_deadline<T: ConformanceTarget>(target: &T) {
    for (index, operation) in LEASE_GATED.iter().enumerate() {
        let mut world = World::two_shards(target);
        let held = world.acquire(10, key(0), 1);
        assert_eq!(held.deadline(), 10 + LEASE);
        let answer = world.call_each(index, held.deadline() - 1, &held.lease);
        assert!(answer == "Executed" || answer == "RenewResult", "{operation}: {answer}");
    }
}

/// At the deadline every operation is refused.
pub fn a_lease_is_over_at_its_deadline<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.assert_all_refused(held.deadline(), &held.lease, "LeaseExpired");
    let refusal = world.renew(500, &held.lease);
    refused!(refusal, RenewError::LeaseExpired { deadline, now }
        if deadline == held.lease.deadline() && now == at(500));
    let row = world.row(held.deadline(), shard(0));
    assert!(!row.leased && row.lease_deadline.is_none(), "the listing shows no lease");
}

/// At the deadline the shard can be acquired; one tick earlier it cannot.
pub fn a_shard_can_be_taken_over_at_the_deadline_and_not_before<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let early = world.try_acquire(held.deadline() - 1, key(0), 2);
    refused!(early, AcquireError::AlreadyLeased { lease_deadline, .. }
        if lease_deadline == held.lease.deadline());
    let taken = world.acquire(held.deadline(), key(0), 2);
    assert_eq!(taken.deadline(), held.deadline() + LEASE);
}

/// Two processes may share a worker id by mistake, so the same id is not granted twice.
pub fn the_same_worker_cannot_hold_a_shard_twice<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    refused!(world.try_acquire(11, key(0), 1), AcquireError::AlreadyLeased { .. });
    world.renew(12, &held.lease).expect("the first grant still counts");
}

/// A worker that acquires again is a new owner; its old lease is stale.
pub fn the_same_worker_gets_a_new_fence_after_its_lease_ran_out<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let old = world.acquire(10, key(0), 1);
    world.checkpoint(11, &old.lease, b"c", 1).expect("live");
    let new = world.acquire(110, key(0), 1);
    assert_eq!(new.fence(), old.fence() + 1);
    assert_eq!(new.last_key.as_deref(), Some(b"c".as_slice()), "it resumes from its cursor");
    refused!(world.checkpoint(111, &old.lease, b"d", 2), CheckpointError::StaleFence { .. });
    assert_ne!(new.lease.token(), old.lease.token(), "every grant has its own token");
}

/// Done, split and parked shards have no lease.
pub fn terminal_operations_clear_the_lease<T: ConformanceTarget>(target: &T) {
    let ends = ["complete", "park_shard", "split_replace"];
    let statuses = [ShardStatus::Done, ShardStatus::Parked, ShardStatus::Split];
    for (end, status) in ends.into_iter().zip(statuses) {
        let mut world = World::two_shards(target);
        let held = world.acquire(10, key(0), 1);
        let index =
            LEASE_GATED.iter().position(|name| *name == end).expect("the operation is in the list");
        world.call_each(index, 11, &held.lease);
        let row = world.row(12, shard(0));
        assert_eq!((row.status, row.leased, row.lease_deadline), (status, false, None), "{end}");
        assert_eq!(world.progress(12).leased, 0, "{end}");
        let refusal = world.try_acquire(500, key(0), 2).expect_err("the shard is terminal");
        assert_eq!(refusal, AcquireError::ShardTerminal { shard: key(0), status });
    }
}

/// A zombie's call on a finished shard is refused because the shard is finished.
pub fn a_terminal_status_speaks_before_a_stale_fence<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let zombie = world.acquire(10, key(0), 1);
    let owner = world.acquire(110, key(0), 2);
    world.complete(111, &owner.lease, b"c", 1).expect("live");
    world.assert_all_refused(900, &zombie.lease, "ShardTerminal");
}

/// A zombie whose lease has also expired must stop, so the fence is checked first.
pub fn a_stale_fence_speaks_before_an_expired_lease<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let zombie = world.acquire(10, key(0), 1);
    world.acquire(110, key(0), 2);
    world.assert_all_refused(900, &zombie.lease, "StaleFence");
}

/// After a release the fence is the same, but the shard has no owner.
pub fn a_released_lease_is_no_longer_good<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.release(11, &held.lease, ReleaseMode::Clean, 1).expect("live");
    world.assert_all_refused(12, &held.lease, "StaleFence");
    let again = world.acquire(12, key(0), 2);
    assert_eq!(again.fence(), held.fence() + 1, "at once, without waiting for the deadline");
}

/// A sink can order writes of a zombie parent and of a child by their fences.
pub fn derived_shards_start_at_their_parents_fence<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    let parent = world.acquire(110, key(0), 1);
    let plan = residual_at(b"a", b"f", b"m");
    let residual = world.shrink(111, &parent.lease, &plan, 1).expect("live").into_inner();
    let cuts = replace_at(&[b"a", b"c", b"f"]);
    let children = world.replace(112, &parent.lease, &cuts, 2).expect("live").into_inner();
    for derived in children.into_iter().chain([residual]) {
        let held = world.acquire(113, ShardKey::new(RUN, derived), 2);
        assert_eq!(held.fence(), parent.fence() + 1, "its first grant adds one");
    }
}

/// Every operation on an unknown shard is refused.
pub fn a_shard_that_is_not_there_is_not_found<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    refused!(world.try_acquire(10, key(5), 1), AcquireError::ShardNotFound { shard }
        if shard == key(5));
    let held = world.acquire(10, key(0), 1);
    let (deadline, token) = (held.lease.deadline(), held.lease.token());
    let forged = Lease::new(world.tenant, key(5), worker(1), fence(2), deadline, token);
    world.assert_all_refused(11, &forged, "ShardNotFound");
    let accept = world.accept(11, key(5), 1, 1).expect_err("not there");
    assert_eq!(word(&accept), "ShardNotFound");
}

/// Returns a lease on the same shard with the same deadline and another owner or fence.
fn forge(lease: &Lease, owner: u64, fence_number: u64) -> Lease {
    let token = GrantToken::from_raw(lease.token().as_raw());
    let (tenant, deadline) = (lease.tenant(), lease.deadline());
    Lease::new(tenant, lease.key(), worker(owner), fence(fence_number), deadline, token)
}
