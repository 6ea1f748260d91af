//! The password of a connection: from a file, from the caller's environment, or from the password
//! file of libpq.
//!
//! Read again for every connection, so a rotated password needs no restart.

use std::fs;
use std::io;
use std::path::Path;

use crate::config::PostgresConfig;

/// Returns the password, if there is one.
///
/// # Errors
///
/// If `password_file` or libpq's file exists and cannot be used. A missing file of libpq is none.
pub(crate) fn password(config: &PostgresConfig) -> io::Result<Option<String>> {
    if let Some(path) = &config.password_file {
        check_private(path)?;
        let text = fs::read_to_string(path)?;
        return Ok(Some(text.lines().next().unwrap_or_default().to_owned()));
    }
    if let Some(password) = &config.environment.password {
        return Ok(Some(password.clone()));
    }
    let Some(path) = &config.environment.password_file else { return Ok(None) };
    match fs::read_to_string(path) {
        Ok(text) => {
            check_private(path)?;
            Ok(text.lines().find_map(|line| of_line(line, config)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses a file that others may read, as libpq does.
fn check_private(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let metadata = fs::metadata(path)?;
        // A pipe or a descriptor (`/dev/fd/3`) is read by its owner only.
        if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::other("others may read it; use chmod 600"));
        }
    }
    Ok(())
}

/// Returns the password in a line `host:port:database:user:password` that matches the connection.
/// A field may be `*`; a backslash precedes a colon or a backslash.
fn of_line(line: &str, config: &PostgresConfig) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        // The password may hold colons.
        if character == ':' && fields.len() < 5 {
            fields.push(String::new());
            continue;
        }
        let field = fields.last_mut()?;
        match character {
            '\\' => field.extend(characters.next()),
            _ => field.push(character),
        }
    }
    let [host, port, database, user, password] = <[String; 5]>::try_from(fields).ok()?;
    let port_wanted = config.port.to_string();
    let pairs = [
        (host, &config.host),
        (port, &port_wanted),
        (database, &config.database),
        (user, &config.user),
    ];
    let matches = pairs.iter().all(|(field, wanted)| field == "*" || field == *wanted);
    matches.then_some(password)
}
