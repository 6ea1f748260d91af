//! The coordinators over a store: flights and the two drivers that fly them.
//!
//! Both faces are written once: macros list the operations, and are told whether to await. Nothing
//! is decided here; an operation is a command, its flight, and a driver.

use std::fmt;

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId, WorkerId};

use super::cache::RecordCache;
use super::core::{Core, StoreConfig};
use super::engine::{AsyncStore, Store};
use super::flight::{Flight, Reply, Step};
use super::gc::RunsListed;
use super::run_operations::run_operations;
use super::shard_operations::shard_operations;
use crate::error::{
    AcquireError, CheckpointError, CompleteError, InfraError, ParkError, RenewError, SplitError,
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
pub fn fly<S: Store, A>(store: &mut S, mut flight: Flight<'_, A>) -> A {
    loop {
        flight.tell_binding(store.binding());
        let told = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Commit(txns) => Reply::Committed(store.commit(txns)),
            Step::Wait(ticks) => {
                store.wait(ticks);
                Reply::Waited
            }
            Step::Done(answer) => return answer,
        };
        flight.tell(told);
    }
}

/// Flies `flight` on an asynchronous store.
pub async fn fly_async<S: AsyncStore, A>(store: &mut S, mut flight: Flight<'_, A>) -> A {
    loop {
        flight.tell_binding(store.binding());
        let told = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads).await),
            Step::Commit(txns) => Reply::Committed(store.commit(txns).await),
            Step::Wait(ticks) => {
                store.wait(ticks).await;
                Reply::Waited
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

            /// As [`new`](Self::new), beside others of this process that share `cache`. All of
            /// them must be on one store.
            pub fn sharing(store: S, config: StoreConfig, cache: &RecordCache) -> Self {
                let mut handle = Self::new(store, config);
                handle.core.cache = cache.clone();
                handle
            }

            /// What it remembers, to be shared with others on the same store.
            #[must_use]
            pub const fn cache(&self) -> &RecordCache {
                &self.core.cache
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

impl<S: AsyncStore> AsyncStoreCoordinator<S> {
    /// Returns a new handle, as [`new`](Self::new) does, that reuses the allocations of this one.
    /// It has no state of the old handle.
    ///
    /// For simulators, which make many handles.
    #[must_use]
    pub fn anew(self, store: S, config: StoreConfig) -> Self {
        let core = Core::with_pool(config, store.limits(), self.core.pool);
        Self { store, core }
    }
}

impl<S> AsyncStoreCoordinator<S> {
    /// Empties the record cache of this handle. The next operation on a shard loads its record.
    ///
    /// For simulators and tests.
    pub fn forget(&mut self) {
        self.core.cache = RecordCache::default();
    }
}

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

shard_operations!(StoreCoordinator over Store as CoordinationBackend; fly);
shard_operations!(AsyncStoreCoordinator over AsyncStore as AsyncCoordinationBackend;
    fly_async.await; async);
run_operations!(StoreCoordinator over Store as RunManagement; fly);
run_operations!(AsyncStoreCoordinator over AsyncStore as AsyncRunManagement;
    fly_async.await; async);

/// Claims of a handle, which remembers its own.
macro_rules! claiming {
    (
        $name:ident over $engine:ident as $claiming:ident;
        $fly:ident $(.$await:tt)? $(; $async:tt)?
    ) => {
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

            $($async)? fn probe_candidates_into(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                worker: WorkerId,
                limit: usize,
                out: &mut ClaimCandidates,
            ) -> Result<ClaimOutlook, GetRunError> {
                let flight = self.core.probe(now, (tenant, run), (worker, limit), out);
                $fly(&mut self.store, flight)$(.$await)?
            }
        }
    };
}

claiming!(StoreCoordinator over Store as ShardClaiming; fly);
claiming!(AsyncStoreCoordinator over AsyncStore as AsyncShardClaiming; fly_async.await; async);

/// What only a store needs: elsewhere no record is damaged.
macro_rules! mending {
    ($name:ident over $engine:ident; $fly:ident $(.$await:tt)? $(; $async:tt)?) => {
        impl<S: $engine> $name<S> {
            /// Deletes a run whose head or list of roots is damaged, with its shards, whether it is
            /// over or not: nobody can read that. Its id is never used again.
            ///
            /// A run that can be read is deleted as by `delete_run`, with its refusals.
            ///
            /// # Errors
            ///
            /// As `delete_run`; a record of a newer format is refused, and left to a newer program.
            pub $($async)? fn delete_damaged_run(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                op_id: OpId,
            ) -> Result<IdempotentOutcome<()>, DeleteRunError> {
                let operation = DeleteRun { tenant, run, op_id };
                $fly(&mut self.store, self.core.delete_damaged(now, operation))$(.$await)?
            }
        }
    };
}

mending!(StoreCoordinator over Store; fly);
mending!(AsyncStoreCoordinator over AsyncStore; fly_async.await; async);
