//! Feeds an input of any length through the engine in bounded memory.
//!
//! A buffer holds one chunk and what must stay visible around it. A hit is examined only when
//! everything that may decide about it is in the buffer or the input has ended, so the result does
//! not depend on the chunk size or on how a reader cuts its data.

use std::io::{self, Read};
use std::sync::Arc;

use crate::engine::{
    Caches, Candidate, Engine, HOLD, ItemTraits, LOOK_AHEAD, LOOK_BEHIND, Pending, Placed, Session,
    View,
};
use crate::finding::{Finding, Report, Secret, Unread, UnreadReason};

/// Marks a line whose findings are accepted, if a reason follows in the comment.
const ALLOW_MARKER: &[u8] = b"gossip:allow";
/// Bytes of a line on either side of a finding that are searched for the marker.
const ALLOW_REACH: usize = 512;

/// What ends the comment of a marker, and so its reason.
const COMMENT_ENDS: [&[u8]; 2] = [b"*/", b"-->"];

/// Where findings go.
pub(crate) type Sink<'a> = dyn FnMut(Finding) + 'a;

/// Position of the line in which the next finding lies.
struct LineCursor {
    offset: u64,
    line: u64,
    line_start: u64,
}

impl LineCursor {
    /// Moves forward over bytes that begin at the cursor.
    fn advance(&mut self, bytes: &[u8]) {
        self.line += memchr::memchr_iter(b'\n', bytes).count() as u64;
        if let Some(last) = memchr::memrchr(b'\n', bytes) {
            self.line_start = self.offset + last as u64 + 1;
        }
        self.offset += bytes.len() as u64;
    }
}

/// One text in progress: a file, a slice or a member of an archive.
pub(crate) struct Text<'a, 's> {
    session: Session<'a>,
    pending: Pending,
    lines: LineCursor,
    member: Option<Arc<str>>,
    report: &'a mut Report,
    sink: &'a mut Sink<'s>,
    found: Vec<Candidate>,
}

impl<'a, 's> Text<'a, 's> {
    pub(crate) fn new(
        session: Session<'a>,
        member: Option<Arc<str>>,
        report: &'a mut Report,
        sink: &'a mut Sink<'s>,
    ) -> Self {
        let lines = LineCursor { offset: 0, line: 1, line_start: 0 };
        Self {
            session,
            pending: Pending::default(),
            lines,
            member,
            report,
            sink,
            found: Vec::new(),
        }
    }

    /// Searches a text that is in memory as a whole.
    pub(crate) fn whole(mut self, bytes: &[u8]) {
        self.search(bytes, 0, 0, bytes.len(), true);
        self.finish(bytes, 0);
    }

    /// Searches a text that is read in chunks. `buffer` begins with `filled` bytes already read.
    pub(crate) fn chunks(
        mut self,
        reader: &mut dyn Read,
        buffer: &mut Vec<u8>,
        mut filled: usize,
        chunk_len: usize,
    ) -> io::Result<()> {
        // What findings that wait, windows of later hits and a literal across the border refer to.
        let kept = HOLD as usize + LOOK_AHEAD + self.session.engine.prefilter.len_max();
        buffer.resize(buffer.len().max(2 * kept + chunk_len).max(filled), 0);
        // `buffer[..filled]` are the bytes of the item from `base`; literals that end at or before
        // `searched` have been examined.
        let (mut base, mut searched) = (0_u64, 0_usize);
        loop {
            // Room for one chunk; bytes that nothing refers to any more make it.
            if filled + chunk_len > buffer.len() {
                let keep_from = searched.saturating_sub(kept);
                self.advance_lines(&buffer[..filled], base, base + keep_from as u64);
                buffer.copy_within(keep_from..filled, 0);
                (base, searched) = (base + keep_from as u64, searched - keep_from);
                filled -= keep_from;
            }
            let end = buffer.len().min(filled + chunk_len);
            let read = read_some(reader, &mut buffer[filled..end])?;
            filled += read;
            let is_end = read == 0;
            // A hit behind the limit waits for the next chunk, because its window is not complete.
            let limit = if is_end { filled } else { filled.saturating_sub(LOOK_AHEAD) };
            if limit > searched {
                self.search(&buffer[..filled], base, searched, limit, is_end);
                searched = limit;
            }
            let text = &buffer[..filled];
            if is_end {
                self.finish(text, base);
                return Ok(());
            }
            self.flush(text, base, (base + searched as u64).saturating_sub(HOLD));
        }
    }

    /// Examines every literal that ends in `bytes[from..to]`, its first byte excluded.
    fn search(&mut self, bytes: &[u8], base: u64, from: usize, to: usize, is_end: bool) {
        self.report.bytes += (to - from) as u64;
        let engine = self.session.engine;
        let (session, pending, found) = (&mut self.session, &mut self.pending, &mut self.found);
        engine.prefilter.find(&bytes[..to], from, |mut hit| {
            let start = hit.start.saturating_sub(LOOK_BEHIND);
            let end = bytes.len().min(hit.start + LOOK_AHEAD);
            let view = View {
                bytes: &bytes[start..end],
                // By the position in the item and not in the buffer, so that the chunk size
                // decides nothing.
                open_left: base + start as u64 > 0,
                open_right: end < bytes.len() || !is_end,
            };
            hit.start -= start;
            let view_base = base + start as u64;
            session.examine(view, hit, view_base, 0, found);
            for candidate in found.drain(..) {
                // Now, because the line may have left the buffer when the finding is reported.
                let is_allowed = is_allowed(view.bytes, candidate.start, candidate.end);
                pending.push(view_base, candidate, is_allowed);
            }
        });
    }

    fn flush(&mut self, bytes: &[u8], base: u64, limit: u64) {
        if self.pending.is_empty() {
            return;
        }
        let Self { pending, lines, member, report, sink, session, .. } = self;
        pending.flush(&session.engine.rules, limit, |placed| {
            report.allowed += u64::from(placed.is_allowed);
            let from = (lines.offset - base) as usize;
            // Only up to the finding: lines are counted once in all, because findings come in
            // order.
            lines.advance(&bytes[from..(placed.start - base) as usize]);
            report.findings += 1;
            sink(finding(session.engine, placed, lines, member.clone()));
        });
    }

    /// Counts the lines of bytes that leave the buffer.
    fn advance_lines(&mut self, bytes: &[u8], base: u64, to: u64) {
        // The cursor is further on if a finding beyond these bytes was reported.
        if self.lines.offset < to {
            let from = (self.lines.offset - base) as usize;
            self.lines.advance(&bytes[from..(to - base) as usize]);
        }
    }

    fn finish(mut self, bytes: &[u8], base: u64) {
        self.flush(bytes, base, u64::MAX);
        for (is_exceeded, reason) in [
            (self.session.budget_exceeded, UnreadReason::DecodeBudget),
            (self.session.work.is_exceeded(), UnreadReason::MatchBudget),
        ] {
            if is_exceeded {
                self.report.unread.push(Unread { member: self.member.clone(), reason });
            }
        }
    }
}

fn finding(
    engine: &Engine,
    placed: &mut Placed,
    lines: &LineCursor,
    member: Option<Arc<str>>,
) -> Finding {
    let rule = &engine.rules[placed.candidate.rule];
    Finding {
        rule: rule.id.clone(),
        fingerprint: rule.fingerprint,
        offset: placed.start,
        length: placed.end - placed.start,
        line: lines.line,
        column: placed.start - lines.line_start + 1,
        confidence: placed.candidate.confidence,
        checksum: placed.candidate.checksum,
        decoded: placed.candidate.decoded,
        allowed: placed.is_allowed,
        details: std::mem::take(&mut placed.candidate.details),
        member,
        secret: Secret::new(std::mem::take(&mut placed.candidate.secret)),
    }
}

/// Returns whether the line of a finding has the marker and a reason close to it.
fn is_allowed(bytes: &[u8], start: usize, end: usize) -> bool {
    let before = &bytes[start.saturating_sub(ALLOW_REACH)..start];
    // The line alone: a marker must not accept the findings of the next one.
    let before = &before[memchr::memrchr(b'\n', before).map_or(0, |at| at + 1)..];
    let after = &bytes[end..bytes.len().min(end + ALLOW_REACH)];
    let after = &after[..memchr::memchr(b'\n', after).unwrap_or(after.len())];
    [before, after].iter().any(|line| {
        memchr::memmem::find(line, ALLOW_MARKER)
            .is_some_and(|at| has_reason(&line[at + ALLOW_MARKER.len()..]))
    })
}

/// Returns whether a comment has a word behind its marker.
fn has_reason(comment: &[u8]) -> bool {
    let ends = COMMENT_ENDS.iter().filter_map(|end| memchr::memmem::find(comment, end));
    // Text behind the comment is code and no reason.
    let end = ends.min().unwrap_or(comment.len());
    comment[..end].iter().any(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())
}

/// Reads once, again if a signal interrupts it.
pub(crate) fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A reader that claims more than the buffer holds is broken; its bytes end here.
            other => return other.map(|len| len.min(buffer.len())),
        }
    }
}

/// Reads until `buffer` is full or the input ends; returns the number of bytes.
pub(crate) fn read_full(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read_some(reader, &mut buffer[filled..])? {
            0 => break,
            len => filled += len,
        }
    }
    Ok(filled)
}

/// What a thread reuses between items.
pub(crate) struct Buffers {
    pub(crate) caches: Caches,
    pub(crate) text: Vec<u8>,
    pub(crate) traits: ItemTraits,
}
