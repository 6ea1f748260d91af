//! Faults while a database is open: each has a typed error and loses no committed data.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use gossip_contracts::coordination::{
    CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, WorkerId};
use gossip_coordination::store::{CommitOutcome, Key, Read, Store, Txn};
use gossip_coordination::{
    AcquireScratch, CoordinationBackend, InfraError, RunConfig, RunManagement, ShardDamage,
    ShardFilter, ShardSummary, StoreRefusal,
};
use gossip_testkit::Rng;

use crate::apply::COMMIT;
use crate::core::LIMITS;
use crate::failure::infra;
use crate::test_support::{Scratch, TENANT, applied, commit, key, put, raw_connection, stored};
use crate::{OpenCheck, SqliteCoordinator, SqliteDatabase, SqliteOptions};

const RUN: RunId = RunId::from_raw(4);
const NOW: LogicalTime = LogicalTime::from_raw(10);
pub(crate) const SHARDS: u64 = 12;

/// How long a test holds the file: long enough for callers that wait once too often to get it.
const HOLD: Duration = Duration::from_secs(2);

#[test]
fn full_file_refuses_growing_writes_and_keeps_the_rest() {
    let scratch = Scratch::new();
    let options =
        SqliteOptions { file_bytes_max: Some(200_000), ..SqliteOptions::default().relaxed() };
    let database = scratch.database_with(options);
    let mut store = database.store();
    applied(&mut store, put(0, b"small"));
    let mut count = 1;
    let error = loop {
        assert!(count < 1_000, "the file never filled");
        match commit(&mut store, put(count, &[7; 9_000])) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, InfraError::Refused { why: StoreRefusal::NoSpace, .. }), "{error}");
    assert!(error.to_string().contains("make room"), "{error}");
    assert_eq!(stored(&mut store, count), None);
    assert!((0..count).all(|number| stored(&mut store, number).is_some()));

    // One transaction that does not fit fails alone.
    let group = vec![put(0, b"again"), put(count, &[7; 9_000]), put(0, b"still")];
    let outcomes = store.commit(group);
    assert!(matches!(outcomes[0], Ok(CommitOutcome::Applied { .. })), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Err(InfraError::Refused { why: StoreRefusal::NoSpace, .. })));
    assert!(matches!(outcomes[2], Ok(CommitOutcome::Applied { .. })), "{outcomes:?}");
    assert_eq!(stored(&mut store, 0).unwrap().bytes, b"still");
    database.check_integrity().unwrap();

    // With a higher limit the same write succeeds.
    drop((store, database));
    applied(&mut scratch.database().store(), put(count, &[7; 9_000]));
}

#[test]
fn locked_file_fails_commits_after_the_timeout_and_not_reads() {
    let scratch = Scratch::new();
    let busy_timeout = Duration::from_millis(30);
    let database =
        scratch.database_with(SqliteOptions { busy_timeout, ..SqliteOptions::default().relaxed() });
    let mut store = database.store();
    applied(&mut store, put(1, b"one"));
    let holder = raw_connection(&database);
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let outcomes = store.commit(vec![put(1, b"two"), put(2, b"two")]);
    for outcome in &outcomes {
        let error = outcome.as_ref().unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains("another process"), "{error}");
    }
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"one");
    holder.execute_batch("ROLLBACK").unwrap();
    applied(&mut store, put(1, b"two"));
}

#[test]
fn split_group_waits_for_the_file_once() {
    const WAIT: Duration = Duration::from_millis(50);
    let scratch = Scratch::new();
    let options = SqliteOptions { busy_timeout: WAIT, ..SqliteOptions::default().relaxed() };
    let database = scratch.database_with(options);
    let mut store = database.store();
    let release = hold_after_first_commit(&database);
    let mut spoiler = Txn::new();
    spoiler.bind(key(1_000), b"what a file cannot do".to_vec());
    let group = [put(0, b"first"), spoiler].into_iter();
    let outcomes = store.commit(group.chain((1..500).map(|number| put(number, b"x"))).collect());
    release();
    assert!(matches!(outcomes[0], Ok(CommitOutcome::Applied { .. })), "{:?}", outcomes[0]);
    assert!(outcomes[1..].iter().all(|it| it.as_ref().is_err_and(InfraError::is_retryable)));
    assert_eq!(stored(&mut store, 499), None);
}

#[test]
fn call_of_several_groups_waits_for_the_file_once() {
    // The groups after the first would wait longer than the file is held, if each waited.
    const WAIT: Duration = Duration::from_millis(500);
    const GROUPS: u64 = 8;
    const _: () = assert!((GROUPS - 1) as u128 * WAIT.as_millis() > HOLD.as_millis());
    const OPS: u64 = LIMITS.txn_ops as u64;
    /// A transaction that fills a quarter of a group.
    fn large(number: u64) -> Txn {
        let mut txn = Txn::new();
        (number * OPS..(number + 1) * OPS).for_each(|number| txn.put(key(number), Vec::new()));
        txn
    }
    let scratch = Scratch::new();
    let options = SqliteOptions { busy_timeout: WAIT, ..SqliteOptions::default().relaxed() };
    let database = scratch.database_with(options);
    let release = hold_after_first_commit(&database);
    let outcomes = database.store().commit((0..GROUPS * 4).map(large).collect());
    release();
    let (first, rest) = outcomes.split_at(4);
    assert!(first.iter().all(|it| matches!(it, Ok(CommitOutcome::Applied { .. }))), "{first:?}");
    assert!(rest.iter().all(|it| it.as_ref().is_err_and(InfraError::is_retryable)));
}

/// Holds the file's write lock from the first commit on, for [`HOLD`] or until the returned
/// function is called.
fn hold_after_first_commit(database: &SqliteDatabase) -> impl FnOnce() {
    let (held, is_held) = channel::<rusqlite::Connection>();
    let (over, is_over) = channel::<()>();
    let releasing = std::thread::spawn(move || {
        let holder = is_held.recv().unwrap();
        let _ = is_over.recv_timeout(HOLD);
        drop(holder);
    });
    let mut holder = Some(raw_connection(database));
    database.core().after_commit(move || {
        if let Some(holder) = holder.take() {
            holder.execute_batch("BEGIN IMMEDIATE").unwrap();
            held.send(holder).unwrap();
        }
    });
    move || {
        over.send(()).unwrap();
        releasing.join().unwrap();
    }
}

/// Every commit is a sync, during which other processes wait.
#[test]
fn one_failing_txn_costs_its_group_few_commits() {
    const TXNS: usize = 1_024;
    // Two for each halving of the group at most.
    const COMMITS_MAX: usize = 2 * TXNS.ilog2() as usize;
    let scratch = Scratch::new();
    let database = scratch.database();
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&commits);
    database.core().after_commit(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut group: Vec<Txn> = (0..TXNS as u64).map(|number| put(number, b"x")).collect();
    let spoiler = TXNS / 3;
    group[spoiler] = Txn::new();
    group[spoiler].bind(key(spoiler as u64), b"what a file cannot do".to_vec());
    let outcomes = database.store().commit(group);
    let failed: Vec<usize> = (0..TXNS).filter(|it| outcomes[*it].is_err()).collect();
    assert_eq!(failed, [spoiler]);
    assert!(commits.load(Ordering::Relaxed) <= COMMITS_MAX, "{commits:?} commits");
    let mut store = database.store();
    assert!((0..TXNS).all(|it| stored(&mut store, it as u64).is_some() == (it != spoiler)));
}

#[test]
fn file_that_becomes_read_only_is_refused() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"one"));
    // Root writes to anything, so `query_only` makes SQLite refuse; permissions are tested as
    // another user in `sqlite/processes.rs` of `gossip-trials`.
    database.core().forbid_writing();
    let error = commit(&mut store, put(1, b"two")).unwrap_err();
    assert!(matches!(error, InfraError::Refused { why: StoreRefusal::ReadOnly, .. }), "{error}");
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"one");
}

#[test]
fn writer_without_a_connection_opens_another() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"one"));
    database.core().lose_connection();
    applied(&mut store, put(2, b"two"));
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"one");
    assert!(database.core().log_frames() > 0, "the new connection reports the length of the log");
}

/// The database, its log and its index.
const FILES: [&str; 3] = ["store.db", "store.db-wal", "store.db-shm"];

/// Moves `names` out of the way.
fn move_away(scratch: &Scratch, names: &[&str]) {
    for name in names {
        fs::rename(scratch.file(name), scratch.file(&format!("{name}.away"))).unwrap();
    }
}

/// Undoes [`move_away`], over whatever has the names now.
fn move_back(scratch: &Scratch, names: &[&str]) {
    for name in names {
        fs::rename(scratch.file(&format!("{name}.away")), scratch.file(name)).unwrap();
    }
}

/// Moves `names` away, lets `replace` create others, and returns the error of a commit. Checks that
/// nothing uses the files meanwhile, and that commits succeed after they are moved back.
fn commit_without(names: &[&str], replace: impl FnOnce(&Scratch)) -> InfraError {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"one"));
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"one");
    move_away(&scratch, names);
    replace(&scratch);
    let error = commit(&mut store, put(1, b"two")).unwrap_err();
    // A connection that is opened from now on must not read another file than this one writes.
    let opened = database.core().open_reader().map(drop).unwrap_err();
    assert_eq!(infra(COMMIT, &opened), error);
    let read = store.read(vec![Read::Get(key(1))]).unwrap_err();
    assert_eq!(read.is_retryable(), error.is_retryable(), "{read}");
    assert_eq!(error.is_retryable(), !scratch.file(names[0]).exists(), "{error}");
    move_back(&scratch, names);
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"one");
    applied(&mut store, put(1, b"three"));
    drop((store, database));
    // Another process finds all of it.
    assert_eq!(stored(&mut scratch.database().store(), 1).unwrap().bytes, b"three");
    error
}

fn is_unusable(error: &InfraError) -> bool {
    matches!(error, InfraError::Refused { why: StoreRefusal::Unusable, .. })
}

#[cfg(unix)]
#[test]
fn missing_file_is_waited_for_and_not_created() {
    for names in [&FILES[..], &FILES[..1]] {
        let error = commit_without(names, |_| {});
        assert!(matches!(error, InfraError::Transient { .. }), "{error}");
        assert!(error.to_string().contains("move the original back"), "{error}");
    }
}

/// SQLite removes a log that it finds beside an empty database, and with it commits.
#[cfg(unix)]
#[test]
fn file_that_is_back_without_its_log_or_index_is_waited_for() {
    for name in &FILES[1..] {
        let scratch = Scratch::new();
        let database = scratch.database();
        let mut store = database.store();
        applied(&mut store, put(1, b"one"));
        let is_missing = |store: &mut _| {
            let error = commit(store, put(1, b"two")).unwrap_err();
            assert!(matches!(error, InfraError::Transient { .. }), "{name}: {error}");
        };
        move_away(&scratch, &FILES[..1]);
        is_missing(&mut store);
        move_away(&scratch, &[name]);
        move_back(&scratch, &FILES[..1]);
        is_missing(&mut store);
        assert!(database.core().open_reader().is_err(), "{name} would be created anew");
        move_back(&scratch, &[name]);
        applied(&mut store, put(1, b"three"));
    }
}

#[cfg(unix)]
#[test]
fn deleted_file_is_not_written() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"one"));
    FILES.iter().for_each(|name| fs::remove_file(scratch.file(name)).unwrap());
    let error = commit(&mut store, put(1, b"two")).unwrap_err();
    assert!(matches!(error, InfraError::Transient { .. }), "{error}");
    drop((store, database));
    assert!(FILES.iter().all(|name| !scratch.file(name).exists()), "a file was created");
}

#[cfg(unix)]
#[test]
fn replaced_file_is_refused() {
    let error = commit_without(&FILES, |scratch| {
        // Another process finds no file and creates a new one.
        applied(&mut scratch.database().store(), put(1, b"another"));
    });
    assert!(is_unusable(&error), "{error}");
}

/// A copy may lack commits that were acknowledged after it was made.
#[cfg(unix)]
#[test]
fn copy_in_place_of_the_file_is_refused() {
    let error = commit_without(&FILES, |scratch| {
        for name in FILES {
            fs::copy(scratch.file(&format!("{name}.away")), scratch.file(name)).unwrap();
        }
    });
    assert!(is_unusable(&error), "{error}");
}

/// The commit is in the file, but another process may have created one in its place meanwhile.
#[cfg(unix)]
#[test]
fn commit_into_a_file_that_is_moved_meanwhile_is_unresolved() {
    let scratch = Arc::new(Scratch::new());
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"one"));
    let (moving, mut is_moved) = (Arc::clone(&scratch), false);
    database.core().after_commit(move || {
        if !std::mem::replace(&mut is_moved, true) {
            move_away(&moving, &FILES);
        }
    });
    assert_eq!(commit(&mut store, put(1, b"two")), Ok(CommitOutcome::Unknown));
    // The answer would settle the commit.
    let read = store.read(vec![Read::Get(key(1))]).unwrap_err();
    assert!(matches!(read, InfraError::Transient { .. }), "{read}");
    move_back(&scratch, &FILES);
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"two");
    applied(&mut store, put(1, b"three"));
}

#[test]
fn unwritten_numbers_and_keys_are_corruption() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"one"));
    let damage = |sql: &str| raw_connection(&database).execute_batch(sql).unwrap();
    let is_corruption = |error: InfraError| {
        assert!(matches!(error, InfraError::Corruption { .. }), "{error}");
    };
    damage("UPDATE kv SET revision = -1");
    is_corruption(commit(&mut store, put(1, b"two")).unwrap_err());
    damage("UPDATE kv SET revision = 9223372036854775807");
    is_corruption(commit(&mut store, put(1, b"two")).unwrap_err());
    damage("UPDATE kv SET revision = 1");
    damage("UPDATE meta SET value = 9223372036854775807");
    is_corruption(commit(&mut store, put(2, b"two")).unwrap_err());
    damage("DELETE FROM meta");
    is_corruption(commit(&mut store, put(2, b"two")).unwrap_err());
    let mut delete = Txn::new();
    delete.delete(key(1));
    is_corruption(commit(&mut store, delete).unwrap_err());
    assert_eq!(stored(&mut store, 1).unwrap().bytes, b"one");
}

#[test]
fn missing_table_is_an_error_and_no_panic() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    raw_connection(&database).execute_batch("DROP TABLE kv").unwrap();
    let error = commit(&mut store, put(1, b"one")).unwrap_err();
    assert!(!error.is_retryable(), "{error}");
}

/// Creates a run with some shards, one of them leased.
pub(crate) fn create_run(coordinator: &mut SqliteCoordinator) -> Vec<ShardSummary> {
    let bounds: Vec<[u8; 1]> =
        (0..=SHARDS).map(|nth| [b'a' + u8::try_from(nth).unwrap()]).collect();
    let roots: Vec<_> = (0..SHARDS)
        .zip(bounds.windows(2))
        .map(|(nth, bounds)| InitialShardInput {
            shard_id: ShardId::from_raw(nth),
            spec: ShardSpecRef::new(&bounds[0], &bounds[1], &[7; 500]),
            cursor: CursorUpdate::initial(),
        })
        .collect();
    let config = RunConfig::try_new(CursorSemantics::Completed, 100, None).unwrap();
    let op = OpId::from_raw(1);
    coordinator.create_run_with_shards(NOW, TENANT, RUN, config, &roots, op).unwrap();
    acquire(coordinator, 0).unwrap();
    list(coordinator).unwrap()
}

pub(crate) fn acquire(coordinator: &mut SqliteCoordinator, shard: u64) -> Result<(), String> {
    let mut scratch = Box::<AcquireScratch>::default();
    let (key, worker) = (ShardKey::new(RUN, ShardId::from_raw(shard)), WorkerId::from_raw(1));
    let view = coordinator.acquire_and_restore_into(NOW, TENANT, key, worker, &mut scratch);
    view.map(|_| ()).map_err(|error| format!("{error:?}"))
}

pub(crate) fn list(coordinator: &mut SqliteCoordinator) -> Result<Vec<ShardSummary>, String> {
    let mut rows = Vec::new();
    let listed = coordinator.list_shards_into(NOW, TENANT, RUN, ShardFilter::all(), &mut rows);
    listed.map(|()| rows).map_err(|error| format!("{error:?}"))
}

#[test]
fn a_flipped_bit_in_a_hot_part_marks_its_shard_and_no_other() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut coordinator = database.coordinator();
    let original = create_run(&mut coordinator);
    let engine = raw_connection(&database);
    let rows: Vec<(Vec<u8>, Vec<u8>)> = {
        let mut statement = engine.prepare("SELECT key, value FROM kv").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let is_hot = |key: &[u8]| matches!(Key::parse(key), Ok(Key::ShardHot { .. }));
    let hot: Vec<_> = rows.iter().filter(|(key, _)| is_hot(key)).collect();
    assert_eq!(hot.len(), SHARDS as usize);
    for (nth, (key, value)) in hot.into_iter().enumerate() {
        for at in (nth..value.len()).step_by(9) {
            let mut bad = value.clone();
            bad[at] ^= 1 << (at % 8);
            let set = "UPDATE kv SET value = ?2 WHERE key = ?1";
            engine.execute(set, rusqlite::params![key, bad]).unwrap();
            let Ok(Key::ShardHot { shard, .. }) = Key::parse(key) else { panic!("a hot part") };
            let (damaged, intact): (Vec<_>, Vec<_>) = list(&mut database.coordinator())
                .unwrap()
                .into_iter()
                .partition(|row| row.damage.is_some());
            let damaged: Vec<_> = damaged.iter().map(|row| (row.shard, row.damage)).collect();
            assert_eq!(damaged, [(shard.shard(), Some(ShardDamage::Hot))]);
            let others = original.iter().filter(|row| row.shard != shard.shard());
            assert!(intact.iter().eq(others), "byte {at}: another row changed");
            engine.execute(set, rusqlite::params![key, value]).unwrap();
        }
    }
    list(&mut coordinator).unwrap();
}

/// Flipped bits are judged one by one in `flipped_file_tests.rs`.
#[test]
fn truncated_file_never_yields_a_changed_record() {
    let scratch = Scratch::new();
    let path = scratch.file("store.db");
    let original: BTreeMap<ShardId, ShardSummary> = {
        let mut coordinator = scratch.database().coordinator();
        create_run(&mut coordinator).into_iter().map(|row| (row.shard, row)).collect()
    };
    let whole = fs::read(&path).unwrap();
    let mut rng = Rng::seeded(1);
    for trial in 0..50 {
        let mut bytes = whole.clone();
        // Within the last page.
        bytes.truncate(whole.len() - 1 - rng.index(4_096));
        fs::write(&path, &bytes).unwrap();
        let check = if trial % 2 == 0 { OpenCheck::Header } else { OpenCheck::default() };
        try_open(&path, check, &original).expect_err("a page is missing");
        for companion in ["store.db-wal", "store.db-shm"] {
            let _ = fs::remove_file(scratch.file(companion));
        }
    }
}

/// Opens the file, reads and writes. An error is accepted, a changed record is not.
fn try_open(
    path: &Path,
    check: OpenCheck,
    original: &BTreeMap<ShardId, ShardSummary>,
) -> Result<(), String> {
    let options = SqliteOptions { check, ..SqliteOptions::default().relaxed() };
    let database = SqliteDatabase::open(path, options).map_err(|error| error.to_string())?;
    let mut coordinator = database.coordinator();
    let (damaged, intact): (Vec<_>, Vec<_>) =
        list(&mut coordinator)?.into_iter().partition(|row| row.damage.is_some());
    for row in intact {
        assert_eq!(Some(&row), original.get(&row.shard), "a record changed");
    }
    if let Some(row) = damaged.first() {
        return Err(format!("{row:?}"));
    }
    // No other operation reads them.
    let events = coordinator.list_events_into(TENANT, RUN, None, &mut Vec::new());
    events.map_err(|error| error.to_string())?;
    (1..SHARDS).try_for_each(|shard| acquire(&mut coordinator, shard))?;
    database.check_integrity().map_err(|error| error.to_string())
}
