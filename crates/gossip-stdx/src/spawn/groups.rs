//! The process groups of the running children, in memory that the watcher shares.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::child::kill_group;
use super::signals::remember_signals;
use super::watcher;

/// Maximum number of children at a time. A worker thread has one, and no machine runs as many
/// commands at a time; a child that is not in the table would survive this process.
const MAX_GROUPS: usize = 4096;

/// The leader of a group that is reserved for a child which has not been started.
const RESERVED: i32 = -1;

/// The table of the running children.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Table {
    /// Whether no more children are started. Never reset.
    closed: AtomicBool,
    groups: [Group; MAX_GROUPS],
}

/// One process group.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Group {
    /// The process id of the child that leads it; 0 if there is none.
    leader: AtomicI32,
    /// When the child was running, in nanoseconds since the start of the machine.
    since: AtomicU64,
    /// Whether the child serves this process and is not counted.
    is_helper: AtomicBool,
}

/// The table and the watcher of this process.
#[derive(Debug)]
pub(super) struct Guard {
    table: &'static Table,
    /// The watcher reads the other end. This one is closed when this process ends, however it ends.
    alive: Mutex<Option<OwnedFd>>,
    watcher: Pid,
}

static GUARD: OnceLock<Result<Guard, i32>> = OnceLock::new();

/// Held while children are waited for, and while all are killed: a number that was read from the
/// table must not become that of another process before it is used.
static ENDS: Mutex<()> = Mutex::new(());

pub(super) fn lock_ends() -> MutexGuard<'static, ()> {
    ENDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the watcher, so that the first child does not have to; does nothing if it runs.
///
/// The watcher is a copy of this process, so the earlier it is started the smaller it is.
///
/// # Errors
///
/// Returns an error if memory or processes are exhausted. Children cannot be started then.
pub fn prepare() -> io::Result<()> {
    guard().map(drop)
}

/// Ends the watcher, if no child is running, and starts no more children.
///
/// Without it the watcher ends right after this process, and is left to process 1, which in a
/// container may not wait for it.
pub fn finish() {
    let Some(Ok(guard)) = GUARD.get() else { return };
    guard.table.closed.store(true, Ordering::SeqCst);
    let alive = guard.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
    // A helper is a group to kill, too.
    if alive.is_some() && guard.table.leaders().next().is_none() {
        drop(alive);
        // Without a group to kill it exits at once. An error means that it is gone.
        while let Err(Errno::INTR) = waitpid(Some(guard.watcher), WaitOptions::empty()) {}
    }
}

/// Returns the process id of the watcher; `None` if it was not started.
#[must_use]
pub fn watcher_id() -> Option<u32> {
    let guard = GUARD.get().and_then(|guard| guard.as_ref().ok());
    guard.map(|guard| guard.watcher.as_raw_nonzero().get().unsigned_abs())
}

/// Returns how many children are running, without helpers.
#[must_use]
pub fn running() -> usize {
    let guard = GUARD.get().and_then(|guard| guard.as_ref().ok());
    let is_counted = |(group, _): &(&Group, Pid)| !group.is_helper.load(Ordering::SeqCst);
    guard.map_or(0, |guard| guard.table.leaders().filter(is_counted).count())
}

/// Kills the groups of all children, and starts no more.
///
/// For an immediate exit of this process: their results are lost.
pub fn end_all() {
    // Without a table there is no child; closing it keeps later ones from starting.
    let Ok(guard) = guard() else { return };
    guard.table.closed.store(true, Ordering::SeqCst);
    let _ends = lock_ends();
    guard.table.leaders().for_each(|(_, leader)| kill_group(leader));
}

pub(super) fn guard() -> io::Result<&'static Guard> {
    let guard = GUARD.get_or_init(|| {
        remember_signals();
        Guard::new().map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    });
    guard.as_ref().map_err(|error| io::Error::from_raw_os_error(*error))
}

impl Guard {
    fn new() -> io::Result<Self> {
        let table = Table::new()?;
        let (watcher, alive) = watcher::start(table)?;
        Ok(Self { table, alive: Mutex::new(Some(alive)), watcher })
    }

    /// Reserves a group for a child that is about to be started.
    pub(super) fn reserve(&self, is_helper: bool) -> io::Result<&'static Group> {
        let free = |group: &&Group| {
            let (free, reserved) = (0, RESERVED);
            group
                .leader
                .compare_exchange(free, reserved, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        };
        let group = self.table.groups.iter().find(free);
        let group = group.ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))?;
        // Before the child records itself, so that it is never counted by mistake.
        group.is_helper.store(is_helper, Ordering::SeqCst);
        Ok(group)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.table.closed.load(Ordering::SeqCst)
    }
}

impl Table {
    /// Returns an empty table in memory that child processes share with this one. It is never
    /// freed.
    fn new() -> io::Result<&'static Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory. It
        // is aligned to a page, zeroed, which is a valid table, and never unmapped.
        unsafe {
            let memory = libc::mmap(ptr::null_mut(), size_of::<Self>(), access, flags, -1, 0);
            if memory == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok(&*memory.cast::<Self>())
        }
    }

    /// Returns the groups with a running child, and the child.
    pub(super) fn leaders(&self) -> impl Iterator<Item = (&Group, Pid)> {
        self.groups.iter().filter_map(|group| {
            let leader = group.leader.load(Ordering::SeqCst);
            Some((group, Pid::from_raw(leader.max(0))?))
        })
    }
}

impl Group {
    /// Records the calling process, a child before its `exec`, as the leader. Only system calls.
    ///
    /// The child does it, not its parent, because the parent can be killed in between.
    pub(super) fn record(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = now.tv_sec.unsigned_abs().saturating_mul(NANOS_PER_SECOND);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        self.since.store(seconds.saturating_add(nanos), Ordering::SeqCst);
        // SAFETY: it only returns a number.
        self.leader.store(unsafe { libc::getpid() }, Ordering::SeqCst);
    }

    pub(super) fn clear(&self) {
        self.leader.store(0, Ordering::SeqCst);
    }

    pub(super) fn since(&self) -> u64 {
        self.since.load(Ordering::SeqCst)
    }
}

pub(super) const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::Command;
    use std::sync::atomic::Ordering;

    use super::{Table, watcher};

    /// The number of a child that is gone belongs to a process that was started later: it is not
    /// killed. The same process is killed if the record is not older than it, and the watcher does
    /// not wait for a zombie.
    #[test]
    fn watcher_kills_only_processes_that_are_not_younger_than_their_record() {
        let ticks = rustix::param::clock_ticks_per_second();
        let mut sleeper = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let table = Table::new().unwrap();
        let group = &table.groups[7];
        let watch = |since| {
            group.since.store(since, Ordering::SeqCst);
            group.leader.store(i32::try_from(sleeper.id()).unwrap(), Ordering::SeqCst);
            watcher::kill_groups(table, ticks);
            assert_eq!(table.leaders().count(), 0);
        };
        watch(0);
        assert!(std::fs::metadata(format!("/proc/{}/exe", sleeper.id())).is_ok(), "it was killed");
        watch(u64::MAX);
        assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    }
}
