//! A running child and its end.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

use super::groups::{Group, lock_ends};
use super::{MAX_PIPES, Woken};

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
        self.wait_or_read([None; MAX_PIPES], patience).map(|woken| woken.ended)
    }

    /// Waits at most `patience` until it has ended or one of `pipes` can be read without blocking,
    /// because it has bytes or is at its end. One system call waits for all of them.
    ///
    /// A child that has ended returns at once; what its pipes still hold is then to be read.
    ///
    /// # Errors
    ///
    /// As [`Self::wait`].
    pub fn wait_or_read(
        &mut self,
        pipes: [Option<BorrowedFd<'_>>; MAX_PIPES],
        patience: Duration,
    ) -> io::Result<Woken> {
        // The entry of a pipe that is not given is not looked at, so it may be any descriptor.
        let mut polled = [(); 1 + MAX_PIPES].map(|()| PollFd::new(&self.pidfd, PollFlags::IN));
        let mut count = 1;
        for pipe in pipes.iter().flatten() {
            polled[count] = PollFd::from_borrowed_fd(*pipe, PollFlags::IN);
            count += 1;
        }
        let patience = if self.status.is_some() { Duration::ZERO } else { patience };
        // A patience beyond the range of the type is as good as endless.
        let patience = Timespec::try_from(patience).ok();
        poll(&mut polled[..count], patience.as_ref())?;
        let mut ready = polled.map(|entry| !entry.revents().is_empty()).into_iter();
        if ready.next() == Some(true) && self.status.is_none() {
            self.reap()?;
        }
        let readable = pipes.map(|pipe| pipe.is_some() && ready.next() == Some(true));
        Ok(Woken { ended: self.status, readable })
    }

    /// Returns whether it has ended; the processes it started may still run.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        self.status.is_some() || poll(&mut polled, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    /// Kills its process group. Its own end is left to [`Self::wait`].
    pub fn kill_group(&self) {
        // Until it is waited for, no other process can have its number or its group's.
        if self.status.is_none() {
            kill_group(self.id);
        }
    }

    /// Takes the status of a child that has ended or was killed.
    fn reap(&mut self) -> io::Result<()> {
        let _ends = lock_ends();
        // Cleared first: once the child is waited for, its number may belong to another process.
        self.group.clear();
        loop {
            match waitpid(Some(self.id), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
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

/// Kills a child with its group, or alone if it is in the group of this process.
pub(super) fn kill_group(leader: Pid) {
    // Any other failure means that it is gone, or may not be killed: nothing is left to do.
    if kill_process_group(leader, Signal::KILL) == Err(Errno::SRCH) {
        let _ = kill_process(leader, Signal::KILL);
    }
}
