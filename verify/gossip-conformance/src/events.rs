//! Events: one for every change, none for a replay or a refusal, in commit order.
//!
//! For a target that collects no events, these cases run without comparing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{LogicalTime, Redacted, RunId};
use gossip_coordination::protocol::{OfferTerms, ReleaseMode};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, EventKind, Lease, ParkReason, RedactedKey, RunManagement,
    ShardAction, ShardClaiming, ShardFilter,
};

use super::world::{
    OTHER_RUN, ROOTS, RUN, STRANGER, World, at, config, fence, handoff, key, op, replace_at,
    residual_at, shard, worker,
};
use super::{Ability, ConformanceTarget, Settings, note_ability, topic};

topic!("events":
    run_transitions_emit_events,
    shard_operations_emit_events,
    splits_name_their_parts,
    handoffs_and_admin_operations_emit_events,
    a_replay_and_a_refusal_are_silent,
    a_park_inside_an_acquire_emits_an_event,
    an_event_carries_its_address,
    a_nested_collector_does_not_end_the_outer_one,
    a_panic_under_a_nested_collector_does_not_end_the_outer_one,
    an_operation_of_another_tenant_panics_before_it_commits,
);

/// Created, activated, paused, resumed, ended, deleted.
pub fn run_transitions_emit_events<T: ConformanceTarget>(target: &T) {
    let mut world = World::empty(target, Settings::default());
    let tenant = world.tenant;
    let events = world.events_of(|backend| {
        let made = backend.create_run_with_shards(at(1), tenant, RUN, config(None), &ROOTS, op(1));
        made.expect("new");
        backend.pause_run(at(2), tenant, RUN, op(2)).expect("active");
        backend.pause_run(at(3), tenant, RUN, op(3)).expect("already paused, no event");
        backend.resume_run(at(4), tenant, RUN, op(4)).expect("active");
        backend.fail_run(at(5), tenant, RUN, op(5)).expect("active");
        backend.delete_run(at(6), tenant, RUN, op(6)).expect("over");
        let other = RunId::from_raw(2);
        backend.create_run(at(7), tenant, other, config(None)).expect("new");
        backend.cancel_run(at(8), tenant, other, op(1)).expect("not over");
    });
    let Some(events) = events else { return };
    let expected = [
        EventKind::RunCreated,
        EventKind::RunActivated { shard_count: 2 },
        EventKind::RunPaused,
        EventKind::RunResumed,
        EventKind::RunFailed,
        EventKind::RunDeleted,
        EventKind::RunCreated,
        EventKind::RunCancelled,
    ];
    assert_eq!(events, expected);
}

/// Acquired, renewed, checkpointed, completed, parked, unparked, released; and the run's end.
pub fn shard_operations_emit_events<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let tenant = world.tenant;
    let events = world.events_of(|backend| {
        let left = acquire(backend, 10, 0, 1);
        backend.renew(at(11), tenant, &left).expect("live");
        backend.checkpoint(at(12), tenant, &left, to(b"c"), op(1)).expect("live");
        backend.complete(at(13), tenant, &left, to(b"d"), op(2)).expect("live");
        let right = acquire(backend, 14, 1, 2);
        let reason = ParkReason::NotFound;
        backend.park_shard(at(15), tenant, &right, reason, op(3)).expect("live");
        backend.unpark_shard(at(16), tenant, key(1), op(4)).expect("parked");
        let right = acquire(backend, 17, 1, 2);
        backend.release(at(18), tenant, &right, ReleaseMode::Failed, op(5)).expect("live");
        let right = acquire(backend, 19, 1, 2);
        backend.complete(at(20), tenant, &right, to(b"m"), op(6)).expect("live");
        backend.complete_run(at(21), tenant, RUN, op(7)).expect("everything is done");
    });
    let Some(events) = events else { return };
    let (left, right) = (shard(0), shard(1));
    let expected = [
        acquired(0, 1, 2),
        EventKind::ShardLeaseRenewed { shard: left, new_deadline: at(111) },
        EventKind::ShardCheckpointed { shard: left, last_key: RedactedKey::new(Some(b"c")) },
        EventKind::ShardCompleted { shard: left },
        acquired(1, 2, 2),
        EventKind::ShardParked { shard: right, reason: ParkReason::NotFound },
        EventKind::ShardUnparked { shard: right, new_fence_epoch: fence(3) },
        acquired(1, 2, 4),
        EventKind::ShardReleased { shard: right },
        acquired(1, 2, 5),
        EventKind::ShardCompleted { shard: right },
        EventKind::RunCompleted,
    ];
    assert_eq!(events, expected);
}

/// Parent, residual and children.
pub fn splits_name_their_parts<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let (tenant, mut made) = (world.tenant, None);
    let events = world.events_of(|backend| {
        let cut = residual_at(b"a", b"f", b"m");
        let shrunk = backend.split_residual(at(11), tenant, &held.lease, &cut, op(1));
        let cuts = replace_at(&[b"a", b"c", b"f"]);
        let replaced = backend.split_replace(at(12), tenant, &held.lease, &cuts, op(2));
        made = Some((shrunk.expect("live").into_inner(), replaced.expect("live").into_inner()));
    });
    let (Some(events), Some((shrunk, replaced))) = (events, made) else { return };
    let parent = shard(0);
    let expected = [
        EventKind::ShardResidualCreated { parent, residual: shrunk.residual },
        EventKind::ShardSplit { parent, children: replaced.children.to_vec() },
    ];
    assert_eq!(events, expected);
}

/// Offered, withdrawn, accepted, requested, revoked.
pub fn handoffs_and_admin_operations_emit_events<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1).lease;
    let tenant = world.tenant;
    let events = world.events_of(|backend| {
        let (keep, mut scratch) = (CursorUpdate::initial(), AcquireScratch::new());
        let terms =
            |id| OfferTerms { handoff: handoff(id), destination: worker(2), deadline: at(50) };
        backend.offer(at(11), tenant, &held, terms(1), keep, op(1)).expect("live");
        backend.withdraw(at(12), tenant, &held, handoff(1), op(2)).expect("live");
        backend.offer(at(13), tenant, &held, terms(2), keep, op(3)).expect("live");
        let accepted = backend.accept(at(14), tenant, key(0), worker(2), handoff(2), &mut scratch);
        accepted.expect("offered");
        let action = ShardAction::HandOff(None);
        backend.request_action(at(15), tenant, key(0), &action, at(90), op(4)).expect("leased");
        backend.revoke_lease(at(16), tenant, key(0), None, op(5)).expect("leased");
    });
    let Some(events) = events else { return };
    let shard = shard(0);
    let expected = [
        EventKind::ShardOffered { shard, handoff: handoff(1) },
        EventKind::ShardOfferWithdrawn { shard, handoff: handoff(1) },
        EventKind::ShardOffered { shard, handoff: handoff(2) },
        acquired(0, 2, 3),
        EventKind::ShardActionRequested { shard, action: "hand-off" },
        EventKind::ShardLeaseRevoked { shard, new_fence_epoch: fence(4) },
    ];
    assert_eq!(events, expected);
}

/// Without a change there is no event.
pub fn a_replay_and_a_refusal_are_silent<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    let tenant = world.tenant;
    let events = world.events_of(|backend| {
        let again = backend.checkpoint(at(12), tenant, &held.lease, to(b"c"), op(1));
        assert!(again.expect("known").is_replay());
        backend.checkpoint(at(12), tenant, &held.lease, to(b"b"), op(2)).expect_err("back");
        let again = backend.register_shards(at(12), tenant, RUN, &ROOTS, op(1_000));
        assert!(again.expect("known").is_replay());
        backend.complete_run(at(12), tenant, RUN, op(3)).expect_err("not settled");
        let mut scratch = AcquireScratch::new();
        let taken =
            backend.acquire_and_restore_into(at(12), tenant, key(0), worker(2), &mut scratch);
        assert!(taken.is_err());
    });
    assert_eq!(events.unwrap_or_default(), []);
}

/// The acquire is refused, but it commits the park.
pub fn a_park_inside_an_acquire_emits_an_event<T: ConformanceTarget>(target: &T) {
    let mut world = World::with_config(target, config(Some(0)));
    world.acquire(10, key(0), 1);
    let tenant = world.tenant;
    let events = world.events_of(|backend| {
        let mut scratch = AcquireScratch::new();
        let refused =
            backend.acquire_and_restore_into(at(110), tenant, key(0), worker(2), &mut scratch);
        assert!(refused.is_err());
        let claimed = backend.claim_next_available(at(111), tenant, RUN, worker(3), &mut scratch);
        assert!(claimed.is_ok());
    });
    let Some(events) = events else { return };
    let parked = EventKind::ShardParked { shard: shard(0), reason: ParkReason::TooManyErrors };
    assert_eq!(events, [parked, acquired(1, 3, 2)]);
}

/// Tenant, run and time.
pub fn an_event_carries_its_address<T: ConformanceTarget>(target: &T) {
    let mut backend = target.fresh(Settings::default());
    let (_, events) = target.with_events(&mut backend, |backend| {
        backend.create_run(at(3), STRANGER, RUN, config(None)).expect("new");
    });
    note_ability(target, Ability::Events, events.is_some());
    let Some(events) = events else { return };
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].tenant, events[0].run, events[0].at), (STRANGER, RUN, at(3)));
}

/// Each event is stored once, in the innermost collector.
pub fn a_nested_collector_does_not_end_the_outer_one<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let (tenant, mut inner) = (world.tenant, None);
    let outer = world.events_of(|backend| {
        backend.pause_run(at(5), tenant, RUN, op(1)).expect("active");
        let (resumed, events) =
            target.with_events(backend, |backend| backend.resume_run(at(6), tenant, RUN, op(2)));
        resumed.expect("active");
        inner = events;
        backend.cancel_run(at(7), tenant, RUN, op(3)).expect("active");
    });
    let (Some(outer), Some(inner)) = (outer, inner) else { return };
    assert_eq!(outer, [EventKind::RunPaused, EventKind::RunCancelled]);
    let inner: Vec<_> = inner.into_iter().map(|event| event.kind).collect();
    assert_eq!(inner, [EventKind::RunResumed]);
}

/// The caller may catch the panic and continue.
pub fn a_panic_under_a_nested_collector_does_not_end_the_outer_one<T: ConformanceTarget>(
    target: &T,
) {
    let mut world = World::two_shards(target);
    let tenant = world.tenant;
    let events = world.events_of(|backend| {
        let nested = || target.with_events(backend, |_| panic!("of the caller"));
        assert!(catch_unwind(AssertUnwindSafe(nested)).is_err());
        backend.cancel_run(at(5), tenant, RUN, op(1)).expect("active");
    });
    let Some(events) = events else { return };
    assert_eq!(events, [EventKind::RunCancelled]);
}

/// From its first event on, a collector belongs to the tenant of that event. The panic comes before
/// the commit: a caller that catches it must not take an applied operation for a failed one.
pub fn an_operation_of_another_tenant_panics_before_it_commits<T: ConformanceTarget>(target: &T) {
    if target.lacks().contains(&Ability::Events) {
        return;
    }
    let mut world = World::two_shards(target);
    let own = world.tenant;
    world.tenant = STRANGER;
    world.make_run(config(None), &ROOTS, 1).expect("ids are each tenant's own");
    let held = world.acquire(10, key(0), 1).lease;
    let state = |world: &mut World<'_, T>| {
        let run = world.run_record().expect("created");
        (run.status(), run.is_paused(), world.list(10, ShardFilter::all()))
    };
    let before = state(&mut world);
    let events = world.events_of(|backend| {
        backend.pause_run(at(11), own, RUN, op(1)).expect("active");
        for (name, call) in foreign_operations::<T::Backend>() {
            let panicked = catch_unwind(AssertUnwindSafe(|| call(backend, &held))).is_err();
            assert!(panicked, "{name} of another tenant");
        }
        backend.resume_run(at(12), own, RUN, op(2)).expect("active");
    });
    assert_eq!(events.unwrap_or_default(), [EventKind::RunPaused, EventKind::RunResumed]);
    assert_eq!(state(&mut world), before, "nothing was committed");
    assert!(world.backend.get_run(STRANGER, OTHER_RUN).is_err(), "no run was created");
    let done = world.checkpoint(13, &held, b"c", 12).expect("live");
    assert!(done.is_executed(), "the handle is usable");
}

/// A call of an operation, whose answer does not matter.
type Call<B> = fn(&mut B, &Lease);

/// Returns operations of [`STRANGER`] that emit an event, by name.
fn foreign_operations<B: CoordinationBackend + RunManagement>() -> [(&'static str, Call<B>); 11] {
    const NOW: LogicalTime = at(11);
    [
        ("create_run", |backend, _| {
            drop(backend.create_run(NOW, STRANGER, OTHER_RUN, config(None)));
        }),
        ("pause_run", |backend, _| drop(backend.pause_run(NOW, STRANGER, RUN, op(11)))),
        ("gc_stale_initializing_runs_into", |backend, _| {
            drop(backend.gc_stale_initializing_runs_into(NOW, STRANGER, 1, 9, &mut Vec::new()));
        }),
        ("revoke_lease", |backend, _| {
            drop(backend.revoke_lease(NOW, STRANGER, key(0), None, op(11)));
        }),
        ("acquire_and_restore_into", |backend, _| {
            let mut scratch = Box::new(AcquireScratch::new());
            drop(backend.acquire_and_restore_into(NOW, STRANGER, key(1), worker(2), &mut scratch));
        }),
        ("renew", |backend, lease| drop(backend.renew(NOW, STRANGER, lease))),
        ("renew_many", |backend, lease| {
            backend.renew_many(NOW, STRANGER, std::slice::from_ref(lease), &mut Vec::new());
        }),
        ("checkpoint", |backend, lease| {
            drop(backend.checkpoint(NOW, STRANGER, lease, to(b"b"), op(11)));
        }),
        ("complete", |backend, lease| {
            drop(backend.complete(NOW, STRANGER, lease, to(b"b"), op(11)));
        }),
        ("split_residual", |backend, lease| {
            let cut = residual_at(b"a", b"f", b"m");
            drop(backend.split_residual(NOW, STRANGER, lease, &cut, op(11)));
        }),
        ("park_shard", |backend, lease| {
            drop(backend.park_shard(NOW, STRANGER, lease, ParkReason::Other, op(11)));
        }),
    ]
}

fn to(last_key: &[u8]) -> CursorUpdate<'_> {
    CursorUpdate::with_last_key(last_key)
}

fn acquired(id: u64, by: u64, fence_number: u64) -> EventKind {
    let worker = Redacted::new(worker(by));
    EventKind::ShardAcquired { shard: shard(id), worker, fence_epoch: fence(fence_number) }
}

fn acquire(backend: &mut impl CoordinationBackend, now: u64, id: u64, by: u64) -> Lease {
    let mut scratch = Box::new(AcquireScratch::new());
    let tenant = super::world::TENANT;
    let acquired =
        backend.acquire_and_restore_into(at(now), tenant, key(id), worker(by), &mut scratch);
    acquired.expect("free").lease
}
