//! Several handles on one store that act as one: each operation is done by the next of them.
//!
//! Hardly ever does a handle meet what it remembers, so a suite that passes on one handle and fails
//! here has found a memory that was believed. With the store of each handle in a process of its own
//! (`remote`) the processes are held to the same.
//!
//! Only the cooldown of claims is asked of one handle, that of the worker: a handle counts its own.

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId, WorkerId};
use gossip_coordination::protocol::{ClaimCandidates, OfferTerms, ReleaseMode};
use gossip_coordination::store::{Store, StoreCoordinator};
use gossip_coordination::{
    AcceptError, AcquireError, AcquireResultView, AcquireScratch, CheckpointError,
    CheckpointResult, ClaimOutlook, CompleteError, CoordinationBackend, CreateRunError,
    DeleteRunError, EventCollector, GetRunError, HandoffId, IdempotentOutcome, InfraError, Lease,
    OfferError, ParkError, ParkReason, RegisterShardsError, ReleaseError, RenewError, RenewResult,
    RequestActionError, RevokeLeaseError, RunConfig, RunManagement, RunOpResult, RunProgress,
    RunRecord, RunTransitionError, ShardAction, ShardClaiming, ShardFilter, ShardSummary,
    SplitError, SplitReplaceResult, SplitResidualResult, StateTransitionEvent, UnparkError,
    WithdrawError, WorkerEntry, WorkerError, WorkerState,
};

/// Handles that take turns, operation by operation.
#[derive(Debug)]
pub struct InTurn<S> {
    /// At least one.
    handles: Vec<StoreCoordinator<S>>,
    /// Who did the last operation. The collector of events, if there is one, is with this handle.
    turn: usize,
}

impl<S: Store> InTurn<S> {
    /// `handles` on one store.
    ///
    /// # Panics
    ///
    /// Without any.
    #[must_use]
    pub fn new(handles: Vec<StoreCoordinator<S>>) -> Self {
        assert!(!handles.is_empty(), "somebody has to act");
        Self { handles, turn: 0 }
    }

    /// The handles, in the order of their turns.
    pub fn handles(&self) -> &[StoreCoordinator<S>] {
        &self.handles
    }

    /// Runs `call` and gives the events of its operations, in their order.
    pub fn with_events<R>(
        &mut self,
        call: impl FnOnce(&mut Self) -> R,
    ) -> (R, Vec<StateTransitionEvent>) {
        self.handles[self.turn].collect_events(Some(EventCollector::new()));
        let result = call(self);
        let events = self.handles[self.turn].collect_events(None);
        (result, events.map(|mut events| events.drain()).unwrap_or_default())
    }

    /// Whoever is next. The events go with the turn, so they stay in the order of the operations.
    fn next(&mut self) -> &mut StoreCoordinator<S> {
        let events = self.handles[self.turn].collect_events(None);
        self.turn = (self.turn + 1) % self.handles.len();
        let handle = &mut self.handles[self.turn];
        handle.collect_events(events);
        handle
    }

    /// The handle that counts the claims of `worker`.
    fn of_worker(&mut self, worker: WorkerId) -> &mut StoreCoordinator<S> {
        let count = self.handles.len() as u64;
        let home = usize::try_from(worker.as_raw() % count).expect("less than a length");
        &mut self.handles[home]
    }
}

/// Methods that whoever is next performs.
macro_rules! in_turn {
    ($face:ident {
        $($name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) $(-> $answer:ty)?;)*
    }) => {
        impl<S: Store> $face for InTurn<S> {
            $(fn $name $(<$life>)? (&mut self, $($arg: $type),*) $(-> $answer)? {
                self.next().$name($($arg),*)
            })*
        }
    };
}

/// What most operations answer.
type Outcome<E> = Result<IdempotentOutcome<()>, E>;

in_turn! { CoordinationBackend {
    acquire_and_restore_into<'a>(now: LogicalTime, tenant: TenantId, key: ShardKey,
        worker: WorkerId, scratch: &'a mut AcquireScratch)
        -> Result<AcquireResultView<'a>, AcquireError>;
    renew(now: LogicalTime, tenant: TenantId, lease: &Lease) -> Result<RenewResult, RenewError>;
    renew_many(now: LogicalTime, tenant: TenantId, leases: &[Lease],
        results: &mut Vec<Result<RenewResult, RenewError>>);
    checkpoint(now: LogicalTime, tenant: TenantId, lease: &Lease, cursor: CursorUpdate<'_>,
        op_id: OpId) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError>;
    complete(now: LogicalTime, tenant: TenantId, lease: &Lease, cursor: CursorUpdate<'_>,
        op_id: OpId) -> Outcome<CompleteError>;
    park_shard(now: LogicalTime, tenant: TenantId, lease: &Lease, reason: ParkReason,
        op_id: OpId) -> Outcome<ParkError>;
    split_replace(now: LogicalTime, tenant: TenantId, lease: &Lease,
        plan: &SplitReplacePlan<'_>, op_id: OpId)
        -> Result<IdempotentOutcome<SplitReplaceResult>, SplitError>;
    split_residual(now: LogicalTime, tenant: TenantId, lease: &Lease,
        plan: &SplitResidualPlan<'_>, op_id: OpId)
        -> Result<IdempotentOutcome<SplitResidualResult>, SplitError>;
    release(now: LogicalTime, tenant: TenantId, lease: &Lease, mode: ReleaseMode, op_id: OpId)
        -> Outcome<ReleaseError>;
    offer(now: LogicalTime, tenant: TenantId, lease: &Lease, terms: OfferTerms,
        cursor: CursorUpdate<'_>, op_id: OpId) -> Outcome<OfferError>;
    accept<'a>(now: LogicalTime, tenant: TenantId, key: ShardKey, worker: WorkerId,
        handoff: HandoffId, scratch: &'a mut AcquireScratch)
        -> Result<AcquireResultView<'a>, AcceptError>;
    withdraw(now: LogicalTime, tenant: TenantId, lease: &Lease, handoff: HandoffId, op_id: OpId)
        -> Outcome<WithdrawError>;
} }

in_turn! { RunManagement {
    create_run(now: LogicalTime, tenant: TenantId, run: RunId, config: RunConfig)
        -> Result<(), CreateRunError>;
    register_shards(now: LogicalTime, tenant: TenantId, run: RunId,
        shards: &[InitialShardInput<'_>], op_id: OpId)
        -> Result<IdempotentOutcome<RunOpResult>, RegisterShardsError>;
    complete_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    fail_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    cancel_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    unpark_shard(now: LogicalTime, tenant: TenantId, key: ShardKey, op_id: OpId)
        -> Outcome<UnparkError>;
    pause_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    resume_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    request_action(now: LogicalTime, tenant: TenantId, key: ShardKey, action: &ShardAction,
        expires_at: LogicalTime, op_id: OpId) -> Outcome<RequestActionError>;
    revoke_lease(now: LogicalTime, tenant: TenantId, key: ShardKey, op_id: OpId)
        -> Outcome<RevokeLeaseError>;
    delete_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<DeleteRunError>;
    register_worker(now: LogicalTime, tenant: TenantId, worker: WorkerId)
        -> Result<(), WorkerError>;
    heartbeat(now: LogicalTime, tenant: TenantId, worker: WorkerId, state: WorkerState)
        -> Result<(), WorkerError>;
    gc_stale_initializing_runs_into(now: LogicalTime, tenant: TenantId, stale_after: u64,
        limit: usize, out: &mut Vec<RunId>) -> Result<(), InfraError>;
    get_run(tenant: TenantId, run: RunId) -> Result<RunRecord, GetRunError>;
    get_run_progress(now: LogicalTime, tenant: TenantId, run: RunId)
        -> Result<RunProgress, GetRunError>;
    list_shards_into(now: LogicalTime, tenant: TenantId, run: RunId, filter: ShardFilter,
        out: &mut Vec<ShardSummary>) -> Result<(), GetRunError>;
    collect_claim_candidates_into(now: LogicalTime, tenant: TenantId, run: RunId,
        worker: WorkerId, limit: usize, out: &mut ClaimCandidates)
        -> Result<ClaimOutlook, GetRunError>;
    list_workers_into(now: LogicalTime, tenant: TenantId, out: &mut Vec<WorkerEntry>)
        -> Result<(), WorkerError>;
    list_active_runs_into(tenant: TenantId, after: Option<RunId>, limit: usize,
        out: &mut Vec<RunId>) -> Result<(), InfraError>;
    list_runs_into(tenant: TenantId, after: Option<RunId>, limit: usize,
        out: &mut Vec<RunId>) -> Result<(), InfraError>;
} }

impl<S: Store> ShardClaiming for InTurn<S> {
    fn claim_throttled_until(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Option<LogicalTime> {
        self.of_worker(worker).claim_throttled_until(now, tenant, worker)
    }

    fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId) {
        self.of_worker(worker).note_claim(now, tenant, worker);
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
        self.next().probe_candidates_into(now, tenant, run, worker, limit, out)
    }
}
