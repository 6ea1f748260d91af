//! Lost replies with a concurrent change before the flight reads again.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};

use super::core::Core;
use super::test_support::overwrite;
use super::{
    Answer, CommitOutcome, Conflict, Fault, Flight, Key, MapStore, Read, Reply, Step, Store,
    StoreConfig, StoreCoordinator, StoreLimits,
};
use crate::protocol::{
    Acquire, Checkpoint, CreateRun, DeleteRun, Grant, ReleaseMode, Renew, ReplyPath, RequestAction,
};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([4; 32]);
const RUN: RunId = RunId::from_raw(5);
const KEY: ShardKey = ShardKey::new(RUN, ShardId::from_raw(0));
const WORKER: WorkerId = WorkerId::from_raw(1);

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

/// A run with one shard.
fn administrator() -> StoreCoordinator<MapStore> {
    let mut admin = StoreCoordinator::new(MapStore::new(), StoreConfig::new(1 << 32));
    let spec = ShardSpecRef::new(b"a", b"z", b"");
    let root = InitialShardInput { shard_id: KEY.shard(), spec, cursor: CursorUpdate::initial() };
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    admin.create_run_with_shards(at(1), TENANT, RUN, config, &[root], op(1)).unwrap();
    admin
}

fn core() -> Core {
    Core::new(StoreConfig::new(2 << 32), StoreLimits::GENEROUS)
}

fn acquire(core: &mut Core) -> Flight<'_, Result<IdempotentOutcome<Grant>, AcquireError>> {
    let token = core.fresh_grant();
    core.on_shard(
        at(10),
        Acquire {
            tenant: TENANT,
            key: KEY,
            worker: WORKER,
            token,
            reply: ReplyPath::CanBeLost,
            spares_last_attempt: false,
        },
    )
}

/// Drives the flight. The reply to every commit is lost, after it was applied or before, and then
/// `meanwhile` runs.
fn fly<A>(
    admin: &mut StoreCoordinator<MapStore>,
    mut flight: Flight<'_, A>,
    happens: bool,
    mut meanwhile: impl FnMut(&mut StoreCoordinator<MapStore>),
) -> A {
    let mut store = admin.store().another_handle();
    let mut lost = false;
    loop {
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) if lost => Reply::Committed(store.commit(txns)),
            Step::Commit(txns) => {
                lost = true;
                if happens {
                    let outcome = store.commit(txns).remove(0);
                    assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
                }
                meanwhile(admin);
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Done(answer) => return answer,
        };
        flight.answer(reply);
    }
}

/// Drives the flight without faults.
fn fly_without_faults<A>(admin: &mut StoreCoordinator<MapStore>, mut flight: Flight<'_, A>) -> A {
    let mut store = admin.store().another_handle();
    loop {
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => Reply::Committed(store.commit(txns)),
            Step::Done(answer) => return answer,
        };
        flight.answer(reply);
    }
}

fn row(admin: &mut StoreCoordinator<MapStore>) -> ShardSummary {
    let mut rows = Vec::new();
    admin.list_shards_into(at(20), TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
    rows.remove(0)
}

#[test]
fn lost_grant_is_recognized_by_its_token() {
    let (mut admin, mut core) = (administrator(), core());
    let granted = fly(&mut admin, acquire(&mut core), true, |admin| {
        let until = at(50);
        admin.request_action(at(11), TENANT, KEY, &ShardAction::Release, until, op(2)).unwrap();
    });
    let lease = granted.unwrap().into_inner().lease;
    assert_eq!(row(&mut admin).acquire_count, 1, "one grant");
    admin.renew(at(12), TENANT, &lease).expect("the grant is valid");
}

/// Found by the campaign: the first try was applied and the record changed after it; the second try
/// was lost, and the record it was decided on is still stored.
#[test]
fn second_try_does_not_deny_an_applied_renewal() {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let lease = granted.unwrap().lease;
    let mut store = admin.store().another_handle();
    let mut flight = core.on_shard(at(20), Renew { tenant: TENANT, lease: &lease });
    let mut commits = 0;
    let result = loop {
        let answer = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => {
                commits += 1;
                match commits {
                    1 => {
                        let outcome = store.commit(txns).remove(0);
                        assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })));
                        let (until, release) = (at(50), ShardAction::Release);
                        admin.request_action(at(21), TENANT, KEY, &release, until, op(2)).unwrap();
                    }
                    _ => _ = admin.fail_run(at(22), TENANT, RUN, op(3)).unwrap(),
                }
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Done(result) => break result,
        };
        flight.answer(answer);
    };
    let Err(RenewError::BackendError(error)) = result else { panic!("{result:?}") };
    assert!(commits == 2 && error.is_unresolved() && error.is_retryable(), "{error}");
}

/// Found by the campaign: a stale read made the second try of a grant compute its fence from an old
/// version, and then the first try was applied late. The second read is older than the first, so
/// the flight reads again and finds the stored grant.
#[test]
fn grant_has_the_fence_of_the_applied_try() {
    let (mut admin, mut core) = (administrator(), core());
    let mut store = admin.store().another_handle();
    let hot = vec![Read::Get(Key::ShardHot { tenant: TENANT, shard: KEY })];
    let old = store.read(hot).unwrap().remove(0);
    // Granted and released once, so that the old version has another fence.
    let mut scratch = AcquireScratch::new();
    let first = admin.acquire_and_restore_into(at(2), TENANT, KEY, WORKER, &mut scratch);
    let lease = first.unwrap().lease;
    admin.release(at(3), TENANT, &lease, ReleaseMode::Clean, op(4)).unwrap();
    let mut flight = acquire(&mut core);
    let (mut reads, mut commits) = (0, 0);
    let result = loop {
        let answer = match flight.step() {
            Step::Read(asked) => {
                reads += 1;
                let mut answers = store.read(asked).unwrap();
                if reads == 2 {
                    answers[0] = old.clone();
                }
                Reply::Read(Ok(answers))
            }
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => {
                commits += 1;
                if commits == 1 {
                    let outcome = store.commit(txns).remove(0);
                    assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
                }
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Done(result) => break result,
        };
        flight.answer(answer);
    };
    let stored = row(&mut admin).fence_epoch;
    assert_eq!((commits, reads), (1, 3), "the old version was rejected");
    assert_eq!(result.unwrap().into_inner().lease.fence(), stored);
    assert_eq!(stored.as_raw(), lease.fence().as_raw() + 1, "the first try was applied");
}

/// The second try computed its fence from a version that the store lost afterwards. Then the first
/// try was applied: no revision shows it, and both tries have the same token.
#[test]
fn lost_grant_is_recognized_by_its_fence_too() {
    let hot = || vec![Read::Get(Key::ShardHot { tenant: TENANT, shard: KEY })];
    let (mut other, mut scratch) = (administrator(), AcquireScratch::new());
    let granted = other.acquire_and_restore_into(at(2), TENANT, KEY, WORKER, &mut scratch);
    let lease = granted.unwrap().lease;
    other.release(at(3), TENANT, &lease, ReleaseMode::Clean, op(4)).unwrap();
    let lost = other.store().another_handle().read(hot()).unwrap().remove(0);
    let Answer::Value(Some(mut lost)) = lost else { panic!("{lost:?}") };

    let (mut admin, mut core) = (administrator(), core());
    let mut store = admin.store().another_handle();
    let (mut reads, mut sent) = (0, Vec::new());
    let mut flight = acquire(&mut core);
    let result = loop {
        let answer = match flight.step() {
            Step::Read(asked) => {
                reads += 1;
                let mut answers = store.read(asked).unwrap();
                if let (2, Answer::Value(Some(hot))) = (reads, &mut answers[0]) {
                    lost.revision = hot.revision + 1;
                    hot.clone_from(&lost);
                }
                Reply::Read(Ok(answers))
            }
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => {
                sent.push(txns);
                if sent.len() == 2 {
                    // Another handle's commit took the lost revision.
                    let elsewhere = ShardKey::new(RunId::from_raw(99), KEY.shard());
                    overwrite(&mut admin, Key::Owner { tenant: TENANT, shard: elsewhere }, vec![]);
                    let outcome = store.commit(sent[0].clone()).remove(0);
                    assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
                }
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Done(result) => break result,
        };
        flight.answer(answer);
    };
    assert_eq!((reads, sent.len()), (3, 2), "the lost version was read and not detected later");
    assert_eq!(row(&mut admin).fence_epoch, lease.fence(), "the first try was applied");
    assert!(matches!(result, Err(AcquireError::AlreadyLeased { .. })), "{result:?}");
}

#[test]
fn excluded_grant_is_refused() {
    let (mut admin, mut core) = (administrator(), core());
    let refused = fly(&mut admin, acquire(&mut core), false, |admin| {
        let mut scratch = AcquireScratch::new();
        // The same worker id, as if two processes shared it by mistake.
        admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch).unwrap();
    });
    assert!(matches!(refused, Err(AcquireError::AlreadyLeased { .. })), "{refused:?}");
    assert_eq!(row(&mut admin).acquire_count, 1);
}

/// Found by the campaign: an administrator's request changed the record after the renewal, so that
/// the renewal was not recognized, and then the run ended.
#[test]
fn applied_renewal_is_not_denied_after_the_run_ended() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let lease = granted.unwrap().lease;
        let renew = Renew { tenant: TENANT, lease: &lease };
        let result = fly(&mut admin, core.on_shard(at(20), renew), happens, |admin| {
            let (until, release) = (at(50), ShardAction::Release);
            admin.request_action(at(21), TENANT, KEY, &release, until, op(2)).unwrap();
            admin.fail_run(at(22), TENANT, RUN, op(3)).unwrap();
        });
        match result {
            Err(RenewError::BackendError(error)) => {
                assert!(happens && error.is_unresolved() && error.is_retryable(), "{error}");
            }
            Err(RenewError::RunTerminal { .. }) => assert!(!happens),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn lost_checkpoint_is_resolved_after_the_lease_ended() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let lease = granted.unwrap().lease;
        let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
        let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
        let result = fly(&mut admin, core.on_shard(at(11), checkpoint), happens, |admin| {
            admin.revoke_lease(at(11), TENANT, KEY, None, op(9)).unwrap();
        });
        match result {
            Ok(result) => assert!(result.is_executed() && happens),
            Err(CheckpointError::StaleFence { .. }) => assert!(!happens),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(row(&mut admin).last_key.is_some(), happens);
    }
}

#[test]
fn lost_commit_is_retried() {
    let (mut admin, mut core) = (administrator(), core());
    let granted = fly(&mut admin, acquire(&mut core), false, |_| ());
    assert!(granted.unwrap().is_executed());
    assert_eq!(row(&mut admin).acquire_count, 1);
}

/// The request is delayed, not lost, and meanwhile the run was partly deleted.
#[test]
fn delayed_commit_is_excluded_by_the_run_deletion() {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let lease = granted.unwrap().lease;
    let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
    let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
    let (mut store, mut late) = (admin.store().another_handle(), None);
    let mut flight = core.on_shard(at(11), checkpoint);
    let result = loop {
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => {
                assert!(late.replace(txns).is_none(), "one try");
                admin.cancel_run(at(11), TENANT, RUN, op(8)).unwrap();
                admin.store_mut().inject(Fault::None);
                admin.store_mut().inject(Fault::Fail);
                admin.delete_run(at(11), TENANT, RUN, op(9)).unwrap_err();
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Done(result) => break result,
        };
        flight.answer(reply);
    };
    assert!(matches!(result, Err(CheckpointError::ShardNotFound { .. })), "{result:?}");
    let outcome = store.commit(late.unwrap()).remove(0);
    assert!(matches!(outcome, Ok(CommitOutcome::Conflict(_))), "{outcome:?}");
}

/// Drives a checkpoint whose first commit is delayed, and whose later ones are answered by `then`.
/// Returns its error, and the outcome of the first commit.
fn checkpoint_late(
    mut then: impl FnMut(&mut StoreCoordinator<MapStore>) -> Result<CommitOutcome, InfraError>,
) -> (InfraError, CommitOutcome) {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let lease = granted.unwrap().lease;
    let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
    let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
    let (mut store, mut late) = (admin.store().another_handle(), None);
    let mut flight = core.on_shard(at(11), checkpoint);
    let result = loop {
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) if late.is_none() => {
                late = Some(txns);
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Commit(_) => Reply::Committed(vec![then(&mut admin)]),
            Step::Done(result) => break result,
        };
        flight.answer(reply);
    };
    let Err(CheckpointError::BackendError(error)) = result else { panic!("{result:?}") };
    (error, store.commit(late.unwrap()).remove(0).unwrap())
}

#[test]
fn store_refusal_does_not_deny_a_delayed_commit() {
    let (error, late) = checkpoint_late(|_| {
        let (operation, message) = ("commit", "full".to_owned());
        Err(InfraError::Refused { operation, why: StoreRefusal::NoSpace, message })
    });
    assert!(matches!(late, CommitOutcome::Applied { .. }), "{late:?}");
    assert!(error.is_retryable(), "a retry resolves the commit: {error}");
    assert!(error.is_unresolved(), "{error}");
}

/// Found by the simulator: the registry retries its write, and the store is full by then.
#[test]
fn store_refusal_does_not_deny_a_delayed_worker_registration() {
    let (admin, mut core) = (administrator(), core());
    let (mut store, mut late) = (admin.store().another_handle(), None);
    let mut flight = core.register_worker(at(11), TENANT, WORKER, None);
    let result = loop {
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) if late.is_none() => {
                late = Some(txns);
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Commit(_) => {
                let (operation, message) = ("commit", "full".to_owned());
                let why = StoreRefusal::NoSpace;
                Reply::Committed(vec![Err(InfraError::Refused { operation, why, message })])
            }
            Step::Done(result) => break result,
        };
        flight.answer(reply);
    };
    let Err(WorkerError::BackendError(error)) = result else { panic!("{result:?}") };
    assert!(error.is_unresolved(), "{error}");
    let late = store.commit(late.unwrap()).remove(0);
    assert!(matches!(late, Ok(CommitOutcome::Applied { .. })), "{late:?}");
}

/// The commit of a heartbeat is delayed until the worker drains.
#[test]
fn delayed_heartbeat_does_not_overwrite_a_drain() {
    let (mut admin, mut core) = (administrator(), core());
    admin.register_worker(at(10), TENANT, WORKER, None).unwrap();
    let (mut store, mut late) = (admin.store().another_handle(), None);
    let mut flight = core.heartbeat(at(11), TENANT, WORKER, WorkerState::Working);
    let result = loop {
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) if late.is_none() => {
                late = Some(txns);
                let draining = admin.heartbeat(at(12), TENANT, WORKER, WorkerState::Draining);
                assert_eq!(draining, Ok(()));
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Commit(txns) => Reply::Committed(store.commit(txns)),
            Step::Done(result) => break result,
        };
        flight.answer(reply);
    };
    assert_eq!(result, Ok(()));
    let late = store.commit(late.unwrap()).remove(0);
    assert!(matches!(late, Ok(CommitOutcome::Conflict(_))), "{late:?}");
    let mut entries = Vec::new();
    admin.list_workers_into(at(13), TENANT, &mut entries).unwrap();
    assert_eq!(entries[0].state, WorkerState::Draining);
}

#[test]
fn lost_races_do_not_deny_a_delayed_commit() {
    let (error, _) = checkpoint_late(|admin| {
        let key = Key::RunHead { tenant: TENANT, run: RUN };
        let mut answers = admin.store_mut().read(vec![Read::Get(key)]).unwrap();
        let Some(Answer::Value(value)) = answers.pop() else { panic!("a value") };
        Ok(CommitOutcome::Conflict(Conflict::new(vec![(key, value)]).unwrap()))
    });
    assert!(error.is_retryable(), "{error}");
    assert!(error.is_unresolved(), "{error}");
}

/// Found by the simulator: the read that should resolve the commit returns damaged bytes.
#[test]
fn damage_does_not_deny_a_commit_whose_reply_was_lost() {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let lease = granted.unwrap().lease;
    let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
    let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
    let (mut store, mut lost) = (admin.store().another_handle(), false);
    let mut flight = core.on_shard(at(11), checkpoint);
    let result = loop {
        let reply = match flight.step() {
            Step::Read(reads) => {
                let mut answers = store.read(reads).unwrap();
                if let (true, Answer::Value(Some(hot))) = (lost, &mut answers[0]) {
                    *hot.bytes.last_mut().unwrap() ^= 1;
                }
                Reply::Read(Ok(answers))
            }
            Step::Commit(txns) => {
                assert!(matches!(store.commit(txns)[0], Ok(CommitOutcome::Applied { .. })));
                lost = true;
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Wait(_) => Reply::Waited,
            Step::Done(result) => break result,
        };
        flight.answer(reply);
    };
    let Err(CheckpointError::BackendError(error)) = result else { panic!("{result:?}") };
    assert!(matches!(error.cause(), InfraError::Corruption { .. }), "{error}");
    assert!(error.is_unresolved() && !error.is_retryable(), "{error}");
    assert!(error.to_string().ends_with("; it may have happened"), "{error}");
}

/// Found by the simulator: the run is deleted, and the purge of its shards fails.
#[test]
fn interrupted_deletion_is_not_denied() {
    let mut admin = administrator();
    admin.cancel_run(at(11), TENANT, RUN, op(8)).unwrap();
    admin.store_mut().inject(Fault::None);
    admin.store_mut().inject(Fault::Fail);
    let result = admin.delete_run(at(11), TENANT, RUN, op(9));
    let Err(DeleteRunError::BackendError(error)) = result else { panic!("{result:?}") };
    assert!(error.is_unresolved(), "{error}");
    assert!(admin.delete_run(at(11), TENANT, RUN, op(9)).unwrap().is_replay());
}

/// The outcome cannot be determined: the log has dropped the entry.
#[test]
fn checkpoint_is_not_denied_after_the_log_turned_over() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let lease = granted.unwrap().lease;
        let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
        let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
        let result = fly(&mut admin, core.on_shard(at(11), checkpoint), happens, |admin| {
            for number in 0..OP_LOG_CAP as u64 {
                let key = [b'd', number as u8];
                let cursor = CursorUpdate::try_from_parts(Some(&key), None).unwrap();
                admin.checkpoint(at(11), TENANT, &lease, cursor, op(100 + number)).unwrap();
            }
        });
        let Err(CheckpointError::BackendError(error)) = result else { panic!("{result:?}") };
        assert!(error.is_retryable(), "{error}");
        assert!(error.is_unresolved(), "{error}");
    }
}

/// The lease holder may have fulfilled the request before the administrator's next read.
#[test]
fn possibly_fulfilled_request_is_not_denied() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let (lease, action, op_id) = (granted.unwrap().lease, ShardAction::Release, op(7));
        let expires_at = at(50);
        let asked = RequestAction { tenant: TENANT, key: KEY, action, expires_at, op_id };
        let result = fly(&mut admin, core.on_shard(at(11), asked), happens, |admin| {
            admin.release(at(11), TENANT, &lease, ReleaseMode::Clean, op(8)).unwrap();
        });
        let Err(RequestActionError::BackendError(error)) = result else { panic!("{result:?}") };
        assert!(error.is_retryable() && error.to_string().contains("may have"), "{error}");
    }
}

/// A checkpoint fulfils nothing.
#[test]
fn lost_request_is_retried() {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let (lease, action, op_id) = (granted.unwrap().lease, ShardAction::Release, op(7));
    let asked = RequestAction { tenant: TENANT, key: KEY, action, expires_at: at(50), op_id };
    let result = fly(&mut admin, core.on_shard(at(11), asked), false, |admin| {
        let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
        admin.checkpoint(at(11), TENANT, &lease, cursor, op(8)).unwrap();
    });
    assert!(result.unwrap().is_executed());
}

/// The renewal writes identical bytes, so it looks as if it had been applied.
#[test]
fn lost_renewal_is_refused_after_the_run_ended() {
    let (mut admin, mut core) = (administrator(), core());
    let lease = fly_without_faults(&mut admin, acquire(&mut core)).unwrap().into_inner().lease;
    admin.cancel_run(at(10), TENANT, RUN, op(8)).unwrap();
    let renewed = fly(&mut admin, core.renew(at(10), TENANT, &lease), false, |_| ());
    assert!(matches!(renewed, Err(RenewError::RunTerminal { .. })), "{renewed:?}");
}

/// The nonces of handles may be consecutive.
#[test]
fn grants_of_different_handles_have_different_tokens() {
    let mut tokens = std::collections::BTreeSet::new();
    for nonce in 0..64 {
        let mut core = Core::new(StoreConfig::new(nonce), StoreLimits::GENEROUS);
        for _ in 0..64 {
            assert!(tokens.insert(core.fresh_grant().as_raw()), "nonce {nonce}");
        }
    }
}

/// Two administrators delete one run, and one request is lost: the deletion is executed once.
#[test]
fn concurrent_deletion_is_reported_as_a_replay() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        admin.cancel_run(at(9), TENANT, RUN, op(2)).unwrap();
        core.events = Some(EventCollector::default());
        let ours = DeleteRun { tenant: TENANT, run: RUN, op_id: op(8) };
        let result = fly(&mut admin, core.delete(at(11), ours), happens, |admin| {
            let theirs = admin.delete_run(at(11), TENANT, RUN, op(9)).unwrap();
            assert_eq!(theirs.is_executed(), !happens);
        });
        assert_eq!(result.unwrap().is_executed(), happens);
        assert_eq!(core.events.unwrap().drain().len(), usize::from(happens));
    }
}

/// A created run has no operation id: it is ours if configuration and creation time match.
#[test]
fn created_run_is_recognized_after_a_concurrent_change() {
    let (run, config) =
        (RunId::from_raw(6), administrator().get_run(TENANT, RUN).unwrap().config());
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let create = CreateRun { tenant: TENANT, run, config };
        let result = fly(&mut admin, core.on_run(at(11), create), happens, |admin| {
            let made = admin.create_run(at(12), TENANT, run, config);
            assert_eq!(made.is_ok(), !happens);
            admin.cancel_run(at(12), TENANT, run, op(3)).unwrap();
        });
        match result {
            Ok(_) => assert!(happens),
            Err(error) => {
                assert!(!happens && error == CreateRunError::RunAlreadyExists { run }, "{error}");
            }
        }
    }
}
