//! Children on systems other than Linux, by the standard library: in a process group of their own,
//! not a session, and without a watcher. They survive the death of this process.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{MAX_PIPES, Woken};

/// The first and the longest interval at which the end of a child is polled.
const NAP_FIRST: Duration = Duration::from_micros(50);
const NAP_LONGEST: Duration = Duration::from_millis(5);

struct Children {
    /// Each with whether it is a helper.
    leaders: BTreeMap<u32, bool>,
    /// Whether no more are started. Never reset.
    is_closed: bool,
}

static CHILDREN: Mutex<Children> =
    Mutex::new(Children { leaders: BTreeMap::new(), is_closed: false });

fn children() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the signals of this process; there is no watcher to start.
///
/// # Errors
///
/// Never.
pub fn prepare() -> io::Result<()> {
    super::signals::remember_signals();
    Ok(())
}

/// Starts no more children.
pub fn finish() {
    children().is_closed = true;
}

/// Returns the process id of the watcher: there is none.
#[must_use]
pub const fn watcher_id() -> Option<u32> {
    None
}

/// Returns how many children are running, without helpers.
#[must_use]
pub fn running() -> usize {
    children().leaders.values().filter(|is_helper| !**is_helper).count()
}

/// Kills the groups of all children, and starts no more.
pub fn end_all() {
    let mut children = children();
    children.is_closed = true;
    children.leaders.keys().for_each(|leader| kill_group(*leader));
}

/// Kills a child with its group, or alone if it is in the group of this process.
fn kill_group(leader: u32) {
    if let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw)
        // Any other failure means that it is gone, or may not be killed: nothing is left to do.
        && kill_process_group(leader, Signal::KILL) == Err(Errno::SRCH)
    {
        let _ = kill_process(leader, Signal::KILL);
    }
}

/// A program with everything that its process gets.
#[derive(Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "the caller decides about every part")]
pub struct Command<'a> {
    /// The path of the program; `PATH` is not searched.
    pub program: &'a CStr,
    /// The arguments; the first is the name of the program.
    pub arguments: &'a [CString],
    /// The environment, as `NAME=VALUE`.
    pub environment: &'a [&'a CStr],
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Whether it leads a process group of its own. Without it, it is in the group of this process,
    /// and so may use its terminal.
    pub has_session: bool,
    /// Whether it serves this process and not the user. It does not die with the thread that
    /// started it, but with this process, and [`running`](super::running) does not count it.
    pub is_helper: bool,
}

impl Command<'_> {
    /// Starts the program, as the leader of a process group of its own unless it is to share this
    /// one.
    ///
    /// # Errors
    ///
    /// Returns the error of `exec`, such as `NotFound`, and that of the system calls before it.
    pub fn spawn(&self) -> io::Result<Child> {
        let text = |text: &CStr| OsStr::from_bytes(text.to_bytes()).to_owned();
        let mut command = std::process::Command::new(text(self.program));
        let (name, arguments) = self.arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        command.arg0(text(name)).args(arguments.iter().map(|it| text(it))).env_clear();
        for variable in self.environment {
            let bytes = variable.to_bytes();
            if let Some(end) = bytes.iter().position(|byte| *byte == b'=') {
                let (name, value) = (&bytes[..end], &bytes[end + 1..]);
                command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
            }
        }
        let [input, output, error] = self.stdio.map(|it| it.try_clone_to_owned());
        command.stdin(input?).stdout(output?).stderr(error?);
        if self.has_session {
            command.process_group(0);
        }
        // Under the lock, so that a concurrent exit of this process does not miss it.
        let mut children = children();
        if children.is_closed {
            return Err(io::Error::other("this process is shutting down"));
        }
        let child = command.spawn()?;
        children.leaders.insert(child.id(), self.is_helper);
        Ok(Child { child, status: None })
    }
}

// The program only: arguments and environment may contain secrets.
impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("program", &self.program).finish_non_exhaustive()
    }
}

/// A running child; it and its process group are killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    status: Option<ExitStatus>,
}

impl Child {
    /// Returns its process id, which is also that of its group.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits at most `patience` for its end, and returns its status if it has ended.
    ///
    /// # Errors
    ///
    /// Returns the error of `waitpid`.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let (mut nap, mut left) = (NAP_FIRST, patience);
        while self.status.is_none() && !self.reap()? && !left.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "there is no pidfd to poll")]
            thread::sleep(nap.min(left));
            left = left.saturating_sub(nap);
            nap = (nap * 2).min(NAP_LONGEST);
        }
        Ok(self.status)
    }

    /// Waits at most `patience` until it has ended or one of `pipes` can be read without blocking,
    /// because it has bytes or is at its end.
    ///
    /// # Errors
    ///
    /// As [`Self::wait`].
    pub fn wait_or_read(
        &mut self,
        pipes: [Option<BorrowedFd<'_>>; MAX_PIPES],
        patience: Duration,
    ) -> io::Result<Woken> {
        if pipes.iter().all(Option::is_none) {
            return Ok(Woken { ended: self.wait(patience)?, readable: [false; MAX_PIPES] });
        }
        let (mut nap, mut left) = (NAP_FIRST, patience);
        loop {
            self.reap()?;
            let is_over = self.status.is_some() || left.is_zero();
            let wait = if is_over { Duration::ZERO } else { nap.min(left) };
            let timeout = Timespec::try_from(wait).ok();
            let mut readable = [false; MAX_PIPES];
            for (pipe, readable) in pipes.iter().zip(&mut readable) {
                if let Some(pipe) = pipe {
                    let mut polled = [PollFd::from_borrowed_fd(*pipe, PollFlags::IN)];
                    *readable = poll(&mut polled, timeout.as_ref())? > 0;
                }
            }
            if is_over || readable.contains(&true) {
                return Ok(Woken { ended: self.status, readable });
            }
            left = left.saturating_sub(nap);
            nap = (nap * 2).min(NAP_LONGEST);
        }
    }

    /// Returns whether it has ended; the processes it started may still run.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let leader = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        self.status.is_some()
            || leader.is_some_and(|leader| {
                waitid(WaitId::Pid(leader), options).is_ok_and(|status| status.is_some())
            })
    }

    /// Kills its process group. Its own end is left to [`Self::wait`].
    pub fn kill_group(&self) {
        // Until it is waited for, no other process can have its number or its group's.
        if self.status.is_none() {
            kill_group(self.id());
        }
    }

    /// Takes its status if it has ended.
    fn reap(&mut self) -> io::Result<bool> {
        let mut children = children();
        self.status = self.child.try_wait()?;
        if self.status.is_some() {
            children.leaders.remove(&self.child.id());
        }
        Ok(self.status.is_some())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill_group();
            // It was killed, so this does not take long; a failure means that it is gone.
            let _ = self.child.wait();
            children().leaders.remove(&self.child.id());
        }
    }
}
