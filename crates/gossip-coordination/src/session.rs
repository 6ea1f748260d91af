//! A leased shard as one value: backend, lease and snapshot.
//!
//! This file has [`WorkerSession`] and the error that returns a session. The state is in
//! `session_state.rs`.
//!
//! A session never renews automatically, never reads a clock and has no protocol rules: the caller
//! passes `now`, and the backend decides whether a call is allowed. In any order of replies, the
//! lease's deadline only grows and the range only narrows.
//!
//! A session counts its operations and sends each with its [`OpSequence`]; a retry under the same
//! operation id has the sequence of the first call. So the backend never executes an operation
//! twice, however late a duplicate arrives (DESIGN Q33).

use std::fmt;

use gossip_contracts::coordination::{
    CursorUpdate, RestoredShardState, ShardSpecRef, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, ShardKey, TenantId, WorkerId};

use crate::error::{
    AcceptError, AcquireError, CheckpointError, CompleteError, OfferError, ParkError, ReleaseError,
    RenewError, SplitReplaceError, SplitResidualError, WithdrawError,
};
use crate::handoff::HandoffId;
use crate::lease::Lease;
#[cfg(doc)]
use crate::lease::OpSequence;
use crate::outcome::{CapacityHint, CheckpointResult, IdempotentOutcome, RenewResult};
use crate::park_context::ParkContext;
use crate::protocol::{OfferTerms, ReleaseMode};
use crate::record::ParkReason;
use crate::scratch::{AcquireResultView, AcquireScratch, ShardSnapshotView};
use crate::session_state::SessionState;
use crate::side_records::SideRecords;
use crate::split_execution::{SplitReplaceResult, SplitResidualResult};
use crate::traits::CoordinationBackend;

/// A shard leased by a worker, blocking.
///
/// It passes its own tenant and lease to every call, so they cannot be mixed up. It is generic over
/// the backend and borrows it exclusively.
///
/// ```text
///  new / accept / from_acquire_result / attach
///                │
///                ▼
///         active session ◄──┐
///                │          │ renew, checkpoint, split_residual, offer, withdraw
///                ├──────────┘
///                ▼
///  complete · park · split_replace · release      the session is consumed
/// ```
///
/// It never renews automatically. Dropping it does nothing: the lease expires.
///
/// # Between calls
///
/// A caller that does not have the backend all the time, such as a state machine that is lent one
/// for each step, takes the session apart with [`detach`](Self::detach), keeps the
/// [`SessionState`], and continues it with [`attach`](Self::attach). At most one of the two exists,
/// so a session that has ended cannot be attached again.
///
/// # Stale values
///
/// [`initial_snapshot`](Self::initial_snapshot) and [`cursor`](Self::cursor) show the shard as it
/// was acquired; checkpoints do not change them. A residual split narrows [`spec`](Self::spec) and
/// the snapshot with it. Every renewal advances the lease's deadline, which never falls, so replies
/// that arrive out of order are harmless (DESIGN Q7).
///
/// # Failure of an operation that ends the session
///
/// An operation that ends a session takes it by value. If it fails the shard may still be leased,
/// so the session is returned inside the [`SessionError`]: a caller can retry with the same
/// operation id, or continue. `?` in a function that returns the operation's own error drops the
/// session.
///
/// # Retries
///
/// A call that failed with `BackendError`, or whose future was dropped, may have been executed:
/// only a retry under the same operation id shows it. If other operations of the session were
/// executed in between, the retry may be refused with `OperationTooOld`. An id whose result was
/// returned is not for a second use.
///
/// # Plans
///
/// A plan made from [`spec`](Self::spec) borrows the session, and a split needs exclusive access to
/// it: copy the range first (`ShardSpec::try_from(session.spec())`).
///
/// # Example
///
/// ```
/// use gossip_contracts::coordination::{
///     CursorSemantics, CursorUpdate, InitialShardInput, ShardSpecRef,
/// };
/// use gossip_contracts::identity::{
///     LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId,
/// };
/// use gossip_coordination::{InMemoryCoordinator, RunConfig, RunManagement, WorkerSession};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut backend = InMemoryCoordinator::default();
/// # let (tenant, run) = (TenantId::from_bytes([1; 32]), RunId::from_raw(1));
/// # let config = RunConfig::try_new(CursorSemantics::Completed, 100, None)?;
/// # let shards = [InitialShardInput {
/// #     shard_id: ShardId::from_raw(0),
/// #     spec: ShardSpecRef::new(b"a", b"z", b""),
/// #     cursor: CursorUpdate::initial(),
/// # }];
/// # let at = LogicalTime::from_raw;
/// # backend.create_run_with_shards(at(1), tenant, run, config, &shards, OpId::from_raw(1))?;
/// let key = ShardKey::new(run, ShardId::from_raw(0));
/// let mut session = WorkerSession::new(&mut backend, at(2), tenant, key, WorkerId::from_raw(9))?;
/// session.checkpoint(at(3), CursorUpdate::with_last_key(b"g"), OpId::from_raw(2))?;
/// session.renew(at(50))?;
/// assert_eq!(session.lease().deadline(), at(150));
/// let done = session.complete(at(60), CursorUpdate::with_last_key(b"y"), OpId::from_raw(3));
/// done.map_err(|failed| failed.error)?;
/// # Ok(())
/// # }
/// ```
///
/// A completed session cannot be used; the compiler rejects it:
///
/// ```compile_fail,E0382
/// use gossip_contracts::coordination::CursorUpdate;
/// use gossip_contracts::identity::{LogicalTime, OpId};
/// use gossip_coordination::{InMemoryCoordinator, WorkerSession};
///
/// fn twice(session: WorkerSession<'_, InMemoryCoordinator>) {
///     let end = CursorUpdate::with_last_key(b"y");
///     let _ = session.complete(LogicalTime::from_raw(1), end, OpId::from_raw(1));
///     let _ = session.complete(LogicalTime::from_raw(2), end, OpId::from_raw(2));
/// }
/// ```
pub struct WorkerSession<'b, B> {
    backend: &'b mut B,
    state: SessionState,
}

#[expect(clippy::missing_errors_doc, reason = "every method's error type documents its refusals")]
impl<'b, B: CoordinationBackend> WorkerSession<'b, B> {
    /// Acquires a shard.
    ///
    /// Allocates a scratch for the reply. A worker that processes many shards keeps one scratch
    /// and uses [`from_acquire_result`](Self::from_acquire_result).
    pub fn new(
        backend: &'b mut B,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
    ) -> Result<Self, AcquireError> {
        let mut scratch = Box::<AcquireScratch>::default();
        let acquired = backend.acquire_and_restore_into(now, tenant, key, worker, &mut scratch)?;
        Ok(Self { state: SessionState::new(acquired), backend })
    }

    /// Accepts an offered shard.
    pub fn accept(
        backend: &'b mut B,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
    ) -> Result<Self, AcceptError> {
        let mut scratch = Box::<AcquireScratch>::default();
        let accepted = backend.accept(now, tenant, key, worker, handoff, &mut scratch)?;
        Ok(Self { state: SessionState::new(accepted), backend })
    }

    /// Creates a session for a shard that was acquired, claimed or accepted. The scratch can be
    /// reused.
    #[must_use]
    pub fn from_acquire_result(backend: &'b mut B, acquired: AcquireResultView<'_>) -> Self {
        Self { backend, state: SessionState::new(acquired) }
    }

    /// Extends the lease, and updates the deadline and the capacity hint.
    pub fn renew(&mut self, now: LogicalTime) -> Result<RenewResult, RenewError> {
        // Without a sequence: a renewal may be applied in any order and any number of times.
        let renewed = self.backend.renew(now, self.state.tenant(), self.state.lease())?;
        self.state.renewed(&renewed);
        Ok(renewed)
    }

    /// Advances the cursor durably. The snapshot does not change.
    pub fn checkpoint(
        &mut self,
        now: LogicalTime,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError> {
        // The lease is copied with the sequence of this operation; a retry under its id gets the
        // same one.
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.checkpoint(now, tenant, &lease, cursor, op_id);
        self.state.settle(op_id, answer)
    }

    /// Added: as [`checkpoint`](Self::checkpoint), and stores `records` in the same commit.
    pub fn checkpoint_with_records(
        &mut self,
        now: LogicalTime,
        cursor: CursorUpdate<'_>,
        records: SideRecords<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError> {
        if records.as_slice().is_empty() {
            return self.checkpoint(now, cursor, op_id);
        }
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer =
            self.backend.checkpoint_with_records(now, tenant, &lease, cursor, records, op_id);
        self.state.settle(op_id, answer)
    }

    /// Moves the right part of the shard's range into a new shard, and narrows the session's range.
    pub fn split_residual(
        &mut self,
        now: LogicalTime,
        plan: &SplitResidualPlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitResidualError> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.split_residual(now, tenant, &lease, plan, op_id);
        let split = self.state.settle(op_id, answer)?;
        // Only after the answer: the whole range is still this session's if the split was refused.
        self.state.narrowed(plan, split.as_ref().into_inner().residual);
        Ok(split)
    }

    /// Offers the shard to another worker. Until the offer is withdrawn the session can only
    /// renew; once it is accepted this session's fence is stale.
    pub fn offer(
        &mut self,
        now: LogicalTime,
        terms: OfferTerms,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, OfferError> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.offer(now, tenant, &lease, terms, cursor, op_id);
        self.state.settle(op_id, answer)
    }

    /// Withdraws an offer.
    pub fn withdraw(
        &mut self,
        now: LogicalTime,
        handoff: HandoffId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, WithdrawError> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.withdraw(now, tenant, &lease, handoff, op_id);
        self.state.settle(op_id, answer)
    }

    /// Ends a shard whose keys are all processed.
    pub fn complete(
        mut self,
        now: LogicalTime,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, CompleteError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.complete(now, tenant, &lease, cursor, op_id);
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// Added: as [`complete`](Self::complete), and stores `records` in the same commit.
    pub fn complete_with_records(
        mut self,
        now: LogicalTime,
        cursor: CursorUpdate<'_>,
        records: SideRecords<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, CompleteError>> {
        if records.as_slice().is_empty() {
            return self.complete(now, cursor, op_id);
        }
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer =
            self.backend.complete_with_records(now, tenant, &lease, cursor, records, op_id);
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// Parks the shard: it is not processed further until it is unparked.
    pub fn park(
        mut self,
        now: LogicalTime,
        reason: ParkReason,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, ParkError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.park_shard(now, tenant, &lease, reason, op_id);
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// Added: as [`park`](Self::park), and stores a text for people with the shard.
    pub fn park_with_context(
        mut self,
        now: LogicalTime,
        reason: ParkReason,
        context: ParkContext<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, ParkError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer =
            self.backend.park_shard_with_context(now, tenant, &lease, reason, context, op_id);
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// Added: as [`park_with_context`](Self::park_with_context), and stores `records` in the same
    /// commit.
    pub fn park_with_records(
        mut self,
        now: LogicalTime,
        why: (ParkReason, ParkContext<'_>),
        records: SideRecords<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, ParkError>> {
        if records.as_slice().is_empty() {
            return self.park_with_context(now, why.0, why.1, op_id);
        }
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.park_shard_with_records(now, tenant, &lease, why, records, op_id);
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// Replaces the shard by children that cover its range.
    pub fn split_replace(
        mut self,
        now: LogicalTime,
        plan: &SplitReplacePlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitReplaceResult>, SessionError<Self, SplitReplaceError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.split_replace(now, tenant, &lease, plan, op_id);
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }

    /// Releases the shard before it is complete.
    pub fn release(
        mut self,
        now: LogicalTime,
        mode: ReleaseMode,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, SessionError<Self, ReleaseError>> {
        let (tenant, lease) = (self.state.tenant(), self.state.issue(op_id));
        let answer = self.backend.release(now, tenant, &lease, mode, op_id);
        self.state.settle(op_id, answer).map_err(|error| SessionError::new(self, error))
    }
}

impl<'b, B> WorkerSession<'b, B> {
    /// Continues a detached session.
    ///
    /// The backend must reach the store of the one that the session was detached from; a
    /// store without this lease refuses every operation.
    #[must_use]
    pub const fn attach(backend: &'b mut B, state: SessionState) -> Self {
        Self { backend, state }
    }

    /// Ends the borrow of the backend and keeps the session.
    #[must_use]
    pub fn detach(self) -> SessionState {
        self.state
    }

    /// Returns range, cursor and cursor semantics in owned form. The same values as
    /// [`spec`](Self::spec) and [`cursor`](Self::cursor).
    #[must_use]
    pub const fn restored(&self) -> &RestoredShardState {
        self.state.restored()
    }

    /// Returns the lease, without a sequence. Every renewal advances its deadline.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        self.state.lease()
    }

    /// Returns the shard as it was acquired, narrowed by residual splits.
    #[must_use]
    pub fn initial_snapshot(&self) -> ShardSnapshotView<'_> {
        self.state.snapshot()
    }

    /// Returns the range and its metadata, narrowed by residual splits.
    #[must_use]
    pub fn spec(&self) -> ShardSpecRef<'_> {
        self.state.restored().spec.as_spec_ref()
    }

    /// Returns the cursor with which the shard was acquired; checkpoints do not change it.
    #[must_use]
    pub fn cursor(&self) -> CursorUpdate<'_> {
        self.state.restored().cursor.as_update()
    }

    /// Returns the tenant of the shard.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.state.tenant()
    }

    /// Returns the lease holder.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.state.lease().owner()
    }

    /// Returns the key of the shard.
    #[must_use]
    pub const fn shard_key(&self) -> ShardKey {
        self.state.lease().key()
    }

    /// Returns the capacity hint of the last grant or renewal.
    #[must_use]
    pub const fn capacity(&self) -> CapacityHint {
        self.state.capacity()
    }

    /// Returns the number of grants without progress when the shard was acquired.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.state.attempts()
    }
}

/// Shows the session without its backend, which has records of other workers.
impl<B> fmt::Debug for WorkerSession<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSession").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The failure of an operation that would have ended a session, with the session.
///
/// The session is boxed, so that a successful result stays small.
pub struct SessionError<S, E> {
    /// The unchanged session.
    pub session: Box<S>,
    /// Why the operation failed.
    pub error: E,
}

impl<S, E> SessionError<S, E> {
    pub(crate) fn new(session: S, error: E) -> Self {
        Self { session: Box::new(session), error }
    }

    /// Returns the session and the error.
    #[must_use]
    pub fn into_parts(self) -> (S, E) {
        (*self.session, self.error)
    }
}

impl<S, E: fmt::Debug> fmt::Debug for SessionError<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<S, E: fmt::Display> fmt::Display for SessionError<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// Displays the operation's own error, so it adds no link to the chain of sources.
impl<S, E: std::error::Error> std::error::Error for SessionError<S, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Lets `?` drop the session and keep the operation's own error.
macro_rules! drops_its_session {
    ($($error:ident),+) => {$(
        impl<S> From<SessionError<S, Self>> for $error {
            fn from(failed: SessionError<S, Self>) -> Self {
                failed.error
            }
        }
    )+};
}

drops_its_session!(CompleteError, ParkError, SplitReplaceError, ReleaseError);
