//! A shard that its worker gave back and claimed again, while a move of it was under way.

use std::sync::atomic::{AtomicU64, Ordering};

use gossip_contracts::identity::{LogicalTime, OpId, ShardId, ShardKey};
use gossip_coordination::{RunManagement as _, ShardAction};

use super::{
    Drain, Finish, HandoffThread, Parts, Renewer, Rest, ShardRunner, WorkerConfig, WorkerShared,
    worker_of,
};
use crate::clock::Clock;
use crate::processor::{Inline, ItemResult, Work};
use crate::task::TaskConfig;
use crate::test_support::{Coordinator, RUN, TENANT, World, at, numbered};
use crate::throttle::Limits;

const LEASE: u64 = 1_000;
/// Ticks between two steps of everybody.
const TICK: u64 = 10;
/// More steps than the whole of the keys takes.
const STEPS: usize = 2_000;

#[derive(Default)]
struct Time(AtomicU64);

impl Clock for Time {
    fn now(&self) -> LogicalTime {
        at(self.0.load(Ordering::Relaxed))
    }
}

fn config() -> WorkerConfig {
    WorkerConfig {
        tenant: TENANT,
        run: RUN,
        worker: worker_of(RUN, 1),
        lease_ticks: LEASE,
        threads: 1,
        task: TaskConfig::default(),
        limits: Limits::default(),
        max_parked: 0,
        auto_split: false,
        store_patience: 60_000,
        seed: 1,
    }
}

/// A worker of one runner, stepped by hand.
struct Stepped<'c, 'a> {
    shared: &'c WorkerShared<'a, Coordinator>,
    runner: ShardRunner<'c, 'a, Coordinator>,
    renewer: Renewer<'c, 'a, Coordinator>,
    handoff: HandoffThread<'c, 'a, Coordinator>,
    now: u64,
}

impl Stepped<'_, '_> {
    /// Lets the runner do so many things.
    fn work(&mut self, steps: usize) {
        for _ in 0..steps {
            self.runner.step(at(self.now));
        }
    }

    /// Lets everybody do something, until the worker has ended.
    fn work_to_the_end(&mut self) {
        for _ in 0..STEPS {
            self.now += TICK;
            self.renewer.round(at(self.now));
            while matches!(self.handoff.step(at(self.now)), Rest::No) {}
            self.work(1);
            if self.shared.has_ended() {
                return;
            }
        }
    }
}

/// The handoff may see the new lease only: the shard was away for no longer than a claim takes.
#[test]
fn a_move_of_an_earlier_lease_does_not_stop_the_next_one() {
    let world = World::lasting(LEASE, &[(b"a", b"z")]);
    let (time, drain, keys) = (Time::default(), Drain::new(), numbered(40));
    time.0.store(1, Ordering::Relaxed);
    let parts = Parts {
        coordinator: &|| world.handle(),
        connector: &keys,
        processor: &|_| Box::new(Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done)),
        records: Some(&|| world.records()),
        clock: &time,
        host: &(),
        drain: &drain,
        observer: &(),
    };
    let shared = &WorkerShared::new(&config(), parts);
    let handoff = HandoffThread::new(shared).unwrap();
    let (runner, renewer) = (ShardRunner::new(shared, 0), Renewer::new(shared));
    let mut worker = Stepped { shared, runner, renewer, handoff, now: 1 };
    worker.work(5);
    let mut admin = world.handle();
    let (shard, action) =
        (ShardKey::new(RUN, ShardId::from_raw(1)), ShardAction::HandOff(Some(worker_of(RUN, 2))));
    admin.request_action(at(1), TENANT, shard, &action, at(5_000), OpId::from_raw(7)).unwrap();
    worker.renewer.round(at(1));
    while matches!(worker.handoff.step(at(1)), Rest::No) {}
    // The shard is given back because the run is paused, and claimed again by the same runner.
    admin.pause_run(at(1), TENANT, RUN, OpId::from_raw(8)).unwrap();
    worker.renewer.round(at(1));
    worker.work(3);
    admin.resume_run(at(1), TENANT, RUN, OpId::from_raw(9)).unwrap();
    worker.work(2);
    worker.work_to_the_end();
    assert!(worker.shared.has_ended(), "the shard stays frozen for ever");
    assert_eq!(worker.shared.ended(), Ok(Finish::Complete));
}
