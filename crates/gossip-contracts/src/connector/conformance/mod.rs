//! The suite that every connector must pass; any crate can run it from its own tests.
//!
//! Pass it a [`Fixture`]: a source whose items are known. It lists, resumes, splits and opens in
//! many ways and compares each result with the known items. It depends only on this crate, starts
//! no thread, and always terminates: a connector whose listing never ends is rejected at the first
//! page too many.
//!
//! ```
//! use gossip_contracts::connector::conformance::{ExpectedItem, Fixture, assert_conforms};
//! use gossip_contracts::connector::{Connector, MemoryConnector};
//!
//! struct Letters;
//!
//! impl Fixture for Letters {
//!     fn connect(&self) -> Box<dyn Connector> {
//!         let items = "abcde".bytes().map(|letter| ([letter], []));
//!         Box::new(MemoryConnector::try_new(items).expect("five different keys"))
//!     }
//!
//!     fn expected(&self) -> Vec<ExpectedItem> {
//!         "abcde".bytes().map(|letter| ExpectedItem::new([letter], [])).collect()
//!     }
//! }
//!
//! assert_conforms(&mut Letters);
//! ```
//!
//! A good fixture has keys that are prefixes of others, neighbours in byte order, and keys with
//! bytes 0x00 and 0xFF; for a file tree, `a-b` beside `a/b`. Failures name a law, the case within
//! it, and numbers: never a byte of a key.

mod items;
mod listing;
mod problem;
mod subject;

#[cfg(test)]
mod broken_tests;
#[cfg(test)]
mod conformance_tests;

use std::fmt;

pub use self::problem::Problem;
use self::subject::Subject;
use super::memory::Spoil;
use super::source::Connector;

/// Minimum number of items of a fixture: with fewer there is no middle to split at or to lose.
pub const MIN_FIXTURE_ITEMS: usize = 4;

/// Maximum number of items of a fixture: resuming after every key lists about half its square.
pub const MAX_FIXTURE_ITEMS: usize = 512;

const _: () = assert!(MIN_FIXTURE_ITEMS > Spoil::ALL.len(), "each spoil needs its own item");
const _: () = assert!(MIN_FIXTURE_ITEMS <= MAX_FIXTURE_ITEMS);

/// A source with known content, and a way to connect to it.
pub trait Fixture {
    /// Returns a new connector over the current state of the source. It shares nothing with earlier
    /// ones, as if the process had been restarted.
    fn connect(&self) -> Box<dyn Connector>;

    /// Returns every item of the current source, in any order.
    ///
    /// Between [`MIN_FIXTURE_ITEMS`] and [`MAX_FIXTURE_ITEMS`].
    fn expected(&self) -> Vec<ExpectedItem>;

    /// Applies a change to an item of the source, visible to connectors created afterwards. Returns
    /// `false` if such a source cannot change that way. Called last, with a different item each
    /// time.
    fn spoil(&mut self, key: &[u8], spoil: Spoil) -> bool {
        let _ = (key, spoil);
        false
    }
}

/// One item that the source is known to contain.
#[derive(Clone, PartialEq, Eq)]
pub struct ExpectedItem {
    /// Its key.
    pub key: Vec<u8>,
    /// The bytes that opening it must yield.
    pub body: Vec<u8>,
}

impl ExpectedItem {
    /// Returns an item with this key and body.
    pub fn new(key: impl Into<Vec<u8>>, body: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), body: body.into() }
    }
}

// Only lengths: keys must not reach a log through debug output.
impl fmt::Debug for ExpectedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpectedItem")
            .field("key_len", &self.key.len())
            .field("body_len", &self.body.len())
            .finish()
    }
}

/// A property of every connector. The validator also checks each listing page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Law {
    /// The whole source is listed, with any page size.
    EveryPageSize,
    /// Resuming from an item's cursor lists exactly the items after it, also after a restart.
    ResumeAfterEveryKey,
    /// The same without the token.
    ResumeWithoutToken,
    /// The same with a token that cannot be read.
    ResumeWithUnreadableToken,
    /// The same with the token of another item: the key decides.
    ResumeWithNeighboursToken,
    /// A cursor whose key is not in the source resumes at the next greater one.
    ResumeBetweenKeys,
    /// A cursor below the range resumes at its start; one above lists nothing.
    CursorOutsideRange,
    /// A range lists its start if that is a key, never its end, and everything between.
    RangesAreHalfOpen,
    /// Ranges that tile the keyspace list each item once.
    SubRangesTile,
    /// A range without keys ends immediately.
    EmptyRanges,
    /// Listings and openings on one connector do not affect one another.
    Independence,
    /// Sizes are correct, and present if promised.
    SizeHints,
    /// Counts are correct, and present if promised.
    Counts,
    /// Samples increase inside the range, and are present exactly if promised.
    Samples,
    /// Every item opens, with and without its token, and has its body.
    OpenYieldsBody,
    /// The same with the token of another item: the key decides.
    OpenWithNeighboursToken,
    /// A key that is not in the source is `Vanished`.
    UnknownItems,
    /// An item that vanished, changed or is denied returns that error, and resuming after it works.
    SpoiledItems,
}

impl Law {
    /// Every law, in the order in which they are checked; the law that changes the source is last.
    pub const ALL: [Self; 18] = [
        Self::EveryPageSize,
        Self::ResumeAfterEveryKey,
        Self::ResumeWithoutToken,
        Self::ResumeWithUnreadableToken,
        Self::ResumeWithNeighboursToken,
        Self::ResumeBetweenKeys,
        Self::CursorOutsideRange,
        Self::RangesAreHalfOpen,
        Self::SubRangesTile,
        Self::EmptyRanges,
        Self::Independence,
        Self::SizeHints,
        Self::Counts,
        Self::Samples,
        Self::OpenYieldsBody,
        Self::OpenWithNeighboursToken,
        Self::UnknownItems,
        Self::SpoiledItems,
    ];

    fn check(self, subject: &mut Subject<'_>) -> Result<(), Problem> {
        match self {
            Self::EveryPageSize => listing::every_page_size(subject),
            Self::ResumeAfterEveryKey => listing::resume_after_every_key(subject),
            Self::ResumeWithoutToken => listing::resume_without_token(subject),
            Self::ResumeWithUnreadableToken => listing::resume_with_unreadable_token(subject),
            Self::ResumeWithNeighboursToken => listing::resume_with_neighbours_token(subject),
            Self::ResumeBetweenKeys => listing::resume_between_keys(subject),
            Self::CursorOutsideRange => listing::cursor_outside_range(subject),
            Self::RangesAreHalfOpen => listing::ranges_are_half_open(subject),
            Self::SubRangesTile => listing::sub_ranges_tile(subject),
            Self::EmptyRanges => listing::empty_ranges(subject),
            Self::Independence => listing::independence(subject),
            Self::SizeHints => items::size_hints(subject),
            Self::Counts => items::counts(subject),
            Self::Samples => items::samples(subject),
            Self::OpenYieldsBody => items::open_yields_body(subject),
            Self::OpenWithNeighboursToken => items::open_with_neighbours_token(subject),
            Self::UnknownItems => items::unknown_items(subject),
            Self::SpoiledItems => items::spoiled_items(subject),
        }
    }
}

/// Checks every law; each stops at its first failure.
pub fn check_all(fixture: &mut dyn Fixture) -> Report {
    let mut report = Report { cases: 0, failures: Vec::new() };
    for law in Law::ALL {
        // A new subject for each law, as the previous one may have changed the source.
        let mut subject = Subject::new(fixture);
        let checked = subject.validate().and_then(|()| law.check(&mut subject));
        report.cases += subject.cases;
        if let Err(problem) = checked {
            report.failures.push(Failure { law, case: subject.cases, problem });
        }
    }
    report
}

/// Checks every law and panics on failure; for use in a test.
///
/// # Panics
///
/// If any law is broken, with the report.
pub fn assert_conforms(fixture: &mut dyn Fixture) {
    let report = check_all(fixture);
    assert!(report.failures.is_empty(), "{report}");
}

/// The result of the suite.
#[derive(Clone, Debug)]
pub struct Report {
    /// Number of listings, openings, counts and samples compared.
    pub cases: usize,
    /// At most one for each law.
    pub failures: Vec<Failure>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {} laws broken:", self.failures.len(), Law::ALL.len())?;
        self.failures.iter().try_for_each(|failure| writeln!(f, "  {failure}"))
    }
}

/// One broken law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The broken law.
    pub law: Law,
    /// The case within the law, counted from one; the suite is deterministic.
    pub case: usize,
    /// The failure.
    pub problem: Problem,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, case {}: {}", self.law, self.case, self.problem)
    }
}
