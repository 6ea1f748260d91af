//! What SQLite's errors mean to callers.
//!
//! The store layer knows three kinds of failure: worth trying again, refused, damaged. SQLite has a
//! hundred codes. The table between them is here and nowhere else, and so is the one judgement that
//! is not a translation: whether a failed `COMMIT` certainly did not happen.

use gossip_coordination::store::MalformedKey;
use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::ErrorCode;
use rusqlite::ffi;

/// Says what `error` means for the step `operation`, which did not happen.
pub(crate) fn infra(operation: &'static str, error: &rusqlite::Error) -> InfraError {
    let Some(code) = error.sqlite_error_code() else {
        // What is left are values of another type or range than the schema allows.
        return corruption(operation, error.to_string());
    };
    let refused = |why, advice: &str| InfraError::Refused {
        operation,
        why,
        message: format!("{error}; {advice}"),
    };
    let transient =
        |advice: &str| InfraError::Transient { operation, message: format!("{error}; {advice}") };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            transient("another process holds the file: is one of them stopped?")
        }
        ErrorCode::FileLockingProtocolFailed => transient("too many processes open it at once"),
        ErrorCode::SystemIoFailure => transient("look at the disk and at the system's log"),
        ErrorCode::OutOfMemory => transient("there is no memory left"),
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => transient("interrupted"),
        ErrorCode::CannotOpen => transient("are there too many open files?"),
        ErrorCode::DiskFull => {
            refused(StoreRefusal::NoSpace, "make room on the disk, or raise the file's limit")
        }
        ErrorCode::ReadOnly if is_moved(error) => {
            refused(StoreRefusal::Unusable, "the file was moved or deleted; open it again")
        }
        ErrorCode::ReadOnly => {
            refused(StoreRefusal::ReadOnly, "allow writing to the file and to its directory")
        }
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            refused(StoreRefusal::NotPermitted, "allow this user to read and write the file")
        }
        ErrorCode::TooBig => refused(StoreRefusal::TooLarge, "a value is larger than SQLite takes"),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            corruption(operation, format!("{error}; restore a backup"))
        }
        _ => refused(StoreRefusal::Unusable, "this is not a fault of the file"),
    }
}

/// A stored value that is not what was written.
pub(crate) fn corruption(operation: &'static str, message: String) -> InfraError {
    InfraError::Corruption { operation, message }
}

/// A key in the table that is none of ours.
pub(crate) fn foreign_key(operation: &'static str, malformed: MalformedKey) -> InfraError {
    corruption(operation, malformed.to_string())
}

/// Whether a `COMMIT` that failed with `error` certainly did not happen and never will.
///
/// A commit is the last frame in the log. Before it is written whole nothing has happened: a disk
/// that is full refuses the write itself. Once it is written, a failing sync leaves it in the file,
/// where the next process to recover the log may find it. So every other failure is doubt.
pub(crate) fn certainly_did_not_happen(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy))
}

/// Whether somebody else holds what was asked for.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn is_moved(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_READONLY_DBMOVED)
}
