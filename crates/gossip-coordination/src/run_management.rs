//! What every backend offers for runs and administrators, blocking and asynchronous.
//!
//! None of these operations needs a lease: they belong to whoever runs the system, not to a worker
//! that holds a shard.

use std::future::Future;

use gossip_contracts::coordination::InitialShardInput;
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId, WorkerId};

use crate::error::InfraError;
use crate::outcome::IdempotentOutcome;
use crate::protocol::ClaimCandidates;
use crate::request::ShardAction;
use crate::run::{
    RunConfig, RunHead, RunOpResult, RunProgress, RunRecord, ShardFilter, ShardSummary,
};
use crate::run_errors::{
    CreateRunError, DeleteRunError, GetRunError, RegisterShardsError, RequestActionError,
    RevokeLeaseError, RunTransitionError, UnparkError,
};
use crate::workers::{WorkerEntry, WorkerError, WorkerState};

/// Where a claim may look, and when looking again makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOutlook {
    /// The run, whose state may forbid claiming.
    pub run: RunHead,
    /// When the next live lease runs out.
    pub earliest_deadline: Option<LogicalTime>,
}

/// The operations on runs and of administrators, blocking.
#[expect(clippy::missing_errors_doc, reason = "every method's error type documents its refusals")]
pub trait RunManagement {
    /// Makes a run without shards.
    fn create_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
    ) -> Result<(), CreateRunError>;

    /// Gives a run its shards and makes it active.
    fn register_shards(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> Result<IdempotentOutcome<RunOpResult>, RegisterShardsError>;

    /// Makes a run with its shards. If the run is there already with the same settings, goes on
    /// with its registration, so the whole call can be repeated.
    fn create_run_with_shards(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> Result<IdempotentOutcome<RunOpResult>, CreateRunError> {
        match self.create_run(now, tenant, run, config) {
            Ok(()) => {}
            Err(CreateRunError::RunAlreadyExists { .. }) => {
                check_existing(self.get_run(tenant, run), run, config)?;
            }
            Err(error) => return Err(error),
        }
        self.register_shards(now, tenant, run, shards, op_id)
            .map_err(CreateRunError::RegisterShardsFailed)
    }

    /// The run's record.
    fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord, GetRunError>;

    /// How far the run has come.
    fn get_run_progress(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
    ) -> Result<RunProgress, GetRunError>;

    /// Appends the run's shards that `filter` admits to `out`, sorted by range and id.
    fn list_shards_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        filter: ShardFilter,
        out: &mut Vec<ShardSummary>,
    ) -> Result<(), GetRunError>;

    /// Ends a run whose shards are all done.
    fn complete_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;

    /// Gives a run up.
    fn fail_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;

    /// Stops a run.
    fn cancel_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;

    /// Brings a parked shard back.
    fn unpark_shard(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, UnparkError>;

    /// Replaces `out` by shards that `worker` may try, at most `limit`, best first.
    fn collect_claim_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError>;

    /// Added: lets nobody start a shard of the run.
    fn pause_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;

    /// Added: lets shards of the run be started again.
    fn resume_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RunTransitionError>;

    /// Added: asks something of a shard's owner.
    fn request_action(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        action: &ShardAction,
        expires_at: LogicalTime,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RequestActionError>;

    /// Added: takes a lease away.
    fn revoke_lease(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, RevokeLeaseError>;

    /// Added: deletes a run that is over, with its shards. Its id is never used again.
    fn delete_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> Result<IdempotentOutcome<()>, DeleteRunError>;

    /// Added: enters a worker into the registry; repeating it is harmless.
    fn register_worker(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<(), WorkerError>;

    /// Added: says that a registered worker lives, and what it is doing.
    fn heartbeat(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
        state: WorkerState,
    ) -> Result<(), WorkerError>;

    /// Added: appends the workers heard of lately to `out`, in the order of their ids.
    fn list_workers_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        out: &mut Vec<WorkerEntry>,
    ) -> Result<(), WorkerError>;

    /// Added: appends those of the tenant's runs that are not over to `out`, in the order of their
    /// ids: the first `limit` of them behind `after`. Fewer are the last ones.
    fn list_active_runs_into(
        &mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError>;

    /// Added: as [`list_active_runs_into`](Self::list_active_runs_into), with those that are over
    /// and not deleted, and those whose record is damaged.
    fn list_runs_into(
        &mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError>;

    /// Added: takes away up to `limit` of the tenant's runs that were made and not registered to
    /// the end, and of which nothing was heard for `stale_after` ticks. Each is cancelled first and
    /// then deleted, and its id is never used again. Before them it finishes deletions that broke
    /// off: what is left of such a run is found by nobody else, and its shards still count. Those
    /// that are gone, of both, are appended to `out`, also if the call fails later on.
    fn gc_stale_initializing_runs_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        stale_after: u64,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError>;
}

/// The operations on runs and of administrators, asynchronous. See [`RunManagement`].
pub trait AsyncRunManagement: Send {
    /// See [`RunManagement::create_run`].
    fn create_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
    ) -> impl Future<Output = Result<(), CreateRunError>> + Send;

    /// See [`RunManagement::register_shards`].
    fn register_shards(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<RunOpResult>, RegisterShardsError>> + Send;

    /// See [`RunManagement::create_run_with_shards`].
    fn create_run_with_shards(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<RunOpResult>, CreateRunError>> + Send {
        async move {
            match self.create_run(now, tenant, run, config).await {
                Ok(()) => {}
                Err(CreateRunError::RunAlreadyExists { .. }) => {
                    check_existing(self.get_run(tenant, run).await, run, config)?;
                }
                Err(error) => return Err(error),
            }
            let registered = self.register_shards(now, tenant, run, shards, op_id).await;
            registered.map_err(CreateRunError::RegisterShardsFailed)
        }
    }

    /// See [`RunManagement::get_run`].
    fn get_run(
        &mut self,
        tenant: TenantId,
        run: RunId,
    ) -> impl Future<Output = Result<RunRecord, GetRunError>> + Send;

    /// See [`RunManagement::get_run_progress`].
    fn get_run_progress(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
    ) -> impl Future<Output = Result<RunProgress, GetRunError>> + Send;

    /// See [`RunManagement::list_shards_into`].
    fn list_shards_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        filter: ShardFilter,
        out: &mut Vec<ShardSummary>,
    ) -> impl Future<Output = Result<(), GetRunError>> + Send;

    /// See [`RunManagement::complete_run`].
    fn complete_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, RunTransitionError>> + Send;

    /// See [`RunManagement::fail_run`].
    fn fail_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, RunTransitionError>> + Send;

    /// See [`RunManagement::cancel_run`].
    fn cancel_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, RunTransitionError>> + Send;

    /// See [`RunManagement::unpark_shard`].
    fn unpark_shard(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, UnparkError>> + Send;

    /// See [`RunManagement::collect_claim_candidates_into`].
    fn collect_claim_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> impl Future<Output = Result<ClaimOutlook, GetRunError>> + Send;

    /// See [`RunManagement::pause_run`].
    fn pause_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, RunTransitionError>> + Send;

    /// See [`RunManagement::resume_run`].
    fn resume_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, RunTransitionError>> + Send;

    /// See [`RunManagement::request_action`].
    fn request_action(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        action: &ShardAction,
        expires_at: LogicalTime,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, RequestActionError>> + Send;

    /// See [`RunManagement::revoke_lease`].
    fn revoke_lease(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        key: ShardKey,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, RevokeLeaseError>> + Send;

    /// See [`RunManagement::delete_run`].
    fn delete_run(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        op_id: OpId,
    ) -> impl Future<Output = Result<IdempotentOutcome<()>, DeleteRunError>> + Send;

    /// See [`RunManagement::register_worker`].
    fn register_worker(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send;

    /// See [`RunManagement::heartbeat`].
    fn heartbeat(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
        state: WorkerState,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send;

    /// See [`RunManagement::list_workers_into`].
    fn list_workers_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        out: &mut Vec<WorkerEntry>,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send;

    /// See [`RunManagement::list_active_runs_into`].
    fn list_active_runs_into(
        &mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> impl Future<Output = Result<(), InfraError>> + Send;

    /// See [`RunManagement::list_runs_into`].
    fn list_runs_into(
        &mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> impl Future<Output = Result<(), InfraError>> + Send;

    /// See [`RunManagement::gc_stale_initializing_runs_into`].
    fn gc_stale_initializing_runs_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        stale_after: u64,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> impl Future<Output = Result<(), InfraError>> + Send;
}

/// The id is taken: by the same run, by another one, or by one that was deleted, whose id is never
/// used again although nothing is found under it.
fn check_existing(
    existing: Result<RunRecord, GetRunError>,
    run: RunId,
    config: RunConfig,
) -> Result<(), CreateRunError> {
    match existing {
        Ok(existing) if existing.config() == config => Ok(()),
        Ok(_) => Err(CreateRunError::ConfigMismatch { run }),
        Err(GetRunError::RunNotFound) => Err(CreateRunError::RunAlreadyExists { run }),
        Err(error) => Err(CreateRunError::GetRunFailed(error)),
    }
}
