//! The two adapters hand on what they are given, and waiting ends when it should.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use gossip_contracts::coordination::CursorUpdate;

use crate::test_fixtures::{LEASE, RUN, TENANT, at, key, op, two_shards, worker};
use crate::{
    AcquireScratch, AsyncCoordinationBackend, AsyncCoordinationFacade, Blocking, CheckpointError,
    ClaimError, CoordinationBackend, CoordinationFacade, IdempotentOutcome, InMemoryCoordinator,
    Ready, RunManagement, RunStatus, ShardClaiming, ShardFilter, ShardStatus, WorkerState,
    block_on,
};

fn both_ways() -> Blocking<Ready<InMemoryCoordinator>> {
    Blocking::new(Ready::new(two_shards()))
}

/// Holds at compile time: both adapters have the whole face of a backend.
const fn is_whole<B: CoordinationFacade>() {}
const fn is_whole_async<B: AsyncCoordinationFacade>() {}
const _: () = is_whole::<Blocking<Ready<InMemoryCoordinator>>>();
const _: () = is_whole_async::<Ready<InMemoryCoordinator>>();
const _: () = is_whole_async::<Ready<Blocking<Ready<InMemoryCoordinator>>>>();

#[test]
fn the_coordinator_keeps_its_promises_through_both_adapters() {
    let mut backend = both_ways();
    let mut scratch = AcquireScratch::new();
    let taken = backend.acquire_and_restore_into(at(10), TENANT, key(0), worker(1), &mut scratch);
    let lease = taken.unwrap().lease;
    let cursor = CursorUpdate::with_last_key(b"c");
    assert!(backend.checkpoint(at(11), TENANT, &lease, cursor, op(1)).unwrap().is_executed());
    assert!(backend.checkpoint(at(12), TENANT, &lease, cursor, op(1)).unwrap().is_replay());
    let other = CursorUpdate::with_last_key(b"b");
    let refused = backend.checkpoint(at(13), TENANT, &lease, other, op(2));
    assert!(matches!(refused, Err(CheckpointError::CursorRegression { .. })));

    let mut renewals = Vec::new();
    backend.renew_many(at(20), TENANT, std::slice::from_ref(&lease), &mut renewals);
    assert_eq!(renewals[0].as_ref().unwrap().new_deadline, at(20 + LEASE));
    let done = backend.complete(at(21), TENANT, &lease, cursor, op(3)).unwrap();
    assert_eq!(done, IdempotentOutcome::Executed(()));
    let inside = backend.get_ref().get_ref().shard(TENANT, key(0)).unwrap();
    assert_eq!(inside.record().status(), ShardStatus::Done);
}

#[test]
fn runs_claims_and_workers_go_through_both_adapters() {
    let mut backend = both_ways();
    let mut scratch = AcquireScratch::new();
    for number in 0..2 {
        let claim = backend.claim_next_available(at(5), TENANT, RUN, worker(number), &mut scratch);
        assert_eq!(claim.unwrap().lease.owner(), worker(number));
    }
    let none = backend.claim_next_available(at(6), TENANT, RUN, worker(9), &mut scratch);
    let earliest_deadline = Some(at(5 + LEASE));
    assert_eq!(none.unwrap_err(), ClaimError::NoneAvailable { earliest_deadline });

    let mut shards = Vec::new();
    backend.list_shards_into(at(6), TENANT, RUN, ShardFilter::default(), &mut shards).unwrap();
    assert_eq!(shards.len(), 2);
    backend.register_worker(at(6), TENANT, worker(1)).unwrap();
    backend.heartbeat(at(7), TENANT, worker(1), WorkerState::Draining).unwrap();
    let mut workers = Vec::new();
    backend.list_workers_into(at(8), TENANT, &mut workers).unwrap();
    assert_eq!(workers[0].state, WorkerState::Draining);
    backend.cancel_run(at(9), TENANT, RUN, op(1)).unwrap();
    assert_eq!(backend.get_run(TENANT, RUN).unwrap().status(), RunStatus::Cancelled);
}

#[test]
fn a_ready_future_works_when_polled_and_not_before() {
    let mut backend = Ready::new(two_shards());
    let mut scratch = AcquireScratch::new();
    drop(backend.acquire_and_restore_into(at(10), TENANT, key(0), worker(1), &mut scratch));
    let untouched = backend.get_ref().shard(TENANT, key(0)).unwrap();
    assert!(untouched.record().lease_deadline().is_none());

    let acquire = backend.acquire_and_restore_into(at(10), TENANT, key(0), worker(1), &mut scratch);
    let polled = pin!(acquire).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(_))));
}

#[test]
fn waiting_ends_when_another_thread_wakes_it() {
    let polls = AtomicUsize::new(0);
    let answer = thread::scope(|scope| {
        let waits_for_a_friend = poll_fn(|context| {
            // The third poll is ready; the second asks another thread to call again.
            match polls.fetch_add(1, Ordering::SeqCst) {
                0 => Poll::Pending,
                1 => {
                    let waker = context.waker().clone();
                    scope.spawn(move || waker.wake());
                    Poll::Pending
                }
                _ => Poll::Ready(7),
            }
        });
        block_on(waits_for_a_friend)
    });
    assert_eq!((answer, polls.into_inner()), (7, 3));
}

#[test]
fn a_wake_during_the_poll_is_not_lost_when_the_parking_token_is() {
    let mut polls = 0;
    let wakes_itself = poll_fn(|context| {
        polls += 1;
        if polls == 3 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        // Uses up the token that the wake left behind: only the flag remains.
        thread::park_timeout(std::time::Duration::ZERO);
        Poll::Pending
    });
    block_on(wakes_itself);
    assert_eq!(polls, 3);
}
