//! A reply is lost, and before the flight looks again somebody else has been there.

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
    Acquire, Checkpoint, CreateRun, DeleteRun, Grant, ReleaseMode, Renew, RequestAction,
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
    core.on_shard(at(10), Acquire { tenant: TENANT, key: KEY, worker: WORKER, token })
}

/// Flies on. The reply to every commit is lost once it happened, or once it got lost itself, and
/// then `meanwhile` happens.
fn fly<A>(
    admin: &mut StoreCoordinator<MapStore>,
    mut flight: Flight<'_, A>,
    happens: bool,
    mut meanwhile: impl FnMut(&mut StoreCoordinator<MapStore>),
) -> A {
    let mut store = admin.store().another_handle();
    let mut lost = false;
    loop {
        let told = match flight.step() {
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
        flight.tell(told);
    }
}

/// Flies on, and nothing goes wrong.
fn fly_plainly<A>(admin: &mut StoreCoordinator<MapStore>, mut flight: Flight<'_, A>) -> A {
    let mut store = admin.store().another_handle();
    loop {
        let told = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) => Reply::Committed(store.commit(txns)),
            Step::Done(answer) => return answer,
        };
        flight.tell(told);
    }
}

fn row(admin: &mut StoreCoordinator<MapStore>) -> ShardSummary {
    let mut rows = Vec::new();
    admin.list_shards_into(at(20), TENANT, RUN, ShardFilter::all(), &mut rows).unwrap();
    rows.remove(0)
}

#[test]
fn a_grant_is_known_again_by_its_token() {
    let (mut admin, mut core) = (administrator(), core());
    let granted = fly(&mut admin, acquire(&mut core), true, |admin| {
        let until = at(50);
        admin.request_action(at(11), TENANT, KEY, &ShardAction::Release, until, op(2)).unwrap();
    });
    let lease = granted.unwrap().into_inner().lease;
    assert_eq!(row(&mut admin).acquire_count, 1, "one grant");
    admin.renew(at(12), TENANT, &lease).expect("the grant is good");
}

/// Found by the campaign: the first try happened and somebody changed the record behind it; the
/// second one was lost, and what it had looked at is still there.
#[test]
fn a_renewal_is_not_denied_by_its_second_try() {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let lease = granted.unwrap().lease;
    let mut store = admin.store().another_handle();
    let mut flight = core.on_shard(at(20), Renew { tenant: TENANT, lease: &lease });
    let mut commits = 0;
    let told = loop {
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
            Step::Done(told) => break told,
        };
        flight.tell(answer);
    };
    let Err(RenewError::BackendError(InfraError::Transient { message, .. })) = told else {
        panic!("{told:?}");
    };
    assert!(commits == 2 && message.ends_with("it may have happened"), "{message}");
}

/// Found by the campaign: a store that shows an old version made the second try of a grant count
/// its fence from there, and then the first one came late. The second look shows less than the
/// first one did, so the flight looks again, and finds what it stored.
#[test]
fn a_grant_is_never_told_with_the_fence_of_another_try() {
    let (mut admin, mut core) = (administrator(), core());
    let mut store = admin.store().another_handle();
    let hot = vec![Read::Get(Key::ShardHot { tenant: TENANT, shard: KEY })];
    let old = store.read(hot).unwrap().remove(0);
    // Granted and given back once, so that the old version has another fence.
    let mut scratch = AcquireScratch::new();
    let first = admin.acquire_and_restore_into(at(2), TENANT, KEY, WORKER, &mut scratch);
    let lease = first.unwrap().lease;
    admin.release(at(3), TENANT, &lease, ReleaseMode::Clean, op(4)).unwrap();
    let mut flight = acquire(&mut core);
    let (mut reads, mut commits) = (0, 0);
    let told = loop {
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
            Step::Done(told) => break told,
        };
        flight.tell(answer);
    };
    let stored = row(&mut admin).fence_epoch;
    assert_eq!((commits, reads), (1, 3), "the old version was not believed");
    assert_eq!(told.unwrap().into_inner().lease.fence(), stored);
    assert_eq!(stored.as_raw(), lease.fence().as_raw() + 1, "the first try stands");
}

/// The store showed what it lost afterwards, and the second try counted its fence from there. Then
/// the first one came: no revision shows it, and the token is that of both.
#[test]
fn a_grant_is_known_again_by_its_fence_as_well() {
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
    let told = loop {
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
                    // Somebody else's commit took the revision that was lost.
                    let elsewhere = ShardKey::new(RunId::from_raw(99), KEY.shard());
                    overwrite(&mut admin, Key::Owner { tenant: TENANT, shard: elsewhere }, vec![]);
                    let outcome = store.commit(sent[0].clone()).remove(0);
                    assert!(matches!(outcome, Ok(CommitOutcome::Applied { .. })), "{outcome:?}");
                }
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Done(told) => break told,
        };
        flight.tell(answer);
    };
    assert_eq!((reads, sent.len()), (3, 2), "what was lost was believed, and not noticed later");
    assert_eq!(row(&mut admin).fence_epoch, lease.fence(), "the first try stands");
    assert!(matches!(told, Err(AcquireError::AlreadyLeased { .. })), "{told:?}");
}

#[test]
fn a_grant_that_was_shut_out_is_refused() {
    let (mut admin, mut core) = (administrator(), core());
    let refused = fly(&mut admin, acquire(&mut core), false, |admin| {
        let mut scratch = AcquireScratch::new();
        // The same name, as of two processes by mistake.
        admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch).unwrap();
    });
    assert!(matches!(refused, Err(AcquireError::AlreadyLeased { .. })), "{refused:?}");
    assert_eq!(row(&mut admin).acquire_count, 1);
}

/// Found by the campaign: a request of an administrator changed the record behind the renewal, so
/// that it was not known again, and then the run ended.
#[test]
fn a_renewal_that_stands_is_not_denied_because_the_run_is_over() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let lease = granted.unwrap().lease;
        let renew = Renew { tenant: TENANT, lease: &lease };
        let told = fly(&mut admin, core.on_shard(at(20), renew), happens, |admin| {
            let (until, release) = (at(50), ShardAction::Release);
            admin.request_action(at(21), TENANT, KEY, &release, until, op(2)).unwrap();
            admin.fail_run(at(22), TENANT, RUN, op(3)).unwrap();
        });
        match told {
            Err(RenewError::BackendError(InfraError::Transient { message, .. })) => {
                assert!(happens && message.ends_with("it may have happened"), "{message}");
            }
            Err(RenewError::RunTerminal { .. }) => assert!(!happens),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_checkpoint_is_told_as_it_was_although_the_lease_is_gone() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let lease = granted.unwrap().lease;
        let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
        let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
        let told = fly(&mut admin, core.on_shard(at(11), checkpoint), happens, |admin| {
            admin.revoke_lease(at(11), TENANT, KEY, op(9)).unwrap();
        });
        match told {
            Ok(told) => assert!(told.is_executed() && happens),
            Err(CheckpointError::StaleFence { .. }) => assert!(!happens),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(row(&mut admin).last_key.is_some(), happens);
    }
}

#[test]
fn a_commit_that_got_lost_is_made_again() {
    let (mut admin, mut core) = (administrator(), core());
    let granted = fly(&mut admin, acquire(&mut core), false, |_| ());
    assert!(granted.unwrap().is_executed());
    assert_eq!(row(&mut admin).acquire_count, 1);
}

/// The request is not lost but late, and meanwhile the run was deleted, although not all of it.
#[test]
fn a_commit_that_comes_late_is_shut_out_by_the_deletion_of_the_run() {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let lease = granted.unwrap().lease;
    let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
    let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
    let (mut store, mut late) = (admin.store().another_handle(), None);
    let mut flight = core.on_shard(at(11), checkpoint);
    let told = loop {
        let told = match flight.step() {
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
            Step::Done(told) => break told,
        };
        flight.tell(told);
    };
    assert!(matches!(told, Err(CheckpointError::ShardNotFound { .. })), "{told:?}");
    let outcome = store.commit(late.unwrap()).remove(0);
    assert!(matches!(outcome, Ok(CommitOutcome::Conflict(_))), "{outcome:?}");
}

/// Flies a checkpoint whose first commit is late, and whose later ones are answered by `then`.
/// Answers what was told, and what became of the first.
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
    let told = loop {
        let told = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Wait(_) => Reply::Waited,
            Step::Commit(txns) if late.is_none() => {
                late = Some(txns);
                Reply::Committed(vec![Ok(CommitOutcome::Unknown)])
            }
            Step::Commit(_) => Reply::Committed(vec![then(&mut admin)]),
            Step::Done(told) => break told,
        };
        flight.tell(told);
    };
    let Err(CheckpointError::BackendError(error)) = told else { panic!("{told:?}") };
    (error, store.commit(late.unwrap()).remove(0).unwrap())
}

#[test]
fn a_refusal_of_the_store_does_not_deny_a_commit_that_comes_late() {
    let (error, late) = checkpoint_late(|_| {
        let (operation, message) = ("commit", "full".to_owned());
        Err(InfraError::Refused { operation, why: StoreRefusal::NoSpace, message })
    });
    assert!(matches!(late, CommitOutcome::Applied { .. }), "{late:?}");
    assert!(error.is_retryable(), "trying again tells what happened: {error}");
    assert!(error.to_string().contains("may have happened"), "{error}");
}

/// Found by the simulator: the registry says its word again, and the store is full by then.
#[test]
fn a_refusal_does_not_deny_a_registration_of_a_worker_that_comes_late() {
    let (admin, mut core) = (administrator(), core());
    let (mut store, mut late) = (admin.store().another_handle(), None);
    let mut flight = core.register_worker(at(11), TENANT, WORKER);
    let told = loop {
        let told = match flight.step() {
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
            Step::Done(told) => break told,
        };
        flight.tell(told);
    };
    let Err(WorkerError::BackendError(error)) = told else { panic!("{told:?}") };
    assert!(error.to_string().contains("may have happened"), "{error}");
    let late = store.commit(late.unwrap()).remove(0);
    assert!(matches!(late, Ok(CommitOutcome::Applied { .. })), "{late:?}");
}

#[test]
fn lost_races_do_not_deny_a_commit_that_comes_late() {
    let (error, _) = checkpoint_late(|admin| {
        let key = Key::RunHead { tenant: TENANT, run: RUN };
        let mut answers = admin.store_mut().read(vec![Read::Get(key)]).unwrap();
        let Some(Answer::Value(value)) = answers.pop() else { panic!("a value") };
        Ok(CommitOutcome::Conflict(Conflict::new(vec![(key, value)]).unwrap()))
    });
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("may have happened"), "{error}");
}

/// Found by the simulator: the look that should settle a unresolved shows damaged bytes.
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
    let told = loop {
        let told = match flight.step() {
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
            Step::Done(told) => break told,
        };
        flight.tell(told);
    };
    let Err(CheckpointError::BackendError(error)) = told else { panic!("{told:?}") };
    assert!(matches!(error, InfraError::Corruption { .. }), "{error}");
    assert!(error.to_string().ends_with("it may have happened"), "{error}");
}

/// Found by the simulator: the run is gone, and taking its shards away fails.
#[test]
fn a_deletion_that_stops_half_way_is_not_denied() {
    let mut admin = administrator();
    admin.cancel_run(at(11), TENANT, RUN, op(8)).unwrap();
    admin.store_mut().inject(Fault::None);
    admin.store_mut().inject(Fault::Fail);
    let told = admin.delete_run(at(11), TENANT, RUN, op(9));
    let Err(DeleteRunError::BackendError(error)) = told else { panic!("{told:?}") };
    assert!(error.to_string().ends_with("it may have happened"), "{error}");
    assert!(admin.delete_run(at(11), TENANT, RUN, op(9)).unwrap().is_replay());
}

/// Nobody can tell whether it happened: the log, which would, has forgotten.
#[test]
fn a_checkpoint_that_the_log_may_have_forgotten_is_not_denied() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let lease = granted.unwrap().lease;
        let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
        let checkpoint = Checkpoint { tenant: TENANT, lease: &lease, cursor, op_id: op(7) };
        let told = fly(&mut admin, core.on_shard(at(11), checkpoint), happens, |admin| {
            for number in 0..OP_LOG_CAP as u64 {
                let key = [b'd', number as u8];
                let cursor = CursorUpdate::try_from_parts(Some(&key), None).unwrap();
                admin.checkpoint(at(11), TENANT, &lease, cursor, op(100 + number)).unwrap();
            }
        });
        let Err(CheckpointError::BackendError(error)) = told else { panic!("{told:?}") };
        assert!(error.is_retryable(), "{error}");
        assert!(error.to_string().contains("may have happened"), "{error}");
    }
}

/// The owner may have fulfilled the request before the administrator looked again.
#[test]
fn a_request_that_may_have_been_fulfilled_is_not_denied() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let mut scratch = AcquireScratch::new();
        let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
        let (lease, action, op_id) = (granted.unwrap().lease, ShardAction::Release, op(7));
        let expires_at = at(50);
        let asked = RequestAction { tenant: TENANT, key: KEY, action, expires_at, op_id };
        let told = fly(&mut admin, core.on_shard(at(11), asked), happens, |admin| {
            admin.release(at(11), TENANT, &lease, ReleaseMode::Clean, op(8)).unwrap();
        });
        let Err(RequestActionError::BackendError(error)) = told else { panic!("{told:?}") };
        assert!(error.is_retryable() && error.to_string().contains("may have"), "{error}");
    }
}

/// A checkpoint fulfils nothing.
#[test]
fn a_request_that_got_lost_is_made_again() {
    let (mut admin, mut core) = (administrator(), core());
    let mut scratch = AcquireScratch::new();
    let granted = admin.acquire_and_restore_into(at(10), TENANT, KEY, WORKER, &mut scratch);
    let (lease, action, op_id) = (granted.unwrap().lease, ShardAction::Release, op(7));
    let asked = RequestAction { tenant: TENANT, key: KEY, action, expires_at: at(50), op_id };
    let told = fly(&mut admin, core.on_shard(at(11), asked), false, |admin| {
        let cursor = CursorUpdate::try_from_parts(Some(b"c"), None).unwrap();
        admin.checkpoint(at(11), TENANT, &lease, cursor, op(8)).unwrap();
    });
    assert!(told.unwrap().is_executed());
}

/// The renewal changes nothing that is stored, so it looks as if it had happened.
#[test]
fn a_renewal_that_got_lost_does_not_outlive_its_run() {
    let (mut admin, mut core) = (administrator(), core());
    let lease = fly_plainly(&mut admin, acquire(&mut core)).unwrap().into_inner().lease;
    admin.cancel_run(at(10), TENANT, RUN, op(8)).unwrap();
    let renewed = fly(&mut admin, core.renew(at(10), TENANT, &lease), false, |_| ());
    assert!(matches!(renewed, Err(RenewError::RunTerminal { .. })), "{renewed:?}");
}

/// Handles need only differ in their nonce, not by much.
#[test]
fn no_two_grants_of_different_handles_have_one_token() {
    let mut tokens = std::collections::BTreeSet::new();
    for nonce in 0..64 {
        let mut core = Core::new(StoreConfig::new(nonce), StoreLimits::GENEROUS);
        for _ in 0..64 {
            assert!(tokens.insert(core.fresh_grant().as_raw()), "nonce {nonce}");
        }
    }
}

/// Two administrators delete one run, and the request of one is lost: it happened once.
#[test]
fn a_deletion_by_somebody_else_is_not_told_as_our_own() {
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        admin.cancel_run(at(9), TENANT, RUN, op(2)).unwrap();
        core.events = Some(EventCollector::default());
        let ours = DeleteRun { tenant: TENANT, run: RUN, op_id: op(8) };
        let told = fly(&mut admin, core.delete(at(11), ours), happens, |admin| {
            let theirs = admin.delete_run(at(11), TENANT, RUN, op(9)).unwrap();
            assert_eq!(theirs.is_executed(), !happens);
        });
        assert_eq!(told.unwrap().is_executed(), happens);
        assert_eq!(core.events.unwrap().drain().len(), usize::from(happens));
    }
}

/// A run has no operation id to be known by: it is ours if it is as we made it.
#[test]
fn a_run_that_somebody_went_on_with_is_still_our_own() {
    let (run, config) =
        (RunId::from_raw(6), administrator().get_run(TENANT, RUN).unwrap().config());
    for happens in [true, false] {
        let (mut admin, mut core) = (administrator(), core());
        let create = CreateRun { tenant: TENANT, run, config };
        let told = fly(&mut admin, core.on_run(at(11), create), happens, |admin| {
            let made = admin.create_run(at(12), TENANT, run, config);
            assert_eq!(made.is_ok(), !happens);
            admin.cancel_run(at(12), TENANT, run, op(3)).unwrap();
        });
        match told {
            Ok(_) => assert!(happens),
            Err(error) => {
                assert!(!happens && error == CreateRunError::RunAlreadyExists { run }, "{error}");
            }
        }
    }
}
