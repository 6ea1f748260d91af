//! The captured output of a process: in memory up to a bound, and in a temporary file beyond it.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Bytes of one stream of one process that are kept in memory: twice what a pipe holds, which is
/// enough for nearly every command. A hundred commands that flood both streams need 40 MB.
pub(super) const MEMORY_MAX: usize = 128 * 1024;

/// Bytes of one stream of one process that are kept in all. A command that never ends, such as
/// `yes`, would otherwise fill the disk.
const SPILLED_MAX: u64 = 2 << 30;

/// How much is read at once: what a pipe holds on Linux.
const READ_MAX: usize = 64 * 1024;

/// How much is read at first: most commands write less.
const READ_FIRST: usize = 4 * 1024;

/// How long the end of the output is waited for after the end of the process. A process that was
/// left behind may hold it open for ever.
pub(super) const LEFTOVER_PATIENCE: Duration = Duration::from_millis(100);

/// One stream of output of a process.
#[derive(Default)]
pub struct Captured {
    /// All of it, or what follows the bytes in `spilled`.
    memory: Vec<u8>,
    spilled: Option<Spilled>,
}

/// A temporary file without a name.
struct Spilled {
    file: File,
    len: u64,
}

impl Captured {
    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.spilled.as_ref().map_or(0, |spilled| spilled.len) + self.memory.len() as u64
    }

    /// Returns whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes all bytes to `take`, in order and in chunks of at most 128 KiB.
    ///
    /// # Errors
    ///
    /// The error of `take`, or of reading the temporary file.
    pub fn for_each_chunk(&self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if let Some(Spilled { file, len }) = &self.spilled {
            let mut buffer = vec![0; READ_MAX];
            let mut at = 0;
            while at < *len {
                let wanted = usize::try_from(*len - at).unwrap_or(READ_MAX).min(READ_MAX);
                file.read_exact_at(&mut buffer[..wanted], at)?;
                take(&buffer[..wanted])?;
                at += wanted as u64;
            }
        }
        if self.memory.is_empty() { Ok(()) } else { take(&self.memory) }
    }

    /// Returns the last bytes, at most `max`, which is at most [`MEMORY_MAX`].
    ///
    /// Bytes that cannot be read from the temporary file any more are left out.
    pub(super) fn tail(&self, max: usize) -> Vec<u8> {
        let in_memory = &self.memory[self.memory.len().saturating_sub(max)..];
        let mut tail = Vec::new();
        if let Some(Spilled { file, len }) = &self.spilled {
            let wanted = usize::try_from(*len).unwrap_or(max).min(max - in_memory.len());
            tail.resize(wanted, 0);
            if file.read_exact_at(&mut tail, len - wanted as u64).is_err() {
                tail.clear();
            }
        }
        tail.extend_from_slice(in_memory);
        tail
    }

    /// Empties it, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.memory.clear();
        self.spilled = None;
    }

    /// Appends what one read of `pipe` returns; 0 at its end.
    fn read(&mut self, pipe: BorrowedFd<'_>, directory: &Path) -> io::Result<usize> {
        // As much again as there is: the output of most commands costs one small read, and a flood
        // one read for each pipe that was filled.
        let room = self.memory.len().clamp(READ_FIRST, READ_MAX);
        self.memory.reserve_exact(room);
        let read = loop {
            match rustix::io::read(pipe, spare_capacity(&mut self.memory)) {
                Err(Errno::INTR) => {}
                read => break read?,
            }
        };
        if self.memory.len() > MEMORY_MAX {
            self.spill(directory)?;
        }
        Ok(read)
    }

    /// Moves the bytes in memory to the temporary file.
    fn spill(&mut self, directory: &Path) -> io::Result<()> {
        if self.spilled.is_none() {
            self.spilled = Some(Spilled { file: nameless_file(directory)?, len: 0 });
        }
        if let Some(Spilled { file, len }) = &mut self.spilled {
            if *len >= SPILLED_MAX {
                return Err(io::Error::other("more than 2 GiB of output; --ungroup has no limit"));
            }
            file.write_all(&self.memory)?;
            *len += self.memory.len() as u64;
            self.memory.clear();
        }
        Ok(())
    }
}

// The size only: output belongs to the user.
impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Creates a file that is removed when it is closed, and that no other user can read.
pub(crate) fn nameless_file(directory: &Path) -> io::Result<File> {
    let (access, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    #[cfg(target_os = "linux")]
    if let Ok(file) = rustix::fs::open(directory, access | OFlags::TMPFILE, mode) {
        return Ok(file.into());
    }
    // Not every file system has files without a name. `EXCL` refuses the name of another user's
    // file or link, and the number keeps two threads apart.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("gossip-output-{}-{number}", std::process::id()));
    let file = rustix::fs::open(&path, access | OFlags::CREATE | OFlags::EXCL, mode)?;
    std::fs::remove_file(&path)?;
    Ok(file.into())
}

/// The pipes of a running process, and the bytes read from them: its output and its errors.
pub(super) struct OutputPipes {
    /// Our ends; `None` once they have ended.
    pipes: [Option<OwnedFd>; 2],
    captured: [Captured; 2],
    /// The directory of the temporary files.
    directory: Arc<Path>,
    /// Why a part of the output could not be kept; nothing is read any more.
    unkept: Option<io::Error>,
    has_left_processes: bool,
}

impl OutputPipes {
    /// Opens two pipes, and returns the ends of the process as well. `reused` is the memory of an
    /// earlier process.
    pub(super) fn open(
        directory: Arc<Path>,
        mut reused: [Captured; 2],
    ) -> io::Result<(Self, [OwnedFd; 2])> {
        reused.iter_mut().for_each(Captured::clear);
        // Close-on-exec: a program that another thread starts would hold them open, and the end of
        // this one's output would not be seen.
        let (output, its_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (error, its_error) = pipe_with(PipeFlags::CLOEXEC)?;
        let pipes = Self {
            pipes: [Some(output), Some(error)],
            captured: reused,
            directory,
            unkept: None,
            has_left_processes: false,
        };
        Ok((pipes, [its_output, its_error]))
    }

    /// Returns our ends of the pipes that have not ended.
    pub(super) fn open_ends(&self) -> [Option<BorrowedFd<'_>>; 2] {
        self.pipes.each_ref().map(|pipe| pipe.as_ref().map(OwnedFd::as_fd))
    }

    /// Reads once from each pipe that is `readable`; a pipe that is not would block.
    ///
    /// Returns whether the bytes could be kept. If not, the process has to be killed: it would
    /// block when its pipe is full.
    pub(super) fn read(&mut self, readable: [bool; 2]) -> bool {
        for (index, is_readable) in readable.into_iter().enumerate() {
            let Some(pipe) = self.pipes[index].as_ref().filter(|_| is_readable) else { continue };
            match self.captured[index].read(pipe.as_fd(), &self.directory) {
                Ok(0) => self.pipes[index] = None,
                Ok(_) => {}
                Err(error) => {
                    self.pipes = [None, None];
                    self.unkept = Some(error);
                    return false;
                }
            }
        }
        true
    }

    /// Reads what the pipes of a process that has ended still hold. Waits at most
    /// [`LEFTOVER_PATIENCE`] for their end.
    pub(super) fn drain(&mut self) {
        let until = Instant::now() + LEFTOVER_PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.has_left_processes = self.pipes.iter().any(Option::is_some);
            if !self.has_left_processes || left.is_zero() {
                return;
            }
            let readable = poll_pipes(self.open_ends(), left);
            self.read(readable);
        }
    }

    /// Returns why a part of the output could not be kept, if there is one.
    pub(super) const fn unkept(&self) -> Option<&io::Error> {
        self.unkept.as_ref()
    }

    /// Returns whether another process held a pipe open when the process had ended.
    pub(super) const fn has_left_processes(&self) -> bool {
        self.has_left_processes
    }

    /// Returns the bytes read: the output and the errors.
    pub(super) const fn captured(&mut self) -> &mut [Captured; 2] {
        &mut self.captured
    }
}

/// Waits at most `patience` until one of the pipes can be read without blocking.
fn poll_pipes(pipes: [Option<BorrowedFd<'_>>; 2], patience: Duration) -> [bool; 2] {
    let open = pipes.iter().flatten();
    let mut polled: Vec<_> =
        open.map(|pipe| PollFd::from_borrowed_fd(*pipe, PollFlags::IN)).collect();
    // An error is the interruption by a signal, and leaves all entries empty.
    let _ = poll(&mut polled, Timespec::try_from(patience).ok().as_ref());
    let mut ready = polled.iter().map(|entry| !entry.revents().is_empty());
    pipes.map(|pipe| pipe.is_some() && ready.next() == Some(true))
}

// The sizes only: output belongs to the user.
impl fmt::Debug for OutputPipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputPipes").field("captured", &self.captured).finish_non_exhaustive()
    }
}
