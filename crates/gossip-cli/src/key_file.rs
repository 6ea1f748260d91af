//! Keys in files of the user's: 64 hexadecimal digits, made on first use, for this user only.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure};
use crate::store;

/// Bytes of a key; in a file each is two digits.
pub(crate) const KEY_LEN: usize = 32;
/// The longest file that is read: the digits and some white space.
const FILE_LEN_MAX: u64 = 256;
/// Bits of the mode that let others than the owner read or write.
const OTHERS: u32 = 0o077;

/// Returns the directory of gossip in the XDG configuration directory; `None` if `HOME` is not set.
pub(crate) fn directory() -> Option<PathBuf> {
    let directory =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = directory("XDG_CONFIG_HOME")
        .or_else(|| directory("HOME").map(|home| home.join(".config")))?;
    Some(config.join("gossip"))
}

/// Makes a key if there is no file, and returns whether it did. If another process makes it at the
/// same time, one of the two is kept.
pub(crate) fn create_if_missing(path: &Path) -> io::Result<bool> {
    // The link itself: one that leads nowhere was made by the user, and is not replaced.
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path),
        Ok(_) | Err(_) => Ok(false),
    }
}

fn create(path: &Path) -> io::Result<bool> {
    let directory = path.parent().expect("the path has two names at least");
    store::create_private(directory)?;
    let mut key = [0; KEY_LEN];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    // Written whole before it has its name: another process never reads a part.
    let made = directory.join(format!(".key-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&made)?;
    let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
    // A link and no rename, because it fails if another process has made the key.
    let linked = written.and_then(|()| std::fs::hard_link(&made, path));
    std::fs::remove_file(&made)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        linked => linked.map(|()| true),
    }
}

/// Reads a key. `what` names it in an error: `secret key`.
pub(crate) fn read(path: &Path, what: &str) -> Result<[u8; KEY_LEN], Failure> {
    let shown = path.display();
    let unusable =
        |why: &str| Failure::new(Code::Usage, format!("unusable {what}: {shown}")).why(why);
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        // Of the open file, so that it cannot be exchanged between the check and the read.
        let mode = file.metadata()?.mode();
        file.take(FILE_LEN_MAX).read_to_string(&mut text).map(|_| mode)
    });
    let mode = read.map_err(|error| unusable(&error.to_string()))?;
    if mode & OTHERS != 0 {
        return Err(
            unusable("other users may read or change it").next(format!("chmod 600 {shown}"))
        );
    }
    let digits = text.trim().as_bytes();
    let mut key = [0; KEY_LEN];
    if digits.len() != 2 * KEY_LEN {
        return Err(unusable("it does not hold 64 hexadecimal digits"));
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let value = digit(pair[0]).zip(digit(pair[1])).map(|(high, low)| high * 16 + low);
        let value = value.and_then(|value| u8::try_from(value).ok());
        *byte = value.ok_or_else(|| unusable("it does not hold 64 hexadecimal digits"))?;
    }
    Ok(key)
}
