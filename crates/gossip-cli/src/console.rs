//! Messages on standard error.

use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, OnceLock, PoisonError};

use gossip::runtime::Drain;

use crate::failure::Failure;
use crate::output;

/// Width of a terminal that does not report its own.
const DEFAULT_COLUMNS: usize = 80;

/// Standard error, shared by all threads.
#[derive(Debug)]
pub(crate) struct Console {
    level: Level,
    /// Width of the progress line on the terminal; 0 if there is none.
    painted: Mutex<usize>,
    is_terminal: bool,
    /// Drained when standard error is closed.
    drain: OnceLock<Drain>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Quiet,
    Normal,
    /// `-v`.
    Verbose,
    /// `-vv`.
    Debug,
}

impl Console {
    /// Returns a console; `verbose` is the number of `-v`.
    pub(crate) fn new(quiet: bool, verbose: u8) -> Self {
        let level = match (quiet, verbose) {
            (true, _) => Level::Quiet,
            (false, 0) => Level::Normal,
            (false, 1) => Level::Verbose,
            (false, 2..) => Level::Debug,
        };
        let is_terminal = io::stderr().is_terminal();
        Self { level, painted: Mutex::new(0), is_terminal, drain: OnceLock::new() }
    }

    /// Requests a drain when standard error turns out to be a pipe without a reader: the output of
    /// commands has no reader then, either.
    pub(crate) fn drain_when_closed(&self, drain: &Drain) {
        self.drain.get_or_init(|| drain.clone());
    }

    /// Returns whether only failures are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.level == Level::Quiet
    }

    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Prints that something failed, also if quiet.
    pub(crate) fn problem(&self, text: &str) {
        self.line(text);
    }

    /// Prints a message, unless quiet.
    pub(crate) fn note(&self, text: &str) {
        if self.level >= Level::Normal {
            self.line(text);
        }
    }

    /// Prints a message with `-v`.
    pub(crate) fn detail(&self, text: &str) {
        if self.level >= Level::Verbose {
            self.line(text);
        }
    }

    /// Prints a message with `-vv`.
    pub(crate) fn debug(&self, text: &str) {
        if self.level >= Level::Debug {
            self.line(text);
        }
    }

    /// Prints an error.
    pub(crate) fn failure(&self, failure: &Failure) {
        self.line(&format!("gossip: {}", failure.what));
        if let Some(why) = &failure.why {
            self.line(&format!("  why:  {why}"));
        }
        if let Some(next) = &failure.next {
            self.line(&format!("  next: {next}"));
        }
    }

    /// Replaces the progress line.
    pub(crate) fn paint(&self, text: &str) {
        if self.level >= Level::Normal {
            // A wrapped line could not be replaced.
            let text: String = text.chars().take(columns().saturating_sub(1)).collect();
            let columns = text.chars().count();
            let mut painted = self.painted.lock().unwrap_or_else(PoisonError::into_inner);
            let blank = painted.saturating_sub(columns);
            self.write(&format!("\r{text}{:blank$}", ""));
            *painted = columns;
        }
    }

    fn line(&self, text: &str) {
        let mut painted = self.painted.lock().unwrap_or_else(PoisonError::into_inner);
        let width = std::mem::take(&mut *painted);
        let blank = if width > 0 { format!("\r{:width$}\r", "") } else { String::new() };
        self.write(&format!("{blank}{text}\n"));
    }

    fn write(&self, text: &str) {
        let written = output::write_to(&io::stderr(), text.as_bytes());
        let closed = written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        // Any other error, such as that of a terminal that is gone, cannot be reported anywhere.
        if let Some(drain) = self.drain.get().filter(|_| closed) {
            drain.ask();
        }
    }
}

/// Returns the width of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(DEFAULT_COLUMNS)
}
