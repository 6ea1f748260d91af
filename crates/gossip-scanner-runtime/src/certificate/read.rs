//! Reading the lines of a certificate, one at a time.

use std::io::{BufRead, Read};

use gossip_contracts::coordination::{MAX_KEY_SIZE, MAX_METADATA_SIZE};
use gossip_contracts::identity::{FenceEpoch, RunId};

use super::record::{AFTER_EVERY_PATH, LeafRecord, LeafStatus, ParkedFor, Request, SEMANTICS};
use super::refusal::Refusal;
use super::text::{Scanner, Unexpected};
use crate::accumulator::Accumulator;

/// The longest line that is read: five keys of a leaf, three letters for each byte, and the rest.
pub(super) const LINE_LEN_MAX: usize = 5 * 3 * MAX_KEY_SIZE + 4096;

/// Options, exclusions and settings of a request at most: what fits on a line is bounded anyway,
/// and this bounds how many parts that is.
pub(super) const LIST_LEN_MAX: usize = 256;

/// Words of a command at most: a command is stored in the metadata of shards, and a word takes a
/// byte there at least.
pub(super) const WORDS_MAX: usize = MAX_METADATA_SIZE;

/// The form of a file. The writer uses the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Without the command, and with every bound as text.
    One,
    Two,
}

/// The lines of a certificate.
pub(super) struct Lines<R> {
    reader: R,
    /// The line that was read last, without its line feed.
    line: Vec<u8>,
    /// Its number, counted from one.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) const fn new(reader: R) -> Self {
        Self { reader, line: Vec::new(), number: 0 }
    }

    /// Reads the next line.
    ///
    /// # Errors
    ///
    /// The file ends, the line does not, or the line is too long.
    pub(super) fn next(&mut self) -> Result<&[u8], Refusal> {
        self.line.clear();
        self.number += 1;
        // One byte more than a line, for its line feed. The bound applies while reading, so a file
        // without line feeds cannot fill the memory.
        let mut reader = self.reader.by_ref().take(LINE_LEN_MAX as u64 + 1);
        let read = reader.read_until(b'\n', &mut self.line);
        read.map_err(|error| Refusal::Unreadable { kind: error.kind() })?;
        match self.line.pop() {
            Some(b'\n') => Ok(&self.line),
            Some(_) if self.line.len() == LINE_LEN_MAX => {
                Err(Refusal::LineTooLong { line: self.number, max: LINE_LEN_MAX })
            }
            Some(_) | None => Err(Refusal::CutShort { line: self.number }),
        }
    }

    /// Returns the line that was read last.
    pub(super) fn current(&self) -> &[u8] {
        &self.line
    }

    /// Returns the refusal for the last line if it cannot be read.
    pub(super) const fn malformed(&self) -> Refusal {
        Refusal::Malformed { line: self.number }
    }

    /// Checks that the file ends here.
    pub(super) fn end(mut self) -> Result<(), Refusal> {
        let rest = self.reader.fill_buf();
        match rest.map_err(|error| Refusal::Unreadable { kind: error.kind() })? {
            [] => Ok(()),
            _ => Err(Refusal::TrailingBytes { line: self.number }),
        }
    }
}

/// The last line but one, as stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatedTotals {
    pub(super) leaves: u64,
    pub(super) done: u64,
    pub(super) parked: u64,
    pub(super) unread: u64,
    pub(super) accumulator: Accumulator,
    pub(super) is_complete: bool,
}

/// The last line.
#[derive(Clone, Copy)]
pub(super) struct Seal {
    pub(super) hash: [u8; 32],
    pub(super) signature: Option<[u8; 32]>,
}

/// A leaf, and what it says is left of it.
pub(super) struct LeafLine {
    version: Version,
    pub(super) leaf: LeafRecord,
    /// Two keys; both empty for a leaf that is done.
    pub(super) uncovered: Uncovered,
}

#[derive(Default)]
pub(super) struct Uncovered {
    /// Whether the first key itself is covered.
    pub(super) is_after: bool,
    pub(super) from: Vec<u8>,
    pub(super) before: Vec<u8>,
}

impl LeafLine {
    pub(super) fn new(version: Version) -> Self {
        let leaf = LeafRecord::new(b"", b"", LeafStatus::Done, FenceEpoch::ZERO);
        Self { version, leaf, uncovered: Uncovered::default() }
    }

    /// Reads a leaf into the memory of the one before.
    pub(super) fn read(&mut self, line: &[u8]) -> Result<(), Unexpected> {
        let (scan, leaf) = (&mut Scanner::new(line), &mut self.leaf);
        scan.literal("{\"start\":")?;
        scan.escaped(&mut leaf.start)?;
        scan.literal(",\"end\":")?;
        read_bound(scan, self.version, &mut leaf.end)?;
        leaf.status = read_status(scan)?;
        scan.literal(",\"fence\":")?;
        leaf.fence = FenceEpoch::from_raw(scan.number()?);
        scan.literal(",\"cursor\":")?;
        read_cursor(scan, &mut leaf.cursor)?;
        leaf.accumulator = read_accumulator(scan)?;
        scan.literal(",\"unread\":")?;
        leaf.unread = scan.number()?;
        match leaf.status {
            // A done leaf has no remainder, and that of the leaf before must not be compared with
            // it.
            LeafStatus::Done => self.uncovered = Uncovered::default(),
            LeafStatus::Parked(_) => self.uncovered.read(scan, self.version)?,
        }
        scan.literal("}")?;
        scan.end()
    }
}

impl Uncovered {
    fn read(&mut self, scan: &mut Scanner<'_>, version: Version) -> Result<(), Unexpected> {
        scan.literal(",\"uncovered\":{")?;
        self.is_after = scan.takes("\"after\":");
        if !self.is_after {
            scan.literal("\"from\":")?;
        }
        scan.escaped(&mut self.from)?;
        scan.literal(",\"before\":")?;
        read_bound(scan, version, &mut self.before)?;
        scan.literal("}")
    }
}

/// Returns whether a line is that of a leaf; the only other one that may come there is the totals.
pub(super) fn is_leaf(line: &[u8]) -> bool {
    line.starts_with(b"{\"start\":")
}

pub(super) fn read_request(line: &[u8]) -> Result<(Request, Version), Unexpected> {
    let scan = &mut Scanner::new(line);
    scan.literal("{\"gossip-certificate\":")?;
    let version = match scan.number()? {
        1 => Version::One,
        2 => Version::Two,
        _ => return Err(Unexpected),
    };
    scan.literal(",\"run\":")?;
    let run = RunId::from_raw(u64::from_be_bytes(scan.hex()?));
    let mut request = Request::for_range(run, "", b"", b"");
    scan.literal(",\"source\":")?;
    scan.escaped(&mut request.source)?;
    scan.literal(",\"options\":{")?;
    request.options = read_list(scan, ("}", LIST_LEN_MAX), |scan| {
        let name = read_words(scan)?;
        scan.literal(":")?;
        Ok((name, scan.truth()?))
    })?;
    scan.literal(",\"excluded\":[")?;
    request.excluded = read_list(scan, ("]", LIST_LEN_MAX), read_words)?;
    if version == Version::Two {
        scan.literal(",\"command\":[")?;
        request.command = read_list(scan, ("]", WORDS_MAX), |scan| {
            let mut word = Vec::new();
            scan.escaped(&mut word).map(|()| word)
        })?;
    }
    scan.literal(",\"settings\":{")?;
    request.settings = read_list(scan, ("}", LIST_LEN_MAX), |scan| {
        let name = read_words(scan)?;
        scan.literal(":")?;
        Ok((name, read_words(scan)?))
    })?;
    scan.literal(",\"start\":")?;
    scan.escaped(&mut request.start)?;
    scan.literal(",\"end\":")?;
    read_bound(scan, version, &mut request.end)?;
    scan.literal(",\"cursor\":\"")?;
    let semantics = SEMANTICS.into_iter().find(|(_, word)| scan.takes(word));
    (request.semantics, _) = semantics.ok_or(Unexpected)?;
    scan.literal("\"}")?;
    scan.end()?;
    Ok((request, version))
}

pub(super) fn read_totals(line: &[u8]) -> Result<StatedTotals, Unexpected> {
    let scan = &mut Scanner::new(line);
    scan.literal("{\"leaves\":")?;
    let leaves = scan.number()?;
    scan.literal(",\"done\":")?;
    let done = scan.number()?;
    scan.literal(",\"parked\":")?;
    let parked = scan.number()?;
    let accumulator = read_accumulator(scan)?;
    scan.literal(",\"unread\":")?;
    let unread = scan.number()?;
    scan.literal(",\"verdict\":")?;
    let is_complete = scan.takes("\"complete\"");
    if !is_complete {
        scan.literal("\"incomplete\"")?;
    }
    scan.literal("}")?;
    scan.end()?;
    Ok(StatedTotals { leaves, done, parked, unread, accumulator, is_complete })
}

pub(super) fn read_seal(line: &[u8]) -> Result<Seal, Unexpected> {
    let scan = &mut Scanner::new(line);
    scan.literal("{\"hash\":")?;
    let hash = scan.hex()?;
    let signature = match scan.takes(",\"signature\":") {
        true => Some(scan.hex()?),
        false => None,
    };
    scan.literal("}")?;
    scan.end()?;
    Ok(Seal { hash, signature })
}

fn read_status(scan: &mut Scanner<'_>) -> Result<LeafStatus, Unexpected> {
    scan.literal(",\"status\":")?;
    if scan.takes("\"done\"") {
        return Ok(LeafStatus::Done);
    }
    scan.literal("\"parked\",\"reason\":\"")?;
    // No reason is a prefix of another, so the order of the search does not matter.
    let reason = ParkedFor::ALL.into_iter().find(|reason| scan.takes(reason.as_str()));
    scan.literal("\"")?;
    reason.map(LeafStatus::Parked).ok_or(Unexpected)
}

fn read_cursor(scan: &mut Scanner<'_>, cursor: &mut Option<Vec<u8>>) -> Result<(), Unexpected> {
    if scan.takes("null") {
        *cursor = None;
        return Ok(());
    }
    scan.escaped(cursor.get_or_insert_default())
}

/// Takes a bound: text, or since the second version `null` for one that is after every path.
fn read_bound(
    scan: &mut Scanner<'_>,
    version: Version,
    bound: &mut Vec<u8>,
) -> Result<(), Unexpected> {
    if version == Version::Two && scan.takes("null") {
        bound.clear();
        bound.extend_from_slice(&AFTER_EVERY_PATH);
        return Ok(());
    }
    scan.escaped(bound)?;
    // There is one way to write each bound.
    match version == Version::Two && *bound == AFTER_EVERY_PATH {
        true => Err(Unexpected),
        false => Ok(()),
    }
}

fn read_accumulator(scan: &mut Scanner<'_>) -> Result<Accumulator, Unexpected> {
    scan.literal(",\"keys\":")?;
    let count = scan.number()?;
    scan.literal(",\"sum\":")?;
    let sum = scan.hex()?;
    // A count of zero with another hash than that of no keys can be written down, but no set of
    // keys has it.
    Accumulator::try_from_parts(count, &sum).map_err(|_| Unexpected)
}

fn read_words(scan: &mut Scanner<'_>) -> Result<String, Unexpected> {
    let mut bytes = Vec::new();
    scan.escaped(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| Unexpected)
}

/// Elements with commas between them, up to the closing bracket; at most `max`.
fn read_list<T>(
    scan: &mut Scanner<'_>,
    (close, max): (&str, usize),
    read_element: impl Fn(&mut Scanner<'_>) -> Result<T, Unexpected>,
) -> Result<Vec<T>, Unexpected> {
    let mut elements = Vec::new();
    while !scan.takes(close) {
        // A list is held in memory, and a certificate may come from anywhere.
        if elements.len() == max {
            return Err(Unexpected);
        }
        if !elements.is_empty() {
            scan.literal(",")?;
        }
        elements.push(read_element(scan)?);
    }
    Ok(elements)
}
