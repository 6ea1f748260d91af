//! One process for each batch of keys.
//!
//! A batch that fails does not say which key was at fault, so it is split in halves until each
//! failing key is alone. The other keys are then processed more than once, as after a crash.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use gossip_contracts::identity::{FenceEpoch, ShardKey};

use super::capture::{Captured, OutputPipes};
use super::child::{End, Launcher, Running, Stdio, check_output};
use super::output::{CommandOutput, OutputGroup, cannot_print, unkept_text};
use super::{ExecConfig, ItemText, MAX_BATCH, Rendering, Template};
use crate::command_finding::CommandFinding;
use crate::processor::{Broken, ItemFailure, ItemResult, Processor, Report, Work};
use crate::worker::Drain;

/// Bytes of keys that one process gets: Linux takes 128 KiB in one argument and 2 MiB in all.
const MAX_BATCH_BYTES: usize = 512 * 1024;

/// Bytes of one key as an argument; one more is its end.
const MAX_KEY_ARGUMENT: usize = 128 * 1024 - 1;

const _: () = assert!(MAX_KEY_ARGUMENT < MAX_BATCH_BYTES);

/// Runs a program for each batch of keys.
#[derive(Debug)]
pub struct BatchProcessor {
    template: Template,
    rendering: Rendering,
    capacity: usize,
    timeout: Option<Duration>,
    ok_statuses: Vec<u8>,
    found_status: Option<u8>,
    /// Maximum bytes of output that are stored with a finding.
    found_text_max: usize,
    keeps_stdout: bool,
    output: CommandOutput,
    /// The memory for output of the next process.
    reused: [Captured; 2],
    drain: Drain,
    /// The program, once it was looked for.
    launcher: Option<Launcher>,
    /// Items that no process has been started for.
    waiting: Vec<Item>,
    /// Parts of a batch that failed, still to be run; the first is next.
    parts: VecDeque<Vec<Item>>,
    running: Option<(Running, Vec<Item>)>,
    /// Reports of items that need no process.
    ready: Vec<Report>,
    /// The key that was submitted last, if it is for the next process.
    checked: Vec<u8>,
    scratch: Vec<u8>,
    /// The shard and the fence of the items.
    holder: Option<(ShardKey, FenceEpoch)>,
}

/// The part of a finished process's output that its results need.
#[derive(Default)]
struct Kept {
    /// Why its output was not captured to its end.
    unkept: Option<String>,
    /// The end of its standard output, if it has found something.
    stdout_end: Vec<u8>,
    /// How many bytes it wrote to standard output.
    stdout_len: u64,
    /// The end of its standard error.
    stderr_end: Vec<u8>,
}

struct Item {
    ticket: usize,
    text: Vec<u8>,
    /// Its number in the source.
    number: u64,
}

impl Item {
    fn as_text(&self) -> ItemText<'_> {
        ItemText { text: &self.text, number: self.number }
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl BatchProcessor {
    /// Runs `template` for keys shown as `rendering`.
    #[must_use]
    pub fn new(template: Template, rendering: Rendering, config: ExecConfig) -> Self {
        let most = if template.takes_many() { config.batch.clamp(1, MAX_BATCH) } else { 1 };
        Self {
            template,
            rendering,
            capacity: most,
            timeout: config.timeout,
            ok_statuses: config.ok_statuses,
            found_status: config.found_status,
            found_text_max: config.found_text_max.min(CommandFinding::TEXT_MAX),
            keeps_stdout: config.keeps_stdout,
            output: config.output,
            reused: Default::default(),
            drain: config.drain,
            launcher: None,
            waiting: Vec::new(),
            parts: VecDeque::new(),
            running: None,
            ready: Vec::new(),
            checked: Vec::new(),
            scratch: Vec::new(),
            holder: None,
        }
    }

    /// Starts a process for the next part, if none runs and there is one: parts of a failed batch
    /// first, then all waiting items.
    ///
    /// Fails if the program cannot be started at all. Items that are too long for a command line
    /// fail alone.
    fn start_next(&mut self) -> Result<(), Broken> {
        // A loop: of a long batch thousands of parts may fail before one is started.
        while self.running.is_none() {
            if self.parts.is_empty() && !self.waiting.is_empty() {
                self.parts.push_back(std::mem::take(&mut self.waiting));
            }
            let Some(part) = self.parts.pop_front() else { break };
            self.start_part(part)?;
        }
        Ok(())
    }

    /// Starts a process for a part, or divides it, or fails its items.
    fn start_part(&mut self, part: Vec<Item>) -> Result<(), Broken> {
        // The system would refuse so long a command line, and the failure would look like that of
        // an item.
        let bytes: usize = part.iter().map(|item| item.text.len() + 1).sum();
        if bytes > MAX_BATCH_BYTES && part.len() > 1 {
            self.halve(part);
            return Ok(());
        }
        let launcher = match self.launcher.take() {
            Some(launcher) => launcher,
            None => Launcher::new(self.template.program(), self.output.variables())?,
        };
        let items: Vec<ItemText<'_>> = part.iter().map(Item::as_text).collect();
        let arguments = match self.template.arguments(&items) {
            Ok(arguments) => arguments,
            Err(complaint) => {
                self.launcher = Some(launcher);
                self.fail(part, &ItemFailure::new(complaint));
                return Ok(());
            }
        };
        let started = self.start(&launcher, arguments);
        let launcher = self.launcher.insert(launcher);
        match started {
            Ok(running) => self.running = Some((running, part)),
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                self.fail(part, &"the item is too long for a command line".into());
            }
            Err(error) => return Err(launcher.cannot_start(&error)),
        }
        Ok(())
    }

    fn start(&mut self, launcher: &Launcher, arguments: Vec<OsString>) -> io::Result<Running> {
        let own = self.holder.map(|(shard, fence)| {
            let (run, shard) = (shard.run().as_raw(), shard.shard().as_raw());
            [format!("{run:016x}"), format!("{shard:016x}"), fence.to_string()]
        });
        match &self.output {
            CommandOutput::Inherited if self.keeps_stdout => {
                launcher.start(arguments, own, Stdio::OutputToStderr)
            }
            CommandOutput::Inherited => launcher.start(arguments, own, Stdio::Inherited),
            CommandOutput::Captured(capture) => {
                let (directory, reused) =
                    (Arc::clone(&capture.spill_directory), std::mem::take(&mut self.reused));
                let (pipes, ends) = OutputPipes::open(directory, reused)?;
                let stdio = Stdio::Captured(ends.each_ref().map(OwnedFd::as_fd));
                let mut running = launcher.start(arguments, own, stdio)?;
                running.capture(pipes);
                Ok(running)
            }
            CommandOutput::Terminal => {
                let terminal = File::options().read(true).write(true).open("/dev/tty")?;
                launcher.start(arguments, own, Stdio::Terminal(terminal.as_fd()))
            }
        }
    }

    /// Waits up to `patience` for the running process to end, or to exceed its timeout, and reports
    /// its items.
    ///
    /// Does nothing if none runs or it is still running afterwards. Fails if the process cannot be
    /// waited for or the output of this process is closed.
    fn reap(&mut self, patience: Duration) -> Result<(), Broken> {
        let Some((mut running, part)) = self.running.take() else { return Ok(()) };
        let left = self.timeout.map(|timeout| timeout.saturating_sub(running.age()));
        let lost = |error| Broken::Failed(format!("a process was lost: {error}").into());
        let waited = running.wait(left.map_or(patience, |left| left.min(patience)));
        let ended = match waited.map_err(lost)? {
            Some(status) => Some(status),
            None if self.timeout.is_some_and(|timeout| running.age() >= timeout) => {
                running.kill().map_err(lost)?;
                None
            }
            None => {
                // A command whose output is kept does not notice that it is not read any more, and
                // may never end.
                check_output()?;
                self.running = Some((running, part));
                return Ok(());
            }
        };
        // Before the results: output that cannot be printed is lost, and only processing its items
        // again brings it back.
        let found = ended.and_then(|status| self.found_by(status));
        let mut kept = self.print(&mut running, &part, found.is_some())?;
        let failure = match (kept.unkept.take(), found, ended) {
            (Some(why), ..) => ItemFailure::new(why),
            (None, _, None) => "timed out and was killed".into(),
            (None, Some(status), Some(_)) => {
                self.report_found(&part, status, kept);
                return Ok(());
            }
            (None, None, Some(status)) if self.is_ok(status) => {
                self.report(&part, &ItemResult::Done);
                return Ok(());
            }
            (None, None, Some(status)) => match End::of(status, &self.drain) {
                End::Success => {
                    self.report(&part, &ItemResult::Done);
                    return Ok(());
                }
                // Tried again it would ask its user again, who has just ended it.
                End::Untried if matches!(self.output, CommandOutput::Terminal) => {
                    return Err(Broken::Interrupted);
                }
                End::Untried => {
                    self.report(&part, &ItemResult::Undone);
                    return Ok(());
                }
                End::Failure(failure) => failure,
            },
        };
        check_output()?;
        self.fail(part, &failure.with_stderr(kept.stderr_end));
        Ok(())
    }

    /// Prints what a process has written, if it is captured, and returns what its results need of
    /// it.
    fn print(
        &mut self,
        running: &mut Running,
        part: &[Item],
        has_found: bool,
    ) -> Result<Kept, Broken> {
        let (CommandOutput::Captured(capture), Some(pipes)) = (&self.output, running.output())
        else {
            return Ok(Kept::default());
        };
        let unkept = pipes.unkept().map(|error| unkept_text(error, &capture.spill_directory));
        let left_processes = pipes.has_left_processes();
        let [mut stdout, mut stderr] = std::mem::take(pipes.captured());
        let kept = Kept {
            unkept,
            stdout_end: stdout.tail(if has_found { self.found_text_max } else { 0 }),
            stdout_len: stdout.len(),
            stderr_end: stderr.tail(ItemFailure::STDERR_MAX),
        };
        let printed = if stdout.is_empty() && stderr.is_empty() && !left_processes {
            Ok(())
        } else {
            capture.sink.print(&mut OutputGroup {
                item: part.first().map_or(&[], |item| &item.text),
                items: part.len(),
                stdout: &mut stdout,
                stderr: &mut stderr,
                left_processes,
            })
        };
        self.reused = [stdout, stderr];
        printed.map(|()| kept).map_err(|error| cannot_print(&error))
    }

    /// Returns the status of a process that has ended as one that found something does.
    fn found_by(&self, status: ExitStatus) -> Option<u8> {
        self.found_status.filter(|found| status.code() == Some(i32::from(*found)))
    }

    /// Returns whether a process has ended with one of the statuses that mean success.
    fn is_ok(&self, status: ExitStatus) -> bool {
        status.code().is_some_and(|code| {
            self.ok_statuses.iter().any(|accepted| i32::from(*accepted) == code)
        })
    }

    /// Reports all keys as done. It is unknown which of them has the finding, so it counts once.
    fn report_found(&mut self, part: &[Item], status: u8, kept: Kept) {
        let Some((first, rest)) = part.split_first() else { return };
        let (output, written) = (kept.stdout_end, kept.stdout_len);
        let found = CommandFinding::of_process(status, part.len(), output, written);
        let result = ItemResult::CommandFound(Box::new(found));
        self.ready.push(Report { ticket: first.ticket, result });
        self.report(rest, &ItemResult::Done);
    }

    /// Fails one key; of several it is unknown which failed.
    fn fail(&mut self, part: Vec<Item>, failure: &ItemFailure) {
        if part.len() == 1 {
            return self.report(&part, &ItemResult::Failed(failure.clone()));
        }
        let (present, missing) = self.separate_missing(part);
        if missing.is_empty() {
            return self.halve(present);
        }
        // Deleted files are a common cause, and the others need no search for the failing one.
        self.report(&missing, &ItemResult::Failed(failure.clone()));
        if !present.is_empty() {
            self.parts.push_front(present);
        }
    }

    /// Separates items that are paths of files from those whose file is gone.
    fn separate_missing(&self, part: Vec<Item>) -> (Vec<Item>, Vec<Item>) {
        let is_present = |item: &Item| {
            let path = Path::new(OsStr::from_bytes(&item.text));
            !matches!(&self.rendering, Rendering::Path(_)) || path.symlink_metadata().is_ok()
        };
        part.into_iter().partition(is_present)
    }

    fn halve(&mut self, mut part: Vec<Item>) {
        let second = part.split_off(part.len() / 2);
        self.parts.push_front(second);
        self.parts.push_front(part);
    }

    fn report(&mut self, part: &[Item], result: &ItemResult) {
        let report = |item: &Item| Report { ticket: item.ticket, result: result.clone() };
        self.ready.extend(part.iter().map(report));
    }
}

impl Processor for BatchProcessor {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        self.holder = Some((work.shard, work.fence));
        let mut text = Vec::new();
        let beside = Some(self.checked.as_slice()).filter(|key| !key.is_empty());
        let (rendering, scratch) = (&self.rendering, &mut self.scratch);
        let written = rendering.write_for_program(&work, beside, scratch, &mut text);
        self.checked.clear();
        let result = match written {
            Err(error) => Some(ItemResult::Unopened(error)),
            Ok(()) if text.contains(&0) => Some(ItemResult::Hopeless(
                "the item contains a NUL byte, which an argument cannot".into(),
            )),
            Ok(()) if text.len() > MAX_KEY_ARGUMENT => {
                Some(ItemResult::Hopeless("the item is too long for an argument".into()))
            }
            Ok(()) => None,
        };
        match result {
            Some(result) => self.ready.push(Report { ticket: work.ticket, result }),
            None => {
                self.checked.extend_from_slice(work.key());
                let number = self.template.number_of(work.key());
                self.waiting.push(Item { ticket: work.ticket, text, number });
            }
        }
        Ok(())
    }

    fn opens_items(&self) -> bool {
        self.rendering.opens_items()
    }

    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        self.checked.clear();
        self.start_next()?;
        if self.ready.is_empty() {
            self.reap(patience)?;
        }
        reports.append(&mut self.ready);
        Ok(())
    }

    fn abandon(&mut self) {
        // Dropping the process kills it. Its fence is stale by now, so what it has written
        // elsewhere can be refused there.
        self.running = None;
        self.parts.clear();
        self.waiting.clear();
        self.ready.clear();
        // Directories may change between two batches.
        self.checked.clear();
    }
}
