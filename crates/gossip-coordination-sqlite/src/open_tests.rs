//! Every way in which a file is not opened has its own error, which says what to do.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;
use std::time::Duration;

use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::new_file::create_if_missing;
use crate::schema::{APPLICATION_ID, FORMAT, Role, connect, is_new};
use crate::test_support::{Scratch, applied, put, stored};
use crate::{OpenCheck, OpenSqliteError, SqliteDatabase, SqliteOptions, SqliteStore};

/// Bytes of a page.
const PAGE: usize = 4_096;

fn open(path: &Path) -> Result<SqliteDatabase, OpenSqliteError> {
    SqliteDatabase::open(path, SqliteOptions::default().relaxed())
}

fn fill(store: &mut SqliteStore) {
    for number in 0..200 {
        applied(store, put(number, &[7; 600]));
    }
}

fn refused(path: &Path) -> OpenSqliteError {
    open(path).expect_err("this is not to be opened")
}

#[test]
fn a_missing_directory_is_named() {
    let scratch = Scratch::new();
    let error = refused(&scratch.file("no/such/store.db"));
    assert!(matches!(error, OpenSqliteError::MissingDirectory { .. }), "{error}");
    assert!(error.to_string().contains("create it first"));
}

/// Returns the permission bits of a file.
fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn new_store_is_readable_for_its_user_only() {
    let scratch = Scratch::new();
    let database = scratch.database();
    applied(&mut database.store(), put(1, b"one"));
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(mode_of(&scratch.file(name)), 0o600, "{name}");
    }
}

#[test]
fn existing_store_and_its_log_keep_the_mode() {
    let scratch = Scratch::new();
    drop(scratch.database());
    let path = scratch.file("store.db");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let database = scratch.database();
    applied(&mut database.store(), put(1, b"one"));
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(mode_of(&scratch.file(name)), 0o640, "{name}");
    }
}

#[test]
fn link_to_a_missing_file_creates_nothing() {
    let scratch = Scratch::new();
    let (path, target) = (scratch.file("store.db"), scratch.file("elsewhere"));
    symlink(&target, &path).unwrap();
    let error = refused(&path);
    assert!(matches!(error, OpenSqliteError::PlantedLink { .. }), "{error}");
    assert!(!target.exists());
    // A link of this user to an existing store is another name for it.
    drop(SqliteDatabase::open(&target, SqliteOptions::default()).unwrap());
    drop(open(&path).unwrap());
}

/// Only the administrator can make a link of another user.
#[test]
fn link_of_another_user_is_refused() {
    let scratch = Scratch::new();
    let (path, target) = (scratch.file("store.db"), scratch.file("elsewhere"));
    drop(SqliteDatabase::open(&target, SqliteOptions::default()).unwrap());
    symlink(&target, &path).unwrap();
    if lchown(&path, Some(65_534), None).is_err() {
        eprintln!("NOT RUN: this user cannot give a link to another one");
        return;
    }
    let error = refused(&path);
    assert!(matches!(error, OpenSqliteError::PlantedLink { .. }), "{error}");
}

#[test]
fn links_in_place_of_the_log_are_not_followed() {
    for name in ["store.db-wal", "store.db-shm"] {
        let scratch = Scratch::new();
        drop(scratch.database());
        let target = scratch.file("elsewhere");
        symlink(&target, scratch.file(name)).unwrap();
        refused(&scratch.file("store.db"));
        assert!(!target.exists(), "{name}");
    }
}

#[test]
fn a_directory_is_no_file() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.file("store.db")).unwrap();
    let error = refused(&scratch.file("store.db"));
    assert!(matches!(error, OpenSqliteError::NotAFile { .. }), "{error}");
}

#[test]
fn a_file_of_another_kind_is_left_alone() {
    let scratch = Scratch::new();
    let (path, text) = (scratch.file("notes.txt"), "not a database, whatever its name ".repeat(99));
    fs::write(&path, &text).unwrap();
    let error = refused(&path);
    assert!(matches!(error, OpenSqliteError::NotADatabase { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.file("other.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE kv(key, revision, value)").unwrap();
    let before = fs::read(&path).unwrap();
    let expected = APPLICATION_ID;
    assert_eq!(
        refused(&path),
        OpenSqliteError::ForeignDatabase { path: path.clone(), found: 0, expected }
    );
    other.pragma_update(None, "application_id", 77).unwrap();
    assert_eq!(
        refused(&path),
        OpenSqliteError::ForeignDatabase { path: path.clone(), found: 77, expected }
    );
    drop(other);
    assert_eq!(before.len(), fs::read(&path).unwrap().len());
}

#[test]
fn a_newer_format_is_left_to_a_newer_program() {
    let scratch = Scratch::new();
    drop(scratch.database());
    let path = scratch.file("store.db");
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", FORMAT + 1).unwrap();
    drop(newer);
    let error = refused(&path);
    let (found, supported) = (FORMAT + 1, FORMAT);
    assert_eq!(error, OpenSqliteError::NewerFormat { path, found, supported });
    let infra = InfraError::from(error);
    assert!(matches!(infra, InfraError::Refused { why: StoreRefusal::NewerFormat, .. }));
}

#[test]
fn an_older_format_that_never_was_is_damage() {
    let scratch = Scratch::new();
    drop(scratch.database());
    let path = scratch.file("store.db");
    let older = Connection::open(&path).unwrap();
    older.pragma_update(None, "user_version", FORMAT - 1).unwrap();
    drop(older);
    assert!(matches!(refused(&path), OpenSqliteError::Corrupt { .. }));
}

#[test]
fn a_locked_file_is_waited_for_until_the_timeout() {
    let scratch = Scratch::new();
    drop(scratch.database());
    let path = scratch.file("store.db");
    let holder = Connection::open(&path).unwrap();
    holder
        .execute_batch("PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE; PRAGMA user_version=1")
        .unwrap();
    let options =
        SqliteOptions { busy_timeout: Duration::from_millis(20), ..SqliteOptions::default() };
    let error = SqliteDatabase::open(&path, options).expect_err("it is held");
    assert!(matches!(error, OpenSqliteError::Locked { .. }), "{error}");
    assert!(InfraError::from(error).is_retryable());
    drop(holder);
    open(&path).unwrap();
}

/// Connections that close at once would leave the log, each for the other.
#[test]
fn a_closed_database_is_one_file() {
    for number in 0..100 {
        let scratch = Scratch::new();
        let mut store = scratch.database().store();
        applied(&mut store, put(number, b"here"));
        drop(store);
        for beside in ["store.db-wal", "store.db-shm"] {
            assert!(!scratch.file(beside).exists(), "{beside} is left the {number}th time");
        }
    }
}

#[test]
fn a_truncated_file_is_damaged_or_empty() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    fill(&mut store);
    drop((store, database));
    let path = scratch.file("store.db");
    let whole = fs::read(&path).unwrap();
    // A missing page is detected on open. The missing bytes of a page are read as zeros, which
    // the checksum of a record detects (`fault_tests.rs`).
    let last_page = whole.len() - PAGE;
    for len in (2..last_page).step_by(whole.len() / 40).chain([100, PAGE, last_page]) {
        fs::write(&path, &whole[..len]).unwrap();
        let error = open(&path).expect_err(&format!("{len} of {} bytes", whole.len()));
        let is_told =
            matches!(error, OpenSqliteError::Corrupt { .. } | OpenSqliteError::NotADatabase { .. });
        assert!(is_told, "{len} of {} bytes: {error}", whole.len());
        for beside in ["store.db-wal", "store.db-shm"] {
            let _ = fs::remove_file(scratch.file(beside));
        }
    }
    // An empty file is indistinguishable from a new one. SQLite also treats one byte as empty,
    // which some systems need to lock.
    for len in [0, 1] {
        fs::write(&path, &whole[..len]).unwrap();
        assert_eq!(stored(&mut open(&path).unwrap().store(), 1), None);
    }
}

#[test]
fn large_files_are_opened_without_reading_every_page() {
    let scratch = Scratch::new();
    let mut store = scratch.database().store();
    fill(&mut store);
    drop(store);
    let path = scratch.file("store.db");
    let mut bytes = fs::read(&path).unwrap();
    // The header of a page in the middle; the tree above it is whole.
    let middle = bytes.len() / 2 / PAGE * PAGE;
    bytes[middle..middle + 8].fill(0xFF);
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(refused(&path), OpenSqliteError::Corrupt { .. }));
    let check = OpenCheck::UpTo(4_096);
    let options = SqliteOptions { check, ..SqliteOptions::default().relaxed() };
    let database = SqliteDatabase::open(&path, options).unwrap();
    let damage = database.check_integrity().unwrap_err();
    assert!(matches!(damage, InfraError::Corruption { .. }), "{damage}");
}

#[test]
fn many_who_create_one_file_at_once_share_it() {
    let scratch = Scratch::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = scratch.file("store.db");
            scope.spawn(move || applied(&mut open(&path).unwrap().store(), put(number, b"here")));
        }
    });
    let mut store = scratch.database().store();
    assert!((0..8).all(|number| stored(&mut store, number).is_some()));
}

/// Another process makes the file its own in the middle of our look at it.
#[test]
fn a_look_at_a_new_file_is_of_one_instant() {
    let scratch = Scratch::new();
    let path = scratch.file("store.db");
    let hasty = SqliteOptions { busy_timeout: Duration::ZERO, ..SqliteOptions::default() };
    create_if_missing(&path).unwrap();
    let mut connection = connect(&path, &hasty, Role::Write).unwrap();
    let (theirs, options) = (path.clone(), hasty);
    let mut has_come = false;
    let came = move |context: AuthContext<'_>| {
        let is_second_look =
            matches!(context.action, AuthAction::Pragma { pragma_name: "user_version", .. });
        if is_second_look && !std::mem::replace(&mut has_come, true) {
            // It succeeds, or finds the file locked by the reader.
            let _ = SqliteDatabase::open(&theirs, options);
        }
        Authorization::Allow
    };
    connection.authorizer(Some(came)).unwrap();
    let found = is_new(&connection, &path);
    assert!(found.is_ok(), "{found:?}");
    drop(connection);
    open(&path).unwrap();
}

#[test]
fn patience_without_end_is_bounded() {
    let scratch = Scratch::new();
    let options = SqliteOptions { busy_timeout: Duration::MAX, ..SqliteOptions::default() };
    let database = scratch.database_with(options);
    applied(&mut database.store(), put(1, b"one"));
    assert!(database.options().busy_timeout < Duration::MAX);
}

#[test]
fn errors_and_handles_show_no_bytes_of_values() {
    let scratch = Scratch::new();
    let database = scratch.database();
    let mut store = database.store();
    applied(&mut store, put(1, b"secret"));
    let shown = format!("{database:?} {store:?}");
    assert!(shown.contains("store.db") && !shown.contains("secret"), "{shown}");
}

#[test]
fn names_that_mean_something_to_sqlite_are_names_of_files() {
    let scratch = Scratch::new();
    for name in [":memory:", "file:other?mode=memory"] {
        let path = scratch.file(name);
        applied(&mut open(&path).unwrap().store(), put(1, b"kept"));
        assert!(path.is_file(), "{name}");
        assert!(stored(&mut open(&path).unwrap().store(), 1).is_some(), "{name}");
    }
    assert!(open(Path::new("")).is_err());
}

#[test]
fn the_tables_are_as_the_document_says() {
    let document = include_str!("../../../docs/storage-format.md");
    let scratch = Scratch::new();
    let database = scratch.database();
    let engine = Connection::open(database.path()).unwrap();
    let mut statement =
        engine.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").unwrap();
    let tables = statement.query_map([], |row| row.get(0)).unwrap();
    let tables: Vec<String> = tables.collect::<Result<_, _>>().unwrap();
    assert_eq!(tables.len(), 2);
    for table in tables {
        // The document writes each on one line.
        let line = table.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = line.replace("( ", "(").replace(" )", ")");
        assert!(document.lines().any(|written| written == line), "{line}");
    }
    let marks = format!(
        "`PRAGMA application_id` = `{APPLICATION_ID:#x}` (the letters `GosC`) and \
         `PRAGMA user_version` = `{FORMAT}`"
    );
    assert!(document.contains(&marks), "{marks}");
    assert_eq!(APPLICATION_ID.to_be_bytes(), *b"GosC");
}
