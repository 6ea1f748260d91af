//! The registry of workers: entries live as long as they are heard of, and there are only so many.

use gossip_contracts::identity::TenantId;

use crate::test_fixtures::{TENANT, at, two_shards, worker};
use crate::workers::MAX_WORKERS_PER_TENANT;
use crate::{
    InMemoryCoordinator, RunManagement, WORKER_ENTRY_TTL, WorkerEntry, WorkerError, WorkerState,
};

const OTHER: TenantId = TenantId::from_bytes([9; 32]);

fn workers(backend: &mut InMemoryCoordinator, now: u64) -> Vec<(u64, WorkerState)> {
    let mut entries = Vec::new();
    backend.list_workers_into(at(now), TENANT, &mut entries).unwrap();
    entries.iter().map(|entry| (entry.worker.as_raw(), entry.state)).collect()
}

#[test]
fn an_entry_lives_until_its_time_runs_out() {
    let entry = WorkerEntry::heard_of(worker(1), WorkerState::Idle, at(10));
    assert_eq!(entry.expires_at, at(10 + WORKER_ENTRY_TTL));
    assert!(entry.is_live_at(at(9 + WORKER_ENTRY_TTL)));
    assert!(!entry.is_live_at(at(10 + WORKER_ENTRY_TTL)));
    let for_ever = WorkerEntry::heard_of(worker(1), WorkerState::Idle, at(u64::MAX));
    assert_eq!(for_ever.expires_at, at(u64::MAX));
}

#[test]
fn workers_are_listed_by_their_ids_with_what_they_do() {
    let mut backend = two_shards();
    for number in [3, 1, 2] {
        backend.register_worker(at(10), TENANT, worker(number), None).unwrap();
    }
    backend.register_worker(at(10), OTHER, worker(4), None).unwrap();
    backend.heartbeat(at(11), TENANT, worker(1), WorkerState::Idle).unwrap();
    backend.heartbeat(at(11), TENANT, worker(2), WorkerState::Draining).unwrap();
    let states: Vec<_> = workers(&mut backend, 12);
    let numbers: Vec<_> = states.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!((states[0].1, states[1].1), (WorkerState::Idle, WorkerState::Draining));
}

#[test]
fn a_worker_that_falls_silent_is_forgotten_and_must_register_again() {
    let mut backend = two_shards();
    let unknown = backend.heartbeat(at(10), TENANT, worker(1), WorkerState::Working);
    assert_eq!(unknown, Err(WorkerError::NotRegistered));
    backend.register_worker(at(10), TENANT, worker(1), None).unwrap();
    backend.heartbeat(at(20), TENANT, worker(1), WorkerState::Working).unwrap();
    assert_eq!(workers(&mut backend, 19 + WORKER_ENTRY_TTL).len(), 1);
    assert_eq!(workers(&mut backend, 20 + WORKER_ENTRY_TTL), []);
    let late = at(20 + WORKER_ENTRY_TTL);
    let forgotten = backend.heartbeat(late, TENANT, worker(1), WorkerState::Working);
    assert_eq!(forgotten, Err(WorkerError::NotRegistered));
    backend.register_worker(late, TENANT, worker(1), None).unwrap();
    backend.heartbeat(late, TENANT, worker(1), WorkerState::Working).unwrap();
}

#[test]
fn a_tenant_registers_only_so_many_workers_at_a_time() {
    let mut backend = two_shards();
    for number in 0..MAX_WORKERS_PER_TENANT as u64 {
        backend.register_worker(at(10), TENANT, worker(number), None).unwrap();
    }
    let one_more = worker(MAX_WORKERS_PER_TENANT as u64);
    let refused = backend.register_worker(at(11), TENANT, one_more, None);
    assert_eq!(refused, Err(WorkerError::TooManyWorkers { max: MAX_WORKERS_PER_TENANT }));
    backend.register_worker(at(11), TENANT, worker(0), None).expect("repeating it is harmless");
    backend
        .register_worker(at(11), OTHER, one_more, None)
        .expect("another tenant has its own room");
    let later = at(12 + WORKER_ENTRY_TTL);
    backend.register_worker(later, TENANT, one_more, None).expect("the silent make room");
}

#[test]
fn no_tenants_clock_forgets_the_workers_of_another() {
    let mut backend = two_shards();
    backend.register_worker(at(10), TENANT, worker(1), None).unwrap();
    backend.register_worker(at(u64::MAX), OTHER, worker(2), None).unwrap();
    assert_eq!(workers(&mut backend, 11).len(), 1);
}

#[test]
fn a_clock_that_lags_and_a_second_registration_take_nothing_away() {
    let mut coordinator = two_shards();
    let listed = |coordinator: &mut InMemoryCoordinator| {
        let mut out = Vec::new();
        coordinator.list_workers_into(at(900), TENANT, &mut out).unwrap();
        out.first().map(|entry| (entry.state, entry.expires_at))
    };
    coordinator.register_worker(at(1_000), TENANT, worker(1), None).unwrap();
    coordinator.heartbeat(at(1_000), TENANT, worker(1), WorkerState::Draining).unwrap();
    let known = Some((WorkerState::Draining, at(1_000 + WORKER_ENTRY_TTL)));
    coordinator.register_worker(at(900), TENANT, worker(1), None).unwrap();
    assert_eq!(listed(&mut coordinator), known);
    coordinator.heartbeat(at(900), TENANT, worker(1), WorkerState::Draining).unwrap();
    assert_eq!(listed(&mut coordinator), known);
}

/// A heartbeat that was sent before the drain began and is delivered after it.
#[test]
fn an_older_heartbeat_does_not_change_the_state() {
    let mut coordinator = two_shards();
    coordinator.register_worker(at(10), TENANT, worker(1), None).unwrap();
    coordinator.heartbeat(at(20), TENANT, worker(1), WorkerState::Draining).unwrap();
    for (late, state) in [(19, WorkerState::Working), (20, WorkerState::Idle)] {
        coordinator.heartbeat(at(late), TENANT, worker(1), state).unwrap();
        assert_eq!(workers(&mut coordinator, 21), [(1, WorkerState::Draining)]);
    }
    // A later one counts: a process may start another worker with the same id.
    coordinator.heartbeat(at(21), TENANT, worker(1), WorkerState::Working).unwrap();
    assert_eq!(workers(&mut coordinator, 22), [(1, WorkerState::Working)]);
}

/// The story: a worker's clock was hours ahead when it registered and was set back. All its later
/// heartbeats counted as delayed ones, so its drain was not shown.
#[test]
fn heartbeat_after_a_clock_was_set_back_counts() {
    let mut coordinator = two_shards();
    let ahead = 10 * WORKER_ENTRY_TTL;
    coordinator.register_worker(at(ahead), TENANT, worker(1), None).unwrap();
    coordinator.heartbeat(at(ahead), TENANT, worker(1), WorkerState::Working).unwrap();
    coordinator.heartbeat(at(100), TENANT, worker(1), WorkerState::Draining).unwrap();
    assert_eq!(workers(&mut coordinator, 101), [(1, WorkerState::Draining)]);
    assert_eq!(workers(&mut coordinator, 100 + WORKER_ENTRY_TTL), [], "by the right clock");
}
