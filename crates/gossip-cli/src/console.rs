//! What is said to people, on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use crate::failure::Failure;

/// The width of a terminal that does not tell its own.
const COLUMNS_USUAL: usize = 80;

/// Standard error, shared by all threads.
#[derive(Debug)]
pub(crate) struct Console {
    level: Level,
    /// How many columns of a line that is drawn over stand there.
    painted: Mutex<usize>,
    is_terminal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Quiet,
    Usual,
    Verbose,
}

impl Console {
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let level = match (quiet, verbose) {
            (true, _) => Level::Quiet,
            (false, true) => Level::Verbose,
            (false, false) => Level::Usual,
        };
        let is_terminal = io::stderr().is_terminal();
        Self { level, painted: Mutex::new(0), is_terminal }
    }

    /// Whether anything but failures is said.
    pub(crate) fn is_heard(&self) -> bool {
        self.level >= Level::Usual
    }

    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Something worth knowing.
    pub(crate) fn note(&self, text: &str) {
        if self.level >= Level::Usual {
            self.line(text);
        }
    }

    /// Something for the curious.
    pub(crate) fn detail(&self, text: &str) {
        if self.level >= Level::Verbose {
            self.line(text);
        }
    }

    /// Why the program did not do what it was asked.
    pub(crate) fn failure(&self, failure: &Failure) {
        self.line(&format!("gossip: {}", failure.what));
        if let Some(why) = &failure.why {
            self.line(&format!("  why:  {why}"));
        }
        if let Some(next) = &failure.next {
            self.line(&format!("  next: {next}"));
        }
    }

    /// Draws a line over the last one that was drawn.
    pub(crate) fn paint(&self, text: &str) {
        if self.level >= Level::Usual {
            // A line that wraps could not be drawn over.
            let text: String = text.chars().take(columns().saturating_sub(1)).collect();
            let columns = text.chars().count();
            let mut painted = self.painted.lock().unwrap_or_else(PoisonError::into_inner);
            let blank = painted.saturating_sub(columns);
            // Whoever closed standard error does not want to know.
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

/// How wide the terminal is; as narrow as any if it does not say.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(COLUMNS_USUAL)
}
