//! The coordinators over a store: flights and the two drivers that fly them.
//!
//! Both faces are written once: a macro lists the operations, and is told whether to await. Nothing
//! is decided here; an operation is a command, its flight, and a driver.

use std::fmt;

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId, WorkerId};

use super::core::{Core, StoreConfig};
use super::engine::{AsyncStore, Store};
use super::flight::{Flight, Step, Told};
use crate::error::{
    AcquireError, CheckpointError, CompleteError, ParkError, RenewError, SplitError,
};
use crate::events::EventCollector;
use crate::facade::{AsyncShardClaiming, ShardClaiming};
use crate::handoff::HandoffId;
use crate::lease::Lease;
use crate::move_errors::{AcceptError, OfferError, ReleaseError, WithdrawError};
use crate::outcome::{CheckpointResult, IdempotentOutcome, RenewResult};
use crate::protocol::{
    Accept, Acquire, Checkpoint, ClaimCandidates, Complete, CreateRun, DeleteRun, OfferShard,
    OfferTerms, Park, RegisterShards, Release, ReleaseMode, RequestAction, RevokeLease,
    RunTransition, RunTransitionKind, SplitReplace, SplitResidual, Unpark, Withdraw,
};
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

/// Flies `flight` on a blocking store.
fn fly<S: Store, A>(store: &mut S, mut flight: Flight<'_, A>) -> A {
    loop {
        let told = match flight.step() {
            Step::Load(keys) => Told::Loaded(store.load(&keys)),
            Step::Scan(range, limit) => Told::Scanned(store.scan(&range, limit)),
            Step::Count(range) => Told::Counted(store.count(&range)),
            Step::Commit(txn) => Told::Committed(store.commit(&txn)),
            Step::Wait(ticks) => {
                store.wait(ticks);
                Told::Waited
            }
            Step::Done(answer) => return answer,
        };
        flight.tell(told);
    }
}

/// Flies `flight` on an asynchronous store.
async fn fly_async<S: AsyncStore, A>(store: &mut S, mut flight: Flight<'_, A>) -> A {
    loop {
        let told = match flight.step() {
            Step::Load(keys) => Told::Loaded(store.load(&keys).await),
            Step::Scan(range, limit) => Told::Scanned(store.scan(&range, limit).await),
            Step::Count(range) => Told::Counted(store.count(&range).await),
            Step::Commit(txn) => Told::Committed(store.commit(&txn).await),
            Step::Wait(ticks) => {
                store.wait(ticks).await;
                Told::Waited
            }
            Step::Done(answer) => return answer,
        };
        flight.tell(told);
    }
}

/// What both coordinators have.
macro_rules! coordinator {
    ($name:ident over $engine:ident, $what:literal) => {
        #[doc = $what]
        ///
        /// It is one handle: several, in one process or in many, may work on one store.
        pub struct $name<S> {
            store: S,
            core: Core,
        }

        impl<S: $engine> $name<S> {
            /// A handle on what `store` holds.
            pub fn new(store: S, config: StoreConfig) -> Self {
                let core = Core::new(config, store.limits());
                Self { store, core }
            }

            /// Limits, and the nonce of this handle.
            #[must_use]
            pub const fn config(&self) -> StoreConfig {
                self.core.config
            }

            /// The store itself.
            pub const fn store(&self) -> &S {
                &self.store
            }

            /// The store itself, for what is not coordination.
            pub const fn store_mut(&mut self) -> &mut S {
                &mut self.store
            }

            /// The most children that the store publishes in one split.
            pub fn split_children_max(&self) -> usize {
                self.core.split_children_max()
            }

            /// Collects events from now on, or no longer. Answers the collector that was there.
            pub const fn collect_events(
                &mut self,
                events: Option<EventCollector>,
            ) -> Option<EventCollector> {
                std::mem::replace(&mut self.core.events, events)
            }
        }

        impl<S> fmt::Debug for $name<S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("config", &self.core.config)
                    .finish_non_exhaustive()
            }
        }
    };
}

coordinator!(StoreCoordinator over Store, "A coordinator over a blocking store.");
coordinator!(AsyncStoreCoordinator over AsyncStore, "A coordinator over an asynchronous store.");

impl<S: Store> StoreCoordinator<S> {
    /// Runs `call` and collects the events of the operations in it.
    pub fn with_events<R>(
        &mut self,
        events: &mut EventCollector,
        call: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.collect_events(Some(std::mem::take(events)));
        let result = call(self);
        *events = self.collect_events(None).unwrap_or_default();
        result
    }
}

/// The operations of a backend on a coordinator over `$engine`. What follows the name of the driver
/// is put behind each of its calls.
macro_rules! backend {
    (
        $name:ident over $engine:ident as $backend:ident, $management:ident;
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
                let flight = self.core.grant(now, acquire, scratch);
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
                let flight = self.core.grant(now, accept, scratch);
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
                $fly(&mut self.store, Core::run(tenant, run))$(.$await)?
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
                let flight = Core::candidates(now, (tenant, run), worker, limit, out);
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
        }
    };
}

backend!(StoreCoordinator over Store as CoordinationBackend, RunManagement; fly);
backend!(AsyncStoreCoordinator over AsyncStore as AsyncCoordinationBackend, AsyncRunManagement;
    fly_async.await; async);

/// Claims of a handle, which remembers its own.
macro_rules! claiming {
    ($name:ident over $engine:ident as $claiming:ident) => {
        impl<S: $engine> $claiming for $name<S> {
            fn claim_throttled_until(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                worker: WorkerId,
            ) -> Option<LogicalTime> {
                self.core.throttled_until(now, tenant, worker)
            }

            fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId) {
                self.core.note_claim(now, tenant, worker);
            }
        }
    };
}

claiming!(StoreCoordinator over Store as ShardClaiming);
claiming!(AsyncStoreCoordinator over AsyncStore as AsyncShardClaiming);
