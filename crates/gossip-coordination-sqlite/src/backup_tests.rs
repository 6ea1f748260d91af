//! A backup is complete, holds one snapshot, and works as an independent database.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use gossip_coordination::store::Txn;

use crate::backup::copy_pages;
use crate::test_support::{Scratch, applied, key, put, raw_connection, stored};
use crate::{BackupError, SqliteDatabase, SqliteOptions};

fn open(scratch: &Scratch, name: &str) -> SqliteDatabase {
    SqliteDatabase::open(scratch.file(name), SqliteOptions::default().relaxed()).unwrap()
}

/// Writes the same value to two keys.
fn pair(value: u64) -> Txn {
    let mut txn = Txn::new();
    txn.put(key(1), value.to_be_bytes().to_vec());
    txn.put(key(2), value.to_be_bytes().to_vec());
    txn
}

#[test]
fn backup_during_writes_is_one_snapshot_and_writable() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    // Some megabytes, so that a copy takes several steps.
    for number in 100..2_100 {
        applied(&mut store, put(number, &[7; 3_000]));
    }
    applied(&mut store, pair(0));
    let is_over = AtomicBool::new(false);
    let copies: u64 = std::thread::scope(|scope| {
        // One writer of this process, and one with connections of its own, as another process.
        for mut store in [database.store(), open(&scratch, "store.db").store()] {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut value = 1;
                while !is_over.load(Ordering::Relaxed) {
                    applied(&mut store, pair(value));
                    value += 1;
                }
            });
        }
        let copies = (0..5).map(|nth| {
            let path = scratch.file(&format!("copy-{nth}.db"));
            database.back_up_to(path).unwrap()
        });
        let bytes = copies.sum();
        is_over.store(true, Ordering::Relaxed);
        bytes
    });
    assert!(copies > 5 * 6_000_000, "{copies} bytes");
    for nth in 0..5 {
        let name = format!("copy-{nth}.db");
        let copy = open(&scratch, &name);
        copy.check_integrity().unwrap();
        let mut store = copy.store();
        let (one, two) = (stored(&mut store, 1).unwrap(), stored(&mut store, 2).unwrap());
        assert_eq!(one, two);
        // Revisions continue from the snapshot.
        assert!(applied(&mut store, pair(1)) > one.revision);
        assert!(stored(&mut store, 2_099).is_some());
    }
}

#[test]
fn backup_does_not_overwrite_and_leaves_no_temporary_file() {
    let scratch = Scratch::new();
    let database = scratch.database();
    fs::write(scratch.file("taken"), "mine").unwrap();
    let error = database.back_up_to(scratch.file("taken")).unwrap_err();
    assert!(matches!(error, BackupError::Exists { .. }), "{error}");
    assert_eq!(fs::read_to_string(scratch.file("taken")).unwrap(), "mine");
    assert!(database.back_up_to(scratch.file("no/such/place")).is_err());
    database.back_up_to(scratch.file("copy.db")).unwrap();
    assert_eq!(unfinished_count(&scratch), 0);
    open(&scratch, "copy.db").check_integrity().unwrap();
    assert_eq!(applied(&mut database.store(), put(1, b"on")), 1, "the original is still usable");
}

fn unfinished_count(scratch: &Scratch) -> usize {
    let files = fs::read_dir(scratch.file("")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("unfinished")).count()
}

/// A copy, finished or not, must not be readable for more users than the database.
#[cfg(unix)]
#[test]
fn backup_has_the_permissions_of_the_database() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let database = scratch.database();
    for mode in [0o600, 0o640] {
        fs::set_permissions(database.path(), fs::Permissions::from_mode(mode)).unwrap();
        let copy = scratch.file(&format!("copy-{mode:o}.db"));
        database.back_up_to(&copy).unwrap();
        let found = fs::metadata(&copy).unwrap().permissions().mode() & 0o777;
        assert_eq!(found & !mode, 0, "{found:o} shows more than {mode:o}");
        assert_eq!(found & 0o600, 0o600, "its owner reads and writes it");
    }
}

/// SQLite interprets names that begin with `file:`; a backup must not.
#[test]
fn backup_name_is_not_interpreted_by_sqlite() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let here = std::env::current_dir().unwrap();
    let name = format!("file:gossip-copy-{}.db", std::process::id());
    let copied = database.back_up_to(&name);
    let found: Vec<_> = fs::read_dir(&here)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|found| found.contains(name.trim_start_matches("file:")))
        .collect();
    found.iter().for_each(|name| fs::remove_file(here.join(name)).unwrap());
    assert!(copied.is_ok(), "{copied:?}");
    assert_eq!(found, [name]);
}

#[test]
fn one_of_concurrent_backups_to_one_path_succeeds() {
    const COPIES: usize = 4;
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    for number in 0..2_000 {
        applied(&mut store, put(number, &[7; 3_000]));
    }
    let start = Barrier::new(COPIES);
    let ends: Vec<_> = std::thread::scope(|scope| {
        let copy = || {
            start.wait();
            database.back_up_to(scratch.file("copy.db"))
        };
        let copies: Vec<_> = (0..COPIES).map(|_| scope.spawn(copy)).collect();
        copies.into_iter().map(|copy| copy.join().unwrap()).collect()
    });
    let is_refused = |end: &&Result<u64, _>| matches!(end, Err(BackupError::Exists { .. }));
    assert_eq!(ends.iter().filter(is_refused).count(), COPIES - 1, "{ends:?}");
    let bytes = ends.iter().find_map(|end| end.as_ref().ok()).unwrap();
    assert_eq!(fs::metadata(scratch.file("copy.db")).unwrap().len(), *bytes);
    assert_eq!(unfinished_count(&scratch), 0);
    let copy = open(&scratch, "copy.db");
    copy.check_integrity().unwrap();
    assert!((0..2_000).all(|number| stored(&mut copy.store(), number).is_some()));
}

#[test]
fn backup_fails_if_the_unfinished_copy_is_locked() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let holder = rusqlite::Connection::open(scratch.file("copy.db")).unwrap();
    holder.execute_batch("CREATE TABLE t(x); BEGIN EXCLUSIVE").unwrap();
    let error = copy_pages(&raw_connection(&database), &scratch.file("copy.db")).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("try again"), "{error}");
}
