//! A blocking coordinator over an asynchronous one, so that one suite tests both.

use gossip_coordination::operations::*;
use gossip_coordination::protocol::ClaimScope;
use gossip_coordination::{
    AsyncCoordinationBackend, AsyncRunManagement, AsyncShardClaiming, ClaimError, ClaimReservation,
    CollectEvents, CoordinationBackend, EventCollector, RunManagement, ShardClaiming, block_on,
    for_each_run_operation, for_each_shard_operation,
};

/// Runs each operation of an asynchronous coordinator on the calling thread.
///
/// Futures that need an executor (a timer or a socket of an asynchronous runtime) need it to run on
/// *another* thread.
#[derive(Clone, Debug, Default)]
pub struct Blocking<A>(A);

impl<A> Blocking<A> {
    /// Wraps `coordinator`.
    #[must_use]
    pub const fn new(coordinator: A) -> Self {
        Self(coordinator)
    }

    /// Returns the coordinator.
    #[must_use]
    pub const fn get_ref(&self) -> &A {
        &self.0
    }

    /// Returns the coordinator, for calls through its asynchronous traits.
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut A {
        &mut self.0
    }

    /// Unwraps the coordinator.
    #[must_use]
    pub fn into_inner(self) -> A {
        self.0
    }
}

impl<A: CollectEvents> CollectEvents for Blocking<A> {
    fn collect_events(&mut self, events: Option<EventCollector>) -> Option<EventCollector> {
        self.0.collect_events(events)
    }
}

/// Defines methods that wait for the method of the same name.
macro_rules! wait_for {
    (() $(
        $(#[$doc:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty
            = $kind:ident $how:tt;
    )*) => { $(
        fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
            block_on(self.0.$name($($arg),*))
        }
    )* };
}

impl<A: AsyncCoordinationBackend> CoordinationBackend for Blocking<A> {
    for_each_shard_operation! { wait_for () }
}

impl<A: AsyncRunManagement> RunManagement for Blocking<A> {
    for_each_run_operation! { wait_for () }

    // Forwarded, so that the body of the asynchronous trait is tested.
    fn create_run_with_shards(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        config: RunConfig,
        shards: &[InitialShardInput<'_>],
        op_id: OpId,
    ) -> Result<IdempotentOutcome<RunOpResult>, CreateRunError> {
        block_on(self.0.create_run_with_shards(now, tenant, run, config, shards, op_id))
    }
}

impl<A: AsyncShardClaiming> ShardClaiming for Blocking<A> {
    const CANDIDATES_PER_SCAN: usize = A::CANDIDATES_PER_SCAN;

    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        self.0.reserve_claim(now, tenant, worker)
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

    fn claim_within<'a>(
        &mut self,
        scope: ClaimScope,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        scratch: &'a mut AcquireScratch,
    ) -> Result<AcquireResultView<'a>, ClaimError> {
        block_on(self.0.claim_within(scope, now, tenant, run, worker, scratch))
    }
}
