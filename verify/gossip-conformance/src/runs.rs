//! Runs: created in two steps, ended once, deleted for good.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, MAX_INITIAL_SHARDS, MAX_KEY_SIZE, MAX_TOKEN_SIZE,
    ManifestValidationError,
};
use gossip_contracts::identity::ShardId;
use gossip_coordination::{
    AcquireError, ClaimError, CreateRunError, DeleteRunError, GetRunError, IdempotentOutcome,
    RUN_OP_LOG_CAP, RegisterShardsError, RenewError, RunConfig, RunManagement, RunOpResult,
    RunStatus, RunTransitionError, ShardFilter,
};

use super::world::{OTHER_RUN, REGISTRATION, ROOTS, RUN, World, at, config, key, op, root, shard};
use super::{ConformanceTarget, Settings, refused, topic};

topic!("runs":
    a_new_run_has_no_shards,
    a_run_is_made_once,
    registration_makes_a_run_active,
    a_registration_is_replayed_on_an_active_run,
    another_operation_with_the_same_shards_is_a_replay,
    the_same_operation_with_other_shards_is_a_conflict,
    another_operation_with_other_shards_is_refused,
    the_order_of_the_shards_is_not_part_of_a_registration,
    a_registration_is_never_forgotten,
    a_registration_needs_a_run,
    a_bad_manifest_registers_nothing,
    sizes_are_checked_before_anything_is_looked_up,
    making_a_run_with_shards_can_be_repeated,
    making_a_run_with_other_settings_is_refused,
    a_run_completes_when_everything_is_done,
    a_run_with_work_left_does_not_complete,
    a_run_can_be_given_up_at_any_time,
    only_an_active_run_completes_or_fails,
    a_run_without_shards_can_be_cancelled,
    a_run_ends_once,
    the_end_of_a_run_is_replayed,
    an_operation_id_of_another_transition_is_a_conflict,
    the_runs_log_forgets_the_oldest,
    a_run_that_is_over_grants_nothing,
    an_ended_run_keeps_its_progress,
    a_run_that_is_not_there_is_not_found,
    only_a_run_that_is_over_is_deleted,
    a_deleted_run_is_gone_with_its_shards,
    the_id_of_a_deleted_run_is_never_used_again,
    a_deletion_is_replayed,
);

/// The first phase creates the run without shards.
pub fn a_new_run_has_no_shards<T: ConformanceTarget>(target: &T) {
    let mut world = created(target);
    let run = world.run_record().expect("there");
    assert_eq!((run.status(), run.created_at()), (RunStatus::Initializing, at(1)));
    assert_eq!((run.completed_at(), run.root_shards().len()), (None, 0));
    assert!(world.list(2, ShardFilter::all()).is_empty());
    assert_eq!(world.progress(2).total, 0);
    refused!(world.claim(2, 1), ClaimError::NoneAvailable { earliest_deadline: None });
    refused!(world.try_acquire(2, key(0), 1), AcquireError::ShardNotFound { .. });
}

/// A second run with the same id is refused, whatever its settings.
pub fn a_run_is_made_once<T: ConformanceTarget>(target: &T) {
    let mut world = created(target);
    let again = world.backend.create_run(at(2), world.tenant, RUN, config(None));
    refused!(again, CreateRunError::RunAlreadyExists { run } if run == RUN);
    world.backend.create_run(at(2), world.tenant, OTHER_RUN, config(None)).expect("another one");
}

/// The second phase registers the shards.
pub fn registration_makes_a_run_active<T: ConformanceTarget>(target: &T) {
    let mut world = created(target);
    let done = world.register(2, &ROOTS, 1).expect("a valid manifest");
    assert_eq!(done, IdempotentOutcome::Executed(ids(&[0, 1])));
    let run = world.run_record().expect("there");
    assert_eq!((run.status(), run.root_shards()), (RunStatus::Active, &[shard(0), shard(1)][..]));
    assert_eq!(run.config(), config(None));
    let progress = world.progress(3);
    assert_eq!((progress.total, progress.active, progress.leased), (2, 2, 0));
}

/// The same call is replayed.
pub fn a_registration_is_replayed_on_an_active_run<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    let again = world.register(11, &ROOTS, REGISTRATION).expect("known");
    assert_eq!(again, IdempotentOutcome::Replayed(ids(&[0, 1])));
    assert_eq!(world.progress(12).done, 1, "no shard was created again");
    world.backend.cancel_run(at(13), world.tenant, RUN, op(2)).expect("active");
    let late = world.register(14, &ROOTS, REGISTRATION).expect("known");
    assert!(late.is_replay(), "idempotency is checked first");
}

/// A restarted runtime draws a new id for the same work.
pub fn another_operation_with_the_same_shards_is_a_replay<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let again = world.register(10, &ROOTS, 7).expect("the same shards");
    assert_eq!(again, IdempotentOutcome::Replayed(ids(&[0, 1])));
    world.backend.cancel_run(at(11), world.tenant, RUN, op(2)).expect("active");
    let late = world.register(12, &ROOTS, 8);
    refused!(late, RegisterShardsError::WrongStatus { status: RunStatus::Cancelled });
}

/// A reused operation id is a bug of the caller.
pub fn the_same_operation_with_other_shards_is_a_conflict<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let other = world.register(10, &ROOTS[..1], REGISTRATION);
    refused!(other, RegisterShardsError::OpIdConflict(conflict)
        if conflict.op_id() == op(REGISTRATION));
    let mut moved = ROOTS;
    moved[0].cursor = CursorUpdate::with_last_key(b"c");
    let other = world.register(10, &moved, REGISTRATION);
    refused!(other, RegisterShardsError::OpIdConflict(_));
}

/// Two planners disagree: the first one wins.
pub fn another_operation_with_other_shards_is_refused<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let other = world.register(10, &ROOTS[..1], 7);
    refused!(other, RegisterShardsError::WrongStatus { status: RunStatus::Active });
    assert_eq!(world.progress(11).total, 2);
}

/// The order of the shards does not matter.
pub fn the_order_of_the_shards_is_not_part_of_a_registration<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let backwards = [ROOTS[1], ROOTS[0]];
    let again = world.register(10, &backwards, REGISTRATION).expect("the same shards");
    assert_eq!(again, IdempotentOutcome::Replayed(ids(&[0, 1])), "in the order of the first call");
}

/// The registration is a field of the run, not a log entry that can be evicted.
pub fn a_registration_is_never_forgotten<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    for number in 0..=RUN_OP_LOG_CAP as u64 {
        world.backend.pause_run(at(10), world.tenant, RUN, op(number)).expect("active");
    }
    assert!(world.register(11, &ROOTS, REGISTRATION).expect("known").is_replay());
    let reused = world.backend.pause_run(at(12), world.tenant, RUN, op(REGISTRATION));
    refused!(reused, RunTransitionError::OpIdConflict(_));
    let reused = world.register(13, &ROOTS, RUN_OP_LOG_CAP as u64);
    refused!(reused, RegisterShardsError::OpIdConflict(_));
}

/// The run must exist.
pub fn a_registration_needs_a_run<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    refused!(world.register(1, &ROOTS, 1), RegisterShardsError::RunNotFound);
    // The run is checked before the manifest.
    refused!(world.register(1, &[], 1), RegisterShardsError::RunNotFound);
}

/// Checks each manifest rule; the run stays unchanged.
pub fn a_bad_manifest_registers_nothing<T: ConformanceTarget>(target: &T) {
    use ManifestValidationError as Wrong;
    let mut world = created(target);
    let mut register = |roots: &[_]| match world.register(2, roots, 1) {
        Err(RegisterShardsError::ManifestInvalid(wrong)) => wrong,
        other => panic!("expected a refused manifest, got {other:?}"),
    };
    assert_eq!(register(&[]), Wrong::Empty);
    let wrong = register(&[root(0, b"a", b"m"), root(0, b"m", b"z")]);
    assert_eq!(wrong, Wrong::DuplicateIds { shard_id: shard(0) });
    for unbounded in [root(0, b"", b"m"), root(0, b"a", b"")] {
        assert_eq!(register(&[unbounded]), Wrong::UnboundedRange { shard_id: shard(0) });
    }
    assert!(matches!(register(&[root(0, b"m", b"a")]), Wrong::InvalidSpec { .. }));
    let overlap = register(&[root(0, b"a", b"n"), root(1, b"m", b"z")]);
    assert!(matches!(overlap, Wrong::OverlappingRanges { .. }));
    let mut outside = root(0, b"a", b"m");
    outside.cursor = CursorUpdate::with_last_key(b"q");
    assert_eq!(register(&[outside]), Wrong::CursorOutOfBounds { shard_id: shard(0) });
    let mut derived = root(0, b"a", b"m");
    derived.shard_id = ShardId::from_raw(ShardId::DERIVED_BIT | 1);
    register(&[derived]);
    let run = world.run_record().expect("there");
    assert_eq!((run.status(), run.root_shards().len()), (RunStatus::Initializing, 0));
    world.register(3, &[root(0, b"a", b"c"), root(1, b"m", b"z")], 1).expect("gaps are allowed");
}

/// The hashed input is bounded before any lookup, for every caller and run.
pub fn sizes_are_checked_before_anything_is_looked_up<T: ConformanceTarget>(target: &T) {
    use ManifestValidationError as Wrong;
    let mut world = World::empty(target, Settings::default());
    let mut register = |roots: &[_]| match world.register(2, roots, 1) {
        Err(RegisterShardsError::ManifestInvalid(wrong)) => wrong,
        other => panic!("expected a refused manifest, got {other:?}"),
    };
    let count = MAX_INITIAL_SHARDS + 1;
    let wrong = register(&vec![ROOTS[0]; count]);
    assert_eq!(wrong, Wrong::TooManyShards { count, max: MAX_INITIAL_SHARDS });
    let (long_key, long_token) = (vec![b'b'; MAX_KEY_SIZE + 1], vec![0; MAX_TOKEN_SIZE + 1]);
    let wrong = register(&[root(0, b"a", &long_key)]);
    assert!(matches!(wrong, Wrong::InvalidSpec { .. }));
    let mut heavy = root(0, b"a", b"m");
    heavy.cursor = CursorUpdate::with_last_key(&long_key);
    assert!(matches!(register(&[heavy]), Wrong::CursorKeyTooLarge { .. }));
    heavy.cursor = CursorUpdate::new(b"b", &long_token);
    assert!(matches!(register(&[heavy]), Wrong::CursorTokenTooLarge { .. }));
}

/// The whole call is idempotent, wherever it was interrupted.
pub fn making_a_run_with_shards_can_be_repeated<T: ConformanceTarget>(target: &T) {
    let mut world = created(target);
    let first = world.make_run(config(None), &ROOTS, 1).expect("the run has no shards yet");
    assert!(first.is_executed());
    let again = world.make_run(config(None), &ROOTS, 1).expect("known");
    assert_eq!(again, IdempotentOutcome::Replayed(ids(&[0, 1])));
    let other = world.make_run(config(None), &ROOTS[..1], 1);
    refused!(other, CreateRunError::RegisterShardsFailed(RegisterShardsError::OpIdConflict(_)));
}

/// A run with the same id and other settings is refused.
pub fn making_a_run_with_other_settings_is_refused<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let semantics = CursorSemantics::Dispatched;
    let dispatched = RunConfig::try_new(semantics, super::world::LEASE, None).expect("it lasts");
    for other in [config(Some(1)), dispatched] {
        let refusal = world.make_run(other, &ROOTS, REGISTRATION);
        refused!(refusal, CreateRunError::ConfigMismatch { run } if run == RUN);
    }
}

/// The status changes from active to done.
pub fn a_run_completes_when_everything_is_done<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    world.finish(11, key(1), 2);
    let done = world.backend.complete_run(at(12), world.tenant, RUN, op(3));
    assert_eq!(done, Ok(IdempotentOutcome::Executed(())));
    let run = world.run_record().expect("there");
    assert_eq!((run.status(), run.completed_at()), (RunStatus::Done, Some(at(12))));
}

/// Active and parked shards both block completion, and the refusal reports their numbers.
pub fn a_run_with_work_left_does_not_complete<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let refusal = world.backend.complete_run(at(10), world.tenant, RUN, op(1));
    refused!(refusal, RunTransitionError::NotSettled { active: 2, parked: 0 });
    let held = world.acquire(11, key(0), 1);
    world.park(12, &held.lease, 2).expect("live");
    let refusal = world.backend.complete_run(at(13), world.tenant, RUN, op(1));
    refused!(refusal, RunTransitionError::NotSettled { active: 1, parked: 1 });
    assert_eq!(world.run_record().expect("there").status(), RunStatus::Active);
}

/// Failing and cancelling need no settled shards.
pub fn a_run_can_be_given_up_at_any_time<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    world.backend.fail_run(at(11), world.tenant, RUN, op(1)).expect("active");
    assert_eq!(world.run_record().expect("there").status(), RunStatus::Failed);
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    world.backend.cancel_run(at(11), world.tenant, RUN, op(1)).expect("active");
    let run = world.run_record().expect("there");
    assert_eq!((run.status(), run.completed_at()), (RunStatus::Cancelled, Some(at(11))));
}

/// A run without shards can be neither completed nor failed.
pub fn only_an_active_run_completes_or_fails<T: ConformanceTarget>(target: &T) {
    let mut world = created(target);
    let complete = world.backend.complete_run(at(2), world.tenant, RUN, op(1));
    refused!(complete, RunTransitionError::WrongStatus { status, target }
        if status == RunStatus::Initializing && target == RunStatus::Done);
    let fail = world.backend.fail_run(at(2), world.tenant, RUN, op(1));
    refused!(fail, RunTransitionError::WrongStatus { status, target }
        if status == RunStatus::Initializing && target == RunStatus::Failed);
}

/// A cancelled run accepts no shards.
pub fn a_run_without_shards_can_be_cancelled<T: ConformanceTarget>(target: &T) {
    let mut world = created(target);
    world.backend.cancel_run(at(2), world.tenant, RUN, op(1)).expect("not over");
    let late = world.register(3, &ROOTS, 2);
    refused!(late, RegisterShardsError::WrongStatus { status: RunStatus::Cancelled });
}

/// A terminal status is final.
pub fn a_run_ends_once<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.backend.fail_run(at(10), world.tenant, RUN, op(1)).expect("active");
    let tenant = world.tenant;
    for refusal in [
        world.backend.complete_run(at(11), tenant, RUN, op(2)),
        world.backend.fail_run(at(11), tenant, RUN, op(2)),
        world.backend.cancel_run(at(11), tenant, RUN, op(2)),
    ] {
        refused!(refusal, RunTransitionError::RunTerminal { status: RunStatus::Failed });
    }
    let run = world.run_record().expect("there");
    assert_eq!((run.status(), run.completed_at()), (RunStatus::Failed, Some(at(10))));
}

/// The transition is replayed after the run has ended.
pub fn the_end_of_a_run_is_replayed<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.backend.cancel_run(at(10), world.tenant, RUN, op(1)).expect("active");
    let again = world.backend.cancel_run(at(99), world.tenant, RUN, op(1));
    assert_eq!(again, Ok(IdempotentOutcome::Replayed(())));
    assert_eq!(world.run_record().expect("there").completed_at(), Some(at(10)));
}

/// The kind of the transition is part of the comparison.
pub fn an_operation_id_of_another_transition_is_a_conflict<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.backend.cancel_run(at(10), world.tenant, RUN, op(1)).expect("active");
    let other = world.backend.fail_run(at(11), world.tenant, RUN, op(1));
    refused!(other, RunTransitionError::OpIdConflict(conflict) if conflict.op_id() == op(1));
}

/// The log has eight operations.
pub fn the_runs_log_forgets_the_oldest<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let mut pause = |number| {
        let paused = world.backend.pause_run(at(10), world.tenant, RUN, op(number));
        paused.expect("active").is_replay()
    };
    let cap = RUN_OP_LOG_CAP as u64;
    assert!((0..cap).all(|number| !pause(number)));
    assert!((0..cap).all(&mut pause), "all of them are in the log");
    assert!(!pause(cap), "one more is new");
    assert!((1..=cap).all(&mut pause), "and evicts only the oldest");
    assert!(!pause(0), "which is executed again");
}

/// Acquire, claim and renew check the run, so a cancelled run stops within one renewal.
pub fn a_run_that_is_over_grants_nothing<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.backend.cancel_run(at(11), world.tenant, RUN, op(1)).expect("active");
    let status = RunStatus::Cancelled;
    let acquire = world.try_acquire(12, key(1), 2).expect_err("over");
    assert_eq!(acquire, AcquireError::RunTerminal { status });
    // The run is checked before another worker's lease.
    let taken = world.try_acquire(12, key(0), 2).expect_err("over");
    assert_eq!(taken, AcquireError::RunTerminal { status });
    assert_eq!(world.claim(12, 2).expect_err("over"), ClaimError::RunTerminal { status });
    assert_eq!(world.renew(12, &held.lease), Err(RenewError::RunTerminal { status }));
    // The lease is checked before the run.
    refused!(world.renew(900, &held.lease), RenewError::LeaseExpired { .. });
}

/// The progress of current owners is still recorded.
pub fn an_ended_run_keeps_its_progress<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let left = world.acquire(10, key(0), 1);
    let right = world.acquire(10, key(1), 1);
    world.backend.cancel_run(at(11), world.tenant, RUN, op(1)).expect("active");
    world.checkpoint(12, &left.lease, b"c", 2).expect("live");
    world.complete(13, &left.lease, b"d", 3).expect("live");
    world.park(13, &right.lease, 4).expect("live");
    let progress = world.progress(14);
    assert_eq!((progress.done, progress.parked, progress.active), (1, 1, 0));
}

/// Checks every query.
pub fn a_run_that_is_not_there_is_not_found<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    let tenant = world.tenant;
    refused!(world.run_record(), GetRunError::RunNotFound);
    refused!(world.backend.get_run_progress(at(1), tenant, RUN), GetRunError::RunNotFound);
    let mut rows = Vec::new();
    let listed = world.backend.list_shards_into(at(1), tenant, RUN, ShardFilter::all(), &mut rows);
    refused!(listed, GetRunError::RunNotFound);
    refused!(world.claim(1, 1), ClaimError::RunNotFound);
    let ended = world.backend.cancel_run(at(1), tenant, RUN, op(1));
    refused!(ended, RunTransitionError::RunNotFound);
    let deleted = world.backend.delete_run(at(1), tenant, RUN, op(1));
    refused!(deleted, DeleteRunError::RunNotFound);
}

/// Only a terminal run can be deleted.
pub fn only_a_run_that_is_over_is_deleted<T: ConformanceTarget>(target: &T) {
    let mut world = created(target);
    let early = world.backend.delete_run(at(2), world.tenant, RUN, op(1));
    refused!(early, DeleteRunError::NotTerminal { status: RunStatus::Initializing });
    world.register(2, &ROOTS, 2).expect("a valid manifest");
    let early = world.backend.delete_run(at(3), world.tenant, RUN, op(1));
    refused!(early, DeleteRunError::NotTerminal { status: RunStatus::Active });
    let reused = world.backend.delete_run(at(3), world.tenant, RUN, op(2));
    refused!(reused, DeleteRunError::OpIdConflict(_));
}

/// Lease holders find no shard either.
pub fn a_deleted_run_is_gone_with_its_shards<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"b", 50).expect("live");
    world.backend.cancel_run(at(12), world.tenant, RUN, op(1)).expect("active");
    let deleted = world.backend.delete_run(at(13), world.tenant, RUN, op(2));
    assert_eq!(deleted, Ok(IdempotentOutcome::Executed(())));
    refused!(world.run_record(), GetRunError::RunNotFound);
    refused!(world.claim(14, 1), ClaimError::RunNotFound);
    refused!(world.try_acquire(14, key(0), 1), AcquireError::ShardNotFound { .. });
    world.assert_all_refused(14, &held.lease, "ShardNotFound");
    let late = world.backend.cancel_run(at(14), world.tenant, RUN, op(1));
    refused!(late, RunTransitionError::RunNotFound);
}

/// The id stays reserved, so that fences never restart.
pub fn the_id_of_a_deleted_run_is_never_used_again<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.backend.cancel_run(at(10), world.tenant, RUN, op(1)).expect("active");
    world.backend.delete_run(at(11), world.tenant, RUN, op(2)).expect("over");
    let again = world.backend.create_run(at(12), world.tenant, RUN, config(None));
    refused!(again, CreateRunError::RunAlreadyExists { run } if run == RUN);
    let again = world.make_run(config(None), &ROOTS, 3);
    refused!(again, CreateRunError::RunAlreadyExists { run } if run == RUN);
    refused!(world.register(12, &ROOTS, REGISTRATION), RegisterShardsError::RunNotFound);
    world.run = OTHER_RUN;
    world.make_run(config(None), &ROOTS, 3).expect("other ids are free");
}

/// The run is deleted for the same operation and for any other.
pub fn a_deletion_is_replayed<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.backend.cancel_run(at(10), world.tenant, RUN, op(1)).expect("active");
    world.backend.delete_run(at(11), world.tenant, RUN, op(2)).expect("over");
    for id in [2, 3] {
        let again = world.backend.delete_run(at(12), world.tenant, RUN, op(id));
        assert_eq!(again, Ok(IdempotentOutcome::Replayed(())), "operation {id}");
    }
}

/// Creates a run without shards at time 1.
fn created<T: ConformanceTarget>(target: &T) -> World<'_, T> {
    let mut world = World::empty(target, Settings::default());
    world.backend.create_run(at(1), world.tenant, RUN, config(None)).expect("new");
    world
}

fn ids(numbers: &[u64]) -> RunOpResult {
    RunOpResult::RegisteredShards { ids: numbers.iter().copied().map(shard).collect() }
}
