//! The coordinator of a guest: the production coordinator, and a letter before and after each call.
//!
//! It decides nothing and changes no answer. What runs are made of is the world's, so operations
//! that make or end runs are refused without a call.

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip_coordination::protocol::{ClaimCandidates, OfferTerms, ReleaseMode};
use gossip_coordination::{
    AcceptError, AcquireError, AcquireResultView, AcquireScratch, AsyncCoordinationBackend,
    AsyncRunManagement, AsyncShardClaiming, CheckpointError, CheckpointResult, ClaimError,
    ClaimOutlook, CompleteError, CreateRunError, DeleteRunError, GetRunError, HandoffId,
    IdempotentOutcome, InfraError, Lease, OfferError, ParkError, ParkReason, RegisterShardsError,
    ReleaseError, RenewError, RenewResult, RequestActionError, RevokeLeaseError, RunConfig,
    RunOpResult, RunProgress, RunRecord, RunTransitionError, ShardAction, ShardFilter,
    ShardSummary, SplitError, SplitReplaceResult, SplitResidualResult, StoreRefusal, UnparkError,
    WithdrawError, WorkerEntry, WorkerError, WorkerState,
};

use super::answers::Renewal;
use super::messages::{About, Answered, Grant, Message, Notice};
use super::op::{Ending, Label, MayBeInfra, Verb, ending};
use super::port::SimStore;
use super::worker::Handle;

/// A coordinator whose operations the oracle hears of.
#[derive(Debug)]
pub struct SimCoordinator {
    handle: Handle,
    store: SimStore,
}

impl SimCoordinator {
    pub(super) const fn new(handle: Handle, store: SimStore) -> Self {
        Self { handle, store }
    }

    fn begin(&self, notice: Notice) {
        self.store.post(Message::Begins(Box::new(notice)));
    }

    fn end<T, E: MayBeInfra>(&self, told: &Result<IdempotentOutcome<T>, E>) {
        self.end_born(told, |_| None);
    }

    /// As [`SimCoordinator::end`] for what made the shards that `born` tells.
    fn end_born<T, E: MayBeInfra>(
        &self,
        told: &Result<IdempotentOutcome<T>, E>,
        born: impl FnOnce(&T) -> Option<Vec<ShardId>>,
    ) {
        let mut answered = match told {
            Ok(IdempotentOutcome::Executed(_)) => answered(Ending::Executed, "Executed"),
            Ok(IdempotentOutcome::Replayed(_)) => answered(Ending::Replayed, "Replayed"),
            Err(error) => failed(error),
        };
        answered.born = told.as_ref().ok().and_then(|told| born(told.as_ref().into_inner()));
        self.store.post(Message::Ended(Box::new(answered)));
    }

    /// As [`SimCoordinator::end`] for what is never replayed.
    fn end_plain<T, E: MayBeInfra>(&self, told: &Result<T, E>) {
        self.end_with(told, |_, _| ());
    }

    fn end_with<T, E: MayBeInfra>(
        &self,
        told: &Result<T, E>,
        more: impl FnOnce(&mut Answered, &T),
    ) {
        let mut letter =
            told.as_ref().map_or_else(failed, |_| answered(Ending::Executed, "Executed"));
        if let Ok(told) = told {
            more(&mut letter, told);
        }
        self.store.post(Message::Ended(Box::new(letter)));
    }
}

fn answered(ending: Ending, name: &str) -> Answered {
    let (label, batch) = (Label::named(name), Vec::new());
    Answered { ending, label, born: None, granted: None, renewed: None, batch }
}

fn failed<E: MayBeInfra>(error: &E) -> Answered {
    Answered { label: Label::of(error), ..answered(ending(error), "") }
}

fn granted(answered: &mut Answered, view: &AcquireResultView<'_>) {
    let (spec, cursor) = (view.snapshot.spec(), view.snapshot.cursor());
    answered.granted = Some(Grant {
        lease: view.lease.clone(),
        start: spec.start.to_vec(),
        end: spec.end.to_vec(),
        last_key: cursor.last_key().map(<[u8]>::to_vec),
        attempts: view.attempts,
    });
}

fn last_key(cursor: &CursorUpdate<'_>) -> Option<Vec<u8>> {
    cursor.last_key().map(<[u8]>::to_vec)
}

/// What a guest is told that wants to make or end runs.
fn not_yours() -> InfraError {
    let message = "runs of a simulated world are made by the world".to_owned();
    let (operation, why) = ("simulated worker", StoreRefusal::NotPermitted);
    InfraError::Refused { operation, why, message }
}

impl AsyncCoordinationBackend for SimCoordinator {
    async fn acquire_and_restore_into<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcquireError> {
        self.begin(Notice::new(Verb::Acquire, now, About::Shard(key)));
        let told = self.handle.acquire_and_restore_into(now, tenant, key, worker, scratch).await;
        self.end_with(&told, granted);
        told
    }

    async fn renew(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
    ) -> Result<RenewResult, RenewError> {
        self.begin(Notice::under(Verb::Renew, now, lease, OpId::from_raw(0)));
        let told = self.handle.renew(now, tenant, lease).await;
        self.end_with(&told, |answered, told| {
            answered.renewed = Some(told.new_deadline.as_raw());
        });
        told
    }

    async fn checkpoint(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError> {
        let notice = Notice::under(Verb::Checkpoint, now, lease, op_id);
        self.begin(Notice { last_key: last_key(&cursor), ..notice });
        let told = self.handle.checkpoint(now, tenant, lease, cursor, op_id).await;
        self.end(&told);
        told
    }

    async fn complete(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, CompleteError> {
        let notice = Notice::under(Verb::Complete, now, lease, op_id);
        self.begin(Notice { last_key: last_key(&cursor), ..notice });
        let told = self.handle.complete(now, tenant, lease, cursor, op_id).await;
        self.end(&told);
        told
    }

    async fn park_shard(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        reason: ParkReason,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ParkError> {
        self.begin(Notice::under(Verb::Park, now, lease, op_id));
        let told = self.handle.park_shard(now, tenant, lease, reason, op_id).await;
        self.end(&told);
        told
    }

    async fn split_replace(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitReplacePlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitReplaceResult>, SplitError> {
        let starts = plan.children().iter().skip(1).map(|child| child.spec.start.to_vec());
        let notice = Notice::under(Verb::SplitReplace, now, lease, op_id);
        self.begin(Notice { cuts: starts.collect(), ..notice });
        let told = self.handle.split_replace(now, tenant, lease, plan, op_id).await;
        self.end_born(&told, |result| Some(result.children.to_vec()));
        told
    }

    async fn split_residual(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        plan: &SplitResidualPlan<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitError> {
        let cuts = vec![plan.residual().start.to_vec()];
        let notice = Notice::under(Verb::SplitResidual, now, lease, op_id);
        self.begin(Notice { cuts, ..notice });
        let told = self.handle.split_residual(now, tenant, lease, plan, op_id).await;
        self.end_born(&told, |result| Some(vec![result.residual]));
        told
    }

    async fn release(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        mode: ReleaseMode,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, ReleaseError> {
        let clean = matches!(mode, ReleaseMode::Clean);
        self.begin(Notice { clean, ..Notice::under(Verb::Release, now, lease, op_id) });
        let told = self.handle.release(now, tenant, lease, mode, op_id).await;
        self.end(&told);
        told
    }

    async fn offer(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        terms: OfferTerms,
        cursor: CursorUpdate<'_>,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, OfferError> {
        let notice = Notice::under(Verb::Offer, now, lease, op_id);
        let last_key = last_key(&cursor);
        self.begin(Notice { last_key, terms: Some(terms), ..notice });
        let told = self.handle.offer(now, tenant, lease, terms, cursor, op_id).await;
        self.end(&told);
        told
    }

    async fn accept<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        worker: WorkerId,
        handoff: HandoffId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, AcceptError> {
        let terms = OfferTerms { handoff, destination: worker, deadline: now };
        let notice = Notice::new(Verb::Accept, now, About::Shard(key));
        self.begin(Notice { terms: Some(terms), ..notice });
        let told = self.handle.accept(now, tenant, key, worker, handoff, scratch).await;
        self.end_with(&told, granted);
        told
    }

    async fn withdraw(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &Lease,
        handoff: HandoffId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, WithdrawError> {
        let (destination, deadline) = (WorkerId::from_raw(0), LogicalTime::ZERO);
        let terms = Some(OfferTerms { handoff, destination, deadline });
        self.begin(Notice { terms, ..Notice::under(Verb::Withdraw, now, lease, op_id) });
        let told = self.handle.withdraw(now, tenant, lease, handoff, op_id).await;
        self.end(&told);
        told
    }

    async fn renew_many(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        leases: &[Lease],
        results: &mut Vec<Result<RenewResult, RenewError>>,
    ) {
        self.begin(Notice::new(Verb::RenewMany, now, About::Leases(leases.to_vec())));
        self.handle.renew_many(now, tenant, leases, results).await;
        let renewal = |told: &Result<RenewResult, RenewError>| match told {
            Ok(it) => Renewal::Until(it.new_deadline.as_raw(), it.request.clone()),
            Err(error) => Renewal::Not(ending(error), Label::of(error)),
        };
        let none = results.iter().all(Result::is_err);
        let first = results.iter().find_map(|told| told.as_ref().err()).filter(|_| none);
        let letter = first.map_or_else(|| answered(Ending::Executed, "Executed"), failed);
        let batch = results.iter().map(renewal).collect();
        self.store.post(Message::Ended(Box::new(Answered { batch, ..letter })));
    }
}

impl AsyncShardClaiming for SimCoordinator {
    fn claim_throttled_until(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Option<LogicalTime> {
        self.handle.claim_throttled_until(now, tenant, worker)
    }

    fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId) {
        self.handle.note_claim(now, tenant, worker);
    }

    async fn claim_next_available<'a>(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, ClaimError> {
        self.begin(Notice::new(Verb::Claim, now, About::Run(run)));
        let told = self.handle.claim_next_available(now, tenant, run, worker, scratch).await;
        self.end_with(&told, granted);
        told
    }
}

impl AsyncRunManagement for SimCoordinator {
    async fn create_run(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: RunId,
        _: RunConfig,
    ) -> Result<(), CreateRunError> {
        Err(not_yours().into())
    }

    async fn register_shards(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: RunId,
        _: &[InitialShardInput<'_>],
        _: OpId,
    ) -> Result<IdempotentOutcome<RunOpResult>, RegisterShardsError> {
        Err(not_yours().into())
    }

    async fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord, GetRunError> {
        self.begin(Notice::new(Verb::GetRun, LogicalTime::ZERO, About::Run(run)));
        let told = self.handle.get_run(tenant, run).await;
        self.end_plain(&told);
        told
    }

    async fn get_run_progress(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
    ) -> Result<RunProgress, GetRunError> {
        self.begin(Notice::new(Verb::Progress, now, About::Run(run)));
        let told = self.handle.get_run_progress(now, tenant, run).await;
        self.end_plain(&told);
        told
    }

    async fn list_shards_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        filter: ShardFilter,
        out: &mut Vec<ShardSummary>,
    ) -> Result<(), GetRunError> {
        self.begin(Notice::new(Verb::ListShards, now, About::Run(run)));
        let told = self.handle.list_shards_into(now, tenant, run, filter, out).await;
        self.end_plain(&told);
        told
    }

    async fn complete_run(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: RunId,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
        Err(not_yours().into())
    }

    async fn fail_run(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: RunId,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
        Err(not_yours().into())
    }

    async fn cancel_run(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: RunId,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
        Err(not_yours().into())
    }

    async fn unpark_shard(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: ShardKey,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, UnparkError> {
        Err(not_yours().into())
    }

    async fn collect_claim_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError> {
        self.handle.collect_claim_candidates_into(now, tenant, run, worker, limit, out).await
    }

    async fn pause_run(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: RunId,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
        Err(not_yours().into())
    }

    async fn resume_run(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: RunId,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
        Err(not_yours().into())
    }

    async fn request_action(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: ShardKey,
        _: &ShardAction,
        _: LogicalTime,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, RequestActionError> {
        Err(not_yours().into())
    }

    async fn revoke_lease(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: ShardKey,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, RevokeLeaseError> {
        Err(not_yours().into())
    }

    async fn delete_run(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: RunId,
        _: OpId,
    ) -> Result<IdempotentOutcome<()>, DeleteRunError> {
        Err(not_yours().into())
    }

    async fn register_worker(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<(), WorkerError> {
        self.begin(Notice::new(Verb::RegisterWorker, now, About::Nothing));
        let told = self.handle.register_worker(now, tenant, worker).await;
        self.end_plain(&told);
        told
    }

    async fn heartbeat(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
        state: WorkerState,
    ) -> Result<(), WorkerError> {
        self.begin(Notice::new(Verb::Heartbeat, now, About::Nothing));
        let told = self.handle.heartbeat(now, tenant, worker, state).await;
        self.end_plain(&told);
        told
    }

    async fn list_workers_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        out: &mut Vec<WorkerEntry>,
    ) -> Result<(), WorkerError> {
        self.begin(Notice::new(Verb::ListWorkers, now, About::Nothing));
        let told = self.handle.list_workers_into(now, tenant, out).await;
        self.end_plain(&told);
        told
    }

    async fn list_active_runs_into(
        &mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError> {
        self.begin(Notice::new(Verb::ActiveRuns, LogicalTime::ZERO, About::Nothing));
        let told = self.handle.list_active_runs_into(tenant, after, limit, out).await;
        self.end_plain(&told);
        told
    }

    async fn list_runs_into(
        &mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError> {
        self.begin(Notice::new(Verb::ListRuns, LogicalTime::ZERO, About::Nothing));
        let told = self.handle.list_runs_into(tenant, after, limit, out).await;
        self.end_plain(&told);
        told
    }

    async fn gc_stale_initializing_runs_into(
        &mut self,
        _: LogicalTime,
        _: TenantId,
        _: u64,
        _: usize,
        _: &mut Vec<RunId>,
    ) -> Result<(), InfraError> {
        Err(not_yours())
    }
}
