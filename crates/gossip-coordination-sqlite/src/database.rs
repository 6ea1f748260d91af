//! An open database: handles, backup, integrity check, and the thread that ends with it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gossip_coordination::InfraError;
use gossip_coordination::store::ProcessState;
use rusqlite::Connection;

use crate::backup::{self, BackupError};
use crate::boot;
use crate::core::Core;
use crate::db_file::DbFile;
use crate::failure::{corruption, infra};
use crate::open_error::OpenSqliteError;
use crate::options::SqliteOptions;
use crate::schema::{Role, first_damage, open_file};
use crate::store::SqliteStore;
use crate::thread::Thread;
use crate::wal_checkpointer::WalCheckpointer;

/// The operation name in errors of a check.
const CHECK: &str = "sqlite.check";

/// An open database file. Clones share it; the last one closes it.
///
/// Open a file once per process and share it. Callers of one database share group commits, while
/// two databases on one file contend for its lock as two processes do.
#[derive(Clone)]
pub struct SqliteDatabase {
    inner: Arc<Inner>,
}

/// The checkpointer thread holds no reference to this, so the last handle ends it.
///
/// Fields drop in order: the thread is joined before the connections of the core close. SQLite
/// removes the log when the last connection closes, and of two that close concurrently neither may
/// find itself the last.
struct Inner {
    /// Joined on drop, after [`WalCheckpointer::stop`].
    _thread: Thread,
    core: Arc<Core>,
    checkpointer: Arc<WalCheckpointer>,
    /// Shared by the coordinator handles.
    process: ProcessState,
}

impl SqliteDatabase {
    /// Opens the file at `path`, or creates it.
    ///
    /// # Errors
    ///
    /// [`OpenSqliteError`] states the cause and the remedy.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenSqliteError> {
        let (path, options) = (absolute(path.as_ref())?, options.bounded());
        let connection = open_file(&path, &options)?;
        let file = Arc::new(DbFile::new(path, options)?);
        // Before any handle exists: no grant may use a fence that was issued and lost.
        boot::enter(&connection, &file)?;
        let fail = |error: rusqlite::Error| OpenSqliteError::of(file.path(), &error);
        let checkpointer = Arc::new(WalCheckpointer::new());
        let core = Core::new(Arc::clone(&file), connection, Arc::clone(&checkpointer));
        let core = Arc::new(core.map_err(fail)?);
        let connection = file.connect(Role::Checkpoint).map_err(fail)?;
        // Started last: an early return would join a thread that nothing has stopped.
        let thread = start_checkpointer(connection, Arc::clone(&checkpointer), file.path())?;
        let process = ProcessState::default();
        let inner = Inner { core, checkpointer, _thread: thread, process };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns a handle for one caller.
    #[must_use]
    pub fn store(&self) -> SqliteStore {
        SqliteStore::new(self.clone())
    }

    /// Returns the state that the coordinator handles of this database share.
    pub(crate) fn process_state(&self) -> &ProcessState {
        &self.inner.process
    }

    /// Copies a snapshot of the database to a new file at `path`, concurrently with readers and
    /// writers, and returns its size in bytes.
    ///
    /// The copy is an ordinary database; open it to restore it. During the copy the log of the
    /// original cannot restart, so it grows with each commit.
    ///
    /// # Errors
    ///
    /// [`BackupError`]. No file is left at `path` then, unless it existed before or only the sync
    /// of its directory failed.
    pub fn back_up_to(&self, path: impl AsRef<Path>) -> Result<u64, BackupError> {
        backup::make(&self.inner.core, path.as_ref())
    }

    /// Checks every page and index order of the file (`PRAGMA integrity_check`), concurrently with
    /// other callers. It reads the whole file.
    ///
    /// # Errors
    ///
    /// [`InfraError::Corruption`] with the first problem found.
    pub fn check_integrity(&self) -> Result<(), InfraError> {
        let reader = self.inner.core.open_reader();
        let found = reader.and_then(|connection| first_damage(&connection, "integrity_check"));
        match found.map_err(|error| infra(CHECK, &error))? {
            None => Ok(()),
            Some(what) => Err(corruption(CHECK, format!("{what}; restore a backup"))),
        }
    }

    /// Returns the absolute path of the file.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        self.inner.core.file().path()
    }

    /// Returns the options that the database was opened with.
    #[must_use]
    pub(crate) fn options(&self) -> &SqliteOptions {
        self.inner.core.file().options()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.inner.core
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The fields drop after this, and `_thread` would wait for ever for a thread not stopped.
        self.checkpointer.stop();
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

/// Returns the absolute path. It stays valid if the process changes its directory, and names a file
/// even if SQLite would interpret the name, as it does `:memory:`.
fn absolute(path: &Path) -> Result<PathBuf, OpenSqliteError> {
    std::path::absolute(path).map_err(|error| OpenSqliteError::Engine {
        path: path.to_path_buf(),
        message: error.to_string(),
    })
}

fn start_checkpointer(
    connection: Connection,
    checkpointer: Arc<WalCheckpointer>,
    path: &Path,
) -> Result<Thread, OpenSqliteError> {
    let run = move || checkpointer.run(&connection);
    Thread::start("gossip-sqlite-wal", run).map_err(|error| OpenSqliteError::Engine {
        path: path.to_path_buf(),
        message: format!("cannot start a thread: {error}"),
    })
}
