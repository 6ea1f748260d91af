//! What can go wrong at a source, and what the runtime does about it.
//!
//! Errors hold kinds and numbers, never text of a source: an `io::Error` may quote a path, so only
//! its kind is kept. They are `Copy`, which also shows that they hold no bytes.

use std::io;

use thiserror::Error;

/// Why a source could not be listed, counted or sampled.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The source did not answer; another try may succeed.
    #[error("the source did not answer ({kind})")]
    Unavailable {
        /// The kind of the failure underneath.
        kind: io::ErrorKind,
    },
    /// The source as a whole may not be read.
    #[error("the source may not be read")]
    PermissionDenied,
    /// The source as a whole is not there.
    #[error("the source does not exist")]
    NotFound,
    /// The source is no longer the one the run was created over, so its keys mean something else.
    #[error("the source has changed since the run was created")]
    SourceChanged,
    /// The source cannot be parsed.
    #[error("the source cannot be parsed at position {position}")]
    Malformed {
        /// Byte offset or row number, as the connector documents.
        position: u64,
    },
}

impl ConnectorError {
    /// Sorts a failure of the whole source by its kind.
    ///
    /// Whatever is not known to be permanent is worth another try: retries are bounded.
    pub fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            // Neither heals by waiting: someone has to act, so no retry is spent on it.
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound,
            kind => Self::Unavailable { kind },
        }
    }

    /// What the runtime does with the shard.
    pub const fn reaction(&self) -> Reaction {
        match self {
            Self::Unavailable { .. } => Reaction::Retry,
            Self::PermissionDenied => Reaction::Park(ParkCause::PermissionDenied),
            Self::NotFound => Reaction::Park(ParkCause::NotFound),
            // Going on would label items with keys that mean something else.
            Self::SourceChanged | Self::Malformed { .. } => Reaction::Park(ParkCause::Poisoned),
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self.reaction(), Reaction::Retry)
    }
}

/// Why one item could not be opened or read to its end.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such item (any more).
    #[error("the item is not in the source")]
    Vanished,
    /// Something is there, and it is not what was listed: a directory in place of a file, a row at
    /// another place.
    #[error("the item is no longer what was listed")]
    Changed,
    /// This item may not be read; others may.
    #[error("the item may not be read")]
    PermissionDenied,
    /// This item cannot be parsed; others can.
    #[error("the item cannot be parsed")]
    Malformed,
    /// The system would not even look the item up, or read it, as it was asked to. That says
    /// nothing of whether it is there.
    #[error("the system refuses to look for the item or to read it")]
    Refused,
    /// The item is longer than what its reader holds in memory; it was not asked for.
    #[error("the item is longer than {max} bytes, the most that is read of one")]
    TooLong {
        /// The most bytes.
        max: usize,
    },
    /// The source as a whole failed.
    #[error(transparent)]
    Source(#[from] ConnectorError),
}

impl OpenError {
    /// Sorts a failure of one item by its kind, while opening it or while reading its body.
    ///
    /// A path one of whose directories has become a file leads nowhere: the item is gone. A name or
    /// a read that the system refuses is no such proof: below a long root the path of a listed item
    /// may be too long, and some file systems refuse a read where others answer. A connector that
    /// knows that a key cannot be a name in its source (too long a part, a zero byte) answers
    /// [`Self::Vanished`] by itself, without asking the system.
    pub fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Vanished,
            // Never `Vanished`: what is there and unread must not be recorded as gone.
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => Self::Refused,
            // A file that ends before its listed size was cut short after it was listed.
            io::ErrorKind::IsADirectory | io::ErrorKind::UnexpectedEof => Self::Changed,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::InvalidData => Self::Malformed,
            kind => Self::Source(ConnectorError::Unavailable { kind }),
        }
    }

    /// What the runtime does with the item, or with its shard.
    pub const fn reaction(&self) -> Reaction {
        match self {
            // A retry would find the same: what is gone or changed does not come back.
            Self::Vanished => Reaction::SkipGone,
            Self::Changed
            | Self::PermissionDenied
            | Self::Malformed
            | Self::Refused
            | Self::TooLong { .. } => Reaction::SkipUnread,
            Self::Source(error) => error.reaction(),
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self.reaction(), Reaction::Retry)
    }
}

/// What the runtime does about an error; the only thing it needs to know of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reaction {
    /// Try again with backoff; when the bounded number of tries is used up, park the shard for too
    /// many errors.
    Retry,
    /// Pass over the item: it is no longer part of the source, so nothing was missed.
    SkipGone,
    /// Pass over the item and record it as unread: the run ends incomplete.
    SkipUnread,
    /// Park the shard with this cause and go on with others.
    Park(ParkCause),
}

/// Why a shard is parked on account of its source.
///
/// The names are those of the coordinator's park reasons, which this crate does not know; the two
/// that no single error can cause (too many of them, and anything else) are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParkCause {
    /// Someone must grant access first.
    PermissionDenied,
    /// The source is not there.
    NotFound,
    /// The connector or its source contradicts itself, and someone must look.
    Poisoned,
}
