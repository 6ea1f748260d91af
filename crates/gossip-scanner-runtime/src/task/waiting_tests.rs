//! A waiting task reacts to requests, and checkpoints its progress.

use std::time::Duration;

use gossip_contracts::connector::Connector;
use gossip_coordination::{ShardAction, SplitKey};
use rstest::rstest;

use super::{ShardTask, StoreAccess, TaskConfig, TaskContext, TaskOutcome, TaskStep};
use crate::processor::{Broken, Inline, ItemResult, Processor, Report, Work};
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

    fn step(&mut self, connector: &dyn Connector) -> TaskStep {
        let mut done = Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Done);
        let mut context = TaskContext {
            coordinator: &mut self.handle,
            connector,
            processor: &mut done,
            throttle: &self.throttle,
            observer: &(),
            store: StoreAccess::Usable,
        };
        self.task.step(at(self.world.now), &mut context)
    }

    /// Steps until the task waits; gives until when.
    fn step_until_it_waits(&mut self, connector: &dyn Connector) -> u64 {
        loop {
            match self.step(connector) {
                TaskStep::Continue => {}
                TaskStep::Wait(until) => return until.as_raw(),
                TaskStep::Over(outcome) => panic!("over: {outcome:?}"),
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
    let outcome = std::iter::from_fn(|| match throttled.step(&connector) {
        TaskStep::Continue => Some(None),
        TaskStep::Wait(_) => None,
        TaskStep::Over(outcome) => Some(Some(outcome)),
    });
    assert_eq!(outcome.flatten().next(), Some(TaskOutcome::Released));
}

#[test]
fn a_throttled_task_is_split_at_once() {
    let connector = numbered(100);
    let mut throttled = Throttled::new();
    throttled.step_until_it_waits(&connector);
    throttled.task.request(&ShardAction::Split(None));
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

/// Reports nothing before it is released.
#[derive(Default)]
struct Holding {
    tickets: Vec<usize>,
    lets_go: bool,
}

impl Processor for Holding {
    fn capacity(&self) -> usize {
        2
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        self.tickets.push(work.ticket);
        Ok(())
    }

    fn collect(&mut self, _: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        let done = |ticket| Report { ticket, result: ItemResult::Done };
        if self.lets_go {
            reports.extend(self.tickets.drain(..).map(done));
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.tickets.clear();
    }
}

/// An item may take minutes; an idle worker gets a part of the rest at once.
#[rstest]
#[case::anywhere(None, 10, 2)]
#[case::before_the_last_key(None, 3, 2)]
#[case::with_nothing_left(None, 2, 1)]
#[case::behind_what_was_started(SplitKey::try_new(b"k0011"), 10, 2)]
#[case::among_what_was_started(SplitKey::try_new(b"k001"), 10, 1)]
fn a_split_does_not_wait_for_items_under_way(
    #[case] at_key: Option<SplitKey>,
    #[case] keys: usize,
    #[case] rows: usize,
) {
    let (mut world, connector) = (World::new(), numbered(keys));
    let (mut handle, throttle) = (world.handle(), Throttle::default());
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let mut processor = Holding::default();
    let mut step = |task: &mut ShardTask, processor: &mut Holding| {
        let (coordinator, observer) = (&mut handle, &());
        let connector = &connector;
        task.step(
            at(1),
            &mut TaskContext {
                coordinator,
                connector,
                processor,
                throttle: &throttle,
                observer,
                store: StoreAccess::Usable,
            },
        )
    };
    let mut steps = |task: &mut ShardTask, processor: &mut Holding| {
        (0..100).find_map(|_| match step(task, processor) {
            TaskStep::Over(outcome) => Some(outcome),
            TaskStep::Continue | TaskStep::Wait(_) => None,
        })
    };
    assert_eq!(steps(&mut task, &mut processor), None);
    task.request(&ShardAction::Split(at_key));
    assert_eq!(steps(&mut task, &mut processor), None);
    assert_eq!((world.rows().len(), processor.tickets.len()), (rows, 2));

    processor.lets_go = true;
    assert_eq!(steps(&mut task, &mut processor), Some(TaskOutcome::Completed));
    assert_eq!(world.work_everything(&connector), vec![TaskOutcome::Completed; rows - 1]);
    let counts: Vec<u64> = world.rows().iter().map(|row| counted(row).0).collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (rows, keys as u64));
}

/// If the process died while it rests, that would be held against a shard without progress.
#[test]
fn a_shard_that_is_to_rest_records_its_first_progress_before() {
    let connector = numbered(10);
    let mut throttled = Throttled::new();
    throttled.throttle = Throttle::default();
    throttled.task.request_pause(true);
    let until = throttled.step_until_it_waits(&connector);
    assert!(until > throttled.world.now && throttled.task.is_paused());
    let row = throttled.world.rows().remove(0);
    assert_eq!(row.attempts, 0, "nothing that a death could be counted with");
    let recorded = counted(&row).0;
    assert!((1..10).contains(&recorded), "{recorded} keys");
    throttled.step_until_it_waits(&connector);
    assert_eq!(counted(&throttled.world.rows()[0]).0, recorded, "it rests");
    throttled.task.request_pause(false);
    let outcome = loop {
        match throttled.step(&connector) {
            TaskStep::Continue => {}
            TaskStep::Wait(until) => panic!("waits until {until:?}"),
            TaskStep::Over(outcome) => break outcome,
        }
    };
    assert_eq!(outcome, TaskOutcome::Completed);
    assert_eq!(counted(&throttled.world.rows()[0]).0, 10);
}
