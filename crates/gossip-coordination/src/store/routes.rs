//! Every operation of a backend as a flight.
//!
//! Operations without a kernel command have the names and parameters of the operation lists.

use std::collections::BTreeMap;

use gossip_contracts::coordination::CursorSemantics;
use gossip_contracts::identity::{LogicalTime, RunId, ShardId, TenantId, WorkerId};

use super::capacity::CapacityProbe;
use super::core::Core;
use super::flight::{Flight, Io};
use super::gc::RunsListed;
use super::{
    capacity, deletion, event_ring, gc, queries, renewals, run_flight, shard_flight, shard_repair,
    side_records, worker_flight,
};
use crate::error::{InfraError, RenewError};
use crate::lease::Lease;
use crate::outcome::{CapacityHint, IdempotentOutcome, RenewResult};
use crate::protocol::{
    ClaimCandidates, ConfirmGrant, DeleteRun, Grant, Renew, Renewed, RepairShard, RepairedShard,
    RunTransition, RunTransitionKind, RunTransitionRules, ShardTransition,
};
use crate::record::{ShardStatus, ShardView};
use crate::run::{RunProgress, RunRecord, ShardFilter, ShardSummary};
use crate::run_errors::{DeleteRunError, GetRunError, RepairShardError, RunTransitionError};
use crate::run_management::ClaimOutlook;
use crate::scratch::{AcquireResultView, AcquireScratch};
use crate::side_records::{SideRecordId, SideRecordKind, StoredSideRecord};
use crate::stored_events::{EventWriter, StoredEvent};
use crate::workers::{WorkerEntry, WorkerError, WorkerProcess, WorkerState};

/// A flight with a fallible result.
pub(super) type Route<'f, T, E> = Flight<'f, Result<T, E>>;

impl Core {
    /// An operation on a shard that returns the kernel's result.
    pub(super) fn on_shard<'f, T>(
        &'f mut self,
        now: LogicalTime,
        operation: T,
    ) -> Route<'f, IdempotentOutcome<T::Output>, T::Error>
    where
        T: ShardTransition + Send + Sync + 'f,
        T::Output: Send,
        T::Error: From<InfraError> + Send,
    {
        Flight::writing(self.format.clone(), |io| async move {
            shard_flight::fly(self, &io, now, &operation, |_| ()).await
        })
    }

    /// An operation that grants a shard to `worker`, whose snapshot goes into `scratch`.
    pub(super) fn grant<'f, T>(
        &'f mut self,
        now: LogicalTime,
        worker: WorkerId,
        operation: T,
        scratch: &'f mut AcquireScratch,
    ) -> Route<'f, Granted, T::Error>
    where
        T: ShardTransition<Output = Grant> + Send + Sync + 'f,
        T::Error: From<InfraError> + Send,
    {
        Flight::writing(self.format.clone(), |io| async move {
            let mut shown = Shown::default();
            let show = |shard: ShardView<'_>| shown = Shown::write(shard, scratch);
            let (tenant, key) = operation.subject();
            // A grant loads the shard, so the hint's reads cost no round trip of their own.
            let mut capacity_probe = CapacityProbe::new(now, tenant, key, worker);
            let along = Some(&mut capacity_probe);
            let granted = shard_flight::fly_with(self, &io, now, &operation, show, along).await?;
            let grant = granted.into_inner();
            // An attempt counts once its reply has arrived: a lost reply must not use up the
            // attempts of a shard (ADR 82).
            if grant.needs_confirmation {
                self.confirm(&io, now, &grant).await.map_err(T::Error::from)?;
            }
            // Last, and without an error: a grant that was committed must not fail for a hint.
            let capacity = capacity_probe.hint(self, &io, grant.lease.deadline()).await;
            Ok(Granted { grant, capacity, shown })
        })
    }

    /// Counts the attempt of a grant whose reply has arrived. If that fails, the caller does not
    /// get the lease, and the grant does not count.
    async fn confirm(
        &mut self,
        io: &Io,
        now: LogicalTime,
        grant: &Grant,
    ) -> Result<(), InfraError> {
        let (lease, attempts) = (&grant.lease, grant.attempts);
        let operation = ConfirmGrant { tenant: lease.tenant(), lease, attempts };
        match shard_flight::fly(self, io, now, &operation, |_| ()).await {
            // A lease that ended meanwhile is refused to its holder's next operation.
            Ok(_) => Ok(()),
            // The grant itself was applied, so the caller must not take it for one that never
            // happened.
            Err(RenewError::BackendError(error)) => Err(error.into_unresolved()),
            Err(
                RenewError::ShardNotFound { .. }
                | RenewError::TenantMismatch { .. }
                | RenewError::StaleFence { .. }
                | RenewError::LeaseExpired { .. }
                | RenewError::ShardTerminal { .. }
                | RenewError::RunTerminal { .. },
            ) => Ok(()),
        }
    }

    pub(super) fn renew<'f>(
        &'f mut self,
        now: LogicalTime,
        tenant: TenantId,
        lease: &'f Lease,
    ) -> Route<'f, RenewResult, RenewError> {
        Flight::writing(self.format.clone(), move |io| async move {
            let operation = Renew { tenant, lease };
            let renewed = shard_flight::fly(self, &io, now, &operation, |_| ()).await?.into_inner();
            // After the commit, because a renewal from the cache loads nothing. If this read
            // fails, the hint is empty and the renewal valid.
            let of = (tenant, lease.run());
            Ok(renew_result(renewed, capacity::capacity(self, &io, now, of, lease.owner()).await))
        })
    }

    /// As [`Core::renew`] for each of `leases`, in their order. The capacity hint is read once for
    /// each run.
    pub(super) fn renew_many<'f>(
        &'f mut self,
        now: LogicalTime,
        tenant: TenantId,
        leases: &'f [Lease],
        results: &'f mut Vec<Result<RenewResult, RenewError>>,
    ) -> Flight<'f, ()> {
        Flight::writing(self.format.clone(), move |io| async move {
            let renewals = renewals::renew_many(self, &io, now, tenant, leases).await;
            let mut hints: BTreeMap<RunId, CapacityHint> = BTreeMap::new();
            // Results of an earlier call must not be taken for these.
            results.clear();
            for (lease, renewal) in leases.iter().zip(renewals) {
                let run = lease.run();
                // One hint per run: a worker of many leases would otherwise pay a read for each.
                if renewal.is_ok() && !hints.contains_key(&run) {
                    let (of, by) = ((tenant, run), lease.owner());
                    hints.insert(run, capacity::capacity(self, &io, now, of, by).await);
                }
                results.push(renewal.map(|renewed| renew_result(renewed, hints[&run])));
            }
        })
    }

    /// An operation on a run that returns the kernel's result.
    pub(super) fn on_run<'f, T>(
        &'f mut self,
        now: LogicalTime,
        operation: T,
    ) -> Route<'f, IdempotentOutcome<T::Output>, T::Error>
    where
        T: RunTransitionRules + Send + Sync + 'f,
        T::Output: Send,
        T::Error: From<InfraError> + Send,
    {
        Flight::writing(self.format.clone(), move |io| async move {
            // Without counts: none of these operations depends on how many shards are unfinished.
            run_flight::fly(self, &io, now, &operation, false).await
        })
    }

    pub(super) fn transition(
        &mut self,
        now: LogicalTime,
        operation: RunTransition,
    ) -> Route<'_, IdempotentOutcome<()>, RunTransitionError> {
        Flight::writing(self.format.clone(), move |io| async move {
            // Only `Complete` is refused because of unfinished shards; a count may be expensive.
            let counts = operation.kind == RunTransitionKind::Complete;
            let moved = run_flight::fly(self, &io, now, &operation, counts).await?;
            Ok(moved.map(|_| ()))
        })
    }

    pub(super) fn delete(
        &mut self,
        now: LogicalTime,
        operation: DeleteRun,
    ) -> Route<'_, IdempotentOutcome<()>, DeleteRunError> {
        Flight::writing(self.format.clone(), move |io| async move {
            deletion::delete(self, &io, now, operation).await
        })
    }

    pub(super) fn delete_damaged(
        &mut self,
        now: LogicalTime,
        operation: DeleteRun,
    ) -> Route<'_, IdempotentOutcome<()>, DeleteRunError> {
        Flight::writing(self.format.clone(), move |io| async move {
            deletion::delete_damaged(self, &io, now, operation).await
        })
    }

    /// Repairs a damaged shard; `whole` are the bounds of its run, if they are known.
    pub(super) fn repair<'f>(
        &'f mut self,
        operation: RepairShard,
        whole: Option<(&'f [u8], &'f [u8])>,
    ) -> Route<'f, RepairedShard, RepairShardError> {
        Flight::new(
            move |io| async move { shard_repair::repair(self, &io, operation, whole).await },
        )
    }

    pub(super) fn get_run(
        &mut self,
        tenant: TenantId,
        run: RunId,
    ) -> Route<'_, RunRecord, GetRunError> {
        Flight::writing(self.format.clone(), move |io| async move {
            queries::run(self, &io, tenant, run).await
        })
    }

    pub(super) fn get_run_progress(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
    ) -> Route<'_, RunProgress, GetRunError> {
        Flight::writing(self.format.clone(), move |io| async move {
            queries::progress(self, &io, now, tenant, run).await
        })
    }

    pub(super) fn list_shards_into<'f>(
        &'f mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        filter: ShardFilter,
        out: &'f mut Vec<ShardSummary>,
    ) -> Route<'f, (), GetRunError> {
        Flight::writing(self.format.clone(), move |io| async move {
            queries::list(self, &io, now, (tenant, run), filter, out).await
        })
    }

    pub(super) fn list_side_records_into<'f>(
        &'f mut self,
        tenant: TenantId,
        run: RunId,
        kind: SideRecordKind,
        after: Option<SideRecordId>,
        limit: usize,
        out: &'f mut Vec<StoredSideRecord>,
    ) -> Route<'f, (), InfraError> {
        Flight::writing(self.format.clone(), move |io| async move {
            side_records::list(self, &io, (tenant, run), kind, (after, limit), out).await
        })
    }

    pub(super) fn list_events_into<'f>(
        &'f mut self,
        tenant: TenantId,
        run: RunId,
        after: Option<EventWriter>,
        out: &'f mut Vec<StoredEvent>,
    ) -> Route<'f, (), InfraError> {
        Flight::writing(self.format.clone(), move |io| async move {
            event_ring::list(self, &io, (tenant, run), after, out).await
        })
    }

    pub(super) fn collect_claim_candidates_into<'f>(
        &'f mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &'f mut ClaimCandidates,
    ) -> Route<'f, ClaimOutlook, GetRunError> {
        Flight::writing(self.format.clone(), move |io| async move {
            queries::candidates(self, &io, now, (tenant, run), (worker, limit), out).await
        })
    }

    pub(super) fn probe_candidates_into<'f>(
        &'f mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &'f mut ClaimCandidates,
    ) -> Route<'f, ClaimOutlook, GetRunError> {
        Flight::writing(self.format.clone(), move |io| async move {
            queries::probe(self, &io, now, (tenant, run), (worker, limit), out).await
        })
    }

    pub(super) fn list_active_runs_into<'f>(
        &'f mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &'f mut Vec<RunId>,
    ) -> Route<'f, (), InfraError> {
        self.list_runs(RunsListed::NotOver, tenant, after, limit, out)
    }

    pub(super) fn list_runs_into<'f>(
        &'f mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &'f mut Vec<RunId>,
    ) -> Route<'f, (), InfraError> {
        self.list_runs(RunsListed::All, tenant, after, limit, out)
    }

    fn list_runs<'f>(
        &'f mut self,
        which: RunsListed,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &'f mut Vec<RunId>,
    ) -> Route<'f, (), InfraError> {
        Flight::writing(self.format.clone(), move |io| async move {
            gc::list_runs(self, &io, which, (tenant, after), limit, out).await
        })
    }

    pub(super) fn gc_stale_initializing_runs_into<'f>(
        &'f mut self,
        now: LogicalTime,
        tenant: TenantId,
        stale_after: u64,
        limit: usize,
        out: &'f mut Vec<RunId>,
    ) -> Route<'f, (), InfraError> {
        Flight::writing(self.format.clone(), move |io| async move {
            gc::collect(self, &io, now, (tenant, stale_after), limit, out).await
        })
    }

    pub(super) fn register_worker(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
        process: Option<WorkerProcess>,
    ) -> Route<'_, (), WorkerError> {
        Flight::writing(self.format.clone(), move |io| async move {
            worker_flight::register(self, &io, now, tenant, (worker, process)).await
        })
    }

    pub(super) fn heartbeat(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
        state: WorkerState,
    ) -> Route<'_, (), WorkerError> {
        Flight::writing(self.format.clone(), move |io| async move {
            worker_flight::heartbeat(self, &io, now, tenant, worker, state).await
        })
    }

    pub(super) fn list_workers_into<'f>(
        &'f mut self,
        now: LogicalTime,
        tenant: TenantId,
        out: &'f mut Vec<WorkerEntry>,
    ) -> Route<'f, (), WorkerError> {
        Flight::writing(self.format.clone(), move |io| async move {
            worker_flight::list(self, &io, now, tenant, out).await
        })
    }
}

fn renew_result(renewed: Renewed, capacity: CapacityHint) -> RenewResult {
    // Destructured, so that a new field is not forgotten here.
    let Renewed { new_deadline, offer, request, run_paused } = renewed;
    RenewResult { new_deadline, capacity, offer, request, run_paused }
}

/// The parts of a granted shard that are not in the scratch.
#[derive(Clone, Copy, Debug)]
struct Shown {
    status: ShardStatus,
    cursor_semantics: CursorSemantics,
    parent: Option<ShardId>,
}

impl Shown {
    fn write(shard: ShardView<'_>, scratch: &mut AcquireScratch) -> Self {
        // Copied now: the record leaves the pool at the end of the decision. A retry overwrites it.
        let snapshot = scratch.write_shard(shard);
        Self {
            status: snapshot.status(),
            cursor_semantics: snapshot.cursor_semantics(),
            parent: snapshot.parent(),
        }
    }
}

/// A placeholder until the shard is granted.
impl Default for Shown {
    fn default() -> Self {
        let (status, cursor_semantics) = (ShardStatus::Active, CursorSemantics::Completed);
        Self { status, cursor_semantics, parent: None }
    }
}

/// A grant, without its borrow of the scratch.
#[derive(Debug)]
pub(super) struct Granted {
    grant: Grant,
    capacity: CapacityHint,
    shown: Shown,
}

impl Granted {
    /// Returns the grant with the state that its flight wrote into `scratch`.
    pub(super) fn show(self, scratch: &AcquireScratch) -> AcquireResultView<'_> {
        let Shown { status, cursor_semantics, parent } = self.shown;
        AcquireResultView {
            lease: self.grant.lease,
            snapshot: scratch.view(status, cursor_semantics, parent),
            capacity: self.capacity,
            attempts: self.grant.attempts,
        }
    }
}
