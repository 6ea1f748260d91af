//! From blocking to asynchronous and back, for any backend.
//!
//! [`Ready`] makes a blocking backend asynchronous by being ready at its first poll. [`Blocking`]
//! makes an asynchronous backend blocking by driving each future to its end on the calling thread.
//! Between them every backend has both faces and writes only one.
//!
//! Nothing is decided here: each method hands its arguments on, whatever it is called. The only
//! thing that happens is waiting, and only in [`Blocking`]: it parks the calling thread until the
//! future's waker is called. No thread is started and no clock is read.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId, WorkerId};

use crate::error::{
    AcquireError, CheckpointError, CompleteError, InfraError, ParkError, RenewError, SplitError,
};
use crate::facade::{AsyncShardClaiming, ClaimError, ShardClaiming};
use crate::handoff::HandoffId;
use crate::lease::Lease;
use crate::move_errors::{AcceptError, OfferError, ReleaseError, WithdrawError};
use crate::outcome::{CheckpointResult, IdempotentOutcome, RenewResult};
use crate::protocol::{ClaimCandidates, OfferTerms, ReleaseMode};
use crate::record::ParkReason;
use crate::request::ShardAction;
use crate::run::{RunConfig, RunOpResult, RunProgress, RunRecord, ShardFilter, ShardSummary};
use crate::run_errors::{
    CreateRunError, DeleteRunError, GetRunError, RegisterShardsError, RequestActionError,
    RevokeLeaseError, RunTransitionError, UnparkError,
};
use crate::run_management::{AsyncRunManagement, ClaimOutlook, RunManagement};
use crate::scratch::{AcquireResultView, AcquireScratch};
use crate::split_execution::{SplitReplaceResult, SplitResidualResult};
use crate::traits::{AsyncCoordinationBackend, CoordinationBackend};
use crate::workers::{WorkerEntry, WorkerError, WorkerState};

/// A blocking backend with an asynchronous face.
///
/// Its futures do their work when they are first polled and are ready then. A backend that waits
/// for a disk or a network makes the polling thread wait with it.
#[derive(Clone, Debug, Default)]
pub struct Ready<B>(B);

impl<B> Ready<B> {
    /// Wraps `backend`.
    #[must_use]
    pub const fn new(backend: B) -> Self {
        Self(backend)
    }

    /// The backend itself.
    #[must_use]
    pub const fn get_ref(&self) -> &B {
        &self.0
    }

    /// The backend itself, for its blocking face.
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut B {
        &mut self.0
    }

    /// Unwraps the backend.
    #[must_use]
    pub fn into_inner(self) -> B {
        self.0
    }
}

/// An asynchronous backend with a blocking face.
///
/// The calling thread waits until the future is done. Futures that only an executor can drive (a
/// timer or a socket of an asynchronous runtime) need that executor to run on *another* thread.
#[derive(Clone, Debug, Default)]
pub struct Blocking<A>(A);

impl<A> Blocking<A> {
    /// Wraps `backend`.
    #[must_use]
    pub const fn new(backend: A) -> Self {
        Self(backend)
    }

    /// The backend itself.
    #[must_use]
    pub const fn get_ref(&self) -> &A {
        &self.0
    }

    /// The backend itself, for its asynchronous face.
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut A {
        &mut self.0
    }

    /// Unwraps the backend.
    #[must_use]
    pub fn into_inner(self) -> A {
        self.0
    }
}

/// Drives `future` to its end on the calling thread.
///
/// A future that is ready at once costs no allocation. Any other is polled again with a waker
/// that unparks this thread; a future must heed the waker of its latest poll, so asking twice is
/// harmless.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => park_until_ready(future),
    }
}

fn park_until_ready<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let alarm = Arc::new(Alarm { thread: thread::current(), rung: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&alarm));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        alarm.wait();
    }
}

/// Wakes one waiting thread.
///
/// The flag is what counts and parking only saves time: a thread has one parking token, and
/// whatever a future does while it is polled may use that up.
struct Alarm {
    thread: Thread,
    rung: AtomicBool,
}

impl Alarm {
    fn wait(&self) {
        while !self.rung.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Writes the asynchronous methods of [`Ready`] and the blocking ones of [`Blocking`] from one list
/// of signatures. The compiler holds the list to the traits: a method that is missing here and has
/// no default does not compile.
macro_rules! hand_on {
    ($blocking:ident, $asynchronous:ident { $(
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?;
    )* }) => {
        impl<B: $blocking + Send> $asynchronous for Ready<B> { $(
            async fn $name $(<$life>)? (&mut self, $($arg: $type),*) $(-> $answer)? {
                self.0.$name($($arg),*)
            }
        )* }

        impl<A: $asynchronous> $blocking for Blocking<A> { $(
            fn $name $(<$life>)? (&mut self, $($arg: $type),*) $(-> $answer)? {
                block_on(self.0.$name($($arg),*))
            }
        )* }
    };
}

hand_on! { CoordinationBackend, AsyncCoordinationBackend {
    fn acquire_and_restore_into<'a>(
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError>;
    fn renew(now: LogicalTime, tenant: TenantId, lease: &Lease) -> Result<RenewResult, RenewError>;
    fn checkpoint(
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError>;
    fn complete(
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, CompleteError>;
    fn park_shard(
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        reason: ParkReason,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ParkError>;
    fn split_replace(
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitReplacePlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitReplaceResult>, SplitError>;
    fn split_residual(
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitResidualPlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitError>;
    fn release(
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        mode: ReleaseMode,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ReleaseError>;
    fn offer(
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        terms: OfferTerms,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, OfferError>;
    fn accept<'a>(
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcceptError>;
    fn withdraw(
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        handoff: HandoffId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, WithdrawError>;
    fn renew_many(
        now: LogicalTime,
        tenant: TenantId,
        leases: &[Lease],
        results: &mut Vec<Result<RenewResult, RenewError>>,
    );
} }

hand_on! { RunManagement, AsyncRunManagement {
    fn create_run(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
    ) -> Result<(), CreateRunError>;
    fn register_shards(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> Result<IdempotentOutcome<RunOpResult>, RegisterShardsError>;
    fn create_run_with_shards(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> Result<IdempotentOutcome<RunOpResult>, CreateRunError>;
    fn get_run(tenant: TenantId, run: RunId) -> Result<RunRecord, GetRunError>;
    fn get_run_progress(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
    ) -> Result<RunProgress, GetRunError>;
    fn list_shards_into(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        filter: ShardFilter,
        out: &mut Vec<ShardSummary>,
    ) -> Result<(), GetRunError>;
    fn complete_run(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;
    fn fail_run(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;
    fn cancel_run(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;
    fn unpark_shard(
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, UnparkError>;
    fn collect_claim_candidates_into(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError>;
    fn pause_run(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;
    fn resume_run(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;
    fn request_action(
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        action: &ShardAction,
        expires_at: LogicalTime,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RequestActionError>;
    fn revoke_lease(
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RevokeLeaseError>;
    fn delete_run(
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, DeleteRunError>;
    fn register_worker(
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<(), WorkerError>;
    fn heartbeat(
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
        state: WorkerState,
    ) -> Result<(), WorkerError>;
    fn list_workers_into(
        now: LogicalTime,
        tenant: TenantId,
        out: &mut Vec<WorkerEntry>,
    ) -> Result<(), WorkerError>;
    fn list_active_runs_into(
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError>;
    fn list_runs_into(
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError>;
    fn gc_stale_initializing_runs_into(
        now: LogicalTime,
        tenant: TenantId,
        stale_after: u64,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError>;
} }

/// By hand: two of its methods are not asynchronous on either side, and its constant goes along.
impl<B: ShardClaiming + Send> AsyncShardClaiming for Ready<B> {
    const CANDIDATES_PER_LOOK: usize = B::CANDIDATES_PER_LOOK;

    fn claim_throttled_until(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Option<LogicalTime> {
        self.0.claim_throttled_until(now, tenant, worker)
    }

    fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId) {
        self.0.note_claim(now, tenant, worker);
    }

    async fn probe_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError> {
        self.0.probe_candidates_into(now, tenant, run, worker, limit, out)
    }

    async fn claim_next_available<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, ClaimError> {
        self.0.claim_next_available(now, tenant, run, worker, scratch)
    }
}

impl<A: AsyncShardClaiming> ShardClaiming for Blocking<A> {
    const CANDIDATES_PER_LOOK: usize = A::CANDIDATES_PER_LOOK;

    fn claim_throttled_until(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Option<LogicalTime> {
        self.0.claim_throttled_until(now, tenant, worker)
    }

    fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId) {
        self.0.note_claim(now, tenant, worker);
    }

    fn probe_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError> {
        block_on(self.0.probe_candidates_into(now, tenant, run, worker, limit, out))
    }

    fn claim_next_available<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, ClaimError> {
        block_on(self.0.claim_next_available(now, tenant, run, worker, scratch))
    }
}
