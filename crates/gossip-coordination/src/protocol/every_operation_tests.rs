//! Checks that every operation makes first, each on its own decision. The coordinators find records
//! by tenant, so that a record of another tenant reaches a decision only if one of them is wrong.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gossip_contracts::coordination::{CursorUpdate, InitialShardInput, ShardSpecRef};
use gossip_contracts::identity::{LogicalTime, ShardId, TenantId};
use rstest::rstest;

use super::{
    Accept, Acquire, CollectRun, CreateRun, DeleteRun, LeaseWatch, OwnerEvidence, RaiseFenceFloor,
    RegisterShards, ReplyPath, RequestAction, RevokeLease, RunInputs, RunTransition,
    RunTransitionKind, RunTransitionRules, ShardInputs, ShardTransition, Unpark,
};
use crate::RunManagement;
use crate::handoff::HandoffId;
use crate::lease::GrantToken;
use crate::request::ShardAction;
use crate::run::RunRecord;
use crate::shard_limits::ShardQuota;
use crate::test_fixtures::{
    RUN, TENANT, acquire, at, fence, key, op, run_config, two_shards, worker,
};

const OTHER: TenantId = TenantId::from_bytes([8; 32]);

/// Decides on a leased shard of [`TENANT`]; the refusal.
fn on_shard<T: ShardTransition<Error: Debug>>(now: LogicalTime, operation: &T) -> String {
    let mut coordinator = two_shards();
    acquire(&mut coordinator, 10, 0, 1);
    let run = coordinator.get_run(TENANT, RUN).unwrap().head();
    let seen = ShardInputs {
        shard: coordinator.shard(TENANT, key(0)),
        run: Some(run),
        quota: ShardQuota::UNLIMITED,
        owner: OwnerEvidence::Gone,
        watch: LeaseWatch::NONE,
        split_hash_of: &|_| None,
    };
    refusal(operation.decide(now, &seen).err())
}

/// Decides on a new run of [`TENANT`]; the refusal.
fn on_run<T: RunTransitionRules<Error: Debug>>(now: LogicalTime, operation: &T) -> String {
    let run = RunRecord::new(TENANT, RUN, run_config(), at(10));
    let seen = RunInputs {
        run: Some(&run),
        tombstone: None,
        active: 0,
        parked: 0,
        registered_at: LogicalTime::ZERO,
        quota: ShardQuota::UNLIMITED,
    };
    refusal(operation.decide(now, &seen).err())
}

fn refusal(error: Option<impl Debug>) -> String {
    error.map_or_else(|| "accepted".to_owned(), |error| format!("{error:?}"))
}

fn accept(now: LogicalTime, tenant: TenantId) -> String {
    let (handoff, token) = (HandoffId::from_raw(3), GrantToken::from_raw(9));
    on_shard(now, &Accept { tenant, key: key(0), worker: worker(2), handoff, token })
}

fn acquire_shard(now: LogicalTime, tenant: TenantId) -> String {
    let (token, reply) = (GrantToken::from_raw(9), ReplyPath::CanBeLost);
    let (key, worker) = (key(0), worker(2));
    on_shard(now, &Acquire { tenant, key, worker, token, reply, spares_last_attempt: false })
}

fn request_action(now: LogicalTime, tenant: TenantId) -> String {
    let (action, expires_at) = (ShardAction::Release, at(1_000));
    on_shard(now, &RequestAction { tenant, key: key(0), action, expires_at, op_id: op(7) })
}

fn revoke_lease(now: LogicalTime, tenant: TenantId) -> String {
    on_shard(now, &RevokeLease { tenant, key: key(0), expected_fence: None, op_id: op(7) })
}

fn unpark(now: LogicalTime, tenant: TenantId) -> String {
    on_shard(now, &Unpark { tenant, key: key(0), op_id: op(7) })
}

fn raise_fence_floor(now: LogicalTime, tenant: TenantId) -> String {
    on_run(now, &RaiseFenceFloor { tenant, run: RUN, at_least: fence(9) })
}

fn register_shards(now: LogicalTime, tenant: TenantId) -> String {
    let shards = [InitialShardInput {
        shard_id: ShardId::from_raw(0),
        spec: ShardSpecRef::new(b"a", b"z", b""),
        cursor: CursorUpdate::initial(),
    }];
    on_run(now, &RegisterShards { tenant, run: RUN, shards: &shards, op_id: op(7) })
}

fn cancel_run(now: LogicalTime, tenant: TenantId) -> String {
    let kind = RunTransitionKind::Cancel;
    on_run(now, &RunTransition { tenant, run: RUN, kind, op_id: op(7) })
}

fn delete_run(now: LogicalTime, tenant: TenantId) -> String {
    on_run(now, &DeleteRun { tenant, run: RUN, op_id: op(7) })
}

fn delete_damaged_run(now: LogicalTime, tenant: TenantId) -> String {
    let _ = DeleteRun { tenant, run: RUN, op_id: op(7) }.decide_damaged(now);
    String::new()
}

fn create_run(now: LogicalTime, tenant: TenantId) -> String {
    on_run(now, &CreateRun { tenant, run: RUN, config: run_config() })
}

fn collect_run(now: LogicalTime, tenant: TenantId) -> String {
    on_run(now, &CollectRun { tenant, run: RUN, stale_after: 1 })
}

#[rstest]
#[case::accept(accept)]
#[case::acquire(acquire_shard)]
#[case::request_action(request_action)]
#[case::revoke_lease(revoke_lease)]
#[case::unpark(unpark)]
#[case::raise_fence_floor(raise_fence_floor)]
#[case::register_shards(register_shards)]
#[case::cancel_run(cancel_run)]
#[case::delete_run(delete_run)]
fn record_of_another_tenant_is_refused(#[case] decide: fn(LogicalTime, TenantId) -> String) {
    let refused = decide(at(20), OTHER);
    assert!(refused.starts_with("TenantMismatch"), "{refused}");
    let own = decide(at(20), TENANT);
    assert!(!own.starts_with("TenantMismatch"), "{own}");
}

#[rstest]
#[case::accept(accept)]
#[case::acquire(acquire_shard)]
#[case::request_action(request_action)]
#[case::revoke_lease(revoke_lease)]
#[case::unpark(unpark)]
#[case::raise_fence_floor(raise_fence_floor)]
#[case::register_shards(register_shards)]
#[case::cancel_run(cancel_run)]
#[case::delete_run(delete_run)]
#[case::delete_damaged_run(delete_damaged_run)]
#[case::create_run(create_run)]
#[case::collect_run(collect_run)]
fn decision_at_time_zero_panics(#[case] decide: fn(LogicalTime, TenantId) -> String) {
    let stopped = catch_unwind(AssertUnwindSafe(|| decide(LogicalTime::ZERO, TENANT)));
    let panic = stopped.expect_err("a broken clock is accepted");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"time zero means a broken clock"));
}
