//! Looking after a tenant's runs: which of them are not over, those that were given up, and what
//! deletions left that broke off.
//!
//! A collection cancels the run, takes away what was registered of it, and deletes it, in this
//! order: as long as there is anything left, the run is there too, and whoever collects next goes
//! on with it.
//!
//! A deletion replaces the head by a tombstone first, so that nobody finds half a run, and then
//! sweeps. Names of roots are written with a head, and are swept last. So names of a run that has a
//! tombstone and no head are a sweep that broke off, or one that goes on just now: to help with
//! that is harmless. A run that is being made or registered has a head.

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

/// Which runs a listing wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunsListed {
    NotOver,
    All,
}

/// Appends up to `limit` runs behind `after`, in the order of their ids. Whether one is over only
/// its head tells; that it is there, its key.
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
    while let Some(heads) = pages.next(io).await? {
        let room = wanted - out.len();
        match which {
            RunsListed::All => out.extend(heads.iter().map(|(run, _)| *run).take(room)),
            RunsListed::NotOver => {
                let mut heads = pages.decode(&heads)?;
                heads.retain(|(_, head)| !head.head().status.is_terminal());
                out.extend(heads.iter().map(|(run, _)| *run).take(room));
            }
        }
        if out.len() >= wanted {
            break;
        }
    }
    Ok(())
}

/// Finishes deletions that broke off, collects runs that were given up, up to `limit` of both, and
/// appends them to `out`.
pub(super) async fn collect(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, stale_after): (TenantId, u64),
    limit: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    let wanted = out.len().saturating_add(limit);
    let finished = finish_deletions(core, io, tenant, wanted, out).await;
    // What cannot be finished is no reason to keep what can be collected.
    collect_stale(core, io, now, (tenant, stale_after), wanted, out).await.and(finished)
}

/// Finishes deletions until `out` has as many runs as are `wanted`.
///
/// # Errors
///
/// The first of those that were met; all deletions are tried nevertheless.
async fn finish_deletions(
    core: &mut Core,
    io: &Io,
    tenant: TenantId,
    wanted: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    let (mut rest, limit) = (Some(KeyRange::all_roots_of(tenant)), core.limits.page);
    let mut failed = Ok(());
    while let Some(range) = rest {
        let page = io.read(vec![Read::Scan { range, limit }]).await?.page();
        let run_of = |key: &Key| match key {
            Key::RunRoots { run, .. } => Some(*run),
            _ => None,
        };
        let mut runs: Vec<_> = page.iter().filter_map(|(key, _)| run_of(key)).collect();
        runs.dedup();
        // Whatever more there is of the last one says the same.
        let last = runs.last().filter(|_| page.len() >= limit);
        let end = last.map(|run| Key::RunRoots { tenant, run: *run, chunk: u16::MAX });
        rest = end.map(|end| range.after(&end));
        for run in half_deleted(core, io, tenant, &runs).await? {
            if out.len() >= wanted {
                return failed;
            }
            match purge::purge(core, io, tenant, run).await {
                Ok(()) => out.push(run),
                Err(error) => failed = failed.and(Err(error)),
            }
        }
    }
    failed
}

/// Those of `runs` that have a tombstone and no head. They are counted and not read: nobody decides
/// about what they say.
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
        let is_half = |_: &&RunId| (answers.count(), answers.count()) == (0, 1);
        found.extend(some.iter().filter(is_half));
    }
    Ok(found)
}

/// Collects runs that were given up until `out` has as many as are `wanted`.
async fn collect_stale(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    (tenant, stale_after): (TenantId, u64),
    wanted: usize,
    out: &mut Vec<RunId>,
) -> Result<(), InfraError> {
    let mut pages = Pages::new(core, tenant, None);
    while let Some(heads) = pages.next(io).await? {
        for (run, head) in pages.decode(&heads)? {
            if out.len() >= wanted {
                return Ok(());
            }
            let operation = CollectRun { tenant, run, stale_after };
            let applies = operation.applies(now, head.rootless(), head.roots().last_chunk_at);
            if applies && collect_one(core, io, now, operation).await? {
                out.push(run);
            }
        }
    }
    Ok(())
}

/// Answers whether this was the collection that took the run away.
async fn collect_one(
    core: &mut Core,
    io: &Io,
    now: LogicalTime,
    operation: CollectRun,
) -> Result<bool, InfraError> {
    match run_flight::fly(core, io, now, &operation, false).await {
        Ok(_) => {}
        Err(NotCollected::NotStale) => return Ok(false),
        Err(NotCollected::Stored(error)) => return Err(error),
    }
    let CollectRun { tenant, run, .. } = operation;
    purge::purge(core, io, tenant, run).await?;
    let delete = DeleteRun { tenant, run, op_id: COLLECTION_DELETES };
    match run_flight::fly(core, io, now, &delete, false).await {
        Ok(deleted) => Ok(deleted.is_executed()),
        Err(DeleteRunError::BackendError(error)) => Err(error),
        // Somebody else was faster.
        Err(
            DeleteRunError::RunNotFound
            | DeleteRunError::TenantMismatch { .. }
            | DeleteRunError::NotTerminal { .. }
            | DeleteRunError::OpIdConflict(_),
        ) => Ok(false),
    }
}

/// The heads of a tenant's runs, page by page.
struct Pages {
    tenant: TenantId,
    /// What is still to be read.
    rest: Option<KeyRange>,
    limit: usize,
}

impl Pages {
    fn new(core: &Core, tenant: TenantId, after: Option<RunId>) -> Self {
        let all = KeyRange::runs_of(tenant);
        let rest = after.map_or(all, |run| all.after(&Key::RunHead { tenant, run }));
        Self { tenant, rest: Some(rest), limit: core.limits.page }
    }

    async fn next(&mut self, io: &Io) -> Result<Option<Vec<(RunId, Versioned)>>, InfraError> {
        let Some(range) = self.rest.take() else { return Ok(None) };
        let page = io.read(vec![Read::Scan { range, limit: self.limit }]).await?.page();
        let full = page.last().filter(|_| page.len() >= self.limit);
        self.rest = full.map(|(key, _)| range.after(key));
        let of_run = |(key, value)| match key {
            Key::RunHead { run, .. } => Some((run, value)),
            _ => None,
        };
        Ok(Some(page.into_iter().filter_map(of_run).collect()))
    }

    fn decode(
        &self,
        heads: &[(RunId, Versioned)],
    ) -> Result<Vec<(RunId, RunHeadPart)>, InfraError> {
        let decoded = |(run, head): &(RunId, Versioned)| {
            Ok((*run, decode_run_head(self.tenant, *run, &head.bytes)?))
        };
        heads.iter().map(decoded).collect()
    }
}
