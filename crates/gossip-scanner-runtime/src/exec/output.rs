//! Where the output of commands goes.
//!
//! By default a command writes to the standard output and standard error of this process. With
//! [`CommandOutput::Captured`] it writes into pipes, and a sink receives its whole output when it
//! has ended, so that the lines of two commands are never mixed.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::capture::Captured;
use super::child::COLOR_VARIABLES;
use crate::processor::Broken;

/// Where the output of commands goes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum CommandOutput {
    /// To standard output and standard error of this process, which the commands inherit: the bytes
    /// are neither read nor copied, and those of two commands may be mixed.
    #[default]
    Inherited,
    /// Through pipes to a sink.
    Captured(OutputCapture),
    /// As [`Self::Inherited`], and the command shares the terminal of this process, for input, too.
    /// For one command at a time: several would compete for the keyboard.
    Terminal,
}

impl CommandOutput {
    /// Returns the variables that commands get, with their values, unless they are set.
    pub(super) const fn variables(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Captured(OutputCapture { is_colored: true, .. }) => &COLOR_VARIABLES,
            Self::Captured(_) | Self::Inherited | Self::Terminal => &[],
        }
    }
}

/// Output of commands that is captured.
#[derive(Clone)]
#[expect(clippy::exhaustive_structs, reason = "the caller decides about every part")]
pub struct OutputCapture {
    /// Receives it.
    pub sink: Arc<dyn OutputSink>,
    /// The directory of temporary files for output that exceeds the memory of an item, such as
    /// that of [`std::env::temp_dir`]. The files have no name.
    pub spill_directory: Arc<Path>,
    /// Whether commands are asked to colour their output although it goes into a pipe.
    pub is_colored: bool,
}

impl fmt::Debug for OutputCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputCapture")
            .field("spill_directory", &self.spill_directory)
            .field("is_colored", &self.is_colored)
            .finish_non_exhaustive()
    }
}

/// Receives the output of commands, from any thread of a worker.
pub trait OutputSink: Send + Sync {
    /// Prints the output of one process, or lines of one that keeps running.
    ///
    /// The results of its items are recorded after this returns.
    ///
    /// # Errors
    ///
    /// The output cannot be written: the worker stops, and the items of the process count as not
    /// processed. [`io::ErrorKind::BrokenPipe`] means that its reader has exited.
    fn print(&self, group: &mut OutputGroup<'_>) -> io::Result<()>;
}

/// The output of one process.
#[non_exhaustive]
pub struct OutputGroup<'a> {
    /// The text of its first item, as the command received it; empty for a program that keeps
    /// running.
    pub item: &'a [u8],
    /// How many items it had.
    pub items: usize,
    /// What it wrote to standard output.
    pub stdout: &'a mut Captured,
    /// What it wrote to standard error.
    pub stderr: &'a mut Captured,
    /// Whether processes that it started hold its output open after its end. What they write later
    /// is lost.
    pub left_processes: bool,
}

// The sizes only: output and items belong to the user.
impl fmt::Debug for OutputGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputGroup")
            .field("items", &self.items)
            .field("stdout", &self.stdout.len())
            .field("stderr", &self.stderr.len())
            .field("left_processes", &self.left_processes)
            .finish_non_exhaustive()
    }
}

/// Describes that output could not be kept.
pub(super) fn unkept_text(error: &io::Error, directory: &Path) -> String {
    let directory = directory.display();
    format!("its output could not be kept: {error} ({directory}); it was killed")
}

/// Describes that a sink could not print.
pub(super) fn cannot_print(error: &io::Error) -> Broken {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Broken::OutputClosed,
        _ => Broken::Failed(format!("the output of a command cannot be written: {error}").into()),
    }
}
