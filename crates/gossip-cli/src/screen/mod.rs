//! What a person sees: the only code that draws on the terminal.
//!
//! ```text
//!  workers ──atomics, slots──► View ──frame──► lines ──Canvas──► bytes ──one write──► terminal
//!  store   ──once a second──►    │                        ▲
//!  messages, commands' output ───┴── Screen::print ───────┘
//! ```
//!
//! While a frame is drawn, everything that goes to its terminal passes through [`Screen::print`]:
//! it is printed above the frame, in whole lines, by the thread that draws. Otherwise `print`
//! writes at once.
//!
//! # Never
//! - hides the cursor or sets attributes beyond one write, so that nothing needs to be restored
//!   after a crash or a kill;
//! - draws while another process group has the foreground of the terminal, or over text that was
//!   written while this process was stopped;
//! - draws more often than every [`FRAME_SHORTEST`], or without a change.

mod canvas;
pub(crate) mod frame;
pub(crate) mod jobs;
pub(crate) mod map;
pub(crate) mod style;
pub(crate) mod text;
pub(crate) mod view;

#[cfg(test)]
mod emulator;

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use signal_hook::consts::SIGCONT;

use self::canvas::Canvas;
use self::frame::Size;
use self::style::{Color, Style, has_cursor_control};
use self::view::View;
use crate::output::write_to;

/// The shortest time between two writes of a frame: twenty frames per second.
const FRAME_SHORTEST: Duration = Duration::from_millis(50);

/// How often the data of a frame is looked at. A frame is written only if it differs.
const FRAME_EVERY: Duration = Duration::from_millis(100);

/// Work that ends sooner is drawn no frame for: it would only flash.
const FRAME_FIRST: Duration = Duration::from_millis(300);

/// Text that waits for the next frame at most. The thread that exceeds it writes it, so a slow
/// terminal slows the commands down and fills no memory.
const PENDING_MAX: usize = 256 * 1024;

/// Size of a terminal that does not report its own.
const DEFAULT_SIZE: Size = Size { columns: 80, rows: 24 };

/// Where a text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Standard output and standard error of this process.
#[derive(Debug)]
pub(crate) struct Screen {
    style: Style,
    /// Whether standard output is the same terminal as standard error.
    has_stdout: bool,
    /// Whether frames can be drawn on standard error.
    can_draw: bool,
    state: Mutex<State>,
    /// Signalled when text waits, and when the painter is to end.
    wake: Condvar,
    /// One writer at a time of a stream that is not drawn on.
    direct: [Mutex<()>; 2],
    /// Set when the process continues after it was stopped.
    has_continued: OnceLock<Arc<AtomicBool>>,
}

#[derive(Debug, Default)]
struct State {
    canvas: Canvas,
    /// Whether the painter draws, so that text for its terminal waits for it.
    is_live: bool,
    pending: Vec<u8>,
    is_over: bool,
}

impl Screen {
    pub(crate) fn new(color: Color) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self {
            style: Style::of(color, is_terminal),
            has_stdout: is_terminal && io::stdout().is_terminal() && is_one_terminal(),
            can_draw: is_terminal && has_cursor_control(),
            state: Mutex::default(),
            wake: Condvar::new(),
            direct: Default::default(),
            has_continued: OnceLock::new(),
        }
    }

    /// Returns whether frames can be drawn: standard error is a terminal with cursor control.
    pub(crate) const fn can_draw(&self) -> bool {
        self.can_draw
    }

    pub(crate) const fn style(&self) -> Style {
        self.style
    }

    /// Prints whole lines: above the frame if one is drawn on that terminal.
    ///
    /// A line feed is added to the last line where a frame follows it. Fails if the stream is
    /// closed; other errors of a terminal are ignored, because it is gone then.
    pub(crate) fn print(&self, stream: Stream, lines: &[u8]) -> io::Result<()> {
        if !self.is_drawn_on(stream) {
            // Whole calls take turns, so that lines of two threads do not mix.
            let _alone =
                self.direct[stream as usize].lock().unwrap_or_else(PoisonError::into_inner);
            return write(stream, lines);
        }
        let mut state = self.lock();
        if !state.is_live {
            return write(stream, lines);
        }
        state.pending.extend_from_slice(lines);
        if lines.last().is_some_and(|last| *last != b'\n') {
            state.pending.push(b'\n');
        }
        // The painter writes it with the next frame, which costs one write for many lines.
        if state.pending.len() < PENDING_MAX {
            self.wake.notify_one();
            return Ok(());
        }
        let pending = std::mem::take(&mut state.pending);
        let bytes = state.canvas.print(&pending, size().columns);
        write(Stream::Stderr, &bytes)
    }

    /// Draws frames of what `views` returns until [`Self::end`] is called. One thread calls it.
    pub(crate) fn paint(&self, mut views: impl FnMut(Instant) -> Vec<View>) {
        let continued = self.has_continued.get_or_init(note_continuation);
        let mut next = Instant::now() + FRAME_FIRST;
        let mut written = Instant::now();
        loop {
            let state = self.lock();
            let patience = next.saturating_duration_since(Instant::now());
            let waits = |state: &mut State| state.pending.is_empty() && !state.is_over;
            let waited = self.wake.wait_timeout_while(state, patience, waits);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            drop(state);
            thread::sleep(pause_before_frame(written.elapsed()));
            // Without the lock: it may read the names of items from the source.
            let views = views(Instant::now());
            // The shell has written while the process was stopped, and the cursor is somewhere
            // else.
            if continued.swap(false, Ordering::Relaxed) {
                self.lock().canvas.forget();
            }
            if self.draw(&views) {
                written = Instant::now();
            }
            next = Instant::now() + FRAME_EVERY;
        }
    }

    /// Draws a frame and the text that waits, in one write. Returns whether anything was written.
    fn draw(&self, views: &[View]) -> bool {
        let mut state = self.lock();
        // Checked again: `end` may have been called since the wait.
        if state.is_over {
            return false;
        }
        // Asked for each frame, because the shell may move the process at any time.
        state.is_live = is_in_foreground();
        let pending = std::mem::take(&mut state.pending);
        let bytes = if state.is_live {
            let size = size();
            let lines = frame::all(views, size, self.style);
            state.canvas.draw(&pending, &lines, size, self.style)
        } else {
            // The shell, or a program that it runs, has the terminal.
            state.canvas.forget();
            Some(pending).filter(|pending| !pending.is_empty())
        };
        let Some(bytes) = bytes else { return false };
        // A terminal that is gone cannot be reported anywhere; the drain comes with SIGHUP.
        let _ = write(Stream::Stderr, &bytes);
        true
    }

    /// Erases the frame, prints the text that waits, and draws no more. Returns at once if there is
    /// no frame; [`Self::print`] writes at once afterwards.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        Self::erase(&mut state);
        // After the erasure and under the lock, so that no frame is drawn in between.
        state.is_over = true;
        self.wake.notify_all();
    }

    fn erase(state: &mut State) {
        state.is_live = false;
        let pending = std::mem::take(&mut state.pending);
        let bytes = state.canvas.erase(&pending, size().columns);
        if !bytes.is_empty() {
            // As in `draw`.
            let _ = write(Stream::Stderr, &bytes);
        }
    }

    /// Erases the frame, if one is drawn on that terminal, and calls `print`, which writes to the
    /// stream. No other thread writes to it meanwhile; the next frame is drawn below.
    pub(crate) fn uncovered(
        &self,
        stream: Stream,
        print: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.is_drawn_on(stream) {
            let _alone =
                self.direct[stream as usize].lock().unwrap_or_else(PoisonError::into_inner);
            return print();
        }
        let mut state = self.lock();
        Self::erase(&mut state);
        print()
    }

    /// Returns whether frames may be drawn on the terminal of a stream.
    pub(crate) fn is_drawn_on(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stderr => self.can_draw,
            Stream::Stdout => self.can_draw && self.has_stdout,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how long the painter pauses before a frame, by the time since the last one was written:
/// text that comes in between waits for that frame.
fn pause_before_frame(since_written: Duration) -> Duration {
    FRAME_SHORTEST.saturating_sub(since_written)
}

/// How long a panic waits for a frame that is being written: it must be printed in any case, and
/// may have happened in the painter itself.
const PANIC_PATIENCE: Duration = Duration::from_millis(100);

/// Erases the frame before a panic is printed; the next frame is drawn below it.
pub(crate) fn hook_panics(screen: &Arc<Screen>) {
    // The present hook prints the message; this one only makes room for it.
    let (screen, print) = (Arc::clone(screen), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        let begun = Instant::now();
        let state = loop {
            match screen.state.try_lock() {
                Ok(state) => break Some(state),
                Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if begun.elapsed() >= PANIC_PATIENCE => break None,
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            }
        };
        // Held until it is printed.
        let _state = state.map(|mut state| {
            Screen::erase(&mut state);
            state
        });
        print(info);
    }));
}

/// Notes from now on that the process was continued.
fn note_continuation() -> Arc<AtomicBool> {
    let continued = Arc::new(AtomicBool::new(false));
    // Without it a frame is drawn over the shell's message after Ctrl-Z, which does no harm.
    let _ = signal_hook::flag::register(SIGCONT, Arc::clone(&continued));
    continued
}

/// Returns whether this process may draw: it is not in the background of a shell.
fn is_in_foreground() -> bool {
    // Without a controlling terminal there is no shell that it could disturb.
    tcgetpgrp(io::stderr()).map_or(true, |group| group == getpgrp())
}

/// Returns the size of the terminal, which may change at any time.
fn size() -> Size {
    let Ok(size) = tcgetwinsize(io::stderr()) else { return DEFAULT_SIZE };
    // A terminal without a known size reports zeros.
    let known = |reported: u16, default| if reported > 0 { usize::from(reported) } else { default };
    Size {
        columns: known(size.ws_col, DEFAULT_SIZE.columns),
        rows: known(size.ws_row, DEFAULT_SIZE.rows),
    }
}

/// Returns the width of a terminal.
pub(crate) fn columns_of(terminal: &impl std::os::fd::AsFd) -> usize {
    let size = tcgetwinsize(terminal).ok().map(|size| usize::from(size.ws_col));
    size.filter(|columns| *columns > 0).unwrap_or(DEFAULT_SIZE.columns)
}

/// Returns whether standard output and standard error are the same terminal.
fn is_one_terminal() -> bool {
    let device = |output: io::Result<std::os::fd::OwnedFd>| {
        let device = File::from(output.ok()?).metadata().ok()?;
        // The device and not the file: one terminal may be open under several names.
        Some(device.rdev())
    };
    let stdout = device(io::stdout().as_fd().try_clone_to_owned());
    stdout.is_some() && stdout == device(io::stderr().as_fd().try_clone_to_owned())
}

impl Stream {
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }
}

/// Writes bytes as they are, beside any frame.
pub(crate) fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => write_to(&io::stdout(), bytes),
        Stream::Stderr => write_to(&io::stderr(), bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However often the painter is woken, as by a command that floods its output.
    #[test]
    fn frames_are_written_at_most_twenty_times_a_second() {
        for woken_every in [1, 7, 49, 50, 51, 130] {
            let (mut now, mut written) = (0_u64, vec![0_u64]);
            while now < 10_000 {
                now += woken_every;
                let since = Duration::from_millis(now - written.last().unwrap());
                now += u64::try_from(pause_before_frame(since).as_millis()).unwrap();
                written.push(now);
            }
            for second in written.windows(21) {
                let lasted = second[20] - second[0];
                assert!(lasted >= 1_000, "21 frames in {lasted} ms, woken every {woken_every} ms");
            }
        }
    }
}
