//! Runs with a damaged head or list of roots: an ordinary deletion refuses them, an explicit one
//! releases all of their quota, and an interrupted one is completed by garbage collection.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use rstest::rstest;

use super::codec::of_next_format;
use super::core::Core;
use super::test_support::{AsyncMap, allot, overwrite, stored};
use super::{
    Answer, AsyncStoreCoordinator, Fault, Flight, Key, MapStore, Reply, Step, Store, StoreConfig,
    StoreCoordinator, StoreLimits, Txn,
};
use crate::error::StoreRefusal;
use crate::protocol::{DeleteRun, RegisterShards};
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([6; 32]);
const RUN: RunId = RunId::from_raw(5);
/// Sort before and after [`RUN`], on several pages; no deletion may touch them.
const OTHER_RUNS: [RunId; 4] =
    [RunId::from_raw(0), RunId::from_raw(2), RunId::from_raw(6), RunId::from_raw(7)];
/// So small that a chunk of a registration holds five shards, a batch of a purge four, and a page
/// two keys.
const SMALL: StoreLimits = StoreLimits { txn_ops: 20, txn_bytes: 1 << 20, page: 2 };
const SHARDS: u32 = 12;
/// Shards of another run whose registration is incomplete.
const HALF: u32 = 8;
/// Shards that there may be: enough for [`RUN`], the other runs and nothing more.
const ROOM: u64 = (SHARDS + HALF) as u64 + OTHER_RUNS.len() as u64 - 1;
const HEAD: Key = Key::RunHead { tenant: TENANT, run: RUN };

type Handle = StoreCoordinator<MapStore>;

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

const fn config(number: u64) -> StoreConfig {
    StoreConfig::new(number << 32)
}

/// A process of its own on the same store.
fn another(one: &Handle, number: u64) -> Handle {
    StoreCoordinator::new(one.store().another_handle(), config(number))
}

const fn roots(chunk: u16) -> Key {
    Key::RunRoots { tenant: TENANT, run: RUN, chunk }
}

/// The progress of a run before it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Made,
    /// Five of twelve shards are there.
    HalfRegistered,
    Active,
    Cancelled,
}

/// The ends of the ranges of so many shards.
fn bounds(shards: u32) -> Vec<[u8; 4]> {
    (0..=shards).map(|bound| (bound + 1).to_be_bytes()).collect()
}

fn inputs(bounds: &[[u8; 4]]) -> Vec<InitialShardInput<'_>> {
    let pairs = bounds.windows(2).zip(0..);
    let inputs = pairs.map(|(pair, id)| InitialShardInput {
        shard_id: ShardId::from_raw(id),
        spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
        cursor: CursorUpdate::initial(),
    });
    inputs.collect()
}

/// Creates a run and registers its shards, of which `chunks` chunks are stored.
fn register(handle: &mut Handle, run: RunId, shards: u32, chunks: usize) -> bool {
    let bounds = bounds(shards);
    let roots = inputs(&bounds);
    let run_config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    handle.create_run(at(1), TENANT, run, run_config).unwrap();
    (0..chunks).for_each(|_| handle.store_mut().inject(Fault::None));
    handle.store_mut().inject_always(Some(Fault::Fail));
    let done = handle.register_shards(at(1), TENANT, run, &roots, op(1)).is_ok();
    handle.store_mut().forget_faults();
    handle.store_mut().inject_always(None);
    done
}

/// Returns a store with a run in this stage, among others of which one is partly registered.
fn world(stage: Stage) -> Handle {
    let mut store = MapStore::with_limits(SMALL).with_bindings();
    allot(&mut store, TENANT, ROOM);
    let mut handle = StoreCoordinator::new(store, config(1));
    for run in &OTHER_RUNS[..3] {
        assert!(register(&mut handle, *run, 1, 9));
    }
    assert!(!register(&mut handle, OTHER_RUNS[3], HALF, 1));
    let chunks = match stage {
        Stage::Made => 0,
        Stage::HalfRegistered => 1,
        Stage::Active | Stage::Cancelled => 9,
    };
    assert_eq!(register(&mut handle, RUN, SHARDS, chunks), chunks == 9);
    if chunks == 9 {
        let mut scratch = Box::new(AcquireScratch::new());
        let (key, worker) = (ShardKey::new(RUN, ShardId::from_raw(3)), WorkerId::from_raw(9));
        handle.acquire_and_restore_into(at(2), TENANT, key, worker, &mut scratch).unwrap();
    }
    if stage == Stage::Cancelled {
        handle.cancel_run(at(4), TENANT, RUN, op(3)).unwrap();
    }
    handle
}

fn delete(handle: &mut Handle) -> Result<bool, DeleteRunError> {
    handle.delete_run(at(5), TENANT, RUN, op(4)).map(|deleted| deleted.is_executed())
}

fn delete_damaged(handle: &mut Handle) -> Result<bool, DeleteRunError> {
    handle.delete_damaged_run(at(5), TENANT, RUN, op(4)).map(|deleted| deleted.is_executed())
}

fn collect(handle: &mut Handle) -> (Result<(), InfraError>, Vec<RunId>) {
    let mut gone = Vec::new();
    let result = handle.gc_stale_initializing_runs_into(at(6), TENANT, 1_000, 9, &mut gone);
    (result, gone)
}

/// Returns all ways to damage the bytes of a value.
fn damages(good: &[u8]) -> Vec<Vec<u8>> {
    let flipped = |place: usize| {
        let mut bytes = good.to_vec();
        bytes[place] ^= 1 << 4;
        bytes
    };
    // Flipping the first byte makes the record claim a newer format.
    let half = good.len() / 2;
    vec![vec![1, 2, 3], vec![], good[..half].to_vec(), flipped(half), flipped(0)]
}

/// Asserts that only the tombstone of the run is left, that exactly its quota was released, and
/// that the other runs are unchanged.
fn assert_gone(handle: &Handle, context: &str) {
    let of_run = |key: &Key| match key {
        Key::RunHead { run, .. } | Key::RunRoots { run, .. } => *run == RUN,
        Key::ShardHot { shard, .. }
        | Key::ShardCold { shard, .. }
        | Key::Owner { shard, .. }
        | Key::ClaimIndex { shard, .. }
        | Key::ParkedIndex { shard, .. } => shard.run() == RUN,
        _ => false,
    };
    let keys = handle.store().dump().into_iter().map(|(key, _)| Key::parse(&key).unwrap());
    assert_eq!(keys.filter(of_run).collect::<Vec<_>>(), [], "{context}");
    let mut other = another(handle, 50);
    let mut listed = Vec::new();
    other.list_runs_into(TENANT, None, 9, &mut listed).unwrap();
    assert_eq!(listed, OTHER_RUNS, "{context}");
    let again = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    let reborn = other.create_run(at(7), TENANT, RUN, again);
    assert!(matches!(reborn, Err(CreateRunError::RunAlreadyExists { .. })), "{context}");
    assert!(register(&mut other, RunId::from_raw(10), SHARDS, 9), "{context}: quota is missing");
    let more = register(&mut other, RunId::from_raw(11), 1, 9);
    assert!(!more, "{context}: too much quota was released");
}

#[rstest]
fn explicit_deletion_removes_a_run_with_a_damaged_head(
    #[values(Stage::Made, Stage::HalfRegistered, Stage::Active, Stage::Cancelled)] stage: Stage,
    #[values(0, 1, 2, 3, 4)] damage: usize,
) {
    let mut handle = world(stage);
    let bytes = damages(&stored(&mut handle, HEAD)).swap_remove(damage);
    overwrite(&mut handle, HEAD, bytes);
    let before = handle.store().dump();
    let result = delete(&mut handle);
    assert!(matches!(result, Err(DeleteRunError::BackendError(_))), "{result:?}");
    assert_eq!(handle.store().dump(), before, "an ordinary deletion refuses it");
    let mut events = EventCollector::new();
    let result = handle.with_events(&mut events, delete_damaged);
    assert_eq!(result, Ok(true));
    assert_eq!(events.len(), 1);
    assert_eq!(delete_damaged(&mut handle), Ok(false), "once");
    if stage == Stage::Made {
        // It never had quota.
        assert!(register(&mut handle, RunId::from_raw(9), SHARDS, 9));
        return;
    }
    assert_gone(&handle, &format!("{stage:?}"));
}

#[rstest]
fn explicit_deletion_removes_a_run_with_damaged_roots(
    #[values(Stage::Active, Stage::Cancelled)] stage: Stage,
    #[values(0, 2)] chunk: u16,
    #[values(0, 1, 2, 3, 4)] damage: usize,
) {
    let mut handle = world(stage);
    let bytes = damages(&stored(&mut handle, roots(chunk))).swap_remove(damage);
    overwrite(&mut handle, roots(chunk), bytes);
    let result = delete(&mut handle);
    assert!(matches!(result, Err(DeleteRunError::BackendError(_))), "{result:?}");
    assert_eq!(delete_damaged(&mut handle), Ok(true));
    assert_gone(&handle, &format!("{stage:?}"));
}

#[test]
fn readable_run_is_deleted_by_the_ordinary_rules() {
    for stage in [Stage::Made, Stage::HalfRegistered, Stage::Active] {
        let mut handle = world(stage);
        let before = handle.store().dump();
        let result = delete_damaged(&mut handle);
        assert!(matches!(result, Err(DeleteRunError::NotTerminal { .. })), "{result:?}");
        assert_eq!(handle.store().dump(), before);
    }
    let mut handle = world(Stage::Cancelled);
    let reused = handle.delete_damaged_run(at(5), TENANT, RUN, op(3));
    assert!(matches!(reused, Err(DeleteRunError::OpIdConflict(_))), "{reused:?}");
    assert_eq!(delete_damaged(&mut handle), Ok(true));
    assert_gone(&handle, "over");
    let nowhere = handle.delete_damaged_run(at(5), TENANT, RunId::from_raw(99), op(4));
    assert_eq!(nowhere, Err(DeleteRunError::RunNotFound));
}

/// Damages one of the values of some answers.
fn spoil(answers: &mut [Answer], place: usize) {
    let values = answers.iter_mut().flat_map(|answer| match answer {
        Answer::Value(value) => value.iter_mut().collect::<Vec<_>>(),
        Answer::Page(page) => page.iter_mut().map(|(_, value)| value).collect(),
        Answer::Count(_) => Vec::new(),
    });
    for value in values.skip(place).take(1) {
        let middle = value.bytes.len() / 2;
        value.bytes[middle] ^= 1;
    }
}

/// A network or server fault damages one value of one answer: the run is intact and stays.
#[rstest]
fn intact_run_survives_one_damaged_answer(#[values(0, 1, 2)] place: usize) {
    for spoilt in 0.. {
        let handle = world(Stage::Active);
        let (before, store) = (handle.store().dump(), &mut handle.store().another_handle());
        let mut core = Core::new(config(2), SMALL);
        let operation = DeleteRun { tenant: TENANT, run: RUN, op_id: op(4) };
        let mut deletion = core.delete_damaged(at(5), operation);
        let mut reads = 0;
        let result = loop {
            deletion.set_binding(store.binding());
            let reply = match deletion.step() {
                Step::Read(asked) => {
                    let mut answers = store.read(asked).unwrap();
                    if reads == spoilt {
                        spoil(&mut answers, place);
                    }
                    reads += 1;
                    Reply::Read(Ok(answers))
                }
                Step::Commit(txns) => Reply::Committed(store.commit(txns)),
                Step::Wait(_) => Reply::Waited,
                Step::Done(result) => break result,
            };
            deletion.answer(reply);
        };
        drop(deletion);
        assert!(result.is_err(), "read {spoilt}: {result:?}");
        assert_eq!(handle.store().dump(), before, "read {spoilt}");
        if spoilt > reads {
            assert!(reads >= 3, "{reads} reads");
            return;
        }
    }
}

/// Whatever else is damaged: a newer program may have more keys to delete.
#[rstest]
#[case::head(HEAD)]
#[case::roots(roots(1))]
#[case::shard(Key::ShardHot { tenant: TENANT, shard: ShardKey::new(RUN, ShardId::from_raw(11)) })]
fn newer_format_is_refused_before_any_deletion(#[case] newer: Key) {
    let mut handle = world(Stage::Active);
    overwrite(&mut handle, roots(0), vec![1, 2, 3]);
    overwrite(&mut handle, newer, of_next_format(&newer, b"who knows"));
    let before = handle.store().dump();
    let result = delete_damaged(&mut handle);
    let Err(DeleteRunError::BackendError(InfraError::Refused { why, .. })) = result else {
        panic!("{result:?}");
    };
    assert_eq!(why, StoreRefusal::NewerFormat);
    assert_eq!(handle.store().dump(), before);
}

#[rstest]
fn interrupted_deletion_is_completed_by_gc(
    #[values(Stage::HalfRegistered, Stage::Active)] stage: Stage,
) {
    for commits in 0.. {
        let mut handle = world(stage);
        overwrite(&mut handle, HEAD, vec![1, 2, 3]);
        let mut gc = another(&handle, 2);
        (0..commits).for_each(|_| handle.store_mut().inject(Fault::None));
        handle.store_mut().inject_always(Some(Fault::Fail));
        let is_over = delete_damaged(&mut handle).is_ok();
        if commits == 0 {
            assert_eq!(delete_damaged(&mut gc), Ok(true), "nothing had happened");
        } else {
            let expected = if is_over { vec![] } else { vec![RUN] };
            assert_eq!(collect(&mut gc), (Ok(()), expected), "{commits} commits");
        }
        assert_gone(&gc, &format!("{commits} commits"));
        if is_over {
            // The tombstone, two batches of shards, a page of names.
            assert!(commits >= 4, "{commits} commits");
            return;
        }
    }
}

/// `gc` finds an interrupted deletion by root names, so one is written if none exists.
#[test]
fn interrupted_deletion_without_root_names_is_completed_by_gc() {
    let mut handle = world(Stage::Active);
    let mut txn = Txn::new();
    (0..3).for_each(|chunk| txn.delete(roots(chunk)));
    handle.store_mut().commit(vec![txn]).remove(0).unwrap();
    let mut gc = another(&handle, 2);
    handle.store_mut().inject(Fault::None);
    handle.store_mut().inject_always(Some(Fault::Fail));
    assert!(delete_damaged(&mut handle).is_err(), "it stops after the tombstone");
    assert_eq!(collect(&mut gc), (Ok(()), vec![RUN]));
    assert_gone(&gc, "no names");
}

#[test]
fn lost_replies_and_conflicts_release_quota_once() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Conflict] {
        let mut handle = world(Stage::HalfRegistered);
        overwrite(&mut handle, HEAD, vec![1, 2, 3]);
        for _ in 0..9 {
            handle.store_mut().inject(fault);
            handle.store_mut().inject(Fault::None);
        }
        assert_eq!(delete_damaged(&mut handle), Ok(true), "{fault:?}");
        handle.store_mut().forget_faults();
        assert_gone(&handle, &format!("{fault:?}"));
    }
}

/// Performs one step on `store`; returns whether it was the last.
fn step<A, E: std::fmt::Debug>(
    flight: &mut Flight<'_, Result<A, E>>,
    store: &mut MapStore,
) -> bool {
    flight.set_binding(store.binding());
    let reply = match flight.step() {
        Step::Read(reads) => Reply::Read(store.read(reads)),
        Step::Commit(txns) => Reply::Committed(store.commit(txns)),
        Step::Wait(_) => Reply::Waited,
        Step::Done(answer) => {
            answer.unwrap();
            return true;
        }
    };
    flight.answer(reply);
    false
}

/// A registration continues during the count, at every point of it: its reservation must neither be
/// attributed to the damaged run nor be counted twice.
#[test]
fn concurrent_registration_is_counted_once() {
    for pause in 0.. {
        let mut handle = world(Stage::HalfRegistered);
        overwrite(&mut handle, HEAD, vec![1, 2, 3]);
        let (mut one, mut other) = (Core::new(config(2), SMALL), Core::new(config(3), SMALL));
        let store = &mut handle.store().another_handle();
        let (tenant, bounds) = (TENANT, bounds(HALF));
        let (run, shards, op_id) = (OTHER_RUNS[3], &inputs(&bounds)[..], op(1));
        let mut deletion = one.delete_damaged(at(5), DeleteRun { tenant, run: RUN, op_id: op(4) });
        let mut going_on = other.on_run(at(5), RegisterShards { tenant, run, shards, op_id });
        let is_over = (0..pause).any(|_| step(&mut deletion, store));
        while !step(&mut going_on, store) {}
        while !is_over && !step(&mut deletion, store) {}
        assert_gone(&handle, &format!("after {pause} steps"));
        if is_over {
            assert!(pause >= 10, "{pause} steps");
            return;
        }
    }
}

/// The reservations of two damaged runs cannot be separated, so the second releases both.
#[test]
fn second_of_two_damaged_runs_releases_both_reservations() {
    let mut handle = world(Stage::HalfRegistered);
    let other = OTHER_RUNS[3];
    for run in [RUN, other] {
        overwrite(&mut handle, Key::RunHead { tenant: TENANT, run }, vec![1, 2, 3]);
    }
    assert_eq!(delete_damaged(&mut handle), Ok(true));
    let few = SHARDS - 5;
    assert!(!register(&mut handle, RunId::from_raw(20), few, 9), "reserved still");
    handle.delete_damaged_run(at(5), TENANT, other, op(4)).unwrap();
    assert!(register(&mut handle, RunId::from_raw(21), SHARDS + HALF, 9));
    assert!(!register(&mut handle, RunId::from_raw(22), 1, 9), "and no more");
}

#[test]
fn damaged_run_is_listed_and_hides_no_other() {
    let mut handle = world(Stage::Active);
    overwrite(&mut handle, HEAD, vec![1, 2, 3]);
    let mut listed = Vec::new();
    handle.list_runs_into(TENANT, None, 9, &mut listed).unwrap();
    let mut expected = OTHER_RUNS.to_vec();
    expected.insert(2, RUN);
    assert_eq!(listed, expected);
}

#[test]
fn async_coordinator_deletes_a_damaged_run() {
    let mut handle = world(Stage::Active);
    overwrite(&mut handle, HEAD, vec![1, 2, 3]);
    let store = AsyncMap(handle.store().another_handle());
    let mut tasks = AsyncStoreCoordinator::new(store, config(2));
    let result = block_on(tasks.delete_damaged_run(at(5), TENANT, RUN, op(4)));
    assert!(result.unwrap().is_executed());
    assert_gone(&handle, "asynchronous");
}
