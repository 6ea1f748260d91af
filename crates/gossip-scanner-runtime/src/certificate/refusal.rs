//! Why a certificate is refused.

use std::io;

use gossip_contracts::connector::PageError;
use thiserror::Error;

/// Why a certificate is refused, in numbers: leaves and lines are counted from one.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    // The file.
    /// It could not be read.
    #[error("the certificate cannot be read ({kind})")]
    Unreadable {
        /// How it failed.
        kind: io::ErrorKind,
    },
    /// It ends too early.
    #[error("the certificate ends within line {line}")]
    CutShort {
        /// Where.
        line: u64,
    },
    /// A line is longer than any can be.
    #[error("line {line} is longer than {max} bytes")]
    LineTooLong {
        /// Which one.
        line: u64,
        /// The most.
        max: usize,
    },
    /// A line is not what must stand there.
    #[error("line {line} is not a valid certificate line")]
    Malformed {
        /// Which one.
        line: u64,
    },
    /// Something comes after the end.
    #[error("data after line {line}, which must be the last")]
    TrailingBytes {
        /// The last line.
        line: u64,
    },

    // What it says.
    /// The range that was asked for holds nothing, or has no bounds.
    #[error("the request has no range: bounds of {start_len} and {end_len} bytes")]
    EmptyRequest {
        /// Length of its start.
        start_len: usize,
        /// Length of its end.
        end_len: usize,
    },
    /// There are no leaves, or the last one ends before the request does.
    #[error("gap at the end of the request, after {leaves} leaves")]
    EndMissing {
        /// Leaves there are.
        leaves: u64,
    },
    /// A leaf begins behind where the one before ends, or the request begins.
    #[error("gap before leaf {leaf}")]
    Gap {
        /// Which leaf.
        leaf: u64,
    },
    /// A leaf begins before the one before it ends, or before the request.
    #[error("leaf {leaf} overlaps the one before it, or starts before the request")]
    Overlap {
        /// Which leaf.
        leaf: u64,
    },
    /// A leaf goes beyond the request.
    #[error("leaf {leaf} ends beyond the request")]
    BeyondRequest {
        /// Which leaf.
        leaf: u64,
    },
    /// A leaf's range holds nothing.
    #[error("leaf {leaf} has no range: bounds of {start_len} and {end_len} bytes")]
    EmptyLeaf {
        /// Which leaf.
        leaf: u64,
        /// Length of its start.
        start_len: usize,
        /// Length of its end.
        end_len: usize,
    },
    /// A leaf that ended was never owned.
    #[error("leaf {leaf} is finished but never had an owner")]
    NeverOwned {
        /// Which leaf.
        leaf: u64,
    },
    /// A leaf is done and has no cursor.
    #[error("leaf {leaf} is done but has no cursor")]
    DoneWithoutCursor {
        /// Which leaf.
        leaf: u64,
    },
    /// A cursor lies outside its leaf.
    #[error("the cursor of leaf {leaf} lies outside its range")]
    CursorOutside {
        /// Which leaf.
        leaf: u64,
    },
    /// More keys at or below the cursor than there can be.
    #[error("leaf {leaf} counts {count} keys where there can be at most {max}")]
    TooManyKeys {
        /// Which leaf.
        leaf: u64,
        /// Keys stated.
        count: u64,
        /// The most there can be.
        max: u64,
    },
    /// More keys unread than there are.
    #[error("leaf {leaf} has {unread} keys unread of {count}")]
    UnreadExceedsCount {
        /// Which leaf.
        leaf: u64,
        /// Keys said to be unread.
        unread: u64,
        /// Keys stated.
        count: u64,
    },
    /// The stated remaining range of a parked leaf is wrong.
    #[error("leaf {leaf} has a wrong remainder")]
    UncoveredMisstated {
        /// Which leaf.
        leaf: u64,
    },
    /// The sums at the end are not those of the leaves.
    #[error("the leaves do not add up to the totals")]
    TotalsDiffer,

    // Its seal.
    /// The hash is not that of the lines above it.
    #[error("the hash does not match the certificate")]
    HashDiffers,
    /// A key was given, and the certificate has no signature.
    #[error("the certificate is not signed")]
    NotSigned,
    /// The signature was not made with the key that was given.
    #[error("the signature does not match the key or the certificate")]
    SignatureDiffers,

    // Compared with a source.
    /// Another kind of source, other options, or another range was asked for.
    #[error("the certificate is for another request: different {what}")]
    OtherRequest {
        /// What differs.
        what: &'static str,
    },
    /// The source has another number of keys there.
    #[error("leaf {leaf} counts {stated} keys; the source has {found}")]
    CountDiffers {
        /// Which leaf.
        leaf: u64,
        /// Keys stated.
        stated: u64,
        /// Keys listed.
        found: u64,
    },
    /// The source has other keys there.
    #[error("leaf {leaf} counts {count} keys; the source has as many, but different ones")]
    KeysDiffer {
        /// Which leaf.
        leaf: u64,
        /// Keys on both sides.
        count: u64,
    },
    /// The source could not be listed.
    #[error("the source cannot be listed for leaf {leaf}: {error}")]
    SourceFailed {
        /// Which leaf.
        leaf: u64,
        /// How it failed.
        error: PageError,
    },
}
