//! Why a file was not opened, and what to do about it.

use std::path::{Path, PathBuf};

use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::ErrorCode;
use thiserror::Error;

/// Why a database was not opened. Nothing was changed, except that a new and empty file may be
/// there now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenSqliteError {
    /// The directory of the file does not exist.
    #[error("{path}: its directory does not exist; create it first", path = .path.display())]
    MissingDirectory {
        /// What was to be opened.
        path: PathBuf,
    },
    /// There is something that is no file.
    #[error("{path}: this is no file; name a file", path = .path.display())]
    NotAFile {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The file is no SQLite database at all.
    #[error("{path}: this is no SQLite database; name another file", path = .path.display())]
    NotADatabase {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The database belongs to another program.
    #[error(
        "{path}: a database of another program (application id {found:#x}, ours is {expected:#x}); \
         name another file",
        path = .path.display()
    )]
    ForeignDatabase {
        /// What was to be opened.
        path: PathBuf,
        /// The mark of that program; zero if it leaves none.
        found: i32,
        /// Our mark.
        expected: i32,
    },
    /// The database was written by a newer version of this program.
    #[error(
        "{path}: format {found} is newer than {supported}, the newest that this program knows; use \
         the program that wrote it, or a newer one",
        path = .path.display()
    )]
    NewerFormat {
        /// What was to be opened.
        path: PathBuf,
        /// The format of the file.
        found: i32,
        /// The newest format that this program reads.
        supported: i32,
    },
    /// The file can be read and not written.
    #[error(
        "{path}: it can be read and not written; allow writing to the file and to its directory",
        path = .path.display()
    )]
    ReadOnly {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The system does not let this user open or create the file.
    #[error(
        "{path}: it cannot be opened or created; allow this user to read and write the file and its \
         directory",
        path = .path.display()
    )]
    NotPermitted {
        /// What was to be opened.
        path: PathBuf,
    },
    /// Another process holds the file and did not let go in time.
    #[error(
        "{path}: another process holds the file; is one of them stopped?",
        path = .path.display()
    )]
    Locked {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error("{path}: the file is damaged ({what}); restore a backup", path = .path.display())]
    Corrupt {
        /// What was to be opened.
        path: PathBuf,
        /// What SQLite found first.
        what: String,
    },
    /// There is no room for a new file.
    #[error("{path}: there is no room on the disk; make some", path = .path.display())]
    NoSpace {
        /// What was to be opened.
        path: PathBuf,
    },
    /// Anything else that SQLite or the system said.
    #[error("{path}: {message}", path = .path.display())]
    Engine {
        /// What was to be opened.
        path: PathBuf,
        /// What was said.
        message: String,
    },
}

impl OpenSqliteError {
    /// What a failure of SQLite means for opening `path`.
    pub(crate) fn of(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, what: error.to_string() },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { path },
            Some(ErrorCode::ReadOnly) => Self::ReadOnly { path },
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::NotPermitted { path }
            }
            Some(ErrorCode::DiskFull) => Self::NoSpace { path },
            _ => Self::Engine { path, message: error.to_string() },
        }
    }

    const fn refusal(&self) -> Option<StoreRefusal> {
        match self {
            Self::MissingDirectory { .. }
            | Self::NotAFile { .. }
            | Self::NotADatabase { .. }
            | Self::ForeignDatabase { .. } => Some(StoreRefusal::Unusable),
            Self::NewerFormat { .. } => Some(StoreRefusal::NewerFormat),
            Self::ReadOnly { .. } => Some(StoreRefusal::ReadOnly),
            Self::NotPermitted { .. } => Some(StoreRefusal::NotPermitted),
            Self::NoSpace { .. } => Some(StoreRefusal::NoSpace),
            Self::Locked { .. } | Self::Corrupt { .. } | Self::Engine { .. } => None,
        }
    }
}

/// For those who open a store among other things and know one kind of failure only.
impl From<OpenSqliteError> for InfraError {
    fn from(error: OpenSqliteError) -> Self {
        let (operation, message) = ("sqlite.open", error.to_string());
        match (error.refusal(), error) {
            (Some(why), _) => Self::Refused { operation, why, message },
            (None, OpenSqliteError::Corrupt { .. }) => Self::Corruption { operation, message },
            (None, _) => Self::Transient { operation, message },
        }
    }
}
