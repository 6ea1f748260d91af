//! Interrupted deletions that garbage collection completes, deletions of unreadable records, and
//! concurrent purges.

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_testkit::Rng;
use rstest::rstest;

use super::codec::of_next_format;
use super::core::Core;
use super::test_support::{allot, overwrite, stored};
use super::{
    Answer, Fault, Flight, Key, KeyKind, KeyRange, MapStore, Read, Reply, Step, Store, StoreConfig,
    StoreCoordinator, StoreLimits, encode_roots,
};
use crate::error::StoreRefusal;
use crate::protocol::DeleteRun;
use crate::*;

const TENANT: TenantId = TenantId::from_bytes([6; 32]);
const RUN: RunId = RunId::from_raw(1);
/// Sort before and after [`RUN`]; no deletion may touch them.
const OTHER_RUNS: [RunId; 2] = [RunId::from_raw(0), RunId::from_raw(2)];
/// So small that a chunk of a registration holds five shards, a batch of a purge four, and a page
/// four keys.
const SMALL: StoreLimits = StoreLimits { txn_ops: 20, txn_bytes: 1 << 20, page: 4 };
const SHARDS: u32 = 12;
/// Shards that there may be: enough for [`RUN`], the other runs and nothing more.
const ROOM: u64 = SHARDS as u64 + OTHER_RUNS.len() as u64;
const STALE_AFTER: u64 = 1_000;
/// Number of interleavings of concurrent purges.
const SEEDS: u64 = 300;

type Handle = StoreCoordinator<MapStore>;

const fn at(ticks: u64) -> LogicalTime {
    LogicalTime::from_raw(ticks)
}

const fn op(number: u64) -> OpId {
    OpId::from_raw(number)
}

const fn shard_key(run: RunId, shard: u64) -> ShardKey {
    ShardKey::new(run, ShardId::from_raw(shard))
}

const fn hot(shard: u64) -> Key {
    Key::ShardHot { tenant: TENANT, shard: shard_key(RUN, shard) }
}

const fn config(number: u64) -> StoreConfig {
    StoreConfig::new(number << 32)
}

/// A process of its own on the same store.
fn another(one: &Handle, number: u64) -> Handle {
    StoreCoordinator::new(one.store().another_handle(), config(number))
}

fn register(handle: &mut Handle, run: RunId, shards: u32) -> Result<(), RegisterShardsError> {
    let bounds: Vec<_> = (0..=shards).map(|bound| (bound + 1).to_be_bytes()).collect();
    let roots: Vec<_> = bounds
        .windows(2)
        .zip(0..)
        .map(|(pair, id)| InitialShardInput {
            shard_id: ShardId::from_raw(id),
            spec: ShardSpecRef::new(&pair[0], &pair[1], b""),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let run_config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    handle.create_run(at(1), TENANT, run, run_config).unwrap();
    handle.register_shards(at(1), TENANT, run, &roots, op(1)).map(|_| ())
}

/// Returns a handle of a store with a cancelled run of twelve shards, a third leased and a third
/// parked, between two active runs. The store binds owner keys to processes.
fn cancelled() -> Handle {
    let mut store = MapStore::with_limits(SMALL).with_bindings();
    allot(&mut store, TENANT, ROOM);
    let mut handle = StoreCoordinator::new(store, config(1));
    OTHER_RUNS.iter().for_each(|run| register(&mut handle, *run, 1).unwrap());
    register(&mut handle, RUN, SHARDS).unwrap();
    let mut scratch = Box::new(AcquireScratch::new());
    for shard in (0..u64::from(SHARDS)).filter(|shard| shard % 3 > 0) {
        let (key, worker) = (shard_key(RUN, shard), WorkerId::from_raw(9));
        let held = handle.acquire_and_restore_into(at(2), TENANT, key, worker, &mut scratch);
        let lease = held.unwrap().lease;
        if shard % 3 == 2 {
            handle.park_shard(at(3), TENANT, &lease, ParkReason::PermissionDenied, op(2)).unwrap();
        }
    }
    handle.cancel_run(at(4), TENANT, RUN, op(3)).unwrap();
    handle
}

fn delete(handle: &mut Handle) -> Result<bool, DeleteRunError> {
    handle.delete_run(at(5), TENANT, RUN, op(4)).map(|deleted| deleted.is_executed())
}

/// Deletes; the process dies after `commits` commits of the deletion.
fn delete_and_die(mut handle: Handle, commits: usize) -> Result<bool, DeleteRunError> {
    (0..commits).for_each(|_| handle.store_mut().inject(Fault::None));
    handle.store_mut().inject_always(Some(Fault::Fail));
    delete(&mut handle)
}

fn collect(handle: &mut Handle) -> (Result<(), InfraError>, Vec<RunId>) {
    let mut gone = Vec::new();
    let result = handle.gc_stale_initializing_runs_into(at(6), TENANT, STALE_AFTER, 9, &mut gone);
    (result, gone)
}

/// Returns the keys of [`RUN`] except of the kinds that outlive it.
fn left(handle: &Handle) -> Vec<Key> {
    let of_run = |key: &Key| match key {
        Key::RunHead { run, .. } | Key::RunRoots { run, .. } | Key::Event { run, .. } => {
            *run == RUN
        }
        Key::ShardHot { shard, .. }
        | Key::ShardCold { shard, .. }
        | Key::Owner { shard, .. }
        | Key::ClaimIndex { shard, .. }
        | Key::ParkedIndex { shard, .. } => shard.run() == RUN,
        _ => false,
    };
    let keys = handle.store().dump().into_iter().map(|(key, _)| Key::parse(&key).unwrap());
    keys.filter(of_run).collect()
}

/// Asserts that only the tombstone of the run is left, that exactly its quota was released, and
/// that the other runs are unchanged.
fn assert_gone(handle: &Handle, context: &str) {
    assert_eq!(left(handle), [], "{context}");
    let mut other = another(handle, 50);
    let mut listed = Vec::new();
    other.list_runs_into(TENANT, None, 9, &mut listed).unwrap();
    assert_eq!(listed, OTHER_RUNS, "{context}");
    for run in OTHER_RUNS {
        let progress = other.get_run_progress(at(7), TENANT, run).unwrap();
        assert_eq!((progress.total, progress.active), (1, 1), "{context}");
    }
    let again = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    let reborn = other.create_run(at(7), TENANT, RUN, again);
    assert!(matches!(reborn, Err(CreateRunError::RunAlreadyExists { .. })), "{context}");
    register(&mut other, RunId::from_raw(7), SHARDS).expect(context);
    let full = register(&mut other, RunId::from_raw(8), 1);
    let is_full = matches!(full, Err(RegisterShardsError::ShardLimitExceeded { .. }));
    assert!(is_full, "{context}: too much quota was released");
}

#[test]
fn interrupted_deletion_is_completed_by_gc() {
    for commits in 0.. {
        let handle = cancelled();
        let mut gc = another(&handle, 2);
        let result = delete_and_die(handle, commits);
        let context = format!("killed after {commits} commits");
        let is_over = result.is_ok();
        let expected = if commits == 0 || is_over { vec![] } else { vec![RUN] };
        assert_eq!(collect(&mut gc), (Ok(()), expected), "{context}");
        assert_eq!(collect(&mut gc), (Ok(()), vec![]), "{context}: once");
        if commits == 0 {
            assert_eq!(delete(&mut gc), Ok(true), "nothing had happened");
        }
        assert_gone(&gc, &context);
        if is_over {
            // The tombstone, three batches of shards, three chunks of names.
            assert!(commits >= 5, "{context}");
            return;
        }
    }
}

#[test]
fn interrupted_gc_is_completed_by_the_next_gc() {
    for commits in 0..4 {
        let handle = cancelled();
        let (mut first, mut second) = (another(&handle, 2), another(&handle, 3));
        delete_and_die(handle, 1).unwrap_err();
        (0..commits).for_each(|_| first.store_mut().inject(Fault::None));
        first.store_mut().inject_always(Some(Fault::Fail));
        let (result, gone) = collect(&mut first);
        assert!(result.is_err() && gone.is_empty(), "{commits} commits");
        assert_eq!(collect(&mut second), (Ok(()), vec![RUN]), "{commits} commits");
        assert_gone(&second, &format!("{commits} commits"));
    }
}

/// The registration is incomplete, and an administrator deletes the run.
#[test]
fn interrupted_deletion_of_an_incomplete_registration_is_completed() {
    let mut store = MapStore::with_limits(SMALL).with_bindings();
    allot(&mut store, TENANT, ROOM);
    let mut handle = StoreCoordinator::new(store, config(1));
    OTHER_RUNS.iter().for_each(|run| register(&mut handle, *run, 1).unwrap());
    // The run is made and one chunk is stored.
    (0..2).for_each(|_| handle.store_mut().inject(Fault::None));
    handle.store_mut().inject_always(Some(Fault::Fail));
    register(&mut handle, RUN, SHARDS).unwrap_err();
    handle.store_mut().inject_always(None);
    handle.cancel_run(at(4), TENANT, RUN, op(3)).unwrap();
    let mut gc = another(&handle, 2);
    assert_eq!(collect(&mut gc), (Ok(()), vec![]), "its owner cancelled it");
    assert!(!left(&gc).is_empty());
    delete_and_die(handle, 1).unwrap_err();
    assert_eq!(collect(&mut gc), (Ok(()), vec![RUN]));
    assert_gone(&gc, "half a registration");
}

#[test]
fn run_in_registration_is_not_collected() {
    let mut handle = cancelled();
    let mut gc = another(&handle, 2);
    delete(&mut handle).unwrap();
    let run = RunId::from_raw(3);
    (0..2).for_each(|_| handle.store_mut().inject(Fault::None));
    handle.store_mut().inject_always(Some(Fault::Fail));
    register(&mut handle, run, SHARDS).unwrap_err();
    let before = gc.store().dump();
    assert_eq!(collect(&mut gc), (Ok(()), vec![]));
    assert_eq!(gc.store().dump(), before);
}

/// No operation writes such keys, so their meaning is unknown.
#[test]
fn root_names_without_head_and_tombstone_are_not_deleted() {
    let mut handle = cancelled();
    let (run, mut bytes) = (RunId::from_raw(9), Vec::new());
    encode_roots(TENANT, run, 0, &[ShardId::from_raw(0)], &mut bytes);
    overwrite(&mut handle, Key::RunRoots { tenant: TENANT, run, chunk: 0 }, bytes);
    let before = handle.store().dump();
    assert_eq!(collect(&mut handle), (Ok(()), vec![]));
    assert_eq!(handle.store().dump(), before);
}

#[test]
fn gc_limit_includes_completed_deletions() {
    let mut handle = cancelled();
    for run in OTHER_RUNS {
        handle.cancel_run(at(4), TENANT, run, op(3)).unwrap();
    }
    for run in [OTHER_RUNS[0], RUN, OTHER_RUNS[1]] {
        let mut dying = another(&handle, 3);
        dying.store_mut().inject(Fault::None);
        dying.store_mut().inject_always(Some(Fault::Fail));
        dying.delete_run(at(5), TENANT, run, op(4)).unwrap_err();
    }
    let mut gone = Vec::new();
    for limit in [0, 2, 2] {
        let (now, before) = (at(6), gone.len());
        handle.gc_stale_initializing_runs_into(now, TENANT, 1, limit, &mut gone).unwrap();
        assert!(gone.len() <= before + limit);
    }
    assert_eq!(gone, [OTHER_RUNS[0], RUN, OTHER_RUNS[1]]);
}

/// How a record is damaged.
#[derive(Clone, Copy)]
enum Damage {
    Garbage,
    Empty,
    CutOff,
    FlippedBit,
    /// It claims a newer format, with a wrong checksum.
    FlippedVersion,
}

impl Damage {
    fn of(self, good: &[u8]) -> Vec<u8> {
        let flipped = |place: usize| {
            let mut bytes = good.to_vec();
            bytes[place] ^= 1 << 4;
            bytes
        };
        match self {
            Self::Garbage => vec![1, 2, 3],
            Self::Empty => Vec::new(),
            Self::CutOff => good[..good.len() / 2].to_vec(),
            Self::FlippedBit => flipped(good.len() / 2),
            Self::FlippedVersion => flipped(0),
        }
    }
}

#[rstest]
#[case::garbage(Damage::Garbage)]
#[case::empty(Damage::Empty)]
#[case::cut_off(Damage::CutOff)]
#[case::flipped_bit(Damage::FlippedBit)]
#[case::flipped_version(Damage::FlippedVersion)]
fn damaged_shard_does_not_prevent_the_deletion(#[case] damage: Damage) {
    // The first, the last, one of each state in the middle, and all.
    let all: Vec<u64> = (0..u64::from(SHARDS)).collect();
    for shards in [&[0][..], &[4], &[5], &[6], &[11], &all] {
        let mut handle = cancelled();
        for shard in shards {
            let good = stored(&mut handle, hot(*shard));
            overwrite(&mut handle, hot(*shard), damage.of(&good));
        }
        assert_eq!(delete(&mut handle), Ok(true), "{shards:?}");
        assert_gone(&handle, &format!("{shards:?}"));
    }
}

#[test]
fn interrupted_deletion_of_damaged_records_is_completed_by_gc() {
    for commits in 1.. {
        let mut handle = cancelled();
        [0, 4, 11].iter().for_each(|shard| overwrite(&mut handle, hot(*shard), vec![1, 2, 3]));
        let mut gc = another(&handle, 2);
        let is_over = delete_and_die(handle, commits).is_ok();
        let expected = if is_over { vec![] } else { vec![RUN] };
        assert_eq!(collect(&mut gc), (Ok(()), expected), "{commits} commits");
        assert_gone(&gc, &format!("{commits} commits"));
        if is_over {
            return;
        }
    }
}

#[rstest]
fn newer_format_is_refused_before_any_deletion(#[values(0, 6, 11)] shard: u64) {
    let mut handle = cancelled();
    overwrite(&mut handle, hot(shard), of_next_format(&hot(shard), b"who knows"));
    let before = handle.store().dump();
    let result = delete(&mut handle);
    let Err(DeleteRunError::BackendError(InfraError::Refused { why, message, .. })) = result else {
        panic!("{result:?}");
    };
    assert_eq!(why, StoreRefusal::NewerFormat);
    assert!(message.contains("upgrade this program"), "{message}");
    assert_eq!(handle.store().dump(), before);
}

/// It was written during the deletion of the run. A newer program completes the deletion.
#[test]
fn newer_record_of_a_deleted_run_is_kept() {
    let mut handle = cancelled();
    let mut gc = another(&handle, 2);
    handle.cancel_run(at(4), TENANT, OTHER_RUNS[1], op(3)).unwrap();
    for run in [RUN, OTHER_RUNS[1]] {
        let mut dying = another(&handle, 3);
        dying.store_mut().inject(Fault::None);
        dying.store_mut().inject_always(Some(Fault::Fail));
        dying.delete_run(at(5), TENANT, run, op(4)).unwrap_err();
    }
    let good = stored(&mut handle, hot(6));
    overwrite(&mut handle, hot(6), of_next_format(&hot(6), b"who knows"));
    let (result, gone) = collect(&mut gc);
    let result = result.unwrap_err().to_string();
    assert!(result.contains("upgrade this program"), "{result}");
    assert_eq!(gone, [OTHER_RUNS[1]], "other runs are collected nevertheless");
    assert!(left(&gc).contains(&hot(6)));
    // As a program that can read it.
    overwrite(&mut handle, hot(6), good);
    assert_eq!(collect(&mut gc), (Ok(()), vec![RUN]));
    assert_eq!(left(&gc), []);
}

/// One of the concurrent purges.
enum Sweeper<'f> {
    Deletion(Flight<'f, Result<IdempotentOutcome<()>, DeleteRunError>>),
    Gc(Flight<'f, Result<(), InfraError>>),
}

impl Sweeper<'_> {
    /// Performs one step on `store`; returns whether it was the last.
    fn step(&mut self, store: &mut MapStore) -> bool {
        match self {
            Self::Deletion(flight) => step(flight, store, |result| _ = result.unwrap()),
            Self::Gc(flight) => step(flight, store, |result| result.unwrap()),
        }
    }
}

fn step<A>(flight: &mut Flight<'_, A>, store: &mut MapStore, done: impl FnOnce(A)) -> bool {
    flight.set_binding(store.binding());
    let reply = match flight.step() {
        Step::Read(reads) => Reply::Read(store.read(reads)),
        Step::Commit(txns) => Reply::Committed(store.commit(txns)),
        Step::Wait(_) => Reply::Waited,
        Step::Done(answer) => {
            done(answer);
            return true;
        }
    };
    flight.answer(reply);
    false
}

/// A live deletion, its repetition and two garbage collections, interleaved at every step; some
/// replies and requests are lost, and a record is damaged.
#[test]
fn concurrent_purges_release_each_shard_once() {
    for seed in 1..=SEEDS {
        let mut handle = cancelled();
        overwrite(&mut handle, hot(seed % u64::from(SHARDS)), vec![1, 2, 3]);
        let mut rng = Rng::seeded(seed);
        let mut cores = [2, 3, 4, 5].map(|number| Core::new(config(number), SMALL));
        let mut stores: Vec<_> = cores.iter().map(|_| handle.store().another_handle()).collect();
        for store in &mut stores {
            for _ in 0..40 {
                let faults = [Fault::LoseReply, Fault::LoseRequest, Fault::Conflict];
                let fault = faults.get(rng.index(24)).copied().unwrap_or(Fault::None);
                store.inject(fault);
            }
        }
        let (mut gone, mut gone_too) = (Vec::new(), Vec::new());
        let delete = |id| DeleteRun { tenant: TENANT, run: RUN, op_id: op(id) };
        let [one, two, three, four] = &mut cores;
        let after = STALE_AFTER;
        let mut sweepers = vec![
            (0, Sweeper::Deletion(one.delete(at(5), delete(4)))),
            (
                1,
                Sweeper::Gc(two.gc_stale_initializing_runs_into(
                    at(6),
                    TENANT,
                    after,
                    9,
                    &mut gone,
                )),
            ),
            (
                2,
                Sweeper::Gc(three.gc_stale_initializing_runs_into(
                    at(6),
                    TENANT,
                    after,
                    9,
                    &mut gone_too,
                )),
            ),
            (3, Sweeper::Deletion(four.delete(at(6), delete(5)))),
        ];
        while !sweepers.is_empty() {
            let place = rng.index(sweepers.len());
            let (number, sweeper) = &mut sweepers[place];
            if sweeper.step(&mut stores[*number]) {
                drop(sweepers.swap_remove(place));
            }
        }
        assert_gone(&handle, &format!("seed {seed}"));
    }
}

/// On some engines a check for emptiness costs as much as the range holds.
#[test]
fn only_shards_are_read_while_many_are_left() {
    let handle = cancelled();
    let (mut core, mut store) = (Core::new(config(2), SMALL), handle.store().another_handle());
    let operation = DeleteRun { tenant: TENANT, run: RUN, op_id: op(4) };
    let (mut flight, mut shards_left) = (core.delete(at(5), operation), u64::from(SHARDS));
    loop {
        match flight.step() {
            Step::Read(reads) => {
                let asks_all = reads.iter().any(|read| matches!(read, Read::ScanFirst { .. }));
                assert!(!asks_all || shards_left < SMALL.page as u64, "{shards_left} are left");
                flight.answer(Reply::Read(store.read(reads)));
            }
            Step::Commit(txns) => {
                flight.answer(Reply::Committed(store.commit(txns)));
                let hot = KeyRange::hot_shards_of(TENANT, RUN);
                let found = store.read(vec![Read::Count(hot)]).unwrap().remove(0);
                let Answer::Count(found) = found else { panic!("{found:?}") };
                shards_left = found;
            }
            Step::Wait(_) => flight.answer(Reply::Waited),
            Step::Done(result) => {
                assert!(result.unwrap().is_executed());
                return;
            }
        }
    }
}

/// Every kind that a run has is one that `left` looks for.
#[test]
fn left_covers_every_kind_of_key_of_a_run() {
    let handle = cancelled();
    let kinds: std::collections::BTreeSet<KeyKind> =
        handle.store().dump().iter().map(|(key, _)| Key::parse(key).unwrap().kind()).collect();
    let looked_for: std::collections::BTreeSet<KeyKind> =
        left(&handle).iter().map(Key::kind).collect();
    let others = [KeyKind::TenantCounter, KeyKind::Allotment];
    assert_eq!(kinds, looked_for.union(&others.into()).copied().collect());
}
