//! Writing a certificate, leaf by leaf, in constant memory.
//!
//! The writer writes its input and adds up. It checks nothing: whether the input is true is for
//! [`verify`](super::verify) to say, which shares no code with it.

use std::fmt;
use std::io::{self, Write};

use super::read::{LINE_LEN_MAX, LIST_LEN_MAX, WORDS_MAX};
use super::record::{AFTER_EVERY_PATH, LeafRecord, LeafStatus, Request, SEMANTICS, Totals};
use super::seal::{SealHash, SigningKey};
use super::text::{push_escaped, push_hex};

/// A certificate on its way into `W`.
pub struct CertificateWriter<W> {
    out: W,
    hash: SealHash,
    totals: Totals,
    /// Reused for every line.
    line: Vec<u8>,
}

impl<W: Write> CertificateWriter<W> {
    /// Begins with the request.
    ///
    /// # Errors
    ///
    /// As writing to `out`; `InvalidInput` for a request that no verifier would read, because its
    /// settings are too long or too many.
    pub fn new(out: W, request: &Request) -> io::Result<Self> {
        let mut writer =
            Self { out, hash: SealHash::new(), totals: Totals::default(), line: Vec::new() };
        // The reader's limits: a certificate that cannot be verified must not be written.
        let lists = [request.options.len(), request.excluded.len(), request.settings.len()];
        let too_long = lists.into_iter().any(|len| len > LIST_LEN_MAX);
        if too_long || request.command.len() > WORDS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        push_request(&mut writer.line, request);
        writer.write_sealed_line()?;
        Ok(writer)
    }

    /// Adds a leaf. Leaves are given in the order of their ranges.
    ///
    /// # Errors
    ///
    /// As writing to `out`.
    pub fn leaf(&mut self, leaf: &LeafRecord) -> io::Result<()> {
        self.totals.add(leaf);
        push_leaf(&mut self.line, leaf);
        self.write_sealed_line()
    }

    /// Adds sums, hash and, with a key, a signature; flushes and gives `out` back.
    ///
    /// # Errors
    ///
    /// As writing to `out`.
    pub fn finish(mut self, key: Option<&SigningKey>) -> io::Result<W> {
        // The totals are hashed, the seal is not: it has the hash.
        push_totals(&mut self.line, &self.totals);
        self.write_sealed_line()?;
        push_seal(&mut self.line, &self.hash.finish(), key);
        self.line.push(b'\n');
        self.out.write_all(&self.line)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_sealed_line(&mut self) -> io::Result<()> {
        // Only a request can be so long: the keys of a leaf are bounded.
        if self.line.len() > LINE_LEN_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.hash.add(&self.line);
        self.line.push(b'\n');
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

// Numbers only.
impl<W> fmt::Debug for CertificateWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateWriter")
            .field("leaves", &self.totals.leaves())
            .finish_non_exhaustive()
    }
}

fn push_request(line: &mut Vec<u8>, request: &Request) {
    push(line, "{\"gossip-certificate\":2,\"run\":\"");
    push_hex(line, &request.run.as_raw().to_be_bytes());
    push_text(line, "\",\"source\":", &request.source);
    push_list(line, ",\"options\":{", &request.options, |line, (name, chosen)| {
        push_text(line, "", name.as_bytes());
        push(line, if *chosen { ":true" } else { ":false" });
    });
    push_list(line, "},\"excluded\":[", &request.excluded, |line, words| {
        push_text(line, "", words.as_bytes());
    });
    push_list(line, "],\"command\":[", &request.command, |line, word| push_text(line, "", word));
    push_list(line, "],\"settings\":{", &request.settings, |line, (name, value)| {
        push_text(line, "", name.as_bytes());
        push_text(line, ":", value.as_bytes());
    });
    push_text(line, "},\"start\":", &request.start);
    push_bound(line, ",\"end\":", &request.end);
    push(line, ",\"cursor\":\"");
    let semantics = SEMANTICS.into_iter().filter(|(known, _)| *known == request.semantics);
    semantics.for_each(|(_, word)| push(line, word));
    push(line, "\"}");
}

fn push_leaf(line: &mut Vec<u8>, leaf: &LeafRecord) {
    push_text(line, "{\"start\":", &leaf.start);
    push_bound(line, ",\"end\":", &leaf.end);
    match leaf.status {
        LeafStatus::Done => push(line, ",\"status\":\"done\""),
        LeafStatus::Parked(reason) => {
            push(line, ",\"status\":\"parked\",\"reason\":\"");
            push(line, reason.as_str());
            push(line, "\"");
        }
    }
    push_number(line, ",\"fence\":", leaf.fence.as_raw());
    match &leaf.cursor {
        Some(cursor) => push_text(line, ",\"cursor\":", cursor),
        None => push(line, ",\"cursor\":null"),
    }
    push_number(line, ",\"keys\":", leaf.accumulator.count());
    push_sum(line, &leaf.accumulator.sum_bytes());
    push_number(line, ",\"unread\":", leaf.unread);
    if let LeafStatus::Parked(_) = leaf.status {
        match &leaf.cursor {
            // The key of the cursor is covered, the start of a leaf without one is not.
            Some(cursor) => push_text(line, ",\"uncovered\":{\"after\":", cursor),
            None => push_text(line, ",\"uncovered\":{\"from\":", &leaf.start),
        }
        push_bound(line, ",\"before\":", &leaf.end);
        push(line, "}");
    }
    push(line, "}");
}

fn push_totals(line: &mut Vec<u8>, totals: &Totals) {
    push_number(line, "{\"leaves\":", totals.leaves());
    push_number(line, ",\"done\":", totals.done);
    push_number(line, ",\"parked\":", totals.parked);
    push_number(line, ",\"keys\":", totals.accumulator.count());
    push_sum(line, &totals.accumulator.sum_bytes());
    push_number(line, ",\"unread\":", totals.unread);
    push(line, ",\"verdict\":");
    push(line, if totals.is_complete() { "\"complete\"}" } else { "\"incomplete\"}" });
}

fn push_seal(line: &mut Vec<u8>, hash: &[u8; 32], key: Option<&SigningKey>) {
    push(line, "{\"hash\":\"");
    push_hex(line, hash);
    if let Some(key) = key {
        push(line, "\",\"signature\":\"");
        push_hex(line, &key.sign(hash));
    }
    push(line, "\"}");
}

fn push(line: &mut Vec<u8>, text: &str) {
    line.extend_from_slice(text.as_bytes());
}

/// A name, then bytes as quoted text.
fn push_text(line: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    push(line, name);
    line.push(b'"');
    push_escaped(line, bytes);
    line.push(b'"');
}

/// A name, then a bound as quoted text, or `null` if it is after every path.
fn push_bound(line: &mut Vec<u8>, name: &str, bound: &[u8]) {
    match *bound == AFTER_EVERY_PATH {
        true => {
            push(line, name);
            push(line, "null");
        }
        false => push_text(line, name, bound),
    }
}

/// A name, then a number.
fn push_number(line: &mut Vec<u8>, name: &str, number: u64) {
    push(line, name);
    push(line, &number.to_string());
}

fn push_sum(line: &mut Vec<u8>, sum: &[u8; 32]) {
    push(line, ",\"sum\":\"");
    push_hex(line, sum);
    line.push(b'"');
}

/// A name and an opening bracket, then the elements with commas between them.
fn push_list<T>(
    line: &mut Vec<u8>,
    name: &str,
    elements: &[T],
    push_element: impl Fn(&mut Vec<u8>, &T),
) {
    push(line, name);
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        push_element(line, element);
    }
}
