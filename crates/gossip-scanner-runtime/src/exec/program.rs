//! Finds a program: before a run is created, and once for all of its processes.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::child::cannot_start;
use crate::processor::Broken;

/// Where programs are looked for when `PATH` is not set, as the system does.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Looks for a program as the system would: by its path if its name has a slash, and otherwise in
/// `PATH`. A program that is found may still fail to start, which is reported then.
///
/// # Errors
///
/// Returns the message that a failure to start it would have.
pub fn find_program(program: &OsStr) -> Result<(), Broken> {
    find(program).map(drop).map_err(|error| cannot_start(program, &error))
}

/// Returns the path of a program, which is found as by [`find_program`].
pub(crate) fn find(program: &OsStr) -> io::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    find_in(program, &path)
}

pub(super) fn find_in(program: &OsStr, path: &OsStr) -> io::Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return look(Path::new(program)).map(|()| program.into());
    }
    let mut found = Err(io::ErrorKind::NotFound.into());
    for directory in env::split_paths(path) {
        let candidate = directory.join(program);
        match look(&candidate) {
            Ok(()) => return Ok(candidate),
            // As a shell does: a file that may not be executed is reported only if no later
            // directory has a program of that name.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found = Err(error),
            Err(_) => {}
        }
    }
    found
}

fn look(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    let has_mode = metadata.is_file() && metadata.permissions().mode() & ANY_EXECUTE != 0;
    match has_mode {
        // The mode alone does not say whether this user may execute it, and the next directory
        // may have one that this user may.
        true => Ok(rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// The rights to execute of owner, group and others.
const ANY_EXECUTE: u32 = 0o111;
