use gossip_contracts::identity::FenceEpoch;
use rstest::rstest;

use super::{FENCE_FLOOR_MAX, FENCE_FLOOR_STEP, Remains, RepairShard, fence_floor_at};
use crate::record::ShardStatus;
use crate::run::{RunHead, RunStatus, ShardDamage};
use crate::run_errors::RepairShardError;
use crate::test_fixtures::{TENANT, key, run_config};

const AT: FenceEpoch = fence_floor_at(1_700_000_000);

fn remains(status: RunStatus) -> Remains {
    let fence_floor = FenceEpoch::ZERO;
    let run = RunHead { status, paused: false, config: run_config(), fence_floor };
    Remains {
        run: Some(run),
        damage: Some(ShardDamage::Hot),
        status: None,
        is_covered: false,
        fence: FenceEpoch::from_raw(7),
    }
}

fn repair() -> RepairShard {
    RepairShard { tenant: TENANT, key: key(1), at_least: AT }
}

fn raw(fence: u64) -> FenceEpoch {
    FenceEpoch::from_raw(fence)
}

#[test]
fn healthy_shard_is_refused_also_in_a_finished_run() {
    for status in [RunStatus::Active, RunStatus::Done] {
        let healthy = Remains { damage: None, ..remains(status) };
        assert_eq!(repair().decide(&healthy), Err(RepairShardError::NotDamaged));
    }
}

#[test]
fn shard_of_a_missing_or_unfinished_run_is_not_found() {
    let missing = Remains { run: None, ..remains(RunStatus::Active) };
    for remains in [missing, remains(RunStatus::Initializing)] {
        assert_eq!(repair().decide(&remains), Err(RepairShardError::ShardNotFound));
    }
}

#[rstest]
#[case(RunStatus::Done)]
#[case(RunStatus::Failed)]
#[case(RunStatus::Cancelled)]
fn terminal_run_gets_no_work(#[case] status: RunStatus) {
    let refused = repair().decide(&remains(status));
    assert_eq!(refused, Err(RepairShardError::RunTerminal { status }));
}

#[rstest]
#[case::the_time_decides(7, 0, AT)]
#[case::a_known_fence_above_the_time(AT.as_raw() + 5, 0, raw(AT.as_raw() + 5 + FENCE_FLOOR_STEP))]
#[case::the_floor_of_the_run(7, AT.as_raw() + 9, raw(AT.as_raw() + 9 + FENCE_FLOOR_STEP))]
#[case::almost_at_the_maximum(FENCE_FLOOR_MAX.as_raw() - 1, 0, FENCE_FLOOR_MAX)]
#[case::at_the_maximum(FENCE_FLOOR_MAX.as_raw(), 0, raw(FENCE_FLOOR_MAX.as_raw() + 1))]
fn fence_rises_above_every_known_one(
    #[case] known: u64,
    #[case] floor: u64,
    #[case] expected: FenceEpoch,
) {
    let mut remains = Remains { fence: raw(known), ..remains(RunStatus::Active) };
    remains.run.as_mut().unwrap().fence_floor = raw(floor);
    assert_eq!(repair().decide(&remains).unwrap().fence, expected);
}

#[rstest]
#[case::from_the_start(None, false, ShardStatus::Active)]
#[case::replaced_by_others(None, true, ShardStatus::Split)]
#[case::kept(Some(ShardStatus::Done), false, ShardStatus::Done)]
#[case::parked(Some(ShardStatus::Parked), false, ShardStatus::Parked)]
fn status_is_kept_or_follows_from_the_coverage(
    #[case] status: Option<ShardStatus>,
    #[case] is_covered: bool,
    #[case] expected: ShardStatus,
) {
    let remains = Remains { status, is_covered, ..remains(RunStatus::Active) };
    assert_eq!(repair().decide(&remains).unwrap().status, expected);
}
