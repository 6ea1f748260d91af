//! Attempts: a shard that makes no progress is parked, and no other shard (DESIGN Q13).

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::ShardKey;
use gossip_coordination::protocol::{ClaimScope, OfferTerms, ReleaseMode};
use gossip_coordination::{
    AcquireError, AcquireScratch, ClaimError, CoordinationBackend, ParkReason, RunManagement,
    ShardClaiming, ShardStatus,
};

use super::world::{
    Held, LEASE, RUN, World, at, config, handoff, key, op, replace_at, residual_at, shard, worker,
};
use super::{ConformanceTarget, refused, topic};

topic!("attempts":
    every_grant_counts_an_attempt,
    a_shard_is_parked_at_the_acquire_after_its_last_attempt,
    an_acquire_can_spare_the_last_attempt,
    a_claim_can_spare_last_attempts,
    without_a_limit_nothing_is_parked,
    a_strict_advance_starts_the_count_anew,
    a_checkpoint_at_the_same_key_is_no_progress,
    a_final_cursor_in_an_offer_is_progress,
    a_clean_release_gives_the_attempt_back,
    a_failed_release_and_a_handoff_leave_the_count,
    unparking_starts_the_count_anew,
    children_have_one_try_each,
    a_residual_has_one_try,
    a_claim_parks_exhausted_shards_and_takes_another,
    a_live_lease_speaks_before_the_count,
);

/// Every grant returns the number of attempts, and listings show it.
pub fn every_grant_counts_an_attempt<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(5)));
    for attempt in 1..=3 {
        let held = expire(&mut world, attempt);
        assert_eq!(u64::from(held.attempts), attempt);
        assert_eq!(world.row(attempt * LEASE + 1, shard(0)).attempts, held.attempts);
    }
}

/// With two retries: three grants, and the fourth parks.
pub fn a_shard_is_parked_at_the_acquire_after_its_last_attempt<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(2)));
    let last = (1..=3).map(|attempt| expire(&mut world, attempt)).last().expect("three grants");
    let refusal = world.try_acquire(1_000, key(0), 1);
    refused!(refusal, AcquireError::ShardTerminal { status: ShardStatus::Parked, .. });
    let row = world.row(1_001, shard(0));
    assert_eq!(row.park_reason, Some(ParkReason::TooManyErrors));
    assert_eq!((row.status, row.leased), (ShardStatus::Parked, false));
    assert_eq!(row.acquire_count, 3, "the park is not a grant");
    world.assert_all_refused(1_002, &last.lease, "ShardTerminal");
    assert_eq!(
        world.row(1_003, shard(1)).status,
        ShardStatus::Active,
        "the other shard is unaffected"
    );
}

/// An acquire that spares last attempts is refused exactly when the grant would be the last one.
pub fn an_acquire_can_spare_the_last_attempt<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(2)));
    let (tenant, mut scratch) = (world.tenant, AcquireScratch::new());
    for attempt in 1..=2 {
        let now = at(attempt * LEASE);
        let acquired = world.backend.acquire_sparing_last_attempt_into(
            now,
            tenant,
            key(0),
            worker(1),
            &mut scratch,
        );
        assert_eq!(u64::from(acquired.expect("attempts left").attempts), attempt);
    }
    let mut acquire = |backend: &mut T::Backend, now| {
        let acquired = backend.acquire_sparing_last_attempt_into(
            at(now),
            tenant,
            key(0),
            worker(1),
            &mut scratch,
        );
        acquired.map(|acquired| acquired.attempts)
    };
    refused!(acquire(&mut world.backend, 3 * LEASE), AcquireError::LastAttempt);
    let row = world.row(3 * LEASE, shard(0));
    assert_eq!((row.attempts, row.acquire_count), (2, 2), "a refusal is no attempt");
    let held = world.acquire(3 * LEASE, key(0), 1);
    assert_eq!(held.attempts, 3);
    world.checkpoint(3 * LEASE + 1, &held.lease, b"b", 9).expect("live");
    let again = acquire(&mut world.backend, 4 * LEASE + 1);
    assert_eq!(again.expect("progress gives the attempts back"), 1);
}

/// A claim that spares last attempts takes another shard, or says that it found only such shards.
pub fn a_claim_can_spare_last_attempts<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(1)));
    expire(&mut world, 1);
    let (tenant, mut scratch) = (world.tenant, AcquireScratch::new());
    let mut claim = |backend: &mut T::Backend, now| {
        let scope = ClaimScope::SpareLastAttempts;
        let claimed = backend.claim_within(scope, at(now), tenant, RUN, worker(2), &mut scratch);
        claimed.map(|claimed| claimed.lease.shard())
    };
    assert_eq!(claim(&mut world.backend, 900), Ok(shard(1)));
    assert_eq!(claim(&mut world.backend, 900), Err(ClaimError::OnlyLastAttempts));
    assert_eq!(world.claim(900, 3).expect("it is available").attempts, 2);
    refused!(claim(&mut world.backend, 900), ClaimError::NoneAvailable { .. });
}

/// `None` means no limit.
pub fn without_a_limit_nothing_is_parked<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    for attempt in 1..=20 {
        assert_eq!(u64::from(expire(&mut world, attempt).attempts), attempt);
    }
}

/// Any progress resets the count.
pub fn a_strict_advance_starts_the_count_anew<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(1)));
    expire(&mut world, 1);
    let held = expire(&mut world, 2);
    assert_eq!(held.attempts, 2);
    world.checkpoint(2 * LEASE + 1, &held.lease, b"b", 1).expect("live");
    assert_eq!(expire(&mut world, 3).attempts, 1);
}

/// Repeating the same key is no progress.
pub fn a_checkpoint_at_the_same_key_is_no_progress<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(9)));
    let held = expire(&mut world, 1);
    world.checkpoint(LEASE + 1, &held.lease, b"b", 1).expect("live");
    let held = expire(&mut world, 2);
    assert_eq!(held.attempts, 1, "the first advance counted");
    world.checkpoint(2 * LEASE + 1, &held.lease, b"b", 2).expect("live");
    assert_eq!(expire(&mut world, 3).attempts, 2, "the repetition did not");
}

/// An offer that advances the cursor is a checkpoint, too.
pub fn a_final_cursor_in_an_offer_is_progress<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(9)));
    expire(&mut world, 1);
    let held = expire(&mut world, 2);
    let now = 2 * LEASE + 1;
    let terms = OfferTerms { handoff: handoff(1), destination: worker(2), deadline: at(now + 10) };
    let cursor = CursorUpdate::with_last_key(b"b");
    world.backend.offer(at(now), world.tenant, &held.lease, terms, cursor, op(1)).expect("live");
    let moved = world.accept(now + 1, key(0), 2, 1).expect("offered");
    assert_eq!(moved.attempts, 0, "an accept adds none");
}

/// A voluntary release is not a failure.
pub fn a_clean_release_gives_the_attempt_back<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(1)));
    for number in 0..10 {
        let held = world.acquire(10 + number, key(0), 1);
        assert_eq!(held.attempts, 1);
        world.release(10 + number, &held.lease, ReleaseMode::Clean, number).expect("live");
    }
    let held = world.acquire(30, key(0), 1);
    world.checkpoint(31, &held.lease, b"b", 100).expect("live");
    world.release(32, &held.lease, ReleaseMode::Clean, 101).expect("live");
    assert_eq!(world.acquire(33, key(0), 1).attempts, 1, "never below zero");
}

/// A failure counts; a handoff does not.
pub fn a_failed_release_and_a_handoff_leave_the_count<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(9)));
    let held = world.acquire(10, key(0), 1);
    world.release(11, &held.lease, ReleaseMode::Failed, 1).expect("live");
    let held = world.acquire(12, key(0), 1);
    assert_eq!(held.attempts, 2);
    world.offer(13, &held.lease, (1, 2, 50), 2).expect("live");
    assert_eq!(world.accept(14, key(0), 2, 1).expect("offered").attempts, 2);
}

/// An administrator's unpark resets the count.
pub fn unparking_starts_the_count_anew<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(0)));
    expire(&mut world, 1);
    refused!(world.try_acquire(900, key(0), 1), AcquireError::ShardTerminal { .. });
    world.backend.unpark_shard(at(901), world.tenant, key(0), op(1)).expect("parked");
    assert_eq!(world.acquire(902, key(0), 1).attempts, 1);
}

/// Bisection continues, and the healthy half is not parked because of its parent's attempts.
pub fn children_have_one_try_each<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(2)));
    let held = (1..=3).map(|attempt| expire(&mut world, attempt)).last().expect("three grants");
    assert_eq!(held.attempts, 3);
    let now = 3 * LEASE + 1;
    let plan = replace_at(&[b"a", b"f", b"m"]);
    let children = world.replace(now, &held.lease, &plan, 1).expect("live").into_inner();
    let first = ShardKey::new(RUN, children[0]);
    assert_eq!(world.acquire(now, first, 1).attempts, 2, "min(3, 2 - 1) and this grant");
    let again = world.acquire(now + LEASE, first, 1);
    assert_eq!(again.attempts, 3, "one more try is left");
    let refusal = world.try_acquire(now + 2 * LEASE, first, 1);
    refused!(refusal, AcquireError::ShardTerminal { status: ShardStatus::Parked, .. });
}

/// The same holds for a residual, also with the lowest limit.
pub fn a_residual_has_one_try<T: ConformanceTarget>(target: &T) {
    for (retries, inherited) in [(Some(0), 0), (Some(1), 0), (Some(5), 1), (None, 1)] {
        let mut world = World::with_config(target, config(retries));
        let held = expire(&mut world, 1);
        let plan = residual_at(b"a", b"f", b"m");
        let split = world.shrink(LEASE + 1, &held.lease, &plan, 1).expect("live");
        let residual = world.acquire(LEASE + 2, ShardKey::new(RUN, split.into_inner()), 2);
        assert_eq!(residual.attempts, inherited + 1, "limit {retries:?}");
    }
}

/// The claim returns a usable shard instead of a park notice.
pub fn a_claim_parks_exhausted_shards_and_takes_another<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(0)));
    expire(&mut world, 1);
    let claimed = world.claim(900, 5).expect("the other shard is free");
    assert_eq!(claimed.key(), key(1));
    refused!(world.claim(900, 6), ClaimError::NoneAvailable { .. });
    assert_eq!(world.row(901, shard(0)).status, ShardStatus::Parked);
}

/// An exhausted shard is not parked while its lease is live.
pub fn a_live_lease_speaks_before_the_count<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(0)));
    let held = world.acquire(10, key(0), 1);
    refused!(world.try_acquire(11, key(0), 2), AcquireError::AlreadyLeased { .. });
    world.checkpoint(12, &held.lease, b"b", 1).expect("still the owner");
}

/// Acquires shard 0 for the `number`-th time, at the deadline of the previous lease.
fn expire<T: ConformanceTarget>(world: &mut World<'_, T>, number: u64) -> Held {
    world.acquire(number * LEASE, key(0), 1)
}
