//! Sessions: what goes stale, what only grows or narrows, and what a failed end gives back.

use gossip_contracts::coordination::{
    CursorUpdate, ShardSpec, ShardSpecRef, plan_split_replace_at_points_initial_cursor,
    plan_split_residual_at_point,
};
use rstest::rstest;

use crate::protocol::{OfferTerms, ReleaseMode};
use crate::test_fixtures::{LEASE, RUN, TENANT, at, key, op, two_shards, worker};
use crate::{
    AcceptError, AcquireError, AcquireScratch, CapacityHint, CheckpointError, CompleteError,
    CoordinationBackend, HandoffId, IdempotentOutcome, InMemoryCoordinator, InfraError, Lease,
    OpSequence, ParkContext, ParkReason, RenewResult, SessionState, ShardClaiming, ShardStatus,
    WorkerSession,
};

const MOVE: HandoffId = HandoffId::from_raw(5);

fn session(backend: &mut InMemoryCoordinator) -> WorkerSession<'_, InMemoryCoordinator> {
    WorkerSession::new(backend, at(10), TENANT, key(0), worker(1)).unwrap()
}

fn until(key: &[u8]) -> CursorUpdate<'_> {
    CursorUpdate::with_last_key(key)
}

fn terms(deadline: u64) -> OfferTerms {
    OfferTerms { handoff: MOVE, destination: worker(2), deadline: at(deadline) }
}

fn status(backend: &InMemoryCoordinator) -> ShardStatus {
    backend.shard(TENANT, key(0)).unwrap().record().status()
}

#[test]
fn a_session_knows_who_holds_what() {
    let mut backend = two_shards();
    let session = session(&mut backend);
    assert_eq!(session.tenant(), TENANT);
    assert_eq!(session.worker(), worker(1));
    assert_eq!(session.shard_key(), key(0));
    assert_eq!(session.lease().deadline(), at(10 + LEASE));
    assert_eq!(session.spec(), ShardSpecRef::new(b"a", b"m", b""));
    assert!(session.cursor().is_initial());
    assert_eq!(session.attempts(), 1);
    let capacity = CapacityHint { available_count: 1, earliest_deadline: Some(at(10 + LEASE)) };
    assert_eq!(session.capacity(), capacity);
    assert_eq!(session.initial_snapshot().status(), ShardStatus::Active);
    assert_eq!(session.initial_snapshot().parent(), None);
}

#[test]
fn a_held_shard_is_not_given_twice() {
    let mut backend = two_shards();
    drop(session(&mut backend));
    let again = WorkerSession::new(&mut backend, at(11), TENANT, key(0), worker(1));
    assert!(matches!(again, Err(AcquireError::AlreadyLeased { .. })));
}

#[test]
fn checkpoints_leave_the_snapshot_as_it_was() {
    let mut backend = two_shards();
    let mut session = session(&mut backend);
    session.checkpoint(at(11), until(b"c"), op(1)).unwrap();
    assert!(session.cursor().is_initial());
    assert!(session.initial_snapshot().cursor().is_initial());
    drop(session);
    let stored = backend.shard(TENANT, key(0)).unwrap();
    assert_eq!(stored.cursor().last_key(), Some(b"c".as_slice()));
}

#[test]
fn a_renewal_moves_the_deadline_and_the_capacity() {
    let mut backend = two_shards();
    let mut session = session(&mut backend);
    let renewed = session.renew(at(40)).unwrap();
    assert_eq!(renewed.new_deadline, at(40 + LEASE));
    assert_eq!(session.lease().deadline(), at(40 + LEASE));
    assert_eq!(session.capacity().earliest_deadline, Some(at(40 + LEASE)));
}

#[test]
fn replies_that_overtake_each_other_never_shorten_the_lease() {
    let mut backend = two_shards();
    let mut scratch = AcquireScratch::new();
    let acquired =
        backend.acquire_and_restore_into(at(10), TENANT, key(0), worker(1), &mut scratch);
    let mut state = SessionState::new(acquired.unwrap());
    let reply = |deadline, available_count| RenewResult {
        new_deadline: at(deadline),
        capacity: CapacityHint { available_count, earliest_deadline: None },
        offer: None,
        request: None,
        run_paused: false,
    };
    state.renewed(&reply(300, 7));
    state.renewed(&reply(200, 8));
    assert_eq!((state.lease().deadline(), state.capacity().available_count), (at(300), 8));
    state.extend_to(at(250));
    assert_eq!(state.lease().deadline(), at(300));
}

#[test]
fn a_detached_session_continues_on_another_handle() {
    let mut backend = two_shards();
    let mut session = session(&mut backend);
    let whole = ShardSpec::try_from(session.spec()).unwrap();
    let plan = plan_split_residual_at_point(whole.as_spec_ref(), b"h").unwrap();
    session.split_residual(at(11), &plan, op(1)).unwrap();
    let mut state = session.detach();
    // The backend is free meanwhile: another thread renews the lease.
    let renewed = backend.renew(at(40), TENANT, state.lease()).unwrap();
    state.extend_to(renewed.new_deadline);

    let session = WorkerSession::attach(&mut backend, state);
    assert_eq!(session.lease().deadline(), at(40 + LEASE));
    assert_eq!(session.spec(), ShardSpecRef::new(b"a", b"h", b""));
    assert_eq!(session.spec(), session.restored().spec.as_spec_ref());
    assert_eq!(session.cursor(), session.restored().cursor.as_update());
    session.complete(at(20 + LEASE), until(b"c"), op(2)).unwrap();
    assert_eq!(status(&backend), ShardStatus::Done);
}

#[test]
fn residual_splits_narrow_the_session_and_replays_never_widen_it() {
    let mut backend = two_shards();
    let mut session = session(&mut backend);
    let whole = ShardSpec::try_from(session.spec()).unwrap();
    let at_h = plan_split_residual_at_point(whole.as_spec_ref(), b"h").unwrap();
    let first = session.split_residual(at(11), &at_h, op(1)).unwrap().into_inner().residual;
    assert_eq!(session.spec(), ShardSpecRef::new(b"a", b"h", b""));
    assert_eq!(session.initial_snapshot().spawned(), [first]);

    let narrower = ShardSpec::try_from(session.spec()).unwrap();
    let at_d = plan_split_residual_at_point(narrower.as_spec_ref(), b"d").unwrap();
    let second = session.split_residual(at(12), &at_d, op(2)).unwrap().into_inner().residual;
    let replayed = session.split_residual(at(13), &at_h, op(1)).unwrap();
    assert!(replayed.is_replay());
    assert_eq!(session.spec(), ShardSpecRef::new(b"a", b"d", b""));
    assert_eq!(session.initial_snapshot().spec(), session.spec());
    assert_eq!(session.initial_snapshot().spawned(), [first, second]);
    session.complete(at(14), until(b"c"), op(3)).unwrap();
}

#[test]
fn a_replayed_split_that_the_session_never_heard_of_narrows_it() {
    let mut backend = two_shards();
    let mut session = session(&mut backend);
    let whole = ShardSpec::try_from(session.spec()).unwrap();
    let plan = plan_split_residual_at_point(whole.as_spec_ref(), b"h").unwrap();
    // The reply is lost: the backend has split, the session does not know.
    let lease = session.lease().clone();
    session = {
        drop(session);
        backend.split_residual(at(11), TENANT, &lease, &plan, op(1)).unwrap();
        let mut scratch = AcquireScratch::new();
        let mut fresh = two_shards();
        let before =
            fresh.acquire_and_restore_into(at(10), TENANT, key(0), worker(1), &mut scratch);
        WorkerSession::from_acquire_result(&mut backend, before.unwrap())
    };
    assert_eq!(session.spec(), whole.as_spec_ref());
    assert!(session.split_residual(at(12), &plan, op(1)).unwrap().is_replay());
    assert_eq!(session.spec().end, b"h");
    assert_eq!(session.initial_snapshot().spawned().len(), 1);
}

#[test]
fn a_failed_end_gives_the_session_back_to_try_again() {
    let mut backend = two_shards();
    let session = session(&mut backend);
    let (mut session, error) =
        session.complete(at(11), until(b"x"), op(1)).unwrap_err().into_parts();
    assert!(matches!(error, CompleteError::CursorOutOfBounds(_)));
    session.renew(at(12)).unwrap();
    let done = session.complete(at(13), until(b"l"), op(2)).unwrap();
    assert_eq!(done, IdempotentOutcome::Executed(()));
    assert_eq!(status(&backend), ShardStatus::Done);
}

#[test]
fn a_question_mark_keeps_the_error_of_the_operation() {
    fn end(backend: &mut InMemoryCoordinator) -> Result<(), CompleteError> {
        session(backend).complete(at(11), until(b"x"), op(1))?;
        Ok(())
    }
    let mut backend = two_shards();
    assert!(matches!(end(&mut backend), Err(CompleteError::CursorOutOfBounds(_))));
    assert_eq!(status(&backend), ShardStatus::Active);
}

#[test]
fn a_session_error_speaks_for_its_operation_alone() {
    let mut backend = two_shards();
    let failed = session(&mut backend).complete(at(11), until(b"x"), op(1)).unwrap_err();
    assert_eq!(failed.to_string(), failed.error.to_string());
    assert!(std::error::Error::source(&failed).is_none());
    assert!(format!("{failed:?}").starts_with("SessionError { error: CursorOutOfBounds"));
}

#[test]
fn parking_releasing_and_splitting_end_the_session() {
    let mut backend = two_shards();
    session(&mut backend).park(at(11), ParkReason::NotFound, op(1)).unwrap();
    assert_eq!(status(&backend), ShardStatus::Parked);

    let mut backend = two_shards();
    session(&mut backend).release(at(11), ReleaseMode::Clean, op(1)).unwrap();
    assert_eq!(status(&backend), ShardStatus::Active);
    assert!(backend.shard(TENANT, key(0)).unwrap().record().lease().is_none());

    let mut backend = two_shards();
    let session = session(&mut backend);
    let whole = ShardSpec::try_from(session.spec()).unwrap();
    let plan = plan_split_replace_at_points_initial_cursor(whole.as_spec_ref(), &[b"g"]).unwrap();
    let split = session.split_replace(at(11), &plan, op(1)).unwrap().into_inner();
    assert_eq!((split.children.len(), status(&backend)), (2, ShardStatus::Split));
}

#[test]
fn an_offer_freezes_its_session_until_it_is_withdrawn() {
    let mut backend = two_shards();
    let mut session = session(&mut backend);
    session.offer(at(11), terms(50), until(b"c"), op(1)).unwrap();
    let frozen = session.checkpoint(at(12), until(b"d"), op(2));
    assert!(matches!(frozen, Err(CheckpointError::Offered { handoff: MOVE, .. })));
    session.withdraw(at(13), MOVE, op(3)).unwrap();
    session.checkpoint(at(14), until(b"d"), op(4)).unwrap();
}

#[test]
fn an_accepted_offer_resumes_at_the_cursor_of_the_source() {
    let mut backend = two_shards();
    let mut source = session(&mut backend);
    source.offer(at(11), terms(50), until(b"c"), op(1)).unwrap();
    let zombie = source.lease().clone();
    drop(source);
    let stranger = WorkerSession::accept(&mut backend, at(12), TENANT, key(0), worker(3), MOVE);
    assert_eq!(stranger.map(|_| ()), Err(AcceptError::NotDestination));

    let destination =
        WorkerSession::accept(&mut backend, at(12), TENANT, key(0), worker(2), MOVE).unwrap();
    assert_eq!(destination.cursor().last_key(), Some(b"c".as_slice()));
    assert_eq!(destination.lease().fence(), zombie.fence().increment());
    drop(destination);
    let stale = backend.checkpoint(at(13), TENANT, &zombie, until(b"d"), op(2));
    assert!(matches!(stale, Err(CheckpointError::StaleFence { .. })));
}

#[test]
fn a_claimed_shard_becomes_a_session_and_its_scratch_is_free_again() {
    let mut backend = two_shards();
    let mut scratch = AcquireScratch::new();
    let claimed = backend.claim_next_available(at(5), TENANT, RUN, worker(1), &mut scratch);
    let session = WorkerSession::from_acquire_result(&mut backend, claimed.unwrap());
    scratch.reset();
    let start = session.spec().start.to_vec();
    assert!(!start.is_empty());
    session.complete(at(6), until(&start), op(1)).unwrap();
}

/// The sequence that the record has executed.
fn executed(backend: &InMemoryCoordinator) -> u64 {
    backend.shard(TENANT, key(0)).unwrap().op_log().sequence().as_raw()
}

#[test]
fn operations_of_a_session_are_counted_and_its_lease_has_no_sequence() {
    let mut backend = two_shards();
    let mut session = session(&mut backend);
    session.checkpoint(at(11), until(b"b"), op(1)).unwrap();
    session.renew(at(12)).unwrap();
    session.checkpoint(at(12), until(b"c"), op(2)).unwrap();
    assert_eq!(session.lease().sequence(), OpSequence::NONE);
    session.release(at(13), ReleaseMode::Clean, op(3)).unwrap();
    assert_eq!(executed(&backend), 3);
}

#[test]
fn park_with_a_text_is_counted_too() {
    let mut backend = two_shards();
    let mut session = session(&mut backend);
    session.checkpoint(at(11), until(b"b"), op(1)).unwrap();
    let (reason, text) = (ParkReason::Other, ParkContext::new("why"));
    session.park_with_context(at(12), reason, text, op(2)).unwrap();
    assert_eq!(executed(&backend), 2);
}

#[test]
fn unsettled_operation_is_issued_again_with_its_first_sequence() {
    let mut backend = two_shards();
    let mut held = held_by(&mut backend);
    let issue = |held: &mut SessionState, id| held.issue(op(id)).sequence().as_raw();
    assert_eq!([issue(&mut held, 1), issue(&mut held, 2), issue(&mut held, 1)], [1, 2, 1]);
    held.settle::<(), CheckpointError>(op(1), Ok(())).unwrap();
    assert_eq!(issue(&mut held, 1), 3, "a settled id is a new operation");
}

#[rstest]
#[case::store_failed(CheckpointError::BackendError(lost()), 1)]
#[case::too_old(too_old(), 1)]
#[case::refused(CheckpointError::CheckpointMissingKey, 2)]
fn retry_keeps_its_sequence_unless_the_first_call_was_refused(
    #[case] error: CheckpointError,
    #[case] expected: u64,
) {
    let mut backend = two_shards();
    let mut held = held_by(&mut backend);
    held.issue(op(1));
    held.settle::<(), _>(op(1), Err(error)).unwrap_err();
    assert_eq!(held.issue(op(1)).sequence().as_raw(), expected);
}

/// Otherwise an id that the session forgot would be executed under a second sequence.
#[test]
fn session_with_many_unsettled_operations_repeats_its_last_sequence() {
    let mut backend = two_shards();
    let mut held = held_by(&mut backend);
    let issue = |held: &mut SessionState, id| held.issue(op(id)).sequence().as_raw();
    for id in 1..=16 {
        assert_eq!(issue(&mut held, id), id);
    }
    assert_eq!([issue(&mut held, 17), issue(&mut held, 18), issue(&mut held, 3)], [16, 16, 3]);
    held.settle::<(), CheckpointError>(op(3), Ok(())).unwrap();
    assert_eq!(issue(&mut held, 18), 17);
}

fn held_by(backend: &mut InMemoryCoordinator) -> SessionState {
    let mut scratch = AcquireScratch::new();
    let acquired =
        backend.acquire_and_restore_into(at(10), TENANT, key(0), worker(1), &mut scratch);
    SessionState::new(acquired.unwrap())
}

fn lost() -> InfraError {
    InfraError::Transient { operation: "shard.commit", message: "timed out".to_owned() }
}

fn too_old() -> CheckpointError {
    let (presented, executed) = (OpSequence::NONE.next(), OpSequence::NONE.next());
    CheckpointError::OperationTooOld { op_id: op(1), presented, executed }
}

/// Every checkpoint repeats one key, so only the log and the sequence recognize a duplicate.
#[rstest]
#[case::next(1, true)]
#[case::last_in_the_log(15, true)]
#[case::first_that_was_dropped(16, false)]
#[case::hundred(100, false)]
#[case::ten_thousand(10_000, false)]
fn delayed_duplicate_is_replayed_or_too_old(#[case] delay: u64, #[case] in_log: bool) {
    let mut backend = two_shards();
    let mut held = held_by(&mut backend);
    let first = held.issue(op(1));
    let send = |backend: &mut InMemoryCoordinator, lease: &Lease, id| {
        backend.checkpoint(at(11), TENANT, lease, until(b"c"), op(id))
    };
    send(&mut backend, &first, 1).unwrap();
    for id in 2..2 + delay {
        let lease = held.issue(op(id));
        let answer = send(&mut backend, &lease, id);
        assert!(held.settle(op(id), answer).unwrap().is_executed());
    }
    let late = send(&mut backend, &first, 1);
    match in_log {
        true => assert!(late.unwrap().is_replay()),
        false => {
            assert!(matches!(late, Err(CheckpointError::OperationTooOld { .. })), "{late:?}");
        }
    }
}
