//! Failures of a source, and the runtime's reaction to each.
//!
//! Errors hold kinds and numbers, never text from a source: an `io::Error` may quote a path, so
//! only its kind is kept. They are `Copy`, which also shows that they hold no bytes.

use std::io;

use thiserror::Error;

/// Why a source could not be listed, counted or sampled.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The source did not respond; a retry may succeed.
    #[error("the source did not answer ({kind})")]
    Unavailable {
        /// The kind of the underlying failure.
        kind: io::ErrorKind,
    },
    /// Access to the source as a whole is denied.
    #[error("the source may not be read")]
    PermissionDenied,
    /// The source as a whole does not exist.
    #[error("the source does not exist")]
    NotFound,
    /// The source is no longer the one the run was created over, so its keys mean something else.
    #[error("the source has changed since the run was created")]
    SourceChanged,
    /// A listing breaks a promise of its protocol: keys could be repeated or skipped.
    #[error("{problem}")]
    Listing {
        /// Which promise.
        problem: ListingProblem,
    },
    /// The source cannot be parsed.
    #[error("the source cannot be parsed at position {position}")]
    Malformed {
        /// Byte offset or row number, as the connector documents.
        position: u64,
    },
}

impl ConnectorError {
    /// Classifies a failure of the whole source by its kind.
    ///
    /// A kind that is not known to be permanent is retried: retries are bounded.
    pub fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            // Both need an operator's action, so no retry is spent on them.
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound,
            kind => Self::Unavailable { kind },
        }
    }

    /// Returns the runtime's reaction for the shard.
    pub const fn reaction(&self) -> Reaction {
        match self {
            Self::Unavailable { .. } => Reaction::Retry,
            Self::PermissionDenied => Reaction::Park(ParkCause::PermissionDenied),
            Self::NotFound => Reaction::Park(ParkCause::NotFound),
            // Continuing would label items with keys that have another meaning.
            Self::SourceChanged | Self::Listing { .. } | Self::Malformed { .. } => {
                Reaction::Park(ParkCause::Poisoned)
            }
        }
    }

    /// Returns whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self.reaction(), Reaction::Retry)
    }
}

/// The promise that a page of a server breaks that a server listed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListingProblem {
    /// A key is not above the one before it.
    #[error("the server lists keys out of byte order")]
    Unordered,
    /// The first key is not above the one that the page was to begin behind.
    #[error("the server lists keys at or before the place that was asked for")]
    Repeated,
    /// It is truncated and has no key to continue behind.
    #[error("the server says that its listing is truncated, and lists no further key")]
    Stuck,
    /// A key does not begin with the prefix.
    #[error("the server lists keys outside of the prefix")]
    Foreign,
}

/// Why one item could not be opened or read to its end.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The item does not exist, or no longer.
    #[error("the item is not in the source")]
    Vanished,
    /// The item exists but is not the one listed: a directory in place of a file, a row at another
    /// position.
    #[error("the item has changed since it was listed")]
    Changed,
    /// Access to this item is denied; others may be readable.
    #[error("the item may not be read")]
    PermissionDenied,
    /// This item cannot be parsed; others can.
    #[error("the item cannot be parsed")]
    Malformed,
    /// The system rejected the lookup or the read itself. That does not show whether the item
    /// exists.
    #[error("the system rejects the lookup or the read of the item")]
    Refused,
    /// The item is in an archive and cannot be read before it is restored.
    #[error("the item is archived; restore it, then try it again")]
    Archived,
    /// The item's name may lead to another item on the way to its source.
    #[error("the name of the item has a `.` or `..` segment, which may lead to another item")]
    Unaddressable,
    /// The item exceeds the reader's memory limit; it was not requested.
    #[error("the item is longer than the limit of {max} bytes")]
    TooLong {
        /// The limit in bytes.
        max: usize,
    },
    /// The source as a whole failed.
    #[error(transparent)]
    Source(#[from] ConnectorError),
}

impl OpenError {
    /// Classifies a failure of one item by its kind, while opening it or while reading its body.
    ///
    /// A path on which a directory has become a file leads nowhere: the item is gone. A name or a
    /// read that the system rejects is no such proof: below a long root the path of a listed item
    /// may be too long, and some file systems reject a read that others perform. If a connector
    /// knows that a key cannot be a name in its source (a part too long, a zero byte), it returns
    /// [`Self::Vanished`] itself, without a system call.
    pub fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Vanished,
            // Never `Vanished`: an existing item that was not read must not be recorded as gone.
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => Self::Refused,
            // A file that ends before its listed size was truncated after it was listed.
            io::ErrorKind::IsADirectory | io::ErrorKind::UnexpectedEof => Self::Changed,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::InvalidData => Self::Malformed,
            kind => Self::Source(ConnectorError::Unavailable { kind }),
        }
    }

    /// Returns the runtime's reaction for the item, or for its shard.
    pub const fn reaction(&self) -> Reaction {
        match self {
            // Not retried: an item that is gone or changed does not come back.
            Self::Vanished => Reaction::SkipGone,
            Self::Changed
            | Self::PermissionDenied
            | Self::Malformed
            | Self::Refused
            | Self::Archived
            | Self::Unaddressable
            | Self::TooLong { .. } => Reaction::SkipUnread,
            Self::Source(error) => error.reaction(),
        }
    }
}

/// The runtime's reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reaction {
    /// Retry with backoff; when the retries are exhausted, park the shard for too many errors.
    Retry,
    /// Skip the item: it is no longer part of the source, so nothing was missed.
    SkipGone,
    /// Skip the item and record it as unread: the run ends incomplete.
    SkipUnread,
    /// Park the shard with this cause and continue with others.
    Park(ParkCause),
}

/// Why a shard is parked because of its source.
///
/// The names are those of the coordinator's park reasons, which this crate does not depend on. The
/// two that no single error can cause (too many errors, and other) are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParkCause {
    /// An operator must grant access first.
    PermissionDenied,
    /// The source does not exist.
    NotFound,
    /// The connector or its source is inconsistent; an operator must investigate.
    Poisoned,
}
