//! Items that finish after one that waits for a retry.

use std::sync::atomic::{AtomicU32, Ordering};

use gossip_contracts::connector::Connector;
use gossip_coordination::ShardAction;
use rstest::rstest;

use super::{ShardTask, StoreAccess, TaskConfig, TaskContext, TaskOutcome, TaskStep};
use crate::processor::{Inline, ItemResult, Processor, Work};
use crate::test_support::{Coordinator, World, at, key, numbered};
use crate::throttle::Throttle;

/// The item that fails the first time.
const WAITS: usize = 5;
/// Items between two checkpoints.
const INTERVAL: u64 = 10;
/// Steps to the end, with room: every key takes a few.
const STEPS_MAX: u32 = 10_000;

/// A task in whose page one item has failed and waits.
struct Ahead {
    world: World,
    handle: Coordinator,
    task: ShardTask,
    failures: AtomicU32,
    /// How often the item fails.
    failures_max: u32,
}

impl Ahead {
    fn new() -> Self {
        let mut world = World::new();
        let mut handle = world.handle();
        let config = TaskConfig { checkpoint_items: INTERVAL, ..TaskConfig::default() };
        let task = world.claim(&mut handle, config, 1).unwrap();
        Self { world, handle, task, failures: AtomicU32::new(0), failures_max: 1 }
    }

    fn step(&mut self, connector: &dyn Connector) -> TaskStep {
        let mut processor = Inline::new(|work: Work<'_>, _: &mut Vec<u8>| {
            let waits = work.key() == key(WAITS);
            if waits && self.failures.fetch_add(1, Ordering::Relaxed) < self.failures_max {
                return ItemResult::Failed("this time".into());
            }
            *self.world.done.lock().unwrap().entry(work.key().to_vec()).or_default() += 1;
            ItemResult::Done
        });
        let mut context = TaskContext {
            coordinator: &mut self.handle,
            connector,
            processor: &mut processor as &mut dyn Processor,
            throttle: &Throttle::default(),
            observer: &(),
            store: StoreAccess::Usable,
        };
        self.task.step(at(self.world.now), &mut context)
    }

    fn done(&self) -> usize {
        self.world.done.lock().unwrap().len()
    }

    /// Steps until `count` keys are done, which is before the item is tried again.
    fn step_until(&mut self, count: usize, connector: &dyn Connector) {
        while self.done() < count {
            assert!(matches!(self.step(connector), TaskStep::Continue));
        }
    }

    /// Steps to the end; time passes only while the task waits.
    fn end(&mut self, connector: &dyn Connector) -> TaskOutcome {
        for _ in 0..STEPS_MAX {
            match self.step(connector) {
                TaskStep::Continue => {}
                TaskStep::Wait(until) => self.world.now = until.as_raw(),
                TaskStep::Over(outcome) => return outcome,
            }
        }
        panic!("it does not end");
    }
}

/// A crash would repeat all of it.
#[test]
fn no_more_than_an_interval_is_finished_behind_an_item_that_waits() {
    let connector = numbered(200);
    let mut ahead = Ahead::new();
    while matches!(ahead.step(&connector), TaskStep::Continue) {}
    let behind = ahead.done() - WAITS;
    assert!(behind as u64 <= INTERVAL, "{behind} keys are finished and not recorded");
    assert_eq!(ahead.end(&connector), TaskOutcome::Completed);
}

#[rstest]
#[case::released(|task: &mut ShardTask| task.release())]
#[case::released_on_request(|task: &mut ShardTask| task.request(&ShardAction::Release))]
#[case::split(|task: &mut ShardTask| task.request(&ShardAction::Split(None)))]
fn a_plan_repeats_nothing_after_an_item_that_waits(#[case] ask: fn(&mut ShardTask)) {
    let connector = numbered(100);
    let mut ahead = Ahead::new();
    ahead.step_until(WAITS + 4, &connector);
    ask(&mut ahead.task);
    ahead.end(&connector);
    ahead.world.work_everything(&connector);
    assert!((0..100).all(|number| ahead.world.times_done(&key(number)) == 1));
}

#[test]
fn a_shard_is_frozen_once_no_retry_is_pending() {
    let connector = numbered(100);
    let mut ahead = Ahead::new();
    ahead.step_until(WAITS + 4, &connector);
    ahead.task.freeze();
    let mut still = None;
    while still.is_none() {
        if let TaskStep::Wait(until) = ahead.step(&connector) {
            ahead.world.now = until.as_raw();
        }
        still = ahead.task.frozen_at();
    }
    let last = key(ahead.done() - 1);
    assert_eq!(still.unwrap().last_key(), Some(last.as_slice()), "everything done is covered");
}

/// It was put off while the shard was frozen, and must be resumed.
#[test]
fn an_item_that_fails_for_good_while_frozen_is_parked_afterwards() {
    let connector = numbered(100);
    let mut ahead = Ahead { failures_max: u32::MAX, ..Ahead::new() };
    ahead.step_until(WAITS + 4, &connector);
    ahead.task.freeze();
    while ahead.task.frozen_at().is_none() {
        if let TaskStep::Wait(until) = ahead.step(&connector) {
            ahead.world.now = until.as_raw();
        }
    }
    ahead.task.unfreeze();
    ahead.end(&connector);
    ahead.world.work_everything(&connector);
    let is_done = |number| ahead.world.times_done(&key(number)) > 0;
    assert!((0..100).all(|number| is_done(number) == (number != WAITS)));
}
