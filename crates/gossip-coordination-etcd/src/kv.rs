//! The part of etcd that we use, as a trait with two implementations: a real server and a model.
//!
//! Each method is one request. None of them is repeated once it may have been applied; an error
//! states that by its [`Fate`](crate::Fate) whether it may have. Time belongs to the
//! implementation: [`EtcdKv::sleep`] waits on its clock, so that a simulation owns it.

use std::future::Future;

use crate::error::EtcdError;
use crate::message::TxnMessage;
use crate::proto::{RangeRequest, RangeResponse, TxnResponse};

/// A client of etcd. Clones share connections, tokens and clock.
pub trait EtcdKv: Clone + Send + Sync + 'static {
    /// Reads a range; linearizable unless the request says otherwise.
    fn range(
        &self,
        request: RangeRequest,
    ) -> impl Future<Output = Result<RangeResponse, EtcdError>> + Send;

    /// Commits a transaction. Everything that it writes, nested transactions included, has one
    /// revision.
    fn txn(
        &self,
        request: impl TxnMessage,
    ) -> impl Future<Output = Result<TxnResponse, EtcdError>> + Send;

    /// Requests a lease of at least `ttl_seconds`; the server chooses its id.
    fn lease_grant(
        &self,
        ttl_seconds: i64,
    ) -> impl Future<Output = Result<LeaseGrant, EtcdError>> + Send;

    /// Renews a lease. Returns its remaining seconds, or `None` if there is no such lease.
    fn lease_keep_alive(
        &self,
        lease: i64,
    ) -> impl Future<Output = Result<Option<i64>, EtcdError>> + Send;

    /// Revokes a lease and deletes its keys. A lease that is gone is [`LeaseNotFound`].
    ///
    /// [`LeaseNotFound`]: crate::EtcdCause::LeaseNotFound
    fn lease_revoke(&self, lease: i64) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Returns the remaining time of a lease, or `None` if there is no such lease.
    fn lease_time_to_live(
        &self,
        lease: i64,
    ) -> impl Future<Output = Result<Option<LeaseTtl>, EtcdError>> + Send;

    /// Discards the history of keys before a revision.
    fn compact(&self, revision: i64) -> impl Future<Output = Result<(), EtcdError>> + Send;

    /// Returns the state of the member that answers.
    fn status(&self) -> impl Future<Output = Result<MemberStatus, EtcdError>> + Send;

    /// Returns the active alarms of all members.
    fn alarms(&self) -> impl Future<Output = Result<Vec<Alarm>, EtcdError>> + Send;

    /// Waits on this client's clock.
    fn sleep(&self, millis: u64) -> impl Future<Output = ()> + Send;
}

/// A lease as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// Its name; never 0.
    pub id: i64,
    /// Seconds; the server has a least of its own, so this may be more than was asked for.
    pub ttl_seconds: i64,
}

/// The remaining time of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTtl {
    /// Seconds until it ends, unless it is kept alive.
    pub remaining_seconds: i64,
    /// Seconds that a keep-alive gives it.
    pub granted_seconds: i64,
}

/// How a member is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its version, as `3.4.23`.
    pub version: String,
    /// Its own name.
    pub member_id: u64,
    /// The leader's name as it sees it; 0 for none.
    pub leader: u64,
    /// The revision of its store.
    pub revision: i64,
    /// Bytes of its database file.
    pub db_size: i64,
    /// Bytes of it that hold data; the rest comes back by defragmentation.
    pub db_size_in_use: i64,
}

/// An active alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alarm {
    /// The database has reached its quota; writes are refused.
    NoSpace,
    /// Members disagree about the data.
    Corrupt,
}
