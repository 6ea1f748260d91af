//! How a database is opened: what a commit waits for, how long others may hold the file, how large
//! it may grow, and how much of it is checked first.

use std::time::Duration;

/// What a commit has waited for when it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMode {
    /// The disk has it (`synchronous=FULL`). Nothing acknowledged is ever lost, not by a killed
    /// process and not by a power cut, as far as the disk tells the truth.
    #[default]
    Full,
    /// The operating system has it (`synchronous=NORMAL`). A killed process loses nothing. A power
    /// cut or a crash of the system may lose the last commits; the file stays intact, and what is
    /// left is a state that once was. A scan then does again what it had done since.
    Relaxed,
}

/// How much of a file is checked when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenCheck {
    /// Only what opening reads anyway: the header, the schema, our own mark.
    Header,
    /// Every page (`PRAGMA quick_check`) of files up to so many bytes; of larger ones the header.
    UpTo(u64),
}

/// The largest file whose every page is read on opening by default. Reading and checking costs
/// about a second per gigabyte from memory, so this is at most a tenth of a second there, and a
/// second from a slow disk. Larger files are for `SqliteDatabase::check_integrity`.
const CHECKED_BYTES_MAX: u64 = 64 << 20;

impl Default for OpenCheck {
    fn default() -> Self {
        Self::UpTo(CHECKED_BYTES_MAX)
    }
}

/// How long a commit or an opening waits for another process by default. A commit of another
/// process takes well under a millisecond and a full group some tens, so whoever waits this long
/// waits for a process that was stopped. It is a third of the default lease.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest wait for another process, whatever is asked for: a call that waits longer than this
/// helps nobody, and SQLite counts milliseconds in 31 bits.
const BUSY_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);

const _: () = assert!(BUSY_TIMEOUT_MAX.as_millis() <= i32::MAX as u128);
const _: () = assert!(BUSY_TIMEOUT.as_secs() < BUSY_TIMEOUT_MAX.as_secs());

/// How a database is opened. The default is what one wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// What a commit waits for.
    pub sync: SyncMode,
    /// How long to wait for another process before giving up with a transient error; a day at
    /// most.
    pub busy_timeout: Duration,
    /// The most bytes that the main file may have; writes beyond are refused as on a full disk.
    /// The log beside it has its own bound.
    pub file_bytes_max: Option<u64>,
    /// How much is checked on opening.
    pub check: OpenCheck,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::default(),
            busy_timeout: BUSY_TIMEOUT,
            file_bytes_max: None,
            check: OpenCheck::default(),
        }
    }
}

impl SqliteOptions {
    /// The same, without waiting for the disk: see [`SyncMode::Relaxed`].
    #[must_use]
    pub const fn relaxed(self) -> Self {
        Self { sync: SyncMode::Relaxed, ..self }
    }

    /// The same within what SQLite and clocks can count.
    pub(crate) fn bounded(self) -> Self {
        Self { busy_timeout: self.busy_timeout.min(BUSY_TIMEOUT_MAX), ..self }
    }
}
