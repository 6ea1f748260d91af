//! One `gossip worker` and its handlers, which are killed, suspended and resumed together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::Outcome;
use crate::fleet::handler;

/// A running worker; ended with its handlers when it is dropped.
pub(crate) struct Worker {
    pub(crate) name: String,
    directory: PathBuf,
    child: Option<Child>,
}

impl Worker {
    pub(crate) fn start(command: &mut Command, name: String, directory: &Path) -> Outcome<Self> {
        let child = command.spawn()?;
        Ok(Self { name, directory: directory.to_path_buf(), child: Some(child) })
    }

    /// Kills it and its handlers.
    pub(crate) fn kill(&mut self) -> Outcome<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            for handler in self.handlers()? {
                signal(handler, Signal::KILL);
            }
            child.wait()?;
        }
        Ok(())
    }

    /// Suspends it and its handlers; the handlers first, in the middle of their keys.
    pub(crate) fn stop(&self) -> Outcome<()> {
        self.signal_all(Signal::STOP)
    }

    /// Resumes it and its handlers.
    pub(crate) fn resume(&self) -> Outcome<()> {
        self.signal_all(Signal::CONT)
    }

    /// Returns whether the worker and all handlers are suspended.
    pub(crate) fn is_stopped(&self) -> Outcome<bool> {
        let all = self.handlers()?.into_iter().chain(self.child.as_ref().map(Child::id));
        Ok(all.map(state).all(|state| matches!(state, Some('T' | 'Z') | None)))
    }

    /// Requests a drain.
    pub(crate) fn drain(&self) {
        if let Some(child) = &self.child {
            signal(child.id(), Signal::TERM);
        }
    }

    /// Waits for the worker to end.
    pub(crate) fn finish(&mut self) -> Outcome<Output> {
        let child = self.child.take().ok_or("the worker has already ended")?;
        Ok(child.wait_with_output()?)
    }

    pub(crate) fn has_ended(&mut self) -> Outcome<bool> {
        Ok(match &mut self.child {
            Some(child) => child.try_wait()?.is_some(),
            None => true,
        })
    }

    /// Returns the last key and fence that each handler has begun; `None` if it has begun none.
    pub(crate) fn last_begun(&self) -> Outcome<Vec<Option<(u64, u64)>>> {
        let mut last = Vec::new();
        for pid in self.handlers()? {
            let notes = self.directory.join(handler::notes(&self.name, pid));
            let text = fs::read_to_string(notes)?;
            last.push(match text.lines().last().and_then(|line| line.split_once(' ')) {
                Some((key, fence)) => Some((key.parse()?, fence.parse()?)),
                None => None,
            });
        }
        Ok(last)
    }

    /// Returns the process ids of its handlers, from the names of their record files.
    fn handlers(&self) -> Outcome<Vec<u32>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let rest = name.strip_prefix("begun.").and_then(|rest| rest.split_once('.'));
            if let Some((worker, pid)) = rest
                && worker == self.name
                && is_alive(pid.parse()?)
            {
                found.push(pid.parse()?);
            }
        }
        Ok(found)
    }

    fn signal_all(&self, what: Signal) -> Outcome<()> {
        for handler in self.handlers()? {
            signal(handler, what);
        }
        if let Some(child) = &self.child {
            signal(child.id(), what);
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A failed trial reports its own error; a process that cannot be killed has ended.
        let _ = self.resume();
        let _ = self.kill();
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

fn is_alive(number: u32) -> bool {
    pid(number).is_some_and(|pid| test_kill_process(pid).is_ok())
}

fn signal(number: u32, signal: Signal) {
    if let Some(pid) = pid(number) {
        // The process may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// Returns the state letter of a process from `/proc`.
fn state(number: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
