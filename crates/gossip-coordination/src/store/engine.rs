//! What a store does for the store layer: read, commit, wait. Nothing else.
//!
//! An engine moves bytes. It knows no rule, decodes no value and makes no error of the protocol:
//! what goes wrong is an [`InfraError`], and a commit that was not applied is no error at all.
//!
//! # What every engine must keep
//! - The answers of one `read` are of one instant, and no earlier than any commit that was
//!   acknowledged before it.
//! - A commit is atomic and, once it answered [`CommitOutcome::Applied`], durable. The transactions
//!   of one call are independent: none pays for another's conflict.
//! - All keys that a transaction writes get one revision. Revisions of a key rise with every write,
//!   also across its deletion.
//! - [`CommitOutcome::Conflict`] and every error mean that nothing happened and nothing will;
//!   whatever is less certain is [`CommitOutcome::Unknown`].

use std::future::Future;

use super::key::Key;
use super::range::KeyRange;
use super::txn::{CommitOutcome, Txn, Versioned};
use crate::error::InfraError;

/// Keys and values in the order of their keys.
pub type Page = Vec<(Key, Versioned)>;

/// One question of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "an engine must answer every kind")]
pub enum Read {
    /// The value of a key, as [`Answer::Value`].
    Get(Key),
    /// The first keys of a range with their values, as [`Answer::Page`]. A page that is shorter
    /// than its limit ends with the range.
    Scan {
        /// Where to look.
        range: KeyRange,
        /// How many at most; never more than [`StoreLimits::page`].
        limit: usize,
    },
    /// How many keys a range has, as [`Answer::Count`].
    Count(KeyRange),
    /// The same as `Scan` of the first of `ranges` that has any key, or nothing if none has. What
    /// lies behind that one is not looked at: whoever does not know how much there is asks for
    /// little, then for more, and pays for little.
    ScanFirst {
        /// Where to look, in this order; at least one.
        ranges: Vec<KeyRange>,
        /// How many at most, as for `Scan`.
        limit: usize,
    },
}

/// What a question of a read is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "one for each question")]
pub enum Answer {
    /// The value, if there is one.
    Value(Option<Versioned>),
    /// Keys and values in their order.
    Page(Page),
    /// How many there are.
    Count(u64),
}

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
    /// Answers `reads`, in their order. There are at most [`StoreLimits::txn_ops`].
    fn read(&mut self, reads: Vec<Read>) -> Result<Vec<Answer>, InfraError>;

    /// Does what each of `txns` says if everything is as it expects, and answers for each, in
    /// their order.
    fn commit(&mut self, txns: Vec<Txn>) -> Vec<Result<CommitOutcome, InfraError>>;

    /// Lets `ticks` of the caller's clock pass, or about as much.
    fn wait(&mut self, ticks: u64);

    /// How much fits in one transaction.
    fn limits(&self) -> StoreLimits;

    /// A number that rises whenever keys that were bound earlier ([`Write::Bind`]) may have
    /// vanished; `None` if the store binds nothing. A store binds for all its life or never.
    ///
    /// [`Write::Bind`]: super::Write::Bind
    fn binding(&self) -> Option<u64> {
        None
    }
}

/// A store, asynchronous. See [`Store`].
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
}
