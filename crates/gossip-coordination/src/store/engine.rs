//! What a store does for the store layer: load, scan, count, commit, wait. Nothing else.
//!
//! An engine moves bytes. It knows no rule, decodes no value and makes no error of the protocol:
//! what goes wrong is an [`InfraError`], and a commit that was not applied is no error at all.
//!
//! # What every engine must keep
//! - A `load` and a page of a `scan` each see one instant.
//! - A commit is atomic and, once it answered [`CommitOutcome::Applied`], durable.
//! - Revisions of a key rise with every write, also across its deletion.
//! - [`CommitOutcome::Conflict`] and every error mean that nothing happened and nothing will;
//!   whatever is less certain is [`CommitOutcome::Unknown`].

use std::future::Future;

use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;

/// Keys and values in the order of their keys.
pub type Page = Vec<(Key, Versioned)>;

/// How much an engine takes in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Compares, or writes, whichever are more.
    pub txn_ops: usize,
    /// Bytes of keys and values.
    pub txn_bytes: usize,
    /// Keys in one page of a scan; at least one.
    pub page: usize,
}

impl StoreLimits {
    /// No limits on transactions: an engine in this process.
    pub const GENEROUS: Self = Self { txn_ops: usize::MAX, txn_bytes: usize::MAX, page: 1_000 };

    /// Whether a transaction fits.
    #[must_use]
    pub const fn admit(&self, txn: &Txn) -> bool {
        txn.op_count() <= self.txn_ops && txn.byte_count() <= self.txn_bytes
    }
}

/// A store, blocking.
#[expect(clippy::missing_errors_doc, reason = "every error is a failure of the store")]
pub trait Store {
    /// The values of `keys`, in their order.
    fn load(&mut self, keys: &[Key]) -> Result<Vec<Option<Versioned>>, InfraError>;

    /// The first `limit` keys of `range` and their values.
    fn scan(&mut self, range: &KeyRange, limit: usize) -> Result<Page, InfraError>;

    /// How many keys lie in `range`.
    fn count(&mut self, range: &KeyRange) -> Result<u64, InfraError>;

    /// Does what `txn` says if everything is as it expects.
    fn commit(&mut self, txn: &Txn) -> Result<CommitOutcome, InfraError>;

    /// Lets `ticks` of the caller's clock pass, or about as much.
    fn wait(&mut self, ticks: u64);

    /// How much fits in one transaction.
    fn limits(&self) -> StoreLimits;
}

/// A store, asynchronous. See [`Store`].
pub trait AsyncStore: Send {
    /// See [`Store::load`].
    fn load(
        &mut self,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<Versioned>>, InfraError>> + Send;

    /// See [`Store::scan`].
    fn scan(
        &mut self,
        range: &KeyRange,
        limit: usize,
    ) -> impl Future<Output = Result<Page, InfraError>> + Send;

    /// See [`Store::count`].
    fn count(&mut self, range: &KeyRange) -> impl Future<Output = Result<u64, InfraError>> + Send;

    /// See [`Store::commit`].
    fn commit(
        &mut self,
        txn: &Txn,
    ) -> impl Future<Output = Result<CommitOutcome, InfraError>> + Send;

    /// See [`Store::wait`].
    fn wait(&mut self, ticks: u64) -> impl Future<Output = ()> + Send;

    /// See [`Store::limits`].
    fn limits(&self) -> StoreLimits;
}
