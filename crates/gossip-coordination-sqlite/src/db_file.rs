//! The files that a database was opened on, and whether their names still belong to them.
//!
//! SQLite keeps writing to a file that was moved, deleted or replaced. Its acknowledged commits are
//! then in a file that no other process finds, while the next process creates a new file and leases
//! the same shards. A connection that is opened later would open whichever file has the path by
//! then. So the path is checked before and after every group, after every read, and around every
//! open. It is checked with `stat` and not by opening it: POSIX releases all locks of a process on
//! a file when any of its descriptors is closed.
//!
//! The log and its index belong to the database as well: commits are in the log, and the locks of
//! other processes are in the index. SQLite removes a log that it finds beside an empty file, so
//! both may be gone after the database is back. They are checked then, and around every open, but
//! not for every group: a call of `stat` takes a fiftieth of a synced commit.
//!
//! A missing file may come back, so its absence is waited for. Another file in its place is refused
//! for good: even a copy may lack commits that were acknowledged since, and with them fences.
//!
//! # Invariants
//! - The database has its name when a group begins.
//! - A commit is acknowledged, and a read answered, only if the database had its name afterwards.
//! - A file is identified by device and number. The number is not used again while the file is
//!   open, and the connection of the checkpointer is open as long as this value is used.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, Error, ffi};

use crate::open_error::OpenSqliteError;
use crate::options::SqliteOptions;
use crate::schema::{Role, connect};

/// What SQLite appends to the name of a database for its log and for the index of the log.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// The path of a database, how it is opened, and the files that were found there.
#[derive(Debug)]
pub(crate) struct DbFile {
    path: PathBuf,
    options: SqliteOptions,
    /// The identity of the database when it was opened.
    id: FileId,
    /// The log and its index, with their identities.
    companions: [(PathBuf, FileId); 2],
    /// How often the database was not found at its path.
    absences: AtomicU64,
    /// The absences after which its companions were compared.
    compared: AtomicU64,
}

/// Identifies a file independently of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    number: u64,
}

impl DbFile {
    /// Records the files that are at `path` now. A connection has read from them and is open, so
    /// SQLite creates and removes none of them from here on.
    pub(crate) fn new(path: PathBuf, options: SqliteOptions) -> Result<Self, OpenSqliteError> {
        match identify(&path) {
            Ok((id, companions)) => {
                let (absences, compared) = (AtomicU64::new(0), AtomicU64::new(0));
                Ok(Self { path, options, id, companions, absences, compared })
            }
            Err(error) => Err(OpenSqliteError::Engine { path, message: error.to_string() }),
        }
    }

    /// Opens another connection to the same file.
    pub(crate) fn connect(&self, role: Role) -> rusqlite::Result<Connection> {
        // Before opening, so that another database is left alone.
        self.check_all()?;
        let connection = connect(&self.path, &self.options, role);
        // Again, because the file can be replaced in between, and before a failed open is returned:
        // a missing file is the better error.
        self.check_all()?;
        connection
    }

    /// Fails if the database is no longer at its path; if it was away, also if its log or its index
    /// is not.
    pub(crate) fn check(&self) -> rusqlite::Result<()> {
        let absences = self.absences.load(Ordering::Relaxed);
        if let Err(error) = check_one(&self.path, self.id) {
            self.absences.fetch_add(1, Ordering::Relaxed);
            return Err(error);
        }
        // Counted, because another thread may find the file away again meanwhile.
        if absences != self.compared.load(Ordering::Relaxed) {
            self.check_companions()?;
            self.compared.store(absences, Ordering::Relaxed);
        }
        Ok(())
    }

    fn check_all(&self) -> rusqlite::Result<()> {
        self.check()?;
        self.check_companions()
    }

    fn check_companions(&self) -> rusqlite::Result<()> {
        self.companions.iter().try_for_each(|(path, id)| check_one(path, *id))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn options(&self) -> &SqliteOptions {
        &self.options
    }
}

/// Returns the identity of the database at `path`, and of its log and its index.
fn identify(path: &Path) -> io::Result<(FileId, [(PathBuf, FileId); 2])> {
    let id_of = |path: &Path| std::fs::metadata(path).map(|found| FileId::of(&found));
    // SQLite puts both beside the file that a symbolic link names, not beside the link.
    let database = std::fs::canonicalize(path)?;
    let companion = |suffix: &str| {
        let mut name = OsString::from(&database);
        name.push(suffix);
        let path = PathBuf::from(name);
        id_of(&path).map(|id| (path, id))
    };
    let [log, index] = COMPANIONS;
    Ok((id_of(path)?, [companion(log)?, companion(index)?]))
}

fn check_one(path: &Path, id: FileId) -> rusqlite::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if FileId::of(&found) == id => Ok(()),
        Ok(_) => Err(replaced()),
        Err(error) if is_absence(error.kind()) => Err(missing()),
        // Another failure, such as a lost permission, does not show that the file was moved, and
        // this process still has it open.
        Err(_) => Ok(()),
    }
}

/// Returns whether no file has a path. A directory of it may be another file meanwhile.
const fn is_absence(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl FileId {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: metadata.dev(), number: metadata.ino() }
    }

    /// Other systems do not let an open file be moved or deleted.
    #[cfg(not(unix))]
    const fn of(_: &Metadata) -> Self {
        Self { device: 0, number: 0 }
    }
}

/// Returns the error that SQLite itself uses for a moved database.
fn replaced() -> Error {
    let message = "another file has the name of the database or of its log".to_owned();
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY_DBMOVED), Some(message))
}

/// Returns an error for a file that may come back. SQLite reserves this code for file systems that
/// notice such a loss.
fn missing() -> Error {
    let message = "the file of the database or of its log was moved or deleted".to_owned();
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_VNODE), Some(message))
}
