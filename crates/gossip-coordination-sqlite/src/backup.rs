//! Online backups of a database.
//!
//! A copy is made under a temporary name in the target directory and renamed when it is complete,
//! checked and synced, so a file with the name of a backup is always a complete one. The temporary
//! name is unique: of several concurrent backups to one path one succeeds, and the others return
//! [`BackupError::Exists`].
//!
//! A copy, finished or not, has the permissions of the database.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gossip_coordination::InfraError;
use gossip_coordination::store::fresh_nonce;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use thiserror::Error;

use crate::core::Core;
use crate::failure::{corruption, infra};
use crate::schema::first_damage;

/// Pages that are copied in one step: 4 MiB, some milliseconds.
const STEP_PAGES: i32 = 1_024;

/// How long a step waits for a lock on the unfinished copy. Only programs that open every file,
/// such as virus scanners, can hold one.
const TARGET_BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// The permission bits of a file mode.
#[cfg(unix)]
const PERMISSIONS: u32 = 0o777;

/// The operation name in errors.
const BACKUP: &str = "sqlite.backup";

/// The suffix of an unfinished copy, before a random number. A killed process leaves such a file,
/// which may be deleted.
const UNFINISHED: &str = ".unfinished-";

/// Why a backup was not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The target exists already; it was not changed.
    #[error("{path}: the file exists already; use another path", path = .path.display())]
    Exists {
        /// The target path.
        path: PathBuf,
    },
    /// The target could not be created.
    #[error("{path}: {source}", path = .path.display())]
    Place {
        /// The target path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The database could not be read, or the copy could not be written.
    #[error(transparent)]
    Engine(#[from] InfraError),
}

impl BackupError {
    fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            _ => Self::Place { path, source },
        }
    }
}

/// Copies the database to `path` and returns the size of the copy in bytes. `Exists` if there is a
/// file already, which is not changed.
pub(crate) fn make(core: &Core, path: &Path) -> Result<u64, BackupError> {
    let fail = |source| BackupError::of(path, source);
    // SQLite interprets some relative names, such as `:memory:` and `file:…`.
    let path = &std::path::absolute(path).map_err(fail)?;
    if path.exists() {
        return Err(BackupError::Exists { path: path.clone() });
    }
    let unfinished = unfinished(path);
    prepare(core.file().path(), &unfinished).map_err(fail)?;
    let copied = core
        .open_reader()
        .map_err(|error| infra(BACKUP, &error))
        .and_then(|source| copy(&source, &unfinished));
    let published =
        copied.map_err(BackupError::from).and_then(|()| publish(&unfinished, path).map_err(fail));
    // By now the copy has its final name as well, or is incomplete. If the removal fails, the file
    // only takes up space, so the result of the backup is unchanged.
    let _ = fs::remove_file(&unfinished);
    published
}

/// Creates an empty file at `target` with the permissions of `source`; SQLite would use the umask
/// only. It is closed before SQLite opens it.
fn prepare(source: &Path, target: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        options.mode(fs::metadata(source)?.permissions().mode() & PERMISSIONS);
    }
    #[cfg(not(unix))]
    fs::metadata(source)?;
    options.open(target).map(drop)
}

/// Copies one snapshot of `source` into the empty file at `path`.
fn copy(source: &Connection, path: &Path) -> Result<(), InfraError> {
    let fail = |error: rusqlite::Error| infra(BACKUP, &error);
    // The open read transaction pins the snapshot. Without it every commit of another process
    // would make SQLite restart the copy.
    source.execute_batch("BEGIN; SELECT count(*) FROM meta").map_err(fail)?;
    let copied = copy_pages(source, path);
    source.execute_batch("COMMIT").map_err(fail)?;
    copied
}

/// Copies all pages into the empty file at `path` and checks the copy. Fails if another process
/// holds the copy, and with corruption if the check finds damage. Does not sync the file.
pub(crate) fn copy_pages(source: &Connection, path: &Path) -> Result<(), InfraError> {
    let fail = |error: rusqlite::Error| infra(BACKUP, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(path, flags).map_err(fail)?;
    target.busy_timeout(TARGET_BUSY_TIMEOUT).map_err(fail)?;
    let backup = Backup::new(source, &mut target).map_err(fail)?;
    loop {
        match backup.step(STEP_PAGES).map_err(fail)? {
            StepResult::Done => break,
            // Without a bound: the snapshot has a fixed number of pages, so this ends.
            StepResult::More => {}
            // Busy or locked, and SQLite has waited for the timeout already.
            _ => return Err(held()),
        }
    }
    drop(backup);
    match first_damage(&target, "quick_check").map_err(fail)? {
        None => target.close().map_err(|(_, error)| fail(error)),
        Some(what) => Err(corruption(BACKUP, format!("the copy is damaged: {what}"))),
    }
}

/// Gives a finished copy its name, and syncs the copy and its directory entry.
fn publish(unfinished: &Path, path: &Path) -> io::Result<u64> {
    let file = File::open(unfinished)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    // Before the copy has a name under which others open it: closing this descriptor later would
    // release their locks within this process.
    drop(file);
    give_name(unfinished, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    Ok(bytes)
}

/// Links `path` to the copy. Unlike a rename, a link never replaces a file that was created
/// meanwhile.
fn give_name(unfinished: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(unfinished, path) {
        // Some file systems have no hard links. The rename then replaces only a file that is
        // created between the check and the rename.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !path.exists() => {
            fs::rename(unfinished, path)
        }
        done => done,
    }
}

fn held() -> InfraError {
    let message = "another process holds the unfinished copy; try again".to_owned();
    InfraError::Transient { operation: BACKUP, message }
}

/// Returns a unique temporary name for a copy to `path`.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(format!("{UNFINISHED}{:016x}", fresh_nonce()));
    PathBuf::from(name)
}
