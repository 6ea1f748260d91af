//! What the lines of a certificate say.

use std::fmt;
use std::os::unix::ffi::OsStringExt;

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{FenceEpoch, RunId};

use crate::accumulator::Accumulator;
use crate::connectors::Source;

/// The request.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The run.
    pub run: RunId,
    /// The source as it can be typed: a word, a colon, and where it is.
    pub source: Vec<u8>,
    /// The options of the source.
    pub options: Vec<(String, bool)>,
    /// What lies in the source and was not asked for, in words.
    pub excluded: Vec<String>,
    /// The command and its arguments; empty if a program processed the items itself. Stated, and
    /// not compared with anything.
    pub command: Vec<Vec<u8>>,
    /// The options of the run, its times and its writer; stated, and not compared with anything.
    pub settings: Vec<(String, String)>,
    /// First key of the range that was asked for.
    pub start: Vec<u8>,
    /// First key past it.
    pub end: Vec<u8>,
    /// What it means that a key is at or below a cursor.
    pub(crate) semantics: CursorSemantics,
}

impl Request {
    /// Returns the request for all of a source.
    #[must_use]
    pub fn new(run: RunId, source: &Source) -> Self {
        let options = source.settings().into_iter();
        let root = source.root();
        Self {
            run,
            source: source.text().into_vec(),
            options: options.map(|(name, chosen)| (name.to_owned(), chosen)).collect(),
            excluded: source.excluded().into_iter().map(str::to_owned).collect(),
            command: Vec::new(),
            settings: Vec::new(),
            start: root.start().to_vec(),
            end: root.end().to_vec(),
            semantics: CursorSemantics::Completed,
        }
    }

    /// Returns the request for a range of something that is no [`Source`].
    #[must_use]
    pub fn for_range(run: RunId, source: &str, start: &[u8], end: &[u8]) -> Self {
        Self {
            run,
            source: source.as_bytes().to_vec(),
            options: Vec::new(),
            excluded: Vec::new(),
            command: Vec::new(),
            settings: Vec::new(),
            start: start.to_vec(),
            end: end.to_vec(),
            semantics: CursorSemantics::Completed,
        }
    }

    /// Returns the word before the colon: what kind of source it is.
    pub(super) fn kind(&self) -> &[u8] {
        self.source.split(|byte| *byte == b':').next().unwrap_or_default()
    }
}

// Lengths and numbers only.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("run", &self.run)
            .field("source_len", &self.source.len())
            .field("command", &self.command.len())
            .field("settings", &self.settings.len())
            .field("start_len", &self.start.len())
            .field("end_len", &self.end.len())
            .finish_non_exhaustive()
    }
}

/// The bound after every path, which is written as `null`: a name has at most 255 bytes, so no path
/// begins with these.
pub(super) const AFTER_EVERY_PATH: [u8; 256] = [0xFF; 256];

/// The meanings of a cursor, as they stand in a certificate.
pub(super) const SEMANTICS: [(CursorSemantics, &str); 2] =
    [(CursorSemantics::Completed, "completed"), (CursorSemantics::Dispatched, "dispatched")];

/// One shard that was not split, as it ended.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeafRecord {
    /// First key of its range.
    pub start: Vec<u8>,
    /// First key past its range.
    pub end: Vec<u8>,
    /// How it ended.
    pub(crate) status: LeafStatus,
    /// Its fence at the end.
    pub(crate) fence: FenceEpoch,
    /// The key of its last cursor.
    pub(crate) cursor: Option<Vec<u8>>,
    /// The keys at or below the cursor.
    pub(crate) accumulator: Accumulator,
    /// How many of them were passed over unread.
    pub(crate) unread: u64,
}

impl LeafRecord {
    /// Returns a leaf of `[start, end)` with no progress.
    #[must_use]
    pub fn new(start: &[u8], end: &[u8], status: LeafStatus, fence: FenceEpoch) -> Self {
        Self {
            start: start.to_vec(),
            end: end.to_vec(),
            status,
            fence,
            cursor: None,
            accumulator: Accumulator::EMPTY,
            unread: 0,
        }
    }

    /// Adds its cursor and what the cursor's token says.
    #[must_use]
    pub fn with_progress(self, cursor: &[u8], accumulator: Accumulator, unread: u64) -> Self {
        Self { cursor: Some(cursor.to_vec()), accumulator, unread, ..self }
    }
}

// Lengths and numbers only.
impl fmt::Debug for LeafRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafRecord")
            .field("start_len", &self.start.len())
            .field("end_len", &self.end.len())
            .field("status", &self.status)
            .field("fence", &self.fence)
            .field("cursor_len", &self.cursor.as_ref().map(Vec::len))
            .field("accumulator", &self.accumulator)
            .field("unread", &self.unread)
            .finish()
    }
}

/// How a leaf ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a leaf is finished or it is not, and every reader must tell these apart"
)]
pub enum LeafStatus {
    /// Everything in its range was covered.
    Done,
    /// What lies behind its cursor was not.
    Parked(ParkedFor),
}

/// Why a leaf is parked, by the names of the coordinator's reasons; or that it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParkedFor {
    /// The source may not be read there.
    PermissionDenied,
    /// The scanned object does not exist any more.
    NotFound,
    /// Something inside is inconsistent.
    Poisoned,
    /// Too many attempts made no progress.
    TooManyErrors,
    /// Anything else.
    Other,
    /// Its record was damaged, so nothing is known to be covered. Its fence is stated as 1.
    Damaged,
}

impl ParkedFor {
    /// Every reason.
    pub(crate) const ALL: [Self; 6] = [
        Self::PermissionDenied,
        Self::NotFound,
        Self::Poisoned,
        Self::TooManyErrors,
        Self::Other,
        Self::Damaged,
    ];

    /// Returns the word that a certificate uses.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::PermissionDenied => "PermissionDenied",
            Self::NotFound => "NotFound",
            Self::Poisoned => "Poisoned",
            Self::TooManyErrors => "TooManyErrors",
            Self::Other => "Other",
            Self::Damaged => "Damaged",
        }
    }
}

/// What all leaves come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) done: u64,
    pub(super) parked: u64,
    pub(super) unread: u64,
    pub(super) accumulator: Accumulator,
}

impl Totals {
    /// Adds one leaf; numbers that are too large stay at their top, where nothing adds up.
    pub(super) fn add(&mut self, leaf: &LeafRecord) {
        match leaf.status {
            LeafStatus::Done => self.done += 1,
            LeafStatus::Parked(_) => self.parked += 1,
        }
        self.unread = self.unread.saturating_add(leaf.unread);
        self.accumulator.merge(&leaf.accumulator);
    }

    pub(super) const fn leaves(&self) -> u64 {
        self.done + self.parked
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.parked == 0 && self.unread == 0
    }
}
