//! Evidence of a live owner only delays a takeover, and a void deadline permits one (DESIGN Q7).

use rstest::rstest;

use super::{
    Acquire, Decision, LeaseWatch, OwnerEvidence, ReplyPath, ShardChange, ShardInputs,
    ShardTransition,
};
use crate::error::AcquireError;
use crate::lease::GrantToken;
use crate::shard_limits::ShardQuota;
use crate::test_fixtures::{LEASE, RUN, TENANT, acquire, at, key, run_config, two_shards, worker};
use crate::{RunManagement, RunStatus};

const SKEW: u64 = 20;
/// When worker 1 acquires the shard, on its clock: hours ahead of those of other workers.
const GRANTED_AT: u64 = 1_000_000;
/// Worker 1 holds the shard until then.
const DEADLINE: u64 = GRANTED_AT + LEASE;
/// The latest time at which the deadline lies too far ahead.
const FAR: u64 = DEADLINE - LEASE - SKEW - 1;
/// How long a record must stay at one revision.
const WINDOW: u64 = LEASE + SKEW;

fn alive(owner: u64) -> OwnerEvidence {
    OwnerEvidence::Alive { owner: worker(owner), max_clock_skew: SKEW }
}

/// Worker 2 acquires at `now`; `Err` holds the time until which it must wait.
fn ask(now: u64, owner: OwnerEvidence, watch: LeaseWatch) -> Result<(), u64> {
    let mut coordinator = two_shards();
    acquire(&mut coordinator, GRANTED_AT, 0, 1);
    let run = coordinator.get_run(TENANT, RUN).unwrap().head();
    assert_eq!((run.status, run.config), (RunStatus::Active, run_config()));
    let seen = ShardInputs {
        shard: coordinator.shard(TENANT, key(0)),
        run: Some(run),
        quota: ShardQuota::UNLIMITED,
        owner,
        watch,
        split_hash_of: &|_| None,
    };
    let token = GrantToken::from_raw(9);
    let acquire = Acquire {
        tenant: TENANT,
        key: key(0),
        worker: worker(2),
        token,
        reply: ReplyPath::CanBeLost,
        spares_last_attempt: false,
    };
    match acquire.decide(at(now), &seen) {
        Ok(Decision::Commit { change: ShardChange::Grant { .. }, answer: Ok(_) }) => Ok(()),
        Err(AcquireError::AlreadyLeased { lease_deadline, .. }) => Err(lease_deadline.as_raw()),
        other => panic!("an acquire is granted or must wait: {other:?}"),
    }
}

#[rstest]
#[case::nothing_speaks_for_the_owner(DEADLINE, OwnerEvidence::Gone, Ok(()))]
#[case::an_early_revoke_steals_no_live_lease(DEADLINE - 1, OwnerEvidence::Gone, Err(DEADLINE))]
#[case::a_living_owner_gets_the_skew(DEADLINE, alive(1), Err(DEADLINE + SKEW))]
#[case::until_its_last_tick(DEADLINE + SKEW - 1, alive(1), Err(DEADLINE + SKEW))]
#[case::and_no_longer(DEADLINE + SKEW, alive(1), Ok(()))]
#[case::the_callers_own_key_does_not_hold_it_up(DEADLINE, alive(2), Ok(()))]
#[case::nor_does_it_let_it_in(DEADLINE - 1, alive(2), Err(DEADLINE))]
fn owner_evidence_only_delays_a_takeover(
    #[case] now: u64,
    #[case] owner: OwnerEvidence,
    #[case] expected: Result<(), u64>,
) {
    assert_eq!(ask(now, owner, LeaseWatch::NONE), expected);
}

#[rstest]
#[case::far_and_unchanged(FAR, WINDOW, OwnerEvidence::Gone, Ok(()))]
#[case::unchanged_for_too_short(FAR, WINDOW - 1, OwnerEvidence::Gone, Err(DEADLINE))]
#[case::never_watched(FAR, 0, OwnerEvidence::Gone, Err(DEADLINE))]
#[case::not_far_enough(FAR + 1, u64::MAX, OwnerEvidence::Gone, Err(DEADLINE))]
#[case::live_and_unchanged(DEADLINE - 1, u64::MAX, OwnerEvidence::Gone, Err(DEADLINE))]
#[case::expired_and_unwatched(DEADLINE, 0, OwnerEvidence::Gone, Ok(()))]
#[case::void_although_the_owner_lives(FAR, WINDOW, alive(1), Ok(()))]
#[case::a_living_owner_alone(FAR, WINDOW - 1, alive(1), Err(DEADLINE + SKEW))]
#[case::no_time_passes_on_a_stopped_clock(1, u64::MAX, OwnerEvidence::Gone, Ok(()))]
fn deadline_is_void_if_it_is_too_far_and_the_record_unchanged(
    #[case] now: u64,
    #[case] unchanged_for: u64,
    #[case] owner: OwnerEvidence,
    #[case] expected: Result<(), u64>,
) {
    assert_eq!(ask(now, owner, LeaseWatch { unchanged_for, max_clock_skew: SKEW }), expected);
}

#[test]
fn deadline_at_the_end_of_time_is_void_only_when_it_is_too_far() {
    let watch = LeaseWatch { unchanged_for: u64::MAX, max_clock_skew: u64::MAX };
    assert!(!watch.voids(at(1), at(u64::MAX), LEASE), "no deadline exceeds the sum");
    let watch = LeaseWatch { unchanged_for: u64::MAX, max_clock_skew: 0 };
    assert!(watch.voids(at(1), at(u64::MAX), LEASE));
    assert!(!LeaseWatch::NONE.voids(at(1), at(u64::MAX), LEASE));
}

#[test]
fn owner_evidence_debug_hides_the_worker() {
    let owner = OwnerEvidence::Alive { owner: worker(4_242_424_242), max_clock_skew: SKEW };
    let shown = format!("{owner:?} {:?}", OwnerEvidence::Gone);
    assert!(shown.contains("Alive") && shown.contains("Gone"), "{shown}");
    assert!(!shown.contains("4242424242"), "{shown}");
}
