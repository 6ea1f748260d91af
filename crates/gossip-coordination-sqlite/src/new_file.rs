//! Creates the file of a database, for its user only and never through a link.
//!
//! SQLite would create it by the umask, readable for all users on most systems, and would follow a
//! link to a file that does not exist. The log and its index get the mode of the database from
//! SQLite, which refuses links in their place.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::open_error::OpenSqliteError;

/// The mode of a new file.
#[cfg(unix)]
const MODE: u32 = 0o600;

/// Held while a new file has a descriptor that is not SQLite's: closing it would release the locks
/// of another thread that has opened the file meanwhile.
static CREATION: Mutex<()> = Mutex::new(());

/// Creates an empty file at `path` if there is none. An existing file keeps its mode.
///
/// Fails on a link to a missing file, and on a link of another user: in a directory that others
/// write, such as `/tmp`, they would choose the file that is written.
pub(crate) fn create_if_missing(path: &Path) -> Result<(), OpenSqliteError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, MODE);
    let creation = CREATION.lock().unwrap_or_else(PoisonError::into_inner);
    // It fails on every link, also on one to a missing file.
    let created = options.open(path).map(drop);
    drop(creation);
    let owned = || path.to_path_buf();
    match created {
        Ok(()) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::AlreadyExists => check_link(path),
            ErrorKind::NotFound => Err(OpenSqliteError::MissingDirectory { path: owned() }),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Err(OpenSqliteError::NotPermitted { path: owned() })
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Err(OpenSqliteError::NoSpace { path: owned() })
            }
            _ => Err(OpenSqliteError::Engine { path: owned(), message: error.to_string() }),
        },
    }
}

fn check_link(path: &Path) -> Result<(), OpenSqliteError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() && (is_foreign(&found) || !path.exists()) => {
            Err(OpenSqliteError::PlantedLink { path: path.to_path_buf() })
        }
        // If it was deleted meanwhile, SQLite finds no file and reports that.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns whether a link belongs to a user who is neither this one nor the administrator.
#[cfg(unix)]
fn is_foreign(link: &fs::Metadata) -> bool {
    let owner = std::os::unix::fs::MetadataExt::uid(link);
    owner != 0 && owner != rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
const fn is_foreign(_link: &fs::Metadata) -> bool {
    false
}
