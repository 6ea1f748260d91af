//! Options for opening a database: durability, busy timeout, size limit, and the check on open.

use std::time::Duration;

use gossip_coordination::store::CLAIM_COOLDOWN_MAX;

/// The durability of an acknowledged commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMode {
    /// The commit is synced to the disk (`synchronous=FULL`). It survives a killed process and a
    /// power cut, if the disk honours syncs.
    #[default]
    Full,
    /// The commit is handed to the operating system (`synchronous=NORMAL`). It survives a killed
    /// process. A power cut or a crash of the system may lose the last commits; the file stays
    /// intact and holds an earlier state, from which a scan repeats the lost part.
    Relaxed,
}

impl SyncMode {
    /// Returns the value of `PRAGMA synchronous`.
    pub(crate) const fn pragma(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Relaxed => "NORMAL",
        }
    }

    /// Returns that value as the number that SQLite reports.
    pub(crate) const fn level(self) -> u8 {
        match self {
            Self::Full => 2,
            Self::Relaxed => 1,
        }
    }
}

/// The boot of the system in which a file is opened, and the time of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    id: i64,
    unix_seconds: u64,
}

impl Boot {
    /// Digits of a boot id that are used: 64 bits, of which 60 are random in a UUID.
    const ID_DIGITS: usize = 16;

    /// Returns the boot with this id, as Linux has it in `/proc/sys/kernel/random/boot_id`; `None`
    /// if it is no UUID. `unix_seconds` is the time of opening: the floors that a restart requires
    /// lie above all earlier fences by it.
    #[must_use]
    pub fn new(uuid: &str, unix_seconds: u64) -> Option<Self> {
        let digits: String = uuid.trim().chars().filter(|digit| *digit != '-').collect();
        let id = u64::from_str_radix(digits.get(..Self::ID_DIGITS)?, 16).ok()?;
        Some(Self { id: id.cast_signed(), unix_seconds })
    }

    /// Returns the number that the file stores.
    pub(crate) const fn id(self) -> i64 {
        self.id
    }

    pub(crate) const fn unix_seconds(self) -> u64 {
        self.unix_seconds
    }
}

/// How much of a file is checked on open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenCheck {
    /// Only the header, the schema and the application id, which are read in any case.
    Header,
    /// Every page (`PRAGMA quick_check`) of files up to this many bytes; the header of larger ones.
    UpTo(u64),
}

/// The largest file that is fully checked on open by default. A file of 79 MB in memory took 0.1 to
/// 0.7 s on a busy machine (Debian's `sqlite3` 3.40, wall time); a disk was not measured. Check
/// larger files with `SqliteDatabase::check_integrity`.
const CHECKED_BYTES_MAX: u64 = 64 << 20;

impl Default for OpenCheck {
    fn default() -> Self {
        Self::UpTo(CHECKED_BYTES_MAX)
    }
}

/// The default busy timeout. A commit of another process takes well under a millisecond and a full
/// group some tens, so a lock held for this long belongs to a stopped process. It is a third of the
/// default lease duration.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest busy timeout. A longer one is of no use, and SQLite counts milliseconds in 31 bits.
const BUSY_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);

const _: () = assert!(BUSY_TIMEOUT_MAX.as_millis() <= i32::MAX as u128);
const _: () = assert!(BUSY_TIMEOUT.as_secs() < BUSY_TIMEOUT_MAX.as_secs());

/// How a database is opened. The defaults suit most uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The durability of a commit.
    pub sync: SyncMode,
    /// How long to wait for the lock of another process before a transient error; at most a day.
    pub busy_timeout: Duration,
    /// The maximum size of the main file in bytes; writes beyond it are refused as on a full disk.
    /// The log has its own limit.
    pub file_bytes_max: Option<u64>,
    /// How much is checked on open.
    pub check: OpenCheck,
    /// The present boot. With it, the first open after a restart of the system raises the fence
    /// floors of all runs if the file was ever opened with [`SyncMode::Relaxed`]. Without it a
    /// caller that uses relaxed sync must raise them: otherwise fences of lost grants are issued
    /// again.
    pub boot: Option<Boot>,
    /// Opens the file also on a network file system. Only one machine may use it then: locks do not
    /// hold between machines.
    pub allow_network_file_system: bool,
    /// Minimum time between a worker's claims, counted over all handles of the database; zero
    /// disables it. At most
    /// [`CLAIM_COOLDOWN_MAX`](gossip_coordination::store::CLAIM_COOLDOWN_MAX) is effective.
    pub claim_cooldown: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::default(),
            busy_timeout: BUSY_TIMEOUT,
            file_bytes_max: None,
            check: OpenCheck::default(),
            boot: None,
            allow_network_file_system: false,
            claim_cooldown: Duration::ZERO,
        }
    }
}

impl SqliteOptions {
    /// Returns these options with [`SyncMode::Relaxed`].
    #[must_use]
    pub const fn relaxed(self) -> Self {
        Self { sync: SyncMode::Relaxed, ..self }
    }

    /// Returns these options with a busy timeout that SQLite and `Instant` can represent, and a
    /// claim cooldown within its bound.
    pub(crate) fn bounded(self) -> Self {
        let busy_timeout = self.busy_timeout.min(BUSY_TIMEOUT_MAX);
        let claim_cooldown = self.claim_cooldown.min(CLAIM_COOLDOWN_MAX);
        Self { busy_timeout, claim_cooldown, ..self }
    }
}
