//! Stored lifecycle events: a ring for each writer, written in the commit that they describe.

use std::collections::BTreeMap;

use gossip_coordination::protocol::ReleaseMode;
use gossip_coordination::{EVENTS_PER_WRITER, EventKind, EventWriter, RunManagement, StoredEvent};

use super::world::{OTHER_RUN, STRANGER, World, at, key, op, residual_at};
use super::{ConformanceTarget, refused, topic};

topic!("stored_events":
    every_change_is_stored_with_its_worker,
    a_grant_names_the_lease_that_it_replaced,
    an_accepted_offer_is_stored_with_both_workers,
    checkpoints_and_renewals_are_not_stored,
    a_replay_stores_no_event,
    a_refused_operation_stores_no_event,
    an_event_whose_reply_was_lost_is_stored_once,
    a_writer_keeps_its_last_events,
    events_belong_to_one_tenant_and_run,
    a_deleted_run_has_no_stored_events,
);

/// Returns all events in the order of their times.
fn stored<T: ConformanceTarget>(world: &mut World<'_, T>) -> Vec<StoredEvent> {
    let mut all: Vec<StoredEvent> = Vec::new();
    loop {
        let (after, before) = (all.last().map(|event| event.writer), all.len());
        let listed = world.backend.list_events_into(world.tenant, world.run, after, &mut all);
        listed.expect("the store is there");
        if all.len() == before {
            break;
        }
        let next = all[before..].iter().map(|event| event.writer);
        assert!(next.clone().is_sorted(), "the writers are in their order");
        assert!(next.clone().all(|writer| after < Some(writer)), "no writer is listed twice");
    }
    all.sort_by_key(|event| (event.at, event.writer, event.sequence));
    all
}

/// Returns how many events a reader of `seen` may call lost.
fn lost(seen: &[StoredEvent]) -> u64 {
    let mut writers: BTreeMap<EventWriter, (u64, u64)> = BTreeMap::new();
    for event in seen {
        let (earlier, count) = writers.entry(event.writer).or_default();
        (*earlier, *count) = (event.earlier.max(*earlier), *count + 1);
    }
    writers.values().map(|(earlier, count)| earlier.saturating_sub(count - 1)).sum()
}

/// Returns the time, the worker and the worker before of an event, by their numbers.
fn facts(event: &StoredEvent) -> (u64, Option<u64>, Option<u64>) {
    let raw = |worker: Option<_>| worker.map(raw_of);
    (event.at.as_raw(), raw(event.worker), raw(event.previous))
}

fn raw_of(
    worker: gossip_contracts::identity::Redacted<gossip_contracts::identity::WorkerId>,
) -> u64 {
    worker.into_inner().as_raw()
}

/// Of a shard and of a run; a second pause changes nothing and is not stored.
pub fn every_change_is_stored_with_its_worker<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let before = stored(&mut world);
    // Both happened at one time, so two processes may have stored them in either order.
    let kinds: Vec<&EventKind> = before.iter().map(|event| &event.kind).collect();
    assert_eq!(kinds.len(), 2, "{before:?}");
    assert!(kinds.contains(&&EventKind::RunCreated), "{before:?}");
    assert!(kinds.contains(&&EventKind::RunActivated { shard_count: 2 }), "{before:?}");
    let held = world.acquire(10, key(0), 1);
    let (start, end) = (held.start.clone(), held.end.clone());
    let rest = world.shrink(11, &held.lease, &residual_at(&start, b"f", &end), 1).expect("live");
    world.revoke(12, key(0), 2).expect("leased");
    world.finish(13, key(0), 3);
    let other = world.acquire(15, key(1), 1);
    world.park(16, &other.lease, 4).expect("live");
    let (tenant, run) = (world.tenant, world.run);
    world.backend.unpark_shard(at(17), tenant, key(1), op(5)).expect("parked");
    world.backend.pause_run(at(18), tenant, run, op(6)).expect("active");
    world.backend.pause_run(at(19), tenant, run, op(7)).expect("active");
    world.backend.resume_run(at(20), tenant, run, op(8)).expect("active");
    world.backend.fail_run(at(21), tenant, run, op(9)).expect("active");
    let seen = stored(&mut world);
    let new = &seen[2..];
    let expected: [(u64, Option<u64>, Option<u64>); 10] = [
        (10, Some(1), None),
        (11, Some(1), None),
        (12, Some(1), None),
        (13, Some(1), None),
        (13, Some(1), None),
        (15, Some(1), None),
        (16, Some(1), None),
        (17, None, None),
        (18, None, None),
        (20, None, None),
    ];
    let [.., failed] = new else { panic!("{new:?}") };
    assert_eq!(new[..10].iter().map(facts).collect::<Vec<_>>(), expected, "{new:?}");
    assert_eq!((new.len(), facts(failed)), (11, (21, None, None)));
    assert_eq!(failed.kind, EventKind::RunFailed);
    let shrunk =
        EventKind::ShardResidualCreated { parent: key(0).shard(), residual: rest.into_inner() };
    assert_eq!(new[1].kind, shrunk);
    assert_eq!(lost(&seen), 0);
}

/// The lease has run out.
pub fn a_grant_names_the_lease_that_it_replaced<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let first = world.acquire(10, key(0), 1);
    world.acquire(first.deadline() + 1, key(0), 2);
    let seen = stored(&mut world);
    let [.., taken] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(facts(taken), (first.deadline() + 1, Some(2), Some(1)));
    assert!(matches!(taken.kind, EventKind::ShardAcquired { .. }), "{taken:?}");
}

/// Both events name the worker that had the lease.
pub fn an_accepted_offer_is_stored_with_both_workers<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.offer(11, &held.lease, (7, 2, 50), 1).expect("live");
    world.accept(12, key(0), 2, 7).expect("offered");
    let seen = stored(&mut world);
    let [.., offered, accepted] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(facts(offered), (11, Some(1), None));
    assert!(matches!(offered.kind, EventKind::ShardOffered { .. }), "{offered:?}");
    assert_eq!(facts(accepted), (12, Some(2), Some(1)));
}

/// They are as frequent as items.
pub fn checkpoints_and_renewals_are_not_stored<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    let before = stored(&mut world);
    world.checkpoint(11, &held.lease, b"c", 1).expect("live");
    world.renew(12, &held.lease).expect("live");
    assert_eq!(stored(&mut world), before);
}

/// Nothing changed.
pub fn a_replay_stores_no_event<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.complete(11, &held.lease, b"c", 1).expect("live");
    let before = stored(&mut world);
    world.complete(12, &held.lease, b"c", 1).expect("a replay");
    assert_eq!(stored(&mut world), before);
}

/// By a superseded lease holder.
pub fn a_refused_operation_stores_no_event<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let first = world.acquire(10, key(0), 1);
    let now = first.deadline() + 1;
    world.acquire(now, key(0), 2);
    let before = stored(&mut world);
    refused!(world.complete(now + 1, &first.lease, b"c", 1), _);
    assert_eq!(stored(&mut world), before);
}

/// The retry finds that the change was applied.
pub fn an_event_whose_reply_was_lost_is_stored_once<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let held = world.acquire(10, key(0), 1);
    world.lose_reply();
    for time in [11, 12] {
        let _ = world.complete(time, &held.lease, b"c", 1);
    }
    let seen = stored(&mut world);
    let done = |event: &&StoredEvent| matches!(event.kind, EventKind::ShardCompleted { .. });
    assert_eq!(seen.iter().filter(done).count(), 1, "{seen:?}");
    assert_eq!(lost(&seen), 0);
}

/// Overwritten events are counted.
pub fn a_writer_keeps_its_last_events<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    let rounds = u64::from(EVENTS_PER_WRITER) / 2 + 10;
    for round in 0..rounds {
        let now = 10 + 2 * round;
        let held = world.acquire(now, key(0), 1);
        world.release(now + 1, &held.lease, ReleaseMode::Clean, round + 1).expect("live");
    }
    let seen = stored(&mut world);
    let mut counts: BTreeMap<EventWriter, usize> = BTreeMap::new();
    seen.iter().for_each(|event| *counts.entry(event.writer).or_default() += 1);
    let max = usize::from(EVENTS_PER_WRITER);
    assert!(counts.values().all(|count| *count <= max), "{counts:?}");
    // The run's two, and two of each round.
    assert_eq!(seen.len() as u64 + lost(&seen), 2 + 2 * rounds);
    let [.., last] = &seen[..] else { panic!("no event") };
    assert_eq!(
        (last.at, &last.kind),
        (at(9 + 2 * rounds), &EventKind::ShardReleased { shard: key(0).shard() })
    );
}

/// Another tenant and another run have none.
pub fn events_belong_to_one_tenant_and_run<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.acquire(10, key(0), 1);
    world.run = OTHER_RUN;
    assert_eq!(stored(&mut world), []);
    (world.run, world.tenant) = (super::world::RUN, STRANGER);
    assert_eq!(stored(&mut world), []);
}

/// They are removed with the run.
pub fn a_deleted_run_has_no_stored_events<T: ConformanceTarget>(target: &T) {
    let mut world = World::two_shards(target);
    world.finish(10, key(0), 1);
    let (tenant, run) = (world.tenant, world.run);
    world.backend.cancel_run(at(12), tenant, run, op(2)).expect("active");
    assert_eq!(stored(&mut world).len(), 5, "the end of a run keeps them");
    world.backend.delete_run(at(13), tenant, run, op(3)).expect("over");
    assert_eq!(stored(&mut world), []);
}
