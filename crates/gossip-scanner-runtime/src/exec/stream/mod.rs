//! A program that keeps running and receives items as lines.
//!
//! With [`StreamFormat::Json`] we write to its standard input, one object a line:
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
//! {"type":"done","id":7,"findings":2,"message":"…"}
//! {"type":"error","id":7,"message":"…","retry":false}
//! ```
//!
//! `text` is what `{}` expands to elsewhere. A key or text that is not UTF-8 comes as `key_hex` or
//! `text_hex` instead. After `drain`, or when its input ends, the program finishes and exits.
//!
//! With [`StreamFormat::Lines`] an item is a line with its text, the end of the input is the only
//! request to finish, and each answer is for the oldest item without one: an empty line or `ok`,
//! `found N`, `found N MESSAGE`, `retry MESSAGE`, or `error MESSAGE`.
//!
//! A program that exits, hangs or writes invalid answers is killed and restarted. If it had several
//! items, it is unknown which was at fault, so they are submitted again one at a time until it has
//! finished some; if it had one, that one has failed.

mod answer;
mod pipes;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;
use std::time::{Duration, Instant};

use gossip_contracts::identity::{FenceEpoch, ShardKey};

use self::answer::{Answer, Line, bad_line, next_line, parse_plain};
use self::pipes::{Heard, Pipes};
use super::child::{End, HANDLER_VARIABLES, Launcher, check_output};
use super::{ExecConfig, MAX_BATCH, Rendering};
use crate::command_finding::CommandFinding;
use crate::job::StreamFormat;
use crate::processor::{Broken, ItemFailure, ItemResult, Processor, Report, Silence, Work};
use crate::worker::Drain;

/// Maximum length of an answer's line.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

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

/// How much of a program's message is kept, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1024;

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
    while let Some(line) = next_line(&mut output, true) {
        let Line::Whole(line) = line else {
            answers.push(None);
            break;
        };
        answers.push(Answer::parse(line).map(|answer| (answer.id, answer.result)));
    }
    answers
}

/// Keeps a program running and gives it items.
pub struct StreamProcessor {
    command: Vec<std::ffi::OsString>,
    format: StreamFormat,
    rendering: Rendering,
    window: usize,
    timeout: Option<Duration>,
    /// Maximum bytes of a message that are stored with a finding.
    found_text_max: usize,
    drain: Drain,
    /// The program, once it was looked for.
    launcher: Option<Launcher>,
    talk: Option<Talk>,
    given: Given,
    ready: Vec<Report>,
    /// How many items are still to be processed alone.
    cautious: u32,
    /// Items that the program ended with since it last answered, by the hash of their key; fewer
    /// than [`MAX_SILENT_ITEMS`].
    silent_items: BTreeSet<u64>,
    /// When the items since the last collection were submitted: read once for all of them.
    submitted_at: Option<Instant>,
    /// When an item was last answered.
    answered_at: Option<Instant>,
    /// Whether the silence since then was reported.
    is_silence_reported: bool,
    /// When the request to drain was noticed.
    drain_since: Option<Instant>,
    /// The key that was submitted last, if no report was collected since.
    checked: Vec<u8>,
    tail: Tail,
    scratch: Vec<u8>,
    text: Vec<u8>,
}

/// A running program.
struct Talk {
    pipes: Pipes,
    /// Whether it has answered an item.
    has_answered: bool,
    /// The number of the first item that it has not answered, if answers come in their order.
    next_answer: u64,
}

impl StreamProcessor {
    /// Will run `command`, whose first word is the program.
    #[must_use]
    pub(crate) fn new(
        command: Vec<std::ffi::OsString>,
        format: StreamFormat,
        rendering: Rendering,
        config: ExecConfig,
    ) -> Self {
        Self {
            command,
            format,
            rendering,
            window: config.batch.clamp(1, MAX_BATCH),
            timeout: config.timeout,
            found_text_max: config.found_text_max.min(MAX_MESSAGE_BYTES),
            drain: config.drain,
            launcher: None,
            talk: None,
            given: Given::new(),
            ready: Vec::new(),
            cautious: 0,
            silent_items: BTreeSet::new(),
            submitted_at: None,
            answered_at: None,
            is_silence_reported: false,
            drain_since: None,
            checked: Vec::new(),
            tail: Tail::default(),
            scratch: Vec::new(),
            text: Vec::new(),
        }
    }

    /// Returns the running program, and starts it if none is running. Fails if it cannot be
    /// started.
    fn talk(&mut self) -> Result<&mut Talk, Broken> {
        // An ended input takes no more items.
        if let Some(closed) = self.talk.take_if(|talk| talk.pipes.is_closed()) {
            closed.pipes.finish(self.format.farewell());
        }
        if self.talk.is_none() {
            let Some((program, arguments)) = self.command.split_first() else {
                return Err(Broken::Failed("no command given".into()));
            };
            let launcher = match self.launcher.take() {
                Some(launcher) => launcher,
                None => Launcher::new(program, &HANDLER_VARIABLES)?,
            };
            let launcher = self.launcher.insert(launcher);
            let pipes = Pipes::start(launcher, arguments);
            let pipes = pipes.map_err(|error| launcher.cannot_start(&error))?;
            let next_answer = self.given.next_id();
            self.talk = Some(Talk { pipes, has_answered: false, next_answer });
        }
        Ok(self.talk.as_mut().expect("it was just made"))
    }

    /// Takes one line that was read, and reports the item that it answers. Ignores an answer to an
    /// item that was abandoned, and a plain line without its line feed; ends the program if the
    /// line is no answer.
    ///
    /// Returns whether there was a line.
    fn take_line(&mut self) -> Result<bool, Broken> {
        let Some(talk) = &mut self.talk else { return Ok(false) };
        let (next_id, oldest) = (self.given.next_id(), talk.next_answer);
        let Some(line) = talk.pipes.take_line() else { return Ok(false) };
        let answer = match (line, self.format) {
            (Line::TooLong, _) => None,
            (Line::Whole(line), StreamFormat::Json) => Answer::parse(line),
            // Cut off by the end of the program, as `error no such fi` or `found 1` of `found 12`.
            // The end is handled as one without a reply.
            (Line::Whole(line), StreamFormat::Lines) if !line.ends_with(b"\n") => {
                return Ok(false);
            }
            (Line::Whole(line), StreamFormat::Lines) => parse_plain(line, oldest),
        };
        let Some(answer) = answer.filter(|answer| answer.id < next_id) else {
            let complaint = bad_line(line, self.format == StreamFormat::Json);
            return self.end_child(complaint.into()).map(|()| true);
        };
        talk.next_answer = oldest.saturating_add(1);
        // Without an item the answer belongs to a shard whose lease was lost.
        if let Some(item) = self.given.take(answer.id) {
            talk.has_answered = true;
            self.cautious = self.cautious.saturating_sub(1);
            let result = match answer.result {
                ItemResult::Found(findings) => {
                    let max = self.found_text_max;
                    let found = CommandFinding::of_reply(findings, &answer.message, max);
                    ItemResult::CommandFound(Box::new(found))
                }
                result => result,
            };
            self.ready.push(Report { ticket: item.ticket, result });
        }
        Ok(true)
    }

    /// Takes the lines that were read, at most so many that a program which answers fast does not
    /// keep the step from returning.
    fn take_lines(&mut self) -> Result<(), Broken> {
        let before = self.ready.len();
        while self.ready.len() < MAX_BATCH && self.take_line()? {}
        if self.ready.len() > before && self.talk.as_ref().is_some_and(|talk| talk.has_answered) {
            // A program that answers works, so the items on which it ended before were at fault.
            self.silent_items.clear();
            self.answered_at = Some(Instant::now());
            self.is_silence_reported = false;
        }
        Ok(())
    }

    /// Handles a program that has ended or is unusable: its items fail or are submitted again.
    fn end_child(&mut self, failure: ItemFailure) -> Result<(), Broken> {
        check_output()?;
        let complaint = failure.message.clone();
        if self.given.len() == 1 {
            self.silent_items.extend(self.given.oldest().map(|item| item.key_hash));
        }
        self.give_back(Some(failure));
        if self.silent_items.len() >= MAX_SILENT_ITEMS {
            return Err(Broken::Failed(
                format!("{complaint} (on {MAX_SILENT_ITEMS} items, without finishing one)").into(),
            ));
        }
        Ok(())
    }

    /// Ends the program. An item that it had alone has failed, if there is a `failure`. Of
    /// several it is unknown which was at fault, so they are submitted again one by one.
    fn give_back(&mut self, failure: Option<ItemFailure>) {
        self.talk = None;
        // Of several items any may be at fault, and a failure must not be counted against the
        // others.
        let failure = failure.filter(|_| self.given.len() == 1);
        let result = failure.map_or(ItemResult::Undone, ItemResult::Failed);
        for item in self.given.take_all() {
            self.ready.push(Report { ticket: item.ticket, result: result.clone() });
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
            self.give_back(Some("timed out and was killed".into()));
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
            talk.pipes.close_input(self.format.farewell());
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
        let oldest = self.given.oldest()?;
        let since = self.answered_at.map_or(oldest.since, |at| oldest.since.max(at));
        Some((oldest.ticket, since))
    }

    /// Sends the submitted items, and handles answers or the end of the program; waits for them at
    /// most `patience`. Fails if the program is unusable.
    fn listen(&mut self, patience: Duration) -> Result<(), Broken> {
        let mut left = patience;
        let begun = Instant::now();
        loop {
            self.take_lines()?;
            let Some(talk) = &mut self.talk else { return Ok(()) };
            if !self.ready.is_empty() {
                talk.pipes.flush();
                return Ok(());
            }
            match talk.pipes.wait(left) {
                // Less than a line may have come, and the program has the rest of the time.
                Heard::Bytes => left = patience.saturating_sub(begun.elapsed()),
                Heard::Nothing => return Ok(()),
                Heard::End => {
                    self.take_lines()?;
                    return if self.ready.is_empty() { self.handle_end() } else { Ok(()) };
                }
            }
        }
    }

    /// Handles the end of the program, or of its output.
    fn handle_end(&mut self) -> Result<(), Broken> {
        let Some(talk) = &mut self.talk else { return Ok(()) };
        if talk.pipes.is_closed() {
            return match self.given.is_empty() {
                true => {
                    self.talk = None;
                    Ok(())
                }
                false => self.no_reply(),
            };
        }
        // The exit status explains more to the user than a closed pipe, so wait for it.
        match talk.pipes.how_it_ended(&self.drain) {
            End::Success => self.end_child("handler closed its output before replying".into()),
            End::Failure(failure) => self.end_child(failure),
            End::Untried => {
                self.give_back(None);
                Ok(())
            }
        }
    }

    /// Gives an item with this text to the program.
    fn give(&mut self, work: &Work<'_>, text: &[u8]) -> Result<(), Broken> {
        let (id, format) = (self.given.next_id(), self.format);
        let key_format = self.rendering.key_format();
        // A text that is the key needs no second decoding.
        let is_key = matches!(self.rendering, Rendering::Key(_));
        let mut tail = std::mem::take(&mut self.tail);
        // Sent before it is recorded: if the program cannot be started, the item was not given to
        // it.
        let said = self.talk().map(|talk| {
            talk.pipes.say(|line| match format {
                StreamFormat::Json if is_key => write_item(line, id, text, text, tail.of(work)),
                StreamFormat::Json => {
                    write_item(line, id, &key_format.text(work.key()), text, tail.of(work));
                }
                StreamFormat::Lines => {
                    line.extend_from_slice(text);
                    line.push(b'\n');
                }
            });
        });
        self.tail = tail;
        said?;
        let since = *self.submitted_at.get_or_insert_with(Instant::now);
        let key_hash = hash_of(work.key());
        self.given.push(GivenItem { ticket: work.ticket, key_hash, since });
        Ok(())
    }
}

impl Processor for StreamProcessor {
    fn capacity(&self) -> usize {
        // No more items for a program whose input is closed, until it has answered those it has.
        if self.talk.as_ref().is_some_and(|talk| talk.pipes.is_closed()) {
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
        let given = match written {
            Err(error) => {
                let result = ItemResult::Unopened(error);
                self.ready.push(Report { ticket: work.ticket, result });
                Ok(())
            }
            Ok(()) if self.format == StreamFormat::Lines && text.contains(&b'\n') => {
                let result = ItemResult::Hopeless(LINE_FEED_IN_TEXT.into());
                self.ready.push(Report { ticket: work.ticket, result });
                Ok(())
            }
            Ok(()) => {
                self.checked.extend_from_slice(work.key());
                self.give(&work, &text)
            }
        };
        self.text = text;
        given
    }

    fn opens_items(&self) -> bool {
        self.rendering.opens_items()
    }

    fn collect(&mut self, patience: Duration, reports: &mut Vec<Report>) -> Result<(), Broken> {
        self.checked.clear();
        self.submitted_at = None;
        self.listen(patience)?;
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
        // The program is kept. Its answers that still arrive find no item under their number and
        // are ignored.
        self.given.take_all().for_each(drop);
        self.ready.clear();
    }
}

impl Drop for StreamProcessor {
    fn drop(&mut self) {
        if let Some(talk) = self.talk.take() {
            talk.pipes.finish(self.format.farewell());
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

/// Why an item cannot be given to a handler that reads lines.
const LINE_FEED_IN_TEXT: &str = "the text contains a line feed; use --stream=json";

impl StreamFormat {
    /// Returns the line before the end of the input of a program.
    const fn farewell(self) -> &'static [u8] {
        match self {
            Self::Json => b"{\"type\":\"drain\"}\n",
            Self::Lines => b"",
        }
    }
}

/// The items that a program has, by their number.
///
/// Numbers count up and are never used again, also not for another program.
#[derive(Debug)]
struct Given {
    /// The number of the first of `items`.
    first: u64,
    /// `None` for an item that was answered; the first is not answered.
    items: VecDeque<Option<GivenItem>>,
    /// How many are not answered.
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct GivenItem {
    ticket: usize,
    /// A hash of the key; a collision does no harm.
    key_hash: u64,
    since: Instant,
}

impl Given {
    const fn new() -> Self {
        Self { first: 1, items: VecDeque::new(), count: 0 }
    }

    /// Returns the number of the next item.
    fn next_id(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    const fn len(&self) -> usize {
        self.count
    }

    const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the item that was given first.
    fn oldest(&self) -> Option<GivenItem> {
        self.items.front().copied().flatten()
    }

    fn push(&mut self, item: GivenItem) {
        self.items.push_back(Some(item));
        self.count += 1;
    }

    fn take(&mut self, id: u64) -> Option<GivenItem> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        let item = self.items.get_mut(index)?.take()?;
        self.count -= 1;
        while self.items.front().is_some_and(Option::is_none) {
            self.items.pop_front();
            self.first += 1;
        }
        Some(item)
    }

    fn take_all(&mut self) -> impl Iterator<Item = GivenItem> {
        self.first = self.next_id();
        self.count = 0;
        std::mem::take(&mut self.items).into_iter().flatten()
    }
}

/// The end of an item's line, which is the same for all items of a lease.
#[derive(Default)]
struct Tail {
    of: Option<(ShardKey, FenceEpoch)>,
    text: Vec<u8>,
}

impl Tail {
    fn of(&mut self, work: &Work<'_>) -> &[u8] {
        let lease = (work.shard, work.fence);
        if self.of.replace(lease) != Some(lease) {
            let (run, shard) = (work.shard.run().as_raw(), work.shard.shard().as_raw());
            let fence = work.fence.as_raw();
            let text =
                format!(",\"run\":\"{run:016x}\",\"shard\":\"{shard:016x}\",\"fence\":{fence}}}\n");
            self.text = text.into_bytes();
        }
        &self.text
    }
}

fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// Writes the line of an item. The order of the fields is the documented one: handlers in shell
/// scripts match the beginning of a line.
fn write_item(line: &mut Vec<u8>, id: u64, key: &[u8], text: &[u8], tail: &[u8]) {
    line.extend_from_slice(b"{\"type\":\"item\",\"id\":");
    let _ = write!(line, "{id}");
    write_bytes(line, [",\"key\":", ",\"key_hex\":\""], key);
    write_bytes(line, [",\"text\":", ",\"text_hex\":\""], text);
    line.extend_from_slice(tail);
}

/// Writes a field as text if it is some, and otherwise as hexadecimal digits under the other name.
fn write_bytes(line: &mut Vec<u8>, [plain, hex]: [&str; 2], bytes: &[u8]) {
    // Writing into memory does not fail.
    if let Ok(text) = std::str::from_utf8(bytes) {
        line.extend_from_slice(plain.as_bytes());
        let _ = serde_json::to_writer(line, text);
    } else {
        line.extend_from_slice(hex.as_bytes());
        for byte in bytes {
            let _ = write!(line, "{byte:02x}");
        }
        line.push(b'"');
    }
}
