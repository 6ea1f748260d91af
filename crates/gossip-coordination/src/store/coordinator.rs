//! The coordinators over a store, and the two drivers that run flights on one.
//!
//! Both coordinators are derived from the operation lists: an operation is a kernel command, the
//! flight that commits it, and a driver. No protocol rule is here.

use std::fmt;

use gossip_contracts::identity::FenceEpoch;

use super::cache::RecordCache;
use super::core::{Core, ProcessState, StoreConfig};
use super::engine::{AsyncStore, Store};
use super::flight::{Flight, Reply, Step};
use super::operations::store_operations;
use crate::claim_clock::ClaimReservation;
use crate::events::{CollectEvents, EventCollector};
use crate::facade::{AsyncShardClaiming, ClaimError, ShardClaiming};
use crate::operations::*;
use crate::protocol::{
    Accept, Acquire, Checkpoint, Complete, CreateRun, DeleteRun, OfferShard, Park, RaiseFenceFloor,
    RegisterShards, Release, RepairShard, RepairedShard, ReplyPath, RequestAction, RevokeLease,
    RunTransition, RunTransitionKind, SplitReplace, SplitResidual, Unpark, WithRecords, Withdraw,
};
use crate::run_errors::RepairShardError;
use crate::run_management::{AsyncRunManagement, RunManagement};
use crate::traits::{AsyncCoordinationBackend, CoordinationBackend};
use crate::{for_each_run_operation, for_each_shard_operation};

/// Runs `flight` to its end on a blocking store.
pub fn fly<S: Store, A>(store: &mut S, mut flight: Flight<'_, A>) -> A {
    loop {
        // Before every step: the store may lose its bindings during a request.
        flight.set_binding(store.binding());
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads)),
            Step::Commit(txns) => Reply::Committed(store.commit(txns)),
            Step::Wait(ticks) => {
                store.wait(ticks);
                Reply::Waited
            }
            Step::Done(answer) => return answer,
        };
        flight.answer(reply);
    }
}

/// Runs `flight` to its end on an asynchronous store.
pub async fn fly_async<S: AsyncStore, A>(store: &mut S, mut flight: Flight<'_, A>) -> A {
    // Dropping this future during a commit is like a lost reply: the transaction may be applied.
    loop {
        flight.set_binding(store.binding());
        let reply = match flight.step() {
            Step::Read(reads) => Reply::Read(store.read(reads).await),
            Step::Commit(txns) => Reply::Committed(store.commit(txns).await),
            Step::Wait(ticks) => {
                store.wait(ticks).await;
                Reply::Waited
            }
            Step::Done(answer) => return answer,
        };
        flight.answer(reply);
    }
}

/// Defines a coordinator without its operations.
macro_rules! coordinator {
    ($name:ident over $engine:ident, $what:literal) => {
        #[doc = $what]
        ///
        /// It is one handle. Several, in one process or in many, may use the same store.
        pub struct $name<S> {
            store: S,
            core: Core,
        }

        impl<S: $engine> $name<S> {
            /// Returns a handle on the records in `store`.
            pub fn new(store: S, config: StoreConfig) -> Self {
                let core = Core::new(config, store.limits());
                Self { store, core }
            }

            /// As [`new`](Self::new), with the record cache and the claim cooldowns of other
            /// handles in this process. All handles that share them must use the same store.
            pub fn sharing(store: S, config: StoreConfig, process: &ProcessState) -> Self {
                Self::new(store, config).with_process(process)
            }

            fn with_process(mut self, process: &ProcessState) -> Self {
                let process = process.clone();
                let ProcessState { cache, claims, watches, format, failure_room, rings } = process;
                (self.core.cache, self.core.claims) = (cache, claims);
                (self.core.watches, self.core.format) = (watches, format);
                (self.core.failure_room, self.core.rings) = (failure_room, rings);
                self
            }

            /// Returns the state to be shared with other handles on the same store.
            #[must_use]
            pub fn process_state(&self) -> ProcessState {
                let Core { cache, claims, watches, format, failure_room, rings, .. } = &self.core;
                let (cache, claims) = (cache.clone(), claims.clone());
                let (watches, format) = (watches.clone(), format.clone());
                let (failure_room, rings) = (failure_room.clone(), rings.clone());
                ProcessState { cache, claims, watches, format, failure_room, rings }
            }

            /// Returns the settings and the nonce of this handle.
            #[must_use]
            pub const fn config(&self) -> StoreConfig {
                self.core.config
            }

            /// Returns the store.
            pub const fn store(&self) -> &S {
                &self.store
            }

            /// Returns the store, for operations outside coordination.
            pub const fn store_mut(&mut self) -> &mut S {
                &mut self.store
            }

            /// Returns the maximum number of children that the store commits in one split.
            pub fn split_children_max(&self) -> usize {
                self.core.split_children_max()
            }
        }

        impl<S> CollectEvents for $name<S> {
            fn collect_events(&mut self, events: Option<EventCollector>) -> Option<EventCollector> {
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
    /// Returns a new handle, as [`sharing`](Self::sharing) does, that reuses the allocations of
    /// this one. It has no state of the old handle.
    ///
    /// For simulators, which make many handles.
    #[must_use]
    pub fn anew(self, store: S, config: StoreConfig, process: &ProcessState) -> Self {
        // Only the allocations: a cached record or a cooldown would survive a simulated restart.
        let core = Core::with_pool(config, store.limits(), self.core.pool);
        Self { store, core }.with_process(process)
    }
}

impl<S> AsyncStoreCoordinator<S> {
    /// Empties the record cache of this handle. The next operation on a shard loads its record.
    ///
    /// For simulators and tests.
    pub fn forget(&mut self) {
        // Replaced and not cleared, because other handles may share the old cache.
        self.core.cache = RecordCache::default();
    }
}

impl<S: Store> CoordinationBackend for StoreCoordinator<S> {
    for_each_shard_operation! { store_operations (blocking) }
}

impl<S: AsyncStore> AsyncCoordinationBackend for AsyncStoreCoordinator<S> {
    for_each_shard_operation! { store_operations (asynchronous) }
}

impl<S: Store> RunManagement for StoreCoordinator<S> {
    for_each_run_operation! { store_operations (blocking) }
}

impl<S: AsyncStore> AsyncRunManagement for AsyncStoreCoordinator<S> {
    for_each_run_operation! { store_operations (asynchronous) }
}

/// Defines claiming.
macro_rules! claiming {
    (
        $name:ident over $engine:ident as $claiming:ident;
        $fly:ident $(.$await:tt)? $(; $async:tt)?
    ) => {
        impl<S: $engine> $claiming for $name<S> {
            fn reserve_claim(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                worker: WorkerId,
            ) -> Result<ClaimReservation, ClaimError> {
                self.core.reserve_claim(now, tenant, worker)
            }

            fn change_count(&mut self) -> Option<u64> {
                self.store.change_count()
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
                let flight = self.core.probe_candidates_into(now, tenant, run, worker, limit, out);
                $fly(&mut self.store, flight)$(.$await)?
            }
        }
    };
}

claiming!(StoreCoordinator over Store as ShardClaiming; fly);
claiming!(AsyncStoreCoordinator over AsyncStore as AsyncShardClaiming; fly_async.await; async);

/// Defines the operations on damaged and restored stores.
macro_rules! repair {
    ($name:ident over $engine:ident; $fly:ident $(.$await:tt)? $(; $async:tt)?) => {
        impl<S: $engine> $name<S> {
            /// Deletes a run whose head or list of roots is damaged, with its shards. Its status
            /// cannot be read, so the run may still be active. Its id is never used again.
            ///
            /// A readable run is deleted as by `delete_run`, with the same errors.
            ///
            /// # Errors
            ///
            /// As `delete_run`. A record of a newer format is refused, so that a newer program can
            /// handle it.
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

            /// Raises the fence floor of a run to `at_least` or beyond, after the store was
            /// restored from a backup, and returns the new floor. See
            /// [`fence_floor_at`](crate::protocol::fence_floor_at).
            ///
            /// # Errors
            ///
            /// As `get_run`.
            pub $($async)? fn raise_fence_floor(
                &mut self,
                now: LogicalTime,
                tenant: TenantId,
                run: RunId,
                at_least: FenceEpoch,
            ) -> Result<FenceEpoch, GetRunError> {
                let operation = RaiseFenceFloor { tenant, run, at_least };
                let raised = $fly(&mut self.store, self.core.on_run(now, operation))$(.$await)?;
                raised.map(IdempotentOutcome::into_inner)
            }

            /// Rebuilds the record of a damaged shard, and returns what it is now. Its lease ends,
            /// and its fence rises to `at_least` or beyond
            /// ([`fence_floor_at`](crate::protocol::fence_floor_at)).
            ///
            /// If the hot part is damaged, the shard starts again at the first key of its range. If
            /// the cold part is, the range is derived from the other shards of the run; `whole` are
            /// the bounds of the run, if they are known.
            ///
            /// # Errors
            ///
            /// [`RepairShardError`]; an intact shard is refused.
            pub $($async)? fn repair_shard(
                &mut self,
                tenant: TenantId,
                key: ShardKey,
                at_least: FenceEpoch,
                whole: Option<(&[u8], &[u8])>,
            ) -> Result<RepairedShard, RepairShardError> {
                let operation = RepairShard { tenant, key, at_least };
                $fly(&mut self.store, self.core.repair(operation, whole))$(.$await)?
            }
        }
    };
}

repair!(StoreCoordinator over Store; fly);
repair!(AsyncStoreCoordinator over AsyncStore; fly_async.await; async);
