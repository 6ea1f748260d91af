//! The password in a file that only its user may read.

use std::fs;
use std::io;
use std::path::Path;

/// Returns the first line of a file.
///
/// # Errors
///
/// If the file cannot be read, or if other users may read it.
pub(crate) fn of_file(path: &Path) -> io::Result<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let metadata = fs::metadata(path)?;
        // A pipe or a descriptor (`/dev/fd/3`) is read by its owner only.
        if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::other("others may read it; use chmod 600"));
        }
    }
    let text = fs::read_to_string(path)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
