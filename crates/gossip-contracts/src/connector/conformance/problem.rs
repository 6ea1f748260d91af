//! How a law can be broken, in numbers.

use std::io;

use thiserror::Error;

use crate::connector::{ConnectorError, OpenError, PageError, PageViolation};

/// What was wrong in one case. Indices count the expected items in key order.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Not the connector's fault: the fixture cannot show anything.
    #[error("the fixture has {items} items; it needs {min} to {max}, distinct and with legal keys")]
    UnfitFixture {
        /// Items it gave.
        items: usize,
        /// The fewest.
        min: usize,
        /// The most.
        max: usize,
    },
    /// A listing failed, or a page broke a rule.
    #[error(transparent)]
    Page(#[from] PageError),
    /// More keys than there can be; the listing may never end.
    #[error("the listing goes on after {expected} expected keys")]
    Endless {
        /// Keys that should be there.
        expected: usize,
    },
    /// The keys listed are not those expected.
    #[error("{found} keys instead of {expected}, the first difference at {index}")]
    KeysDiffer {
        /// First position at which they differ.
        index: usize,
        /// How many were listed.
        found: usize,
        /// How many should be.
        expected: usize,
    },
    /// A size hint is wrong, or missing although promised.
    #[error("item {index} has the size hint {hint:?} instead of {expected}")]
    SizeHint {
        /// Which item.
        index: usize,
        /// What was given.
        hint: Option<u64>,
        /// The size of its body.
        expected: u64,
    },
    /// A count is wrong, or missing although promised.
    #[error("counted {counted:?} keys instead of {expected}")]
    Count {
        /// What was given.
        counted: Option<u64>,
        /// How many there are.
        expected: u64,
    },
    /// Samples are promised and there is none, or the other way round.
    #[error("a sample of {items} keys although samples are promised: {promised}")]
    SamplePromise {
        /// Keys in the sample.
        items: usize,
        /// What the capabilities say.
        promised: bool,
    },
    /// A sample breaks a rule of pages.
    #[error("in a sample: {0}")]
    Sample(PageViolation),
    /// An item that is there does not open.
    #[error("item {index} does not open: {error}")]
    Open {
        /// Which item.
        index: usize,
        /// What was answered.
        error: OpenError,
    },
    /// Reading the body failed.
    #[error("the body of item {index} cannot be read ({kind})")]
    Unreadable {
        /// Which item.
        index: usize,
        /// How it failed.
        kind: io::ErrorKind,
    },
    /// The body is not the expected one.
    #[error("item {index} has a wrong body of {len} bytes; {expected_len} were expected")]
    Body {
        /// Which item.
        index: usize,
        /// Bytes read; at most one more than expected.
        len: usize,
        /// Bytes expected.
        expected_len: usize,
    },
    /// Too much was read into the caller's buffer.
    #[error("item {index} put {len} bytes into the scratch buffer; at most {max} are allowed")]
    Scratch {
        /// Which item.
        index: usize,
        /// Bytes in the buffer.
        len: usize,
        /// [`MAX_INLINE_BODY_BYTES`](crate::connector::MAX_INLINE_BODY_BYTES).
        max: usize,
    },
    /// Opening something missing, changed or denied did not say so.
    #[error("opening answered {found:?} instead of {expected:?}")]
    WrongOpenError {
        /// What should be answered.
        expected: OpenError,
        /// What was; `None` if it opened.
        found: Option<OpenError>,
    },
    /// An error shows bytes of a key.
    #[error("an error shows bytes of a key")]
    KeyInError,
}

impl From<ConnectorError> for Problem {
    fn from(error: ConnectorError) -> Self {
        Self::Page(PageError::Connector(error))
    }
}
