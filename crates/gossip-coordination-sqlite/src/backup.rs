//! Copies of a database that others go on writing to.
//!
//! A copy is made beside its place and moved there when it is whole, checked and on the disk, so
//! whatever has the name of a backup is one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gossip_coordination::InfraError;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use thiserror::Error;

use crate::core::Core;
use crate::failure::{corruption, infra};
use crate::schema::first_damage;

/// Pages that are copied in one step: 4 MiB, some milliseconds.
const STEP_PAGES: i32 = 1_024;

/// The step that errors name.
const BACKUP: &str = "sqlite.backup";

/// What the name of an unfinished copy ends with.
const UNFINISHED: &str = ".unfinished";

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

/// Copies the database to `path`.
pub(crate) fn make(core: &Core, path: &Path) -> Result<u64, BackupError> {
    if path.exists() {
        return Err(BackupError::Exists { path: path.to_path_buf() });
    }
    let unfinished = unfinished(path);
    let place = |source: io::Error| BackupError::Place { path: path.to_path_buf(), source };
    // A leftover of a process that was killed.
    remove(&unfinished).map_err(place)?;
    let copied = core
        .visit()
        .map_err(|error| infra(BACKUP, &error))
        .and_then(|source| copy(&source, &unfinished));
    let placed =
        copied.map_err(BackupError::from).and_then(|()| settle(&unfinished, path).map_err(place));
    if placed.is_err() {
        // What went wrong is told already; a leftover is removed by the next try.
        let _ = remove(&unfinished);
    }
    placed
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

fn copy_pages(source: &Connection, path: &Path) -> Result<(), InfraError> {
    let fail = |error: rusqlite::Error| infra(BACKUP, &error);
    let mut target = Connection::open(path).map_err(fail)?;
    let backup = Backup::new(source, &mut target).map_err(fail)?;
    loop {
        match backup.step(STEP_PAGES).map_err(fail)? {
            StepResult::Done => break,
            // Each step copies or fails, and the source does not grow within its transaction.
            _ => continue,
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
    fs::rename(unfinished, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    Ok(bytes)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(UNFINISHED);
    PathBuf::from(name)
}
