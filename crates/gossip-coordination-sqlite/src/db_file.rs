//! The file that a database was opened on, and whether its path still names that file.
//!
//! SQLite keeps writing to a file that was moved, deleted or replaced. Its acknowledged commits are
//! then in a file that no other process finds, while the next process creates a new file and leases
//! the same shards. A connection that is opened later would open whichever file has the path by
//! then. So the path is checked before every group and after every open. It is checked with `stat`
//! and not by opening it: POSIX releases all locks of a process on a file when any of its
//! descriptors is closed.
//!
//! A file that is moved during a commit is noticed only at the next one.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Error, ffi};

use crate::open_error::OpenSqliteError;
use crate::options::SqliteOptions;
use crate::schema::{Role, connect};

/// The path of a database, how it is opened, and the file that was found there.
#[derive(Debug)]
pub(crate) struct DbFile {
    path: PathBuf,
    options: SqliteOptions,
    /// The identity of the file when the database was opened.
    id: FileId,
}

/// Identifies a file independently of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    number: u64,
}

impl DbFile {
    /// Records the file that is at `path` now.
    pub(crate) fn new(path: PathBuf, options: SqliteOptions) -> Result<Self, OpenSqliteError> {
        match std::fs::metadata(&path) {
            Ok(metadata) => Ok(Self { id: FileId::of(&metadata), path, options }),
            Err(error) => Err(OpenSqliteError::Engine { path, message: error.to_string() }),
        }
    }

    /// Opens another connection to the same file.
    pub(crate) fn connect(&self, role: Role) -> rusqlite::Result<Connection> {
        let connection = connect(&self.path, &self.options, role);
        // Checked after opening, so that the file cannot be replaced in between, and before a
        // failed open is returned: a missing file is the better error.
        self.check()?;
        connection
    }

    /// Fails if the path names another file, or none.
    pub(crate) fn check(&self) -> rusqlite::Result<()> {
        let is_same = match std::fs::metadata(&self.path) {
            Ok(metadata) => FileId::of(&metadata) == self.id,
            // Another failure, such as a lost permission, does not show that the file was moved,
            // and this process still has it open.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if is_same { Ok(()) } else { Err(moved()) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn options(&self) -> &SqliteOptions {
        &self.options
    }
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
fn moved() -> Error {
    let message = "another file has this name now, or none".to_owned();
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY_DBMOVED), Some(message))
}
