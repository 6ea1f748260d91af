//! Listing of a tenant's runs, garbage collection of abandoned runs, and completion of interrupted
//! deletions.
//!
//! A collection cancels the run, deletes its registered shards, and deletes the run, in this order:
//! the run exists as long as any of its keys, so the next collection can resume an interrupted one.
//!
//! A deletion first replaces the head by a tombstone, so that no reader finds a partial run, and
//! then purges. Root names are written together with a head, and purged last. Root names of a run
//! with a tombstone and without a head therefore mark a purge that was interrupted or is in
//! progress; purging such a run concurrently is harmless. A run that is being created or registered
//! has a head.

use gossip_contracts::identity::{LogicalTime, RunId, TenantId};

use super::codec::{RunHeadPart, decode_run_head};
use super::core::Core;
use super::engine::Read;
use super::flight::Io;
use super::key::Key;
use super::range::KeyRange;
use super::txn::Versioned;
use super::{purge, run_flight};
use crate::error::InfraError;
use crate::protocol::{COLLECTION_DELETES, CollectRun, DeleteRun, NotCollected};
use crate::run_errors::DeleteRunError;

/// Selects the runs of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunsListed {
    NotOver,
    All,
}

/// Appends up to `limit` runs after `after`, in id order. A listing of all runs does not decode the
/// heads, so a damaged head is listed as well.
///
/// # Errors
///
/// A head that cannot be decoded does not say whether its run is over: the first such error is
/// returned after the readable runs are appended.
pub(super) async fn list_runs(
    core: &Core,
    io: &Io,
    which: RunsListed,
    (tenant, after): (TenantId, Option<RunId>),
    limit: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    let mut pages = Pages::new(core, tenant, after);
    let wanted = out.len().saturating_add(limit);
    let mut failed = Ok(());
    while let Some(heads) = pages.next(io).await? {
        // `out` may already hold the caller's entries, so the limit counts from its length.
        assert!(out.len() <= wanted, "a listing keeps to its limit");
        let missing = wanted - out.len();
        match which {
            RunsListed::All => out.extend(heads.iter().map(|(run, _)| *run).take(missing)),
            RunsListed::NotOver => {
                let mut heads = pages.decode(&heads, &mut failed);
                heads.retain(|(_, head)| !head.head().status.is_terminal());
                out.extend(heads.iter().map(|(run, _)| *run).take(missing));
            }
        }
        if out.len() >= wanted {
            break;
        }
    }
    failed
}

/// Completes interrupted deletions and collects abandoned runs, up to `limit` in total, and appends
/// them to `out`.
pub(super) async fn collect(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, stale_after): (TenantId, u64),
    limit: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    // Here as well as in the operations on each run: completing a deletion commits without them.
    core.assert_collector_serves(tenant);
    let wanted = out.len().saturating_add(limit);
    let finished = finish_deletions(core, io, tenant, wanted, out).await;
    // A deletion that cannot be completed must not prevent the collection of other runs.
    collect_stale(core, io, now, (tenant, stale_after), wanted, out).await.and(finished)
}

/// Completes deletions until `out` has `wanted` runs.
///
/// # Errors
///
/// Returns the first error; all deletions are attempted nevertheless.
async fn finish_deletions(
    core: &mut Core,
    io: &Io,
    tenant: TenantId,
    wanted: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    let (mut rest, limit) = (Some(KeyRange::all_roots_of(tenant)), core.limits.page);
    assert!(limit > 0, "a page holds at least one key");
    let mut failed = Ok(());
    while let Some(range) = rest {
        let page = io.read(vec![Read::Scan { range, limit }]).await?.page();
        let run_of = |key: &Key| {
            let Key::RunRoots { run, .. } = key else { return None };
            Some(*run)
        };
        let mut runs: Vec<_> = page.iter().filter_map(|(key, _)| run_of(key)).collect();
        // A run has one key per chunk of roots, and its chunks are adjacent.
        runs.dedup();
        assert!(runs.is_sorted(), "a page is in key order, so equal runs were adjacent");
        // Further chunks of the last run's roots lead to the same result, so they are skipped.
        let last = runs.last().filter(|_| page.len() >= limit);
        let end = last.map(|run| Key::RunRoots { tenant, run: *run, chunk: u16::MAX });
        rest = end.map(|end| range.after(&end));
        for run in half_deleted(core, io, tenant, &runs).await? {
            if out.len() >= wanted {
                return failed;
            }
            match purge::purge(core, io, tenant, run).await {
                Ok(()) => {
                    out.push(run);
                    assert!(out.len() <= wanted, "no more runs are deleted than asked for");
                }
                Err(error) => failed = failed.and(Err(error)),
            }
        }
    }
    failed
}

/// Returns the `runs` that have a tombstone and no head. The keys are counted, not decoded, so
/// damaged values do not matter.
async fn half_deleted(
    core: &Core,
    io: &Io,
    tenant: TenantId,
    runs: &[RunId],
) -> Result<Vec<RunId>, InfraError> {
    let mut found = Vec::new();
    for some in runs.chunks((core.limits.txn_ops / 2).max(1)) {
        let ranges = |run: &RunId| {
            [KeyRange::run_head(tenant, *run), KeyRange::tombstone(tenant, *run)].map(Read::Count)
        };
        let mut answers = io.read(some.iter().flat_map(ranges).collect()).await?;
        // Answers come in pairs, in the order of `ranges`: head, then tombstone.
        let is_half = |_: &&RunId| (answers.count(), answers.count()) == (0, 1);
        found.extend(some.iter().filter(is_half));
        answers.assert_used();
    }
    assert!(found.len() <= runs.len(), "each run is found once");
    Ok(found)
}

/// Collects abandoned runs until `out` has `wanted` runs.
///
/// # Errors
///
/// Returns the error of a collection at once. A head that cannot be decoded prevents only the
/// collection of its run; its error is returned after the others are collected.
async fn collect_stale(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, stale_after): (TenantId, u64),
    wanted: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    let mut pages = Pages::new(core, tenant, None);
    let mut failed = Ok(());
    while let Some(heads) = pages.next(io).await? {
        for (run, head) in pages.decode(&heads, &mut failed) {
            if out.len() >= wanted {
                return failed;
            }
            let operation = CollectRun { tenant, run, stale_after };
            let applies = operation.applies(now, head.rootless(), head.roots().last_chunk_at);
            // `applies` only filters the listing; the kernel decides again on a fresh load.
            if applies && collect_one(core, io, now, operation).await? {
                out.push(run);
                assert!(out.len() <= wanted, "no more runs are collected than asked for");
            }
        }
    }
    failed
}

/// Returns whether this call deleted the run.
async fn collect_one(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: CollectRun,
) -> Result<bool, InfraError> {
    match run_flight::fly(core, io, now, &operation, false).await {
        Ok(_) => {}
        // The registration continued between the listing and this load.
        Err(NotCollected::NotStale) => return Ok(false),
        Err(NotCollected::Stored(error)) => return Err(error),
    }
    let CollectRun { tenant, run, .. } = operation;
    // Before the deletion: the cancelled run stays findable until its shards are gone.
    purge::purge(core, io, tenant, run).await?;
    let delete = DeleteRun { tenant, run, op_id: COLLECTION_DELETES };
    match run_flight::fly(core, io, now, &delete, false).await {
        Ok(deleted) => Ok(deleted.is_executed()),
        Err(DeleteRunError::BackendError(error)) => Err(error),
        // A concurrent collection or deletion was faster.
        Err(
            DeleteRunError::RunNotFound
            | DeleteRunError::TenantMismatch { .. }
            | DeleteRunError::NotTerminal { .. }
            | DeleteRunError::OpIdConflict(_),
        ) => Ok(false),
    }
}

/// Pages of the heads of a tenant's runs.
struct Pages {
    tenant: TenantId,
    /// The range that is not read yet.
    rest: Option<KeyRange>,
    limit: usize,
}

impl Pages {
    fn new(core: &Core, tenant: TenantId, after: Option<RunId>) -> Self {
        let all = KeyRange::runs_of(tenant);
        assert!(core.limits.page > 0, "a page holds at least one key");
        let rest = after.map_or(all, |run| all.after(&Key::RunHead { tenant, run }));
        Self { tenant, rest: Some(rest), limit: core.limits.page }
    }

    async fn next(&mut self, io: &Io) -> Result<Option<Vec<(RunId, Versioned)>>, InfraError> {
        let Some(range) = self.rest.take() else { return Ok(None) };
        let page = io.read(vec![Read::Scan { range, limit: self.limit }]).await?.page();
        assert!(page.len() <= self.limit, "a store respects the page limit");
        let full = page.last().filter(|_| page.len() >= self.limit);
        self.rest = full.map(|(key, _)| range.after(key));
        let of_run = |(key, value)| {
            let Key::RunHead { run, .. } = key else { return None };
            Some((run, value))
        };
        Ok(Some(page.into_iter().filter_map(of_run).collect()))
    }

    /// Returns the heads that can be decoded. The first error is kept in `failed`, because a
    /// damaged head must not hide the others.
    fn decode(
        &self,
        heads: &[(RunId, Versioned)],
        failed: &mut Result<(), InfraError>,
    ) -> Vec<(RunId, RunHeadPart)> {
        let mut decoded = Vec::with_capacity(heads.len());
        for (run, head) in heads {
            match decode_run_head(self.tenant, *run, &head.bytes) {
                Ok(head) => decoded.push((*run, head)),
                Err(error) if failed.is_ok() => *failed = Err(error),
                Err(_) => {}
            }
        }
        decoded
    }
}
