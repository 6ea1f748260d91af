//! Why a database was not opened, and the remedy.

use std::path::{Path, PathBuf};

use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::ErrorCode;
use thiserror::Error;

use crate::file_system::FileSystem;

/// Why a database was not opened. Nothing was changed, except that a new, empty file may have been
/// created.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenSqliteError {
    /// The directory of the file does not exist.
    #[error("{path}: its directory does not exist; create it first", path = .path.display())]
    MissingDirectory {
        /// The path of the database.
        path: PathBuf,
    },
    /// The path names something other than a file.
    #[error("{path}: this is not a file; use the path of a file", path = .path.display())]
    NotAFile {
        /// The path of the database.
        path: PathBuf,
    },
    /// The path is a symbolic link that another user made, or one to a missing file.
    #[error(
        "{path}: a symbolic link of another user, or to a missing file; use the path of the file",
        path = .path.display()
    )]
    PlantedLink {
        /// The path of the database.
        path: PathBuf,
    },
    /// The file is on a network file system.
    #[error(
        "{path}: {kind} is a network file system, on which locks of SQLite do not hold between \
         machines and the file would be damaged; keep the store on a local disk, use etcd or \
         PostgreSQL for several machines, or add ?allow_network_file_system=yes if one machine \
         uses it",
        path = .path.display()
    )]
    NetworkFileSystem {
        /// The path of the database.
        path: PathBuf,
        /// The kind of the file system.
        kind: FileSystem,
    },
    /// The file is not a SQLite database.
    #[error("{path}: this is not a SQLite database; use another file", path = .path.display())]
    NotADatabase {
        /// The path of the database.
        path: PathBuf,
    },
    /// The database belongs to another program.
    #[error(
        "{path}: a database of another program (application id {found:#x}, ours is {expected:#x}); \
         use another file",
        path = .path.display()
    )]
    ForeignDatabase {
        /// The path of the database.
        path: PathBuf,
        /// The application id of that program; zero if it sets none.
        found: i32,
        /// Our application id.
        expected: i32,
    },
    /// The database was written by a newer version of this program.
    #[error(
        "{path}: format {found} is newer than {supported}, the newest that this program reads; use \
         the program that wrote it, or a newer one",
        path = .path.display()
    )]
    NewerFormat {
        /// The path of the database.
        path: PathBuf,
        /// The format of the file.
        found: i32,
        /// The newest format that this program reads.
        supported: i32,
    },
    /// The file is read-only.
    #[error(
        "{path}: the file is read-only; allow writing to the file and to its directory",
        path = .path.display()
    )]
    ReadOnly {
        /// The path of the database.
        path: PathBuf,
    },
    /// The user lacks the permission to open or create the file.
    #[error(
        "{path}: it cannot be opened or created; allow this user to read and write the file and its \
         directory",
        path = .path.display()
    )]
    NotPermitted {
        /// The path of the database.
        path: PathBuf,
    },
    /// Another process held the lock of the file for longer than the busy timeout.
    #[error(
        "{path}: another process holds the file; is one of them stopped?",
        path = .path.display()
    )]
    Locked {
        /// The path of the database.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error("{path}: the file is damaged ({what}); restore a backup", path = .path.display())]
    Corrupt {
        /// The path of the database.
        path: PathBuf,
        /// The first problem that SQLite found.
        what: String,
    },
    /// The disk is full.
    #[error("{path}: the disk is full; free some space", path = .path.display())]
    NoSpace {
        /// The path of the database.
        path: PathBuf,
    },
    /// The system was restarted since the file was last opened with relaxed sync, and the fence
    /// floors could not be raised.
    #[error(
        "{path}: the system was restarted since the last open, and the fence floors cannot be \
         raised ({cause})",
        path = .path.display()
    )]
    FloorsNotRaised {
        /// The path of the database.
        path: PathBuf,
        /// The first failure.
        cause: InfraError,
    },
    /// Any other error of SQLite or the operating system.
    #[error("{path}: {message}", path = .path.display())]
    Engine {
        /// The path of the database.
        path: PathBuf,
        /// Its text.
        message: String,
    },
}

impl OpenSqliteError {
    /// Maps an error of SQLite while opening `path`.
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

    fn refusal(&self) -> Option<StoreRefusal> {
        match self {
            Self::FloorsNotRaised { cause: InfraError::Refused { why, .. }, .. } => Some(*why),
            Self::MissingDirectory { .. }
            | Self::NotAFile { .. }
            | Self::PlantedLink { .. }
            | Self::NetworkFileSystem { .. }
            | Self::NotADatabase { .. }
            | Self::ForeignDatabase { .. } => Some(StoreRefusal::Unusable),
            Self::NewerFormat { .. } => Some(StoreRefusal::NewerFormat),
            Self::ReadOnly { .. } => Some(StoreRefusal::ReadOnly),
            Self::NotPermitted { .. } => Some(StoreRefusal::NotPermitted),
            Self::NoSpace { .. } => Some(StoreRefusal::NoSpace),
            Self::Locked { .. }
            | Self::Corrupt { .. }
            | Self::FloorsNotRaised { .. }
            | Self::Engine { .. } => None,
        }
    }
}

/// For callers that handle the errors of the store layer only.
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
