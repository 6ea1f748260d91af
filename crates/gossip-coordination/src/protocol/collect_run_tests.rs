//! When a run counts as abandoned.

use gossip_contracts::identity::LogicalTime;
use rstest::rstest;

use super::{
    COLLECTION_CANCELS, CollectRun, Decision, NotCollected, RunChange, RunInputs, RunTransition,
    RunTransitionKind, RunTransitionRules, evolve_run,
};
use crate::run::{RunRecord, RunStatus};
use crate::shard_limits::ShardQuota;
use crate::test_fixtures::{RUN, TENANT, at, op, run_config};

const COLLECT: CollectRun = CollectRun { tenant: TENANT, run: RUN, stale_after: 100 };

/// A run made at 10.
fn made() -> RunRecord {
    RunRecord::new(TENANT, RUN, run_config(), at(10))
}

fn seen(run: Option<&RunRecord>, registered_at: LogicalTime) -> RunInputs<'_> {
    let quota = ShardQuota::UNLIMITED;
    RunInputs { run, tombstone: None, active: 0, parked: 0, registered_at, quota }
}

#[rstest]
#[case::since_it_was_made(0, 109, false)]
#[case::since_it_was_made_at_last(0, 110, true)]
#[case::since_its_last_chunk(60, 159, false)]
#[case::since_its_last_chunk_at_last(60, 160, true)]
fn staleness_counts_from_the_last_sign(
    #[case] registered_at: u64,
    #[case] now: u64,
    #[case] stale: bool,
) {
    let (run, registered_at) = (made(), LogicalTime::from_raw(registered_at));
    let decided = COLLECT.decide(at(now), &seen(Some(&run), registered_at));
    match decided {
        Ok(Decision::Commit { change: RunChange::End { status, entry }, .. }) => {
            assert!(stale);
            assert_eq!((status, entry.op_id()), (RunStatus::Cancelled, COLLECTION_CANCELS));
        }
        Err(error) => assert!(!stale && error == NotCollected::NotStale),
        other => panic!("{other:?}"),
    }
}

#[test]
fn interrupted_collection_is_resumed() {
    let mut run = made();
    let decided = COLLECT.decide(at(110), &seen(Some(&run), LogicalTime::ZERO));
    let Ok(Decision::Commit { change, .. }) = decided else { panic!("it is stale") };
    evolve_run(&mut run, &change);
    let again = COLLECT.decide(at(110), &seen(Some(&run), LogicalTime::ZERO));
    assert!(matches!(again, Ok(Decision::Replay(()))), "{again:?}");
}

#[test]
fn run_ended_or_activated_by_others_is_not_collected() {
    let mut run = made();
    let cancel =
        RunTransition { tenant: TENANT, run: RUN, kind: RunTransitionKind::Cancel, op_id: op(1) };
    let seen_now = seen(Some(&run), LogicalTime::ZERO);
    let Ok(Decision::Commit { change, .. }) = cancel.decide(at(20), &seen_now) else {
        panic!("it can be cancelled")
    };
    evolve_run(&mut run, &change);
    let decided = COLLECT.decide(at(900), &seen(Some(&run), LogicalTime::ZERO));
    assert_eq!(decided.err(), Some(NotCollected::NotStale));
    for status in [RunStatus::Active, RunStatus::Done, RunStatus::Failed] {
        run.status = status;
        assert!(!COLLECT.applies(at(900), &run, LogicalTime::ZERO), "{status:?}");
    }
    let missing = COLLECT.decide(at(900), &seen(None, LogicalTime::ZERO));
    assert_eq!(missing.err(), Some(NotCollected::NotStale));
}
