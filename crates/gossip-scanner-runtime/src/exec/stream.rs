//! A program that keeps running and receives items as JSON lines.
//!
//! We write to its standard input, one object a line:
//!
//! ```text
//! {"type":"item","id":7,"key":"a/b","text":"/data/a/b","run":"…","shard":"…","fence":3}
//! {"type":"drain"}
//! ```
//!
//! and it answers on its standard output, in any order:
//!
//! ```text
//! {"type":"done","id":7}
//! {"type":"error","id":7,"message":"…","retry":false}
//! ```
//!
//! `text` is what `{}` expands to elsewhere. A key or text that is not UTF-8 comes as `key_hex` or
//! `text_hex` instead. After `drain`, or when its input ends, the program finishes and exits.
//!
//! A program that exits, hangs or writes invalid answers is killed and restarted. If it had several
//! items, it is unknown which was at fault, so they are submitted again one at a time until it has
//! finished some; if it had one, that one has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::Value;

use super::child::{End, Launcher, Running, Stdio, check_output};
use super::{ExecConfig, MAX_BATCH, Rendering};
use crate::processor::{Broken, ItemResult, Processor, Report, Silence, Work};
use crate::worker::Drain;

/// Maximum length of an answer's line.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Answers that wait to be read: a program that floods its output blocks in its own writes.
const MAX_LINES_WAITING: usize = 1024;

/// When a program ended with this many different items, each alone and without an answer, the
/// program itself is broken. Retries of one item count once, so that an item which kills its
/// handler is parked and does not end the worker.
const MAX_SILENT_ITEMS: usize = 10;

/// How many items a program has to finish alone before it gets several at a time again.
const CAUTIOUS_ITEMS: u32 = 8;

/// How long a program may take to exit after `drain`, and be silent while it has items.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);

/// How long a program that has items and has never answered is waited for silently. A longer wait
/// is reported: most programs buffer what they write into a pipe, and such a program would wait for
/// more items while we wait for its answer.
const FIRST_ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// The same for a program that has answered before: it does not buffer, so it is slow or hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// How long a program with items may be silent after a drain was requested before its input is
/// closed: one that buffers writes its answers then.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

const _: () = assert!(CLOSE_PATIENCE.as_millis() < DRAIN_PATIENCE.as_millis());

/// How long to wait for the answers of a program that has ended: they are in a pipe that a thread
/// of this process drains at once.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(200);

/// How much of a program's message is kept, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// How much of an invalid line an error quotes: enough to recognize it, on one line of a terminal.
const MAX_QUOTED_BYTES: usize = 80;

/// Parses everything that a handler wrote to its standard output, one answer per line.
///
/// Returns the item number and the result of each line, or `None` for a line that
/// [`StreamProcessor`] would reject. Parsing ends at the first line longer than [`MAX_LINE_BYTES`],
/// because the processor stops such a handler. Authors of handlers can test their output with it.
///
/// ```
/// use gossip_scanner_runtime::ItemResult;
/// use gossip_scanner_runtime::exec::parse_answers;
///
/// let answers = parse_answers(b"{\"type\":\"done\",\"id\":7}\nprocessing 8\n");
/// assert_eq!(answers, [Some((7, ItemResult::Done)), None]);
/// ```
#[must_use]
pub fn parse_answers(mut output: &[u8]) -> Vec<Option<(u64, ItemResult)>> {
    let mut answers = Vec::new();
    while let Some(line) = next_line(&mut output) {
        let Line::Whole(line) = line else {
            answers.push(None);
            break;
        };
        answers.push(Answer::parse(&line).map(|answer| (answer.id, answer.result)));
    }
    answers
}

/// Keeps a program running and gives it items.
pub struct StreamProcessor {
    command: Vec<std::ffi::OsString>,
    rendering: Rendering,
    window: usize,
    timeout: Option<Duration>,
    drain: Drain,
    /// The program, once it was looked for.
    launcher: Option<Launcher>,
    talk: Option<Talk>,
    /// The number of the next item; never used again, also not for another program.
    next_id: u64,
    /// Items that the program has, by their number.
    given: BTreeMap<u64, Given>,
    ready: Vec<Report>,
    /// How many items are still to be processed alone.
    cautious: u32,
    /// Items that the program ended with since it last answered, by the hash of their key; fewer
    /// than [`MAX_SILENT_ITEMS`].
    silent_items: BTreeSet<u64>,
    /// When an item was last answered.
    answered_at: Option<Instant>,
    /// Whether the silence since then was reported.
    is_silence_reported: bool,
    /// When the request to drain was noticed.
    drain_since: Option<Instant>,
    /// The key that was submitted last, if no report was collected since.
    checked: Vec<u8>,
    scratch: Vec<u8>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    ticket: usize,
    /// A hash of the key; a collision does no harm.
    key_hash: u64,
    since: Instant,
}

/// A running program and the threads at its pipes.
struct Talk {
    running: Running,
    /// Lines to be written; dropping it ends the program's input.
    to_child: Option<Sender<Vec<u8>>>,
    from_child: Receiver<Line>,
    /// Whether it has answered an item.
    has_answered: bool,
}

/// Output of the program.
enum Line {
    Whole(Vec<u8>),
    /// Longer than a line may be.
    TooLong,
}

impl StreamProcessor {
    /// Will run `command`, whose first word is the program.
    #[must_use]
    pub(crate) fn new(
        command: Vec<std::ffi::OsString>,
        rendering: Rendering,
        config: ExecConfig,
    ) -> Self {
        Self {
            command,
            rendering,
            window: config.batch.clamp(1, MAX_BATCH),
            timeout: config.timeout,
            drain: config.drain,
            launcher: None,
            talk: None,
            next_id: 1,
            given: BTreeMap::new(),
            ready: Vec::new(),
            cautious: 0,
            silent_items: BTreeSet::new(),
            answered_at: None,
            is_silence_reported: false,
            drain_since: None,
            checked: Vec::new(),
            scratch: Vec::new(),
            text: Vec::new(),
        }
    }

    /// Returns the running program, and starts it if none is running. Fails if it cannot be
    /// started.
    fn talk(&mut self) -> Result<&mut Talk, Broken> {
        // An ended input takes no more items.
        if let Some(closed) = self.talk.take_if(|talk| talk.is_closed()) {
            closed.finish();
        }
        if self.talk.is_none() {
            let Some((program, arguments)) = self.command.split_first() else {
                return Err(Broken::Failed("no command given".into()));
            };
            let launcher = match self.launcher.take() {
                Some(launcher) => launcher,
                None => Launcher::new(program)?,
            };
            let launcher = self.launcher.insert(launcher);
            let talk = Talk::start(launcher, arguments);
            self.talk = Some(talk.map_err(|error| launcher.cannot_start(&error))?);
        }
        Ok(self.talk.as_mut().expect("it was just made"))
    }

    /// Reports the item that a line answers. Ignores an answer to an item that was abandoned, and
    /// ends the program if the line is no answer.
    fn take_line(&mut self, line: &Line) -> Result<(), Broken> {
        let answer = match line {
            Line::Whole(bytes) => Answer::parse(bytes),
            Line::TooLong => None,
        };
        let given = answer.as_ref().and_then(|answer| self.given.remove(&answer.id));
        match (answer, given) {
            (Some(answer), Some(given)) => {
                // A program that answers works, so the items on which it ended before were at
                // fault.
                self.silent_items.clear();
                self.answered_at = Some(Instant::now());
                self.is_silence_reported = false;
                if let Some(talk) = &mut self.talk {
                    talk.has_answered = true;
                }
                self.cautious = self.cautious.saturating_sub(1);
                self.ready.push(Report { ticket: given.ticket, result: answer.result });
                Ok(())
            }
            // The answer belongs to an item of a shard whose lease was lost.
            (Some(answer), None) if answer.id < self.next_id => Ok(()),
            (Some(_), None) | (None, _) => self.end_child(&bad_line(line)),
        }
    }

    /// Handles a program that has ended or is unusable: its items fail or are submitted again.
    fn end_child(&mut self, complaint: &str) -> Result<(), Broken> {
        check_output()?;
        if self.given.len() == 1 {
            self.silent_items.extend(self.given.values().map(|given| given.key_hash));
        }
        self.give_back(Some(complaint));
        if self.silent_items.len() >= MAX_SILENT_ITEMS {
            return Err(Broken::Failed(
                format!("{complaint} (on {MAX_SILENT_ITEMS} items, without finishing one)").into(),
            ));
        }
        Ok(())
    }

    /// Ends the program. An item that it had alone has failed, if there is a `complaint`. Of
    /// several it is unknown which was at fault, so they are submitted again one by one.
    fn give_back(&mut self, complaint: Option<&str>) {
        self.talk = None;
        // Of several items any may be at fault, and a failure must not be counted against the
        // others.
        let complaint = complaint.filter(|_| self.given.len() == 1);
        for given in std::mem::take(&mut self.given).into_values() {
            let result = complaint
                .map_or(ItemResult::Undone, |complaint| ItemResult::Failed(complaint.into()));
            self.ready.push(Report { ticket: given.ticket, result });
        }
        self.cautious = CAUTIOUS_ITEMS;
    }

    /// Kills a program that has items and gives no answer. The time that an item waits for those
    /// before it does not count: a program that answers one after another is not slow.
    fn check_time(&mut self) -> Result<(), Broken> {
        let (Some(timeout), Some((_, since))) = (self.timeout, self.oldest()) else {
            return Ok(());
        };
        if since.elapsed() >= timeout {
            check_output()?;
            self.give_back(Some("timed out and was killed"));
        }
        Ok(())
    }

    /// Ends the wait for a silent program after a drain was requested. Its input is closed first,
    /// so that a program that buffers its answers writes them.
    fn check_drain(&mut self) -> Result<(), Broken> {
        if !self.drain.is_asked() {
            return Ok(());
        }
        let drain_since = *self.drain_since.get_or_insert_with(Instant::now);
        let Some((_, silent_since)) = self.oldest() else { return Ok(()) };
        let silent = drain_since.max(silent_since).elapsed();
        if silent >= DRAIN_PATIENCE {
            return self.no_reply();
        }
        if silent >= CLOSE_PATIENCE
            && let Some(talk) = &mut self.talk
        {
            talk.close_input();
        }
        Ok(())
    }

    /// Kills a program that was asked to drain and leaves items unanswered.
    fn no_reply(&mut self) -> Result<(), Broken> {
        check_output()?;
        // Not as failures, because the program was not given the time that it may take otherwise.
        // Not as untried either: they would be submitted again at once.
        self.abandon();
        self.talk = None;
        Err(Broken::NoReply)
    }

    /// Returns the ticket of the item that waits longest, and since when: from its submission, or
    /// from the last answer if that is later. A program without items may be silent for as long as
    /// it likes.
    fn oldest(&self) -> Option<(usize, Instant)> {
        let oldest = self.given.values().min_by_key(|given| given.since)?;
        let since = self.answered_at.map_or(oldest.since, |at| oldest.since.max(at));
        Some((oldest.ticket, since))
    }

    /// Handles one answer, or the end of the program; waits for it at most `patience`.
    ///
    /// Returns whether there was one. Fails if the program is unusable.
    fn listen(&mut self, patience: Duration) -> Result<bool, Broken> {
        let Some(talk) = &mut self.talk else { return Ok(false) };
        match talk.next_line(patience) {
            Ok(line) => self.take_line(&line).map(|()| true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) if talk.is_closed() => {
                match self.given.is_empty() {
                    true => self.talk = None,
                    false => self.no_reply()?,
                }
                Ok(true)
            }
            Err(RecvTimeoutError::Disconnected) => {
                // The exit status explains more to the user than a closed pipe, so wait for it.
                match talk.how_it_ended(&self.drain) {
                    End::Success => self.end_child("handler closed its output before replying")?,
                    End::Failure(complaint) => self.end_child(&complaint)?,
                    End::Untried => self.give_back(None),
                }
                Ok(true)
            }
        }
    }
}

impl Processor for StreamProcessor {
    fn capacity(&self) -> usize {
        // No more items for a program whose input is closed, until it has answered those it has.
        if self.talk.as_ref().is_some_and(Talk::is_closed) {
            return self.given.len().max(1);
        }
        if self.cautious > 0 { 1 } else { self.window }
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Broken> {
        let mut text = std::mem::take(&mut self.text);
        let beside = Some(self.checked.as_slice()).filter(|key| !key.is_empty());
        let (rendering, scratch) = (&self.rendering, &mut self.scratch);
        let written = rendering.write_for_program(&work, beside, scratch, &mut text);
        self.checked.clear();
        if let Err(error) = written {
            self.ready.push(Report { ticket: work.ticket, result: ItemResult::Unopened(error) });
        } else {
            self.checked.extend_from_slice(work.key());
            let id = self.next_id;
            let line = item_line(id, &work, &self.rendering.key_format().text(work.key()), &text);
            // Sent before it is recorded: if the program cannot be started, the item was not given
            // to it.
            self.talk()?.say(line);
            self.next_id += 1;
            let key_hash = hash_of(work.key());
            self.given.insert(id, Given { ticket: work.ticket, key_hash, since: Instant::now() });
        }
        self.text = text;
        Ok(())
    }

    fn opens_items(&self) -> bool {
        self.rendering.opens_items()
    }

    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        self.checked.clear();
        if self.ready.is_empty() {
            self.listen(patience)?;
        }
        // Without waiting, and bounded: a program that answers fast must not keep the step from
        // returning.
        while self.ready.len() < MAX_BATCH && self.listen(Duration::ZERO)? {}
        self.check_time()?;
        self.check_drain()?;
        reports.append(&mut self.ready);
        Ok(())
    }

    fn silence(&mut self) -> Option<Silence> {
        let (ticket, since) = self.oldest().filter(|_| !self.is_silence_reported)?;
        let has_answered = self.talk.as_ref().is_some_and(|talk| talk.has_answered);
        let patience = if has_answered { ANSWER_PATIENCE } else { FIRST_ANSWER_PATIENCE };
        let lasted = since.elapsed();
        self.is_silence_reported = lasted >= patience;
        self.is_silence_reported.then_some(Silence { ticket, lasted, is_first: !has_answered })
    }

    fn abandon(&mut self) {
        // The program is kept. Its answers that still arrive find no item under their id and are
        // ignored.
        self.given.clear();
        self.ready.clear();
    }
}

impl Drop for StreamProcessor {
    fn drop(&mut self) {
        if let Some(talk) = self.talk.take() {
            talk.finish();
        }
    }
}

impl fmt::Debug for StreamProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamProcessor")
            .field("window", &self.window)
            .field("given", &self.given.len())
            .field("silent_items", &self.silent_items.len())
            .finish_non_exhaustive()
    }
}

impl Talk {
    fn start(launcher: &Launcher, arguments: &[std::ffi::OsString]) -> io::Result<Self> {
        // Close-on-exec: a program that another thread starts would hold them open, and the end of
        // this one would not be seen.
        let (its_input, input) = pipe_with(PipeFlags::CLOEXEC)?;
        let (output, its_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let stdio = Stdio::Pipes { input: its_input.as_fd(), output: its_output.as_fd() };
        let running = launcher.start(arguments.iter().cloned(), None, stdio)?;
        let (to_child, lines) = channel();
        let (answers, from_child) = sync_channel(MAX_LINES_WAITING);
        // A thread for each direction: a program that writes before it reads would block a single
        // one.
        thread::spawn(move || write_lines(input.into(), &lines));
        thread::spawn(move || read_lines(output.into(), &answers));
        Ok(Self { running, to_child: Some(to_child), from_child, has_answered: false })
    }

    /// Returns whether its input was closed.
    const fn is_closed(&self) -> bool {
        self.to_child.is_none()
    }

    /// Requests the program to finish and ends its input, also for one that does not know `drain`.
    fn close_input(&mut self) {
        self.say(line_of([("type", Value::from("drain"))]));
        self.to_child = None;
    }

    fn say(&self, line: Vec<u8>) {
        if let Some(to_child) = &self.to_child {
            // A program that is gone is detected where its answers are read.
            let _ = to_child.send(line);
        }
    }

    /// Returns the next answer. A program that has ended answers nothing more, also if something
    /// that it started holds its output open.
    fn next_line(&self, patience: Duration) -> Result<Line, RecvTimeoutError> {
        match self.from_child.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) if self.running.leader_has_ended() => {}
            answered => return answered,
        }
        // Output from before its end may still be queued in our reader thread.
        self.from_child.recv_timeout(LAST_WORDS_PATIENCE).map_err(|_| {
            self.running.kill_rest();
            RecvTimeoutError::Disconnected
        })
    }

    /// Returns the end of a program that has closed its output; one that runs on is as useless as
    /// one that has exited with success.
    fn how_it_ended(&mut self, drain: &Drain) -> End {
        let ended = self.running.wait(Duration::from_secs(1));
        ended.ok().flatten().map_or(End::Success, |status| End::of(status, drain))
    }

    /// Lets the program finish. Dropped, it is killed if it did not.
    fn finish(mut self) {
        self.close_input();
        let _ = self.running.wait(DRAIN_PATIENCE);
    }
}

/// One answer.
struct Answer {
    id: u64,
    result: ItemResult,
}

impl Answer {
    fn parse(line: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(line).ok()?;
        let id = value.get("id")?.as_u64()?;
        let result = match value.get("type")?.as_str()? {
            "done" => done(value.get("findings"))?,
            "error" => {
                let message = value.get("message").and_then(Value::as_str).unwrap_or("no message");
                let message = clip(message, MAX_MESSAGE_BYTES).into();
                match value.get("retry").and_then(Value::as_bool) {
                    Some(false) => ItemResult::Hopeless(message),
                    // Without a word about it, a retry is the safer assumption: the item is tried a
                    // bounded number of times.
                    Some(true) | None => ItemResult::Failed(message),
                }
            }
            _ => return None,
        };
        Some(Self { id, result })
    }
}

/// Returns how much an item that is done says it found; `None` if that is no number.
fn done(findings: Option<&Value>) -> Option<ItemResult> {
    let number = findings.map_or(Some(0), Value::as_u64)?;
    // A larger number stays a number of findings; it must not become "none".
    let number = NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX));
    Some(number.map_or(ItemResult::Done, ItemResult::Found))
}

fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// Describes a line that is not a reply to an item of the program.
fn bad_line(line: &Line) -> String {
    let Line::Whole(line) = line else {
        return format!("handler wrote a line of more than {MAX_LINE_BYTES} bytes");
    };
    let what = match serde_json::from_slice::<Value>(line) {
        Ok(_) => "handler wrote an invalid reply",
        Err(_) => "handler wrote invalid JSON",
    };
    let text = String::from_utf8_lossy(line);
    format!("{what}: `{}`", clip(text.trim_end(), MAX_QUOTED_BYTES))
}

fn clip(message: &str, max_bytes: usize) -> &str {
    let mut end = message.len().min(max_bytes);
    // Half a character would make the message invalid UTF-8.
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

fn item_line(id: u64, work: &Work<'_>, key: &[u8], text: &[u8]) -> Vec<u8> {
    let hex = |number: u64| Value::from(format!("{number:016x}"));
    line_of([
        ("type", Value::from("item")),
        ("id", Value::from(id)),
        bytes_field(["key", "key_hex"], key),
        bytes_field(["text", "text_hex"], text),
        ("run", hex(work.shard.run().as_raw())),
        ("shard", hex(work.shard.shard().as_raw())),
        ("fence", Value::from(work.fence.as_raw())),
    ])
}

/// As text if it is some, and otherwise as hexadecimal digits under the other name.
fn bytes_field([plain, hex]: [&'static str; 2], bytes: &[u8]) -> (&'static str, Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (plain, Value::from(text)),
        Err(_) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (hex, Value::from(digits))
        }
    }
}

/// Returns an object with these fields in this order, which is the documented one: handlers in
/// shell scripts match the beginning of a line.
fn line_of<const N: usize>(fields: [(&'static str, Value); N]) -> Vec<u8> {
    let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}\n", fields.join(",")).into_bytes()
}

/// Writes until the queue is closed or the program has closed its input.
fn write_lines(mut input: File, lines: &Receiver<Vec<u8>>) {
    for line in lines {
        if input.write_all(&line).is_err() {
            return;
        }
    }
}

/// Reads until the output ends, a line is too long, or the receiver is gone.
fn read_lines(output: File, answers: &SyncSender<Line>) {
    let mut output = BufReader::new(output);
    while let Some(line) = next_line(&mut output) {
        let is_last = matches!(line, Line::TooLong);
        if answers.send(line).is_err() || is_last {
            return;
        }
    }
}

/// Returns the next line, with its line feed if it has one; `None` when the output has ended.
fn next_line(output: &mut impl BufRead) -> Option<Line> {
    let mut line = Vec::new();
    let limit = MAX_LINE_BYTES as u64 + 1;
    match output.by_ref().take(limit).read_until(b'\n', &mut line) {
        // A failed read ends the output as an exit does; the caller asks how the program ended.
        Ok(0) | Err(_) => None,
        Ok(_) if line.len() > MAX_LINE_BYTES => Some(Line::TooLong),
        Ok(_) => Some(Line::Whole(line)),
    }
}
