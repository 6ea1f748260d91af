//! Each operation emits its event exactly once, in commit order, and no other event.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, ShardSpecRef, plan_split_replace_at_points_initial_cursor,
    plan_split_residual_at_point,
};
use gossip_contracts::identity::{Redacted, RunId, ShardId, TenantId};

use crate::error_samples_tests::event_kinds;
use crate::protocol::{OfferTerms, ReleaseMode};
use crate::test_fixtures::{
    LEASE, RUN, TENANT, acquire, at, fence, key, op, run_config, two_shards, worker,
};
use crate::{
    AcquireError, AcquireScratch, CheckpointError, CollectEvents, CoordinationBackend,
    EventCollector, EventKind, HandoffId, InMemoryCoordinator, Lease, ParkReason, RedactedKey,
    RunManagement, RunStatus, ShardAction, ShardStatus, StateTransitionEvent,
};

const FIRST: ShardId = ShardId::from_raw(0);
const WHOLE: ShardSpecRef<'static> = ShardSpecRef::new(b"a", b"m", b"");
const MOVE: HandoffId = HandoffId::from_raw(5);
const TERMS: OfferTerms = OfferTerms { handoff: MOVE, destination: worker(2), deadline: at(60) };

/// Runs `call` and returns its result with the kinds of the events.
fn collect<R>(
    backend: &mut InMemoryCoordinator,
    call: impl FnOnce(&mut InMemoryCoordinator) -> R,
) -> (R, Vec<EventKind>) {
    let mut events = EventCollector::new();
    let answer = backend.with_events(&mut events, call);
    (answer, events.drain().into_iter().map(|event| event.kind).collect())
}

/// Runs an operation twice: the first run emits `expected`, the second nothing.
#[track_caller]
fn assert_emitted_once<R, E: std::fmt::Debug>(
    backend: &mut InMemoryCoordinator,
    expected: EventKind,
    mut call: impl FnMut(&mut InMemoryCoordinator) -> Result<R, E>,
) {
    let (answer, events) = collect(backend, &mut call);
    answer.unwrap();
    assert_eq!(events, [expected]);
    let (replayed, events) = collect(backend, &mut call);
    replayed.unwrap();
    assert_eq!(events, [], "a replay emits nothing");
}

fn held() -> (InMemoryCoordinator, Lease) {
    let mut backend = two_shards();
    let lease = acquire(&mut backend, 10, 0, 1);
    (backend, lease)
}

fn until(key: &[u8]) -> CursorUpdate<'_> {
    CursorUpdate::with_last_key(key)
}

#[test]
fn every_grant_emits_an_event() {
    let mut backend = two_shards();
    let mut scratch = AcquireScratch::new();
    let grant = |fence_epoch, number| EventKind::ShardAcquired {
        shard: FIRST,
        worker: Redacted::new(worker(number)),
        fence_epoch,
    };
    let (lease, events) = collect(&mut backend, |backend| {
        let answer =
            backend.acquire_and_restore_into(at(10), TENANT, key(0), worker(1), &mut scratch);
        answer.unwrap().lease
    });
    assert_eq!(events, [grant(fence(2), 1)]);
    backend.offer(at(11), TENANT, &lease, TERMS, until(b"c"), op(1)).unwrap();
    let (accepted, events) = collect(&mut backend, |backend| {
        backend.accept(at(12), TENANT, key(0), worker(2), MOVE, &mut scratch).map(|_| ())
    });
    accepted.unwrap();
    assert_eq!(events, [grant(fence(3), 2)]);
}

#[test]
fn every_renewal_emits_an_event() {
    let (mut backend, lease) = held();
    let renewed =
        |deadline| EventKind::ShardLeaseRenewed { shard: FIRST, new_deadline: at(deadline) };
    let (_, events) =
        collect(&mut backend, |backend| backend.renew(at(20), TENANT, &lease).unwrap());
    assert_eq!(events, [renewed(20 + LEASE)]);
    let second = acquire(&mut backend, 21, 1, 1);
    let (results, events) = collect(&mut backend, |backend| {
        let mut results = Vec::new();
        backend.renew_many(at(30), TENANT, &[lease, second], &mut results);
        results
    });
    assert!(results.iter().all(Result::is_ok));
    let other =
        EventKind::ShardLeaseRenewed { shard: ShardId::from_raw(1), new_deadline: at(30 + LEASE) };
    assert_eq!(events, [renewed(30 + LEASE), other]);
}

#[test]
fn progress_and_ends_are_emitted_once() {
    let (mut backend, lease) = held();
    let last_key = RedactedKey::new(Some(b"c"));
    let moved = EventKind::ShardCheckpointed { shard: FIRST, last_key };
    assert_emitted_once(&mut backend, moved, |backend| {
        backend.checkpoint(at(11), TENANT, &lease, until(b"c"), op(1))
    });
    assert_emitted_once(&mut backend, EventKind::ShardCompleted { shard: FIRST }, |backend| {
        backend.complete(at(12), TENANT, &lease, until(b"d"), op(2))
    });
    let (mut backend, lease) = held();
    let parked = EventKind::ShardParked { shard: FIRST, reason: ParkReason::NotFound };
    assert_emitted_once(&mut backend, parked, |backend| {
        backend.park_shard(at(11), TENANT, &lease, ParkReason::NotFound, op(1))
    });
    let unparked = EventKind::ShardUnparked { shard: FIRST, new_fence_epoch: fence(3) };
    assert_emitted_once(&mut backend, unparked, |backend| {
        backend.unpark_shard(at(12), TENANT, key(0), op(2))
    });
}

#[test]
fn splits_name_the_shards_they_made() {
    let (mut backend, lease) = held();
    let plan = plan_split_replace_at_points_initial_cursor(WHOLE, &[b"d", b"g"]).unwrap();
    let (made, events) = collect(&mut backend, |backend| {
        backend.split_replace(at(11), TENANT, &lease, &plan, op(1)).unwrap()
    });
    let children = made.into_inner().children.to_vec();
    assert_eq!(children.len(), 3);
    assert_eq!(events, [EventKind::ShardSplit { parent: FIRST, children }]);
    let (replayed, events) = collect(&mut backend, |backend| {
        backend.split_replace(at(12), TENANT, &lease, &plan, op(1)).unwrap()
    });
    assert_eq!((replayed.is_replay(), events), (true, Vec::new()));

    let (mut backend, lease) = held();
    let plan = plan_split_residual_at_point(WHOLE, b"g").unwrap();
    let (made, events) = collect(&mut backend, |backend| {
        backend.split_residual(at(11), TENANT, &lease, &plan, op(1)).unwrap()
    });
    let residual = made.into_inner().residual;
    assert_eq!(events, [EventKind::ShardResidualCreated { parent: FIRST, residual }]);
    let (replayed, events) = collect(&mut backend, |backend| {
        backend.split_residual(at(12), TENANT, &lease, &plan, op(1)).unwrap()
    });
    assert_eq!((replayed.is_replay(), events), (true, Vec::new()));
}

#[test]
fn added_shard_operations_are_emitted_once() {
    let (mut backend, lease) = held();
    let offered = EventKind::ShardOffered { shard: FIRST, handoff: MOVE };
    assert_emitted_once(&mut backend, offered, |backend| {
        backend.offer(at(11), TENANT, &lease, TERMS, until(b"c"), op(1))
    });
    let withdrawn = EventKind::ShardOfferWithdrawn { shard: FIRST, handoff: MOVE };
    assert_emitted_once(&mut backend, withdrawn, |backend| {
        backend.withdraw(at(12), TENANT, &lease, MOVE, op(2))
    });
    let asked = EventKind::ShardActionRequested { shard: FIRST, action: "release" };
    assert_emitted_once(&mut backend, asked, |backend| {
        backend.request_action(at(13), TENANT, key(0), &ShardAction::Release, at(90), op(3))
    });
    assert_emitted_once(&mut backend, EventKind::ShardReleased { shard: FIRST }, |backend| {
        backend.release(at(14), TENANT, &lease, ReleaseMode::Clean, op(4))
    });
    acquire(&mut backend, 15, 0, 2);
    let revoked = EventKind::ShardLeaseRevoked { shard: FIRST, new_fence_epoch: fence(4) };
    assert_emitted_once(&mut backend, revoked, |backend| {
        backend.revoke_lease(at(16), TENANT, key(0), None, op(5))
    });
}

#[test]
fn run_operations_are_emitted() {
    let mut backend = two_shards();
    let made = RunId::from_raw(2);
    let (created, events) =
        collect(&mut backend, |backend| backend.create_run(at(2), TENANT, made, run_config()));
    created.unwrap();
    assert_eq!(events, [EventKind::RunCreated]);
    let shards =
        [InitialShardInput { shard_id: FIRST, spec: WHOLE, cursor: CursorUpdate::initial() }];
    assert_emitted_once(&mut backend, EventKind::RunActivated { shard_count: 1 }, |backend| {
        backend.register_shards(at(3), TENANT, made, &shards, op(1))
    });
    assert_emitted_once(&mut backend, EventKind::RunPaused, |backend| {
        backend.pause_run(at(4), TENANT, made, op(2))
    });
    let (paused_again, events) =
        collect(&mut backend, |backend| backend.pause_run(at(5), TENANT, made, op(3)));
    assert!(paused_again.unwrap().is_executed());
    assert_eq!(events, [], "no visible state changed");
    assert_emitted_once(&mut backend, EventKind::RunResumed, |backend| {
        backend.resume_run(at(6), TENANT, made, op(4))
    });
    assert_emitted_once(&mut backend, EventKind::RunFailed, |backend| {
        backend.fail_run(at(7), TENANT, made, op(5))
    });
    assert_emitted_once(&mut backend, EventKind::RunDeleted, |backend| {
        backend.delete_run(at(8), TENANT, made, op(6))
    });
    assert_emitted_once(&mut backend, EventKind::RunCancelled, |backend| {
        backend.cancel_run(at(9), TENANT, RUN, op(7))
    });
}

#[test]
fn completion_of_a_run_is_emitted_once() {
    let mut backend = two_shards();
    for shard in 0..2 {
        let lease = acquire(&mut backend, 10, shard, 1);
        let end = [b"c", b"n"][usize::try_from(shard).unwrap()];
        backend.complete(at(11), TENANT, &lease, until(end), op(shard)).unwrap();
    }
    assert_emitted_once(&mut backend, EventKind::RunCompleted, |backend| {
        backend.complete_run(at(12), TENANT, RUN, op(9))
    });
}

#[test]
fn refusals_emit_nothing() {
    let (mut backend, lease) = held();
    let (refused, events) = collect(&mut backend, |backend| {
        backend.checkpoint(at(11), TENANT, &lease, until(b"x"), op(1))
    });
    assert!(matches!(refused, Err(CheckpointError::CursorOutOfBounds(_))));
    assert_eq!(events, []);
    let (refused, events) = collect(&mut backend, |backend| {
        let mut scratch = AcquireScratch::new();
        backend
            .acquire_and_restore_into(at(11), TENANT, key(0), worker(2), &mut scratch)
            .map(|_| ())
    });
    assert!(matches!(refused, Err(AcquireError::AlreadyLeased { .. })));
    assert_eq!(events, []);
}

#[test]
fn acquire_that_parks_emits_the_park() {
    let mut backend = two_shards();
    let mut now = 10;
    for _ in 0..3 {
        acquire(&mut backend, now, 0, 1);
        now += LEASE;
    }
    let (refused, events) = collect(&mut backend, |backend| {
        let mut scratch = AcquireScratch::new();
        backend
            .acquire_and_restore_into(at(now), TENANT, key(0), worker(2), &mut scratch)
            .map(|_| ())
    });
    let status = ShardStatus::Parked;
    assert_eq!(refused, Err(AcquireError::ShardTerminal { shard: key(0), status }));
    let reason = ParkReason::TooManyErrors;
    assert_eq!(events, [EventKind::ShardParked { shard: FIRST, reason }]);
}

#[test]
fn events_come_in_the_order_of_the_commits_with_their_address() {
    let mut backend = two_shards();
    let mut events = EventCollector::new();
    backend.with_events(&mut events, |backend| {
        let lease = acquire(backend, 10, 0, 1);
        backend.renew(at(11), TENANT, &lease).unwrap();
        backend.checkpoint(at(12), TENANT, &lease, until(b"c"), op(1)).unwrap();
        backend.complete(at(13), TENANT, &lease, until(b"d"), op(2)).unwrap();
    });
    let times: Vec<_> = events.iter().map(|event| event.at).collect();
    assert_eq!(times, [at(10), at(11), at(12), at(13)]);
    assert!(events.iter().all(|event| event.tenant == TENANT && event.run == RUN));
    assert!(matches!(events.drain().last().unwrap().kind, EventKind::ShardCompleted { .. }));
}

#[test]
fn no_event_is_emitted_without_a_collector() {
    let (mut backend, lease) = held();
    let mut events = EventCollector::new();
    backend.with_events(&mut events, |_| ());
    backend.checkpoint(at(11), TENANT, &lease, until(b"c"), op(1)).unwrap();
    assert!(events.is_empty());
}

#[test]
fn kinds_are_sorted_as_the_seed_says() {
    let kinds = event_kinds();
    let named = |filter: fn(&EventKind) -> bool| {
        let names = kinds.iter().filter(|(_, kind)| filter(kind)).map(|(name, _)| *name);
        names.collect::<Vec<_>>()
    };
    let ends = [
        "ShardCompleted",
        "ShardParked",
        "ShardSplit",
        "RunCompleted",
        "RunFailed",
        "RunCancelled",
        "RunDeleted",
    ];
    assert_eq!(named(EventKind::is_terminal), ends);
    let about_shards = |name: &&&str| name.starts_with("Shard");
    let shards: Vec<_> = kinds.iter().map(|(name, _)| name).filter(about_shards).copied().collect();
    assert_eq!(named(EventKind::is_shard_event), shards);
    assert_eq!(named(EventKind::is_run_event).len(), kinds.len() - shards.len());
}

fn event(ticks: u64) -> StateTransitionEvent {
    StateTransitionEvent { tenant: TENANT, run: RUN, at: at(ticks), kind: EventKind::RunCreated }
}

#[test]
fn a_collector_with_a_ceiling_drops_what_comes_late() {
    let mut events = EventCollector::with_max_capacity(2);
    assert!(events.emit(event(1)));
    assert!(events.emit(event(2)));
    assert!(!events.emit(event(3)));
    assert_eq!((events.len(), events.is_empty()), (2, false));
    assert_eq!(events.drain(), [event(1), event(2)]);
    assert!(events.emit(event(4)), "draining frees capacity");
    let mut none = EventCollector::with_max_capacity(0);
    assert!(!none.emit(event(1)));
}

#[test]
fn a_collector_without_a_ceiling_keeps_everything() {
    let mut events = EventCollector::with_capacity(1);
    assert!((1..100).all(|ticks| events.emit(event(ticks))));
    assert_eq!(events.len(), 99);
}

#[test]
fn draining_empties_and_visiting_keeps_the_order() {
    let mut events = EventCollector::new();
    events.emit(event(1));
    assert_eq!(events.drain(), [event(1)]);
    assert!(events.is_empty());
    events.emit(event(2));
    events.emit(event(3));
    let mut seen = Vec::new();
    events.drain_with(|event| seen.push(event.at));
    assert_eq!((seen, events.len()), (vec![at(2), at(3)], 0));
}

#[test]
#[should_panic(expected = "a collector serves one tenant")]
fn a_collector_never_mixes_tenants_not_even_after_draining() {
    let mut events = EventCollector::new();
    events.emit(event(1));
    events.drain();
    events.emit(StateTransitionEvent { tenant: TenantId::from_bytes([9; 32]), ..event(2) });
}

/// Regression: an inner collector received the events of the outer one.
#[test]
fn nested_collectors_each_get_their_own() {
    let mut coordinator = two_shards();
    let (mut outer, mut inner) = (EventCollector::with_max_capacity(9), EventCollector::new());
    coordinator.with_events(&mut outer, |coordinator| {
        coordinator.pause_run(at(5), TENANT, RUN, op(1)).unwrap();
        coordinator.with_events(&mut inner, |coordinator| {
            coordinator.resume_run(at(6), TENANT, RUN, op(2)).unwrap();
        });
        coordinator.pause_run(at(7), TENANT, RUN, op(3)).unwrap();
    });
    assert_eq!((outer.len(), inner.len()), (2, 1));
}

/// Regression: a collector stayed installed after a panic, and the next operation of another
/// tenant, which had none, panicked after its commit.
#[test]
fn a_foreign_operation_is_refused_before_it_commits_and_leaves_no_collector_behind() {
    let mut coordinator = two_shards();
    let stranger = TenantId::from_bytes([8; 32]);
    coordinator.create_run(at(2), stranger, RUN, run_config()).unwrap();
    let mut events = EventCollector::new();
    let mixed = catch_unwind(AssertUnwindSafe(|| {
        coordinator.with_events(&mut events, |coordinator| {
            coordinator.pause_run(at(5), TENANT, RUN, op(1)).unwrap();
            coordinator.cancel_run(at(6), stranger, RUN, op(2))
        })
    }));
    assert!(mixed.is_err());
    assert_eq!(events.len(), 1, "collected events are kept");
    let status = coordinator.get_run(stranger, RUN).unwrap().status();
    assert_eq!(status, RunStatus::Initializing, "nothing was committed");
    coordinator.cancel_run(at(7), stranger, RUN, op(2)).unwrap();
}
