//! Copies of a database that others go on writing to.
//!
//! A copy is made beside its place and gets its name when it is whole, checked and on the disk, so
//! whatever has the name of a backup is one. Until then it has a name that no other copy has, so
//! several may be on their way to the same place; one arrives, and the others are told.
//!
//! Nobody may read a copy, finished or not, who may not read the database.

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

/// How long a step waits for somebody who looks into the unfinished copy, such as a scanner for
/// viruses. Nobody else knows its name.
const TARGET_PATIENCE: Duration = Duration::from_secs(1);

/// The bits of a file's mode that say who may read and write it.
#[cfg(unix)]
const PERMISSIONS: u32 = 0o777;

/// The step that errors name.
const BACKUP: &str = "sqlite.backup";

/// What the name of an unfinished copy goes on with; a number follows. A process that is killed
/// leaves such a file, and nobody needs it.
const UNFINISHED: &str = ".unfinished-";

/// Why a copy was not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is something at that place already; it was left alone.
    #[error("{path}: it exists already; name another file", path = .path.display())]
    Exists {
        /// Where the copy was to be.
        path: PathBuf,
    },
    /// The place could not be written.
    #[error("{path}: {source}", path = .path.display())]
    Place {
        /// Where the copy was to be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database could not be read, or the copy not be written.
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

/// Copies the database to `path`.
pub(crate) fn make(core: &Core, path: &Path) -> Result<u64, BackupError> {
    let place = |source| BackupError::of(path, source);
    // SQLite would see more in some names than a name.
    let path = &std::path::absolute(path).map_err(place)?;
    if path.exists() {
        return Err(BackupError::Exists { path: path.clone() });
    }
    let unfinished = unfinished(path);
    prepare(core.file().path(), &unfinished).map_err(place)?;
    let copied = core
        .visit()
        .map_err(|error| infra(BACKUP, &error))
        .and_then(|source| copy(&source, &unfinished));
    let placed =
        copied.map_err(BackupError::from).and_then(|()| settle(&unfinished, path).map_err(place));
    // It has its own name by now, or went wrong, which is told already.
    let _ = fs::remove_file(&unfinished);
    placed
}

/// Makes an empty file at `target`, which those may read who may read `source`. SQLite would make
/// one for everybody. It is closed again before SQLite opens it.
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

/// Copies everything as of one instant.
fn copy(source: &Connection, path: &Path) -> Result<(), InfraError> {
    let fail = |error: rusqlite::Error| infra(BACKUP, &error);
    // An open reading transaction keeps the copy at one instant. Without it every commit of
    // another process would make the copy start over.
    source.execute_batch("BEGIN; SELECT count(*) FROM meta").map_err(fail)?;
    let copied = copy_pages(source, path);
    source.execute_batch("COMMIT").map_err(fail)?;
    copied
}

pub(crate) fn copy_pages(source: &Connection, path: &Path) -> Result<(), InfraError> {
    let fail = |error: rusqlite::Error| infra(BACKUP, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(path, flags).map_err(fail)?;
    target.busy_timeout(TARGET_PATIENCE).map_err(fail)?;
    let backup = Backup::new(source, &mut target).map_err(fail)?;
    loop {
        match backup.step(STEP_PAGES).map_err(fail)? {
            StepResult::Done => break,
            // The source does not grow within its transaction, so this comes to an end.
            StepResult::More => {}
            // SQLite has waited already. Nobody else has business with an unfinished copy.
            _ => return Err(held()),
        }
    }
    drop(backup);
    match first_damage(&target, "quick_check").map_err(fail)? {
        None => target.close().map_err(|(_, error)| fail(error)),
        Some(what) => Err(corruption(BACKUP, format!("the copy is damaged: {what}"))),
    }
}

/// Gives a finished copy its name, and makes both durable.
fn settle(unfinished: &Path, path: &Path) -> io::Result<u64> {
    let file = File::open(unfinished)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    // Before it has a name by which others open it: closing a second handle drops their locks.
    drop(file);
    give_name(unfinished, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    Ok(bytes)
}

/// Unlike renaming, a second name never takes the place of a file that came there meanwhile.
fn give_name(unfinished: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(unfinished, path) {
        // Some file systems have no second names. Then only a file that comes at this very instant
        // is lost.
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

/// A name for a copy on its way to `path`.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(format!("{UNFINISHED}{:016x}", fresh_nonce()));
    PathBuf::from(name)
}
