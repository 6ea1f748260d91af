//! A program in a process group of its own, and its end.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::processor::Broken;

/// The first and the longest interval at which a program's end is polled: most programs take longer
/// than the first, and the end of a long one is noticed within the longest.
const NAP_FIRST: Duration = Duration::from_micros(50);
const NAP_LONGEST: Duration = Duration::from_millis(5);

/// The running programs, so that all can be killed when this process exits at once.
static RUNNING: Mutex<Programs> =
    Mutex::new(Programs { leaders: BTreeSet::new(), is_closed: false });

struct Programs {
    /// Their process groups.
    leaders: BTreeSet<u32>,
    /// Whether no more are started. Never reset.
    is_closed: bool,
}

/// Kills every program of this process and its descendants, and starts no more. For an immediate
/// exit: the results of their keys are not recorded.
pub fn end_all_programs() {
    let mut programs = running();
    // An observer of the program's end may start the next one before this process is gone.
    programs.is_closed = true;
    programs.leaders.iter().for_each(|leader| end_group(*leader));
}

/// Returns how many programs of this process are running.
#[must_use]
pub fn running_programs() -> usize {
    running().leaders.len()
}

/// A running program; it and its descendants are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    since: Instant,
    /// Whether it has been waited for.
    reaped: bool,
}

impl Running {
    /// Starts `command` as the leader of a process group.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        // Under the lock, so that a concurrent exit of this process does not miss it.
        let mut programs = running();
        if programs.is_closed {
            return Err(io::Error::other("this process is shutting down"));
        }
        let child = command.process_group(0).spawn()?;
        programs.leaders.insert(child.id());
        Ok(Self { child, since: Instant::now(), reaped: false })
    }

    /// Returns the child itself, for its pipes.
    pub(super) const fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns for how long it has run.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns its end, if it comes within `patience`.
    pub(super) fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let begun = Instant::now();
        let mut nap = NAP_FIRST;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.has_ended();
                return Ok(Some(status));
            }
            let Some(left) = patience.checked_sub(begun.elapsed()) else { return Ok(None) };
            thread::sleep(nap.min(left));
            nap = (nap * 2).min(NAP_LONGEST);
        }
    }

    /// Returns whether it has ended; the processes it started may still run.
    pub(super) fn leader_has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let leader = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It is not waited for here, so that its process id is not reused.
        self.reaped
            || leader.is_some_and(|leader| {
                waitid(WaitId::Pid(leader), options).is_ok_and(|status| status.is_some())
            })
    }

    /// Kills its descendants, and leaves its own exit status to be read.
    pub(super) fn kill_rest(&self) {
        if !self.reaped {
            end_group(self.child.id());
        }
    }

    /// Kills it and its descendants.
    pub(super) fn kill(&mut self) {
        // Until the leader is waited for, no other process can have its number or its group's.
        if !self.reaped {
            end_group(self.child.id());
        }
        // It was killed, so this does not take long; a failure means that it is gone.
        let _ = self.child.wait();
        self.has_ended();
    }

    fn has_ended(&mut self) {
        self.reaped = true;
        running().leaders.remove(&self.child.id());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
        }
    }
}

fn running() -> MutexGuard<'static, Programs> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // It is gone already, or may not be killed any more: nothing is left to do.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Returns what an exit status means, in words; `None` for success.
pub(super) fn complaint(status: ExitStatus) -> Option<Box<str>> {
    if status.success() {
        return None;
    }
    Some(match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}").into(),
        (None, Some(signal)) => format!("killed by signal {signal}").into(),
        (None, None) => "the command failed".into(),
    })
}

/// Returns whether a program ended because its output has no reader, which is no fault of its keys:
/// it has the standard output of this process, or its standard error in the place of it.
pub(super) fn is_unread(status: ExitStatus, keeps_stdout: bool) -> bool {
    let pipe = Signal::PIPE.as_raw();
    // A shell reports the signal that ended its command as a status.
    let by_pipe = status.signal() == Some(pipe) || status.code() == Some(SHELL_SIGNALS + pipe);
    by_pipe
        && match keeps_stdout {
            true => is_closed(&io::stderr()),
            false => is_closed(&io::stdout()),
        }
}

/// What a shell adds to the number of a signal.
const SHELL_SIGNALS: i32 = 128;

/// Returns whether an output of this process is a pipe without a reader.
fn is_closed(output: &impl AsFd) -> bool {
    let at_once = Timespec::default();
    let mut asked = [PollFd::new(output, PollFlags::empty())];
    let looked = poll(&mut asked, Some(&at_once));
    looked.is_ok() && asked[0].revents().contains(PollFlags::ERR)
}

/// Why a program could not be started at all.
pub(super) fn cannot_start(program: &std::ffi::OsStr, error: &io::Error) -> Broken {
    let program = program.to_string_lossy();
    Broken(match error.kind() {
        io::ErrorKind::NotFound => {
            format!("command `{program}` not found; check its name and PATH").into()
        }
        io::ErrorKind::PermissionDenied => {
            format!("command `{program}` is not executable; check its permissions").into()
        }
        _ => format!("command `{program}` could not be started: {error}").into(),
    })
}
