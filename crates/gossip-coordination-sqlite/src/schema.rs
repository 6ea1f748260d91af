//! The file: whose it is, which tables it has, and how each connection is set.
//!
//! ```text
//!  kv    key BLOB, revision INTEGER, value BLOB     everything; the key is the primary key
//!  meta  name TEXT, value INTEGER                   one row, `floor`
//! ```
//!
//! `kv` has no row ids: the rows themselves are the tree that is sorted by key. Against row ids and
//! a unique index, with values of 600 bytes and keys of 100 (interleaved rounds on a busy machine,
//! so read it as a direction): rewriting values, 64 per commit, 5 to 12 % slower, one per commit
//! equal; granting leases, which also moves a row of the claim index, 7 to 20 % faster without
//! syncs, and with syncs no difference that stood out of the noise; the file 14 to 33 % smaller. So
//! a checkpoint changes one row in one page, and everything else touches one tree instead of two.
//! Rewriting values on pages of 8 KiB was slower than on 4 KiB.
//!
//! # Revisions
//! A transaction gets the highest of the revisions of the keys it writes, plus one. A key that is
//! not there may have been there before, so `floor` counts as well then; and a transaction that
//! deletes raises `floor` to its own revision. So the revisions of a key rise with every write,
//! also across its deletion, and a checkpoint reads and writes nothing but its own row.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::failure::is_busy;
use crate::open_error::OpenSqliteError;
use crate::options::{OpenCheck, SqliteOptions, SyncMode};

/// Marks a file as ours (`PRAGMA application_id`): the letters `GosC`.
pub(crate) const APPLICATION_ID: i32 = 0x476F_7343;

/// The format of the tables and keys (`PRAGMA user_version`): 2 since keys begin with their tenant.
/// Values have their own version, in the codec.
pub(crate) const FORMAT: i32 = 2;

/// Bytes of a page, the unit of reading and logging. It is the file system's block, so a torn page
/// needs no care beyond the log's checksums, and five shards fit in one.
const PAGE_BYTES: u32 = 4_096;

/// Where the log is cut off when it starts over, should it have grown larger: four times the length
/// at which commits themselves copy it back, so in ordinary life it is never cut and its blocks are
/// written again in place, which syncs faster than growing.
const LOG_BYTES_MAX: i64 = 256 << 20;

/// Pages that each connection may cache, in KiB (negative by SQLite's convention): enough for the
/// inner pages of the tree. The rest is in the system's cache.
const CACHE_KIB: i32 = -4_096;

/// Prepared statements that a connection keeps: more than there are.
const STATEMENTS_MAX: usize = 32;

/// The pause between two tries to switch an opened file to its log, which only processes that open
/// a new file at once contend for.
const SWITCH_PAUSE: Duration = Duration::from_millis(2);

const TABLES: &str = "
    CREATE TABLE kv(
        key BLOB PRIMARY KEY NOT NULL,
        revision INTEGER NOT NULL,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE meta(name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO meta VALUES ('floor', 0);
";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Commits.
    Write,
    /// Reads; it cannot write by mistake.
    Read,
    /// Copies the log back.
    Checkpoint,
}

/// Opens the file at `path`, makes it ours if it is new, and checks it.
pub(crate) fn open_file(
    path: &Path,
    options: &SqliteOptions,
) -> Result<Connection, OpenSqliteError> {
    check_place(path)?;
    let fail = |error: rusqlite::Error| OpenSqliteError::of(path, &error);
    let connection = connect(path, options, Role::Write).map_err(fail)?;
    if connection.is_readonly("main").map_err(fail)? {
        return Err(OpenSqliteError::ReadOnly { path: path.to_path_buf() });
    }
    let is_new = is_new(&connection, path)?;
    if is_new {
        connection.pragma_update(None, "page_size", PAGE_BYTES).map_err(fail)?;
    }
    if !switch_to_log(&connection, options.busy_timeout).map_err(fail)? {
        let message = "this file system cannot share memory between processes; use a local disk";
        return Err(OpenSqliteError::Engine {
            path: path.to_path_buf(),
            message: message.to_owned(),
        });
    }
    if is_new {
        create(&connection, path)?;
    }
    check_pages(&connection, path, options.check)?;
    // From here on only `BEGIN IMMEDIATE` can find the file held, and the writer waits for that
    // itself, in shorter steps than SQLite would.
    connection.busy_timeout(Duration::ZERO).map_err(fail)?;
    Ok(connection)
}

/// Another connection to a file that is known to be ours.
pub(crate) fn connect(
    path: &Path,
    options: &SqliteOptions,
    role: Role,
) -> rusqlite::Result<Connection> {
    // Each connection is used by one thread at a time, so SQLite need not lock it.
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if role == Role::Write {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    }
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    let synchronous = match options.sync {
        SyncMode::Full => "FULL",
        SyncMode::Relaxed => "NORMAL",
    };
    // In the log's mode FULL syncs the log at every commit, and NORMAL only before the log is
    // copied back. Either way the file is intact after any crash.
    connection.pragma_update(None, "synchronous", synchronous)?;
    // Where a plain sync only reaches the disk's own memory (Apple's systems), ask for more. Other
    // systems do not know these.
    let is_full = options.sync == SyncMode::Full;
    connection.pragma_update(None, "fullfsync", is_full)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // No commit copies the log back in passing: the keeper does, on its own connection.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    // We have no foreign keys, no triggers and no views, and trust none that a stranger put there.
    connection.pragma_update(None, "trusted_schema", false)?;
    // A damaged page is an error before it is anything else.
    connection.pragma_update(None, "cell_size_check", true)?;
    if let Some(bytes) = options.file_bytes_max {
        let pages = i64::try_from(bytes / u64::from(PAGE_BYTES)).unwrap_or(i64::MAX).max(1);
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    if role == Role::Read {
        connection.pragma_update(None, "query_only", true)?;
    }
    Ok(connection)
}

/// Says what the system would only call "cannot open".
fn check_place(path: &Path) -> Result<(), OpenSqliteError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Only looked at, never opened: closing a second handle would drop SQLite's locks.
    if parent.is_some_and(|parent| !parent.is_dir()) {
        return Err(OpenSqliteError::MissingDirectory { path: path.to_path_buf() });
    }
    if path.exists() && !path.is_file() {
        return Err(OpenSqliteError::NotAFile { path: path.to_path_buf() });
    }
    Ok(())
}

/// Whether the file is nobody's yet; an error if it is somebody else's.
pub(crate) fn is_new(connection: &Connection, path: &Path) -> Result<bool, OpenSqliteError> {
    // Of one instant: in between, another process could make the file its own, and half of what is
    // found would be of before and half of after.
    let instant = connection.unchecked_transaction();
    let _instant = instant.map_err(|error| OpenSqliteError::of(path, &error))?;
    Ok(!is_ours(connection, path)?)
}

/// Whether the file is ours already; an error if it is somebody else's. A new file is nobody's.
fn is_ours(connection: &Connection, path: &Path) -> Result<bool, OpenSqliteError> {
    let fail = |error: rusqlite::Error| OpenSqliteError::of(path, &error);
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get(0));
    let application: i32 = number("application_id").map_err(fail)?;
    let format: i32 = number("user_version").map_err(fail)?;
    let count = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(count, [], |row| row.get(0)).map_err(fail)?;
    let path = path.to_path_buf();
    match (application, format, tables) {
        (0, 0, 0) => Ok(false),
        (APPLICATION_ID, FORMAT, _) => Ok(true),
        (APPLICATION_ID, found, _) if found > FORMAT => {
            Err(OpenSqliteError::NewerFormat { path, found, supported: FORMAT })
        }
        // Mark and format are written together, and no lower format was ever released.
        (APPLICATION_ID, found, _) => Err(OpenSqliteError::Corrupt {
            path,
            what: format!("format {found} was never released"),
        }),
        (found, ..) => {
            Err(OpenSqliteError::ForeignDatabase { path, found, expected: APPLICATION_ID })
        }
    }
}

/// Makes an empty file ours. Of several processes that try at once one does, and the others see it.
fn create(connection: &Connection, path: &Path) -> Result<(), OpenSqliteError> {
    let fail = |error: rusqlite::Error| OpenSqliteError::of(path, &error);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(fail)?;
    if is_ours(connection, path)? {
        return connection.execute_batch("ROLLBACK").map_err(fail);
    }
    connection.execute_batch(TABLES).map_err(fail)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
    connection.pragma_update(None, "user_version", FORMAT).map_err(fail)?;
    connection.execute_batch("COMMIT").map_err(fail)
}

/// The write-ahead log: readers and one writer at a time do not wait for each other, and a commit
/// is one sequential write and one sync. The mode is kept in the file. Answers whether it is set: a
/// file system without shared memory keeps the old one and calls that success.
fn switch_to_log(connection: &Connection, patience: Duration) -> rusqlite::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        // The switch needs the file for itself, and SQLite does not wait for that.
        let set = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| {
            row.get(0).map(|mode: String| mode == "wal")
        });
        match set {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(SWITCH_PAUSE);
            }
            done => return done,
        }
    }
}

fn check_pages(
    connection: &Connection,
    path: &Path,
    check: OpenCheck,
) -> Result<(), OpenSqliteError> {
    let fail = |error: rusqlite::Error| OpenSqliteError::of(path, &error);
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get(0));
    let pages: i64 = number("page_count").map_err(fail)?;
    let page_bytes: i64 = number("page_size").map_err(fail)?;
    let wanted = match check {
        OpenCheck::Header => false,
        OpenCheck::UpTo(bytes) => pages.saturating_mul(page_bytes).cast_unsigned() <= bytes,
    };
    if !wanted {
        return Ok(());
    }
    match first_damage(connection, "quick_check").map_err(fail)? {
        None => Ok(()),
        Some(what) => Err(OpenSqliteError::Corrupt { path: path.to_path_buf(), what }),
    }
}

/// What a check of SQLite finds first. It tells of pages and rows by number.
pub(crate) fn first_damage(
    connection: &Connection,
    check: &str,
) -> rusqlite::Result<Option<String>> {
    let sql = format!("PRAGMA {check}(1)");
    let found: String = connection.query_row(&sql, [], |row| row.get(0))?;
    Ok((found != "ok").then_some(found))
}
