//! A task that waits hears what is asked of it, and records what it has.

use gossip_contracts::connector::Connector;
use gossip_coordination::ShardAction;
use rstest::rstest;

use super::{Ending, Gear, ShardTask, TaskConfig, Turn};
use crate::processor::{Inline, Verdict, Work};
use crate::test_support::{Coordinator, World, at, counted, numbered};
use crate::throttle::{Limits, Throttle};

/// One item a second, after the first: ten leases for ten items.
const SLOW: Limits = Limits { items: Some(1), bytes: None };

/// A task under that throttle.
struct Throttled {
    world: World,
    handle: Coordinator,
    task: ShardTask,
    throttle: Throttle,
}

impl Throttled {
    fn new() -> Self {
        let mut world = World::new();
        let mut handle = world.handle();
        let config = TaskConfig { checkpoint_ticks: 100, ..TaskConfig::default() };
        let task = world.claim(&mut handle, config, 1).unwrap();
        let throttle = Throttle::new(SLOW);
        Self { world, handle, task, throttle }
    }

    fn step(&mut self, connector: &dyn Connector) -> Turn {
        let mut done = Inline::new(|_: Work<'_>, _: &mut Vec<u8>| Verdict::Done);
        let mut gear = Gear {
            coordinator: &mut self.handle,
            connector,
            processor: &mut done,
            throttle: &self.throttle,
            observer: &(),
        };
        self.task.step(at(self.world.now), &mut gear)
    }

    /// Steps until the task waits; gives until when.
    fn step_until_it_waits(&mut self, connector: &dyn Connector) -> u64 {
        loop {
            match self.step(connector) {
                Turn::Going => {}
                Turn::Wait(until) => return until.as_raw(),
                Turn::Over(ending) => panic!("over: {ending:?}"),
            }
        }
    }
}

#[test]
fn a_throttled_task_is_given_back_at_once() {
    let connector = numbered(10);
    let mut throttled = Throttled::new();
    let until = throttled.step_until_it_waits(&connector);
    assert!(until > throttled.world.now, "it waits for the throttle");
    throttled.task.release();
    let ending = std::iter::from_fn(|| match throttled.step(&connector) {
        Turn::Going => Some(None),
        Turn::Wait(_) => None,
        Turn::Over(ending) => Some(Some(ending)),
    });
    assert_eq!(ending.flatten().next(), Some(Ending::Released));
}

#[test]
fn a_throttled_task_is_split_at_once() {
    let connector = numbered(100);
    let mut throttled = Throttled::new();
    throttled.step_until_it_waits(&connector);
    throttled.task.order(&ShardAction::Split(None));
    throttled.step_until_it_waits(&connector);
    assert_eq!(throttled.world.rows().len(), 2);
}

#[rstest]
#[case::of_its_own_accord(100)]
#[case::late(5000)]
fn a_throttled_task_records_what_it_has(#[case] later: u64) {
    let connector = numbered(10);
    let mut throttled = Throttled::new();
    let until = throttled.step_until_it_waits(&connector);
    assert!(until <= throttled.world.now + 100, "it wakes up for the checkpoint");
    let Throttled { world, handle, task, .. } = &mut throttled;
    world.pass_time(at(world.now + later), task, handle);
    throttled.step_until_it_waits(&connector);
    assert!(counted(&throttled.world.rows()[0]).0 >= 1);
}

/// If the process died while it rests, that would be held against a shard without progress.
#[test]
fn a_shard_that_is_to_rest_records_its_first_progress_before() {
    let connector = numbered(10);
    let mut throttled = Throttled::new();
    throttled.throttle = Throttle::default();
    throttled.task.hold(true);
    let until = throttled.step_until_it_waits(&connector);
    assert!(until > throttled.world.now && throttled.task.is_still());
    let row = throttled.world.rows().remove(0);
    assert_eq!(row.attempts, 0, "nothing that a death could be counted with");
    let recorded = counted(&row).0;
    assert!((1..10).contains(&recorded), "{recorded} keys");
    throttled.step_until_it_waits(&connector);
    assert_eq!(counted(&throttled.world.rows()[0]).0, recorded, "it rests");
    throttled.task.hold(false);
    let ending = loop {
        match throttled.step(&connector) {
            Turn::Going => {}
            Turn::Wait(until) => panic!("waits until {until:?}"),
            Turn::Over(ending) => break ending,
        }
    };
    assert_eq!(ending, Ending::Completed);
    assert_eq!(counted(&throttled.world.rows()[0]).0, 10);
}
