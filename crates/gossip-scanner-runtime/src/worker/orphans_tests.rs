//! Leases of a worker that is gone: revoked if it was a process of this host, waited for otherwise.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gossip_contracts::identity::{ShardKey, WorkerId};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend as _, ProcessId, RunManagement as _, WorkerProcess,
};
use rstest::rstest;

use super::{Drain, Parts, Renewer, Rest, ShardRunner, WorkerConfig, WorkerShared};
use crate::clock::SystemClock;
use crate::host::{Host, Presence};
use crate::observer::{Event, Observer};
use crate::processor::{Inline, ItemResult, Work};
use crate::task::TaskConfig;
use crate::test_support::{RUN, TENANT, World, at, numbered};
use crate::throttle::Limits;

const LEASE: u64 = 600_000;

/// The holder of the only shard.
const HOLDER: WorkerId = WorkerId::from_raw(7);

const PROCESS: WorkerProcess = WorkerProcess {
    boot: [1; 16],
    pid_namespace: 2,
    process: ProcessId { pid: 3, started: 4 },
    watcher: Some(ProcessId { pid: 5, started: 6 }),
    label: None,
};

/// Returns the settings of a worker of one thread.
pub(super) fn config(worker: WorkerId, lease_ticks: u64) -> WorkerConfig {
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker,
        lease_ticks,
        store_patience: lease_ticks,
        threads: 1,
        task: TaskConfig::default(),
        limits: Limits::default(),
        max_parked: 0,
        auto_split: false,
        seed: 1,
    }
}

/// A host with one other worker.
struct OneOther(Presence);

impl Host for OneOther {
    fn process(&self) -> Option<WorkerProcess> {
        Some(WorkerProcess { watcher: None, ..PROCESS })
    }

    fn presence(&self, process: &WorkerProcess) -> Presence {
        assert_eq!(*process, PROCESS, "only the holder is looked up");
        self.0
    }
}

/// Collects the reported waits: remaining ticks, ticks since the holder was seen, and whether its
/// commands are being ended.
#[derive(Default)]
struct Waits(Mutex<Vec<(u64, Option<u64>, bool)>>);

impl Observer for Waits {
    fn observe(&self, event: Event<'_>) {
        if let Event::Waiting { worker, process, left, last_seen, ending } = event {
            assert_eq!(worker, HOLDER);
            assert_eq!(process, last_seen.map(|_| PROCESS));
            let ticks = |duration: Duration| u64::try_from(duration.as_millis()).unwrap();
            self.0.lock().unwrap().push((ticks(left), last_seen.map(ticks), ending));
        }
    }
}

/// Runs an idle runner at each of `times`, after the holder was registered with its process, if
/// `known`, and acquired the shard at 1,000. Returns whether the holder still has the lease, and
/// the waits.
fn looks(presence: Presence, known: bool, times: &[u64]) -> (bool, Vec<(u64, Option<u64>, bool)>) {
    let mut world = World::lasting(LEASE, &[(b"a", b"z")]);
    let (mut handle, shard) = (world.handle(), world.rows()[0].shard);
    if known {
        handle.register_worker(at(1_000), TENANT, HOLDER, Some(PROCESS)).unwrap();
    }
    let (key, mut scratch) = (ShardKey::new(RUN, shard), AcquireScratch::default());
    let held = handle.acquire_and_restore_into(at(1_000), TENANT, key, HOLDER, &mut scratch);
    let lease = held.unwrap().lease;
    let (waits, host, clock, drain) =
        (Waits::default(), OneOther(presence), SystemClock::new(), Drain::new());
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &numbered(9),
        processor: &|_| Box::new(Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done)),
        records: None,
        clock: &clock,
        host: &host,
        drain: &drain,
        observer: &waits,
    };
    let shared = WorkerShared::new(&config(WorkerId::from_raw(8), LEASE), parts);
    let mut runner = ShardRunner::new(&shared, 0);
    for time in times {
        let rest = runner.step(at(*time));
        assert!(!matches!(rest, Rest::Over));
    }
    let keeps = handle.renew(at(*times.last().unwrap()), TENANT, &lease).is_ok();
    drop(runner);
    (keeps, waits.0.into_inner().unwrap())
}

#[test]
fn lease_of_a_worker_that_is_gone_is_revoked_at_the_first_look() {
    assert_eq!(looks(Presence::Gone, true, &[2_000]), (false, Vec::new()));
}

/// An entry of the registry expires before a long lease, and still names the process.
#[test]
fn lease_outlives_the_registry_entry_of_its_holder_and_is_revoked_nevertheless() {
    assert_eq!(looks(Presence::Gone, true, &[500_000]), (false, Vec::new()));
}

#[rstest]
#[case::present(Presence::Present, true)]
#[case::unknown(Presence::Unknown, true)]
#[case::gone_but_never_registered(Presence::Gone, false)]
fn wait_for_a_holder_that_does_not_renew_is_reported_with_its_end(
    #[case] presence: Presence,
    #[case] known: bool,
) {
    // It renews every ten seconds: there is nothing to report after five.
    let (keeps, waits) = looks(presence, known, &[6_000, 31_000]);
    assert_eq!((keeps, waits), (true, vec![(570_000, known.then_some(30_000), false)]));
}

#[test]
fn lease_is_kept_while_commands_are_being_ended_and_the_wait_is_reported_at_once() {
    let (keeps, waits) = looks(Presence::Ending, true, &[2_000]);
    assert_eq!((keeps, waits), (true, vec![(599_000, Some(1_000), true)]));
}

/// A second look uses the entry of the first one only to find that the holder exists.
#[test]
fn an_earlier_entry_of_the_registry_never_shows_that_a_worker_is_gone() {
    const GROWN: WorkerProcess =
        WorkerProcess { watcher: Some(ProcessId { pid: 7, started: 8 }), ..PROCESS };
    struct Grown(AtomicBool);
    impl Host for Grown {
        fn process(&self) -> Option<WorkerProcess> {
            None
        }

        fn presence(&self, process: &WorkerProcess) -> Presence {
            let is_gone = *process == PROCESS && self.0.load(Ordering::Relaxed);
            if is_gone { Presence::Gone } else { Presence::Ending }
        }
    }
    let mut world = World::lasting(LEASE, &[(b"a", b"z")]);
    let (mut handle, shard) = (world.handle(), world.rows()[0].shard);
    handle.register_worker(at(1_000), TENANT, HOLDER, Some(PROCESS)).unwrap();
    let (key, mut scratch) = (ShardKey::new(RUN, shard), AcquireScratch::default());
    let held = handle.acquire_and_restore_into(at(1_000), TENANT, key, HOLDER, &mut scratch);
    let lease = held.unwrap().lease;
    let (host, clock, drain) = (Grown(AtomicBool::new(false)), SystemClock::new(), Drain::new());
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &numbered(9),
        processor: &|_| Box::new(Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done)),
        records: None,
        clock: &clock,
        host: &host,
        drain: &drain,
        observer: &(),
    };
    let shared = WorkerShared::new(&config(WorkerId::from_raw(8), LEASE), parts);
    let mut runner = ShardRunner::new(&shared, 0);
    runner.step(at(2_000));
    handle.register_worker(at(2_500), TENANT, HOLDER, Some(GROWN)).unwrap();
    host.0.store(true, Ordering::Relaxed);
    runner.step(at(9_000));
    handle.renew(at(9_500), TENANT, &lease).unwrap();
}

/// The process that ends commands is started with the first of them.
#[test]
fn worker_registers_again_when_its_process_has_got_a_watcher() {
    struct Growing(Mutex<Option<WorkerProcess>>);
    impl Host for Growing {
        fn process(&self) -> Option<WorkerProcess> {
            *self.0.lock().unwrap()
        }

        fn presence(&self, _process: &WorkerProcess) -> Presence {
            Presence::Unknown
        }
    }
    let (world, clock, drain) =
        (World::lasting(LEASE, &[(b"a", b"z")]), SystemClock::new(), Drain::new());
    let alone = WorkerProcess { watcher: None, ..PROCESS };
    let host = Growing(Mutex::new(Some(alone)));
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &numbered(0),
        processor: &|_| Box::new(Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done)),
        records: None,
        clock: &clock,
        host: &host,
        drain: &drain,
        observer: &(),
    };
    let shared = WorkerShared::new(&config(HOLDER, LEASE), parts);
    let mut renewer = Renewer::new(&shared);
    let registered = || {
        let mut workers = Vec::new();
        world.handle().list_workers_into(at(1), TENANT, &mut workers).unwrap();
        workers[0].process
    };
    renewer.round(at(1_000));
    assert_eq!(registered(), Some(alone));
    *host.0.lock().unwrap() = Some(PROCESS);
    renewer.round(at(2_000));
    assert_eq!(registered(), Some(PROCESS));
    renewer.round(at(3_000));
    assert_eq!(registered(), Some(PROCESS), "a heartbeat keeps it");
}
