//! The worker registry: advisory entries that expire.

use gossip_coordination::{RunManagement, WORKER_ENTRY_TTL, WorkerEntry, WorkerError, WorkerState};

use super::world::{World, at, worker};
use super::{ConformanceTarget, Settings, refused, topic};

topic!("workers":
    a_registered_worker_is_idle_until_it_says_otherwise,
    workers_are_listed_in_the_order_of_their_ids,
    a_silent_worker_is_forgotten,
    an_older_heartbeat_does_not_end_a_drain,
    a_heartbeat_needs_a_registration,
    registering_again_is_harmless,
    tenants_do_not_see_each_others_workers,
);

/// Working, idle, draining.
pub fn a_registered_worker_is_idle_until_it_says_otherwise<T: ConformanceTarget>(target: &T) {
    let mut world = registered(target, &[1]);
    assert_eq!(list(&mut world, 2)[0].state, WorkerState::Idle);
    let states = [WorkerState::Working, WorkerState::Draining, WorkerState::Idle];
    for (now, state) in (3..).zip(states) {
        let tenant = world.tenant;
        world.backend.heartbeat(at(now), tenant, worker(1), state).expect("registered");
        assert_eq!(list(&mut world, 9)[0].state, state);
    }
}

/// A heartbeat that was delayed on its way, or is of the same instant as the beginning of a drain.
pub fn an_older_heartbeat_does_not_end_a_drain<T: ConformanceTarget>(target: &T) {
    let mut world = registered(target, &[1]);
    let tenant = world.tenant;
    let heartbeats =
        [(5, WorkerState::Draining), (4, WorkerState::Working), (5, WorkerState::Idle)];
    for (now, state) in heartbeats {
        world.backend.heartbeat(at(now), tenant, worker(1), state).expect("registered");
        assert_eq!(list(&mut world, 9)[0].state, WorkerState::Draining);
    }
}

/// Holds for any order of registration.
pub fn workers_are_listed_in_the_order_of_their_ids<T: ConformanceTarget>(target: &T) {
    let mut world = registered(target, &[7, 3, u64::MAX, 0]);
    let ids: Vec<u64> = list(&mut world, 2).iter().map(|entry| entry.worker.as_raw()).collect();
    assert_eq!(ids, [0, 3, 7, u64::MAX]);
}

/// An entry expires unless a heartbeat extends it.
pub fn a_silent_worker_is_forgotten<T: ConformanceTarget>(target: &T) {
    let mut world = registered(target, &[1, 2]);
    let tenant = world.tenant;
    let expiry = 1 + WORKER_ENTRY_TTL;
    world.backend.heartbeat(at(10), tenant, worker(2), WorkerState::Working).expect("registered");
    assert_eq!(list(&mut world, expiry - 1).len(), 2);
    let left = list(&mut world, expiry);
    assert_eq!((left.len(), left[0].worker), (1, worker(2)));
    assert_eq!(left[0].expires_at, at(10 + WORKER_ENTRY_TTL));
    let late = world.backend.heartbeat(at(expiry), tenant, worker(1), WorkerState::Idle);
    refused!(late, WorkerError::NotRegistered);
}

/// A heartbeat does not register a worker.
pub fn a_heartbeat_needs_a_registration<T: ConformanceTarget>(target: &T) {
    let mut world = registered(target, &[1]);
    let tenant = world.tenant;
    let unknown = world.backend.heartbeat(at(2), tenant, worker(2), WorkerState::Idle);
    refused!(unknown, WorkerError::NotRegistered);
    assert_eq!(list(&mut world, 3).len(), 1);
}

/// One entry per worker.
pub fn registering_again_is_harmless<T: ConformanceTarget>(target: &T) {
    let mut world = registered(target, &[1, 1]);
    assert_eq!(list(&mut world, 2).len(), 1);
}

/// Neither listings nor heartbeats cross tenants.
pub fn tenants_do_not_see_each_others_workers<T: ConformanceTarget>(target: &T) {
    let mut world = registered(target, &[1]);
    world.tenant = super::world::STRANGER;
    assert!(list(&mut world, 2).is_empty());
    let stranger = world.tenant;
    let heard = world.backend.heartbeat(at(2), stranger, worker(1), WorkerState::Idle);
    refused!(heard, WorkerError::NotRegistered);
}

/// Creates a store in which these workers registered at time 1.
fn registered<'t, T: ConformanceTarget>(target: &'t T, numbers: &[u64]) -> World<'t, T> {
    let mut world = World::empty(target, Settings::default());
    for number in numbers {
        let done = world.backend.register_worker(at(1), world.tenant, worker(*number), None);
        done.expect("below the limit");
    }
    world
}

fn list<T: ConformanceTarget>(world: &mut World<'_, T>, now: u64) -> Vec<WorkerEntry> {
    let mut out = Vec::new();
    world.backend.list_workers_into(at(now), world.tenant, &mut out).expect("listing is allowed");
    out
}
