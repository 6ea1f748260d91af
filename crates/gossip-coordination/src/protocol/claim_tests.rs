//! Claims: when to scan, what to try, which refusals end it, and where workers start.

use gossip_contracts::identity::{FenceEpoch, Redacted, ShardId, TenantId};
use proptest::prelude::*;

use super::{
    CLAIM_CANDIDATES_MAX, Claim, ClaimCooldown, ClaimStep, ClaimTimes, Reservation, claim_offset,
};
use crate::error_samples_tests::acquire_errors;
use crate::run::{RunHead, RunStatus};
use crate::test_fixtures::{RUN, TENANT, at, key, op, run_config, two_shards, worker};
use crate::{
    AcquireError, AcquireScratch, ClaimError, ClaimOutlook, ClaimReservation,
    CoordinatorRuntimeConfig, InMemoryCoordinator, InfraError, RunManagement, ShardClaiming,
};

fn outlook(status: RunStatus, paused: bool) -> Option<ClaimOutlook> {
    let run = RunHead { status, paused, config: run_config(), fence_floor: FenceEpoch::ZERO };
    Some(ClaimOutlook { run, earliest_deadline: Some(at(50)) })
}

/// Answers the next scan with `found` and the state of the run.
fn scan(claim: &mut Claim, ids: &[u64], seen: Option<ClaimOutlook>) {
    let ClaimStep::Scan { found, .. } = claim.step() else { panic!("a scan is due") };
    found.extend(ids.iter().copied().map(ShardId::from_raw));
    claim.outlook = seen;
}

fn next(claim: &mut Claim) -> Result<u64, ClaimError> {
    match claim.step() {
        ClaimStep::Try(shard) => Ok(shard.as_raw()),
        ClaimStep::End(error) => Err(error),
        ClaimStep::Scan { .. } => panic!("no scan is due"),
    }
}

fn lost_race() -> AcquireError {
    let current_owner = Redacted::new(worker(2));
    AcquireError::AlreadyLeased { current_owner, lease_deadline: at(50) }
}

#[test]
fn claim_tries_each_candidate_once_and_then_scans_again() {
    let mut claim = Claim::new(2, at(5));
    scan(&mut claim, &[4, 5], outlook(RunStatus::Active, false));
    assert_eq!(next(&mut claim), Ok(4));
    claim.refused(lost_race()).unwrap();
    assert_eq!(next(&mut claim), Ok(5));
    claim.refused(lost_race()).unwrap();
    scan(&mut claim, &[6], outlook(RunStatus::Active, false));
    assert_eq!(next(&mut claim), Ok(6));
}

#[test]
fn scan_without_candidates_ends_the_claim_with_a_deadline() {
    let mut claim = Claim::new(2, at(5));
    scan(&mut claim, &[], outlook(RunStatus::Active, false));
    let none = ClaimError::NoneAvailable { earliest_deadline: Some(at(50)) };
    assert_eq!(next(&mut claim), Err(none));
}

fn damaged() -> AcquireError {
    let (operation, message) = ("hot shard.decode", "the checksum differs".to_owned());
    AcquireError::BackendError(InfraError::Corruption { operation, message })
}

#[test]
fn damaged_candidate_is_skipped_and_reported() {
    let mut claim = Claim::new(2, at(5));
    scan(&mut claim, &[4, 5], outlook(RunStatus::Active, false));
    assert_eq!(next(&mut claim), Ok(4));
    claim.refused(damaged()).unwrap();
    assert_eq!(next(&mut claim), Ok(5));
    assert_eq!(claim.damaged.as_slice(), [ShardId::from_raw(4)]);
}

#[test]
fn claim_that_finds_only_damaged_shards_waits_for_the_next_deadline() {
    let mut claim = Claim::new(2, at(5));
    scan(&mut claim, &[4], outlook(RunStatus::Active, false));
    assert_eq!(next(&mut claim), Ok(4));
    claim.refused(damaged()).unwrap();
    scan(&mut claim, &[4], outlook(RunStatus::Active, false));
    let none = ClaimError::NoneAvailable { earliest_deadline: Some(at(50)) };
    assert_eq!(next(&mut claim), Err(none));
}

#[test]
fn damage_after_a_lost_reply_ends_the_claim() {
    let mut claim = Claim::new(2, at(5));
    scan(&mut claim, &[4, 5], outlook(RunStatus::Active, false));
    assert_eq!(next(&mut claim), Ok(4));
    let AcquireError::BackendError(cause) = damaged() else { panic!("an error of the store") };
    let error = cause.into_unresolved();
    let ended = claim.refused(AcquireError::BackendError(error.clone()));
    assert_eq!(ended, Err(ClaimError::BackendError(error)));
}

#[test]
fn damaged_run_head_ends_the_claim() {
    let mut claim = Claim::new(2, at(5));
    scan(&mut claim, &[4, 5], outlook(RunStatus::Active, false));
    assert_eq!(next(&mut claim), Ok(4));
    let (operation, message) = ("run head.decode", "the checksum differs".to_owned());
    let error = InfraError::Corruption { operation, message };
    let ended = claim.refused(AcquireError::BackendError(error.clone()));
    assert_eq!(ended, Err(ClaimError::BackendError(error)));
}

#[test]
fn claim_ends_after_the_maximum_of_lost_races() {
    let mut claim = Claim::new(5, at(5));
    let mut tried = 0;
    loop {
        match claim.step() {
            ClaimStep::Scan { limit, found, .. } => {
                assert!((1..=5).contains(&limit));
                found.extend((0..limit as u64).map(|id| ShardId::from_raw(tried as u64 + id)));
                claim.outlook = outlook(RunStatus::Active, false);
            }
            ClaimStep::Try(_) => {
                tried += 1;
                assert!(tried <= CLAIM_CANDIDATES_MAX, "it should have given up");
                claim.refused(lost_race()).unwrap();
            }
            ClaimStep::End(error) => {
                // Candidates are left, so it is worth coming back at once.
                let at_once = ClaimError::NoneAvailable { earliest_deadline: Some(at(5)) };
                assert_eq!(error, at_once);
                break;
            }
        }
    }
    assert_eq!(tried, CLAIM_CANDIDATES_MAX);
}

/// A shard that was lost to another worker and became free again justifies an immediate retry; an
/// honoured lease does not.
#[test]
fn tried_shard_is_not_tried_again() {
    let lease = run_config().lease_duration();
    for (until, back) in [(at(5 + lease), at(5)), (at(7), at(7))] {
        let mut claim = Claim::new(2, at(5));
        scan(&mut claim, &[4], outlook(RunStatus::Active, false));
        assert_eq!(next(&mut claim), Ok(4));
        let current_owner = Redacted::new(worker(2));
        claim
            .refused(AcquireError::AlreadyLeased { current_owner, lease_deadline: until })
            .unwrap();
        scan(&mut claim, &[4], outlook(RunStatus::Active, false));
        let none = ClaimError::NoneAvailable { earliest_deadline: Some(back) };
        assert_eq!(next(&mut claim), Err(none));
    }
}

#[test]
fn terminal_or_paused_run_ends_the_claim() {
    for ids in [&[][..], &[4][..]] {
        for status in [RunStatus::Done, RunStatus::Failed, RunStatus::Cancelled] {
            let mut claim = Claim::new(2, at(5));
            scan(&mut claim, ids, outlook(status, true));
            assert_eq!(next(&mut claim), Err(ClaimError::RunTerminal { status }));
        }
        let mut claim = Claim::new(2, at(5));
        scan(&mut claim, ids, outlook(RunStatus::Active, true));
        assert_eq!(next(&mut claim), Err(ClaimError::RunPaused));
    }
}

/// FACTS 4.6: three refusals mean "try the next", the others end the claim by the same name.
#[test]
fn each_refusal_continues_or_ends_the_claim() {
    for (name, refusal) in acquire_errors() {
        let mut claim = Claim::new(2, at(5));
        let ends = claim.refused(refusal).err().map(|error| format!("{error:?}"));
        match name {
            "AlreadyLeased" | "ShardTerminal" | "ShardNotFound" | "LastAttempt" => {
                assert_eq!(ends, None);
            }
            _ => assert!(ends.is_some_and(|error| error.starts_with(name)), "{name}"),
        }
    }
}

#[test]
fn a_cooldown_ends_when_its_interval_is_over() {
    let cooldown = ClaimCooldown::new(10);
    assert!(!cooldown.is_disabled());
    assert_eq!(cooldown.retry_after(at(5), at(5)), Some(at(15)));
    assert_eq!(cooldown.retry_after(at(5), at(14)), Some(at(15)));
    assert_eq!(cooldown.retry_after(at(5), at(15)), None);
    let none = ClaimCooldown::new(0);
    assert!(none.is_disabled());
    assert_eq!(none.retry_after(at(5), at(5)), None);
    let latest = at(u64::MAX);
    assert_eq!(cooldown.retry_after(latest, at(9)), Some(latest), "no overflow");
}

#[test]
fn an_in_flight_claim_counts_until_it_fails() {
    let cooldown = ClaimCooldown::new(10);
    let claim = |number, now| Reservation { number, at: at(now) };
    let mut times = ClaimTimes::default();
    times.reserve(cooldown, claim(0, 5)).unwrap();
    assert_eq!(times.reserve(cooldown, claim(1, 14)), Err(at(15)));
    times.settle(claim(0, 5), false);
    assert_eq!(times, ClaimTimes::default());
    times.reserve(cooldown, claim(2, 5)).unwrap();
    times.settle(claim(2, 5), true);
    assert_eq!(times.reserve(cooldown, claim(3, 14)), Err(at(15)));
}

/// The first claim takes longer than an interval, so a second one is allowed meanwhile.
#[test]
fn a_slow_claim_that_ends_late_leaves_the_later_one_as_it_is() {
    let cooldown = ClaimCooldown::new(10);
    let (slow, later) =
        (Reservation { number: 0, at: at(5) }, Reservation { number: 1, at: at(15) });
    for is_claimed in [false, true] {
        let mut times = ClaimTimes::default();
        times.reserve(cooldown, slow).unwrap();
        times.reserve(cooldown, later).unwrap();
        times.settle(slow, is_claimed);
        assert_eq!(times.retry_after(cooldown, at(16)), Some(at(25)), "the later one is in flight");
        times.settle(later, true);
        assert_eq!(times.retry_after(cooldown, at(16)), Some(at(25)));
        let mut times = ClaimTimes::default();
        times.reserve(cooldown, slow).unwrap();
        times.reserve(cooldown, later).unwrap();
        times.settle(later, true);
        times.settle(slow, is_claimed);
        assert_eq!(times.retry_after(cooldown, at(16)), Some(at(25)), "not the earlier one");
    }
}

#[test]
fn only_a_successful_claim_starts_the_cooldown_of_its_worker() {
    let mut backend = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        claim_cooldown_interval: 10,
        slab_capacity: 1 << 16,
        ..CoordinatorRuntimeConfig::default()
    });
    let missing = RUN;
    let mut scratch = AcquireScratch::new();
    let none = backend.claim_next_available(at(5), TENANT, missing, worker(1), &mut scratch);
    assert_eq!(none.map(|_| ()), Err(ClaimError::RunNotFound));
    backend.reserve_claim(at(5), TENANT, worker(1)).unwrap().claimed();
    let early = backend.claim_next_available(at(14), TENANT, missing, worker(1), &mut scratch);
    assert_eq!(early.map(|_| ()), Err(ClaimError::Throttled { retry_after: at(15) }));
    assert!(backend.reserve_claim(at(15), TENANT, worker(1)).is_ok());
    assert!(backend.reserve_claim(at(6), TENANT, worker(2)).is_ok());
}

#[test]
fn cleaning_up_keeps_every_cooldown_that_is_not_over() {
    let mut backend = InMemoryCoordinator::new(CoordinatorRuntimeConfig {
        claim_cooldown_interval: 10,
        slab_capacity: 1 << 16,
        ..CoordinatorRuntimeConfig::default()
    });
    let mut claim = |now, tenant, number| {
        backend.reserve_claim(at(now), tenant, worker(number)).map(ClaimReservation::claimed)
    };
    claim(5, TENANT, 0).unwrap();
    claim(u64::MAX, TenantId::from_bytes([9; 32]), 0).unwrap();
    (1..9).for_each(|number| claim(6, TENANT, number).unwrap());
    for number in 0..9 {
        let retry_after = at(if number == 0 { 15 } else { 16 });
        assert_eq!(claim(7, TENANT, number), Err(ClaimError::Throttled { retry_after }));
    }
}

#[test]
fn a_claim_of_a_paused_or_finished_run_says_so() {
    let mut backend = two_shards();
    let mut scratch = AcquireScratch::new();
    backend.pause_run(at(2), TENANT, RUN, op(1)).unwrap();
    let paused = backend.claim_next_available(at(5), TENANT, RUN, worker(1), &mut scratch);
    assert_eq!(paused.map(|_| ()), Err(ClaimError::RunPaused));
    backend.cancel_run(at(3), TENANT, RUN, op(2)).unwrap();
    let over = backend.claim_next_available(at(5), TENANT, RUN, worker(1), &mut scratch);
    let status = RunStatus::Cancelled;
    assert_eq!(over.map(|_| ()), Err(ClaimError::RunTerminal { status }));
    assert!(backend.shard(TENANT, key(0)).unwrap().record().lease().is_none());
}

/// Sixteen workers with consecutive ids among sixty-four shards: most start alone.
#[test]
fn workers_with_consecutive_ids_spread_out() {
    let mut starts: Vec<_> = (1..=16).map(|id| claim_offset(worker(id), 64)).collect();
    starts.sort_unstable();
    starts.dedup();
    assert!(starts.len() >= 12, "{starts:?}");
}

proptest! {
    #[test]
    fn a_worker_starts_within_the_candidates(id: u64, count in 1_usize..100_000) {
        prop_assert!(claim_offset(worker(id), count) < count);
        prop_assert_eq!(claim_offset(worker(id), count), claim_offset(worker(id), count));
    }
}
