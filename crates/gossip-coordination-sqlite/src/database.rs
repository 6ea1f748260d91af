//! An open database: handles, backup, checks, and the threads that end with it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gossip_coordination::InfraError;
use rusqlite::Connection;

use crate::backup::{self, BackupError};
use crate::core::Core;
use crate::db_file::DbFile;
use crate::failure::{corruption, infra};
use crate::open_error::OpenSqliteError;
use crate::options::SqliteOptions;
use crate::schema::{Role, first_damage, open_file};
use crate::store::SqliteStore;
use crate::thread::Thread;
use crate::wal_checkpointer::WalCheckpointer;

/// The step that errors of a check name.
const CHECK: &str = "sqlite.check";

/// An open database file. Clones share it; the last one closes it.
///
/// Open a file once in a process and share it: callers of one database are committed in groups,
/// while two databases on one file wait for each other as two processes do.
#[derive(Clone)]
pub struct SqliteDatabase {
    inner: Arc<Inner>,
}

/// Threads know the core and not this, so the last handle ends them.
///
/// They are waited for in the order of the fields, and the connections of the core are closed last:
/// SQLite takes the log away with the last connection, and of two that close at once neither is it.
struct Inner {
    /// Ends by [`WalCheckpointer::stop`].
    _checkpointer: Thread,
    core: Arc<Core>,
    log: Arc<WalCheckpointer>,
}

impl SqliteDatabase {
    /// Opens the file at `path`, or creates it.
    ///
    /// # Errors
    ///
    /// [`OpenSqliteError`] says what is in the way and what to do about it.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenSqliteError> {
        let (path, options) = (whole(path.as_ref())?, options.bounded());
        let connection = open_file(&path, &options)?;
        let file = Arc::new(DbFile::new(path, options)?);
        let fail = |error: rusqlite::Error| OpenSqliteError::of(file.path(), &error);
        let log = Arc::new(WalCheckpointer::new());
        let core = Core::new(Arc::clone(&file), connection, Arc::clone(&log));
        let core = Arc::new(core.map_err(fail)?);
        let keeper = file.connect(Role::Checkpoint).map_err(fail)?;
        // Last of all: whoever drops it waits for it, and only `Inner` tells it to end.
        let keeper = start_checkpointer(keeper, Arc::clone(&log), file.path())?;
        let inner = Inner { core, log, _checkpointer: keeper };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A handle for callers that may wait.
    #[must_use]
    pub fn store(&self) -> SqliteStore {
        SqliteStore::new(self.clone())
    }

    /// Copies the database to a new file at `path` while others go on reading and writing; the copy
    /// is of one instant. Answers how many bytes it has.
    ///
    /// A copy is a database like any other: open it to restore it. While it is being made the log
    /// beside the original cannot start over, so it grows by what is written meanwhile.
    ///
    /// # Errors
    ///
    /// [`BackupError`]. There is no file at `path` then, unless it was there before.
    pub fn back_up_to(&self, path: impl AsRef<Path>) -> Result<u64, BackupError> {
        backup::make(&self.inner.core, path.as_ref())
    }

    /// Reads and checks every page and every order in the file (`PRAGMA integrity_check`), beside
    /// other callers. It takes as long as reading the file.
    ///
    /// # Errors
    ///
    /// [`InfraError::Corruption`] with what was found first.
    pub fn check_integrity(&self) -> Result<(), InfraError> {
        let visitor = self.inner.core.visit();
        let found = visitor.and_then(|connection| first_damage(&connection, "integrity_check"));
        match found.map_err(|error| infra(CHECK, &error))? {
            None => Ok(()),
            Some(what) => Err(corruption(CHECK, format!("{what}; restore a backup"))),
        }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.core.file().path()
    }

    /// How it was opened.
    #[must_use]
    pub fn options(&self) -> &SqliteOptions {
        self.inner.core.file().options()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.inner.core
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.log.stop();
    }
}

impl fmt::Debug for SqliteDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteDatabase")
            .field("path", &self.path())
            .field("options", self.options())
            .finish_non_exhaustive()
    }
}

/// The path from the root. It stays the same if the process moves to another directory, and names a
/// file even where SQLite would see more in a name, such as `:memory:`.
fn whole(path: &Path) -> Result<PathBuf, OpenSqliteError> {
    std::path::absolute(path).map_err(|error| OpenSqliteError::Engine {
        path: path.to_path_buf(),
        message: error.to_string(),
    })
}

fn start_checkpointer(
    connection: Connection,
    log: Arc<WalCheckpointer>,
    path: &Path,
) -> Result<Thread, OpenSqliteError> {
    let keep = move || log.run(&connection);
    Thread::start("gossip-sqlite-log", keep).map_err(|error| OpenSqliteError::Engine {
        path: path.to_path_buf(),
        message: format!("no thread was started: {error}"),
    })
}
