//! The database file: its identification, its tables, and the settings of each connection.
//!
//! ```text
//!  kv    key BLOB, revision INTEGER, value BLOB     all records; the key is the primary key
//!  meta  name TEXT, value INTEGER                   `floor`, below; `boot`, see that module
//! ```
//!
//! `kv` has no row ids: the rows are stored in the tree sorted by key. Compared with row ids and a
//! unique index, with values of 600 bytes and keys of 100 (interleaved rounds on a busy machine, so
//! an indication only): rewriting values was 5 to 12 % slower with 64 per commit and equal with
//! one; granting leases, which also moves a row of the claim index, was 7 to 20 % faster without
//! syncs and equal within the noise with them; the file was 14 to 33 % smaller. A checkpoint of a
//! cursor changes one row in one page, and all other operations touch one tree instead of two.
//! Rewriting values on pages of 8 KiB was slower than on 4 KiB.
//!
//! # Revisions
//! A transaction gets the highest revision of the keys it writes, plus one. An absent key may have
//! existed before, so for one `floor` counts as well; a transaction that deletes raises `floor` to
//! its own revision. So the revisions of a key increase with every write, also across its deletion,
//! and a checkpoint reads and writes only its own row.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::failure::is_busy;
use crate::file_system::FileSystem;
use crate::new_file::create_if_missing;
use crate::open_error::OpenSqliteError;
use crate::options::{OpenCheck, SqliteOptions, SyncMode};

/// Marks a file as ours (`PRAGMA application_id`): the letters `GosC`.
pub(crate) const APPLICATION_ID: i32 = 0x476F_7343;

/// The format of the tables and keys (`PRAGMA user_version`): 2 since keys begin with their tenant.
/// Values have their own version, in the codec.
pub(crate) const FORMAT: i32 = 2;

/// Bytes of a page, the unit of reading and logging: the block size of the file system. The
/// checksums of the log detect torn pages. Five shards fit in one page.
const PAGE_BYTES: u32 = 4_096;

/// The size to which the log is truncated when it restarts, if it is larger: four times the length
/// at which commits checkpoint themselves. So it is normally never truncated and its blocks are
/// overwritten in place, which syncs faster than growing the file.
const LOG_BYTES_MAX: i64 = 256 << 20;

/// The page cache of each connection, in KiB (negative by SQLite's convention): enough for the
/// inner pages of the tree. The operating system caches the rest.
const CACHE_KIB: i32 = -4_096;

/// Prepared statements that a connection caches: more than we use.
const STATEMENTS_MAX: usize = 32;

/// The pause between two attempts to switch a file to WAL mode. Only processes that open a new file
/// concurrently contend for it.
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

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Commits.
    Write,
    /// Reads, and cannot write.
    Read,
    /// Checkpoints the log, or replaces a lost writing connection.
    Checkpoint,
}

/// Opens the file at `path`, creates the tables if it is new, and checks it. Returns the writing
/// connection, in WAL mode and without a busy timeout. A file of another program or of a newer
/// format is an error and is not changed; a damaged page is an error, too.
pub(crate) fn open_file(
    path: &Path,
    options: &SqliteOptions,
) -> Result<Connection, OpenSqliteError> {
    check_file_system(path, options)?;
    check_path(path)?;
    create_if_missing(path)?;
    let fail = |error: rusqlite::Error| OpenSqliteError::of(path, &error);
    let connection = connect(path, options, Role::Write).map_err(fail)?;
    if connection.is_readonly("main").map_err(fail)? {
        return Err(OpenSqliteError::ReadOnly { path: path.to_path_buf() });
    }
    let is_new = is_new(&connection, path)?;
    if is_new {
        // Before the switch to WAL mode, which writes the first page.
        connection.pragma_update(None, "page_size", PAGE_BYTES).map_err(fail)?;
    }
    if !switch_to_wal(&connection, options.busy_timeout).map_err(fail)? {
        let message = "this file system cannot share memory between processes; use a local disk";
        return Err(OpenSqliteError::Engine {
            path: path.to_path_buf(),
            message: message.to_owned(),
        });
    }
    if is_new {
        // Without a sync: the first commit syncs the whole log, and an empty file is as good as one
        // with empty tables.
        connection.pragma_update(None, "synchronous", "OFF").map_err(fail)?;
        create(&connection, path)?;
        set_sync(&connection, options.sync).map_err(fail)?;
    }
    check_pages(&connection, path, options.check)?;
    // From here on only `BEGIN IMMEDIATE` can find the file locked, and the writer polls for that
    // itself, in shorter steps than SQLite's busy handler.
    connection.busy_timeout(Duration::ZERO).map_err(fail)?;
    Ok(connection)
}

/// Opens a connection to the file at `path` and configures it for `role`. Fails on a missing file.
/// Does not check that the file is a database of ours.
pub(crate) fn connect(
    path: &Path,
    options: &SqliteOptions,
    role: Role,
) -> rusqlite::Result<Connection> {
    // Each connection is used by one thread at a time, so SQLite need not lock it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    set_sync(&connection, options.sync)?;
    // On Apple's systems `fsync` only reaches the cache of the disk; these request `F_FULLFSYNC`.
    // Other systems ignore them.
    let is_full = options.sync == SyncMode::Full;
    connection.pragma_update(None, "fullfsync", is_full)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // SQLite would checkpoint within a commit, whose caller then waits for two more syncs. The
    // checkpointer does it instead, on its own connection.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    connection.pragma_update(None, "cache_size", CACHE_KIB)?;
    // The schema has no triggers and no views; functions in injected ones must not run.
    connection.pragma_update(None, "trusted_schema", false)?;
    // Detects a damaged page when it is loaded instead of misreading it.
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

/// Sets how durable a commit is when it returns.
///
/// In WAL mode FULL syncs the log at every commit, and NORMAL only before a checkpoint. Either way
/// the file is intact after any crash.
fn set_sync(connection: &Connection, sync: SyncMode) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", sync.pragma())?;
    // SQLite ignores a value that it does not accept, and commits would silently be less durable.
    let level: u8 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    assert_eq!(level, sync.level(), "SQLite took another sync mode than requested");
    Ok(())
}

/// Refuses a network file system. Before anything is asked of the file, which a server that is
/// down would delay.
fn check_file_system(path: &Path, options: &SqliteOptions) -> Result<(), OpenSqliteError> {
    match FileSystem::of(path) {
        Some(kind) if kind.is_network() && !options.allow_network_file_system => {
            Err(OpenSqliteError::NetworkFileSystem { path: path.to_path_buf(), kind })
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns a precise error for paths that SQLite would only call "unable to open".
fn check_path(path: &Path) -> Result<(), OpenSqliteError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Inspected, never opened: closing a second descriptor would release SQLite's locks.
    if parent.is_some_and(|parent| !parent.is_dir()) {
        return Err(OpenSqliteError::MissingDirectory { path: path.to_path_buf() });
    }
    if path.exists() && !path.is_file() {
        return Err(OpenSqliteError::NotAFile { path: path.to_path_buf() });
    }
    Ok(())
}

/// Returns whether the file is a new, empty database; an error if it belongs to another program.
pub(crate) fn is_new(connection: &Connection, path: &Path) -> Result<bool, OpenSqliteError> {
    // In one read transaction: otherwise another process could create its tables between two
    // queries, and the result would mix both states.
    let snapshot = connection.unchecked_transaction();
    let _snapshot = snapshot.map_err(|error| OpenSqliteError::of(path, &error))?;
    Ok(!is_ours(connection, path)?)
}

/// Returns whether the file is one of our databases, `false` for an empty one; an error if it
/// belongs to another program.
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
        // Id and format are written in one transaction, and no lower format was ever released.
        (APPLICATION_ID, found, _) => Err(OpenSqliteError::Corrupt {
            path,
            what: format!("format {found} was never released"),
        }),
        (found, ..) => {
            Err(OpenSqliteError::ForeignDatabase { path, found, expected: APPLICATION_ID })
        }
    }
}

/// Creates the tables in an empty file. Of several concurrent processes one does, and the others
/// find them.
fn create(connection: &Connection, path: &Path) -> Result<(), OpenSqliteError> {
    let fail = |error: rusqlite::Error| OpenSqliteError::of(path, &error);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(fail)?;
    // Checked again under the write lock: another process may have created the tables since.
    if is_ours(connection, path)? {
        return connection.execute_batch("ROLLBACK").map_err(fail);
    }
    connection.execute_batch(TABLES).map_err(fail)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
    connection.pragma_update(None, "user_version", FORMAT).map_err(fail)?;
    connection.execute_batch("COMMIT").map_err(fail)
}

/// Switches to the write-ahead log: readers and the writer do not wait for each other, and a commit
/// is one sequential write and one sync. The mode is persistent. Returns whether it is set: on a
/// file system without shared memory SQLite keeps the old mode and reports success.
fn switch_to_wal(connection: &Connection, busy_timeout: Duration) -> rusqlite::Result<bool> {
    let deadline = Instant::now() + busy_timeout;
    loop {
        // The switch needs an exclusive lock, and SQLite does not call the busy handler for it.
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

/// Runs `quick_check` on a file that `check` selects by its size, and returns the first problem as
/// an error. Other files pass unread.
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

/// Returns the first problem that a check of SQLite finds. It names pages and rows by number, and
/// shows no content.
pub(crate) fn first_damage(
    connection: &Connection,
    check: &str,
) -> rusqlite::Result<Option<String>> {
    let sql = format!("PRAGMA {check}(1)");
    let found: String = connection.query_row(&sql, [], |row| row.get(0))?;
    Ok((found != "ok").then_some(found))
}
