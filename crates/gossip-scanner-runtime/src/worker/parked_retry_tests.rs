//! Shards parked as `TooManyErrors` are retried after a delay, and not without end.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, PageItem,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::LogicalTime;
use gossip_coordination::ShardStatus;

use super::{Drain, Finish, Parts, Rest, ShardRunner, WorkerConfig, WorkerShared, worker_of};
use crate::clock::Clock;
use crate::processor::{Inline, ItemResult, Work};
use crate::task::TaskConfig;
use crate::test_support::{RUN, TENANT, World, at, numbered};
use crate::throttle::Limits;

const LEASE: u64 = 10_000;
/// Wait before a retry, longer than any other wait of these tests.
const DELAY: u64 = 5_000;
/// More steps than a worker of these tests takes.
const STEPS: usize = 2_000;

#[derive(Default)]
struct Time(AtomicU64);

impl Clock for Time {
    fn now(&self) -> LogicalTime {
        at(self.0.load(Ordering::Relaxed))
    }
}

/// A source whose first listings fail.
struct Recovering<C> {
    source: C,
    failures_left: AtomicU32,
    listings: AtomicU32,
}

impl<C: Connector> Connector for Recovering<C> {
    fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    fn enumerate(
        &self,
        spec: ShardSpecRef<'_>,
        cursor: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        let left = self.failures_left.load(Ordering::Relaxed);
        if left == 0 {
            return self.source.enumerate(spec, cursor);
        }
        self.failures_left.store(left - 1, Ordering::Relaxed);
        Err(ConnectorError::Unavailable { kind: io::ErrorKind::TimedOut })
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        self.source.open(item, scratch)
    }
}

/// Runs a worker on a source that fails so often, and returns how it ended, when, and the number of
/// listings. One listing that fails parks a shard.
fn worked(world: &World, failures: u32, retries: u32) -> (Finish, u64, u32) {
    let source = Recovering {
        source: numbered(5),
        failures_left: AtomicU32::new(failures),
        listings: AtomicU32::new(0),
    };
    let task = TaskConfig {
        listing_tries: 1,
        parked_retries: retries,
        parked_retry_delay: DELAY,
        ..TaskConfig::default()
    };
    let config = WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: worker_of(RUN, 1),
        lease_ticks: LEASE,
        threads: 1,
        task,
        limits: Limits::default(),
        max_parked: 100,
        auto_split: false,
        store_patience: 0,
        seed: 1,
    };
    let (time, drain) = (Time(AtomicU64::new(1)), Drain::new());
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &source,
        processor: &|_| Box::new(Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done)),
        records: None,
        clock: &time,
        host: &(),
        drain: &drain,
        observer: &(),
    };
    let shared = WorkerShared::new(&config, parts);
    let mut runner = ShardRunner::new(&shared, 0);
    for _ in 0..STEPS {
        if let Rest::Until(next) = runner.step(time.now()) {
            time.0.fetch_max(next.as_raw(), Ordering::Relaxed);
        }
        if shared.has_ended() {
            let finish = shared.ended().unwrap();
            return (finish, time.now().as_raw(), source.listings.load(Ordering::Relaxed));
        }
    }
    panic!("the worker does not end");
}

fn world() -> World {
    World::lasting(LEASE, &[(b"a", b"z")])
}

#[test]
fn parked_shard_stays_parked_without_retries() {
    let (finish, ended, listings) = worked(&world(), 1, 0);
    assert_eq!((finish, listings), (Finish::Incomplete { parked: 1, damaged: 0 }, 1));
    assert!(ended < DELAY, "{ended}");
}

#[test]
fn source_that_recovers_is_finished_by_a_retry() {
    let mut world = world();
    let (finish, ended, _) = worked(&world, 1, 1);
    assert_eq!(finish, Finish::Complete);
    assert!(ended >= DELAY, "retried before the delay: {ended}");
    assert!(world.rows().iter().all(|row| row.status == ShardStatus::Done));
}

#[test]
fn retries_are_bounded() {
    let (finish, ended, listings) = worked(&world(), u32::MAX, 3);
    assert_eq!(finish, Finish::Incomplete { parked: 1, damaged: 0 });
    assert_eq!(listings, 4, "one try and three retries");
    // The used-up shard does not delay the end once more.
    assert!((3 * DELAY..4 * DELAY).contains(&ended), "{ended}");
}

/// The operation log counts, so a new process does not begin anew.
#[test]
fn retries_of_an_earlier_process_count() {
    let world = world();
    worked(&world, u32::MAX, 2);
    let (finish, _, listings) = worked(&world, 0, 2);
    assert_eq!((finish, listings), (Finish::Incomplete { parked: 1, damaged: 0 }, 0));
    let (finish, ..) = worked(&world, 0, 3);
    assert_eq!(finish, Finish::Complete);
}
