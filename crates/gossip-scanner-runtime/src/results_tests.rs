//! Results and failures that are stored with the cursor: once, whatever crashes.

use std::sync::Arc;

use gossip_contracts::connector::{Connector, OpenError};
use gossip_contracts::identity::{OpId, ShardKey};
use gossip_coordination::store::Fault;
use gossip_coordination::{
    FailureKind, FailureRecord, RunManagement, ShardAction, SideRecord, SideRecordKind,
};
use gossip_testkit::Rng;

use crate::connectors::{ItemNames, Source, TreeOptions};
use crate::named::Named;
use crate::processor::{Inline, ItemResult, Processor, Work};
use crate::results::{CHUNK_MAX, ITEM_RESULTS_MAX, ResultsError, StoredResults, for_each_result};
use crate::task::{StoreAccess, TaskConfig, TaskContext, TaskOutcome, TaskStep};
use crate::test_support::{LASTS, RUN, TENANT, World, at, key, numbered};
use crate::throttle::Throttle;

/// Number of crash schedules.
const SEEDS: u64 = 60;
const KEYS: usize = 120;
/// Fails in the schedules until it is unparked.
const FAILS: usize = 37;

/// What the processor returns for the item with this number.
fn content(number: usize) -> Box<[u8]> {
    let len = match number % 10 {
        0 => 0,
        1 => CHUNK_MAX,
        2 => CHUNK_MAX + 1,
        3 if number == 73 => ITEM_RESULTS_MAX,
        _ => number,
    };
    let byte = u8::try_from(number % 251).unwrap();
    vec![byte; len].into()
}

fn number(key: &[u8]) -> usize {
    str::from_utf8(&key[1..]).unwrap().parse().unwrap()
}

fn listed(world: &World) -> Vec<StoredResults> {
    let mut all = Vec::new();
    let listed = for_each_result(&mut world.handle(), TENANT, RUN, |results| {
        all.push(results);
        Ok::<(), ResultsError>(())
    });
    listed.unwrap();
    all
}

fn failures(world: &World) -> Vec<FailureRecord> {
    let mut page = Vec::new();
    let kind = SideRecordKind::Failure;
    world.handle().list_side_records_into(TENANT, RUN, kind, None, 99, &mut page).unwrap();
    let failure = |it: gossip_coordination::StoredSideRecord| match it.record {
        SideRecord::Failure(failure) => failure,
        other => panic!("{other:?}"),
    };
    page.into_iter().map(failure).collect()
}

/// Works on one shard for at most `steps` steps, with a store that fails now and then, and dies.
fn work_and_die(world: &mut World, connector: &dyn Connector, rng: &mut Rng, fails: bool) -> bool {
    let mut handle = world.handle();
    let config = TaskConfig { checkpoint_items: 7, item_tries: 1, ..TaskConfig::default() };
    let Some(mut task) = world.claim(&mut handle, config, 1 + rng.below(3)) else { return false };
    let mut processor = Inline::new(|work: Work<'_>, _: &mut Vec<u8>| match number(work.key()) {
        FAILS if fails => ItemResult::Hopeless("not today".into()),
        number => ItemResult::Results { findings: 1, content: content(number) },
    });
    for _ in 0..rng.below(80) {
        let fault = match rng.below(6) {
            0 => Fault::LoseReply,
            1 => Fault::LoseRequest,
            2 => Fault::Fail,
            _ => Fault::None,
        };
        handle.store_mut().inject(fault);
        if rng.below(25) == 0 {
            task.request(&ShardAction::Split(None));
        }
        let mut context = TaskContext {
            coordinator: &mut handle,
            connector,
            processor: &mut processor,
            throttle: &Throttle::default(),
            observer: &(),
            store: StoreAccess::Usable,
        };
        match task.step(at(world.now), &mut context) {
            TaskStep::Continue => {}
            TaskStep::Wait(until) => world.now = until.as_raw(),
            TaskStep::Over(_) => break,
        }
    }
    true
}

#[test]
fn every_result_is_listed_once_and_in_order_whatever_crashes() {
    for seed in 0..SEEDS {
        let mut rng = Rng::seeded(seed);
        let (mut world, connector) = (World::new(), numbered(KEYS));
        for round in 0.. {
            assert!(round < 10_000, "seed {seed} does not end");
            let worked = work_and_die(&mut world, &connector, &mut rng, round < 20);
            // A dead worker's lease runs out.
            world.now += LASTS + 1;
            for row in world.rows() {
                let shard = ShardKey::new(RUN, row.shard);
                let op_id = OpId::from_raw(1_000_000 + round);
                let _ = world.handle().unpark_shard(at(world.now), TENANT, shard, op_id);
            }
            if !worked && world.rows().iter().all(|row| row.status.is_terminal()) {
                break;
            }
        }
        let all = listed(&world);
        let with_results = (0..KEYS).filter(|number| !content(*number).is_empty());
        let expected: Vec<_> = with_results.map(|it| (key(it), content(it).into_vec())).collect();
        let all: Vec<_> = all.into_iter().map(|it| (it.key.into_vec(), it.content)).collect();
        let keys =
            |all: &[(Vec<u8>, Vec<u8>)]| all.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&all), keys(&expected), "seed {seed}");
        assert!(all == expected, "seed {seed}: another content");
    }
}

/// Adds the names of files below a directory.
fn named<'a>(processor: impl Processor + 'a) -> Named<'a> {
    let source = Source::Tree { root: "photos".into(), options: TreeOptions::default() };
    Named::new(Box::new(processor), Arc::new(ItemNames::of(&source)))
}

#[test]
fn results_that_are_too_long_fail_their_item() {
    let (mut world, connector) = (World::new(), numbered(3));
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let mut processor = Inline::new(|work: Work<'_>, _: &mut Vec<u8>| {
        let len = ITEM_RESULTS_MAX + usize::from(number(work.key()) == 0);
        ItemResult::Results { findings: 0, content: vec![1; len].into() }
    });
    let outcome = world.drive(&mut task, &mut handle, &connector, &mut processor, &());
    assert!(matches!(outcome, TaskOutcome::Parked(_)), "{outcome:?}");
    let messages: Vec<_> = failures(&world).into_iter().map(|it| it.message).collect();
    assert_eq!(messages.len(), 1);
    assert!(messages[0].contains("exceed the limit"), "{}", messages[0]);
}

#[test]
fn a_failed_item_has_a_record_of_the_commit_that_parks_it() {
    let (mut world, connector) = (World::new(), numbered(10));
    let mut handle = world.handle();
    let config = TaskConfig { item_tries: 2, ..TaskConfig::default() };
    let mut task = world.claim(&mut handle, config, 1).unwrap();
    let processor = Inline::new(|work: Work<'_>, _: &mut Vec<u8>| match number(work.key()) {
        4 => ItemResult::Failed("exit status 22".into()),
        _ => ItemResult::Done,
    });
    let mut processor = named(processor);
    let outcome = world.drive(&mut task, &mut handle, &connector, &mut processor, &());
    assert!(matches!(outcome, TaskOutcome::Parked(_)), "{outcome:?}");
    let [failure] = &failures(&world)[..] else { panic!("one item failed") };
    assert_eq!(&*failure.place, "photos/k004");
    assert_eq!((&*failure.key, failure.kind), (&*key(4), FailureKind::Failed));
    assert_eq!((&*failure.message, failure.tries), ("exit status 22", 2));
}

#[test]
fn an_unread_item_has_a_record_of_the_checkpoint_that_passes_it() {
    let (mut world, connector) = (World::new(), numbered(10));
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let processor = Inline::new(|work: Work<'_>, _: &mut Vec<u8>| match number(work.key()) {
        4 => ItemResult::Unopened(OpenError::Malformed),
        _ => ItemResult::Done,
    });
    let mut processor = named(processor);
    let outcome = world.drive(&mut task, &mut handle, &connector, &mut processor, &());
    assert_eq!(outcome, TaskOutcome::Completed);
    let [failure] = &failures(&world)[..] else { panic!("one item is unread") };
    assert_eq!(&*failure.place, "photos/k004");
    assert_eq!((&*failure.key, failure.kind), (&*key(4), FailureKind::Unread));
}

/// More unread items in a row than one operation has room for.
#[test]
fn every_unread_item_has_a_record() {
    let (mut world, connector) = (World::new(), numbered(100));
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let mut processor =
        Inline::new(|_: Work<'_>, _: &mut Vec<u8>| ItemResult::Unopened(OpenError::Malformed))
            .with_batch(64);
    let outcome = world.drive(&mut task, &mut handle, &connector, &mut processor, &());
    assert_eq!(outcome, TaskOutcome::Completed);
    let mut page = Vec::new();
    let mut count = 0;
    loop {
        let after = page.last().map(|it: &gossip_coordination::StoredSideRecord| it.id);
        page.clear();
        let kind = SideRecordKind::Failure;
        world.handle().list_side_records_into(TENANT, RUN, kind, after, 99, &mut page).unwrap();
        count += page.len();
        if page.is_empty() {
            break;
        }
    }
    assert_eq!(count, 100);
}

/// A reader that stops gets its own error back.
#[test]
fn a_listing_ends_with_the_error_of_its_reader() {
    #[derive(Debug, PartialEq)]
    enum Stop {
        Here,
        Failed,
    }
    impl From<ResultsError> for Stop {
        fn from(_: ResultsError) -> Self {
            Self::Failed
        }
    }
    let (mut world, connector) = (World::new(), numbered(5));
    let mut handle = world.handle();
    let mut task = world.claim(&mut handle, TaskConfig::default(), 1).unwrap();
    let mut processor = Inline::new(|work: Work<'_>, _: &mut Vec<u8>| ItemResult::Results {
        findings: 0,
        content: work.key().into(),
    });
    world.drive(&mut task, &mut handle, &connector, &mut processor, &());
    let mut seen = 0;
    let stopped = for_each_result(&mut handle, TENANT, RUN, |_| {
        seen += 1;
        if seen == 2 { Err(Stop::Here) } else { Ok(()) }
    });
    assert_eq!((stopped, seen), (Err(Stop::Here), 2));
}
