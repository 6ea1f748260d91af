//! Claims: a worker finds a free shard, and concurrent workers find different ones.

use std::collections::BTreeSet;
use std::sync::Mutex;

use gossip_contracts::identity::ShardId;
use gossip_coordination::protocol::{CLAIM_CANDIDATES_MAX, ClaimCandidates, ReleaseMode};
use gossip_coordination::{
    AcquireScratch, CAPACITY_COUNT_MAX, ClaimError, RunManagement, RunStatus, ShardClaiming,
};

use super::world::{LEASE, ROOTS, RUN, World, at, config, key, op, root, shard, worker};
use super::{Ability, ConformanceTarget, RaceJob, Settings, note_ability, refused, topic};

topic!("claims":
    claims_hand_out_every_shard_once,
    a_claim_is_an_acquire,
    nothing_left_says_when_to_come_back,
    a_shard_whose_lease_ran_out_is_claimed_again,
    a_released_shard_is_claimed_again,
    children_are_claimed_too,
    finished_shards_are_not_claimed,
    a_worker_waits_between_claims,
    a_failed_claim_is_not_waited_for,
    workers_wait_for_themselves_only,
    handles_of_a_process_count_claims_together,
    an_in_flight_claim_counts_until_it_fails,
    without_a_cooldown_no_claim_waits,
    a_cooldown_speaks_before_the_run,
    workers_spread_out,
    candidates_are_free_limited_and_never_twice,
    the_capacity_hint_counts_free_shards,
    racing_workers_share_the_shards_and_never_one_shard,
);

/// Two shards for two workers, and none for the third.
pub fn claims_hand_out_every_shard_once<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let claimed: BTreeSet<ShardId> =
        (1..=2).map(|by| world.claim(10, by).expect("free").lease.shard()).collect();
    assert_eq!(claimed, BTreeSet::from([shard(0), shard(1)]));
    refused!(world.claim(10, 3), ClaimError::NoneAvailable { .. });
}

/// Lease, snapshot and attempt count equal those of an acquire.
pub fn a_claim_is_an_acquire<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    world.make_run(config(None), &ROOTS[..1], 1).expect("a valid manifest");
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    let claimed = world.claim(110, 2).expect("free");
    assert_eq!((claimed.fence(), claimed.deadline()), (held.fence() + 1, 110 + LEASE));
    assert_eq!((claimed.lease.owner(), claimed.attempts), (worker(2), 1));
    assert_eq!(claimed.last_key.as_deref(), Some(b"c".as_slice()));
    assert_eq!((claimed.start, claimed.end), (b"a".to_vec(), b"m".to_vec()));
    world.checkpoint(111, &claimed.lease, b"d", 2).expect("a lease like any other");
}

/// The refusal reports the earliest deadline of a live lease.
pub fn nothing_left_says_when_to_come_back<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let left = world.acquire(10, key(0), 1);
    world.acquire(20, key(1), 1);
    let nothing = world.claim(30, 2).expect_err("all taken");
    assert_eq!(nothing, ClaimError::NoneAvailable { earliest_deadline: Some(at(110)) });
    world.renew(30, &left.lease).expect("live");
    let nothing = world.claim(31, 2).expect_err("all taken");
    assert_eq!(nothing, ClaimError::NoneAvailable { earliest_deadline: Some(at(120)) });
}

/// At the deadline, not before.
pub fn a_shard_whose_lease_ran_out_is_claimed_again<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let left = world.acquire(10, key(0), 1);
    world.acquire(50, key(1), 1);
    refused!(world.claim(109, 2), ClaimError::NoneAvailable { .. });
    let claimed = world.claim(110, 2).expect("run out");
    assert_eq!((claimed.key(), claimed.fence()), (key(0), left.fence() + 1));
}

/// At once.
pub fn a_released_shard_is_claimed_again<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let left = world.acquire(10, key(0), 1);
    world.acquire(10, key(1), 1);
    world.release(11, &left.lease, ReleaseMode::Clean, 1).expect("live");
    assert_eq!(world.claim(11, 2).expect("free").key(), key(0));
}

/// Derived shards are work like any other.
pub fn children_are_claimed_too<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let left = world.acquire(10, key(0), 1);
    world.acquire(10, key(1), 1);
    let plan = super::world::residual_at(b"a", b"f", b"m");
    let residual = world.shrink(11, &left.lease, &plan, 1).expect("live").into_inner();
    assert_eq!(world.claim(12, 2).expect("free").lease.shard(), residual);
    let plan = super::world::replace_at(&[b"a", b"c", b"f"]);
    let children = world.replace(13, &left.lease, &plan, 2).expect("live").into_inner();
    let claimed: BTreeSet<_> =
        (3..=4).map(|by| world.claim(14, by).expect("free").lease.shard()).collect();
    assert_eq!(claimed, children.into_iter().collect());
}

/// Done and parked shards are never claimed.
pub fn finished_shards_are_not_claimed<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    let held = world.acquire(10, key(1), 1);
    world.park(11, &held.lease, 2).expect("live");
    let nothing = world.claim(900, 2).expect_err("all settled");
    assert_eq!(nothing, ClaimError::NoneAvailable { earliest_deadline: None });
}

/// The cooldown starts at the last successful claim and is exact to the tick.
pub fn a_worker_waits_between_claims<T: ConformanceTarget>(target: &T) {
    let mut world = with_cooldown(target, 20);
    world.claim(10, 1).expect("free");
    for now in [10, 29] {
        let early = world.claim(now, 1).expect_err("too early");
        assert_eq!(early, ClaimError::Throttled { retry_after: at(30) });
    }
    world.claim(30, 1).expect("free again");
}

/// A claim that finds nothing starts no cooldown.
pub fn a_failed_claim_is_not_waited_for<T: ConformanceTarget>(target: &T) {
    let mut world = with_cooldown(target, 20);
    let left = world.acquire(10, key(0), 8);
    world.acquire(10, key(1), 8);
    refused!(world.claim(11, 1), ClaimError::NoneAvailable { .. });
    world.release(12, &left.lease, ReleaseMode::Clean, 1).expect("live");
    world.claim(12, 1).expect("no cooldown");
}

/// A cooldown applies to one worker.
pub fn workers_wait_for_themselves_only<T: ConformanceTarget>(target: &T) {
    let mut world = with_cooldown(target, 20);
    world.claim(10, 1).expect("free");
    world.claim(11, 2).expect("another worker");
    refused!(world.claim(12, 1), ClaimError::Throttled { retry_after } if retry_after == at(30));
    refused!(world.claim(12, 2), ClaimError::Throttled { retry_after } if retry_after == at(31));
}

/// The handles of a process share the cooldown of a worker.
pub fn handles_of_a_process_count_claims_together<T: ConformanceTarget>(target: &T) {
    let mut world = with_cooldown(target, 20);
    let Some(mut sibling) = sibling(target, &world) else { return };
    let (tenant, mut scratch) = (world.tenant, AcquireScratch::new());
    let mut claim = |now| {
        let claimed = sibling.claim_next_available(at(now), tenant, RUN, worker(1), &mut scratch);
        claimed.map(|_| ())
    };
    world.claim(10, 1).expect("free");
    assert_eq!(claim(29), Err(ClaimError::Throttled { retry_after: at(30) }));
    claim(30).expect("free again");
    refused!(world.claim(49, 1), ClaimError::Throttled { retry_after } if retry_after == at(50));
    refused!(world.claim(50, 1), ClaimError::NoneAvailable { .. });
}

/// While a claim is in flight, no other handle of the process claims for the worker; when it fails,
/// another one may.
pub fn an_in_flight_claim_counts_until_it_fails<T: ConformanceTarget>(target: &T) {
    let mut world = with_cooldown(target, 20);
    let Some(mut sibling) = sibling(target, &world) else { return };
    let (tenant, mut scratch) = (world.tenant, AcquireScratch::new());
    let mut claim = |now, by| {
        let claimed = sibling.claim_next_available(at(now), tenant, RUN, worker(by), &mut scratch);
        claimed.map(|_| ())
    };
    let in_flight = world.backend.reserve_claim(at(10), tenant, worker(1)).expect("no cooldown");
    assert_eq!(claim(11, 1), Err(ClaimError::Throttled { retry_after: at(30) }));
    claim(11, 2).expect("another worker");
    drop(in_flight);
    claim(11, 1).expect("the failed claim started no cooldown");
    refused!(world.claim(30, 1), ClaimError::Throttled { retry_after } if retry_after == at(31));
}

/// A cooldown of zero disables it.
pub fn without_a_cooldown_no_claim_waits<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.claim(10, 1).expect("free");
    world.claim(10, 1).expect("free");
}

/// The cooldown is checked first because it is the cheapest check.
pub fn a_cooldown_speaks_before_the_run<T: ConformanceTarget>(target: &T) {
    let mut world = with_cooldown(target, 20);
    world.claim(10, 1).expect("free");
    world.backend.cancel_run(at(11), world.tenant, RUN, op(2)).expect("active");
    refused!(world.claim(12, 1), ClaimError::Throttled { .. });
    let over = world.claim(30, 1).expect_err("over");
    assert_eq!(over, ClaimError::RunTerminal { status: RunStatus::Cancelled });
}

/// Sixteen concurrent workers do not all try the same shard first.
pub fn workers_spread_out<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    many_shards(&mut world, 16);
    let mut firsts = BTreeSet::new();
    for by in 0..16 {
        let mut found = ClaimCandidates::new();
        let (tenant, by) = (world.tenant, worker(by));
        let look =
            world.backend.collect_claim_candidates_into(at(10), tenant, RUN, by, 1, &mut found);
        look.expect("the run exists");
        firsts.extend(found.first().copied());
    }
    assert!(firsts.len() >= 4, "only {} different first choices", firsts.len());
}

/// Holds for every limit.
pub fn candidates_are_free_limited_and_never_twice<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    many_shards(&mut world, 16);
    world.acquire(10, key(3), 1);
    world.acquire(20, key(4), 1);
    // At 110 the lease of shard 3 has expired and that of shard 4 has not.
    for limit in [1, 5, CLAIM_CANDIDATES_MAX] {
        let mut found = ClaimCandidates::new();
        let (tenant, by) = (world.tenant, worker(7));
        let look = world
            .backend
            .collect_claim_candidates_into(at(110), tenant, RUN, by, limit, &mut found)
            .expect("the run exists");
        let distinct: BTreeSet<ShardId> = found.iter().copied().collect();
        assert_eq!((distinct.len(), found.len()), (limit.min(15), limit.min(15)));
        assert!(!distinct.contains(&shard(4)), "it is taken");
        assert_eq!(look.earliest_deadline, Some(at(120)));
        assert_eq!(look.run.status, RunStatus::Active);
    }
}

/// Counts free and expired shards up to a cap, and reports the earliest live deadline.
pub fn the_capacity_hint_counts_free_shards<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    many_shards(&mut world, 5);
    let first = world.acquire(10, key(0), 1);
    assert_eq!(first.capacity.available_count, 4);
    assert_eq!(first.capacity.earliest_deadline, Some(at(110)));
    let second = world.acquire(20, key(1), 1);
    assert_eq!(second.capacity.available_count, 3);
    let renewed = world.renew(115, &second.lease).expect("live").capacity;
    assert_eq!(renewed.available_count, 4, "the first lease ran out");
    assert_eq!(renewed.earliest_deadline, Some(at(215)));

    let mut world = World::empty(target, Settings::default());
    many_shards(&mut world, CAPACITY_COUNT_MAX as u64 + 20);
    let held = world.acquire(10, key(0), 1);
    assert_eq!(held.capacity.available_count as usize, CAPACITY_COUNT_MAX, "it saturates");
}

/// As many concurrent claims as shards, from several handles: each shard is granted once.
pub fn racing_workers_share_the_shards_and_never_one_shard<T: ConformanceTarget>(target: &T) {
    const RACERS: usize = 4;
    const SHARDS: usize = 16;
    let mut world = World::empty(target, Settings::default());
    many_shards(&mut world, SHARDS as u64);
    let Some(handles) = another_handles(target, &world, RACERS) else { return };
    let claimed = Mutex::new(Vec::new());
    let tenant = world.tenant;
    let jobs = handles.into_iter().zip(1..).map(|(mut handle, by)| {
        let claimed = &claimed;
        Box::new(move || {
            let mut scratch = Box::new(AcquireScratch::new());
            while let Ok(found) =
                handle.claim_next_available(at(10), tenant, RUN, worker(by), &mut scratch)
            {
                claimed
                    .lock()
                    .expect("no thread panics while it holds the lock")
                    .push(found.lease.shard());
            }
        }) as RaceJob<'_>
    });
    target.race(jobs.collect());
    let claimed = claimed.into_inner().expect("no thread panics while it holds the lock");
    let distinct: BTreeSet<ShardId> = claimed.iter().copied().collect();
    assert_eq!(distinct.len(), claimed.len(), "no shard has two owners");
    assert_eq!(world.progress(11).leased as usize, claimed.len());
    while world.claim(12, 99).is_ok() {}
    assert_eq!(world.progress(12).leased as usize, SHARDS, "and none is lost");
}

/// Returns `count` more handles on the world's store, if the target supports several.
pub(super) fn another_handles<T: ConformanceTarget>(
    target: &T,
    world: &World<'_, T>,
    count: usize,
) -> Option<Vec<T::Backend>> {
    let handles: Option<Vec<_>> =
        (0..count).map(|_| target.another_handle(&world.backend)).collect();
    note_ability(target, Ability::Handles, handles.is_some());
    handles
}

/// Returns another handle of the world's process, if the target supports several.
fn sibling<T: ConformanceTarget>(target: &T, world: &World<'_, T>) -> Option<T::Backend> {
    let sibling = target.sibling_handle(&world.backend);
    note_ability(target, Ability::Siblings, sibling.is_some());
    sibling
}

/// A run with `count` shards.
fn many_shards<T: ConformanceTarget>(world: &mut World<'_, T>, count: u64) {
    let bounds: Vec<[u8; 8]> = (0..=count).map(|n| (n + 1).to_be_bytes()).collect();
    let roots: Vec<_> =
        bounds.windows(2).zip(0..).map(|(pair, id)| root(id, &pair[0], &pair[1])).collect();
    world.make_run(config(None), &roots, 1).expect("a valid manifest");
}

fn with_cooldown<T: ConformanceTarget>(target: &T, interval: u64) -> World<'_, T> {
    let settings = Settings { claim_cooldown_interval: interval, ..Settings::default() };
    let mut world = World::empty(target, settings);
    world.make_run(config(None), &ROOTS, 1).expect("a valid manifest");
    world
}
