//! The list of operations on runs, for a blocking or an asynchronous coordinator.
//!
//! It is a macro, so that the two faces are one text; it expands where its types are in scope.

/// The operations on runs, of administrators and of workers that look for something to do, on a
/// coordinator over `$engine`. What follows the name of the driver is put behind each of its calls.
macro_rules! run_operations {
    (
        $name:ident over $engine:ident as $management:ident;
        $fly:ident $(.$await:tt)? $(; $async:tt)?
    ) => {
        impl<S: $engine> $management for $name<S> {
            $($async)? fn create_run(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                config: RunConfig,
            ) -> Result<(), CreateRunError> {
                let operation = CreateRun { tenant, run, config };
                let made = $fly(&mut self.store, self.core.on_run(now, operation))$(.$await)?;
                made.map(IdempotentOutcome::into_inner)
            }

            $($async)? fn register_shards(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                shards: &[InitialShardInput<'_>],
                op_id: OpId,
            ) -> Result<IdempotentOutcome<RunOpResult>, RegisterShardsError> {
                let operation = RegisterShards { tenant, run, shards, op_id };
                $fly(&mut self.store, self.core.on_run(now, operation))$(.$await)?
            }

            $($async)? fn get_run(
                &mut self,
                tenant: TenantId,
                run: RunId,
            ) -> Result<RunRecord, GetRunError> {
                $fly(&mut self.store, self.core.run(tenant, run))$(.$await)?
            }

            $($async)? fn get_run_progress(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
            ) -> Result<RunProgress, GetRunError> {
                $fly(&mut self.store, self.core.progress(now, tenant, run))$(.$await)?
            }

            $($async)? fn list_shards_into(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                filter: ShardFilter,
                out: &mut Vec<ShardSummary>,
            ) -> Result<(), GetRunError> {
                let flight = self.core.list(now, (tenant, run), filter, out);
                $fly(&mut self.store, flight)$(.$await)?
            }

            $($async)? fn complete_run(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
                let kind = RunTransitionKind::Complete;
                let operation = RunTransition { tenant, run, kind, op_id };
                $fly(&mut self.store, self.core.transition(now, operation))$(.$await)?
            }

            $($async)? fn fail_run(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
                let kind = RunTransitionKind::Fail;
                let operation = RunTransition { tenant, run, kind, op_id };
                $fly(&mut self.store, self.core.transition(now, operation))$(.$await)?
            }

            $($async)? fn cancel_run(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
                let kind = RunTransitionKind::Cancel;
                let operation = RunTransition { tenant, run, kind, op_id };
                $fly(&mut self.store, self.core.transition(now, operation))$(.$await)?
            }

            $($async)? fn unpark_shard(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                key: ShardKey,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, UnparkError> {
                let operation = Unpark { tenant, key, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn collect_claim_candidates_into(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                worker: WorkerId,
                limit: usize,
                out: &mut ClaimCandidates,
            ) -> Result<ClaimOutlook, GetRunError> {
                let flight = self.core.candidates(now, (tenant, run), (worker, limit), out);
                $fly(&mut self.store, flight)$(.$await)?
            }

            $($async)? fn pause_run(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
                let kind = RunTransitionKind::Pause;
                let operation = RunTransition { tenant, run, kind, op_id };
                $fly(&mut self.store, self.core.transition(now, operation))$(.$await)?
            }

            $($async)? fn resume_run(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, RunTransitionError> {
                let kind = RunTransitionKind::Resume;
                let operation = RunTransition { tenant, run, kind, op_id };
                $fly(&mut self.store, self.core.transition(now, operation))$(.$await)?
            }

            $($async)? fn request_action(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                key: ShardKey,
                action: &ShardAction,
                expires_at: LogicalTime,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, RequestActionError> {
                let action = action.clone();
                let operation = RequestAction { tenant, key, action, expires_at, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn revoke_lease(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                key: ShardKey,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, RevokeLeaseError> {
                let operation = RevokeLease { tenant, key, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn delete_run(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, DeleteRunError> {
                let operation = DeleteRun { tenant, run, op_id };
                $fly(&mut self.store, self.core.delete(now, operation))$(.$await)?
            }

            $($async)? fn register_worker(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                worker: WorkerId,
            ) -> Result<(), WorkerError> {
                $fly(&mut self.store, self.core.register_worker(now, tenant, worker))$(.$await)?
            }

            $($async)? fn heartbeat(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                worker: WorkerId,
                state: WorkerState,
            ) -> Result<(), WorkerError> {
                let flight = self.core.heartbeat(now, tenant, worker, state);
                $fly(&mut self.store, flight)$(.$await)?
            }

            $($async)? fn list_workers_into(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                out: &mut Vec<WorkerEntry>,
            ) -> Result<(), WorkerError> {
                $fly(&mut self.store, self.core.list_workers(now, tenant, out))$(.$await)?
            }

            $($async)? fn list_active_runs_into(
                &mut self,
                tenant: TenantId,
                after: Option<RunId>,
                limit: usize,
                out: &mut Vec<RunId>,
            ) -> Result<(), InfraError> {
                let flight = self.core.list_runs(RunsListed::NotOver, tenant, after, limit, out);
                $fly(&mut self.store, flight)$(.$await)?
            }

            $($async)? fn list_runs_into(
                &mut self,
                tenant: TenantId,
                after: Option<RunId>,
                limit: usize,
                out: &mut Vec<RunId>,
            ) -> Result<(), InfraError> {
                let flight = self.core.list_runs(RunsListed::All, tenant, after, limit, out);
                $fly(&mut self.store, flight)$(.$await)?
            }

            $($async)? fn gc_stale_initializing_runs_into(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                stale_after: u64,
                limit: usize,
                out: &mut Vec<RunId>,
            ) -> Result<(), InfraError> {
                let flight = self.core.collect(now, (tenant, stale_after), limit, out);
                $fly(&mut self.store, flight)$(.$await)?
            }
        }
    };
}
pub(super) use run_operations;
