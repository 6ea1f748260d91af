//! Maps SQLite's error codes to the errors of the store layer.
//!
//! The store layer has three kinds of failure: transient, refused, corrupt. SQLite has a hundred
//! codes. The mapping is only here, and so is the one decision beyond it: whether a failed `COMMIT`
//! was certainly not applied.

use gossip_coordination::store::MalformedKey;
use gossip_coordination::{InfraError, StoreRefusal};
use rusqlite::ErrorCode;
use rusqlite::ffi;

/// Returns the store error for `error` of `operation`, which was not applied.
pub(crate) fn infra(operation: &'static str, error: &rusqlite::Error) -> InfraError {
    let Some(code) = error.sqlite_error_code() else {
        // The remaining errors of rusqlite are values of another type or range than the schema
        // allows.
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
        ErrorCode::SystemIoFailure if is_missing(error) => transient("move the original back"),
        ErrorCode::SystemIoFailure => transient("look at the disk and at the system's log"),
        ErrorCode::OutOfMemory => transient("there is no memory left"),
        ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => transient("interrupted"),
        ErrorCode::CannotOpen => transient("are there too many open files?"),
        ErrorCode::DiskFull => {
            refused(StoreRefusal::NoSpace, "make room on the disk, or raise the file's limit")
        }
        ErrorCode::ReadOnly if is_replaced(error) => {
            refused(StoreRefusal::Unusable, "it may lack saved progress; move the original back")
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

/// Returns the error for a stored value that differs from the written one.
pub(crate) fn corruption(operation: &'static str, message: String) -> InfraError {
    InfraError::Corruption { operation, message }
}

/// Returns the error for a key in the table that is not ours.
pub(crate) fn foreign_key(operation: &'static str, malformed: MalformedKey) -> InfraError {
    corruption(operation, malformed.to_string())
}

/// Returns whether a `COMMIT` that failed with `error` was certainly not applied and never will be.
///
/// A transaction is committed by its last frame in the log. A full disk refuses the write of a
/// frame, so the transaction is incomplete; a busy `COMMIT` has written none. But if a sync fails
/// after the last frame was written, the frame is in the file and the next process that recovers
/// the log may find it. So after every other failure the commit is unresolved.
pub(crate) fn certainly_did_not_happen(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy))
}

/// Returns whether another connection holds the lock.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Returns whether another file has the name of the database.
fn is_replaced(error: &rusqlite::Error) -> bool {
    has_extended_code(error, ffi::SQLITE_READONLY_DBMOVED)
}

/// Returns whether no file has the name of the database.
fn is_missing(error: &rusqlite::Error) -> bool {
    has_extended_code(error, ffi::SQLITE_IOERR_VNODE)
}

fn has_extended_code(error: &rusqlite::Error, code: i32) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == code)
}
