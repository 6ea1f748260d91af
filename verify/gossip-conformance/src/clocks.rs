//! Clocks: time is an argument, may go backwards, and never decides safety (DESIGN Q7).

use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{
    AcquireError, ClaimError, RenewError, RunManagement, RunStatus, ShardStatus,
};

use super::world::{LEASE, ROOTS, RUN, World, at, config, key, op, residual_at, shard};
use super::{ConformanceTarget, Settings, refused, topic};

topic!("clocks":
    a_renewal_never_shortens_a_lease,
    a_lagging_clock_breaks_no_operation,
    a_lagging_clock_ends_a_run_no_earlier_than_it_began,
    a_fast_clock_takes_over_only_behind_the_deadline,
    a_lease_granted_by_a_lagging_clock_is_found_when_it_runs_out,
    the_end_of_time_is_a_deadline_like_any_other,
);

/// Replies may arrive in any order.
pub fn a_renewal_never_shortens_a_lease<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(50, key(0), 1);
    let mut deadline = |now| world.renew(now, &held.lease).expect("live").new_deadline.as_raw();
    assert_eq!(deadline(80), 80 + LEASE);
    assert_eq!(deadline(60), 80 + LEASE, "a lagging clock does not shorten the lease");
    assert_eq!(deadline(1), 80 + LEASE);
    assert_eq!(deadline(90), 90 + LEASE);
}

/// Every operation runs at an earlier time than the previous one.
pub fn a_lagging_clock_breaks_no_operation<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(1_000, key(0), 1);
    world.checkpoint(1_050, &held.lease, b"b", 1).expect("live");
    world.checkpoint(500, &held.lease, b"c", 2).expect("the fence decides, not the clock");
    world.shrink(400, &held.lease, &residual_at(b"a", b"f", b"m"), 3).expect("live");
    world.offer(300, &held.lease, (1, 2, 350), 4).expect("live");
    world.withdraw(200, &held.lease, 1, 5).expect("live");
    world.release(100, &held.lease, ReleaseMode::Clean, 6).expect("live");
    let again = world.acquire(50, key(0), 2);
    assert_eq!(again.deadline(), 50 + LEASE);
    world.park(40, &again.lease, 7).expect("live");
    world.backend.unpark_shard(at(30), world.tenant, key(0), op(8)).expect("parked");
    let again = world.acquire(20, key(0), 3);
    world.revoke(10, key(0), 9).expect("leased");
    assert_eq!(world.acquire(5, key(0), 4).fence(), again.fence() + 2);
    assert!(world.checkpoint(1, &held.lease, b"b", 1).expect("known").is_replay());
}

/// Stored times never decrease.
pub fn a_lagging_clock_ends_a_run_no_earlier_than_it_began<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    let tenant = world.tenant;
    world.backend.create_run(at(1_000), tenant, RUN, config(None)).expect("new");
    world.register(500, &ROOTS, 1).expect("a good manifest");
    world.backend.pause_run(at(2_000), tenant, RUN, op(2)).expect("active");
    world.backend.resume_run(at(100), tenant, RUN, op(3)).expect("active");
    world.backend.cancel_run(at(50), tenant, RUN, op(4)).expect("active");
    let run = world.run_record().expect("there");
    assert_eq!((run.status(), run.created_at()), (RunStatus::Cancelled, at(1_000)));
    assert_eq!(run.completed_at(), Some(at(2_000)), "the last time that was stored");
}

/// If the clock of a claimer is ahead, the previous owner is fenced out.
pub fn a_fast_clock_takes_over_only_behind_the_deadline<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    refused!(world.try_acquire(109, key(0), 2), AcquireError::AlreadyLeased { .. });
    let thief = world.acquire(1_000_000, key(0), 2);
    world.assert_all_refused(11, &held.lease, "StaleFence");
    world.checkpoint(12, &thief.lease, b"c", 1).expect("its clock went backwards");
    refused!(world.try_acquire(999_999, key(0), 1), AcquireError::AlreadyLeased { .. });
}

/// Deadlines need not be in the order of the grants; the earliest one is still reported.
pub fn a_lease_granted_by_a_lagging_clock_is_found_when_it_runs_out<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    world.acquire(1_000, key(0), 1);
    world.acquire(10, key(1), 1);
    let nothing = world.claim(20, 2).expect_err("all taken");
    assert_eq!(nothing, ClaimError::NoneAvailable { earliest_deadline: Some(at(110)) });
    let claimed = world.claim(110, 2).expect("the second lease expired");
    assert_eq!(claimed.key(), key(1));
}

/// Nothing overflows; at the last instant every lease has expired.
pub fn the_end_of_time_is_a_deadline_like_any_other<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(u64::MAX - 1, key(0), 1);
    assert_eq!(held.deadline(), u64::MAX);
    world.renew(u64::MAX - 1, &held.lease).expect("live");
    world.offer(u64::MAX - 1, &held.lease, (1, 2, u64::MAX), 1).expect("live");
    world.renew(u64::MAX - 1, &held.lease).expect("live");
    refused!(world.renew(u64::MAX, &held.lease), RenewError::LeaseExpired { .. });
    let last = world.acquire(u64::MAX, key(0), 2);
    assert_eq!(last.deadline(), u64::MAX, "expired at the grant");
    assert_eq!(world.row(u64::MAX, shard(0)).status, ShardStatus::Active);
}
