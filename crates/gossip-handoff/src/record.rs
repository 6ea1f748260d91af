//! Everything there is to know about one handoff, and its bytes.
//!
//! # Invariants
//! - Names are not empty, and source and destination differ.
//! - `started_at <= last_transition`.
//! - There is no snapshot in `Lock` and none in `Complete`; only `RolledBack` has an error.
//!
//! # Bytes
//! A record is stored as one value. All numbers are little-endian.
//!
//! | width | field |
//! |---|---|
//! | 1 | phase |
//! | 8 | `started_at` |
//! | 8 | `last_transition` |
//! | 2 + n | id, length and bytes |
//! | 2 + n | subject |
//! | 2 + n | from |
//! | 2 + n | to |
//! | 2 + n | error |
//! | rest | snapshot |

use std::fmt;

use gossip_contracts::identity::LogicalTime;
use thiserror::Error;

use crate::phase::{Phase, UnknownPhase};

/// The longest id, subject or owner, in bytes: a path or a host with a process number fits.
pub const NAME_LEN_MAX: usize = 512;

/// The longest reason of a rollback, in bytes. A longer one is cut: it is for people, and refusing
/// it would leave a handoff standing that somebody wanted to end.
pub const REASON_LEN_MAX: usize = 1_024;

/// The largest snapshot, in bytes. What is larger belongs in a store of its own, with its address
/// as the snapshot.
pub const SNAPSHOT_LEN_MAX: usize = 256 << 10;

/// The most bytes of a record.
pub const RECORD_LEN_MAX: usize =
    1 + 2 * 8 + 5 * 2 + 4 * NAME_LEN_MAX + REASON_LEN_MAX + SNAPSHOT_LEN_MAX;

/// Names one handoff. Given or derived by the caller, never drawn here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(String);

impl RecordId {
    /// The handoff with this name.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord::NameLength`] if it is empty or longer than [`NAME_LEN_MAX`].
    pub fn new(id: impl Into<String>) -> Result<Self, InvalidRecord> {
        let id = id.into();
        check_name("id", &id)?;
        Ok(Self(id))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({} bytes)", self.0.len())
    }
}

/// One handoff. Stored whole by a repository.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// Which handoff this is.
    pub id: RecordId,
    /// What moves.
    pub subject: String,
    /// Who has it.
    pub from: String,
    /// Who gets it.
    pub to: String,
    /// How far it is.
    pub state: Phase,
    /// When it began.
    pub started_at: LogicalTime,
    /// When it last moved on; never before `started_at`.
    pub last_transition: LogicalTime,
    /// The frozen state of the subject. Empty before `Serialize` and dropped on `Complete`; kept
    /// after a rollback, for whoever looks into it.
    pub snapshot: Vec<u8>,
    /// Why it was rolled back; empty otherwise.
    pub error: String,
}

impl Record {
    /// Whether `owner` gives or gets.
    #[must_use]
    pub fn concerns(&self, owner: &str) -> bool {
        self.from == owner || self.to == owner
    }

    /// Refuses what no machine has made.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for the first invariant that does not hold.
    pub fn check(&self) -> Result<(), InvalidRecord> {
        check_name("id", &self.id.0)?;
        check_name("subject", &self.subject)?;
        check_name("from", &self.from)?;
        check_name("to", &self.to)?;
        if self.from == self.to {
            return Err(InvalidRecord::SameOwner);
        }
        if self.last_transition < self.started_at {
            return Err(InvalidRecord::TimeRunsBack);
        }
        check_snapshot(&self.snapshot)?;
        let stray_snapshot = matches!(self.state, Phase::Lock | Phase::Complete);
        if stray_snapshot && !self.snapshot.is_empty() {
            return Err(InvalidRecord::StraySnapshot { state: self.state });
        }
        if self.error.len() > REASON_LEN_MAX {
            return Err(InvalidRecord::ReasonTooLong { len: self.error.len() });
        }
        if self.state != Phase::RolledBack && !self.error.is_empty() {
            return Err(InvalidRecord::StrayReason { state: self.state });
        }
        Ok(())
    }

    /// The bytes of the record.
    ///
    /// # Panics
    ///
    /// If a name or the reason is longer than a record allows. What comes from a machine or from
    /// [`Record::from_bytes`] is not; whoever fills in the fields calls [`Record::check`] first.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![self.state.as_u8()];
        out.extend(self.started_at.as_raw().to_le_bytes());
        out.extend(self.last_transition.as_raw().to_le_bytes());
        for text in [&self.id.0, &self.subject, &self.from, &self.to, &self.error] {
            let len = u16::try_from(text.len()).expect("names and reasons are bounded");
            out.extend(len.to_le_bytes());
            out.extend(text.as_bytes());
        }
        out.extend(&self.snapshot);
        out
    }

    /// The record with these bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for bytes that [`Record::to_bytes`] does not make.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidRecord> {
        let mut rest = Rest(bytes);
        let [phase] = rest.array()?;
        let record = Self {
            state: Phase::from_u8(phase)?,
            started_at: rest.time()?,
            last_transition: rest.time()?,
            id: RecordId(rest.text()?),
            subject: rest.text()?,
            from: rest.text()?,
            to: rest.text()?,
            error: rest.text()?,
            snapshot: rest.0.to_vec(),
        };
        record.check()?;
        Ok(record)
    }
}

/// Names and snapshots belong to the caller, so only their lengths are shown.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("id", &self.id)
            .field("state", &self.state)
            .field("started_at", &self.started_at)
            .field("last_transition", &self.last_transition)
            .field("snapshot", &self.snapshot.len())
            .finish_non_exhaustive()
    }
}

/// Why something is not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidRecord {
    /// A name is empty or too long.
    #[error("{field} has {len} bytes; 1 to {NAME_LEN_MAX} are allowed")]
    NameLength {
        /// Which name.
        field: &'static str,
        /// Its length.
        len: usize,
    },
    /// A handoff to oneself moves nothing.
    #[error("source and destination are the same")]
    SameOwner,
    /// The last transition lies before the start.
    #[error("the last transition is earlier than the start")]
    TimeRunsBack,
    /// More than fits into a record.
    #[error("the snapshot has {len} bytes; {SNAPSHOT_LEN_MAX} are allowed")]
    SnapshotTooLarge {
        /// Its length.
        len: usize,
    },
    /// There is a snapshot where there cannot be one.
    #[error("a record in phase {state} has no snapshot")]
    StraySnapshot {
        /// The phase.
        state: Phase,
    },
    /// The reason of a rollback is too long.
    #[error("the reason has {len} bytes; {REASON_LEN_MAX} are allowed")]
    ReasonTooLong {
        /// Its length.
        len: usize,
    },
    /// There is a reason, and no rollback.
    #[error("a record in phase {state} has no reason for a rollback")]
    StrayReason {
        /// The phase.
        state: Phase,
    },
    /// The bytes end too early.
    #[error("the record is cut off")]
    CutOff,
    /// A name is not UTF-8.
    #[error("a name is not UTF-8")]
    NotText,
    /// The phase has an unknown number.
    #[error(transparent)]
    UnknownPhase(#[from] UnknownPhase),
}

pub(crate) const fn check_snapshot(snapshot: &[u8]) -> Result<(), InvalidRecord> {
    if snapshot.len() > SNAPSHOT_LEN_MAX {
        return Err(InvalidRecord::SnapshotTooLarge { len: snapshot.len() });
    }
    Ok(())
}

/// The beginning of `reason` that fits, whole characters only.
pub(crate) fn cut_reason(reason: &str) -> String {
    let end = reason.floor_char_boundary(REASON_LEN_MAX);
    reason[..end].to_owned()
}

const fn check_name(field: &'static str, name: &str) -> Result<(), InvalidRecord> {
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Err(InvalidRecord::NameLength { field, len: name.len() });
    }
    Ok(())
}

/// Bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], InvalidRecord> {
        let (head, rest) = self.0.split_first_chunk().ok_or(InvalidRecord::CutOff)?;
        self.0 = rest;
        Ok(*head)
    }

    fn time(&mut self) -> Result<LogicalTime, InvalidRecord> {
        Ok(LogicalTime::from_raw(u64::from_le_bytes(self.array()?)))
    }

    fn text(&mut self) -> Result<String, InvalidRecord> {
        let len = usize::from(u16::from_le_bytes(self.array()?));
        let (text, rest) = self.0.split_at_checked(len).ok_or(InvalidRecord::CutOff)?;
        self.0 = rest;
        let text = str::from_utf8(text).map_err(|_| InvalidRecord::NotText)?;
        Ok(text.to_owned())
    }
}

// Lengths of names and reasons are stored in two bytes.
const _: () = assert!(NAME_LEN_MAX <= u16::MAX as usize);
const _: () = assert!(REASON_LEN_MAX <= u16::MAX as usize);
