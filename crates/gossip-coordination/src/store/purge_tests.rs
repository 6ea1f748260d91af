//! Deletions that break off anywhere and are finished by the upkeep, deletions that meet records
//! which cannot be read, and several who sweep at once.

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
/// Stands before [`RUN`] and behind it: nobody may touch them.
const NEIGHBOURS: [RunId; 2] = [RunId::from_raw(0), RunId::from_raw(2)];
/// So small that a chunk of a registration holds five shards, a batch of a sweep four, and a page
/// four keys.
const SMALL: StoreLimits = StoreLimits { txn_ops: 20, txn_bytes: 1 << 20, page: 4 };
const SHARDS: u32 = 12;
/// Shards that there may be: enough for [`RUN`], its neighbours and nothing more.
const ROOM: u64 = SHARDS as u64 + NEIGHBOURS.len() as u64;
const STALE_AFTER: u64 = 1_000;
/// Interleavings of those who sweep at once.
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

/// A cancelled run of twelve shards, one of three held and one of three parked, between two others
/// that are active. Its store owner_key_state owner keys to processes.
fn cancelled() -> Handle {
    let mut store = MapStore::with_limits(SMALL).with_bindings();
    allot(&mut store, TENANT, ROOM);
    let mut handle = StoreCoordinator::new(store, config(1));
    NEIGHBOURS.iter().for_each(|run| register(&mut handle, *run, 1).unwrap());
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

/// Deletes, and the process is killed when `commits` of the deletion are stored.
fn delete_and_die(mut handle: Handle, commits: usize) -> Result<bool, DeleteRunError> {
    (0..commits).for_each(|_| handle.store_mut().inject(Fault::None));
    handle.store_mut().inject_always(Some(Fault::Fail));
    delete(&mut handle)
}

fn collect(handle: &mut Handle) -> (Result<(), InfraError>, Vec<RunId>) {
    let mut gone = Vec::new();
    let told = handle.gc_stale_initializing_runs_into(at(6), TENANT, STALE_AFTER, 9, &mut gone);
    (told, gone)
}

/// The keys of [`RUN`] and of no kind that outlives it.
fn left(handle: &Handle) -> Vec<Key> {
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
    keys.filter(of_run).collect()
}

/// Asserts that nothing is left of the run but its tombstone, that its room was given back and no
/// more, and that its neighbours are as they were.
fn assert_gone(handle: &Handle, context: &str) {
    assert_eq!(left(handle), [], "{context}");
    let mut other = another(handle, 50);
    let mut listed = Vec::new();
    other.list_runs_into(TENANT, None, 9, &mut listed).unwrap();
    assert_eq!(listed, NEIGHBOURS, "{context}");
    for run in NEIGHBOURS {
        let progress = other.get_run_progress(at(7), TENANT, run).unwrap();
        assert_eq!((progress.total, progress.active), (1, 1), "{context}");
    }
    let again = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    let reborn = other.create_run(at(7), TENANT, RUN, again);
    assert!(matches!(reborn, Err(CreateRunError::RunAlreadyExists { .. })), "{context}");
    register(&mut other, RunId::from_raw(7), SHARDS).expect(context);
    let full = register(&mut other, RunId::from_raw(8), 1);
    let is_full = matches!(full, Err(RegisterShardsError::ShardLimitExceeded { .. }));
    assert!(is_full, "{context}: more was given back than was taken");
}

#[test]
fn a_deletion_that_dies_anywhere_is_finished_by_the_upkeep() {
    for commits in 0.. {
        let handle = cancelled();
        let mut upkeep = another(&handle, 2);
        let told = delete_and_die(handle, commits);
        let context = format!("killed after {commits} commits");
        let is_over = told.is_ok();
        let expected = if commits == 0 || is_over { vec![] } else { vec![RUN] };
        assert_eq!(collect(&mut upkeep), (Ok(()), expected), "{context}");
        assert_eq!(collect(&mut upkeep), (Ok(()), vec![]), "{context}: once");
        if commits == 0 {
            assert_eq!(delete(&mut upkeep), Ok(true), "nothing had happened");
        }
        assert_gone(&upkeep, &context);
        if is_over {
            // The tombstone, three batches of shards, three chunks of names.
            assert!(commits >= 5, "{context}");
            return;
        }
    }
}

#[test]
fn an_upkeep_that_dies_too_is_taken_up_by_the_next() {
    for commits in 0..4 {
        let handle = cancelled();
        let (mut first, mut second) = (another(&handle, 2), another(&handle, 3));
        delete_and_die(handle, 1).unwrap_err();
        (0..commits).for_each(|_| first.store_mut().inject(Fault::None));
        first.store_mut().inject_always(Some(Fault::Fail));
        let (told, gone) = collect(&mut first);
        assert!(told.is_err() && gone.is_empty(), "{commits} commits");
        assert_eq!(collect(&mut second), (Ok(()), vec![RUN]), "{commits} commits");
        assert_gone(&second, &format!("{commits} commits"));
    }
}

/// A run that was never registered to its end and that its owner deletes.
#[test]
fn half_a_registration_that_is_half_deleted_is_finished_too() {
    let mut store = MapStore::with_limits(SMALL).with_bindings();
    allot(&mut store, TENANT, ROOM);
    let mut handle = StoreCoordinator::new(store, config(1));
    NEIGHBOURS.iter().for_each(|run| register(&mut handle, *run, 1).unwrap());
    // The run is made and one chunk is stored.
    (0..2).for_each(|_| handle.store_mut().inject(Fault::None));
    handle.store_mut().inject_always(Some(Fault::Fail));
    register(&mut handle, RUN, SHARDS).unwrap_err();
    handle.store_mut().inject_always(None);
    handle.cancel_run(at(4), TENANT, RUN, op(3)).unwrap();
    let mut upkeep = another(&handle, 2);
    assert_eq!(collect(&mut upkeep), (Ok(()), vec![]), "its owner cancelled it");
    assert!(!left(&upkeep).is_empty());
    delete_and_die(handle, 1).unwrap_err();
    assert_eq!(collect(&mut upkeep), (Ok(()), vec![RUN]));
    assert_gone(&upkeep, "half a registration");
}

#[test]
fn a_run_that_is_registered_just_now_is_left_alone() {
    let mut handle = cancelled();
    let mut upkeep = another(&handle, 2);
    delete(&mut handle).unwrap();
    let run = RunId::from_raw(3);
    (0..2).for_each(|_| handle.store_mut().inject(Fault::None));
    handle.store_mut().inject_always(Some(Fault::Fail));
    register(&mut handle, run, SHARDS).unwrap_err();
    let before = upkeep.store().dump();
    assert_eq!(collect(&mut upkeep), (Ok(()), vec![]));
    assert_eq!(upkeep.store().dump(), before);
}

/// Nobody writes such a thing, so nobody knows what it is.
#[test]
fn names_without_a_head_and_without_a_tombstone_are_left_alone() {
    let mut handle = cancelled();
    let (run, mut bytes) = (RunId::from_raw(9), Vec::new());
    encode_roots(TENANT, run, 0, &[ShardId::from_raw(0)], &mut bytes);
    overwrite(&mut handle, Key::RunRoots { tenant: TENANT, run, chunk: 0 }, bytes);
    let before = handle.store().dump();
    assert_eq!(collect(&mut handle), (Ok(()), vec![]));
    assert_eq!(handle.store().dump(), before);
}

#[test]
fn the_upkeep_has_a_limit_for_deletions_too() {
    let mut handle = cancelled();
    for run in NEIGHBOURS {
        handle.cancel_run(at(4), TENANT, run, op(3)).unwrap();
    }
    for run in [NEIGHBOURS[0], RUN, NEIGHBOURS[1]] {
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
    assert_eq!(gone, [NEIGHBOURS[0], RUN, NEIGHBOURS[1]]);
}

/// How a record is damaged.
#[derive(Clone, Copy)]
enum Damage {
    Garbage,
    Empty,
    CutOff,
    FlippedBit,
    /// It says that it is newer, and is not.
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
fn a_damaged_record_keeps_no_run(#[case] damage: Damage) {
    // The first, the last, one of each standing in the middle, and all.
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
fn a_deletion_of_damaged_records_that_dies_anywhere_is_finished_by_the_upkeep() {
    for commits in 1.. {
        let mut handle = cancelled();
        [0, 4, 11].iter().for_each(|shard| overwrite(&mut handle, hot(*shard), vec![1, 2, 3]));
        let mut upkeep = another(&handle, 2);
        let is_over = delete_and_die(handle, commits).is_ok();
        let expected = if is_over { vec![] } else { vec![RUN] };
        assert_eq!(collect(&mut upkeep), (Ok(()), expected), "{commits} commits");
        assert_gone(&upkeep, &format!("{commits} commits"));
        if is_over {
            return;
        }
    }
}

#[rstest]
fn a_record_of_a_newer_format_is_refused_before_anything_is_deleted(
    #[values(0, 6, 11)] shard: u64,
) {
    let mut handle = cancelled();
    overwrite(&mut handle, hot(shard), of_next_format(&hot(shard), b"who knows"));
    let before = handle.store().dump();
    let told = delete(&mut handle);
    let Err(DeleteRunError::BackendError(InfraError::Refused { why, message, .. })) = told else {
        panic!("{told:?}");
    };
    assert_eq!(why, StoreRefusal::NewerFormat);
    assert!(message.contains("upgrade this program"), "{message}");
    assert_eq!(handle.store().dump(), before);
}

/// It was written while the run was deleted. A newer program finds the rest and finishes.
#[test]
fn a_newer_record_of_a_deleted_run_is_left_to_a_newer_program() {
    let mut handle = cancelled();
    let mut upkeep = another(&handle, 2);
    handle.cancel_run(at(4), TENANT, NEIGHBOURS[1], op(3)).unwrap();
    for run in [RUN, NEIGHBOURS[1]] {
        let mut dying = another(&handle, 3);
        dying.store_mut().inject(Fault::None);
        dying.store_mut().inject_always(Some(Fault::Fail));
        dying.delete_run(at(5), TENANT, run, op(4)).unwrap_err();
    }
    let good = stored(&mut handle, hot(6));
    overwrite(&mut handle, hot(6), of_next_format(&hot(6), b"who knows"));
    let (told, gone) = collect(&mut upkeep);
    let told = told.unwrap_err().to_string();
    assert!(told.contains("upgrade this program"), "{told}");
    assert_eq!(gone, [NEIGHBOURS[1]], "it is no reason to leave others");
    assert!(left(&upkeep).contains(&hot(6)));
    // As a program that can read it.
    overwrite(&mut handle, hot(6), good);
    assert_eq!(collect(&mut upkeep), (Ok(()), vec![RUN]));
    assert_eq!(left(&upkeep), []);
}

/// What one of those who sweep at once does.
enum Sweeper<'f> {
    Deletion(Flight<'f, Result<IdempotentOutcome<()>, DeleteRunError>>),
    Upkeep(Flight<'f, Result<(), InfraError>>),
}

impl Sweeper<'_> {
    /// Takes one step to `store`; whether it was the last.
    fn step(&mut self, store: &mut MapStore) -> bool {
        match self {
            Self::Deletion(flight) => step(flight, store, |told| _ = told.unwrap()),
            Self::Upkeep(flight) => step(flight, store, |told| told.unwrap()),
        }
    }
}

fn step<A>(flight: &mut Flight<'_, A>, store: &mut MapStore, done: impl FnOnce(A)) -> bool {
    flight.tell_binding(store.binding());
    let told = match flight.step() {
        Step::Read(reads) => Reply::Read(store.read(reads)),
        Step::Commit(txns) => Reply::Committed(store.commit(txns)),
        Step::Wait(_) => Reply::Waited,
        Step::Done(answer) => {
            done(answer);
            return true;
        }
    };
    flight.tell(told);
    false
}

/// A living deletion, its repetition and two upkeeps, interleaved at every step; some replies and
/// requests are lost, and a record is damaged.
#[test]
fn whoever_sweeps_at_once_gives_each_shard_back_once() {
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
                Sweeper::Upkeep(two.gc_stale_initializing_runs_into(
                    at(6),
                    TENANT,
                    after,
                    9,
                    &mut gone,
                )),
            ),
            (
                2,
                Sweeper::Upkeep(three.gc_stale_initializing_runs_into(
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

/// To ask whether a range holds anything costs as much as it holds on some engines.
#[test]
fn nothing_but_shards_is_asked_for_while_there_are_many() {
    let handle = cancelled();
    let (mut core, mut store) = (Core::new(config(2), SMALL), handle.store().another_handle());
    let operation = DeleteRun { tenant: TENANT, run: RUN, op_id: op(4) };
    let (mut flight, mut shards_left) = (core.delete(at(5), operation), u64::from(SHARDS));
    loop {
        match flight.step() {
            Step::Read(reads) => {
                let asks_all = reads.iter().any(|read| matches!(read, Read::ScanFirst { .. }));
                assert!(!asks_all || shards_left < SMALL.page as u64, "{shards_left} are left");
                flight.tell(Reply::Read(store.read(reads)));
            }
            Step::Commit(txns) => {
                flight.tell(Reply::Committed(store.commit(txns)));
                let hot = KeyRange::hot_shards_of(TENANT, RUN);
                let found = store.read(vec![Read::Count(hot)]).unwrap().remove(0);
                let Answer::Count(found) = found else { panic!("{found:?}") };
                shards_left = found;
            }
            Step::Wait(_) => flight.tell(Reply::Waited),
            Step::Done(told) => {
                assert!(told.unwrap().is_executed());
                return;
            }
        }
    }
}

/// Every kind that a run has is one that `left` looks for.
#[test]
fn a_run_has_no_keys_that_these_tests_do_not_know() {
    let handle = cancelled();
    let kinds: std::collections::BTreeSet<KeyKind> =
        handle.store().dump().iter().map(|(key, _)| Key::parse(key).unwrap().kind()).collect();
    let looked_for: std::collections::BTreeSet<KeyKind> =
        left(&handle).iter().map(Key::kind).collect();
    let others = [KeyKind::TenantCounter, KeyKind::Allotment];
    assert_eq!(kinds, looked_for.union(&others.into()).copied().collect());
}
