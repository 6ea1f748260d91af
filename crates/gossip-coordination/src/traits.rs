//! What every backend offers: the operations on shards, blocking and asynchronous.
//!
//! The two traits of a pair have the same methods with the same meaning, and a test holds them to
//! it. No backend implements both by hand: an in-memory one is asynchronous by being ready at once
//! ([`Ready`](crate::Ready)), and a durable one runs the same flights through two drivers.
//!
//! # What every backend must keep
//!
//! - **Tenant isolation**: a request of one tenant reads and writes only that tenant's records.
//! - **Fence monotonicity**: a shard's fence never falls and rises with every change of owner.
//! - **Idempotency**: the same operation id with the same parameters answers what it answered, with
//!   other parameters it is a conflict.
//! - **Cursor monotonicity and bounds**: progress never falls and never leaves the shard.
//! - **Split coverage**: the parts of a split make up exactly what was split.
//! - **Terminal irreversibility**: a shard that is done, split or parked stays so.
//!
//! All of this is decided in [`protocol`](crate::protocol); a backend keeps it by running that.

use std::collections::BTreeMap;
use std::future::Future;

use gossip_contracts::coordination::{CursorUpdate, SplitReplacePlan, SplitResidualPlan};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId, WorkerId};

use crate::error::{
    AcquireError, CheckpointError, CompleteError, ParkError, RenewError, SplitError,
};
use crate::handoff::HandoffId;
use crate::lease::Lease;
use crate::move_errors::{AcceptError, OfferError, ReleaseError, WithdrawError};
use crate::outcome::{CapacityHint, CheckpointResult, IdempotentOutcome, RenewResult};
use crate::protocol::{OfferTerms, ReleaseMode};
use crate::record::ParkReason;
use crate::scratch::{AcquireResultView, AcquireScratch};
use crate::split_execution::{SplitReplaceResult, SplitResidualResult};

/// The operations on shards, blocking.
///
/// Every method answers the error of its operation; `now` is the caller's clock and must not be
/// zero (a zero clock is a bug, and panics).
#[expect(clippy::missing_errors_doc, reason = "every method's error type documents its refusals")]
pub trait CoordinationBackend {
    /// Gets a shard that nobody holds and copies its state into `scratch`. Not idempotent: every
    /// grant raises the fence.
    fn acquire_and_restore_into<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError>;

    /// Extends a lease. Repeating it is harmless.
    fn renew(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
    ) -> Result<RenewResult, RenewError>;

    /// Records progress.
    fn checkpoint(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError>;

    /// Ends a shard that was done.
    fn complete(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, CompleteError>;

    /// Sets a shard aside.
    fn park_shard(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        reason: ParkReason,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ParkError>;

    /// Replaces a shard by children.
    fn split_replace(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitReplacePlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitReplaceResult>, SplitError>;

    /// Gives the right part of a shard to a new one.
    fn split_residual(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitResidualPlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitError>;

    /// Added: gives a shard back before it is done.
    fn release(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        mode: ReleaseMode,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ReleaseError>;

    /// Added: offers a shard to another worker; an initial cursor keeps the stored one.
    fn offer(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        terms: OfferTerms,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, OfferError>;

    /// Added: takes an offered shard over and copies its state into `scratch`.
    fn accept<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcceptError>;

    /// Added: takes an offer back, or makes sure that none is on its way.
    fn withdraw(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        handoff: HandoffId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, WithdrawError>;

    /// Added: renews many leases; `results` gets one answer for each, in their order. What waits
    /// in a run is told to all of its leases as it is after the last of them.
    fn renew_many(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        leases: &[Lease],
        results: &mut Vec<Result<RenewResult, RenewError>>,
    ) {
        results.clear();
        results.extend(leases.iter().map(|lease| self.renew(now, tenant, lease)));
        share_hints(leases, results);
    }
}

/// The operations on shards, asynchronous. See [`CoordinationBackend`].
pub trait AsyncCoordinationBackend: Send {
    /// See [`CoordinationBackend::acquire_and_restore_into`].
    fn acquire_and_restore_into<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> impl Future<Output = Result<AcquireResultView<'a>, AcquireError>> + Send;

    /// See [`CoordinationBackend::renew`].
    fn renew(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
    ) -> impl Future<Output = Result<RenewResult, RenewError>> + Send;

    /// See [`CoordinationBackend::checkpoint`].
    fn checkpoint(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<CheckpointResult>, CheckpointError>> + Send;

    /// See [`CoordinationBackend::complete`].
    fn complete(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, CompleteError>> + Send;

    /// See [`CoordinationBackend::park_shard`].
    fn park_shard(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        reason: ParkReason,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, ParkError>> + Send;

    /// See [`CoordinationBackend::split_replace`].
    fn split_replace(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitReplacePlan<'_>,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<SplitReplaceResult>, SplitError>> + Send;

    /// See [`CoordinationBackend::split_residual`].
    fn split_residual(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitResidualPlan<'_>,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<SplitResidualResult>, SplitError>> + Send;

    /// See [`CoordinationBackend::release`].
    fn release(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        mode: ReleaseMode,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, ReleaseError>> + Send;

    /// See [`CoordinationBackend::offer`].
    fn offer(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        terms: OfferTerms,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, OfferError>> + Send;

    /// See [`CoordinationBackend::accept`].
    fn accept<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
        scratch: &'a mut AcquireScratch,
    ) -> impl Future<Output = Result<AcquireResultView<'a>, AcceptError>> + Send;

    /// See [`CoordinationBackend::withdraw`].
    fn withdraw(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        handoff: HandoffId,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, WithdrawError>> + Send;

    /// See [`CoordinationBackend::renew_many`].
    fn renew_many(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        leases: &[Lease],
        results: &mut Vec<Result<RenewResult, RenewError>>,
    ) -> impl Future<Output = ()> + Send {
        async move {
            results.clear();
            for lease in leases {
                results.push(self.renew(now, tenant, lease).await);
            }
            share_hints(leases, results);
        }
    }
}

/// Gives all leases of a run the hint of the last one that was renewed.
fn share_hints(leases: &[Lease], results: &mut [Result<RenewResult, RenewError>]) {
    let mut hints: BTreeMap<RunId, CapacityHint> = BTreeMap::new();
    for (lease, result) in leases.iter().zip(results).rev() {
        if let Ok(renewed) = result {
            renewed.capacity = *hints.entry(lease.run()).or_insert(renewed.capacity);
        }
    }
}
