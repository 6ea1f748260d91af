//! The list of operations on shards, for a blocking or an asynchronous coordinator.
//!
//! It is a macro, so that the two faces are one text; it expands where its types are in scope.

/// The operations of a backend on a coordinator over `$engine`. What follows the name of the driver
/// is put behind each of its calls.
macro_rules! shard_operations {
    (
        $name:ident over $engine:ident as $backend:ident;
        $fly:ident $(.$await:tt)? $(; $async:tt)?
    ) => {
        impl<S: $engine> $backend for $name<S> {
            $($async)? fn acquire_and_restore_into<'a>(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                key: ShardKey,
                worker: WorkerId,
                scratch: &'a mut AcquireScratch,
            ) -> Result<AcquireResultView<'a>, AcquireError> {
                let acquire = Acquire { tenant, key, worker, token: self.core.fresh_grant() };
                let flight = self.core.grant(now, worker, acquire, scratch);
                let granted = $fly(&mut self.store, flight)$(.$await)??;
                Ok(granted.show(scratch))
            }

            $($async)? fn renew(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
            ) -> Result<RenewResult, RenewError> {
                $fly(&mut self.store, self.core.renew(now, tenant, lease))$(.$await)?
            }

            $($async)? fn renew_many(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                leases: &[Lease],
                results: &mut Vec<Result<RenewResult, RenewError>>,
            ) {
                let flight = self.core.renew_many(now, tenant, leases);
                let renewed = $fly(&mut self.store, flight)$(.$await)?;
                results.clear();
                results.extend(renewed);
            }

            $($async)? fn checkpoint(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
                cursor: CursorUpdate<'_>,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError> {
                let operation = Checkpoint { tenant, lease, cursor, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn complete(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
                cursor: CursorUpdate<'_>,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, CompleteError> {
                let operation = Complete { tenant, lease, cursor, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn park_shard(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
                reason: ParkReason,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, ParkError> {
                let operation = Park { tenant, lease, reason, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn split_replace(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
                plan: &SplitReplacePlan<'_>,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<SplitReplaceResult>, SplitError> {
                let children_max = self.core.split_children_max();
                let operation = SplitReplace { tenant, lease, plan, children_max, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn split_residual(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
                plan: &SplitResidualPlan<'_>,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<SplitResidualResult>, SplitError> {
                let operation = SplitResidual { tenant, lease, plan, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn release(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
                mode: ReleaseMode,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, ReleaseError> {
                let operation = Release { tenant, lease, mode, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn offer(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
                terms: OfferTerms,
                cursor: CursorUpdate<'_>,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, OfferError> {
                let operation = OfferShard { tenant, lease, terms, cursor, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }

            $($async)? fn accept<'a>(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                key: ShardKey,
                worker: WorkerId,
                handoff: HandoffId,
                scratch: &'a mut AcquireScratch,
            ) -> Result<AcquireResultView<'a>, AcceptError> {
                let token = self.core.fresh_grant();
                let accept = Accept { tenant, key, worker, handoff, token };
                let flight = self.core.grant(now, worker, accept, scratch);
                let granted = $fly(&mut self.store, flight)$(.$await)??;
                Ok(granted.show(scratch))
            }

            $($async)? fn withdraw(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                lease: &Lease,
                handoff: HandoffId,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, WithdrawError> {
                let operation = Withdraw { tenant, lease, handoff, op_id };
                $fly(&mut self.store, self.core.on_shard(now, operation))$(.$await)?
            }
        }
    };
}
pub(super) use shard_operations;
