//! The watcher: a process that kills the children of a process which died.
//!
//! It is forked off a process that may have threads, so it must not allocate or take a lock: it
//! makes system calls only. It blocks in a read of a pipe whose other end the watched process
//! holds. All signals stay blocked in it: a Ctrl-C or a SIGTERM to a whole control group must not
//! end it before the process that it watches.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, test_kill_process_group};

use super::child::kill_group;
use super::groups::{NANOS_PER_SECOND, Table};
use super::signals::Blocked;
use super::stat::{Stat, number};

/// The name that `ps` shows.
const NAME: &CStr = c"gossip-watcher";

/// The first and the longest interval at which groups that were killed are checked: most are gone
/// at once, and one in an uninterruptible wait may take hours.
const CHECK_FIRST_NANOS: i64 = 1_000_000;
const CHECK_LONGEST_NANOS: i64 = 512_000_000;

/// Descriptors that are closed one by one where the kernel cannot close a range (before 5.9).
const MAX_DESCRIPTORS: RawFd = 4096;

/// Starts the watcher of this process. Returns it, and the descriptor to keep open.
pub(super) fn start(table: &'static Table) -> io::Result<(Pid, OwnedFd)> {
    let (watched, alive) = pipe_with(PipeFlags::CLOEXEC)?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let blocked = Blocked::new();
    // SAFETY: the new process makes system calls only, and none of its parent's signal handlers
    // can run in it.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        detach(watched.as_raw_fd());
        wait_for_end();
        kill_groups(table, ticks_per_second.max(1));
        // SAFETY: it ends this process at once, without the exit handlers of its parent.
        unsafe { libc::_exit(0) }
    }
    let error = io::Error::last_os_error();
    drop(blocked);
    let watcher = Pid::from_raw(forked.max(0)).ok_or(error)?;
    Ok((watcher, alive))
}

/// Leaves the session, the directory and the descriptors of the parent, of which it keeps the pipe
/// as standard input. A failure of one of these does not keep it from watching.
fn detach(watched: RawFd) {
    // SAFETY: these calls change this process only. Descriptors that Rust objects of the parent
    // own are closed, but none of those objects is used here any more.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::chdir(c"/".as_ptr());
        libc::dup2(watched, 0);
        // A reader of the parent's output must see its end when the parent has exited.
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for output in 1..=2 {
            if null < 0 || libc::dup2(null, output) < 0 {
                libc::close(output);
            }
        }
        if libc::syscall(libc::SYS_close_range, 3, c_int::MAX, 0) != 0 {
            for descriptor in 3..MAX_DESCRIPTORS {
                libc::close(descriptor);
            }
        }
    }
}

/// Returns when the watched process has ended, and every child of it has executed its program or
/// exited: until then the child has a copy of the descriptor, and may not be in the table.
fn wait_for_end() {
    let mut byte = 0_u8;
    loop {
        // SAFETY: the buffer has one byte.
        let read = unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
        let interrupted =
            read < 0 && Errno::from_io_error(&io::Error::last_os_error()) == Some(Errno::INTR);
        if read <= 0 && !interrupted {
            return;
        }
    }
}

/// Kills the groups of the table, and returns when all are empty.
pub(super) fn kill_groups(table: &Table, ticks_per_second: u64) {
    let tick_nanos = NANOS_PER_SECOND / ticks_per_second;
    let mut interval = CHECK_FIRST_NANOS;
    loop {
        for (group, leader) in table.leaders() {
            let is_another =
                stat_of(leader).is_some_and(|stat| stat.started > group.since() / tick_nanos);
            if !is_another {
                kill_group(leader);
            }
            if is_another || is_empty(leader) {
                group.clear();
            }
        }
        if table.leaders().next().is_none() {
            return;
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: interval };
        // SAFETY: the time is valid, and the rest of an interrupted pause is not asked for.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
        interval = (interval * 2).min(CHECK_LONGEST_NANOS);
    }
}

/// Returns whether a group has no process, zombies aside: where process 1 does not wait for its
/// children, they stay for ever.
fn is_empty(group: Pid) -> bool {
    match test_kill_process_group(group) {
        Err(Errno::SRCH) => true,
        // It may not be killed by us, so it is waited for.
        Err(_) => false,
        Ok(()) => !any_process(|stat| {
            stat.is_alive && stat.group == group.as_raw_nonzero().get().unsigned_abs()
        }),
    }
}

/// Returns whether a process meets a condition; true if the processes cannot be listed.
fn any_process(mut condition: impl FnMut(&Stat) -> bool) -> bool {
    let mut buffer = [0_u8; 4096];
    // SAFETY: the path is a string; the result is checked.
    let directory = unsafe {
        libc::open(c"/proc".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)
    };
    let mut found = directory < 0;
    while !found {
        // SAFETY: the kernel writes at most the length of the buffer.
        let len = unsafe {
            libc::syscall(libc::SYS_getdents64, directory, buffer.as_mut_ptr(), buffer.len())
        };
        let Some(mut entries) = usize::try_from(len).ok().and_then(|len| buffer.get(..len)) else {
            found = true;
            break;
        };
        if entries.is_empty() {
            break;
        }
        while let Some((name, rest)) = next_entry(entries) {
            let process =
                number(name).and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            found |= process.and_then(stat_of).is_some_and(|stat| condition(&stat));
            entries = rest;
        }
    }
    // SAFETY: the descriptor was opened above, and nothing else uses it.
    unsafe { libc::close(directory) };
    found
}

/// Splits the first name off the entries that `getdents64` returned.
fn next_entry(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(u16::from_ne_bytes([*entries.get(16)?, *entries.get(17)?]));
    let name = entries.get(19..length)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some((&name[..end], entries.get(length..)?))
}

/// Reads the line of a process; `None` if there is no such process.
fn stat_of(process: Pid) -> Option<Stat> {
    let mut path = [0_u8; 32];
    write_path(&mut path, process.as_raw_nonzero().get().unsigned_abs())?;
    // The fields that are read are within the first 400 bytes: a name of at most 64 bytes, and
    // twenty numbers.
    let mut line = [0_u8; 1024];
    // SAFETY: the path ends with a zero, the kernel writes at most the length of the buffer, and
    // the descriptor is closed.
    let read = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let read = libc::read(file, line.as_mut_ptr().cast(), line.len());
        libc::close(file);
        read
    };
    Stat::parse(line.get(..usize::try_from(read).ok()?)?)
}

/// Writes `/proc/ID/stat` and leaves the zero behind it.
fn write_path(path: &mut [u8; 32], id: u32) -> Option<()> {
    let mut digits = [0_u8; 10];
    let (mut rest, mut first) = (id, digits.len());
    while first == digits.len() || rest > 0 {
        first -= 1;
        digits[first] = b'0' + u8::try_from(rest % 10).ok()?;
        rest /= 10;
    }
    let parts = [b"/proc/", &digits[first..], b"/stat"];
    let mut at = 0;
    for part in parts {
        path.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    (at < path.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::{any_process, stat_of, write_path};

    #[test]
    fn the_path_of_a_process_ends_with_a_zero() {
        for (id, expected) in [(7, "/proc/7/stat\0"), (u32::MAX, "/proc/4294967295/stat\0")] {
            let mut path = [0; 32];
            write_path(&mut path, id).unwrap();
            assert!(path.starts_with(expected.as_bytes()), "{path:?}");
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn this_process_is_found_with_its_group() {
        let own = stat_of(getpid()).unwrap();
        assert!(own.is_alive && own.started > 0);
        assert!(any_process(|stat| stat == &own));
        assert!(!any_process(|stat| stat.started == u64::MAX));
    }
}
