//! `doctor`: checks that this machine can work: its store, disk, clock, permissions and programs.
//!
//! Nothing is written but the file of a store that does not exist yet, as `exec` would.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use gossip::coordination::RunManagement as _;
use gossip::coordination::store::{FORMAT_VERSION, fly, load_tenant_usage};
use gossip::etcd::Alarm;
use gossip::identity::{LogicalTime, TenantId};
use gossip::runtime::exec::find_program;
use gossip::runtime::{Clock as _, SystemClock};
use gossip::store::{Backend, FileSystem, StoreUrl};

use crate::args::Global;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::output::{self, Record};
use crate::{duration, progress, store};

/// Free bytes below which a store counts as full: a few commits with their log.
pub(crate) const SPACE_MIN: u64 = 1 << 20;

/// Free bytes below which a store gets a warning: a large run takes some hundred megabytes.
const SPACE_LOW: u64 = 256 << 20;

/// A reply after this time makes work slow, but not wrong.
const REPLY_SLOW_MILLIS: u64 = 500;

/// A clock that is ahead by more than this delays takeovers.
const CLOCK_AHEAD_MAX: u64 = 2_000;

/// Database size of etcd above which it needs attention; its default quota is 2 GiB.
const ETCD_BYTES_HIGH: i64 = 1 << 30;

/// Bits of the mode of a store that let others than its owner and group read or write it.
const OTHERS: u32 = 0o007;

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl Space {
    /// Returns the space for unprivileged users where `path` is, or would be.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        // The file may not exist yet, nor its directory.
        let found = path.ancestors().find_map(|path| rustix::fs::statvfs(named(path)).ok())?;
        let size = found.f_frsize;
        Some(Self {
            free: found.f_bavail.saturating_mul(size),
            total: found.f_blocks.saturating_mul(size),
        })
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} free", bytes(self.free), bytes(self.total))
    }
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// It works, but will not work well.
    Warning,
    Failed,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

struct Check {
    name: &'static str,
    verdict: Verdict,
    detail: String,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { name, verdict, detail: detail.into() }
    }

    fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, detail)
    }

    fn failed(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Verdict::Failed, detail)
    }
}

/// Runs all checks and prints them. Returns 5 if the store cannot be used, and 1 if another check
/// failed; a warning is no failure.
pub(crate) fn doctor(global: &Global, console: &Console) -> Result<Code, Failure> {
    let (url, tenant) = (store::url(global)?, store::tenant(global)?);
    let mut checks = Vec::new();
    if let StoreUrl::Sqlite { path, .. } = &url {
        // Even if the store does not open: these checks often show why.
        checks.extend(of_file(path));
    }
    let opened = match store::open(global) {
        Ok(backend) => {
            checks.extend(of_store(&backend, &url, tenant));
            Code::Complete
        }
        Err(failure) => {
            let why = failure.why.map_or_else(String::new, |why| format!(": {why}"));
            checks.push(Check::failed("store", format!("{}{why}", failure.what)));
            failure.code
        }
    };
    checks.extend(of_path());
    let rows: Vec<_> = checks.iter().map(row).collect();
    output::list(global.output, &["check", "result", "detail"], &rows)?;
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Failed).count() as u64;
    console.note(&match failed {
        0 => "this machine is ready".to_owned(),
        failed => format!("{} failed", output::count(failed, "check")),
    });
    Ok(match (opened, failed) {
        (Code::Complete, 0) => Code::Complete,
        (Code::Complete, _) => Code::Internal,
        // A store that does not open is the first thing to fix, so its code comes first.
        (code, _) => code,
    })
}

fn row(check: &Check) -> Record {
    Record::new()
        .with("check", check.name)
        .with("result", check.verdict.word())
        .with("detail", check.detail.as_str())
}

/// Checks the file of a store before it is opened: opening changes it.
fn of_file(path: &Path) -> Vec<Check> {
    let mut checks = Vec::new();
    let directory = named(path.parent().unwrap_or(path));
    checks.push(match rustix::fs::access(directory, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Check::ok("permissions", format!("{} is writable", shown(directory))),
        Err(error) => Check::failed("permissions", format!("{}: {error}", shown(directory))),
    });
    let exists = path.try_exists().unwrap_or(false);
    if exists && let Err(error) = rustix::fs::access(path, rustix::fs::Access::WRITE_OK) {
        checks.push(Check::failed("permissions", format!("{}: {error}", shown(path))));
    }
    // The group is allowed on purpose: several users may share a store.
    if path.metadata().is_ok_and(|found| found.mode() & OTHERS != 0) {
        let shown = shown(path);
        let detail =
            format!("{shown}: every user of this machine may read or change it; chmod 600 {shown}");
        checks.push(Check::new("permissions", Verdict::Warning, detail));
    }
    if let Some(space) = Space::at(path) {
        let verdict = match space.free {
            ..SPACE_MIN => Verdict::Failed,
            SPACE_MIN..SPACE_LOW => Verdict::Warning,
            SPACE_LOW.. => Verdict::Ok,
        };
        checks.push(Check::new("space", verdict, space.to_string()));
    }
    checks.extend(FileSystem::of(path).map(of_file_system));
    checks
}

/// A network file system is refused on open, unless the URL allows it.
fn of_file_system(found: FileSystem) -> Check {
    match found.is_network() {
        false => Check::ok("file system", found.to_string()),
        true => Check::new(
            "file system",
            Verdict::Warning,
            format!(
                "{found}: a network file system, whose locks SQLite cannot rely on; \
                 keep the store on a local disk, or use etcd or PostgreSQL for several machines"
            ),
        ),
    }
}

fn of_store(backend: &Backend, url: &StoreUrl, tenant: TenantId) -> Vec<Check> {
    let mut checks = Vec::new();
    let started = Instant::now();
    let format = backend.format();
    let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    match format {
        Ok(format) => {
            let verdict = if took > REPLY_SLOW_MILLIS { Verdict::Warning } else { Verdict::Ok };
            checks.push(Check::new(
                "store",
                verdict,
                format!("{} answers in {took} ms", kind(url)),
            ));
            // Only older ones are shown: a newer one has refused to open.
            let newest = FORMAT_VERSION;
            checks.push(match format < newest {
                true => Check::new(
                    "format",
                    Verdict::Warning,
                    format!("format {format}; gossip store upgrade brings it to {newest}"),
                ),
                false => Check::ok("format", format!("format {format}")),
            });
        }
        Err(error) => checks.push(Check::failed("store", error.to_string())),
    }
    checks.push(Check::ok("version", concat!("gossip ", env!("CARGO_PKG_VERSION"))));
    match fly(&mut backend.store(), load_tenant_usage(tenant)) {
        Ok(usage) => {
            let text = format!("{} of {} shards", usage.shards, usage.allotment.max_shards);
            checks.push(match usage.is_full() {
                true => Check::failed("quota", format!("{text}; delete finished runs")),
                false => Check::ok("quota", text),
            });
        }
        Err(error) => checks.push(Check::failed("quota", error.to_string())),
    }
    // Behind the store, which it reads.
    checks.push(of_clock(backend, tenant));
    if let Some(check) = of_etcd(backend) {
        checks.push(check);
    }
    checks
}

/// Compares this clock with the heartbeats of workers: one from the future means that the clocks
/// differ. A worker whose clock is behind looks like one that is late.
fn of_clock(backend: &Backend, tenant: TenantId) -> Check {
    let mut entries = Vec::new();
    let now = SystemClock::new().now();
    // At time zero no entry has expired, so that old heartbeats count as well.
    let listed = backend.coordinator().list_workers_into(LogicalTime::ZERO, tenant, &mut entries);
    if let Err(error) = listed {
        return Check::failed("clock", error.to_string());
    }
    let ahead = entries.iter().map(|entry| entry.last_seen().as_raw()).max().unwrap_or(0);
    let ahead = ahead.saturating_sub(now.as_raw());
    match ahead {
        0..CLOCK_AHEAD_MAX if entries.is_empty() => Check::ok("clock", "no worker to compare with"),
        0..CLOCK_AHEAD_MAX => {
            let workers = output::count(entries.len() as u64, "worker");
            Check::ok("clock", format!("not behind the clocks of {workers}"))
        }
        _ => Check::failed(
            "clock",
            format!(
                "behind that of a worker by {}; set the clocks of all hosts (chronyc tracking)",
                duration::rough(ahead)
            ),
        ),
    }
}

fn of_etcd(backend: &Backend) -> Option<Check> {
    let (status, alarms) = match backend.etcd_health()? {
        Ok(health) => health,
        Err(error) => return Some(Check::failed("etcd", error.to_string())),
    };
    let text = format!(
        "version {}, database {}, {} in use",
        status.version,
        bytes(u64::try_from(status.db_size).unwrap_or(0)),
        bytes(u64::try_from(status.db_size_in_use).unwrap_or(0)),
    );
    let trouble = match (alarms.first(), status.leader) {
        // Alarms first: with one of them set, etcd refuses writes although it has a leader.
        (Some(Alarm::NoSpace), _) => {
            Some("NOSPACE: compact, defragment, then etcdctl alarm disarm")
        }
        (Some(_), _) => Some("CORRUPT: do not write, restore from a backup"),
        (None, 0) => Some("it has no leader"),
        (None, _) => None,
    };
    Some(match trouble {
        Some(trouble) => Check::failed("etcd", format!("{text}; {trouble}")),
        None if status.db_size > ETCD_BYTES_HIGH => Check::new(
            "etcd",
            Verdict::Warning,
            format!("{text}; set --quota-backend-bytes and --auto-compaction-retention"),
        ),
        None => Check::ok("etcd", text),
    })
}

/// Checks that commands can be found.
fn of_path() -> Vec<Check> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|directory| !directory.is_dir()).collect();
    let shell = match find_program("sh".as_ref()) {
        Ok(()) => Check::ok("PATH", "sh is found"),
        Err(error) => Check::failed("PATH", error.to_string()),
    };
    let odd = missing.first().map(|first| {
        let text = format!("{} is no directory", shown(first));
        Check::new("PATH", Verdict::Warning, text)
    });
    [Some(shell), odd].into_iter().flatten().collect()
}

/// Returns the kind of a store, without its place, which may hold a password.
const fn kind(url: &StoreUrl) -> &'static str {
    match url {
        StoreUrl::Memory { .. } => "memory",
        StoreUrl::Sqlite { .. } => "SQLite",
        StoreUrl::Etcd(_) => "etcd",
        StoreUrl::Postgres(_) => "PostgreSQL",
        _ => "the store",
    }
}

/// Returns the directory that an empty path means.
fn named(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn shown(path: &Path) -> String {
    progress::escaped(path.as_os_str().as_bytes())
}

/// Formats a number of bytes with three digits.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 10.0);
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 << 20, "10 MiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn space_is_that_of_the_nearest_directory() {
        let directory = std::env::temp_dir();
        let missing = directory.join("no/such/store.db");
        let (there, below) = (Space::at(&directory).unwrap(), Space::at(&missing).unwrap());
        assert_eq!(there.total, below.total);
        assert!(there.free > 0);
    }
}
