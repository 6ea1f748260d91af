//! The ways to break a law, in numbers.

use std::io;

use thiserror::Error;

use crate::connector::{ConnectorError, OpenError, PageError, PageViolation};

/// The failure of one case. Indices count the expected items in key order.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Not the connector's fault: the fixture is unsuitable.
    #[error("the fixture has {items} items; it needs {min} to {max}, distinct and with legal keys")]
    UnfitFixture {
        /// Items in the fixture.
        items: usize,
        /// The minimum.
        min: usize,
        /// The maximum.
        max: usize,
    },
    /// A listing failed, or a page broke a rule.
    #[error(transparent)]
    Page(#[from] PageError),
    /// More keys than the source has; the listing may never end.
    #[error("the listing continues after {expected} expected keys")]
    Endless {
        /// Number of expected keys.
        expected: usize,
    },
    /// The keys listed are not those expected.
    #[error("{found} keys instead of {expected}, the first difference at {index}")]
    KeysDiffer {
        /// First position at which they differ.
        index: usize,
        /// Number of keys listed.
        found: usize,
        /// Number of keys expected.
        expected: usize,
    },
    /// A size hint is wrong, or missing although promised.
    #[error("item {index} has the size hint {hint:?} instead of {expected}")]
    SizeHint {
        /// Index of the item.
        index: usize,
        /// The hint returned.
        hint: Option<u64>,
        /// The size of its body.
        expected: u64,
    },
    /// A count is wrong, or missing although promised.
    #[error("counted {counted:?} keys instead of {expected}")]
    Count {
        /// The count returned.
        counted: Option<u64>,
        /// Number of keys in the range.
        expected: u64,
    },
    /// Samples are promised and there is none, or the reverse.
    #[error("a sample of {items} keys although samples are promised: {promised}")]
    SamplePromise {
        /// Keys in the sample.
        items: usize,
        /// Whether the capabilities promise samples.
        promised: bool,
    },
    /// A sample breaks a rule of pages.
    #[error("in a sample: {0}")]
    Sample(PageViolation),
    /// An existing item does not open.
    #[error("item {index} does not open: {error}")]
    Open {
        /// Index of the item.
        index: usize,
        /// The error returned.
        error: OpenError,
    },
    /// Reading the body failed.
    #[error("the body of item {index} cannot be read ({kind})")]
    Unreadable {
        /// Index of the item.
        index: usize,
        /// Kind of the read error.
        kind: io::ErrorKind,
    },
    /// The body is not the expected one.
    #[error("item {index} has a wrong body of {len} bytes; {expected_len} were expected")]
    Body {
        /// Index of the item.
        index: usize,
        /// Bytes read; at most one more than expected.
        len: usize,
        /// Bytes expected.
        expected_len: usize,
    },
    /// Too many bytes were read into the caller's buffer.
    #[error("item {index} put {len} bytes into the scratch buffer; at most {max} are allowed")]
    Scratch {
        /// Index of the item.
        index: usize,
        /// Bytes in the buffer.
        len: usize,
        /// [`MAX_INLINE_BODY_BYTES`](crate::connector::MAX_INLINE_BODY_BYTES).
        max: usize,
    },
    /// Opening a missing, changed or denied item returned another result.
    #[error("opening returned {found:?} instead of {expected:?}")]
    WrongOpenError {
        /// The expected error.
        expected: OpenError,
        /// The error returned; `None` if the item opened.
        found: Option<OpenError>,
    },
    /// An error contains bytes of a key.
    #[error("an error contains bytes of a key")]
    KeyInError,
}

impl From<ConnectorError> for Problem {
    fn from(error: ConnectorError) -> Self {
        Self::Page(PageError::Connector(error))
    }
}
