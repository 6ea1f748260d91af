//! A running program and the two pipes to it.
//!
//! Our ends of the pipes do not block, and one thread waits for both at once: a program that writes
//! before it reads fills its output and is read from while its input is full. The ends of the
//! program are ordinary pipes.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::super::child::{End, Launcher, Running, Stdio};
use super::answer::{Line, next_line};
use super::{DRAIN_PATIENCE, MAX_LINE_BYTES};
use crate::worker::Drain;

/// Bytes of the buffer of a program's output: twice as much as a pipe holds on Linux, so that an
/// incomplete line and a full pipe fit.
const BUFFER_BYTES: usize = 128 * 1024;

/// How much is gathered before it is written without waiting for more: a pipe holds as much.
const WRITE_BYTES: usize = 64 * 1024;

/// How often a program that is to finish is checked for its exit, because a process that it started
/// may keep its output open.
const EXIT_CHECK: Duration = Duration::from_millis(100);

/// A running program and what lies between it and us.
pub(super) struct Pipes {
    running: Running,
    /// Our end of its input; `None` once it was closed, or the program has closed its own.
    input: Option<OwnedFd>,
    /// Our end of its output; `None` once it has ended.
    output: Option<OwnedFd>,
    /// Whether the input is to be closed after the rest of `outgoing`.
    is_closed: bool,
    /// To be written from `written` on.
    outgoing: Vec<u8>,
    written: usize,
    /// Output that was read and not taken is at `taken..filled`.
    incoming: Box<[u8]>,
    taken: usize,
    filled: usize,
}

/// What [`Pipes::wait`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Output.
    Bytes,
    /// Nothing, for the whole time.
    Nothing,
    /// The end of the program, or of its output.
    End,
}

impl Pipes {
    /// Starts a program.
    pub(super) fn start(launcher: &Launcher, arguments: &[OsString]) -> io::Result<Self> {
        // Close-on-exec: a program that another thread starts would hold them open, and the end of
        // this one would not be seen.
        let (its_input, input) = pipe_with(PipeFlags::CLOEXEC)?;
        let (output, its_output) = pipe_with(PipeFlags::CLOEXEC)?;
        // Only our ends: few programs expect that a read or a write fails for now.
        for ours in [&input, &output] {
            fcntl_setfl(ours, fcntl_getfl(ours)? | OFlags::NONBLOCK)?;
        }
        let stdio = Stdio::Pipes { input: its_input.as_fd(), output: its_output.as_fd() };
        let running = launcher.start(arguments.iter().cloned(), None, stdio)?;
        Ok(Self {
            running,
            input: Some(input),
            output: Some(output),
            is_closed: false,
            outgoing: Vec::new(),
            written: 0,
            incoming: vec![0; BUFFER_BYTES].into_boxed_slice(),
            taken: 0,
            filled: 0,
        })
    }

    /// Returns whether its input was closed.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Appends a line that `write` writes. It is sent with the next wait, or when enough was
    /// gathered.
    pub(super) fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.input.is_none() {
            // A program that is gone is detected where its answers are read.
            return;
        }
        write(&mut self.outgoing);
        if self.outgoing.len() - self.written >= WRITE_BYTES {
            self.flush();
        }
    }

    /// Ends its input after `last`.
    pub(super) fn close_input(&mut self, last: &[u8]) {
        if !self.is_closed {
            self.say(|outgoing| outgoing.extend_from_slice(last));
            self.is_closed = true;
            self.flush();
        }
    }

    /// Removes and returns the next line that was read.
    pub(super) fn take_line(&mut self) -> Option<Line<'_>> {
        let mut rest = &self.incoming[self.taken..self.filled];
        let before = rest.len();
        let line = next_line(&mut rest, self.output.is_none());
        self.taken += before - rest.len();
        line
    }

    /// Writes the gathered lines, and waits at most `patience` for output.
    pub(super) fn wait(&mut self, patience: Duration) -> Heard {
        self.flush();
        let deadline = Instant::now().checked_add(patience);
        loop {
            let Some(output) = &self.output else { return Heard::End };
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match self.poll(output, left) {
                Ready { output: true, .. } => match self.read() {
                    Ok(0) => return Heard::End,
                    Ok(_) => return Heard::Bytes,
                    Err(NotNow) => {}
                },
                Ready { input: true, .. } => self.flush(),
                // After a signal the rest of the time is waited.
                Ready { .. } if left.is_none_or(|left| !left.is_zero()) => {}
                Ready { .. } => return self.look_for_end(),
            }
        }
    }

    /// Returns [`Heard::End`] if the program has exited, although something that it started may
    /// hold its output open.
    fn look_for_end(&mut self) -> Heard {
        if !self.running.leader_has_ended() {
            return Heard::Nothing;
        }
        // What it wrote before its exit is in the pipe.
        match self.read() {
            Ok(0) => Heard::End,
            Ok(_) => Heard::Bytes,
            Err(NotNow) => {
                self.running.kill_rest();
                self.output = None;
                Heard::End
            }
        }
    }

    /// Returns the end of a program that has closed its output; one that runs on is as useless as
    /// one that has exited with success.
    pub(super) fn how_it_ended(&mut self, drain: &Drain) -> End {
        let ended = self.running.wait(Duration::from_secs(1));
        ended.ok().flatten().map_or(End::Success, |status| End::of(status, drain))
    }

    /// Lets the program finish, after `last`; its output is dropped. Dropped, it is killed if it
    /// did not.
    pub(super) fn finish(mut self, last: &[u8]) {
        self.close_input(last);
        let begun = Instant::now();
        let left = || DRAIN_PATIENCE.saturating_sub(begun.elapsed());
        // Read to the end: a program blocked in a write would never exit.
        while !left().is_zero() && self.wait(left().min(EXIT_CHECK)) != Heard::End {
            (self.taken, self.filled) = (0, 0);
        }
        let _ = self.running.wait(left());
    }

    /// Writes as much as the pipe takes.
    pub(super) fn flush(&mut self) {
        while let Some(input) = self.input.as_ref().filter(|_| self.written < self.outgoing.len()) {
            match rustix::io::write(input, &self.outgoing[self.written..]) {
                Ok(written) => self.written += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // It reads no more. Whether that is a failure is seen where its answers are read.
                Err(_) => self.input = None,
            }
        }
        self.outgoing.clear();
        self.written = 0;
        if self.is_closed {
            self.input = None;
        }
    }

    /// Reads once; returns how much, 0 at the end.
    fn read(&mut self) -> Result<usize, NotNow> {
        let Some(output) = &self.output else { return Ok(0) };
        self.incoming.copy_within(self.taken..self.filled, 0);
        (self.taken, self.filled) = (0, self.filled - self.taken);
        match rustix::io::read(output, &mut self.incoming[self.filled..]) {
            Err(Errno::AGAIN | Errno::INTR) => Err(NotNow),
            // A failed read ends the output as an exit does; the caller asks how it ended.
            Ok(0) | Err(_) => {
                self.output = None;
                Ok(0)
            }
            Ok(read) => {
                self.filled += read;
                Ok(read)
            }
        }
    }

    /// Waits until there is output, or room in the input if something is to be written.
    fn poll(&self, output: &OwnedFd, patience: Option<Duration>) -> Ready {
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let readable = PollFd::new(output, PollFlags::IN);
        let waiting = self.input.as_ref().filter(|_| !self.outgoing.is_empty());
        let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        match waiting {
            None => {
                let mut polled = [readable];
                let done = poll(&mut polled, patience.as_ref());
                Ready { output: done.is_ok() && is_ready(&polled[0]), input: false }
            }
            Some(input) => {
                let mut polled = [readable, PollFd::new(input, PollFlags::OUT)];
                // A failure is a signal: the caller waits again, for the rest of its time.
                let done = poll(&mut polled, patience.as_ref()).is_ok();
                let [output, input] = polled.map(|polled| done && is_ready(&polled));
                Ready { output, input }
            }
        }
    }
}

/// There is no output to read now.
struct NotNow;

/// Which pipes are ready, or at their end.
#[derive(Clone, Copy)]
struct Ready {
    output: bool,
    input: bool,
}

// All lines are taken before more is read, so the rest is part of one line.
const _: () = assert!(BUFFER_BYTES > MAX_LINE_BYTES + 1);
