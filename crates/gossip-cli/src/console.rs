//! Messages on standard error.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use gossip::runtime::Drain;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Record;
use crate::screen::{Screen, Stream};

/// Standard error, shared by all threads.
#[derive(Debug)]
pub(crate) struct Console {
    level: Level,
    screen: Arc<Screen>,
    /// Whether messages are JSON lines.
    is_json: AtomicBool,
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
    pub(crate) const fn new(quiet: bool, verbose: u8, screen: Arc<Screen>) -> Self {
        let level = match (quiet, verbose) {
            (true, _) => Level::Quiet,
            (false, 0) => Level::Normal,
            (false, 1) => Level::Verbose,
            (false, 2..) => Level::Debug,
        };
        Self { level, screen, is_json: AtomicBool::new(false), drain: OnceLock::new() }
    }

    /// Requests a drain when standard error turns out to be a pipe without a reader: the output of
    /// commands has no reader then, either.
    pub(crate) fn drain_when_closed(&self, drain: &Drain) {
        self.drain.get_or_init(|| drain.clone());
    }

    /// Prints every message as a JSON line from now on.
    pub(crate) fn use_json(&self) {
        self.is_json.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_json(&self) -> bool {
        self.is_json.load(Ordering::Relaxed)
    }

    /// Returns whether only failures are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.level == Level::Quiet
    }

    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Prints that something failed, also if quiet.
    pub(crate) fn problem(&self, text: &str) {
        self.message("problem", text);
    }

    /// Prints a message, unless quiet.
    pub(crate) fn note(&self, text: &str) {
        if self.level >= Level::Normal {
            self.message("note", text);
        }
    }

    /// Prints a message with `-v`.
    pub(crate) fn detail(&self, text: &str) {
        if self.level >= Level::Verbose {
            self.message("detail", text);
        }
    }

    /// Prints a message with `-vv`.
    pub(crate) fn debug(&self, text: &str) {
        if self.level >= Level::Debug {
            self.message("debug", text);
        }
    }

    /// Prints an error.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.is_json() {
            let event = Record::new()
                .with("type", "error")
                .with("message", failure.what.as_str())
                .with("why", failure.why.clone())
                .with("next", failure.next.clone());
            // No text beside it: programs read each line as JSON.
            return self.event(&event);
        }
        let mut text = format!("gossip: {}\n", failure.what);
        for (label, part) in [("why: ", &failure.why), ("next:", &failure.next)] {
            text.extend(part.iter().map(|part| format!("  {label} {part}\n")));
        }
        self.write(&text);
    }

    /// Prints an event as a JSON line.
    pub(crate) fn event(&self, event: &Record) {
        self.write(&format!("{}\n", event.to_json()));
    }

    /// Prints an event of `--progress json`, if that is selected, and returns whether it is.
    pub(crate) fn event_if_json(&self, event: impl FnOnce() -> Record) -> bool {
        let is_json = self.is_json();
        if is_json {
            self.event(&event());
        }
        is_json
    }

    fn message(&self, level: &str, text: &str) {
        match self.is_json() {
            true => {
                let event = json!({ "type": "message", "level": level, "message": text });
                self.write(&format!("{event}\n"));
            }
            false => self.write(&format!("{text}\n")),
        }
    }

    fn write(&self, text: &str) {
        let written = self.screen.print(Stream::Stderr, text.as_bytes());
        // A closed pipe is the reader that has left, as `head` does.
        let closed = written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        // Any other error, such as that of a terminal that is gone, cannot be reported anywhere.
        if let Some(drain) = self.drain.get().filter(|_| closed) {
            drain.ask();
        }
    }
}
