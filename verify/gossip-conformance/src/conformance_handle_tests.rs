//! The suite through the asynchronous traits: a coordinator that several handles share.
//!
//! [`Shared`] behaves like the client of a server. Every operation is pending once before it is
//! done, several handles work on one store from several threads, and a reply can be lost. It
//! writes only what the asynchronous traits require, so their own bodies are run as well.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use gossip_contracts::coordination::{
    CursorUpdate, InitialShardInput, SplitReplacePlan, SplitResidualPlan,
};
use gossip_contracts::identity::{LogicalTime, OpId, RunId, ShardKey, TenantId, WorkerId};
use gossip_coordination::protocol::{ClaimCandidates, OfferTerms, ReleaseMode};
use gossip_coordination::*;

use crate::conformance_tests::{ALONE, coordinator};
use crate::{Ability, ConformanceTarget, RaceJob, Settings, check_sequences, run_all};

/// A coordinator behind a lock, reached by several handles.
#[derive(Clone)]
struct Shared {
    store: Arc<Mutex<InMemoryCoordinator>>,
    /// Whether the reply to the next commit of this handle gets lost.
    loses_reply: bool,
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, InMemoryCoordinator> {
        self.store.lock().unwrap()
    }

    fn deliver<V, E: From<InfraError>>(&mut self, answer: Result<V, E>) -> Result<V, E> {
        if answer.is_err() || !std::mem::take(&mut self.loses_reply) {
            return answer;
        }
        let (operation, message) = ("shared.reply", "the reply was lost".into());
        Err(InfraError::Transient { operation, message }.into())
    }
}

/// Pending at the first poll and ready at the second.
struct Turn(bool);

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Writes methods that commit, whose reply can be lost, and methods that only read.
macro_rules! through_the_lock {
    ($asynchronous:ident {
        $(commits $name:ident $(<$life:lifetime>)? ($($arg:ident: $type:ty),*) -> $answer:ty;)*
        $(reads $look:ident ($($la:ident: $lt:ty),*) -> $seen:ty;)*
    }) => {
        impl $asynchronous for Shared {
            $(async fn $name $(<$life>)? (&mut self, $($arg: $type),*) -> $answer {
                Turn(false).await;
                let answer = self.store().$name($($arg),*);
                self.deliver(answer)
            })*
            $(async fn $look(&mut self, $($la: $lt),*) -> $seen {
                Turn(false).await;
                self.store().$look($($la),*)
            })*
        }
    };
}

type Outcome<E> = Result<IdempotentOutcome<()>, E>;

through_the_lock! { AsyncCoordinationBackend {
    commits acquire_and_restore_into<'a>(now: LogicalTime, tenant: TenantId, key: ShardKey,
        worker: WorkerId, scratch: &'a mut AcquireScratch)
        -> Result<AcquireResultView<'a>, AcquireError>;
    commits renew(now: LogicalTime, tenant: TenantId, lease: &Lease)
        -> Result<RenewResult, RenewError>;
    commits checkpoint(now: LogicalTime, tenant: TenantId, lease: &Lease,
        cursor: CursorUpdate<'_>, op_id: OpId)
        -> Result<IdempotentOutcome<CheckpointResult>, CheckpointError>;
    commits complete(now: LogicalTime, tenant: TenantId, lease: &Lease, cursor: CursorUpdate<'_>,
        op_id: OpId) -> Outcome<CompleteError>;
    commits park_shard(now: LogicalTime, tenant: TenantId, lease: &Lease, reason: ParkReason,
        op_id: OpId) -> Outcome<ParkError>;
    commits split_replace(now: LogicalTime, tenant: TenantId, lease: &Lease,
        plan: &SplitReplacePlan<'_>, op_id: OpId)
        -> Result<IdempotentOutcome<SplitReplaceResult>, SplitReplaceError>;
    commits split_residual(now: LogicalTime, tenant: TenantId, lease: &Lease,
        plan: &SplitResidualPlan<'_>, op_id: OpId)
        -> Result<IdempotentOutcome<SplitResidualResult>, SplitResidualError>;
    commits release(now: LogicalTime, tenant: TenantId, lease: &Lease, mode: ReleaseMode,
        op_id: OpId) -> Outcome<ReleaseError>;
    commits offer(now: LogicalTime, tenant: TenantId, lease: &Lease, terms: OfferTerms,
        cursor: CursorUpdate<'_>, op_id: OpId) -> Outcome<OfferError>;
    commits accept<'a>(now: LogicalTime, tenant: TenantId, key: ShardKey, worker: WorkerId,
        handoff: HandoffId, scratch: &'a mut AcquireScratch)
        -> Result<AcquireResultView<'a>, AcceptError>;
    commits withdraw(now: LogicalTime, tenant: TenantId, lease: &Lease, handoff: HandoffId,
        op_id: OpId) -> Outcome<WithdrawError>;
} }

through_the_lock! { AsyncRunManagement {
    commits create_run(now: LogicalTime, tenant: TenantId, run: RunId, config: RunConfig)
        -> Result<(), CreateRunError>;
    commits register_shards(now: LogicalTime, tenant: TenantId, run: RunId,
        shards: &[InitialShardInput<'_>], op_id: OpId)
        -> Result<IdempotentOutcome<RunOpResult>, RegisterShardsError>;
    commits complete_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    commits fail_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    commits cancel_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    commits unpark_shard(now: LogicalTime, tenant: TenantId, key: ShardKey, op_id: OpId)
        -> Outcome<UnparkError>;
    commits pause_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    commits resume_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<RunTransitionError>;
    commits request_action(now: LogicalTime, tenant: TenantId, key: ShardKey,
        action: &ShardAction, expires_at: LogicalTime, op_id: OpId)
        -> Outcome<RequestActionError>;
    commits revoke_lease(now: LogicalTime, tenant: TenantId, key: ShardKey, op_id: OpId)
        -> Outcome<RevokeLeaseError>;
    commits delete_run(now: LogicalTime, tenant: TenantId, run: RunId, op_id: OpId)
        -> Outcome<DeleteRunError>;
    commits register_worker(now: LogicalTime, tenant: TenantId, worker: WorkerId)
        -> Result<(), WorkerError>;
    commits heartbeat(now: LogicalTime, tenant: TenantId, worker: WorkerId, state: WorkerState)
        -> Result<(), WorkerError>;
    commits gc_stale_initializing_runs_into(now: LogicalTime, tenant: TenantId,
        stale_after: u64, limit: usize, out: &mut Vec<RunId>) -> Result<(), InfraError>;
    reads get_run(tenant: TenantId, run: RunId) -> Result<RunRecord, GetRunError>;
    reads get_run_progress(now: LogicalTime, tenant: TenantId, run: RunId)
        -> Result<RunProgress, GetRunError>;
    reads list_shards_into(now: LogicalTime, tenant: TenantId, run: RunId, filter: ShardFilter,
        out: &mut Vec<ShardSummary>) -> Result<(), GetRunError>;
    reads collect_claim_candidates_into(now: LogicalTime, tenant: TenantId, run: RunId,
        worker: WorkerId, limit: usize, out: &mut ClaimCandidates)
        -> Result<ClaimOutlook, GetRunError>;
    reads list_workers_into(now: LogicalTime, tenant: TenantId, out: &mut Vec<WorkerEntry>)
        -> Result<(), WorkerError>;
    reads list_active_runs_into(tenant: TenantId, after: Option<RunId>, limit: usize,
        out: &mut Vec<RunId>) -> Result<(), InfraError>;
    reads list_runs_into(tenant: TenantId, after: Option<RunId>, limit: usize,
        out: &mut Vec<RunId>) -> Result<(), InfraError>;
} }

impl AsyncShardClaiming for Shared {
    fn claim_throttled_until(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Option<LogicalTime> {
        self.store().claim_throttled_until(now, tenant, worker)
    }

    fn note_claim(&mut self, now: LogicalTime, tenant: TenantId, worker: WorkerId) {
        self.store().note_claim(now, tenant, worker);
    }
}

/// Handles on a shared coordinator, raced by threads.
struct SharedHandles;

impl ConformanceTarget for SharedHandles {
    type Backend = Blocking<Shared>;

    fn name(&self) -> &str {
        "handles on a shared coordinator, asynchronous"
    }

    /// Events are those of whoever holds the lock, and not of a handle.
    fn lacks(&self) -> &'static [Ability] {
        &[Ability::Events]
    }

    fn fresh(&self, settings: Settings) -> Blocking<Shared> {
        let store = Arc::new(Mutex::new(coordinator(settings)));
        Blocking::new(Shared { store, loses_reply: false })
    }

    fn another_handle(&self, backend: &Blocking<Shared>) -> Option<Blocking<Shared>> {
        Some(Blocking::new(backend.get_ref().clone()))
    }

    fn race(&self, jobs: Vec<RaceJob<'_>>) {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    }

    fn lose_next_reply(&self, backend: &mut Blocking<Shared>) -> bool {
        backend.get_mut().loses_reply = true;
        true
    }
}

#[test]
fn handles_on_a_shared_coordinator_conform() {
    let ran = run_all(&SharedHandles, &mut |case| println!("{}::{}", case.topic, case.name));
    println!("{ran} cases");
}

#[test]
fn sequences_through_a_shared_handle_are_answered_as_the_model_answers() {
    check_sequences(&SharedHandles, 1_000..1_050, 100);
}

/// The coordinator in memory through both adapters.
struct ThereAndBack;

type ThereAndBackAgain = Blocking<Ready<InMemoryCoordinator>>;

impl ConformanceTarget for ThereAndBack {
    type Backend = ThereAndBackAgain;

    fn name(&self) -> &str {
        "the coordinator in memory, asynchronous"
    }

    fn lacks(&self) -> &'static [Ability] {
        ALONE
    }

    fn fresh(&self, settings: Settings) -> ThereAndBackAgain {
        Blocking::new(Ready::new(coordinator(settings)))
    }

    /// The events are collected inside, so the face is put around the coordinator there.
    fn with_events<R>(
        &self,
        backend: &mut ThereAndBackAgain,
        call: impl FnOnce(&mut ThereAndBackAgain) -> R,
    ) -> (R, Option<Vec<StateTransitionEvent>>) {
        let mut events = EventCollector::new();
        let nobody = || coordinator(Settings::default());
        let result = backend.get_mut().get_mut().with_events(&mut events, |inner| {
            let mut face = Blocking::new(Ready::new(std::mem::replace(inner, nobody())));
            let result = call(&mut face);
            *inner = face.into_inner().into_inner();
            result
        });
        (result, Some(events.drain()))
    }
}

#[test]
fn the_coordinator_in_memory_conforms_through_the_asynchronous_traits() {
    let ran = run_all(&ThereAndBack, &mut |case| println!("{}::{}", case.topic, case.name));
    println!("{ran} cases");
}
