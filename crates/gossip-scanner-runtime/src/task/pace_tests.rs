//! Checkpoints of slow items, and the items that a crash would repeat.

use crate::processor::{Inline, ItemResult, Work};
use crate::task::{StoreAccess, TaskConfig, TaskContext, TaskStep};
use crate::test_support::{World, at, counted, numbered};
use crate::throttle::Throttle;

/// Processes items that take `item` ticks each, with checkpoints that take `cost`. Returns the most
/// items that were done and not stored, of the first half and of the second, and the ticks that
/// checkpoints took of all.
fn unsaved(config: TaskConfig, item: u64, cost: u64) -> ([usize; 2], (u64, u64)) {
    const ITEMS: usize = 400;
    let (mut world, connector) = (World::new(), numbered(ITEMS));
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, config, 1).unwrap();
    let done = std::cell::Cell::new(0_usize);
    let mut processor = Inline::new(|_: Work<'_>, _: &mut Vec<u8>| {
        done.set(done.get() + 1);
        ItemResult::Done
    });
    let (mut most, begun, mut spent, mut saved) = ([0, 0], world.now, 0, 0);
    loop {
        let before = done.get();
        let mut context = TaskContext {
            coordinator: &mut handle,
            connector: &connector,
            processor: &mut processor,
            throttle: &Throttle::default(),
            observer: &(),
            store: StoreAccess::Usable,
        };
        match task.step(at(world.now), &mut context) {
            TaskStep::Continue => {}
            TaskStep::Wait(until) => world.pass_time(until, &mut task, &mut handle),
            TaskStep::Over(_) => return (most, (spent, world.now - begun)),
        }
        let mut passed = item * (done.get() - before) as u64;
        let stored = world.rows().iter().map(|row| counted(row).0).sum::<u64>();
        let stored = usize::try_from(stored).unwrap();
        if stored > saved {
            saved = stored;
            spent += cost;
            passed += cost;
        }
        let half = &mut most[usize::from(done.get() > ITEMS / 2)];
        *half = (*half).max(done.get() - saved);
        world.pass_time(at(world.now + passed), &mut task, &mut handle);
    }
}

fn adaptive() -> TaskConfig {
    TaskConfig { checkpoint_ticks_min: 20, ..TaskConfig::default() }
}

#[test]
fn a_crash_repeats_few_slow_items_if_checkpoints_are_cheap() {
    let ([first, later], _) = unsaved(adaptive(), 10, 0);
    assert!(first <= 6 && later <= 3, "{first} items at first, {later} later");
    // Without a shortest interval a second of items is repeated.
    let ([first, _], _) = unsaved(TaskConfig::default(), 10, 0);
    assert!(first >= 90, "{first} items");
}

#[test]
fn checkpoints_of_slow_items_take_two_percent_of_the_time() {
    for cost in [1, 4, 15] {
        let ([_, later], (spent, all)) = unsaved(adaptive(), 10, cost);
        // The first two come before their cost is known.
        assert!((spent - 2 * cost) * 50 <= all + 50, "{spent} of {all} ticks at a cost of {cost}");
        assert!(later as u64 * 10 <= cost * 50 + 30, "{later} items at a cost of {cost}");
    }
}

#[test]
fn fast_items_are_not_checkpointed_sooner() {
    // The numbers of the source are fewer than a second of items.
    let ([first, later], (spent, _)) = unsaved(adaptive(), 1, 1);
    assert!(first > 90 && later > 90 && spent <= 4, "{first}, {later}, {spent}");
}
