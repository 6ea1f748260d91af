//! The record of one handoff and its stored form.
//!
//! # Invariants
//! - Names are not empty, and source and destination differ.
//! - `started_at <= last_transition`.
//! - There is no snapshot in `Lock` and none in `Complete`; only `RolledBack` has an error.
//!
//! # Bytes
//! A record is one value of the store. All numbers are little-endian.
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

/// The longest id, subject or owner, in bytes. A path or `host:process` fits.
pub const NAME_LEN_MAX: usize = 512;

/// The longest rollback reason, in bytes. A longer one is truncated: it is for people, and an error
/// would leave the handoff open.
pub const REASON_LEN_MAX: usize = 1_024;

/// The largest snapshot, in bytes. Store larger state elsewhere and its address as the snapshot.
pub const SNAPSHOT_LEN_MAX: usize = 256 << 10;

/// The largest record, in bytes.
pub(crate) const RECORD_LEN_MAX: usize =
    1 + 2 * 8 + 5 * 2 + 4 * NAME_LEN_MAX + REASON_LEN_MAX + SNAPSHOT_LEN_MAX;

/// The id of one handoff, provided or derived by the caller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(String);

impl RecordId {
    /// Returns an id with this text.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord::NameLength`] if it is empty or longer than [`NAME_LEN_MAX`].
    pub fn new(id: impl Into<String>) -> Result<Self, InvalidRecord> {
        let id = id.into();
        check_name("id", &id)?;
        Ok(Self(id))
    }

    /// Returns the text.
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

/// One handoff, as a repository stores it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The id of the handoff.
    pub id: RecordId,
    /// The subject that is moved.
    pub subject: String,
    /// The present owner.
    pub from: String,
    /// The next owner.
    pub to: String,
    /// The phase.
    pub state: Phase,
    /// The time of its start.
    pub started_at: LogicalTime,
    /// The time of its last transition; at least `started_at`.
    pub last_transition: LogicalTime,
    /// The frozen state of the subject. Empty before `Serialize`, deleted by `Complete`, and kept
    /// after a rollback for inspection.
    pub snapshot: Vec<u8>,
    /// The reason of the rollback; otherwise empty.
    pub error: String,
}

impl Record {
    /// Returns whether `owner` is the source or the destination.
    #[must_use]
    pub(crate) fn concerns(&self, owner: &str) -> bool {
        self.from == owner || self.to == owner
    }

    /// Checks the invariants that every record of a [`Machine`](crate::Machine) has.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for the first violated invariant.
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
        // A rolled-back record may have one or not: the rollback can come before or after
        // Serialize.
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

    /// Encodes the record.
    ///
    /// # Panics
    ///
    /// If a name or the reason is too long. Records of a machine or of [`Record::from_bytes`] never
    /// are; call [`Record::check`] first for a record built by hand.
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

    /// Decodes a record.
    ///
    /// # Errors
    ///
    /// [`InvalidRecord`] for bytes that [`Record::to_bytes`] does not produce.
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
            // Last and without a length: everything that remains.
            snapshot: rest.0.to_vec(),
        };
        // A record that no machine produces must not drive one: it may be damaged, or of a newer
        // version.
        record.check()?;
        Ok(record)
    }
}

/// Names and snapshots are user data, so only their lengths are shown.
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

/// A violated invariant of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidRecord {
    /// A name is empty or too long.
    #[error("{field} has {len} bytes; 1 to {NAME_LEN_MAX} are allowed")]
    NameLength {
        /// The field.
        field: &'static str,
        /// Its length.
        len: usize,
    },
    /// Source and destination are the same.
    #[error("source and destination are the same")]
    SameOwner,
    /// The last transition is earlier than the start.
    #[error("the last transition is earlier than the start")]
    TimeRunsBack,
    /// The snapshot is larger than [`SNAPSHOT_LEN_MAX`].
    #[error("the snapshot has {len} bytes; {SNAPSHOT_LEN_MAX} are allowed")]
    SnapshotTooLarge {
        /// Its length.
        len: usize,
    },
    /// A snapshot in a phase that has none.
    #[error("a record in phase {state} must not have a snapshot")]
    StraySnapshot {
        /// The phase.
        state: Phase,
    },
    /// The rollback reason is longer than [`REASON_LEN_MAX`].
    #[error("the reason has {len} bytes; {REASON_LEN_MAX} are allowed")]
    ReasonTooLong {
        /// Its length.
        len: usize,
    },
    /// A rollback reason without a rollback.
    #[error("a record in phase {state} must not have a rollback reason")]
    StrayReason {
        /// The phase.
        state: Phase,
    },
    /// The bytes end before the record does.
    #[error("the record is truncated")]
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

/// Truncates `reason` to [`REASON_LEN_MAX`] bytes at a character boundary.
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

/// The bytes that are still to be decoded.
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
