//! The traits of a store: read, commit, wait.
//!
//! An engine moves bytes. It implements no protocol rule, decodes no value and returns no protocol
//! error: a failure is an [`InfraError`], and a commit that was not applied is not an error.
//!
//! # Requirements for every engine
//! - The answers of one `read` are a snapshot that includes every commit acknowledged before it.
//! - A commit is atomic and, once it returned [`CommitOutcome::Applied`], durable. The transactions
//!   of one call are independent: a conflict in one does not fail another.
//! - All keys that a transaction writes get one revision. Revisions of a key increase with every
//!   write, also across its deletion.
//! - [`CommitOutcome::Conflict`] and every error mean that the transaction was not and will not be
//!   applied; every less certain outcome is [`CommitOutcome::Unknown`].

use std::future::Future;

use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;

/// Keys and values in key order.
pub type Page = Vec<(Key, Versioned)>;

/// One query of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an engine must answer every kind")]
pub enum Read {
    /// The value of a key, as [`Answer::Value`].
    Get(Key),
    /// The first keys of a range with their values, as [`Answer::Page`]. A page shorter than its
    /// limit reaches the end of the range.
    Scan {
        /// The range.
        range: KeyRange,
        /// Maximum number of keys; never more than [`StoreLimits::page`].
        limit: usize,
    },
    /// The number of keys in a range, as [`Answer::Count`].
    Count(KeyRange),
    /// As `Scan` of the first non-empty range of `ranges`; an empty page if all are empty. The
    /// later ranges are not read, so a caller that does not know the density lists narrow ranges
    /// first and pays only for the one that matches.
    ScanFirst {
        /// The ranges, in this order; at least one.
        ranges: Vec<KeyRange>,
        /// Maximum number of keys, as for `Scan`.
        limit: usize,
    },
}

/// The answer to one query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "one variant per query")]
pub enum Answer {
    /// The value, if the key exists.
    Value(Option<Versioned>),
    /// Keys and values in key order.
    Page(Page),
    /// The number of keys.
    Count(u64),
}

/// Limits of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Maximum number of compares, and of writes.
    pub txn_ops: usize,
    /// Maximum bytes of keys and values.
    pub txn_bytes: usize,
    /// Maximum keys in one page of a scan; at least one.
    pub page: usize,
}

impl StoreLimits {
    /// No limits on transactions, for an engine in this process.
    pub const GENEROUS: Self = Self { txn_ops: usize::MAX, txn_bytes: usize::MAX, page: 1_000 };

    /// Returns whether `txn` fits.
    #[must_use]
    pub const fn admit(&self, txn: &Txn) -> bool {
        txn.op_count() <= self.txn_ops && txn.byte_count() <= self.txn_bytes
    }
}

/// A blocking store.
#[expect(clippy::missing_errors_doc, reason = "every error is a failure of the store")]
pub trait Store {
    /// Answers `reads`, in their order. The caller sends at most [`StoreLimits::txn_ops`].
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError>;

    /// Applies each transaction whose compares hold, and returns one outcome per transaction, in
    /// their order.
    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>>;

    /// Waits for about `ticks` of the caller's clock.
    fn wait(&mut self, ticks: u64);

    /// Returns the limits of one transaction.
    fn limits(&self) -> StoreLimits;

    /// Returns a number that increases whenever keys bound earlier ([`Write::Bind`]) may have
    /// vanished; `None` if the store binds no keys. A store binds keys always or never.
    ///
    /// [`Write::Bind`]: super::Write::Bind
    fn binding(&self) -> Option<u64> {
        None
    }

    /// Returns a number that changes whenever another handle or process may have changed the store,
    /// if that costs next to nothing to find out; `None` otherwise, and if it cannot be found out.
    ///
    /// It is a hint for waits: its callers also look at intervals.
    fn change_count(&mut self) -> Option<u64> {
        None
    }
}

/// An asynchronous store. See [`Store`].
pub trait AsyncStore: Send {
    /// See [`Store::read`].
    fn read(
        &mut self,
        reads: Vec<Read>,
    ) -> impl Future<Output = Result<Vec<Answer>, InfraError>> + Send;

    /// See [`Store::commit`].
    fn commit(
        &mut self,
        txns: Vec<Txn>,
    ) -> impl Future<Output = Vec<Result<CommitOutcome, InfraError>>> + Send;

    /// See [`Store::wait`].
    fn wait(&mut self, ticks: u64) -> impl Future<Output = ()> + Send;

    /// See [`Store::limits`].
    fn limits(&self) -> StoreLimits;

    /// See [`Store::binding`].
    fn binding(&self) -> Option<u64> {
        None
    }

    /// See [`Store::change_count`].
    fn change_count(&mut self) -> Option<u64> {
        None
    }
}
