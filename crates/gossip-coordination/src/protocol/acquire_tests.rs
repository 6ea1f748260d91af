//! Evidence of a live owner only delays a takeover (DESIGN Q7).

use rstest::rstest;

use super::{
    Acquire, Decision, OwnerEvidence, ReplyPath, ShardChange, ShardInputs, ShardTransition,
};
use crate::error::AcquireError;
use crate::lease::GrantToken;
use crate::shard_limits::ShardQuota;
use crate::test_fixtures::{LEASE, RUN, TENANT, acquire, at, key, run_config, two_shards, worker};
use crate::{RunManagement, RunStatus};

const SKEW: u64 = 20;
/// Worker 1 holds the shard until then.
const DEADLINE: u64 = 10 + LEASE;

fn alive(owner: u64) -> OwnerEvidence {
    OwnerEvidence::Alive { owner: worker(owner), max_clock_skew: SKEW }
}

/// Worker 2 acquires at `now`; `Err` holds the time until which it must wait.
fn ask(now: u64, owner: OwnerEvidence) -> Result<(), u64> {
    let mut coordinator = two_shards();
    acquire(&mut coordinator, 10, 0, 1);
    let run = coordinator.get_run(TENANT, RUN).unwrap().head();
    assert_eq!((run.status, run.config), (RunStatus::Active, run_config()));
    let seen = ShardInputs {
        shard: coordinator.shard(TENANT, key(0)),
        run: Some(run),
        quota: ShardQuota::UNLIMITED,
        owner,
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
    assert_eq!(ask(now, owner), expected);
}

#[test]
fn owner_evidence_debug_hides_the_worker() {
    let owner = OwnerEvidence::Alive { owner: worker(4_242_424_242), max_clock_skew: SKEW };
    let shown = format!("{owner:?} {:?}", OwnerEvidence::Gone);
    assert!(shown.contains("Alive") && shown.contains("Gone"), "{shown}");
    assert!(!shown.contains("4242424242"), "{shown}");
}
