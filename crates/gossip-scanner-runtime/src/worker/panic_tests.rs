//! A panic outside of any shard's task: the worker drains and reports which thread had it.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gossip_contracts::identity::WorkerId;
use gossip_coordination::operations::*;
use gossip_coordination::{
    ClaimError, ClaimReservation, CollectEvents, CoordinationBackend, EventCollector,
    RunManagement, ShardClaiming, for_each_run_operation, for_each_shard_operation,
};
use gossip_handoff::{InProgress, Record, RecordId, Repository, RepositoryError, Stored, Version};

use super::{Drain, Finish, Parts, RunWorkerError, WorkerConfig, work};
use crate::clock::SystemClock;
use crate::processor::{Inline, ItemResult, Work};
use crate::task::TaskConfig;
use crate::test_support::{Coordinator, RUN, TENANT, World, counted, numbered};
use crate::throttle::Limits;

const LEASE: u64 = 300;
const KEYS: usize = 80;

/// Makes one operation panic, from a moment on.
struct Trap {
    operation: &'static str,
    armed: AtomicBool,
    sprung: AtomicBool,
}

impl Trap {
    fn check(&self, operation: &str) {
        if operation == self.operation && self.armed.load(Ordering::SeqCst) {
            self.sprung.store(true, Ordering::SeqCst);
            // Without the hook, which prints a trace and may take as long as all items.
            resume_unwind(Box::new("a broken invariant"));
        }
    }

    /// Arms the trap and waits until it is sprung. A claim happens only when an item does not wait
    /// for it.
    fn arm(&self) {
        self.armed.store(self.operation != NONE, Ordering::SeqCst);
        let waits = self.operation != CLAIM && self.operation != NONE;
        while waits && !self.sprung.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
}

/// The operations that need a case of their own: a claim, and no operation at all.
const CLAIM: &str = "collect_claim_candidates_into";
const NONE: &str = "";

/// A coordinator handle with a trap.
struct Panics<'a> {
    inner: Coordinator,
    trap: &'a Trap,
}

macro_rules! check_before {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            self.trap.check(stringify!($name));
            self.inner.$name($($arg),*)
        }
    )* };
}

impl CoordinationBackend for Panics<'_> {
    for_each_shard_operation! { check_before () }
}

impl RunManagement for Panics<'_> {
    for_each_run_operation! { check_before () }
}

impl ShardClaiming for Panics<'_> {
    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        self.inner.reserve_claim(now, tenant, worker)
    }
}

impl CollectEvents for Panics<'_> {
    fn collect_events(&mut self, events: Option<EventCollector>) -> Option<EventCollector> {
        self.inner.collect_events(events)
    }
}

/// Handoff records with a trap.
struct PanickingRecords<'a> {
    inner: Box<dyn Repository>,
    trap: &'a Trap,
}

impl Repository for PanickingRecords<'_> {
    fn save(
        &mut self,
        record: &Record,
        expected: Option<Version>,
    ) -> Result<Version, RepositoryError> {
        self.inner.save(record, expected)
    }

    fn get(&mut self, id: &RecordId) -> Result<Stored, RepositoryError> {
        self.inner.get(id)
    }

    fn in_progress_page(
        &mut self,
        owner: &str,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.trap.check("in_progress_page");
        self.inner.in_progress_page(owner, after, limit)
    }

    fn page(
        &mut self,
        after: Option<&RecordId>,
        limit: usize,
    ) -> Result<InProgress, RepositoryError> {
        self.inner.page(after, limit)
    }

    fn forget(&mut self, over: &Stored) -> Result<(), RepositoryError> {
        self.inner.forget(over)
    }
}

fn config() -> WorkerConfig {
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: WorkerId::from_raw(1),
        lease_ticks: LEASE,
        threads: 2,
        task: TaskConfig { checkpoint_items: 5, ..TaskConfig::default() },
        limits: Limits::default(),
        max_parked: 0,
        auto_split: false,
        store_patience: 60_000,
        seed: 1,
    }
}

/// Works until the operation has panicked, and returns how the worker ended.
fn work_until(
    operation: &'static str,
    world: &World,
    done: &Mutex<BTreeMap<Vec<u8>, u32>>,
) -> Result<Finish, RunWorkerError> {
    let trap = &Trap { operation, armed: AtomicBool::new(false), sprung: AtomicBool::new(false) };
    let process = |work: Work<'_>, _: &mut Vec<u8>| {
        let count = {
            let mut done = done.lock().unwrap();
            *done.entry(work.key().to_vec()).or_default() += 1;
            done.len()
        };
        if count == KEYS / 8 {
            trap.arm();
        }
        // Most items are left when the other threads notice the panic.
        thread::sleep(Duration::from_millis(5));
        ItemResult::Done
    };
    let parts = Parts {
        coordinator: &|| Panics { inner: world.handle(), trap },
        connector: &numbered(KEYS),
        processor: &|_| Box::new(Inline::new(process)),
        records: Some(&|| Box::new(PanickingRecords { inner: world.records(), trap })),
        clock: &SystemClock::new(),
        host: &(),
        drain: &Drain::new(),
        observer: &(),
    };
    work(&config(), parts)
}

/// Every case: the other threads have drained with their progress, and the next worker finishes
/// without repeating an item.
fn drains_and_resumes(operation: &'static str, thread: &'static str) {
    let roots: Vec<_> = (0..8).map(|n| format!("k{:03}", n * KEYS / 8)).collect();
    let ends = roots[1..].iter().map(String::as_bytes).chain([&b"z"[..]]);
    let ranges: Vec<_> = roots.iter().map(String::as_bytes).zip(ends).collect();
    let (mut world, done) = (World::lasting(LEASE, &ranges), Mutex::default());
    assert_eq!(work_until(operation, &world, &done), Err(RunWorkerError::Panicked { thread }));
    let rows = world.rows();
    assert!(rows.iter().all(|row| !row.leased), "a lease was not released");
    let covered: u64 = rows.iter().map(|row| counted(row).0).sum();
    let processed = done.lock().unwrap().len();
    assert_eq!(covered, processed as u64, "every finished item is checkpointed");
    assert!(processed < KEYS, "the worker did not drain");
    assert_eq!(work_until(NONE, &world, &done), Ok(Finish::Complete));
    let done = done.into_inner().unwrap();
    assert!(done.len() == KEYS && done.values().all(|times| *times == 1));
}

#[test]
fn panic_of_the_renewer_drains_the_worker() {
    drains_and_resumes("renew_many", "renewer thread");
}

#[test]
fn panic_of_a_heartbeat_drains_the_worker() {
    drains_and_resumes("heartbeat", "renewer thread");
}

#[test]
fn panic_of_the_handoff_thread_drains_the_worker() {
    drains_and_resumes("in_progress_page", "handoff thread");
}

#[test]
fn panic_in_a_claim_drains_the_worker() {
    drains_and_resumes(CLAIM, "shard thread");
}
