//! Any program as a processor.
//!
//! Two ways: [`BatchProcessor`] starts the program once for some keys, which take the place of `{}`
//! among its arguments; [`StreamProcessor`] keeps it running and speaks JSON lines with it.
//!
//! Every program runs in a process group of its own: a Ctrl-C at the terminal reaches us and not
//! the program, which finishes its item; and when it has to be ended, whatever it has started ends
//! with it.
//!
//! # Never
//! - puts a key into the text of a shell script: keys are arguments, and arguments are data;
//! - keeps more of a program's output than the bounds below;
//! - takes silence, nonsense or a bad exit status for success.

mod batch;
mod child;
mod handler;
mod program;
mod stream;
mod template;
mod text;

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod program_tests;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod template_tests;

use std::num::NonZeroU8;
use std::time::Duration;

pub use self::batch::BatchProcessor;
pub use self::child::{end_all_programs, running_programs};
pub use self::handler::Handler;
pub use self::program::find_program;
pub use self::stream::{MAX_LINE_BYTES, MAX_MESSAGE_BYTES, StreamProcessor, parse_answers};
pub use self::template::{Template, TemplateError};
pub use self::text::Rendering;

/// How a program is run, whichever way.
#[derive(Clone, Copy, Debug)]
pub struct ExecConfig {
    /// How many keys one process gets at most, or how many items a running one has at a time.
    pub batch: usize,
    /// How long a process may take for its keys, or a running one that has items may answer none;
    /// `None` for ever.
    pub timeout: Option<Duration>,
    /// The exit status by which a process says that its keys are done and that it found something;
    /// `None` if none does. A running one says so in its answers.
    pub found_status: Option<NonZeroU8>,
    /// Whether standard output belongs to this process alone: what programs write there then goes
    /// to standard error.
    pub keeps_stdout: bool,
}

/// The most keys that one process gets, or has at a time. A crash repeats them all.
pub const MAX_BATCH: usize = 4096;
