//! Several handles on one store that act as one: each operation runs on the next handle.
//!
//! A handle then hardly ever finds a current record in its cache. A suite that passes on one handle
//! and fails here has found a stale cache entry that was trusted. With the store of each handle in
//! a process of its own (`remote`), the suite tests processes in the same way.
//!
//! The claim cooldown is the exception: processes count their claims separately, so a worker always
//! uses the same handle for it.

use gossip_contracts::identity::FenceEpoch;
use gossip_coordination::operations::*;
use gossip_coordination::store::{Store, StoreCoordinator};
use gossip_coordination::{
    ClaimError, ClaimReservation, CollectEvents, CoordinationBackend, EventCollector,
    RunManagement, ShardClaiming, for_each_run_operation, for_each_shard_operation,
};

use super::FenceFloors;

/// Handles that take turns, operation by operation.
#[derive(Debug)]
pub struct RoundRobin<S> {
    /// At least one.
    handles: Vec<StoreCoordinator<S>>,
    /// The handle of the last operation. It has the event collector, if there is one.
    turn: usize,
}

impl<S: Store> RoundRobin<S> {
    /// Combines `handles`, which use the same store.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn new(handles: Vec<StoreCoordinator<S>>) -> Self {
        assert!(!handles.is_empty(), "at least one handle");
        Self { handles, turn: 0 }
    }

    /// Returns the handles, in the order of their turns.
    pub fn handles(&self) -> &[StoreCoordinator<S>] {
        &self.handles
    }

    /// Returns the next handle. The event collector moves with the turn, so that events stay in the
    /// order of the operations.
    fn next(&mut self) -> &mut StoreCoordinator<S> {
        let events = self.handles[self.turn].collect_events(None);
        self.turn = (self.turn + 1) % self.handles.len();
        let handle = &mut self.handles[self.turn];
        handle.collect_events(events);
        handle
    }

    /// Returns the handle that counts the claims of `worker`.
    fn of_worker(&mut self, worker: WorkerId) -> &mut StoreCoordinator<S> {
        let count = self.handles.len() as u64;
        let home = usize::try_from(worker.as_raw() % count).expect("less than a length");
        &mut self.handles[home]
    }
}

impl<S> CollectEvents for RoundRobin<S> {
    fn collect_events(&mut self, events: Option<EventCollector>) -> Option<EventCollector> {
        self.handles[self.turn].collect_events(events)
    }
}

/// Defines methods that call the method of the same name on the next handle.
macro_rules! on_next_handle {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            self.next().$name($($arg),*)
        }
    )* };
}

impl<S: Store> CoordinationBackend for RoundRobin<S> {
    for_each_shard_operation! { on_next_handle () }
}

impl<S: Store> RunManagement for RoundRobin<S> {
    for_each_run_operation! { on_next_handle () }
}

impl<S: Store> ShardClaiming for RoundRobin<S> {
    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        self.of_worker(worker).reserve_claim(now, tenant, worker)
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

impl<S: Store> FenceFloors for RoundRobin<S> {
    fn raise_fence_floor(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        at_least: FenceEpoch,
    ) -> Result<FenceEpoch, GetRunError> {
        self.next().raise_fence_floor(now, tenant, run, at_least)
    }
}
