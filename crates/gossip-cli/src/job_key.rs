//! The key under which commands are signed in the store, so that a worker of the same user, or of
//! another machine with a copy of the key, runs them unasked (DESIGN Q35).

use std::path::PathBuf;

use gossip::runtime::JobKey;

use crate::console::Console;
use crate::failure::Failure;
use crate::key_file;

/// The variable that names the file of the key.
const VARIABLE: &str = "GOSSIP_JOB_KEY_FILE";
/// Its name in the configuration directory.
const NAME: &str = "job-key";
/// What it is called in an error.
const WHAT: &str = "job key";

/// Returns the key that signs the command of a new run; the default file is made if it is missing.
/// `None` if there is no place for it: the run is created without a signature.
pub(crate) fn of_creator(console: &Console) -> Result<Option<JobKey>, Failure> {
    if let Some(path) = named() {
        return key_file::read(&path, WHAT).map(JobKey::from_bytes).map(Some);
    }
    let unsigned = "the command is not signed, so workers need --allow-command to join";
    let Some(path) = default_path() else {
        console.detail(&format!("{unsigned}: HOME is not set"));
        return Ok(None);
    };
    if let Err(error) = key_file::create_if_missing(&path) {
        console.note(&format!("{unsigned}: cannot make {}: {error}", path.display()));
        return Ok(None);
    }
    key_file::read(&path, WHAT).map(JobKey::from_bytes).map(Some)
}

/// Returns the key of a worker; `None` if there is no file. A worker makes none: its key would have
/// signed nothing.
pub(crate) fn of_worker() -> Result<Option<JobKey>, Failure> {
    let is_there = |path: &PathBuf| !matches!(path.try_exists(), Ok(false));
    match named().or_else(|| default_path().filter(is_there)) {
        Some(path) => key_file::read(&path, WHAT).map(JobKey::from_bytes).map(Some),
        None => Ok(None),
    }
}

/// Returns where the key of this user is, for a message.
pub(crate) fn shown_path() -> String {
    let path = named().or_else(default_path);
    path.map_or_else(|| VARIABLE.to_owned(), |path| path.display().to_string())
}

fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn default_path() -> Option<PathBuf> {
    key_file::directory().map(|directory| directory.join(NAME))
}
