//! The file that a database was opened on, and whether its name still leads there.
//!
//! SQLite goes on writing to a file that was moved, deleted or replaced: what it acknowledges then
//! is in a file that nobody finds again, while the next process makes a new one and gives the same
//! shards away. And a connection that is opened later opens whatever has the name by then. So the
//! name is looked up before every group and after every opening; it is not opened for that, because
//! closing a second handle would drop the locks of the first.
//!
//! What is moved away in the very moment of a commit is not noticed until the next one.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Error, ffi};

use crate::open_error::OpenSqliteError;
use crate::options::SqliteOptions;
use crate::schema::{Role, connect};

/// Where a database is and how it is opened.
#[derive(Debug)]
pub(crate) struct DbFile {
    path: PathBuf,
    options: SqliteOptions,
    /// As it was when the database was opened.
    file: FileId,
}

/// What tells one file from another, whatever their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    number: u64,
}

impl DbFile {
    /// The file that has this name now.
    pub(crate) fn new(path: PathBuf, options: SqliteOptions) -> Result<Self, OpenSqliteError> {
        match std::fs::metadata(&path) {
            Ok(metadata) => Ok(Self { file: FileId::of(&metadata), path, options }),
            Err(error) => Err(OpenSqliteError::Engine { path, message: error.to_string() }),
        }
    }

    /// Another connection to the same file.
    pub(crate) fn connect(&self, role: Role) -> rusqlite::Result<Connection> {
        let connection = connect(&self.path, &self.options, role);
        // A file that is gone tells more than that it cannot be opened.
        self.check()?;
        connection
    }

    /// Fails if the name leads to another file, or to none.
    pub(crate) fn check(&self) -> rusqlite::Result<()> {
        let is_there = match std::fs::metadata(&self.path) {
            Ok(metadata) => FileId::of(&metadata) == self.file,
            // Whoever may no longer look has an open file all the same.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if is_there { Ok(()) } else { Err(moved()) }
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

    /// Elsewhere an open file can be neither moved nor deleted.
    #[cfg(not(unix))]
    const fn of(_: &Metadata) -> Self {
        Self { device: 0, number: 0 }
    }
}

/// What SQLite itself says where it looks.
fn moved() -> Error {
    let message = "another file has this name now, or none".to_owned();
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY_DBMOVED), Some(message))
}
