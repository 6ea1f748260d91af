//! Any program as a processor.
//!
//! Two ways: [`BatchProcessor`] starts the program once for some keys, which take the place of `{}`
//! among its arguments; [`StreamProcessor`] keeps it running and speaks JSON lines with it.
//!
//! Every program runs in its own session: Ctrl-C and Ctrl-Z at the terminal reach this process and
//! not the program, which finishes its item. When a program must be killed, and when this process
//! dies, its process group is killed with it ([`gossip_stdx::spawn`]).
//!
//! # Never
//! - puts a key into the text of a shell script: keys are arguments, and arguments are data;
//! - keeps more of a program's output than the bounds below;
//! - takes silence, invalid output or a bad exit status for success.

mod batch;
mod capture;
mod child;
mod columns;
mod handler;
mod output;
mod program;
mod stream;
mod template;
mod text;

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod capture_tests;
#[cfg(test)]
mod program_tests;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod template_tests;

use std::time::Duration;

#[cfg(doc)]
use crate::CommandFinding;
use crate::worker::Drain;

pub use self::batch::BatchProcessor;
pub use self::capture::Captured;
pub(crate) use self::capture::nameless_file;
pub use self::child::{
    end_all_programs, finish_programs, ignores_hangup, prepare_programs, running_programs,
};
pub use self::handler::Handler;
pub use self::output::{CommandOutput, OutputCapture, OutputGroup, OutputSink};
pub(crate) use self::program::find as find_in_path;
pub use self::program::find_program;
pub use self::stream::{MAX_LINE_BYTES, MAX_MESSAGE_BYTES, StreamProcessor, parse_answers};
pub use self::template::{ItemText, Template, TemplateError};
pub use self::text::Rendering;

/// Settings for both ways to run a program.
#[derive(Clone, Debug)]
pub struct ExecConfig {
    /// Maximum number of keys per process, or of items that a running program has at a time.
    pub batch: usize,
    /// Timeout of a process for its keys, or of a running program with items between two answers;
    /// `None` for no timeout.
    pub timeout: Option<Duration>,
    /// The exit statuses by which a process reports that its keys are done; 0 alone if empty.
    pub ok_statuses: Vec<u8>,
    /// The exit status by which a process reports that its keys are done and that it found
    /// something; `None` if there is none. A running program reports findings in its answers.
    pub found_status: Option<u8>,
    /// Maximum bytes of the output of a program with findings that are stored with its item, at
    /// most [`CommandFinding::TEXT_MAX`]. Output that is not captured is not stored.
    pub found_text_max: usize,
    /// Where the output of programs goes.
    pub output: CommandOutput,
    /// Whether standard output belongs to this process alone: output that programs inherit then
    /// goes to standard error. A sink decides that for itself.
    pub keeps_stdout: bool,
    /// The drain of the worker: a program that is killed by SIGINT, SIGTERM or SIGHUP after it was
    /// requested has not failed.
    pub drain: Drain,
}

/// Maximum number of keys that a program has at a time. A crash repeats them all.
pub(crate) const MAX_BATCH: usize = 4096;
