//! Messages on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use crate::failure::Failure;

/// Width of a terminal that does not report its own.
const DEFAULT_COLUMNS: usize = 80;

/// Standard error, shared by all threads.
#[derive(Debug)]
pub(crate) struct Console {
    level: Level,
    /// Width of the progress line on the terminal; 0 if there is none.
    painted: Mutex<usize>,
    is_terminal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Quiet,
    Normal,
    Verbose,
}

impl Console {
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let level = match (quiet, verbose) {
            (true, _) => Level::Quiet,
            (false, true) => Level::Verbose,
            (false, false) => Level::Normal,
        };
        let is_terminal = io::stderr().is_terminal();
        Self { level, painted: Mutex::new(0), is_terminal }
    }

    /// Returns whether only errors are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.level == Level::Quiet
    }

    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Prints a message, unless quiet.
    pub(crate) fn note(&self, text: &str) {
        if self.level >= Level::Normal {
            self.line(text);
        }
    }

    /// Prints a message if verbose.
    pub(crate) fn detail(&self, text: &str) {
        if self.level >= Level::Verbose {
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
            // A closed standard error is no reason to stop.
            let _ = write!(io::stderr(), "\r{text}{:blank$}", "");
            *painted = columns;
        }
    }

    fn line(&self, text: &str) {
        let mut painted = self.painted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stderr = io::stderr().lock();
        if *painted > 0 {
            let width = *painted;
            let _ = write!(stderr, "\r{:width$}\r", "");
            *painted = 0;
        }
        let _ = writeln!(stderr, "{text}");
    }
}

/// Returns the width of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(DEFAULT_COLUMNS)
}
