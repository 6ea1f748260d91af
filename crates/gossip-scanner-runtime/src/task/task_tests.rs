use std::collections::BTreeSet;
use std::time::Duration;

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, MemoryConnector, OpenError,
    Page, PageItem, Spoil,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_contracts::identity::OpId;
use gossip_coordination::store::Fault;
use gossip_coordination::{CoordinationBackend, ParkReason, ShardAction, ShardStatus, SplitKey};
use proptest::prelude::*;
use rstest::rstest;

use super::{ShardTask, StoreAccess, TaskConfig, TaskContext, TaskOutcome, TaskStep, page_limits};
use crate::processor::{Broken, Inline, ItemResult, Processor, Report, Work};
use crate::test_support::{LASTS, TENANT, World, at, counted, key, noting, numbered};
use crate::throttle::{Limits, Throttle};

#[test]
fn every_key_is_covered_and_the_shard_completed() {
    let mut world = World::new();
    assert_eq!(world.work_everything(&numbered(2500)), [TaskOutcome::Completed]);
    assert!((0..1000).all(|number| world.times_done(&key(number)) == 1));
    let row = &world.rows()[0];
    assert_eq!((row.status, counted(row)), (ShardStatus::Done, (2500, 0)));
}

#[test]
fn a_shard_without_items_is_completed_at_its_start() {
    let mut world = World::new();
    assert_eq!(world.work_everything(&numbered(0)), [TaskOutcome::Completed]);
    let row = &world.rows()[0];
    assert_eq!((row.last_key.as_deref(), counted(row)), (Some(b"a".as_slice()), (0, 0)));
}

/// The next lease holder continues after the last checkpoint, with the counts of the first.
#[test]
fn a_crash_repeats_at_most_the_unsaved_items() {
    let mut world = World::new();
    let connector = numbered(100);
    let config = TaskConfig { checkpoint_items: 10, ..TaskConfig::default() };
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, config, 1).unwrap();
    let done = std::mem::take(&mut world.done);
    step_until(&mut world, &mut task, &mut handle, &connector, &mut noting(&done), |done| {
        done == 37
    });
    world.done = done;
    // The process is gone; its lease expires.
    world.now += LASTS;
    assert_eq!(world.work_everything(&connector), [TaskOutcome::Completed]);
    let redone = (0..100).filter(|number| world.times_done(&key(*number)) == 2).count();
    assert!((0..100).all(|number| world.times_done(&key(number)) >= 1));
    assert!(redone <= 10, "{redone} keys were done again");
    assert_eq!(counted(&world.rows()[0]), (100, 0));
}

/// Steps until `stop` items were submitted.
fn step_until(
    world: &mut World,
    task: &mut ShardTask,
    handle: &mut crate::test_support::Coordinator,
    connector: &dyn Connector,
    processor: &mut dyn Processor,
    stop: impl Fn(usize) -> bool,
) {
    let mut counting = Counting { processor, submitted: 0 };
    let throttle = Throttle::default();
    while !stop(counting.submitted) {
        let mut context = TaskContext {
            coordinator: &mut *handle,
            connector,
            processor: &mut counting,
            throttle: &throttle,
            observer: &(),
            store: StoreAccess::Usable,
        };
        assert!(matches!(task.step(at(world.now), &mut context), TaskStep::Continue));
    }
}

struct Counting<'p> {
    processor: &'p mut dyn Processor,
    submitted: usize,
}

impl Processor for Counting<'_> {
    fn capacity(&self) -> usize {
        self.processor.capacity()
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        self.submitted += 1;
        self.processor.submit(work)
    }

    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        self.processor.collect(patience, reports)
    }

    fn abandon(&mut self) {
        self.processor.abandon();
    }
}

fn failing_on(bad: &'static [usize]) -> impl FnMut(Work<'_>, &mut Vec<u8>) -> ItemResult {
    move |work, _| match bad.iter().any(|number| work.key() == key(*number)) {
        true => ItemResult::Failed("no good".into()),
        false => ItemResult::Done,
    }
}

/// Claims until no shard is left.
fn work_with(world: &mut World, connector: &dyn Connector, processor: &mut dyn Processor) {
    let mut handle = world.handle();
    while let Some(mut task) = world.claim(&mut handle, TaskConfig::default(), 1) {
        world.drive(&mut task, &mut handle, connector, processor, &());
    }
}

#[rstest]
#[case::in_the_middle(&[50], 1)]
#[case::first(&[0], 1)]
#[case::last(&[99], 1)]
#[case::neighbours(&[10, 11], 2)]
#[case::several(&[3, 50, 99], 3)]
fn a_key_that_fails_is_parked_alone(#[case] bad: &'static [usize], #[case] parked: usize) {
    let mut world = World::new();
    work_with(&mut world, &numbered(100), &mut Inline::new(failing_on(bad)));
    let rows = world.rows();
    let is_parked = |status| status == ShardStatus::Parked;
    assert_eq!(rows.iter().filter(|row| is_parked(row.status)).count(), parked);
    assert!(rows.iter().all(|row| matches!(row.status, ShardStatus::Parked | ShardStatus::Done)));
    assert!(
        rows.iter()
            .all(|row| !is_parked(row.status) || row.park_reason == Some(ParkReason::Poisoned))
    );
    assert_eq!(world.park_texts(), vec![Some("no good".into()); parked], "the item's error");
    let covered: u64 = rows.iter().map(|row| counted(row).0).sum();
    assert_eq!(covered, 100 - bad.len() as u64, "all other keys are done");
}

#[test]
fn a_key_is_retried_before_it_is_parked() {
    let mut world = World::new();
    let mut failures = 0;
    let mut flaky = Inline::new(|work: Work<'_>, _: &mut Vec<u8>| {
        if work.key() == key(5) && failures < 2 {
            failures += 1;
            return ItemResult::Failed("not now".into());
        }
        ItemResult::Done
    });
    work_with(&mut world, &numbered(10), &mut flaky);
    let rows = world.rows();
    assert_eq!((rows.len(), rows[0].status, counted(&rows[0]).0), (1, ShardStatus::Done, 10));
}

#[test]
fn a_panic_parks_the_item_and_nothing_else() {
    let mut world = World::new();
    let mut touchy = Inline::new(|work: Work<'_>, _: &mut Vec<u8>| {
        assert!(work.key() != key(7), "a bug of the user");
        ItemResult::Done
    });
    work_with(&mut world, &numbered(20), &mut touchy);
    assert_eq!(world.rows().iter().map(|row| counted(row).0).sum::<u64>(), 19);
}

#[test]
fn a_gone_item_is_not_counted_and_an_unread_one_is() {
    let mut world = World::new();
    let listed = numbered(10);
    let mut opened = listed.clone();
    assert!(opened.spoil(&key(3), Spoil::Vanish) && opened.spoil(&key(4), Spoil::Deny));
    let connector = Stale { listed, opened };
    assert_eq!(world.work_everything(&connector), [TaskOutcome::Completed]);
    assert_eq!(counted(&world.rows()[0]), (9, 1));
}

/// Lists an earlier state of the source, and opens the current one.
struct Stale {
    listed: MemoryConnector,
    opened: MemoryConnector,
}

impl Connector for Stale {
    fn capabilities(&self) -> Capabilities {
        self.listed.capabilities()
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        self.listed.enumerate(range, from)
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        self.opened.open(item, scratch)
    }
}

/// Returns the same error for every listing, or lists descending keys.
struct Bad(Option<ConnectorError>);

impl Connector for Bad {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn enumerate(
        &self,
        _range: ShardSpecRef<'_>,
        _from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        self.0.map_or_else(|| Ok(Box::new(Falling) as Box<dyn Enumeration>), Err)
    }

    fn open<'a>(
        &'a self,
        _item: PageItem<'_>,
        _scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        Err(OpenError::Vanished)
    }
}

struct Falling;

impl Enumeration for Falling {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        for key in [b"c", b"b"] {
            page.push(PageItem::new(key)).unwrap();
        }
        page.mark_exhausted();
        Ok(())
    }
}

#[rstest]
#[case::out_of_order(None, ParkReason::Poisoned)]
#[case::denied(Some(ConnectorError::PermissionDenied), ParkReason::PermissionDenied)]
#[case::missing(Some(ConnectorError::NotFound), ParkReason::NotFound)]
#[case::changed(Some(ConnectorError::SourceChanged), ParkReason::Poisoned)]
#[case::never_answers(
    Some(ConnectorError::Unavailable { kind: std::io::ErrorKind::TimedOut }),
    ParkReason::TooManyErrors
)]
fn a_source_that_fails_parks_its_shard(
    #[case] error: Option<ConnectorError>,
    #[case] reason: ParkReason,
) {
    let mut world = World::new();
    assert_eq!(world.work_everything(&Bad(error)), [TaskOutcome::Parked(reason)]);
    let row = &world.rows()[0];
    assert_eq!((row.status, row.park_reason), (ShardStatus::Parked, Some(reason)));
    assert!(world.park_texts()[0].is_some(), "the source's error");
}

#[test]
fn a_released_shard_keeps_its_progress() {
    let mut world = World::new();
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let connector = numbered(50);
    let done = std::mem::take(&mut world.done);
    let mut processor = noting(&done);
    step_until(&mut world, &mut task, &mut handle, &connector, &mut processor, |done| done == 20);
    task.request(&ShardAction::Release);
    let outcome = world.drive(&mut task, &mut handle, &connector, &mut processor, &());
    drop(processor);
    assert_eq!(outcome, TaskOutcome::Released);
    let row = &world.rows()[0];
    assert_eq!((row.status, row.leased, counted(row).0), (ShardStatus::Active, false, 20));
    world.done = done;
    assert_eq!(world.work_everything(&connector), [TaskOutcome::Completed]);
    assert!((0..50).all(|number| world.times_done(&key(number)) == 1), "nothing was done twice");
}

#[test]
fn a_lost_lease_drops_the_shard_and_records_nothing() {
    let mut world = World::new();
    let connector = numbered(50);
    let (mut zombie, mut other) = (world.handle(), world.handle());
    let mut late = world.claim(&mut zombie, TaskConfig::default(), 1).unwrap();
    let done = std::mem::take(&mut world.done);
    step_until(&mut world, &mut late, &mut zombie, &connector, &mut noting(&done), |done| {
        done == 9
    });
    world.now += LASTS;
    let mut task = world.claim(&mut other, TaskConfig::default(), 2).unwrap();
    // The old holder assumes that its lease was renewed, and is refused by its fence.
    late.renewed(at(world.now + LASTS));
    late.release();
    let outcome = world.drive(&mut late, &mut zombie, &connector, &mut noting(&done), &());
    assert_eq!(outcome, TaskOutcome::Lost);
    assert_eq!(counted(&world.rows()[0]), (0, 0));
    assert_eq!(world.run_to_end(&mut task, &mut other, &connector), TaskOutcome::Completed);
    assert_eq!(counted(&world.rows()[0]), (50, 0));
}

#[test]
fn no_item_starts_under_an_expired_lease() {
    let mut world = World::new();
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    world.now += LASTS;
    let outcome = world.run_to_end(&mut task, &mut handle, &numbered(5));
    assert_eq!((outcome, world.times_done(&key(0))), (TaskOutcome::Lost, 0));
}

#[rstest]
#[case::anywhere(None)]
#[case::at_a_key(SplitKey::try_new(b"k030"))]
#[case::between_keys(SplitKey::try_new(b"k0301"))]
fn a_split_on_request_loses_and_repeats_nothing(#[case] at_key: Option<SplitKey>) {
    let mut world = World::new();
    let mut handle = world.handle();
    let connector = numbered(50);
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let done = std::mem::take(&mut world.done);
    let mut processor = noting(&done);
    step_until(&mut world, &mut task, &mut handle, &connector, &mut processor, |done| done == 10);
    drop(processor);
    world.done = done;
    task.request(&ShardAction::Split(at_key));
    assert_eq!(world.run_to_end(&mut task, &mut handle, &connector), TaskOutcome::Completed);
    let rows = world.rows();
    assert_eq!(
        rows.iter().map(|row| row.status).collect::<Vec<_>>(),
        [ShardStatus::Done, ShardStatus::Active]
    );
    let kept = counted(&rows[0]).0;
    assert!((20..=40).contains(&kept), "{kept} of 50 were kept");
    assert_eq!(world.work_everything(&connector), [TaskOutcome::Completed]);
    assert!((0..50).all(|number| world.times_done(&key(number)) == 1));
    assert_eq!(world.rows().iter().map(|row| counted(row).0).sum::<u64>(), 50);
}

#[test]
fn a_split_before_the_cursor_is_not_made() {
    let mut world = World::new();
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let connector = numbered(20);
    let done = std::mem::take(&mut world.done);
    step_until(&mut world, &mut task, &mut handle, &connector, &mut noting(&done), |done| {
        done == 9
    });
    world.done = done;
    task.request(&ShardAction::Split(SplitKey::try_new(b"k003")));
    assert_eq!(world.run_to_end(&mut task, &mut handle, &connector), TaskOutcome::Completed);
    assert_eq!(world.rows().len(), 1);
}

#[test]
fn a_foreign_token_parks_the_shard() {
    let mut world = World::new();
    let mut handle = world.handle();
    let task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let cursor = CursorUpdate::new(b"k001", b"not ours");
    let op_id = OpId::from_raw(3);
    handle.checkpoint(at(world.now), TENANT, task.lease(), cursor, op_id).unwrap();
    world.now += LASTS;
    assert_eq!(world.work_everything(&numbered(5)), [TaskOutcome::Parked(ParkReason::Poisoned)]);
}

#[rstest]
#[case::reply(Fault::LoseReply)]
#[case::request(Fault::LoseRequest)]
#[case::failure(Fault::Fail)]
fn an_operation_in_doubt_is_repeated_until_it_is_answered(#[case] fault: Fault) {
    let mut world = World::new();
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    // More failures would outlast the lease, whose renewals fail as well.
    for _ in 0..4 {
        handle.store_mut().inject(fault);
    }
    assert_eq!(world.run_to_end(&mut task, &mut handle, &numbered(30)), TaskOutcome::Completed);
    assert_eq!(counted(&world.rows()[0]), (30, 0));
}

#[test]
fn a_broken_processor_releases_the_shard() {
    struct NoSuchProgram;
    impl Processor for NoSuchProgram {
        fn capacity(&self) -> usize {
            1
        }
        fn submit(&mut self, _work: Work<'_>) -> Result<(), Broken> {
            Err(Broken::Failed("no such program".into()))
        }
        fn collect(&mut self, _: Duration, _: &mut Vec<Report>) -> Result<(), Broken> {
            Ok(())
        }
        fn abandon(&mut self) {}
    }
    let mut world = World::new();
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let outcome = world.drive(&mut task, &mut handle, &numbered(5), &mut NoSuchProgram, &());
    assert_eq!(outcome, TaskOutcome::Broken(Broken::Failed("no such program".into())));
    assert!(!world.rows()[0].leased);
}

/// Numbers, of which those that begin with `k1` cannot be listed.
struct Obstructed(MemoryConnector);

struct ObstructedListing(Box<dyn Enumeration>);

impl Connector for Obstructed {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        self.0.enumerate(range, from).map(|listing| -> Box<dyn Enumeration> {
            let passed = from.last_key().is_some_and(|key| key >= &b"k1"[..]);
            match passed || range.start >= &b"k1"[..] {
                true => listing,
                false => Box::new(ObstructedListing(listing)),
            }
        })
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        self.0.open(item, scratch)
    }
}

impl Enumeration for ObstructedListing {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        let mut all = Page::default();
        self.0.next_page(&mut all)?;
        for item in all.items().take_while(|item| item.key() < &b"k1"[..]) {
            page.push(item).unwrap();
        }
        if page.is_empty() { Err(ConnectorError::PermissionDenied) } else { Ok(()) }
    }

    fn behind_failure(&self) -> Option<&[u8]> {
        Some(b"k2")
    }
}

/// The range that cannot be listed is parked alone.
#[test]
fn keys_after_an_unlistable_range_are_done() {
    let mut world = World::new();
    let endings = world.work_everything(&Obstructed(numbered(300)));
    assert_eq!(
        endings,
        [TaskOutcome::Parked(ParkReason::PermissionDenied), TaskOutcome::Completed]
    );
    let done = |number| world.times_done(&key(number)) == 1;
    assert!((0..100).chain(200..300).all(done));
    let parked = &world.rows()[0];
    assert_eq!((parked.last_key.as_deref(), &parked.end[..]), (Some(&b"k099"[..]), &b"k2"[..]));
}

/// Takes many items at a time, finishes `per_life` of them, and returns the others untried.
struct Recycled {
    per_life: usize,
    given: Vec<usize>,
}

impl Processor for Recycled {
    fn capacity(&self) -> usize {
        100
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        self.given.push(work.ticket);
        Ok(())
    }

    fn collect(&mut self, _: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        for (at, ticket) in std::mem::take(&mut self.given).into_iter().enumerate() {
            let result = if at < self.per_life { ItemResult::Done } else { ItemResult::Undone };
            reports.push(Report { ticket, result });
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.given.clear();
    }
}

#[rstest]
#[case::as_long_as_something_is_finished(1, TaskOutcome::Completed)]
#[case::but_not_for_ever(0, TaskOutcome::Parked(ParkReason::Poisoned))]
fn items_may_be_handed_back_untried(#[case] per_life: usize, #[case] expected: TaskOutcome) {
    let mut world = World::new();
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let mut processor = Recycled { per_life, given: Vec::new() };
    let outcome = world.drive(&mut task, &mut handle, &numbered(100), &mut processor, &());
    assert_eq!(outcome, expected);
}

#[test]
fn a_throttle_makes_a_task_wait() {
    let mut world = World::new();
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let throttle = Throttle::new(Limits { items: Some(1), bytes: None });
    let (connector, mut processor) = (numbered(3), Inline::new(failing_on(&[])));
    let mut waits = 0;
    loop {
        let mut context = TaskContext {
            coordinator: &mut handle,
            connector: &connector,
            processor: &mut processor,
            throttle: &throttle,
            observer: &(),
            store: StoreAccess::Usable,
        };
        match task.step(at(world.now), &mut context) {
            TaskStep::Continue => {}
            TaskStep::Wait(until) => {
                waits += 1;
                world.pass_time(until, &mut task, &mut handle);
            }
            TaskStep::Over(_) => break,
        }
    }
    assert!(waits >= 1 && world.now >= 1000, "{waits} waits until {}", world.now);
}

/// Keys whose processing kills the process: nothing is reported, and the lease expires.
#[rstest]
#[case::one(&[57], 200)]
#[case::first_and_last(&[0, 199], 200)]
#[case::neighbours(&[100, 101, 102], 200)]
#[case::alone(&[0], 1)]
fn keys_that_kill_their_owners_are_parked_alone(#[case] killers: &[usize], #[case] keys: usize) {
    let (mut world, connector) = (World::new(), numbered(keys));
    let config =
        TaskConfig { checkpoint_items: 50, shard_retries: Some(3), ..TaskConfig::default() };
    let mut crashes = 0;
    let mut handle = world.handle();
    while let Some(mut task) = world.claim(&mut handle, config, 1) {
        let mut processor = Deadly { killers, reports: Vec::new(), killed: false };
        let throttle = Throttle::default();
        loop {
            let mut context = TaskContext {
                coordinator: &mut handle,
                connector: &connector,
                processor: &mut processor,
                throttle: &throttle,
                observer: &(),
                store: StoreAccess::Usable,
            };
            let turn = task.step(at(world.now), &mut context);
            if processor.killed {
                crashes += 1;
                world.now += LASTS;
                handle = world.handle();
                break;
            }
            match turn {
                TaskStep::Continue => {}
                TaskStep::Wait(until) => world.pass_time(until, &mut task, &mut handle),
                TaskStep::Over(_) => break,
            }
        }
    }
    let rows = world.rows();
    let parked: Vec<_> = rows.iter().filter(|row| row.status == ShardStatus::Parked).collect();
    assert_eq!(parked.len(), killers.len(), "{rows:?}");
    assert!(parked.iter().all(|row| row.park_reason == Some(ParkReason::TooManyErrors)));
    let covered: u64 = rows.iter().map(|row| counted(row).0).sum();
    assert_eq!(covered, (keys - killers.len()) as u64, "everything else is done");
    let bound = killers.len() * (keys.ilog2() as usize + 8);
    assert!(crashes <= bound, "{crashes} crashes for {} killers", killers.len());
}

struct Deadly<'k> {
    killers: &'k [usize],
    reports: Vec<Report>,
    killed: bool,
}

impl Processor for Deadly<'_> {
    fn capacity(&self) -> usize {
        8
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        self.killed |= self.killers.iter().any(|number| work.key() == key(*number));
        self.reports.push(Report { ticket: work.ticket, result: ItemResult::Done });
        Ok(())
    }

    fn collect(&mut self, _patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        // A dead process reports nothing.
        if !self.killed {
            reports.append(&mut self.reports);
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.reports.clear();
    }
}

/// Reports items in any order, some of them as failed.
struct Shuffled {
    waiting: Vec<(usize, Vec<u8>)>,
    dice: proptest::test_runner::TestRng,
    /// Keys whose results are durable.
    durable: BTreeSet<Vec<u8>>,
}

impl Processor for Shuffled {
    fn capacity(&self) -> usize {
        8
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        self.waiting.push((work.ticket, work.key().to_vec()));
        Ok(())
    }

    fn collect(&mut self, _patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        let chosen = self.dice.next_u32() as usize % self.waiting.len();
        let (ticket, key) = self.waiting.swap_remove(chosen);
        let result = match self.dice.next_u32() % 8 {
            0 => ItemResult::Failed("by chance".into()),
            1 => ItemResult::Undone,
            _ => {
                self.durable.insert(key);
                ItemResult::Done
            }
        };
        reports.push(Report { ticket, result });
        Ok(())
    }

    fn abandon(&mut self) {
        self.waiting.clear();
    }
}

proptest! {
    /// For every crash, every order of completion, and every parked item.
    #[test]
    fn no_stored_cursor_covers_a_key_that_is_not_durable(
        seed in any::<[u8; 32]>(),
        crashes in prop::collection::vec(1_usize..400, 0..4),
    ) {
        let (mut world, connector) = (World::new(), numbered(60));
        let dice = proptest::test_runner::TestRng::from_seed(
            proptest::test_runner::RngAlgorithm::ChaCha, &seed);
        let mut processor = Shuffled { waiting: Vec::new(), dice, durable: BTreeSet::new() };
        let config = TaskConfig { checkpoint_items: 5, ..TaskConfig::default() };
        for steps in crashes {
            let mut handle = world.handle();
            let Some(mut task) = world.claim(&mut handle, config, 1) else { break };
            let throttle = Throttle::default();
            for _ in 0..steps {
                let mut context = TaskContext {
                    coordinator: &mut handle,
                    connector: &connector,
                    processor: &mut processor,
                    throttle: &throttle,
                    observer: &(),
                    store: StoreAccess::Usable,
                };
                match task.step(at(world.now), &mut context) {
                    TaskStep::Over(_) => break,
                    TaskStep::Wait(until) => world.pass_time(until, &mut task, &mut handle),
                    TaskStep::Continue => {}
                }
            }
            processor.abandon();
            world.now += 2 * LASTS;
            check_cursors(&mut world, &processor.durable);
        }
        work_with(&mut world, &connector, &mut processor);
        check_cursors(&mut world, &processor.durable);
        let rows = world.rows();
        let parked = rows.iter().filter(|row| row.status == ShardStatus::Parked).count() as u64;
        prop_assert!(rows.iter().all(|row| row.status.is_terminal()));
        let covered: u64 = rows.iter().map(|row| counted(row).0).sum();
        prop_assert_eq!(covered + parked, 60, "each parked shard is one key");
    }
}

fn check_cursors(world: &mut World, durable: &BTreeSet<Vec<u8>>) {
    for row in world.rows() {
        let Some(last) = &row.last_key else { continue };
        let covered = (0..60).map(key).filter(|key| **key >= *row.start && **key <= **last);
        let covered: Vec<_> = covered.collect();
        assert!(covered.iter().all(|key| durable.contains(key)));
        assert_eq!(counted(&row).0, covered.len() as u64);
    }
}

/// Fails on some keys without opening them, as a command does.
struct Unopened<'a> {
    bad: &'a [&'a [u8]],
    ready: Vec<Report>,
}

impl Processor for Unopened<'_> {
    fn capacity(&self) -> usize {
        4
    }
    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let result = match self.bad.contains(&work.key()) {
            true => ItemResult::Failed("exit status 1".into()),
            false => ItemResult::Done,
        };
        self.ready.push(Report { ticket: work.ticket, result });
        Ok(())
    }
    fn opens_items(&self) -> bool {
        false
    }
    fn collect(&mut self, _: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        reports.append(&mut self.ready);
        Ok(())
    }
    fn abandon(&mut self) {
        self.ready.clear();
    }
}

/// Of items that a command fails on, one is gone and one unreadable: neither is a failure of the
/// command.
#[test]
fn a_failed_item_that_cannot_be_opened_is_gone_or_unread() {
    let (mut world, mut connector) =
        (World::new(), Stale { listed: numbered(9), opened: numbered(9) });
    connector.opened.spoil(&key(3), Spoil::Vanish);
    connector.opened.spoil(&key(5), Spoil::Change);
    let bad = [key(3), key(5)];
    let bad: Vec<&[u8]> = bad.iter().map(Vec::as_slice).collect();
    let mut processor = Unopened { bad: &bad, ready: Vec::new() };
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let outcome = world.drive(&mut task, &mut handle, &connector, &mut processor, &());
    assert_eq!(outcome, TaskOutcome::Completed);
    assert_eq!(counted(&world.rows()[0]), (8, 1));
}

#[rstest]
#[case(1, 1024)]
#[case(100, 1000)]
#[case(1000, 1000)]
#[case(1024, 1024)]
#[case(1025, 1025)]
#[case(1_000_000, 4096)]
fn a_page_holds_whole_batches(#[case] capacity: usize, #[case] items: usize) {
    assert_eq!(page_limits(capacity).items(), items);
}
