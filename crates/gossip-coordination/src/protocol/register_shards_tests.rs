//! A registration that a store has only begun (DESIGN Q16): no backend in memory can be in that
//! state, so the rules are asked directly.

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, MAX_INITIAL_SHARDS, MAX_KEY_SIZE, MAX_METADATA_SIZE,
    MAX_TOKEN_SIZE, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, ShardId};
use rstest::rstest;

use super::{Decision, RegisterShards, RunChange, RunInputs, RunTransitionRules};
use crate::run::{Registration, RunRecord, RunStatus};
use crate::run_errors::RegisterShardsError;
use crate::shard_limits::ShardQuota;
use crate::split_execution::hash_register_shards;
use crate::test_fixtures::{RUN, TENANT, at, op, run_config};

fn shard(end: &[u8]) -> [InitialShardInput<'_>; 1] {
    let spec = ShardSpecRef::new(b"a", end, b"");
    [InitialShardInput { shard_id: ShardId::from_raw(0), spec, cursor: CursorUpdate::initial() }]
}

/// A run whose registration by operation 1, of the shard `[a, m)`, has begun.
fn begun(status: RunStatus) -> RunRecord {
    let mut run = RunRecord::new(TENANT, RUN, run_config(), at(1));
    let payload_hash = hash_register_shards(&shard(b"m"));
    run.registration = Some(Registration { op_id: op(1), payload_hash });
    run.status = status;
    run
}

#[derive(Debug, PartialEq)]
enum Answer {
    GoesOn,
    Replayed,
    WrongStatus(RunStatus),
    Conflict,
}

#[rstest]
#[case::the_same_operation_goes_on(RunStatus::Initializing, 1, b"m", Answer::GoesOn)]
#[case::another_with_the_same_shards_too(RunStatus::Initializing, 2, b"m", Answer::GoesOn)]
#[case::the_same_with_other_shards_is_a_bug(RunStatus::Initializing, 1, b"z", Answer::Conflict)]
#[case::other_shards_come_too_late(
    RunStatus::Initializing,
    2,
    b"z",
    Answer::WrongStatus(RunStatus::Initializing)
)]
#[case::what_was_cancelled_half_way_never_happened(
    RunStatus::Cancelled,
    1,
    b"m",
    Answer::WrongStatus(RunStatus::Cancelled)
)]
fn an_interrupted_registration_continues_with_its_own_shards(
    #[case] status: RunStatus,
    #[case] operation: u64,
    #[case] end: &[u8],
    #[case] expected: Answer,
) {
    let (run, shards) = (begun(status), shard(end));
    let (quota, run) = (ShardQuota::UNLIMITED, Some(&run));
    let (registered_at, tombstone) = (LogicalTime::ZERO, None);
    let seen = RunInputs { run, tombstone, active: 0, parked: 0, registered_at, quota };
    let register =
        RegisterShards { tenant: TENANT, run: RUN, shards: &shards, op_id: op(operation) };
    let answer = match register.decide(at(5), &seen) {
        Ok(Decision::Commit { change: RunChange::Activate { .. }, .. }) => Answer::GoesOn,
        Ok(Decision::Replay(_)) => Answer::Replayed,
        Err(RegisterShardsError::WrongStatus { status }) => Answer::WrongStatus(status),
        Err(RegisterShardsError::OpIdConflict(_)) => Answer::Conflict,
        other => panic!("not an answer to a registration that has begun: {other:?}"),
    };
    assert_eq!(answer, expected);
}

/// Every size is allowed up to its limit: as many shards, as long bounds, metadata, key and token.
#[test]
fn a_manifest_at_every_limit_is_taken() {
    let bounds: Vec<Vec<u8>> = (0..=MAX_INITIAL_SHARDS as u32)
        .map(|id| [&id.to_be_bytes()[..], &[1; MAX_KEY_SIZE - 4]].concat())
        .collect();
    let (metadata, token) = ([7; MAX_METADATA_SIZE], [7; MAX_TOKEN_SIZE]);
    let mut shards: Vec<_> = bounds
        .windows(2)
        .enumerate()
        .map(|(id, pair)| InitialShardInput {
            shard_id: ShardId::from_raw(id as u64),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    shards[0].spec.metadata = &metadata;
    shards[0].cursor = CursorUpdate::try_new(&bounds[0], &token).unwrap();
    assert_eq!(shards.len(), MAX_INITIAL_SHARDS);

    let run = RunRecord::new(TENANT, RUN, run_config(), at(1));
    let (quota, run) = (ShardQuota::UNLIMITED, Some(&run));
    let (registered_at, tombstone) = (LogicalTime::ZERO, None);
    let seen = RunInputs { run, tombstone, active: 0, parked: 0, registered_at, quota };
    let register = RegisterShards { tenant: TENANT, run: RUN, shards: &shards, op_id: op(1) };
    let Ok(Decision::Commit { change: RunChange::Activate { roots, .. }, .. }) =
        register.decide(at(5), &seen)
    else {
        panic!("every size is within its limit");
    };
    assert_eq!(roots.count(), MAX_INITIAL_SHARDS);
}
