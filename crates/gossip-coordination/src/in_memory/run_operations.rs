//! The operations on runs. Plain kernel commands are derived from the operation list; queries, the
//! worker registry and garbage collection are written by hand.

use std::collections::BTreeMap;

use super::shard_operations::in_memory_operations;
use super::{InMemoryCoordinator, run_mut};
use crate::claim_clock::ClaimReservation;
use crate::facade::{ClaimError, ShardClaiming};
use crate::for_each_run_operation;
use crate::operations::*;
use crate::protocol::{
    COLLECTION_DELETES, ClaimCooldown, CollectRun, CreateRun, DeleteRun, RegisterShards,
    RequestAction, RevokeLease, RunTransition, RunTransitionKind, Unpark,
};
use crate::run_management::RunManagement;
use crate::workers::MAX_WORKERS_PER_TENANT;

impl RunManagement for InMemoryCoordinator {
    for_each_run_operation! { in_memory_operations () }

    fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord, GetRunError> {
        Ok(self.run_named(tenant, run)?.record.clone())
    }

    fn get_run_progress(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
    ) -> Result<RunProgress, GetRunError> {
        Ok(self.progress(now, self.run_named(tenant, run)?))
    }

    fn list_shards_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        filter: ShardFilter,
        out: &mut Vec<ShardSummary>,
    ) -> Result<(), GetRunError> {
        let run = self.run_named(tenant, run)?;
        self.list(now, run, filter, out);
        Ok(())
    }

    fn list_side_records_into(
        &mut self,
        tenant: TenantId,
        run: RunId,
        kind: SideRecordKind,
        after: Option<SideRecordId>,
        limit: usize,
        out: &mut Vec<StoredSideRecord>,
    ) -> Result<(), InfraError> {
        out.extend(self.side_records.list(tenant, run, kind, after).take(limit));
        Ok(())
    }

    fn list_events_into(
        &mut self,
        tenant: TenantId,
        run: RunId,
        after: Option<EventWriter>,
        out: &mut Vec<StoredEvent>,
    ) -> Result<(), InfraError> {
        // A run that was deleted has no events, and is no error of a reader.
        if let Ok(run) = self.run_named(tenant, run) {
            out.extend(run.events.list(after));
        }
        Ok(())
    }

    fn collect_claim_candidates_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        run: RunId,
        worker: WorkerId,
        limit: usize,
        out: &mut ClaimCandidates,
    ) -> Result<ClaimOutlook, GetRunError> {
        // First, because entries of acquired shards would use up the limit.
        self.strike_taken(tenant, run, worker, limit);
        let run = self.run_named(tenant, run)?;
        Ok(self.candidates(now, run, worker, limit, out))
    }

    fn register_worker(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
        process: Option<WorkerProcess>,
    ) -> Result<(), WorkerError> {
        let workers = self.workers.entry(tenant).or_default();
        // Expired entries are removed only when the registry is full, so registering stays cheap.
        if workers.len() >= MAX_WORKERS_PER_TENANT && !workers.contains_key(&worker) {
            workers.retain(|_, entry| entry.is_live_at(now));
            if workers.len() >= MAX_WORKERS_PER_TENANT {
                return Err(WorkerError::TooManyWorkers { max: MAX_WORKERS_PER_TENANT });
            }
        }
        // An expired entry is a new registration: its old state no longer applies.
        let known = workers.get(&worker).filter(|entry| entry.is_live_at(now)).copied();
        let state = known.map_or(WorkerState::Idle, |entry| entry.state);
        let entry = WorkerEntry::heard_of_again(known, worker, state, now);
        workers.insert(worker, WorkerEntry { process, ..entry });
        Ok(())
    }

    fn heartbeat(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
        state: WorkerState,
    ) -> Result<(), WorkerError> {
        let entry = self.workers.get_mut(&tenant).and_then(|workers| workers.get_mut(&worker));
        let entry = entry.filter(|entry| entry.is_live_at(now));
        let entry = entry.ok_or(WorkerError::NotRegistered)?;
        *entry = WorkerEntry::heard_of_again(Some(*entry), worker, state, now);
        Ok(())
    }

    fn list_workers_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        out: &mut Vec<WorkerEntry>,
    ) -> Result<(), WorkerError> {
        let workers = self.workers.get(&tenant).into_iter().flat_map(BTreeMap::values);
        out.extend(workers.filter(|entry| entry.is_live_at(now)).copied());
        Ok(())
    }

    fn list_active_runs_into(
        &mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError> {
        let behind = |run: &RunId| after.is_none_or(|after| after < *run);
        let active = |run: &RunId| {
            self.run_named(tenant, *run).is_ok_and(|run| !run.record.status().is_terminal())
        };
        let runs = self.runs_of(tenant).into_iter().filter(behind).filter(active);
        out.extend(runs.take(limit));
        Ok(())
    }

    fn list_runs_into(
        &mut self,
        tenant: TenantId,
        after: Option<RunId>,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError> {
        let behind = |run: &RunId| after.is_none_or(|after| after < *run);
        out.extend(self.runs_of(tenant).into_iter().filter(behind).take(limit));
        Ok(())
    }

    fn gc_stale_initializing_runs_into(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        stale_after: u64,
        limit: usize,
        out: &mut Vec<RunId>,
    ) -> Result<(), InfraError> {
        self.assert_collector_serves(tenant);
        // Counted by removals and not by runs, of which most are not stale.
        let wanted = out.len().saturating_add(limit);
        for run in self.runs_of(tenant) {
            if out.len() >= wanted {
                break;
            }
            // The kernel decides for each run whether it is stale; most are not.
            let collected = self.run_on_run(now, &CollectRun { tenant, run, stale_after });
            let op_id = COLLECTION_DELETES;
            if collected.is_ok() && self.delete_run(now, tenant, run, op_id).is_ok() {
                out.push(run);
            }
        }
        Ok(())
    }
}

impl ShardClaiming for InMemoryCoordinator {
    // `&mut self` excludes races, so the first candidate can almost always be acquired.
    const CANDIDATES_PER_SCAN: usize = 1;

    fn reserve_claim(
        &mut self,
        now: LogicalTime,
        tenant: TenantId,
        worker: WorkerId,
    ) -> Result<ClaimReservation, ClaimError> {
        let cooldown = ClaimCooldown::new(self.config.claim_cooldown_interval);
        self.claim_clock.reserve(cooldown, now, tenant, worker)
    }
}

impl InMemoryCoordinator {
    /// Returns every run of a tenant, in the order of their ids.
    fn runs_of(&self, tenant: TenantId) -> Vec<RunId> {
        let home = self.tenants.get(tenant);
        let mut runs: Vec<RunId> =
            home.into_iter().flat_map(|home| home.runs.keys().copied()).collect();
        // The map is hashed, and listings are in the order of ids on every backend.
        runs.sort_unstable();
        runs
    }

    /// Updates the entries of the claim index that `worker` will find first.
    fn strike_taken(&mut self, tenant: TenantId, run: RunId, worker: WorkerId, limit: usize) {
        if let Some(slot) = self.find_run(tenant, run) {
            run_mut(&mut self.runs, slot).claims.strike_taken(worker, limit, &mut self.records);
        }
    }
}
