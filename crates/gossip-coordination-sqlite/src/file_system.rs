//! The kind of file system that a file is on, and whether SQLite can rely on its locks.
//!
//! On a network file system a lock of one machine may be unknown to another, and the index of the
//! log is memory that only the processes of one machine share. Two machines would damage the file
//! without an error.

use std::fmt;
use std::path::Path;

/// The kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its number on Linux.
    number: i64,
}

/// Kinds of file systems by the numbers of Linux (`man 2 statfs`), and whether each is on this
/// machine.
const KINDS: [(i64, &str, bool); 19] = [
    (0xEF53, "ext4", true),
    (0x5846_5342, "xfs", true),
    (0x9123_683E, "btrfs", true),
    (0x2FC1_2FC1, "zfs", true),
    (0xF2F5_2010, "f2fs", true),
    (0x0102_1994, "tmpfs", true),
    (0x794C_7630, "overlayfs", true),
    (0x6969, "nfs", false),
    (0x517B, "smb", false),
    (0xFF53_4D42, "cifs", false),
    (0xFE53_4D42, "smb2", false),
    (0x0102_1997, "9p", false),
    (0x00C3_6400, "ceph", false),
    (0x0BD0_0BD0, "lustre", false),
    (0x4750_4653, "gpfs", false),
    (0x0116_1970, "gfs2", false),
    (0x5346_414F, "afs", false),
    (0x7461_636F, "ocfs2", false),
    // Its number does not say whether the program behind it uses the network.
    (0x6573_5546, "fuse", false),
];

impl FileSystem {
    /// Returns the file system of `path`, or of its directory if there is no such file. `None` if
    /// the operating system does not say it.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn of(path: &Path) -> Option<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let found = rustix::fs::statfs(path)
            .or_else(|_| rustix::fs::statfs(parent.unwrap_or_else(|| Path::new("."))));
        Some(Self { number: found.ok()?.f_type })
    }

    /// Returns `None`: only Linux has a number for each kind.
    #[must_use]
    #[cfg(not(target_os = "linux"))]
    pub const fn of(_path: &Path) -> Option<Self> {
        None
    }

    /// Returns whether other machines may use the same files.
    #[must_use]
    pub fn is_network(self) -> bool {
        self.known().is_some_and(|(_, _, is_local)| !is_local)
    }

    fn known(self) -> Option<&'static (i64, &'static str, bool)> {
        KINDS.iter().find(|(number, ..)| *number == self.number)
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((_, name, _)) => f.write_str(name),
            None => write!(f, "kind {:#x}", self.number),
        }
    }
}
