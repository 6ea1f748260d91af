//! Shards that are cut into several parts at once.

use gossip_contracts::connector::Connector;
use gossip_coordination::store::Fault;
use gossip_coordination::{ShardAction, ShardStatus};
use rstest::rstest;

use super::{ShardTask, StoreAccess, TaskConfig, TaskContext, TaskOutcome};
use crate::test_support::{Coordinator, LASTS, World, at, counted, key, noting, numbered};
use crate::throttle::Throttle;

/// Enough for four parts.
const KEYS: usize = 300;

/// Steps a task until `stop` items were finished.
fn step_until_finished(
    world: &mut World,
    task: &mut ShardTask,
    handle: &mut Coordinator,
    connector: &dyn Connector,
    stop: u64,
) {
    let throttle = Throttle::default();
    while task.finished() < stop {
        let mut context = TaskContext {
            coordinator: &mut *handle,
            connector,
            processor: &mut noting(&world.done),
            throttle: &throttle,
            observer: &(),
            store: StoreAccess::Usable,
        };
        drop(task.step(at(world.now), &mut context));
    }
}

fn statuses(world: &mut World) -> Vec<ShardStatus> {
    world.rows().iter().map(|row| row.status).collect()
}

/// Works on all shards; checks that each key was done once and is counted once.
#[track_caller]
fn assert_rest_is_done_once(world: &mut World, connector: &dyn Connector) {
    let outcomes = world.work_everything(connector);
    assert!(outcomes.iter().all(|outcome| *outcome == TaskOutcome::Completed), "{outcomes:?}");
    assert!((0..KEYS).all(|number| world.times_done(&key(number)) == 1));
    let rows = world.rows();
    let leaves = rows.iter().filter(|row| row.status != ShardStatus::Split);
    assert_eq!(leaves.map(|row| counted(row).0).sum::<u64>(), KEYS as u64);
}

#[rstest]
#[case::answered(None)]
#[case::reply_lost(Some(Fault::LoseReply))]
#[case::request_lost(Some(Fault::LoseRequest))]
#[case::store_failed(Some(Fault::Fail))]
fn an_untouched_shard_with_many_keys_is_replaced_in_one_operation(#[case] fault: Option<Fault>) {
    let mut world = World::new();
    let mut handle = world.handle();
    let connector = numbered(KEYS);
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    task.request(&ShardAction::Split(None));
    for _ in 0..4 {
        fault.into_iter().for_each(|fault| handle.store_mut().inject(fault));
    }
    assert_eq!(world.run_to_end(&mut task, &mut handle, &connector), TaskOutcome::Split);
    let rows = world.rows();
    let children = rows.iter().filter(|row| row.parent == Some(task.shard().shard()));
    assert_eq!(children.filter(|row| row.status == ShardStatus::Active).count(), 4);
    assert_eq!(rows.len(), 5, "a repeated split makes no second set of children");
    assert_rest_is_done_once(&mut world, &connector);
}

#[test]
fn a_replaced_shard_passes_its_cursor_to_its_first_child() {
    let mut world = World::new();
    let mut handle = world.handle();
    let connector = numbered(KEYS);
    let config = TaskConfig { checkpoint_items: 10, many_parts_from: 64, ..TaskConfig::default() };
    let mut task = world.claim(&mut handle, config, 1).unwrap();
    step_until_finished(&mut world, &mut task, &mut handle, &connector, 20);
    task.release();
    assert_eq!(world.run_to_end(&mut task, &mut handle, &connector), TaskOutcome::Released);

    let mut task = world.claim(&mut handle, config, 2).unwrap();
    task.request(&ShardAction::Split(None));
    assert_eq!(world.run_to_end(&mut task, &mut handle, &connector), TaskOutcome::Split);
    let rows = world.rows();
    let mut children: Vec<_> = rows.iter().filter(|row| row.parent.is_some()).collect();
    children.sort_by(|one, other| one.start.cmp(&other.start));
    let counts: Vec<u64> = children.iter().map(|row| counted(row).0).collect();
    assert!(counts[0] >= 20 && counts[1..] == [0, 0, 0], "{counts:?}");
    assert!(children[1].start.as_ref() > children[0].last_key.as_deref().unwrap());
    assert_rest_is_done_once(&mut world, &connector);
}

#[test]
fn a_shard_with_a_finished_item_keeps_its_lease_and_is_narrowed() {
    let mut world = World::new();
    let mut handle = world.handle();
    let connector = numbered(KEYS);
    let config = TaskConfig { many_parts_from: 64, ..TaskConfig::default() };
    let mut task = world.claim(&mut handle, config, 1).unwrap();
    step_until_finished(&mut world, &mut task, &mut handle, &connector, 1);
    task.request(&ShardAction::Split(None));
    assert_eq!(world.run_to_end(&mut task, &mut handle, &connector), TaskOutcome::Completed);
    assert_eq!(statuses(&mut world).len(), 4);
    assert!(!statuses(&mut world).contains(&ShardStatus::Split));
    assert_rest_is_done_once(&mut world, &connector);
}

#[test]
fn a_shard_that_may_crash_its_workers_is_not_replaced() {
    let mut world = World::new();
    let mut handle = world.handle();
    let connector = numbered(KEYS);
    drop(world.claim(&mut handle, TaskConfig::default(), 1).unwrap());
    world.now += LASTS;
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    task.request(&ShardAction::Split(None));
    assert_eq!(world.run_to_end(&mut task, &mut handle, &connector), TaskOutcome::Completed);
    assert!(!statuses(&mut world).contains(&ShardStatus::Split));
}

/// Few keys that take long are as much work as many fast ones.
#[rstest]
#[case::slow_keys(400, 4)]
#[case::fast_keys(40, 2)]
fn a_shard_with_much_work_left_is_cut_into_many_parts(#[case] lasted: u64, #[case] parts: usize) {
    let mut world = World::new();
    let mut handle = world.handle();
    let connector = numbered(40);
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    step_until_finished(&mut world, &mut task, &mut handle, &connector, 4);
    world.now += lasted;
    task.request(&ShardAction::Split(None));
    assert_eq!(world.run_to_end(&mut task, &mut handle, &connector), TaskOutcome::Completed);
    assert_eq!(statuses(&mut world).len(), parts);
    world.work_everything(&connector);
    assert!((0..40).all(|number| world.times_done(&key(number)) == 1));
}
