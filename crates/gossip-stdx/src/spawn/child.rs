//! A running child and its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};

use super::groups::{Group, lock_ends};

/// A running child; it and its process group are killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    id: Pid,
    /// Readable once the child has ended.
    pidfd: OwnedFd,
    group: &'static Group,
    status: Option<ExitStatus>,
}

impl Child {
    pub(super) const fn new(id: Pid, pidfd: OwnedFd, group: &'static Group) -> Self {
        Self { id, pidfd, group, status: None }
    }

    /// Returns its process id, which is also that of its group and its session.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits at most `patience` for its end, and returns its status if it has ended.
    ///
    /// # Errors
    ///
    /// `Interrupted` if a signal handler ran meanwhile: call it again with the time that is left.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && self.poll(patience)? {
            self.reap()?;
        }
        Ok(self.status)
    }

    /// Returns whether it has ended; the processes it started may still run.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status.is_some() || self.poll(Duration::ZERO).unwrap_or(false)
    }

    /// Kills its process group. Its own end is left to [`Self::wait`].
    pub fn kill_group(&self) {
        // Until it is waited for, no other process can have its number or its group's.
        if self.status.is_none() {
            kill_group(self.id);
        }
    }

    fn poll(&self, patience: Duration) -> io::Result<bool> {
        // A patience beyond the range of the type is as good as endless.
        let patience = Timespec::try_from(patience).ok();
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        Ok(poll(&mut polled, patience.as_ref())? > 0)
    }

    /// Takes the status of a child that has ended or was killed.
    fn reap(&mut self) -> io::Result<()> {
        let _ends = lock_ends();
        // Cleared first: once the child is waited for, its number may belong to another process.
        self.group.clear();
        loop {
            match waitpid(Some(self.id), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(ended) => {
                    let status = ended.map_or(0, |(_, status)| status.as_raw());
                    self.status = Some(ExitStatus::from_raw(status));
                    return Ok(());
                }
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill_group();
            // It was killed, so this does not take long; a failure means that it is gone.
            let _ = self.reap();
        }
    }
}

pub(super) fn kill_group(leader: Pid) {
    // It is gone already, or may not be killed any more: nothing is left to do.
    let _ = kill_process_group(leader, Signal::KILL);
}
