//! A shard leased by a worker, asynchronous: the counterpart of [`WorkerSession`].
//!
//! State, stale values and failures are documented in [`session`](crate::WorkerSession); this file
//! has only the calls. A test compares the methods of the two.
//!
//! A future that is dropped before it is ready leaves the session unchanged, or drops it if the
//! operation would have ended it. Whether the backend committed is then unknown: repeating the call
//! with the same operation id shows it, and an abandoned lease expires.

use gossip_contracts::coordination::{
    CursorUpdate, RestoredShardState, ShardSpecRef, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId, WorkerId};

#[cfg(doc)]
use crate::WorkerSession;
use crate::error::{
    AcceptError, AcquireError, CheckpointError, CompleteError, OfferError, ParkError, ReleaseError,
    RenewError, SplitReplaceError, SplitResidualError, WithdrawError,
};
use crate::handoff::HandoffId;
use crate::lease::Lease;
use crate::outcome::{CapacityHint, CheckpointResult, IdempotentOutcome, RenewResult};
use crate::park_context::ParkContext;
use crate::protocol::{OfferTerms, ReleaseMode};
use crate::record::ParkReason;
use crate::scratch::{AcquireResultView, AcquireScratch, ShardSnapshotView};
use crate::session::{SessionError, session_accessors};
use crate::session_state::SessionState;
use crate::split_execution::{SplitReplaceResult, SplitResidualResult};
use crate::traits::AsyncCoordinationBackend;

/// A shard leased by a worker, asynchronous. See [`WorkerSession`].
///
/// ```
/// use gossip_contracts::coordination::CursorUpdate;
/// use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId, WorkerId};
/// use gossip_coordination::{AsyncCoordinationBackend, AsyncWorkerSession};
///
/// async fn work<B: AsyncCoordinationBackend>(
///     backend: &mut B,
///     tenant: TenantId,
///     key: ShardKey,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let at = LogicalTime::from_raw;
///     let worker = WorkerId::from_raw(9);
///     let mut session = AsyncWorkerSession::new(backend, at(2), tenant, key, worker).await?;
///     session.checkpoint(at(3), CursorUpdate::with_last_key(b"g"), OpId::from_raw(2)).await?;
///     let end = CursorUpdate::with_last_key(b"y");
///     if let Err(failed) = session.complete(at(60), end, OpId::from_raw(3)).await {
///         // The session is returned: the same operation id makes a retry safe.
///         let (session, _) = failed.into_parts();
///         session.complete(at(61), end, OpId::from_raw(3)).await.map_err(|failed| failed.error)?;
///     }
///     Ok(())
/// }
/// ```
pub struct AsyncWorkerSession<'b, B> {
    backend: &'b mut B,
    state: SessionState,
}

#[expect(clippy::missing_errors_doc, reason = "every method's error type documents its refusals")]
impl<'b, B: AsyncCoordinationBackend> AsyncWorkerSession<'b, B> {
    /// See [`WorkerSession::new`].
    pub async fn new(
        backend: &'b mut B,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
    ) -> Result<Self, AcquireError> {
        let mut scratch = Box::<AcquireScratch>::default();
        let acquired =
            backend.acquire_and_restore_into(now, tenant, key, worker, &mut scratch).await?;
        Ok(Self { state: SessionState::new(acquired), backend })
    }

    /// See [`WorkerSession::accept`].
    pub async fn accept(
        backend: &'b mut B,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
    ) -> Result<Self, AcceptError> {
        let mut scratch = Box::<AcquireScratch>::default();
        let accepted = backend.accept(now, tenant, key, worker, handoff, &mut scratch).await?;
        Ok(Self { state: SessionState::new(accepted), backend })
    }

    /// See [`WorkerSession::from_acquire_result`].
    #[must_use]
    pub fn from_acquire_result(backend: &'b mut B, acquired: AcquireResultView<'_>) -> Self {
        Self { backend, state: SessionState::new(acquired) }
    }

    /// See [`WorkerSession::renew`].
    pub async fn renew(&mut self, now: LogicalTime) -> Result<RenewResult, RenewError> {
        let renewed = self.backend.renew(now, self.state.tenant(), self.state.lease()).await?;
        self.state.renewed(&renewed);
        Ok(renewed)
    }

    /// See [`WorkerSession::checkpoint`].
    pub async fn checkpoint(
        &mut self,
        now: LogicalTime,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.checkpoint(now, tenant, &lease, cursor, op_id).await;
        self.state.settle(op_id, answer)
    }

    /// See [`WorkerSession::split_residual`].
    pub async fn split_residual(
        &mut self,
        now: LogicalTime,
        plan: &SplitResidualPlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitResidualError> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.split_residual(now, tenant, &lease, plan, op_id).await;
        let split = self.state.settle(op_id, answer)?;
        self.state.narrowed(plan, split.as_ref().into_inner().residual);
        Ok(split)
    }

    /// See [`WorkerSession::offer`].
    pub async fn offer(
        &mut self,
        now: LogicalTime,
        terms: OfferTerms,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, OfferError> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.offer(now, tenant, &lease, terms, cursor, op_id).await;
        self.state.settle(op_id, answer)
    }

    /// See [`WorkerSession::withdraw`].
    pub async fn withdraw(
        &mut self,
        now: LogicalTime,
        handoff: HandoffId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, WithdrawError> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.withdraw(now, tenant, &lease, handoff, op_id).await;
        self.state.settle(op_id, answer)
    }

    /// See [`WorkerSession::complete`].
    pub async fn complete(
        mut self,
        now: LogicalTime,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, CompleteError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.complete(now, tenant, &lease, cursor, op_id).await;
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// See [`WorkerSession::park`].
    pub async fn park(
        mut self,
        now: LogicalTime,
        reason: ParkReason,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, ParkError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.park_shard(now, tenant, &lease, reason, op_id).await;
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// See [`WorkerSession::park_with_context`].
    pub async fn park_with_context(
        mut self,
        now: LogicalTime,
        reason: ParkReason,
        context: ParkContext<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, ParkError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let parked =
            self.backend.park_shard_with_context(now, tenant, &lease, reason, context, op_id);
        let answer = parked.await;
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// See [`WorkerSession::split_replace`].
    pub async fn split_replace(
        mut self,
        now: LogicalTime,
        plan: &SplitReplacePlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitReplaceResult>, SessionError<Self, SplitReplaceError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.split_replace(now, tenant, &lease, plan, op_id).await;
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// See [`WorkerSession::release`].
    pub async fn release(
        mut self,
        now: LogicalTime,
        mode: ReleaseMode,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, ReleaseError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.release(now, tenant, &lease, mode, op_id).await;
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }
}

session_accessors!(AsyncWorkerSession);
