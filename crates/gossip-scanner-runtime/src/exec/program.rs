//! Checks that a program exists, before a run is created.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::child::cannot_start;
use crate::processor::Broken;

/// Where programs are looked for when `PATH` is not set, as the system does.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Looks for a program as the system will: by its path if its name has a slash, and otherwise in
/// `PATH`. A program that is found may still fail to start, which is reported then.
///
/// # Errors
///
/// Returns the message that a failure to start it would have.
pub fn find_program(program: &OsStr) -> Result<(), Broken> {
    let path = env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    find_in(program, &path).map_err(|error| cannot_start(program, &error))
}

pub(super) fn find_in(program: &OsStr, path: &OsStr) -> io::Result<()> {
    if program.as_bytes().contains(&b'/') {
        return look(Path::new(program));
    }
    let mut found = Err(io::ErrorKind::NotFound.into());
    for directory in env::split_paths(path) {
        match look(&directory.join(program)) {
            Ok(()) => return Ok(()),
            // One without the right to execute is reported only if there is no other.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found = Err(error),
            Err(_) => {}
        }
    }
    found
}

fn look(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    let is_program = metadata.is_file() && metadata.permissions().mode() & ANY_EXECUTE != 0;
    if is_program { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Returns whether any user may execute it.
const ANY_EXECUTE: u32 = 0o111;
