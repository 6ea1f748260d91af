//! The output of commands: printed as a group when a command has ended.

mod filter;

#[cfg(test)]
mod filter_tests;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gossip::runtime::exec::{Captured, CommandOutput, OutputCapture, OutputGroup, OutputSink};

use self::filter::Filter;
use crate::console::Console;
use crate::progress::escaped;
use crate::screen::{self, Stream};

/// Bytes that are gathered before they are written: one system call for most groups.
const WRITE_BYTES: usize = 64 * 1024;

/// Prints the output of commands, between the messages of this process.
#[derive(Debug)]
pub(crate) struct CommandPrinter {
    console: Arc<Console>,
    /// Whether each line begins with its item.
    has_tags: bool,
    /// Whether standard output is for data of this process alone.
    keeps_stdout: bool,
    /// Whether processes that a command left behind were reported.
    left_reported: AtomicBool,
    /// Held while a group is printed, so that its two streams stay together.
    group: Mutex<()>,
}

impl CommandPrinter {
    pub(crate) fn new(console: Arc<Console>, has_tags: bool, keeps_stdout: bool) -> Self {
        let (left_reported, group) = (AtomicBool::new(false), Mutex::default());
        Self { console, has_tags, keeps_stdout, left_reported, group }
    }

    /// Returns the setting that sends output of commands here.
    pub(crate) fn capture(self) -> CommandOutput {
        CommandOutput::Captured(OutputCapture {
            is_colored: self.is_colored(),
            sink: Arc::new(self),
            spill_directory: spill_directory().into(),
        })
    }

    /// Returns whether all output of commands goes to a terminal that shows colours.
    fn is_colored(&self) -> bool {
        let screen = self.console.screen();
        screen.style().is_colored && screen.is_drawn_on(self.stdout())
    }

    /// Returns where standard output of commands goes.
    const fn stdout(&self) -> Stream {
        if self.keeps_stdout { Stream::Stderr } else { Stream::Stdout }
    }

    /// Reports processes that a command left behind: the first, and all with `-v`.
    fn report_left(&self, group: &OutputGroup<'_>) {
        let text = format!(
            "{}: left processes behind; what they write from now on is lost (not with --ungroup)",
            escaped(group.item)
        );
        // A command that does it once does it for every item.
        match self.left_reported.swap(true, Ordering::Relaxed) {
            false => self.console.note(&text),
            true => self.console.detail(&text),
        }
    }

    /// Prints one stream of a group: with the next frame if it is short, at once if it is long.
    fn print_stream(
        &self,
        captured: &Captured,
        tag: Option<&str>,
        stream: Stream,
    ) -> io::Result<()> {
        if captured.is_empty() {
            return Ok(());
        }
        let (screen, is_terminal) = (self.console.screen(), stream.is_terminal());
        // Longer output would fill memory, as it may be on the disk.
        if screen.is_drawn_on(stream) && captured.len() <= WRITE_BYTES as u64 {
            let mut lines = Vec::new();
            chunks(captured, tag, is_terminal, |bytes| {
                lines.extend_from_slice(bytes);
                Ok(())
            })?;
            return screen.print(stream, &lines);
        }
        screen.uncovered(stream, || {
            chunks(captured, tag, is_terminal, |bytes| screen::write(stream, bytes))
        })
    }

    fn tag(&self, group: &OutputGroup<'_>) -> Option<String> {
        let more = match group.items {
            0 | 1 => String::new(),
            items => format!(" (+{})", items - 1),
        };
        self.has_tags.then(|| format!("{}{more}\t", escaped(group.item)))
    }
}

impl OutputSink for CommandPrinter {
    fn print(&self, group: &mut OutputGroup<'_>) -> io::Result<()> {
        let tag = self.tag(group);
        // Also across streams: the error output of a command follows its own output.
        let together = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        for (captured, stream) in [(&group.stdout, self.stdout()), (&group.stderr, Stream::Stderr)]
        {
            self.print_stream(captured, tag.as_deref(), stream)?;
        }
        // Others may print while the report is formatted.
        drop(together);
        if group.left_processes {
            self.report_left(group);
        }
        Ok(())
    }
}

/// Passes the bytes of one stream of a group to `write`, in chunks. Without a tag, and unless it
/// goes to a terminal, they are not changed.
fn chunks(
    captured: &Captured,
    tag: Option<&str>,
    is_terminal: bool,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if tag.is_none() && !is_terminal {
        return captured.for_each_chunk(&mut write);
    }
    let mut filter = Filter::new(is_terminal, tag);
    let mut shown = Vec::new();
    captured.for_each_chunk(&mut |chunk| {
        filter.push(chunk, &mut shown);
        // Tags can make many short chunks of one long one.
        if shown.len() >= WRITE_BYTES {
            write(&shown)?;
            shown.clear();
        }
        Ok(())
    })?;
    filter.finish(&mut shown);
    write(&shown)
}

/// Returns the directory for output that exceeds the memory of an item: that of the user, or the
/// one for large files, because `/tmp` is memory on many systems.
fn spill_directory() -> PathBuf {
    const FOR_LARGE_FILES: &str = "/var/tmp";
    let has_large = env::var_os("TMPDIR").is_none() && Path::new(FOR_LARGE_FILES).is_dir();
    if has_large { FOR_LARGE_FILES.into() } else { env::temp_dir() }
}
