//! A copy is whole, of one instant, and goes on as a database of its own.

use std::fs;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use gossip_coordination::store::Txn;

use crate::backup::copy_pages;
use crate::test_support::{Scratch, applied, key, put, stored, stranger};
use crate::{BackupError, SqliteDatabase, SqliteOptions};

fn open(scratch: &Scratch, name: &str) -> SqliteDatabase {
    SqliteDatabase::open(scratch.file(name), SqliteOptions::default().relaxed()).unwrap()
}

/// Two keys that always say the same.
fn pair(value: u64) -> Txn {
    let mut txn = Txn::new();
    txn.put(key(1), value.to_be_bytes().to_vec());
    txn.put(key(2), value.to_be_bytes().to_vec());
    txn
}

#[test]
fn a_copy_made_while_others_write_is_of_one_instant_and_goes_on() {
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
        // Revisions go on where they were.
        assert!(applied(&mut store, pair(1)) > one.revision);
        assert!(stored(&mut store, 2_099).is_some());
    }
}

#[test]
fn a_copy_overwrites_nothing_and_leaves_nothing_behind() {
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
    assert_eq!(applied(&mut database.store(), put(1, b"on")), 1, "the original goes on");
}

fn unfinished_count(scratch: &Scratch) -> usize {
    let files = fs::read_dir(scratch.file("")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("unfinished")).count()
}

/// A copy holds what the database holds, so nobody may read it who may not read the database; and
/// the one that is on its way neither.
#[cfg(unix)]
#[test]
fn a_copy_is_shown_to_nobody_who_may_not_see_the_database() {
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

/// The program may be anywhere, and SQLite sees more in some names than names.
#[test]
fn a_copy_has_the_name_that_was_given() {
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
fn of_copies_to_one_place_at_once_one_arrives_whole() {
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
fn a_copy_that_somebody_holds_is_given_up() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let holder = rusqlite::Connection::open(scratch.file("copy.db")).unwrap();
    holder.execute_batch("CREATE TABLE t(x); BEGIN EXCLUSIVE").unwrap();
    let error = copy_pages(&stranger(&database), &scratch.file("copy.db")).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("try again"), "{error}");
}
