//! Results and failures that are stored with the cursor: once, whatever crashes.

use std::sync::Arc;

use gossip_contracts::connector::{Connector, OpenError};
use gossip_contracts::coordination::CursorUpdate;
use gossip_contracts::identity::{OpId, ShardKey, WorkerId};
use gossip_coordination::store::Fault;
use gossip_coordination::{
    AcquireScratch, CoordinationBackend as _, FailureKind, FailureRecord, ResultBlock,
    RunManagement, ShardAction, ShardClaiming, SideRecord, SideRecordKind, SideRecords,
};
use gossip_testkit::Rng;

use crate::connectors::{ItemNames, Source, TreeOptions};
use crate::named::Named;
use crate::processor::{Inline, ItemResult, Processor, Work};
use crate::results::{
    CHUNK_MAX, Entry, ITEM_RESULTS_MAX, ResultsError, StoredResults, entries, for_each_result,
};
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

/// Stores blocks, each of these entries.
fn store_blocks(world: &World, blocks: &[&[&Entry]]) {
    let mut handle = world.handle();
    let mut scratch = Box::<AcquireScratch>::default();
    let claimed =
        handle.claim_next_available(at(1), TENANT, RUN, WorkerId::from_raw(1), &mut scratch);
    let lease = claimed.unwrap().lease;
    for (block, number) in blocks.iter().zip(1_u64..) {
        let content = block.iter().flat_map(|entry| entry.bytes.clone()).collect();
        let block = ResultBlock { number: block[0].number, content };
        let records = [SideRecord::Results(block)];
        let given = SideRecords::try_new(&records).unwrap();
        let covered = key(usize::try_from(number).unwrap());
        let cursor = CursorUpdate::with_last_key(&covered);
        let op = OpId::from_raw(number);
        handle.checkpoint_with_records(at(2), TENANT, &lease, cursor, given, op).unwrap();
    }
}

/// After a repair an item of several chunks is stored again, once with the item before it in one
/// block and once without.
#[test]
fn chunks_that_are_stored_twice_are_listed_once() {
    let long: Vec<u8> = (0..3 * CHUNK_MAX).map(|at| (at / CHUNK_MAX) as u8).collect();
    let short: Vec<Entry> = entries(4, b"k4", b"short").collect();
    let chunks: Vec<Entry> = entries(5, b"k5", &long).collect();
    let [first, second, third] = &chunks[..] else { panic!("three chunks") };
    let world = World::new();
    store_blocks(&world, &[&[&short[0], first], &[first], &[second], &[third]]);
    let listed: Vec<_> = listed(&world).into_iter().map(|it| (it.key, it.content)).collect();
    let expected = [(b"k4", b"short".to_vec()), (b"k5", long)];
    assert!(listed == expected.map(|(key, content)| (key.as_slice().into(), content)));
}

#[test]
fn missing_chunk_is_reported_after_the_other_items() {
    let long = vec![1; 3 * CHUNK_MAX];
    let chunks: Vec<Entry> = entries(5, b"k5", &long).collect();
    let after: Vec<Entry> = entries(6, b"k6", b"short").collect();
    for missing in 0..3 {
        let left = chunks.iter().enumerate().filter(|(chunk, _)| *chunk != missing);
        let blocks: Vec<_> = left.map(|(_, entry)| vec![entry]).chain([vec![&after[0]]]).collect();
        let world = World::new();
        store_blocks(&world, &blocks.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut keys = Vec::new();
        let result = for_each_result(&mut world.handle(), TENANT, RUN, |results| {
            keys.push(results.key.into_vec());
            Ok::<(), ResultsError>(())
        });
        assert!(matches!(result, Err(ResultsError::Malformed)), "{missing}: {result:?}");
        assert_eq!(keys, [b"k6".to_vec()], "{missing}");
    }
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
